from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
import torch

from interlingua.errors import InterlinguaError
from interlingua.models.encode import TokenVectors
from interlingua.models.static.encoder import int8_rows
from interlingua.retrieval.late_interaction import maxsim
from interlingua.retrieval.late_interaction.maxsim import maxsim_matrix, maxsim_scores
from interlingua.retrieval.late_interaction.token_store import DTYPES, TokenStore

WAYS = ("numba", "torch", "tensor")  # compiled; numba not installed; a store on a device


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """A function that takes a store to where one way of computing is used."""
    if request.param == "numba":
        pytest.importorskip("numba")
        return lambda store: store
    if request.param == "torch":
        monkeypatch.setattr(maxsim, "kernels", lambda: None)
        return lambda store: store
    return lambda store: store.to("cpu")


def ragged(counts, dim, seed=0, unit=True):
    rows = np.random.default_rng(seed).standard_normal((sum(counts), dim)).astype(np.float32)
    if unit:
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return TokenVectors(torch.from_numpy(rows), list(counts))


def stored(vectors, dtype="float32"):
    return TokenStore.build([([f"p{i}" for i in range(len(vectors))], vectors)], dtype=dtype)


def by_definition(queries, store):
    """Loops over queries, passages, query tokens; float64."""
    found = np.empty((len(queries), len(store)))
    for i, query in enumerate(queries):
        tokens = query.numpy().astype(np.float64)
        if store.dtype == "int8":
            rounded, scales = int8_rows(query.numpy())
            tokens = rounded.astype(np.float64) * scales[:, None]
        for j in range(len(store)):
            passage = store[j].astype(np.float64)
            found[i, j] = sum(max(one @ other for other in passage) for one in tokens) if len(passage) else -np.inf
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [1, 7, 128])
def test_scores_are_those_of_the_definition(dtype, dim, way, monkeypatch):
    monkeypatch.setattr(maxsim, "CPU_PRODUCTS", 1)
    monkeypatch.setattr(maxsim, "LEAST", 20)  # several blocks, and passages longer than one
    queries = ragged([32, 1, 0, 33, 70, 5], dim)
    passages = ragged([3, 0, 1, 2, 4, 5, 7, 8, 9, 15, 16, 17, 40, 1, 0, 6], dim, seed=1)
    store = stored(passages, dtype)
    found = maxsim_matrix(queries, way(store))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_definition(queries, store), rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(maxsim_scores(queries[3], way(store)), found[3], rtol=0, atol=1e-5)


def test_as_padding_and_masking_give(way):
    queries, passages = ragged([32, 20], 16), ragged([5, 180, 1, 77], 16, seed=1)
    (q, q_mask), (d, d_mask) = queries.padded(), passages.padded()
    products = torch.einsum("aqd,btd->abqt", q, d).masked_fill(~d_mask[None, :, None], -torch.inf)
    padded = (products.amax(3) * q_mask[:, None]).sum(2)
    np.testing.assert_allclose(maxsim_matrix(queries, way(stored(passages))), padded, rtol=0, atol=1e-4)


@pytest.mark.slow  # the import
def test_as_sentence_transformers_scores():
    similarity = pytest.importorskip("sentence_transformers.util.similarity")
    queries, passages = ragged([32, 32], 24), ragged([5, 180, 1, 77], 24, seed=1)
    theirs = similarity.maxsim(list(queries), list(passages))
    np.testing.assert_allclose(maxsim_matrix(queries, stored(passages)), theirs, rtol=0, atol=1e-4)


def test_a_unit_text_against_itself_scores_its_number_of_tokens(way):
    texts = ragged([1, 9, 33], 20)
    np.testing.assert_allclose(np.diag(maxsim_matrix(texts, way(stored(texts)))), [1, 9, 33], rtol=1e-6)


def test_negative_products_are_not_raised_to_zero(way):
    tokens = ragged([3], 6)
    assert maxsim_scores(tokens[0][:1], way(stored(TokenVectors(-tokens[0][:1], [1]))))[0] == pytest.approx(-1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [7, 33, 96])
