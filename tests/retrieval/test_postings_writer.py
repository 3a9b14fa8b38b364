"""Postings written in blocks are those that are made in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from interlingua.retrieval import postings_writer
from interlingua.retrieval.postings import Postings
from interlingua.retrieval.postings_writer import write_postings

RANDOM = np.random.default_rng(3)
SOME = [RANDOM.zipf(1.4, size=RANDOM.integers(0, 30)).clip(max=60).tolist() for _ in range(200)]
GAPLESS = {term: number for number, term in enumerate(sorted({term for passage in SOME for term in passage}))}


@pytest.mark.parametrize("block", [1, 7, 100, 1 << 22])
@pytest.mark.parametrize("passages", [
    [[GAPLESS[term] for term in passage] for passage in SOME], [[0]] * 40, [[], [], []], [],
    [[], [1, 0, 1], [], [2, 2, 2, 2], [0], []]], ids=["random", "one term", "empty", "none", "gaps"])
def test_blocks_change_nothing(
        passages: list[list[int]], block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postings_writer, "BLOCK", block)
    write_postings(iter(passages), tmp_path)
    wanted = vars(Postings.of(passages))
    assert {file.name for file in tmp_path.iterdir()} == {f"{name}.npy" for name in wanted}
    for name, array in wanted.items():
        written = np.load(tmp_path / f"{name}.npy")
        assert written.dtype == array.dtype, name
        assert written.tolist() == array.tolist(), name
