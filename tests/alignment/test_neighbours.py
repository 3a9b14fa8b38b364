from __future__ import annotations

import numpy as np
import pytest
import torch

from interlingua.alignment import neighbours
from interlingua.alignment.neighbours import nearest, nearest_both
from interlingua.errors import InterlinguaError

WITH_BFLOAT16 = pytest.mark.parametrize("bfloat16", [False, True])  # a CPU without it emulates it: slow, but equal


def by_sorting(x, y, k):
    """All cosines as `nearest` defines them, sorted; equal ones in order of index."""
    units = []
    for side in (x, y):
        side = np.asarray(side, np.float32)
        lengths = np.linalg.norm(side.astype(np.float64), axis=1, keepdims=True)
        units.append((side * (1 / lengths).astype(np.float32)).astype(np.float64))
    cosines = (units[0] @ units[1].T).astype(np.float32)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(cosines, order, axis=1)


def agrees(found, x, y, k):
    indices, cosines = by_sorting(x, y, k)
    assert (found.indices == indices).all()
    assert (found.cosines == cosines).all()
    assert found.indices.dtype == np.int64
    assert found.cosines.dtype == np.float32


@WITH_BFLOAT16
@pytest.mark.parametrize(("rows", "columns", "slab"), [(1024, 4096, 16), (64, 64, 1), (64, 128, 3), (128, 64, 2)])
@pytest.mark.parametrize("k", [1, 4, 17, 400])
def test_both_directions_are_those_of_sorting_whatever_the_blocks(rows, columns, slab, k, bfloat16, monkeypatch):
    monkeypatch.setattr(neighbours, "ROWS", rows)
    monkeypatch.setattr(neighbours, "COLUMNS", columns)
    monkeypatch.setattr(neighbours, "SLAB", slab)
    monkeypatch.setattr(neighbours, "cpu_has_bfloat16", lambda: bfloat16)
    rng = np.random.default_rng(k)
    x, y = rng.standard_normal((333, 20)), rng.standard_normal((271, 20)) * rng.uniform(0.1, 9, (271, 1))
    forward, backward = nearest_both(x, y, k, device="cpu")
    agrees(forward, x, y, k)
    agrees(backward, y, x, k)
    alone = nearest(x, y, k, device="cpu")
    assert (alone.indices == forward.indices).all()
    assert (alone.cosines == forward.cosines).all()


@WITH_BFLOAT16
def test_the_same_bits_from_any_blocks_and_number_format(bfloat16, monkeypatch):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((300, 96), np.float32), rng.standard_normal((500, 96), np.float32)
    expected = nearest_both(x, y, 4, device="cpu")
    monkeypatch.setattr(neighbours, "cpu_has_bfloat16", lambda: bfloat16)
    for rows, columns in ((64, 192), (192, 64), (320, 512)):
        monkeypatch.setattr(neighbours, "ROWS", rows)
        monkeypatch.setattr(neighbours, "COLUMNS", columns)
        for found, same in zip(nearest_both(x, y, 4, device="cpu"), expected, strict=True):
            assert (found.indices == same.indices).all()
            assert (found.cosines == same.cosines).all()
    # what is asked the other way round has the same cosines
    for found, same in zip(reversed(nearest_both(y, x, 4, device="cpu")), expected, strict=True):
        assert (found.cosines == same.cosines).all()


@WITH_BFLOAT16
def test_equal_vectors_tie_and_the_lowest_index_comes_first(bfloat16, monkeypatch):
    monkeypatch.setattr(neighbours, "cpu_has_bfloat16", lambda: bfloat16)
    monkeypatch.setattr(neighbours, "ROWS", 64)
    monkeypatch.setattr(neighbours, "COLUMNS", 64)
    rng = np.random.default_rng(1)
    seven = rng.standard_normal((7, 24), np.float32)
    x = seven[rng.integers(0, 7, 300)]
    y = seven[rng.integers(0, 7, 200)] * 2.0 ** rng.integers(-3, 4, (200, 1))  # exact scalings: the same directions
    forward, backward = nearest_both(x, y, 5, device="cpu")
    for found, one, other in ((forward, x, y), (backward, y, x)):
        cosines = by_sorting(seven, seven, 7)[1]
        assert np.isclose(found.cosines[:, :, None], np.unique(cosines)).any(axis=2).all()
        for row, vector in enumerate(one):
            same = np.flatnonzero(np.isclose(other @ vector, np.linalg.norm(other, axis=1) * np.linalg.norm(vector)))
            assert found.indices[row].tolist() == same[:5].tolist()


def test_vectors_too_close_for_bfloat16_are_told_apart(monkeypatch):
    monkeypatch.setattr(neighbours, "cpu_has_bfloat16", lambda: True)
    rng = np.random.default_rng(2)
    x, y = (rng.standard_normal((400, 16)) + 60 for _ in range(2))  # all cosines above 0.999
    forward, backward = nearest_both(x, y, 3, device="cpu")
    agrees(forward, x, y, 3)
    agrees(backward, y, x, 3)


