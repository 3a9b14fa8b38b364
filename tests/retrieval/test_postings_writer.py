"""Postings written in blocks are those that are made in memory, with the terms in the order of their keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from interlingua.retrieval.bm25 import postings as postings_writer
from interlingua.retrieval.bm25.postings import Postings, TermTable, keys_of, write_postings

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
    write_postings(iter(passages), tmp_path)
    vocabulary = sorted({term for passage in passages for term in passage}, key=lambda term: int(keys_of([term])[0]))
    numbers = {term: number for number, term in enumerate(vocabulary)}
    wanted = vars(Postings.of([[numbers[term] for term in passage] for passage in passages]))
    assert {file.name for file in tmp_path.iterdir()} == {"terms.npy", *(f"{name}.npy" for name in wanted)}
    for name, array in wanted.items():
        written = np.load(tmp_path / f"{name}.npy")
        assert written.dtype == array.dtype, name
        assert written.tolist() == array.tolist(), name
    table = TermTable(np.load(tmp_path / "terms.npy", mmap_mode="r"))
    assert [table.get(term) for term in vocabulary] == list(range(len(vocabulary)))
    assert table.get("no such term") is None
