"""Postings written in blocks are those that are made in memory, with the terms in the order of their keys."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

from interlingua.array_folder import ArrayFolder, Layout
from interlingua.retrieval.bm25 import postings as postings_writer
from interlingua.retrieval.bm25.postings import Postings, join_blocks, keys_of, write_blocks

RANDOM = np.random.default_rng(3)
SOME = [[f"t{n}" for n in RANDOM.zipf(1.4, size=RANDOM.integers(0, 30)).clip(max=60)] for _ in range(60)]


@pytest.mark.parametrize("block", [pytest.param(1, marks=pytest.mark.slow), 7, 100, 1 << 22])
@pytest.mark.parametrize(
    "passages",
    [SOME, [["a"]] * 40, [[], [], []], [], [[], ["b", "a", "b"], [], ["語", "語", "語", "語"], ["a", "\ud800"], []]],
    ids=["random", "one term", "empty", "none", "gaps"],
)
def test_blocks_change_nothing(
    passages: list[list[str]], block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings_writer, "BLOCK", block)
    monkeypatch.setattr(postings_writer, "JOINED", block)
    layout = Layout("postings", 1, "postings")
    with ArrayFolder.write(tmp_path / "p", layout) as folder:
        half = len(passages) // 2
        write_blocks(iter(passages[:half]), 0, tmp_path / "first")
        write_blocks(iter(passages[half:]), half, tmp_path / "second")
        join_blocks([tmp_path / "first", tmp_path / "second"], folder)
    with ArrayFolder.open(tmp_path / "p", layout) as opened:
        written = Postings.read(opened, len(passages))
    written.check()
    wanted = Postings.of(passages)
    assert {file.name for file in (tmp_path / "p").iterdir()} == {
        layout.file,
        *(f"{name}.npy" for name in vars(wanted)),
    }
    for name, array in vars(wanted).items():
        assert getattr(written, name).dtype == array.dtype, name
        assert getattr(written, name).tolist() == array.tolist(), name
    vocabulary = sorted({term for passage in passages for term in passage}, key=lambda term: int(keys_of([term])[0]))
    assert written.numbers(vocabulary) == list(range(len(vocabulary)))


@pytest.mark.parametrize("block", [1, 1 << 22])
def test_terms_with_one_key_count_as_one(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings_writer, "BLOCK", block)
    monkeypatch.setattr(postings_writer, "JOINED", block)
    monkeypatch.setattr(postings_writer, "digest", lambda term: bytes(7) + bytes([ord(term) // 2]))
    passages, layout = [["a", "b"], ["b", "c", "b"], ["d"]], Layout("postings", 1, "postings")  # b and c share one
    with ArrayFolder.write(tmp_path / "p", layout) as folder:
        write_blocks(passages, 0, tmp_path / "blocks")
        join_blocks([tmp_path / "blocks"], folder)
    with ArrayFolder.open(tmp_path / "p", layout) as opened:
        written = Postings.read(opened, 3)
    for postings in (written, Postings.of(passages)):
        [number] = postings.numbers(["c"])
        assert postings.passages[postings.part(number)].tolist() == [0, 1]
        assert postings.counts[postings.part(number)].tolist() == [1, 3]


def test_a_block_that_is_written_leaves_nothing_for_the_search_for_cycles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postings_writer, "BLOCK", 100)
    gc.collect()
    gc.disable()
    try:
        write_blocks(([f"mark-{n}-{place}" for n in range(20)] for place in range(50)), 0, tmp_path / "blocks")
        held = [kept for kept in gc.get_objects() if isinstance(kept, dict) and "mark-0-0" in kept]
    finally:
        gc.enable()
    assert not held  # with rare searches (`use_memory_sparingly`) the terms of many blocks would be in memory
