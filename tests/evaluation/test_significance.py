from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from scipy import stats

from interlingua.errors import InterlinguaError
from interlingua.evaluation import compare, compare_all, evaluate
from interlingua.evaluation.significance import correct, paired_p
from interlingua.retrieval import Run


def random_run(seed, queries=40):
    rng = random.Random(seed)
    shuffled = rng.sample(range(queries), queries)
    return Run.from_scores({f"q{i}": {f"d{j}": rng.random() for j in range(10)} for i in shuffled})


QRELS = {f"q{i}": {f"d{i % 10}": 1} for i in range(45)}


def test_paired_t_agrees_with_scipy_and_pairs_by_query_id():
    a, b = random_run(1), random_run(2)
    found = compare(a, b, QRELS, "MRR@10")
    values = [evaluate(run, QRELS, ["RR@10"]).per_query["RR@10"] for run in (a, b)]
    x, y = ([value[name] for name in QRELS] for value in values)
    assert found.p == pytest.approx(stats.ttest_rel(x, y).pvalue, rel=1e-9)
    assert found.p_corrected == found.p
    assert (found.n, found.measure, found.test) == (45, "RR@10", "t")
    assert found.difference == pytest.approx(found.mean_a - found.mean_b)
    assert compare(b, a, QRELS, "RR@10").p == pytest.approx(found.p)
    assert not found.significant


def test_permutation_approaches_the_exact_test():
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.4, 1.0):
        difference = rng.normal(shift, 1, size=12)
        signs = np.array(list(itertools.product([1, -1], repeat=12)))
        exact = (abs(signs @ difference) >= abs(difference.sum()) - 1e-9).mean()
        assert paired_p(difference, np.zeros(12), "permutation") == pytest.approx(exact, abs=0.015)


@pytest.mark.parametrize(("test", "constant"), [("t", 1.0), ("permutation", 0.0001)])
def test_differences_that_do_not_vary(test, constant):
    run = random_run(1)
    same = compare(run, run, QRELS, "RR@10", test)
    assert (same.p, same.difference, same.significant) == (1.0, 0.0, False)
    x = np.random.default_rng(0).random(30)
    assert paired_p(x + 0.1, x, test) == pytest.approx(constant, rel=1e-3)
    assert paired_p(np.array([1.0]), np.array([0.0]), test) == 1.0
    first, second = (
        Run.from_scores({q: {"d1": 2.0 - rank, "d2": 1.0} for q in ("q1", "q2", "q3")}) for rank in (0, 1.5)
    )
    qrels = {q: {"d1": 1} for q in ("q1", "q2", "q3")}
    assert ("use the permutation test" in str(compare(first, second, qrels, "RR@10", test))) == (test == "t")


def test_a_family_is_corrected_together():
    family = {name: (random_run(i), random_run(i + 50), QRELS) for i, name in enumerate(("ar", "ko", "th"))}
    family["same"] = (random_run(1), random_run(1), QRELS)
    plain = [found.p for found in compare_all(family, "RR@10", correction=None)]
    assert compare_all(family, "RR@10", correction="none") == compare_all(family, "RR@10", correction=None)
    corrected = compare_all(family, "RR@10", correction="bonferroni")
    assert [found.name for found in corrected] == ["ar", "ko", "th", "same"]
    assert [found.p for found in corrected] == plain
    assert [found.p_corrected for found in corrected] == [min(1, p * 4) for p in plain]
    assert [found.name for found in compare_all(list(family.values()), "RR@10")] == ["1", "2", "3", "4"]


def test_holm_by_hand():
    assert correct([0.01, 0.04, 0.03, 0.005], "holm") == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert correct([0.5, 0.9], "holm") == [1.0, 1.0]
    assert correct([0.2], None) == [0.2]
    assert correct([], "holm") == []


def test_a_real_difference_is_significant():
    good = Run.from_scores({name: {**dict.fromkeys(grades, 2.0), "z": 1.0} for name, grades in QRELS.items()})
    found = compare(good, random_run(3), QRELS, "RR@10", "permutation")
    assert found.significant
    assert found.p == 1 / 10_001
    assert found.difference > 0.4
    assert str(found).endswith("over 45 queries, paired permutation test p = 0.0001, holm 0.0001: significant")


def test_unknown_names_are_refused():
    with pytest.raises(InterlinguaError, match="Did you mean 'permutation'"):
        compare(Run(), Run(), QRELS, "RR@10", "permutations")
    with pytest.raises(InterlinguaError, match="Did you mean 'holm'"):
        compare(Run(), Run(), QRELS, "RR@10", correction="Holm")
