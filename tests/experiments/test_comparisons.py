"""Tests between rows: paired by question, means over seeds, corrected for the number of columns."""

from __future__ import annotations

import pytest
from scipy.stats import ttest_rel

from interlingua.experiments.present import comparisons


def run(**columns):
    return {
        "mono": {
            "RR@100": {column: {f"q{i}": value for i, value in enumerate(values)} for column, values in columns.items()}
        }
    }


def test_questions_are_paired_whatever_their_order_and_seeds_are_averaged():
    a = run(de=[0.5, 0.6, 0.7, 0.8])
    b = {"mono": {"RR@100": {"de": {"q3": 0.7, "q2": 0.6, "q1": 0.5, "q0": 0.4}}}}
    # +.1 everywhere does not vary: nothing can be said
    assert comparisons([("A", "B")], {"A": [a], "B": [b]}, "mono", "RR@100") == ["- A against B: de +0.100"]
    twice = comparisons([("A", "B")], {"A": [a, run(de=[0.7, 0.8, 0.9, 1.0])], "B": [b, b]}, "mono", "RR@100")
    assert twice == ["- A against B: de +0.200"]


def test_a_star_after_correction_only():
    a, b = [0.31, 0.42, 0.55, 0.61, 0.72, 0.83], [0.30, 0.38, 0.50, 0.61, 0.70, 0.78]
    p = ttest_rel(a, b).pvalue
    assert 0.05 / 3 < p < 0.05 / 2  # significant as one of two, not as one of three
    two = comparisons([("A", "B")], {"A": [run(de=a, fr=a)], "B": [run(de=b, fr=b)]}, "mono", "RR@100")
    assert two == ["- A against B: de +0.028*, fr +0.028*"]
    three = comparisons([("A", "B")], {"A": [run(de=a, fr=a, sw=a)], "B": [run(de=b, fr=b, sw=b)]}, "mono", "RR@100")
    assert three == ["- A against B: de +0.028, fr +0.028, sw +0.028"]


@pytest.mark.parametrize("pairs", [[("A", "C")], [("C", "A")]])
def test_what_was_not_run_or_has_one_value_is_left_out(pairs):
    results = {"A": [run(de=[0.1])], "B": [run(de=[0.2])]}
    assert comparisons([*pairs, ("A", "B")], results, "mono", "RR@100") == []
