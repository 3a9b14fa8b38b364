from __future__ import annotations

import numpy as np
import pytest

from interlingua.alignment.calibration import clear_gain
from interlingua.alignment.rotation import Matches

TEXTS = 400


@pytest.mark.parametrize(
    ("cosines", "mutual", "helps"),
    [
        (0.05, 10, True),
        (0.05, 0, True),
        (0.05, -10, False),  # topics brought together, translations lost
        (0.0, 10, False),
        (0.01, 10, False),  # two standard errors or so
        (-0.05, 10, False),
    ],
)
def test_a_rotation_must_bring_matches_nearer_and_leave_them_each_other_s(cosines, mutual, helps):
    rng = np.random.default_rng(0)
    rows = np.arange(TEXTS)
    held_out = rows % 4 == 0

    def matches(values, count):
        """`count` of the texts held out are their match's own match, and of the others only those that mislead."""
        own = np.concatenate([rows[held_out][:count], rows[~held_out] if not helps else rows[:0]])
        backward = np.full(TEXTS, -1)
        backward[own] = own
        return Matches(rows, backward, values, np.zeros(TEXTS))

    before = rng.normal(0.4, 0.05, TEXTS)
    noise = rng.normal(0, 0.05, TEXTS)
    noise[held_out] -= noise[held_out].mean()
    after = before + cosines + noise
    after[~held_out] = 9 - 18 * helps  # what was fitted on does not count
    assert clear_gain(matches(before, 50), matches(after, 50 + mutual), held_out) is helps


def test_no_rotation_is_no_gain():
    rows = np.arange(TEXTS)
    same = Matches(rows, rows, np.ones(TEXTS), np.ones(TEXTS))
    assert not clear_gain(same, same, rows % 5 == 0)
    assert not clear_gain(same, Matches(rows, rows, np.full(TEXTS, 2), np.full(TEXTS, 2)), rows == 0)