def test_equal_passages_tie_wherever_they_lie(dtype, dim, way, monkeypatch):
    passages = ragged([11, 180, 3, 64, 1], dim)
    order = np.random.default_rng(1).integers(0, 5, 60)
    copies = way(stored(passages.select(order.tolist()), dtype))
    for room in (300, 100_000):
        monkeypatch.setattr(maxsim, "LEAST", room)
        for counts in ([32], [1], [5], [7, 32, 5]):
            for scores in maxsim_matrix(ragged(counts, dim, seed=2), copies):
                assert all(len(set(scores[order == one].tolist())) == 1 for one in range(5))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_score_is_the_same_to_the_last_bit_whatever_is_scored_beside_it(dtype, monkeypatch):
    pytest.importorskip("numba")
    queries, store = ragged([32, 5, 40], 33), stored(ragged([9, 0, 30, 2, 17, 4, 50, 8], 33, seed=1), dtype)
    whole = maxsim_matrix(queries, store)
    rows = [6, 2, 2, 1, 0]
    np.testing.assert_array_equal(maxsim_matrix(queries, store, rows), whole[:, rows])
    for query, scores in zip(queries, whole, strict=True):
        np.testing.assert_array_equal(maxsim_scores(query, store), scores)
    kernels = maxsim.kernels()
    assert kernels is not None
    monkeypatch.setattr(maxsim, "SHARE", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for most in (1, 2, 3):
        monkeypatch.setattr(kernels, "MOST_THREADS", most)
        np.testing.assert_array_equal(maxsim_matrix(queries, store), whole)


def test_threads_are_as_many_as_both_limits_allow(monkeypatch):
    kernels = pytest.importorskip("interlingua.retrieval.late_interaction.kernels")
    asked = []

    class Pool(maxsim.ThreadPoolExecutor):
        def __init__(self, threads):
            asked.append(threads)
            super().__init__(threads)

    monkeypatch.setattr(maxsim, "ThreadPoolExecutor", Pool)
    queries, store = ragged([32], 8), stored(ragged([50] * 40, 8))
    monkeypatch.setattr(kernels, "MOST_THREADS", 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    maxsim_matrix(queries, store)
    assert asked == []  # too little work
    monkeypatch.setattr(maxsim, "SHARE", 1)
    maxsim_matrix(queries, store)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    maxsim_matrix(queries, store)
    assert asked == [3, 4]


def test_every_float16_is_read_as_it_is(way):
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)].astype(np.float32)
    store = stored(TokenVectors(torch.from_numpy(every[:, None]), [1] * len(every)), "float16")
    np.testing.assert_array_equal(maxsim_scores(torch.ones(1, 1), way(store)), every)


def test_int8_sums_are_exact_integers(way):
    rng = np.random.default_rng(0)
    query, passages = (rng.integers(-127, 128, (count, 512)).astype(np.float32) for count in (1, 40))
    query[:, 0] = passages[:, 0] = 127  # so that every scale is 1
    store = stored(TokenVectors(torch.from_numpy(passages), [1] * 40), "int8")
    assert maxsim_scores(query, way(store)).tolist() == (passages @ query[0].astype(np.float64)).tolist()


def test_a_mapped_store_and_one_in_memory_score_alike(tmp_path, way):
    passages = ragged([5, 0, 9], 12)
    for dtype in DTYPES:
        mapped = TokenStore.build([(["a", "b", "c"], passages)], dtype=dtype, path=tmp_path / dtype)
        query, held = ragged([32], 12, seed=4)[0], stored(passages, dtype)
        np.testing.assert_array_equal(maxsim_scores(query, way(mapped)), maxsim_scores(query, way(held)))


def test_nothing_to_score(way):
    store = way(stored(ragged([3, 0], 4)))
    assert maxsim_scores(ragged([2], 4)[0], store, []).shape == (0,)
    assert maxsim_matrix(ragged([], 4), store).shape == (0, 2)
    assert maxsim_scores(ragged([0], 4)[0], store).tolist() == [0, -np.inf]
    assert maxsim_scores(ragged([2], 4)[0], way(stored(ragged([0, 0], 4)))).tolist() == [-np.inf, -np.inf]


def test_without_a_numba_that_works_torch_computes(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "interlingua.retrieval.late_interaction.kernels", raising=False)
    monkeypatch.delattr("interlingua.retrieval.late_interaction.kernels", raising=False)
    try:
        for numba, said in ((None, ""), (ModuleType("numba"), "numba cannot be used (cannot import name")):
            maxsim.kernels.cache_clear()
            monkeypatch.setitem(sys.modules, "numba", numba)
            assert maxsim.kernels() is None
            assert capsys.readouterr().err.startswith(said)
    finally:
        maxsim.kernels.cache_clear()


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
def test_scores_of_a_gpu(dtype):
    order = np.random.default_rng(1).integers(0, 4, 200)
    passages = ragged([180, 0, 33, 1], 128, seed=1).select(order.tolist())
    queries, store = ragged([32, 7], 128), stored(passages, dtype)
    found = maxsim_matrix(queries, store.to("cuda"))
    np.testing.assert_allclose(found, maxsim_matrix(queries, store), rtol=0, atol=1e-4)
    assert all(len(set(scores[order == one].tolist())) == 1 for scores in found for one in range(4))


def test_what_cannot_be_scored_is_refused(way):
    store = way(stored(ragged([3, 1], 4)))
    with pytest.raises(InterlinguaError, match=r"size 5 .* size 4"):
        maxsim_scores(ragged([2], 5)[0], store)
    for rows in ([0, 2], [-1]):
        with pytest.raises(InterlinguaError, match="of 2 passages"):
            maxsim_scores(ragged([2], 4)[0], store, rows)
    with pytest.raises(InterlinguaError, match="NaN"):
        maxsim_scores(torch.full((1, 4), torch.nan), store)
