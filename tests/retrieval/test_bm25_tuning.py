from __future__ import annotations

import pytest

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.retrieval.bm25.bm25 import B_GRID, BM25, K1_GRID, tune_bm25

PASSAGES = [
    Passage("short", "cat", lang="en"),
    Passage("long", "cat cat " + "dog " * 30, lang="en"),
    Passage("other", "dog bird " * 5, lang="en"),
]
QUERIES = [Query("q", "cat", "en")]


def first_is_long(run):
    return run["q"][0][1] if run.ids("q")[0] == "long" else 0.0


def test_the_grid_is_what_building_each_would_give():
    tuned = tune_bm25(PASSAGES, QUERIES, first_is_long, k1=(0.1, 1.6), b=(0.1, 0.5, 1.0))
    assert list(tuned.grid) == [(k1, b) for k1 in (0.1, 1.6) for b in (0.1, 0.5, 1.0)]
    for (k1, b), value in tuned.grid.items():
        assert value == first_is_long(BM25.build(PASSAGES, k1=k1, b=b).search(QUERIES, 100))
    assert len(set(tuned.grid.values())) > 2
    assert tuned.value == max(tuned.grid.values()) == tuned.grid[tuned.best]
    assert (tuned.bm25.k1, tuned.bm25.b) == tuned.best
    assert first_is_long(tuned.bm25.search(QUERIES, 100)) == tuned.value


def test_passages_are_analysed_once_whatever_the_grid(monkeypatch):
    asked = []

    def passages():
        asked.append(1)
        yield from PASSAGES

    tuned = tune_bm25(passages(), QUERIES, first_is_long, analyzer="whitespace")
    assert asked == [1]
    assert len(tuned.grid) == len(K1_GRID) * len(B_GRID) == 160
    assert (K1_GRID[0], K1_GRID[-1], B_GRID[0], B_GRID[-1]) == (0.1, 1.6, 0.1, 1.0)
    assert tuned.bm25.analyzers["en"].name == "en/whitespace"


def test_between_equals_the_pair_nearest_the_usual_wins():
    tuned = tune_bm25(PASSAGES, QUERIES, lambda run: 1.0)
    assert tuned.best == (0.9, 0.4)


def test_the_run_has_the_depth_asked_for():
    seen = []
    tune_bm25(PASSAGES, QUERIES, lambda run: seen.append(len(run["q"])) or 0.0, k1=(0.9,), b=(0.4,), depth=1)
    assert seen == [1]


def test_nothing_to_tune_is_an_error():
    with pytest.raises(InterlinguaError, match="0 queries"):
        tune_bm25(PASSAGES, [], first_is_long)
    with pytest.raises(InterlinguaError, match="0 values of k1"):
        tune_bm25(PASSAGES, QUERIES, first_is_long, k1=())
    with pytest.raises(InterlinguaError, match="k1=-1"):
        tune_bm25(PASSAGES, QUERIES, first_is_long, k1=(-1,))
