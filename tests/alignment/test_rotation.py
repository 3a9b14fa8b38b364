from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import expm

from interlingua.alignment.rotation import csls_matches, procrustes, refine, rotated
from interlingua.errors import InterlinguaError


def rotation(dim, seed=0, strength=None):
    """A random rotation; with `strength`, only so far from the identity."""
    draw = np.random.default_rng(seed).normal(size=(dim, dim))
    if strength is None:
        return np.linalg.qr(draw)[0]
    skew = draw - draw.T
    return expm(skew * strength / np.linalg.norm(skew, 2))


def test_procrustes_recovers_a_rotation():
    truth = rotation(24)
    target = np.random.default_rng(1).normal(size=(100, 24))
    source = target @ truth  # W·source = target for W = truth
    found = procrustes(source, target)
    np.testing.assert_allclose(found, truth, atol=1e-6)
    np.testing.assert_allclose(found @ found.T, np.eye(24), atol=1e-12)
    found = procrustes(source.astype(np.float32), target.astype(np.float32))
    np.testing.assert_allclose(found, truth, atol=1e-6)


def test_procrustes_of_noisy_pairs_beats_every_other_rotation_tried():
    rng = np.random.default_rng(2)
    target = rng.normal(size=(60, 5))
    source = target @ rotation(5) + rng.normal(size=(60, 5))
    best = procrustes(source, target)
    np.testing.assert_allclose(best.T @ best, np.eye(5), atol=1e-12)

    def loss(matrix):
        return ((source @ matrix.T - target) ** 2).sum()

    assert all(loss(best) < loss(best @ rotation(5, seed, 0.1)) for seed in range(20))


def test_procrustes_leaves_alone_what_no_pair_speaks_of():
    pairs = np.zeros((10, 6))
    pairs[:, :2] = np.random.default_rng(0).normal(size=(10, 2))
    turn = np.eye(6)
    turn[:2, :2] = [[0, -1], [1, 0]]
    np.testing.assert_allclose(procrustes(pairs, pairs @ turn.T), turn, atol=1e-6)
    start = np.eye(6)
    start[2:, 2:] = rotation(4)
    found = procrustes(pairs, pairs @ turn.T, start)
    np.testing.assert_allclose(found[2:, 2:], start[2:, 2:], atol=1e-6)
    np.testing.assert_allclose(found[:2, :2], turn[:2, :2], atol=1e-6)


def test_pairs_that_do_not_fit_are_refused():
    with pytest.raises(InterlinguaError, match="must be the same"):
        procrustes(np.ones((2, 3)), np.ones((3, 3)))
    with pytest.raises(InterlinguaError, match="NaN"):
        procrustes(np.full((2, 3), np.nan), np.ones((2, 3)))


def clouds(strength, noise=0.1, texts=600, dim=12):
    """Target and a rotated, noised copy of it in another order; the rotation that brings it back."""
    rng = np.random.default_rng(3)
    target = rng.normal(size=(texts, dim))
    truth = rotation(dim, 4, strength)
    source = ((target + noise * rng.normal(size=target.shape)) @ truth)[rng.permutation(texts)]
    return source.astype(np.float32), target.astype(np.float32), truth


def mean_csls(x, y, k=10):
    """The mean CSLS of each x with its nearest y by CSLS, written out."""
    cosines = (
        np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True)) @ (y / np.linalg.norm(y, axis=1, keepdims=True)).T
    )
    near_x, near_y = (np.sort(side, axis=1)[:, -k:].mean(1) for side in (cosines, cosines.T))
    return (2 * cosines - near_x[:, None] - near_y).max(1).mean()


def test_refinement_raises_the_criterion_and_finds_the_rotation():
    source, target, truth = clouds(0.7)
    held_out = np.arange(len(source)) % 5 == 0
    found = refine(source, target, held_out)
    assert found.criterion > csls_matches(source, target).cosines[held_out].mean() + 0.05
    np.testing.assert_allclose(found.rotation, truth, atol=0.05)
    np.testing.assert_allclose(found.rotation @ found.rotation.T, np.eye(12), atol=1e-6)
    measured = csls_matches(rotated(source, found.rotation), target).cosines[held_out].mean()
    assert found.criterion == pytest.approx(float(measured))
    before, after = (mean_csls(one, target) for one in (source, rotated(source, found.rotation)))
    assert after > before + 0.05
    assert 1 < found.rounds <= 5
    assert 0 < found.pairs <= (~held_out).sum()


def test_refinement_stops_when_the_pairs_stay_the_same():
    source, target, _ = clouds(0.3, noise=0.01)
    held_out = np.arange(len(source)) % 5 == 0
    found = refine(source, target, held_out, rounds=50)
    assert found.converged
    assert found.rounds < 10
    source, target, _ = clouds(0.7)
    cut = refine(source, target, held_out, rounds=1)
    assert (cut.rounds, cut.converged) == (1, False)


def test_refinement_of_unrelated_texts_leaves_them_unrotated():
    # fitted and measured on the same rows, a rotation looks better although there is nothing to find
    rng = np.random.default_rng(5)
    source, target = (rng.normal(size=(200, 32)).astype(np.float32) for _ in range(2))
    held_out = np.arange(200) % 5 == 0
    found = refine(source, target, held_out)
    np.testing.assert_array_equal(found.rotation, np.eye(32))
    assert (found.pairs, found.converged) == (0, False)
    assert found.criterion == pytest.approx(float(csls_matches(source, target).cosines[held_out].mean()))
    everything = np.ones(200, bool)
    rows = csls_matches(source, target).mutual()
    fitted = procrustes(source[rows], target[csls_matches(source, target).forward[rows]])
    assert (
        csls_matches(rotated(source, fitted), target).cosines[everything].mean()
        > csls_matches(source, target).cosines.mean()
    )


def test_no_row_held_out_is_fitted_on(monkeypatch):
    source, target, _ = clouds(0.3)
    held_out = np.arange(len(source)) % 5 == 0
    seen = []

    def spy(chosen, *rest):
        seen.append(chosen)
        return procrustes(chosen, *rest)

    monkeypatch.setattr("interlingua.alignment.rotation.procrustes", spy)
    refine(source, target, held_out)
    forbidden = {row.tobytes() for row in source[held_out]}
    assert seen
    assert not any(row.tobytes() in forbidden for chosen in seen for row in chosen)
