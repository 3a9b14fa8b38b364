from __future__ import annotations

import numpy as np
import pytest

from interlingua.alignment.calibration import clear_gain
from interlingua.alignment.rotation import Matches

TEXTS = 400


@pytest.mark.parametrize(
    ("cosines", "csls", "helps"),
    [
        (0.05, 0.02, True),
        (0.05, 0.0, True),
        (0.05, -0.02, False),  # topics brought together, translations lost
        (0.0, 0.05, False),
        (0.01, 0.01, False),  # two standard errors or so
        (-0.05, 0.05, False),
    ],
)
def test_a_rotation_must_bring_matches_nearer_and_leave_them_distinct(cosines, csls, helps):
    rng = np.random.default_rng(0)
    rows = np.arange(TEXTS)
    held_out = rows % 4 == 0
    before, after = (Matches(rows, rows, *(rng.normal(0.4, 0.05, TEXTS) for _ in range(2))) for _ in range(2))
    for old, new, gain in ((before.cosines, after.cosines, cosines), (before.csls, after.csls, csls)):
        noise = rng.normal(0, 0.05, TEXTS)
        noise[held_out] -= noise[held_out].mean()
        new[:] = old + gain + noise
        new[~held_out] = 9 - 18 * helps  # what was fitted on does not count
    assert clear_gain(before, after, held_out) is helps


def test_no_rotation_is_no_gain():
    rows = np.arange(TEXTS)
    same = Matches(rows, rows, np.ones(TEXTS), np.ones(TEXTS))
    assert not clear_gain(same, same, rows % 5 == 0)
    assert not clear_gain(same, Matches(rows, rows, np.full(TEXTS, 2), np.full(TEXTS, 2)), rows == 0)
