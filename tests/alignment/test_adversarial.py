from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.linalg import expm

from interlingua.alignment.rotation import Adversarial, adversarial_rotation, csls_matches, refine, rotated
from interlingua.errors import InterlinguaError

DIM, TEXTS = 4, 1200
SHORT = Adversarial(n_epochs=3, epoch_size=6_400, hidden=64, lr=0.5)


@pytest.fixture(scope="module")
def clouds():
    """Two samples of one lopsided cloud, no text in both; one is turned too far for neighbours to be right."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(12, DIM)) * np.linspace(2, 0.5, DIM)
    weights = rng.dirichlet(np.ones(12))
    drawn = [centres[rng.choice(12, TEXTS, p=weights)] + 0.2 * rng.normal(size=(TEXTS, DIM)) for _ in range(2)]
    source, target = (side - side.mean(axis=0) for side in drawn)
    skew = rng.normal(size=(DIM, DIM))
    truth = expm(1.2 * (skew - skew.T) / np.linalg.norm(skew - skew.T, 2))
    return (source @ truth).astype(np.float32), target.astype(np.float32), truth


def criterion(source, target):
    return lambda matrix: float(csls_matches(rotated(source, matrix), target).cosines.mean())


@pytest.mark.slow
def test_the_game_finds_a_rotation_that_neighbours_alone_do_not(clouds):
    source, target, truth = clouds
    measure = criterion(source, target)
    found = adversarial_rotation(source, target, measure, options=SHORT, seed=1).rotation
    np.testing.assert_allclose(found @ found.T, np.eye(DIM), atol=1e-6)
    assert measure(found) > measure(np.eye(DIM)) + 0.01
    held_out = np.arange(TEXTS) % 5 == 0
    alone, after = refine(source, target, held_out), refine(source, target, held_out, found)
    assert after.criterion > alone.criterion + 0.005
    np.testing.assert_allclose(after.rotation, truth, atol=0.15)
    assert abs(alone.rotation - truth).max() > 0.3


def test_one_seed_one_rotation_and_no_trace_in_the_global_state(clouds):
    source, target, _ = clouds
    options = Adversarial(n_epochs=1, epoch_size=320, hidden=8)
    before = torch.get_rng_state()

    def last(seed):  # a criterion that grows keeps what came last
        calls = iter(range(9))
        return adversarial_rotation(source, target, lambda _: float(next(calls)), options=options, seed=seed).rotation

    first = last(3)
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(first, last(3))
    assert not np.array_equal(first, last(4))
    assert not np.array_equal(first, np.eye(DIM))


def test_the_best_epoch_wins_the_start_included(clouds):
    source, target, _ = clouds
    options = Adversarial(n_epochs=3, epoch_size=64, hidden=8)
    shown = []

    def told(values):
        answers = iter(values)
        return lambda matrix: (shown.append(matrix), next(answers))[1]

    found = adversarial_rotation(source, target, told([0.5, 0.6, 0.9, 0.7]), options=options)
    np.testing.assert_array_equal(found.rotation, shown[2])
    assert (found.identity, found.after, found.epoch) == (0.5, [0.6, 0.9, 0.7], 2)
    found = adversarial_rotation(source, target, told([0.5, 0.1, 0.2, 0.3]), options=options)
    np.testing.assert_array_equal(found.rotation, np.eye(DIM))
    assert "taken: the identity, mean cosine of the axes 1.000" in str(found)


def test_without_the_identity_an_epoch_is_taken_however_bad(clouds):
    source, target, _ = clouds
    options = Adversarial(n_epochs=3, epoch_size=64, hidden=8)
    shown, answers = [], iter([0.5, 0.1, 0.2, 0.15])
    found = adversarial_rotation(
        source, target, lambda matrix: (shown.append(matrix), next(answers))[1], options=options, identity=False
    )
    np.testing.assert_array_equal(found.rotation, shown[2])
    assert str(found).startswith(
        "adversarial: criterion 0.5000 at the identity, after each epoch 0.1000, 0.2000, 0.1500; taken: epoch 2"
    )


def test_a_game_that_blows_up_is_left_and_said(clouds, capsys):
    source, target, _ = clouds
    options = Adversarial(n_epochs=2, epoch_size=640, hidden=8, lr=1e30)
    found = adversarial_rotation(source, target, criterion(source, target), options=options)
    np.testing.assert_array_equal(found.rotation, np.eye(DIM))
    assert "training diverged" in str(found)
    assert "diverged" in capsys.readouterr().err


def test_settings_that_train_nothing_are_refused(clouds):
    for options in (Adversarial(n_epochs=0), Adversarial(epoch_size=31)):
        with pytest.raises(InterlinguaError, match="at least 1 epoch of 32"):
            adversarial_rotation(*clouds[:2], lambda _: 0.0, options=options)