@pytest.mark.slow
def test_many_equal_vectors_do_not_fill_the_memory(monkeypatch):
    held = []
    monkeypatch.setattr(neighbours, "ROWS", 64)
    monkeypatch.setattr(neighbours, "COLUMNS", 64)
    thin = neighbours.Candidates.thin

    def counting(self):
        thin(self)
        held.append(sum(len(rows) for rows, _, _ in self.parts) / self.rows)

    monkeypatch.setattr(neighbours.Candidates, "thin", counting)
    monkeypatch.setattr(neighbours, "cpu_has_bfloat16", lambda: False)
    same = np.tile(np.random.default_rng(3).standard_normal(16), (640, 1))
    forward, backward = nearest_both(same, same, 4, device="cpu")
    assert (forward.indices == np.arange(4)).all()
    assert (backward.indices == np.arange(4)).all()
    assert max(held) <= 4 + 64  # not 640


def test_memory_maps_tensors_and_half_precision(tmp_path, monkeypatch):
    rng = np.random.default_rng(4)
    x, y = rng.integers(-3, 4, (70, 8)), rng.integers(-3, 4, (300, 8))
    x[:, 0], y[:, 0] = 5, 5
    np.save(tmp_path / "y.npy", y.astype(np.float16))
    expected = nearest_both(x.astype(np.float32), y.astype(np.float32), 6)
    for other in (np.load(tmp_path / "y.npy", mmap_mode="r"), torch.from_numpy(y).bfloat16(), y.tolist(), y):
        for found, same in zip(nearest_both(torch.from_numpy(x).double(), other, 6), expected, strict=True):
            assert (found.indices == same.indices).all()
            assert (found.cosines == same.cosines).all()


@WITH_BFLOAT16
def test_the_products_never_err_by_more_than_is_reckoned_with(bfloat16):
    rng = np.random.default_rng(5)
    dtype = torch.bfloat16 if bfloat16 else torch.float32
    uneven = np.sign(rng.standard_normal((256, 112))) * 10 ** rng.uniform(-3, 0, (256, 112))
    worst = np.ones((1, 112))  # 112 ** -0.5 lies halfway between two bfloat16: all components err to one side
    for vectors in (uneven, worst):
        side = neighbours.UnitVectors(vectors, "x")
        unit = torch.from_numpy(side.unit(slice(None)))
        exact = unit.double() @ unit.double().T
        off = float(((unit.to(dtype) @ unit.to(dtype).T).double() - exact).abs().max())
        assert off < neighbours.product_error(side, side, dtype)
    assert off > 0.5 * neighbours.product_error(side, side, dtype) or not bfloat16


def test_no_vectors_give_no_neighbours():
    forward, backward = nearest_both(np.ones((0, 3)), np.ones((2, 3)), 4)
    assert (forward.indices.shape, backward.indices.shape) == ((0, 2), (2, 0))


def test_wrong_vectors_name_the_side_and_the_row():
    good, bad = np.ones((20_000, 2), np.float32), np.ones((20_000, 2), np.float32)
    bad[17_000, 1] = np.nan
    with pytest.raises(InterlinguaError, match="y, row 17000 "):
        nearest(good, bad, 1)
    with pytest.raises(InterlinguaError, match="x, row 17000 "):
        nearest_both(bad, good, 1)
    with pytest.raises(InterlinguaError, match="k=-1"):
        nearest(good, good, -1)


@pytest.mark.gpu
def test_the_same_bits_on_a_gpu():
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((3000, 64), np.float32), rng.standard_normal((9000, 64), np.float32)
    for here, there in zip(nearest_both(x, y, 4, device="cpu"), nearest_both(x, y, 4, device="cuda"), strict=True):
        assert (here.indices == there.indices).all()
        assert (here.cosines == there.cosines).all()


@pytest.mark.parametrize("k", [1, 40, 170, 260])
@pytest.mark.parametrize("ties", [False, True])
def test_candidates_are_ranked_as_sorting_ranks_them(k, ties):
    """Also negative zero, infinity and the smallest numbers, which integers stand for while they are sorted."""
    rng = np.random.default_rng(k)
    values = np.array([0.0, -0.0, 1.0, -1.0, 1e-45, -1e-45, 3e38, -3e38, -np.inf, np.inf, 0.1], np.float32)
    scores = rng.choice(values, (5, 300))
    order = rng.permutation(300) if ties else np.arange(300)
    found = neighbours.Candidates(5, k, torch.device("cpu"), ties=torch.from_numpy(order) if ties else None)
    for start in range(0, 300, 50):
        part = scores[:, start : start + 50]
        row, other = (torch.from_numpy(index.ravel()) for index in np.indices(part.shape))
        found.add(row, start + other, torch.from_numpy(part.ravel()))
        found.thin()
    indices, best = found.nearest()
    for row in range(5):
        expected = np.lexsort((order, -scores[row]))[:k]
        assert indices[row].tolist() == expected.tolist()
        assert best[row].tobytes() == scores[row][expected].tobytes()
