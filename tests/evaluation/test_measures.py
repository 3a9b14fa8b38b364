from __future__ import annotations

import math
import random

import ir_measures
import numpy as np
import pytest

from interlingua.errors import BadInput, InterlinguaError
from interlingua.evaluation import evaluate
from interlingua.retrieval import Run


def by_definition(name, run, grades):
    """One query, straight from the definitions of METHODS §7."""
    base, k = name.split("@")
    gains = [grades.get(passage_id, 0) for passage_id in run[: int(k)]]
    relevant = sum(grade > 0 for grade in grades.values())
    if base == "RR":
        return next((1 / rank for rank, gain in enumerate(gains, 1) if gain > 0), 0.0)
    if base == "R":
        return sum(gain > 0 for gain in gains) / relevant if relevant else 0.0
    ideal = sorted(grades.values(), reverse=True)[: int(k)]
    dcg, best = (sum(gain / math.log2(rank + 1) for rank, gain in enumerate(seq, 1)) for seq in (gains, ideal))
    return dcg / best if best else 0.0


def random_case(seed):
    """A run with many ties, queries without judgments, judgments without results, queries without relevant."""
    rng = random.Random(seed)
    names = [f"d{i}" for i in range(30)] + ["é", "Z", "あ"]
    scores = {
        f"q{i}": {name: rng.choice([0.0, 0.5, 0.5 + 1e-11, 1.0]) for name in rng.sample(names, rng.randrange(34))}
        for i in range(20)
    }
    qrels = {
        f"q{i}": {name: rng.choice([0, 0, 0, 1, 3]) for name in rng.sample(names, rng.randrange(1, 9))}
        for i in range(3, 24)
    }
    return scores, qrels


MEASURES = ["RR@1", "RR@5", "RR@100", "R@1", "R@5", "R@100", "nDCG@3", "nDCG@10"]


