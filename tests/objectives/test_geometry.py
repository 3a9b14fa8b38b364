from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from interlingua.errors import InterlinguaError
from interlingua.objectives.geometry import (
    alignment,
    effective_rank,
    language_distance,
    mean_pairwise_cosine,
    uniformity,
)


def test_alignment_uniformity_and_cosine_by_loops():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 12, 5))
    u, v = ([row / np.linalg.norm(row) for row in side] for side in (x, y))
    pairs = [(i, j) for i in range(12) for j in range(12) if i != j]
    distances = [((a - b) ** 2).sum() for a, b in zip(u, v, strict=True)]
    assert alignment(x, y) == pytest.approx(np.mean(distances), rel=1e-5)
    assert uniformity(torch.tensor(x)) == pytest.approx(
        math.log(np.mean([math.exp(-2 * ((u[i] - u[j]) ** 2).sum()) for i, j in pairs])), rel=1e-5
    )
    assert mean_pairwise_cosine(x.astype(np.float16)) == pytest.approx(
        np.mean([u[i] @ u[j] for i, j in pairs]), abs=1e-3
    )


def test_a_collapsed_space():
    point = torch.ones(6, 4) * torch.arange(1, 7)[:, None]
    assert uniformity(point) == pytest.approx(0, abs=1e-5)
    assert mean_pairwise_cosine(point) == pytest.approx(1, abs=1e-6)
    assert effective_rank(point) == pytest.approx(1, abs=1e-3)
    assert alignment(point, point) == 0
    assert effective_rank(point * 0) == 0


def test_effective_rank_counts_equal_directions():
    assert effective_rank(np.eye(7)[[0, 1, 2, 3, 3]] / np.sqrt([[1], [1], [1], [2], [2]])) == pytest.approx(4, rel=1e-5)


def test_language_distance_is_in_units_of_the_spread():
    square = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]])  # mean squared distance to the centre: 1
    apart = {"en": square, "ko": square + torch.tensor([3.0, 4.0])}
    assert language_distance(apart) == pytest.approx(5)
    assert language_distance({lang: rows * 100 for lang, rows in apart.items()}) == pytest.approx(5)
    assert language_distance({"en": square, "ko": square.flip(0)}) == 0
    assert language_distance({**apart, "th": square}) == pytest.approx((5 + 5 + 0) / 3)


def test_no_gradient_is_kept():
    z = torch.randn(4, 3, requires_grad=True)
    assert isinstance(uniformity(z), float)
    assert z.grad is None


@pytest.mark.parametrize(
    "call",
    [
        lambda: uniformity(np.ones((1, 3))),
        lambda: alignment(np.ones((2, 3)), np.ones((3, 3))),
        lambda: effective_rank(np.zeros((0, 3))),
        lambda: language_distance({"en": np.ones((2, 3))}),
        lambda: language_distance({"en": np.ones((2, 3)), "ko": np.ones((2, 3))}),
        lambda: mean_pairwise_cosine(np.ones(3)),
    ],
)
def test_too_little_is_refused(call):
    with pytest.raises(InterlinguaError):
        call()
