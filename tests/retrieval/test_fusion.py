from __future__ import annotations

import random

import numpy as np
import pytest

from interlingua.errors import InterlinguaError
from interlingua.retrieval.fusion import interpolate, rrf, weighted_sum
from interlingua.retrieval.run import Run


def random_run(seed, queries=range(12), documents=30, ties=False):
    """Lists of 0 to 20 documents, with ties where asked for."""
    rng = random.Random(seed)
    return Run.from_scores(
        {
            f"q{i}": {
                f"d{j}": rng.choice([0.0, 0.5, 1.0]) if ties else rng.gauss(3, 5)
                for j in rng.sample(range(documents), rng.randrange(21))
            }
            for i in queries
        }
    )


def mr_tydi(sparse, dense, alpha):
    """The published script's arithmetic, one document at a time."""

    def norm(value, scores):
        if not scores or max(scores.values()) == min(scores.values()):
            return 0.0
        low, high = min(scores.values()), max(scores.values())
        return (value - (low + high) / 2) / (high - low)

    fused = {}
    for query in {*sparse, *dense}:
        a, b = (dict(run[query]) if query in run else {} for run in (sparse, dense))
        fused[query] = {}
        for name in {*a, *b}:
            left = a[name] if name in a else min(a.values(), default=0)
            right = b[name] if name in b else min(b.values(), default=0)
            fused[query][name] = norm(left, a) + alpha * norm(right, b)
    return fused


@pytest.mark.parametrize("alpha", [0, 0.37, 1, 2.5])
@pytest.mark.parametrize("ties", [False, True])
def test_interpolation_is_that_of_mr_tydi(alpha, ties):
    for seed in range(5):
        sparse, dense = random_run(seed, ties=ties), random_run(seed + 50, range(4, 16), ties=ties)
        expected = mr_tydi(sparse, dense, alpha)
        found = interpolate(sparse, dense, alpha)
        assert found.keys() == expected.keys()
        for query in expected:
            assert dict(found[query]) == pytest.approx(expected[query], abs=1e-6)
        assert interpolate(sparse, dense, alpha) == Run.from_scores(expected)


def test_a_missing_document_gets_the_lowest_score_of_the_list_that_lacks_it():
    sparse = Run.from_scores({"q": {"a": 10.0, "b": 6.0, "c": 2.0}})
    dense = Run.from_scores({"q": {"b": 0.9, "d": 0.1}})
    assert dict(interpolate(sparse, dense, 0.5)["q"]) == {"a": 0.25, "b": 0.25, "c": -0.75, "d": -0.75}
    assert interpolate(sparse, dense, 0.5).ids("q") == ["b", "a", "d", "c"]  # ties by id, descending


@pytest.mark.parametrize("flat", [{}, {"a": 5.0}, {"a": 5.0, "b": 5.0, "z": 5.0}])
def test_a_list_that_does_not_vary_adds_nothing_on_either_side(flat):
    other, flat = Run.from_scores({"q": {"a": 3.0, "b": 1.0}}), Run.from_scores({"q": flat})
    for fused in (interpolate(other, flat, 1.0), interpolate(flat, other, 1.0)):
        assert dict(fused["q"]) == {"a": 0.5, "b": -0.5} | {name: -0.5 for name in flat.ids("q") if name == "z"}
    assert interpolate(flat, flat, 1.0).ids("q") == sorted(flat.ids("q"), reverse=True)


def test_a_query_of_one_run_only_and_one_without_results_stay():
    sparse, dense = Run.from_scores({"a": {"x": 1.0, "y": 0.0}, "empty": {}}), Run.from_scores({"b": {"x": 1.0}})
    fused = interpolate(sparse, dense, 1)
    assert dict(fused["a"]) == {"x": 0.5, "y": -0.5}
    assert (fused["b"], fused["empty"]) == ([("x", 0.0)], [])


def test_three_lists_are_one_sum_not_two():
    runs = [
        Run.from_scores({"q": scores})
        for scores in ({"a": 1.0, "b": 0.0}, {"b": 4.0, "c": 2.0}, {"a": 3.0, "b": 1.0, "c": 2.0})
    ]
    fused = dict(weighted_sum(runs, [1, 0.5, 0.25])["q"])
    assert fused == {"a": 0.5 - 0.25 + 0.125, "b": -0.5 + 0.25 - 0.125, "c": -0.5 - 0.25 + 0.0}
    assert fused != dict(interpolate(interpolate(runs[0], runs[1], 0.5), runs[2], 0.25)["q"])


@pytest.mark.parametrize("k", [0, 60])
def test_rrf_is_the_sum_over_lists(k):
    runs = [random_run(seed, range(seed, 12)) for seed in range(4)]
    expected = {}
    for query in {name for run in runs for name in run}:
        expected[query] = {}
        for run in runs:
            for rank, (name, _) in enumerate(run.get(query, []), 1):
                expected[query][name] = expected[query].get(name, 0) + 1 / (k + rank)
    fused = rrf(runs, k)
    assert fused.keys() == expected.keys()
    for query in expected:
        assert dict(fused[query]) == pytest.approx(expected[query], rel=1e-6)


def test_rrf_ties_whatever_the_order_of_the_runs():
    names = "abc"
    lists = [[names[i], names[(i + 1) % 3], names[(i + 2) % 3]] for i in range(3)]  # each document at each rank once
    runs = [Run.from_scores({"q": {name: -rank for rank, name in enumerate(order)}}) for order in lists]
    fused = rrf(runs)
    assert fused.ids("q") == ["c", "b", "a"]
    assert len({score for _, score in fused["q"]}) == 1


@pytest.mark.parametrize("alpha", ["0.5", None, True, -1, float("nan"), float("inf"), np.array([1.0])])
def test_alpha_is_a_number(alpha):
    with pytest.raises(InterlinguaError, match="must be a number of 0 or more"):
        interpolate(Run(), Run(), alpha)


def test_numbers_of_numpy_are_numbers():
    one, other = Run.from_scores({"q": {"a": 1.0}}), Run.from_scores({"q": {"b": 1.0}})
    assert interpolate(one, other, np.float32(0.5)) == interpolate(one, other, 0.5)
    assert rrf([one, other], k=np.int64(60)) == rrf([one, other], k=60)


def test_a_run_keeps_no_array_of_its_caller():
    run, scores = Run(), np.array([3, 2, 1], dtype=np.float32)
    run.add("a", ["x", "y", "z"], scores)
    scores[:] = 9
    assert [score for _, score in run["a"]] == [3, 2, 1]


def test_what_cannot_be_fused():
    with pytest.raises(InterlinguaError, match="query 'q': a score is infinite"):
        interpolate(Run.from_scores({"q": {"a": float("inf"), "b": 1.0}}), Run(), 1.0)
    with pytest.raises(InterlinguaError, match="no runs"):
        rrf([])
    with pytest.raises(InterlinguaError, match="1 weights for 2 runs"):
        weighted_sum([Run(), Run()], [1.0])
    with pytest.raises(InterlinguaError, match="k=-1"):
        rrf([Run()], -1)
