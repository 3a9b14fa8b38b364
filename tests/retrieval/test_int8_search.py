from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import torch

from interlingua.errors import Damaged, InterlinguaError
from interlingua.retrieval.dense import int8 as int8_layout
from interlingua.retrieval.dense import int8 as int8_search
from interlingua.retrieval.dense.exact import search_exact
from interlingua.retrieval.dense.int8 import Int8Matrix

ROWS = 3000


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def clustered(rng, count, dim):
    """Near neighbours that int8 alone cannot order."""
    return normal(np.random.default_rng(98), 60, dim)[rng.integers(0, 60, count)] + 0.02 * normal(rng, count, dim)


def one_way(rng, count, dim):
    """All vectors point much the same way, as those of many models do."""
    return normal(np.random.default_rng(99), dim) * 9 + normal(rng, count, dim)


def copies(rng, count, dim):
    return normal(rng, count // 8 + 1, dim)[rng.integers(0, count // 8 + 1, count)]


def outlier(rng, count, dim):
    found = normal(rng, count, dim)
    found[:, 0] *= 50
    return found


def exactly_int8(rng, count, dim):
    """Rows that int8 holds without error, around a centre of zero: only the queries are rounded."""
    half = rng.integers(-127, 128, (count // 2 + 1, dim)).astype(np.float32)
    half[:, 0] = 127
    return np.concatenate([half, -half])[np.r_[: count - count // 2, count // 2 + 1 : 2 * (count // 2) + 1]]


KINDS = {
    "random": normal,
    "clustered": clustered,
    "one way": one_way,
    "copies": copies,
    "outlier": outlier,
    "exactly int8": exactly_int8,
    "whole": lambda rng, *shape: rng.integers(-2, 3, shape).astype(np.float32),
    "half zero": lambda rng, *shape: normal(rng, *shape) * (rng.random((shape[0], 1)) < 0.5).astype(np.float32),
    "scales": lambda rng, *shape: normal(rng, *shape) * np.exp(rng.uniform(-15, 15, (shape[0], 1))).astype(np.float32),
    "sorted": lambda rng, *shape: (lambda found: found[np.argsort(found[:, 0])])(normal(rng, *shape)),
}


@pytest.fixture
def compiled():
    pytest.importorskip("numba")
    return int8_search.kernel()


def same(matrix, queries, vectors, k, **options):
    """The search gives what `search_exact` gives; how it came to it."""
    indices, scores = search_exact(queries, vectors, k, **options)
    matrix.counts.clear()
    found, values = matrix.search(queries, vectors, k, **options)
    assert found.dtype == np.int64
    assert values.dtype == np.float32
    assert (found == indices).all()
    assert values == pytest.approx(scores, rel=1e-6, abs=1e-6 * float(np.abs(scores).max(initial=0)))
    assert matrix.counts["queries"] == len(queries)
    return matrix.counts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dim", [33, 96])
def test_same_as_float32_although_few_rows_are_rescored(kind, dim, compiled):
    rng = np.random.default_rng(dim)
    vectors = KINDS[kind](rng, ROWS, dim)
    ties = rng.permutation(ROWS)
    matrix = Int8Matrix.build(vectors)
    for count, k in ((1, 10), (5, 1), (70, 3), (1, 100)):
        queries = KINDS[kind](rng, count, dim)
        if kind == "half zero":
            queries = normal(rng, count, dim)
        for order in (None, ties):
            counts = same(matrix, queries, vectors, k, tie_order=order)
            if count < 70 or kind not in ("whole", "copies", "clustered"):  # there, many rows are near some query
                assert counts["float32"] == 0
                assert 0 < counts["rescored"] < ROWS / 2


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_few_dimensions(dim, compiled):
    rng = np.random.default_rng(dim)
    vectors, queries = normal(rng, ROWS, dim), normal(rng, 6, dim)
    matrix = Int8Matrix.build(vectors)
    assert same(matrix, queries, vectors, 4)["float32"] == 0
    assert same(matrix, queries[:1], vectors, 4)["float32"] == 0


@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 100])
@pytest.mark.parametrize("k", [1, 16, 200])
def test_few_rows(rows, k):
    rng = np.random.default_rng(rows)
    vectors, queries = normal(rng, rows, 8), normal(rng, 3, 8)
    same(Int8Matrix.build(vectors), queries, vectors, k)


@pytest.mark.parametrize("count", [1, 9])
@pytest.mark.parametrize("kind", KINDS)
def test_the_score_lies_between_the_bounds(kind, count, compiled, monkeypatch):
    rng = np.random.default_rng(5)
    vectors = KINDS[kind](rng, ROWS, 40)
    queries = vectors[rng.integers(0, ROWS, count)] + normal(rng, count, 40)
    matrix = Int8Matrix.build(vectors)
    shown = []
    reaching = int8_search.reaching
    monkeypatch.setattr(int8_search, "reaching", lambda parts, k: shown.append(list(parts)) or reaching(parts, k))
    matrix.search(queries, vectors, 300)
    assert len(shown) == len(queries)
    for query, parts in zip(queries.astype(np.float64), shown, strict=True):
        for rows, highest, lowest in parts:
            exact = (vectors[rows].astype(np.float64) - matrix.centre) @ query
            room = np.abs(vectors[rows].astype(np.float64)) @ np.abs(query) * 2**-24  # of a float32 score
            assert len(rows) >= 300
            assert (highest >= exact + room).all()
            assert (lowest <= exact - room).all()
            # and not by much: what int8 loses is below a hundredth of the norms
            wide = np.linalg.norm(query) * np.linalg.norm(vectors[rows] - matrix.centre, axis=1)
            assert (
                highest - lowest <= 0.04 * wide + 1e-3 * np.linalg.norm(query) * np.linalg.norm(matrix.centre) + 1e-30
            ).all()


def test_rows_that_differ_by_less_than_int8_can_hold(compiled):
    rng = np.random.default_rng(1)
    vectors = normal(rng, ROWS, 64)
    vectors[1000:1200] = vectors[1000] + 1e-4 * normal(rng, 200, 64)
    matrix = Int8Matrix.build(vectors)
    counts = same(matrix, vectors[1000:1001], vectors, 20)
    assert 200 <= counts["rescored"] < 300
    whole = matrix.packed.reshape(-1, 32, 16, 2).transpose(0, 2, 1, 3).reshape(-1, 64)[1000:1200]
    assert len(np.unique(whole, axis=0)) < 100  # int8 alone could not order them


def test_equal_rows_are_ordered_by_ties_in_float32(compiled):
    rng = np.random.default_rng(2)
    vectors = np.repeat(normal(rng, 1, 24), ROWS, axis=0)
    matrix = Int8Matrix.build(vectors)
    counts = same(matrix, normal(rng, 6, 24), vectors, 7, tie_order=rng.permutation(ROWS))
    assert (counts["float32"], counts["rescored"]) == (6, 0)
    assert same(matrix, np.zeros((1, 24), np.float32), vectors, 7)["float32"] == 1


def test_one_query_with_too_many_candidates_takes_its_batch_to_float32(compiled):
    rng = np.random.default_rng(3)
    vectors, queries = normal(rng, ROWS, 24), normal(rng, 130, 24)
    queries[100] = 0
    assert same(Int8Matrix.build(vectors), queries, vectors, 1)["float32"] == 65


def test_little_room_for_candidates(compiled, monkeypatch):
    rng = np.random.default_rng(4)
    vectors, queries = normal(rng, ROWS, 24), normal(rng, 8, 24)
    matrix = Int8Matrix.build(vectors)
    told = []
    for held in (8 * 40, 8 * 79, 8 * 80, 8 * 200, 8 * 1000):
        monkeypatch.setattr(int8_search, "HELD", held)
        told.append(same(matrix, queries, vectors, 20)["float32"])
    assert told[:2] == [8, 8]
    assert told[-1] == 0


def test_more_candidates_than_there_is_room_for(compiled, monkeypatch):
    monkeypatch.setattr(int8_search, "HELD", 2 * 64)
    rng = np.random.default_rng(15)
    vectors = np.repeat(normal(rng, 1, 24), ROWS, axis=0)
    assert same(Int8Matrix.build(vectors), normal(rng, 2, 24), vectors, 7)["float32"] == 2


def test_sums_stay_within_32_bits(compiled):
    vectors = np.random.default_rng(16).choice([-1, 1], (400, 700)).astype(np.float32)
    assert same(Int8Matrix.build(vectors), vectors[:3], vectors, 1)["rescored"] == 3


def test_each_thread_finds_its_share(compiled, monkeypatch):
    rng = np.random.default_rng(5)
    vectors, queries = normal(rng, ROWS + 5, 24), normal(rng, 9, 24)
    matrix = Int8Matrix.build(vectors)
    parts = []
    scan = compiled.scan
    monkeypatch.setattr(compiled, "scan", lambda blocks, *given: parts.append(blocks) or scan(blocks, *given))
    monkeypatch.setattr(compiled, "MOST_THREADS", 3)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(int8_search, "SHARE", 1)
    assert same(matrix, queries, vectors, 10)["float32"] == 0
    assert len(parts) == 3
    assert sorted(np.concatenate(parts).tolist()) == list(range(-(-(ROWS + 5) // 16)))


def test_rows_restrict_the_search(compiled):
    rng = np.random.default_rng(6)
    vectors, queries = KINDS["whole"](rng, ROWS, 16), normal(rng, 5, 16)
    matrix = Int8Matrix.build(vectors)
    ties = rng.permutation(ROWS)
    near = np.sort(rng.permutation(np.arange(500, 2900))[:1500])
    for rows, quick in (
        (near, True),
        (near[::-1], True),
        (rng.permutation(ROWS)[:200], False),
        (np.arange(ROWS - 40, ROWS), True),
        (np.arange(0), False),
        (np.arange(7), True),
        (np.arange(4), False),
    ):
        for order in (None, ties):
            counts = same(matrix, queries, vectors, 3, rows=rows, tie_order=order)
            assert counts["float32"] == (0 if quick else 5), rows
    with pytest.raises(IndexError):
        matrix.search(queries, vectors, 3, rows=np.array([ROWS]))


def test_vectors_may_be_memory_maps_tensors_and_half_precision(tmp_path, compiled):
    rng = np.random.default_rng(7)
    vectors, queries = KINDS["whole"](rng, ROWS, 8), normal(rng, 4, 8)
    np.save(tmp_path / "v.npy", vectors)
    expected = search_exact(queries, vectors, 9)
    for other in (
        np.load(tmp_path / "v.npy", mmap_mode="r"),
        torch.from_numpy(vectors),
        vectors.astype(np.float16),
        torch.from_numpy(vectors).bfloat16(),
        vectors[::-1][::-1],
        vectors.astype(np.float64),
    ):
        matrix = Int8Matrix.build(other)
        for asked in (queries, torch.from_numpy(queries), queries.astype(np.float64)):
            found = matrix.search(asked, other, 9)
            assert (found[0] == expected[0]).all()
            assert (found[1] == expected[1]).all()
        assert matrix.counts["float32"] == 0


@pytest.mark.parametrize(
    ("size", "asked", "quick"),
    [
        (1e-25, 1e-20, False),
        (1e18, 1e18, False),
        (1e35, 1e-30, False),
        (1e-40, 1.0, False),
        (1e-3, 1e25, True),
        (1e20, 1e-20, True),
    ],
)
def test_numbers_at_the_ends_of_float32(size, asked, quick, compiled):
    rng = np.random.default_rng(8)
    vectors = (normal(rng, 600, 12).astype(np.float64) * size).astype(np.float32)
    queries = (normal(rng, 1, 12).astype(np.float64) * asked).astype(np.float32)
    assert same(Int8Matrix.build(vectors), queries, vectors, 5)["float32"] == (0 if quick else 1)


def test_without_numba_it_is_float32(monkeypatch):
    monkeypatch.setattr(int8_search, "kernel", lambda: None)
    rng = np.random.default_rng(9)
    vectors = normal(rng, 500, 12)
    assert same(Int8Matrix.build(vectors), normal(rng, 4, 12), vectors, 5)["float32"] == 4


def test_a_folder_holds_the_same(tmp_path):
    rng = np.random.default_rng(10)
    vectors, queries = normal(rng, 2 * int8_layout.BLOCK + 21, 9), normal(rng, 4, 9)
    held = Int8Matrix.build(vectors)
    streamed = Int8Matrix.build(vectors, tmp_path / "a")
    for matrix in (streamed, Int8Matrix.load(tmp_path / "a")):
        assert isinstance(matrix.packed.base, np.memmap)
        for name in ("packed", "bounds", "centre"):
            assert (getattr(matrix, name) == getattr(held, name)).all()
        assert len(matrix) == len(vectors)
        same(matrix, queries, vectors, 5)
    other = normal(rng, 40, 3)
    assert len(Int8Matrix.build(other, tmp_path / "a")) == len(Int8Matrix.load(tmp_path / "a")) == 40
    assert len(Int8Matrix.build(other[:0], tmp_path / "a")) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_building_into_a_folder_holds_little_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(int8_layout, "BLOCK", 256)
    monkeypatch.setattr(int8_layout, "SAMPLE", 256)
    np.save(tmp_path / "v.npy", normal(np.random.default_rng(11), 40_000, 64))
    vectors = np.load(tmp_path / "v.npy", mmap_mode="r")
    tracemalloc.start()
    Int8Matrix.build(vectors, tmp_path / "int8")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000  # the vectors are 10 MB, as int8 2.6 MB, their bounds 0.6 MB


def test_a_failed_build_leaves_what_was_there(tmp_path):
    vectors = normal(np.random.default_rng(12), 2 * int8_layout.BLOCK, 4)
    Int8Matrix.build(vectors[:20], tmp_path / "a")
    vectors[int8_layout.BLOCK + 3, 1] = np.nan
    for path in (None, tmp_path / "a"):
        with pytest.raises(InterlinguaError, match=f"vector {int8_layout.BLOCK + 3} holds NaN"):
            Int8Matrix.build(vectors, path)
    assert len(Int8Matrix.load(tmp_path / "a")) == 20
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(InterlinguaError, match="not an earlier save"):
        Int8Matrix.build(vectors[:20], tmp_path / "mine")


def test_folders_that_cannot_be_read_are_named(tmp_path):
    path = tmp_path / "int8"
    Int8Matrix.build(normal(np.random.default_rng(13), 100, 6), path)
    with pytest.raises(InterlinguaError, match="no such folder"):
        Int8Matrix.load(tmp_path / "none")
    about = json.loads((path / "int8.json").read_text())
    for wrong in ({"rows": 200, "dim": 6}, {"rows": 100, "dim": 5}, {"rows": "x", "dim": 6}, {}):
        (path / "int8.json").write_text(json.dumps({**about, "facts": wrong}))
        with pytest.raises(Damaged, match=r"is damaged .*Build it again"):
            Int8Matrix.load(path)


def test_what_does_not_fit_is_refused():
    rng = np.random.default_rng(14)
    vectors = normal(rng, 100, 6)
    matrix = Int8Matrix.build(vectors)
    with pytest.raises(InterlinguaError, match="not those of an int8 matrix"):
        matrix.search(vectors[:2], vectors[:99], 1)
    with pytest.raises(InterlinguaError, match="same dim"):
        matrix.search(vectors[:2, :5], vectors, 1)
    with pytest.raises(InterlinguaError, match="same dim"):
        matrix.search(vectors[0], vectors, 1)
    with pytest.raises(InterlinguaError, match="k=0"):
        matrix.search(vectors[:2], vectors, 0)
    with pytest.raises(InterlinguaError, match="NaN"):
        matrix.search(np.full((1, 6), np.nan), vectors, 1)
    with pytest.raises(InterlinguaError, match=r"\[rows, dim\]"):
        Int8Matrix.build(vectors[0])
    assert matrix.search(vectors[:0], vectors, 3)[0].shape == (0, 3)


OTHER_PROCESSOR = """
import sys
import numpy as np
from interlingua.models.inference import machine
machine.processor = frozenset  # as if it had no unit that we know
from interlingua.retrieval.dense import int8
given = np.load(sys.argv[1])
matrix = int8.Int8Matrix.build(given["vectors"])
indices, scores = matrix.search(given["queries"], given["vectors"], 10)
alone, _ = matrix.search(given["queries"][:1], given["vectors"], 10)
assert int8.kernel().BYTES is False and matrix.counts["float32"] == 0, matrix.counts
np.savez(sys.argv[2], indices=indices, scores=scores, alone=alone)
"""


@pytest.mark.slow
def test_results_do_not_depend_on_the_units_of_the_processor(tmp_path):
    if int8_search.kernel() is None:
        pytest.skip("numba is not here")
    rng = np.random.default_rng(5)
    vectors, queries = normal(rng, 5003, 45), normal(rng, 70, 45)  # odd blocks, steps and tiles
    np.savez(tmp_path / "given.npz", vectors=vectors, queries=queries)
    command = [sys.executable, "-c", OTHER_PROCESSOR, str(tmp_path / "given.npz"), str(tmp_path / "found.npz")]
    subprocess.run(command, check=True, env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "numba")})
    matrix = Int8Matrix.build(vectors)
    indices, scores = matrix.search(queries, vectors, 10)
    alone, _ = matrix.search(queries[:1], vectors, 10)
    assert matrix.counts["float32"] == 0
    other = np.load(tmp_path / "found.npz")
    np.testing.assert_array_equal(indices, other["indices"])
    np.testing.assert_array_equal(alone, other["alone"])
    np.testing.assert_array_equal(scores.view(np.int32), other["scores"].view(np.int32))
