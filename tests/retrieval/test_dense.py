from __future__ import annotations

import numpy as np
import pytest
import torch

from interlingua.data.records import Collection, Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.retrieval import Run, retrieve, search, search_exact
from interlingua.retrieval.dense import exact as dense
from interlingua.retrieval.retriever import searchable
from interlingua.retrieval.run import average_precision, gold_ranks


def sort_everything(queries, query_ids, passages, passage_ids, k):
    scores = queries @ passages.T
    return Run.from_scores(
        {name: dict(zip(passage_ids, row.tolist(), strict=True)) for name, row in zip(query_ids, scores, strict=True)}
    ).truncate(k)


def whole_numbers(rng, shape, high=2):
    """Small integers: products are exact, so ties are true ties whatever the order of summation."""
    return rng.integers(-high, high + 1, shape).astype(np.float32)


@pytest.mark.parametrize("k", [1, 2, 7, 64, 65, 199, 200, 500])
@pytest.mark.parametrize("held", [1 << 24, 130])
def test_search_is_sorting_all_scores_also_when_a_tie_straddles_the_cut(k, held, monkeypatch):
    monkeypatch.setattr(dense, "SCORES_HELD", held)
    rng = np.random.default_rng(k)
    queries, passages = whole_numbers(rng, (23, 4)), whole_numbers(rng, (200, 4))
    query_ids = [f"q{i}" for i in range(23)]
    passage_ids = [f"p{i}" for i in rng.permutation(200)]
    expected = sort_everything(queries, query_ids, passages, passage_ids, k)
    for block in (1, 64, 128, 10_000):
        assert search(queries, query_ids, passages, passage_ids, k, block=block) == expected
    assert all(len(expected[name]) == min(k, 200) for name in expected)


