from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from interlingua.errors import InterlinguaError
from interlingua.evaluation import bootstrap_interval, seed_interval, stratified_interval
from interlingua.evaluation import significance as intervals
from interlingua.evaluation.significance import spread_ratio


def test_bootstrap_agrees_with_scipy():
    values = np.random.default_rng(0).beta(2, 3, size=300)
    ours = bootstrap_interval(values.tolist())
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, rng=1).confidence_interval
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=0.002)
    assert ours.mean == pytest.approx(values.mean())
    assert ours.n == 300
    assert ours.method == "bootstrap over queries"


def test_bootstrap_is_seeded_and_does_not_depend_on_how_much_is_held(monkeypatch):
    values = {f"q{i}": (i % 7) ** 0.5 for i in range(50)}
    first = bootstrap_interval(values, seed=3)
    assert bootstrap_interval(list(values.values()), seed=3) == first
    assert bootstrap_interval(values, seed=4) != first
    monkeypatch.setattr(intervals, "HELD", 120)
    assert bootstrap_interval(values, seed=3) == first


def test_stratified_interval_resamples_within_languages():
    # languages differ a lot and do not vary inside: nothing is left to be uncertain about
    flat = stratified_interval({"en": [1.0] * 40, "th": [0.0] * 4})
    assert (flat.mean, flat.low, flat.high) == (0.5, 0.5, 0.5)
    rng = np.random.default_rng(1)
    values = {lang: rng.random(size).tolist() for lang, size in (("en", 400), ("th", 25), ("sw", 100))}
    found = stratified_interval(values)
    error = np.sqrt(sum(np.var(row) / len(row) for row in values.values())) / 3
    assert found.mean == pytest.approx(np.mean([np.mean(row) for row in values.values()]))
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.05)
    assert (found.method, found.n) == ("bootstrap over queries within each language", 525)
    assert stratified_interval(dict(reversed(values.items()))) == found


def test_seed_interval_is_students():
    found = seed_interval([0.30, 0.32, 0.37])
    half = 4.302653 * np.std([0.30, 0.32, 0.37], ddof=1) / np.sqrt(3)
    assert (found.mean, found.low, found.high) == pytest.approx((0.33, 0.33 - half, 0.33 + half))
    assert str(found) == f"0.330 [{0.33 - half:.3f}, {0.33 + half:.3f}] (t interval over seeds, n=3)"


@pytest.mark.parametrize(
    "call",
    [
        lambda: seed_interval([0.3]),
        lambda: bootstrap_interval([]),
        lambda: bootstrap_interval([0.1, float("nan")]),
        lambda: stratified_interval({}),
        lambda: bootstrap_interval([0.1], resamples=0),
    ],
)
def test_what_has_no_interval_is_refused(call):
    with pytest.raises(InterlinguaError):
        call()


def test_the_ratio_of_spreads_between_seeds():
    first, last = [0.1, 0.3, 0.2, 0.5, 0.4], [0.21, 0.20, 0.22, 0.205, 0.215]
    found = spread_ratio(first, last)
    assert found.mean == pytest.approx(np.std(last, ddof=1) / np.std(first, ddof=1))
    # R: var.test(last, first)$conf.int is the square of the interval
    low, high = stats.f.ppf(0.025, 4, 4), stats.f.ppf(0.975, 4, 4)
    assert found.low == pytest.approx(found.mean / high**0.5)
    assert found.high == pytest.approx(found.mean / low**0.5)
    assert found.high < 1
    back = spread_ratio(last, first)
    assert (back.low, back.high) == (pytest.approx(1 / found.high), pytest.approx(1 / found.low))
    assert spread_ratio(first[:3], first[1:4]).low < 1 < spread_ratio(first[:3], first[1:4]).high
    with pytest.raises(InterlinguaError, match="three seeds at least"):
        spread_ratio(first[:2], last)
    with pytest.raises(InterlinguaError, match="do not vary"):
        spread_ratio([0.5] * 3, last)
