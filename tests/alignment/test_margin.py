from __future__ import annotations

import numpy as np
import pytest
import torch

from interlingua.alignment import margin_scores
from interlingua.alignment import mining as margin
from interlingua.errors import InterlinguaError


def cosine(a, b):
    return sum(p * q for p, q in zip(a, b, strict=True)) / (sum(p * p for p in a) * sum(q * q for q in b)) ** 0.5


def by_hand(x, y, k, kind):
    """The formulas, pair by pair."""
    cosines = [[cosine(a, b) for b in y] for a in x]
    mean_x = [np.mean(sorted(row)[-k:]) for row in cosines]
    mean_y = [np.mean(sorted(column)[-k:]) for column in zip(*cosines, strict=True)]
    found = np.empty((len(x), len(y)))
    for i in range(len(x)):
        for j in range(len(y)):
            between = mean_x[i] / 2 + mean_y[j] / 2
            found[i, j] = {
                "ratio": cosines[i][j] / between,
                "distance": cosines[i][j] - between,
                "absolute": cosines[i][j],
            }[kind]
    return found


@pytest.mark.parametrize("kind", ["ratio", "distance", "absolute"])
@pytest.mark.parametrize("k", [1, 3, 4, 50])
def test_margins_are_those_computed_pair_by_pair(k, kind):
    rng = np.random.default_rng(k)
    x, y = rng.normal(1, 1, (9, 6)), rng.normal(1, 1, (13, 6))
    found = margin_scores(x, y, k, kind)
    assert found.shape == (9, 13)
    assert found.dtype == np.float32
    assert found == pytest.approx(by_hand(x.tolist(), y.tolist(), k, kind), rel=2e-6, abs=1e-6)
    longer = torch.from_numpy(9 * y)
    assert margin_scores(torch.from_numpy(x), longer, k, kind) == pytest.approx(found, rel=2e-6, abs=1e-6)


def test_four_neighbours_and_the_ratio_unless_told_otherwise():
    rng = np.random.default_rng(0)
    x, y = rng.normal(1, 1, (9, 6)), rng.normal(1, 1, (13, 6))
    assert (margin_scores(x, y) == margin_scores(x, y, 4, "ratio")).all()


def test_a_sentence_near_everything_is_told_from_a_translation():
    hub, translation, source = [1, 1, 0], [1, 0, 0.9], [1, 0.3, 0.6]
    others = [[1, 0.9, 0.0], [0.9, 1, 0.1], [1, 1, 0.1]]  # all of them near the hub
    scores = margin_scores([source, *others], [hub, translation], 2)
    assert scores[0].argmax() == 1
    assert scores[0, 1] > 1 > scores[0, 0]


def test_what_has_no_margin_is_refused(monkeypatch):
    good = np.ones((3, 2))
    for bad, message in (
        (np.zeros((1, 2)), "is zero"),
        (np.full((1, 2), np.nan), "holds NaN"),
        (np.full((1, 2), np.inf), "holds NaN or infinity"),
    ):
        with pytest.raises(InterlinguaError, match=rf"x, row 3 \(counted from 0\): its vector {message}"):
            margin_scores(np.concatenate([good, bad]), good)
        with pytest.raises(InterlinguaError, match=rf"y, row 3 \(counted from 0\): its vector {message}"):
            margin_scores(good, np.concatenate([good, bad]))
    with pytest.raises(InterlinguaError, match=r"'ration' is unknown. Did you mean 'ratio'"):
        margin_scores(good, good, kind="ration")
    with pytest.raises(InterlinguaError, match="x has vectors of 2 dimensions, y of 3"):
        margin_scores(good, np.ones((3, 3)))
    with pytest.raises(InterlinguaError, match="k=0"):
        margin_scores(good, good, 0)
    with pytest.raises(InterlinguaError, match=r"x: an array of shape \(2,\)"):
        margin_scores(np.ones(2), good)
    monkeypatch.setattr(margin, "MATRIX", 8)
    with pytest.raises(InterlinguaError, match=r"3 × 3 margins do not fit in memory. Use mine_bitext"):
        margin_scores(good, good)