def test_equal_passages_tie_whatever_their_place_in_the_matrix():
    rng = np.random.default_rng(0)
    for count in (97, 333, 777):
        passages = rng.standard_normal((count, 96)).astype(np.float32)
        originals, copies = rng.permutation(count)[: count // 2 * 2].reshape(2, -1)
        passages[copies] = passages[originals]
        for asked in (1, 2, 3, 33):
            queries = rng.standard_normal((asked, 96)).astype(np.float32)
            indices, scores = search_exact(queries, passages, count, block=128)
            for found, values in zip(indices, scores, strict=True):
                score_of = dict(zip(found.tolist(), values.tolist(), strict=True))
                assert [score_of[i] for i in originals.tolist()] == [score_of[i] for i in copies.tolist()]


@pytest.mark.parametrize("direction", [1, -1])
def test_passages_in_order_of_score(direction):
    passages = np.repeat(np.arange(1000, dtype=np.float32), 2)[::direction, None]
    ids = [str(i) for i in range(2000)]
    queries = np.array([[1.0], [-1.0], [0.0]], dtype=np.float32)
    found = search(queries, ["up", "down", "same"], passages, ids, 5, block=128)
    assert found == sort_everything(queries, ["up", "down", "same"], passages, ids, 5)
    assert found.ids("same") == sorted(ids, reverse=True)[:5]


def test_accepts_memory_maps_tensors_and_half_precision(tmp_path):
    rng = np.random.default_rng(1)
    queries, passages = whole_numbers(rng, (5, 8)), whole_numbers(rng, (300, 8))
    np.save(tmp_path / "p.npy", passages)
    expected = search_exact(queries, passages, 10)
    for other in (
        np.load(tmp_path / "p.npy", mmap_mode="r"),
        torch.from_numpy(passages),
        passages.astype(np.float16),
        torch.from_numpy(passages).bfloat16(),
        passages[::-1][::-1],
        passages.astype(np.float64),
    ):
        indices, scores = search_exact(torch.from_numpy(queries), other, 10, block=64)
        assert (indices == expected[0]).all()
        assert (scores == expected[1]).all()
    assert expected[0].dtype == np.int64
    assert expected[1].dtype == np.float32


def test_half_precision_passages_are_accumulated_in_float32():
    ones = np.ones((1, 5000), dtype=np.float16)  # 5000 is not a float16
    assert search_exact(ones, ones, 1)[1].tolist() == [[5000.0]]


def test_rows_restrict_the_search():
    rng = np.random.default_rng(2)
    queries, passages = whole_numbers(rng, (4, 5)), whole_numbers(rng, (150, 5))
    rows = np.sort(rng.permutation(150)[:70])
    indices, scores = search_exact(queries, passages, 20, rows=rows, block=64)
    inner, same = search_exact(queries, passages[rows], 20)
    assert (rows[inner] == indices).all()
    assert (scores == same).all()
    assert search_exact(queries, passages, 20, rows=rows[:0])[0].shape == (4, 0)


def test_no_queries_gives_no_rows():
    assert search_exact(np.zeros((0, 3), np.float32), np.ones((4, 3), np.float32), 2)[0].shape == (0, 2)


def test_tf32_is_not_used_and_the_setting_is_given_back():
    torch.set_float32_matmul_precision("high")
    try:
        search_exact(np.ones((1, 2), np.float32), np.ones((1, 2), np.float32), 1)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.gpu
def test_same_ranking_on_a_gpu():
    rng = np.random.default_rng(3)
    queries, passages = whole_numbers(rng, (40, 16)), whole_numbers(rng, (5000, 16))
    here, there = (search_exact(queries, passages, 50, block=1024, device=place) for place in ("cpu", "cuda"))
    assert (here[0] == there[0]).all()
    assert (here[1] == there[1]).all()


@pytest.mark.parametrize(
    ("queries", "passages", "k", "message"),
    [
        (np.ones((1, 2)), np.ones((1, 3)), 1, "same dim"),
        (np.ones((1, 2)), np.ones((1, 2)), 0, "k=0"),
        (np.ones((1, 2)), np.full((2, 2), np.nan), 1, "NaN"),
        (np.ones((1, 2)), np.full((2, 2), np.nan), 5, "NaN"),
    ],
)
def test_bad_matrices_are_refused(queries, passages, k, message):
    with pytest.raises(InterlinguaError, match=message):
        search_exact(queries, passages, k)


def test_numbers_of_ids_must_agree():
    with pytest.raises(InterlinguaError, match="must agree"):
        search(np.ones((1, 2)), ["q"], np.ones((2, 2)), ["p"], 1)


class TableEncoder:
    """Gives each text the vector of a table."""

    def __init__(self, table, similarity):
        self.table, self.similarity = table, similarity

    def encode_query(self, sentences, **options):
        return np.array([self.table[text] for text in sentences])

    encode_document = encode_query


TABLE = {"ask": [1.0, 0.0], "long": [9.0, 9.0], "near": [1.0, 0.1], ("title", "text"): [0.0, 1.0]}
POOL = [Passage("p1", "long"), Passage("p2", "near"), Passage("p3", "text", "title")]


def test_retrieve_follows_the_encoders_similarity_and_passes_titles():
    collection = Collection("c", POOL, [Query("q", "ask")])
    assert retrieve(TableEncoder(TABLE, "dot"), collection)["q"] == [("p1", 9.0), ("p2", 1.0), ("p3", 0.0)]
    cosine = retrieve(TableEncoder(TABLE, "cosine"), collection, depth=2)["q"]
    assert [name for name, _ in cosine] == ["p2", "p1"]
    assert cosine[1][1] == pytest.approx(2**-0.5, abs=1e-7)


def test_vectors_that_cannot_be_searched_name_the_text():
    ids = ["a", "b"]
    with pytest.raises(InterlinguaError, match="passage 'b': its vector holds NaN"):
        searchable([[1, 0], [np.inf, 0]], "dot", ids, "passage")
    with pytest.raises(InterlinguaError, match="query 'b': its vector is zero"):
        searchable([[1, 0], [0, 0]], "cosine", ids, "query")
    assert searchable([[1, 0], [0, 0]], "dot", ids, "query").tolist() == [[1, 0], [0, 0]]
    with pytest.raises(InterlinguaError, match="similarity 'l2'"):
        searchable([[1, 0], [0, 0]], "l2", ids, "query")
    with pytest.raises(InterlinguaError, match="shape"):
        searchable([[1, 0]], "dot", ids, "query")


def test_tiny_vectors_have_a_cosine():
    assert searchable([[3e-30, 4e-30]], "cosine", ["a"], "query") == pytest.approx(np.array([[0.6, 0.8]]))


def test_gold_ranks_are_the_places_in_the_full_ranking():
    rng = np.random.default_rng(4)
    queries, passages = whole_numbers(rng, (30, 4)), whole_numbers(rng, (90, 4))
    ids = [f"p{i}" for i in rng.permutation(90)]
    golds = [np.sort(rng.permutation(90)[: rng.integers(0, 6)]) for _ in range(30)]
    full = sort_everything(queries, [str(i) for i in range(30)], passages, ids, 90)
    found = gold_ranks(queries, passages, golds, dense.tie_ranks(ids), block=7)
    for i, (gold, ranks) in enumerate(zip(golds, found, strict=True)):
        assert ranks.tolist() == sorted(full.ids(str(i)).index(ids[g]) + 1 for g in gold)


def test_copies_of_a_passage_tie_in_gold_ranks():
    rng = np.random.default_rng(5)
    for count in range(5, 60):
        passages = rng.standard_normal((count, 24)).astype(np.float32)
        passages[-1] = passages[0]
        queries = rng.standard_normal((20, 24)).astype(np.float32)
        order = np.arange(count)[::-1]  # of the copies the last is the first
        first, last = (np.ravel(gold_ranks(queries, passages, [np.array([g])] * 20, order)) for g in (0, count - 1))
        assert (first == last + 1).all()


def test_average_precision_by_hand():
    assert average_precision(np.array([1, 4])) == (1 / 1 + 2 / 4) / 2
    assert average_precision(np.array([], dtype=np.int64)) == 0.0
