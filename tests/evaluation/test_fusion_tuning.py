from __future__ import annotations

import random

import pytest

from interlingua.errors import InterlinguaError
from interlingua.evaluation.measures import evaluate
from interlingua.evaluation.protocol import ALPHAS, tune_alpha
from interlingua.retrieval.fusion import interpolate
from interlingua.retrieval.run import Run


def random_run(seed, queries=40):
    rng = random.Random(seed)
    return Run.from_scores(
        {
            f"q{i}": {f"d{j}": rng.gauss(0, 1) + 0.4 * (j == i % 25) for j in rng.sample(range(25), 15)}
            for i in range(queries)
        }
    )


QRELS = {f"q{i}": {f"d{i % 25}": 1, f"d{(i + 7) % 25}": 2} for i in range(40)}


@pytest.mark.parametrize(("measure", "depth"), [("RR@100", None), ("nDCG@10", None), ("AP", 5), ("MRR@3", 2)])
def test_the_best_of_the_grid_and_the_smallest_of_equals(measure, depth):
    sparse, dense = random_run(1), random_run(2)
    tuned = tune_alpha(sparse, dense, QRELS, measure, depth=depth)
    expected = {}
    for alpha in ALPHAS:
        run = interpolate(sparse, dense, alpha)
        expected[alpha] = evaluate(run if depth is None else run.truncate(depth), QRELS, [measure])[measure]
    assert tuned.tried == expected
    assert len(set(expected.values())) > 10
    assert tuned.score == max(expected.values())
    assert tuned.alpha == min(alpha for alpha, score in expected.items() if score == tuned.score)


def test_a_run_that_says_nothing_gets_no_weight():
    assert tune_alpha(random_run(1), Run(), QRELS).alpha == 0
    assert tune_alpha(random_run(1), Run(), QRELS, alphas=[2.0, 1.0, 1.0]).tried.keys() == {1.0, 2.0}


def test_what_cannot_be_tuned():
    with pytest.raises(InterlinguaError, match="no weights to try"):
        tune_alpha(Run(), Run(), QRELS, alphas=[])
    with pytest.raises(InterlinguaError, match="alpha 'x': must be a number"):
        tune_alpha(random_run(1), random_run(2), QRELS, alphas=["x"])
    with pytest.raises(InterlinguaError, match="must be of one development set"):
        tune_alpha(random_run(1), random_run(2), {"other": {"d1": 1}})