@pytest.mark.parametrize("seed", range(20))
def test_equals_the_definitions_on_runs_with_ties(seed):
    scores, qrels = random_case(seed)
    run = Run.from_scores(scores)
    found = evaluate(run, qrels, MEASURES)
    for name in MEASURES:
        expected = {
            query_id: by_definition(name, run.ids(query_id) if query_id in run else [], grades)
            for query_id, grades in qrels.items()
        }
        assert found.per_query[name] == pytest.approx(expected, abs=1e-6)
        assert found[name] == pytest.approx(sum(expected.values()) / len(qrels), abs=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_equals_trec_eval_itself_on_the_raw_scores(seed):
    scores, qrels = random_case(seed)
    measures = [ir_measures.parse_measure(name) for name in ("R@5", "nDCG@10", "AP", "P@5", "RR")]
    theirs = ir_measures.pytrec_eval.calc_aggregate(measures, qrels, scores)
    ours = evaluate(Run.from_scores(scores), qrels, [str(measure) for measure in measures])
    assert dict(ours) == pytest.approx({str(measure): value for measure, value in theirs.items()}, abs=1e-9)


def test_ties_are_trec_evals_where_ir_measures_would_use_another_order():
    scores = {"q": {"a": 1.0, "b": 1.0}}
    assert ir_measures.calc_aggregate([ir_measures.RR @ 10], {"q": {"a": 1}}, scores)[ir_measures.RR @ 10] == 1.0
    assert evaluate(Run.from_scores(scores), {"q": {"a": 1}}, ["RR@10"])["RR@10"] == 0.5


def test_a_query_with_negative_grades_alone_is_0_and_kept_from_trec_eval(monkeypatch):
    """Its nDCG may never come back from one."""
    import ir_measures

    asked = []

    def evaluator(measures, qrels):
        asked.extend(qrels)
        return real(measures, qrels)

    real = ir_measures.pytrec_eval.evaluator
    monkeypatch.setattr(ir_measures.pytrec_eval, "evaluator", evaluator)
    qrels = {"junk": {"a": -1, "b": -2}, "none": {"a": 0}, "good": {"a": 1, "b": -1}}
    scores = evaluate(Run.from_scores({query: {"a": 1.0, "b": 0.5} for query in qrels}), qrels, ["nDCG", "AP"])
    assert scores.per_query["nDCG"] == {"junk": 0.0, "none": 0.0, "good": 1.0}
    assert "junk" not in asked


def test_grades_below_minus_one_count_as_minus_one():
    run = Run.from_scores({f"q{number}": {"a": 3.0, "b": 2.0, "c": 1.0} for number in range(300)})
    grades = [{"a": -2}, {"a": -2, "b": -5}, {"a": -2, "b": 1, "c": 0}]  # a spam page of the web tracks is −2
    qrels = {f"q{number}": grades[number % 3] for number in range(300)}
    higher = {query: {name: max(grade, -1) for name, grade in some.items()} for query, some in qrels.items()}
    names = ["RR@2", "nDCG@3", "AP", "Bpref", "P@2"]
    assert evaluate(run, qrels, names).per_query == evaluate(run, higher, names).per_query
    assert evaluate(run, qrels, ["RR@2"]).per_query["RR@2"]["q2"] == 0.5


def test_a_grade_that_trec_eval_cannot_take_is_named():
    with pytest.raises(InterlinguaError, match=r"give query 'q' a grade of 3,000,000,000; at most 1,000,000 is taken"):
        evaluate(Run.from_scores({"q": {"a": 1.0}}), {"q": {"a": 3_000_000_000}}, ["nDCG@10"])


def test_grades_of_numpy_are_integers_and_what_is_none_is_named():
    run = Run.from_scores({"q": {"a": 1.0, "b": 2.0}})
    assert evaluate(run, {"q": {"a": np.int64(1), "b": np.int64(-1)}}, ["RR@10"])["RR@10"] == 0.5
    for grade in (1.0, "1", None):
        with pytest.raises(BadInput, match=r"passage 'a' of query 'q' the grade .*: a whole number"):
            evaluate(run, {"q": {"a": grade}}, ["RR@10"])


@pytest.mark.parametrize("measure", ["RR", "P", "Success"])
def test_of_judged_passages_only_the_cut_counts_those(measure):
    run = Run.from_scores({"q": {"unjudged": 3.0, "right": 2.0}, "r": {"unjudged": 1.0}})
    values = evaluate(run, {"q": {"right": 1}, "r": {"right": 1}}, [f"{measure}(judged_only=True)@1"])
    assert next(iter(values.per_query.values())) == {"q": 1.0, "r": 0.0}
    run = Run.from_scores({"q": {"spam": 3.0, "wrong": 2.0, "right": 1.0}})  # a grade below 0 is no judgement
    values = evaluate(run, {"q": {"right": 1, "wrong": 0, "spam": -1}}, [f"{measure}(judged_only=True)@2"])
    assert next(iter(values.per_query.values()))["q"] == {"RR": 0.5, "P": 0.5, "Success": 1.0}[measure]


def test_mean_is_over_all_queries_of_the_qrels():
    run = Run.from_scores({"found": {"a": 1.0}, "empty": {}, "unjudged": {"a": 1.0}, "none": {"a": 1.0}})
    qrels = {"found": {"a": 1}, "empty": {"a": 1}, "missing": {"a": 1}, "none": {"a": 0}, "blank": {}}
    scores = evaluate(run, qrels, ["RR@100", "R@100", "nDCG@10"])
    assert dict(scores) == {"RR@100": 0.2, "R@100": 0.2, "nDCG@10": 0.2}
    assert list(scores.per_query["R@100"]) == list(qrels)
    assert scores.queries == 5
    assert evaluate(Run(), qrels)["RR@100"] == 0


def test_recall_is_a_fraction_and_the_gain_is_linear():
    run = Run.from_scores({"q": {"a": 2.0, "b": 1.0}})
    scores = evaluate(run, {"q": {"a": 1, "b": 3, "c": 1, "d": 0}}, ["R@2", "nDCG@2"])
    assert scores["R@2"] == pytest.approx(2 / 3)
    assert scores["nDCG@2"] == pytest.approx((1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3)))


def test_aliases_name_the_same_measure():
    run, qrels = Run.from_scores({"q": {"a": 2.0, "b": 1.0}}), {"q": {"b": 1}}
    scores = evaluate(run, qrels, ["MRR@100", "Recall@100"])
    assert list(scores) == ["RR@100", "R@100"]
    assert scores["MRR@100"] == scores["RR@100"] == 0.5
    assert scores.per_query["Recall@100"] == {"q": 1.0}
    assert evaluate(run, qrels, ["RR(rel=2)@10"])["RR(rel=2)@10"] == 0
    with pytest.raises(InterlinguaError, match="'nDCG@10' was not computed"):
        scores["nDCG@10"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nDGC@10", "Did you mean 'nDCG'"),
        ("Recal@5", "Did you mean 'Recall'"),
        ("R", "Write for example 'R@100'"),
        ("R@0", "cut-off of 1"),
        ("RR@-1", "RR@-1"),
        ("nDCG@x", "nDCG@x"),
        ("nDCG(dcg='exp-log2')@10", "these parameters"),
        ("", "unknown measure"),
        ("AP(nonsense=1)@5", "nonsense"),
    ],
)
def test_unknown_measures_are_refused(name, message):
    with pytest.raises(InterlinguaError, match=message):
        evaluate(Run(), {"q": {"a": 1}}, [name])


def test_empty_qrels_are_refused():
    with pytest.raises(InterlinguaError, match="no query"):
        evaluate(Run(), {})
