from __future__ import annotations

import random

import numpy as np
import pytest

from interlingua.errors import InterlinguaError
from interlingua.retrieval import Run
from interlingua.retrieval.run import docid_order


def by_definition(ids, scores):
    """Score in float32 descending, then bytes of the docid descending."""
    pairs = [(float(np.float32(score)), name.encode(), name) for name, score in zip(ids, scores, strict=True)]
    return [(name, score) for score, _, name in sorted(pairs, reverse=True)]


def test_order_is_score_then_docid_bytes_both_descending():
    rng = random.Random(0)
    names = ["a", "ab", "b", "Z", "é", "z", "あ", "\U0001f600", "\uffff", "10", "9", "q-1", "q_1"]
    for _ in range(200):
        ids = rng.sample(names, rng.randrange(len(names) + 1))
        scores = [rng.choice([1.0, 0.5, -0.0, 0.0, 1 + 1e-12, float("-inf")]) for _ in ids]
        run = Run()
        run.add("q", ids, scores)
        assert run["q"] == by_definition(ids, scores)
    assert [names[i] for i in docid_order(names)] == sorted(names, key=str.encode, reverse=True)


def test_scores_that_differ_only_in_float64_are_a_tie():
    run = Run.from_scores({"q": {"a": 1.0 + 1e-12, "b": 1.0}})
    assert run.ids("q") == ["b", "a"]


def test_truncate_cuts_after_sorting():
    run = Run.from_scores({"q": {"a": 1.0, "c": 1.0, "b": 1.0}, "empty": {}})
    assert run.truncate(2).ids("q") == ["c", "b"]
    assert run.truncate(2)["empty"] == []
    assert run.truncate(0)["q"] == []
    with pytest.raises(InterlinguaError, match="negative"):
        run.truncate(-1)


def test_rows_are_named_when_they_are_read():
    names, rows, scores = ["a", "b", "c", "d"], np.array([2, 0, 3]), np.array([3, 2, 1], np.float32)
    by_rows, by_ids = Run(), Run()
    by_rows.add_rows("q", rows, scores, names)
    by_ids.add("q", ["c", "a", "d"], scores)
    assert by_rows.truncate(2)["q"] == by_ids.truncate(2)["q"] == [("c", 3.0), ("a", 2.0)]
    assert repr(by_rows) == repr(by_ids)
    assert by_rows == by_ids
    assert Run.joined([by_rows], ["q"], 1) == by_ids.truncate(1)
    with pytest.raises(InterlinguaError, match="query 'q': already has results"):
        by_rows.add_rows("q", rows, scores, names)
    other = Run()
    other.add_rows("q", rows[::-1], scores, names)
    assert other != by_ids


@pytest.mark.slow
def test_runs_over_different_passages_become_one():
    parts = [{"q": {"b": 1.0, "a": 1.0}, "other": {"x": 1.0}}, {"p": {"m": 2.0}}, {"q": {"c": 1.0, "d": 0.5}}]
    runs = [Run.from_scores(part) for part in parts]
    joined = Run.joined(iter(runs), ["p", "q", "none"])
    assert list(joined) == ["p", "q", "none"]
    assert [joined.ids(name) for name in joined] == [["m"], ["c", "b", "a", "d"], []]
    assert Run.joined(iter(runs), ["p", "q", "none"], 2) == joined.truncate(2)
    assert Run.joined([], ["q"], 2)["q"] == []
    with pytest.raises(InterlinguaError, match="document 'm' occurs twice"):
        Run.joined([runs[1], runs[1]], ["p"])


def test_trec_file_round_trips_every_float32(tmp_path):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, size=20_000, dtype=np.uint32).view(np.float32)
    scores = bits[np.isfinite(bits)]
    run = Run()
    run.add("q1", [f"p{i}" for i in range(len(scores))], scores)
    run.add("q2", ["é"], [0.1])
    for name in ("run.txt", "run.txt.gz"):
        run.write_trec(tmp_path / name, "mine")
        assert Run.read_trec(tmp_path / name) == run
    first = (tmp_path / "run.txt").read_text(encoding="utf-8").splitlines()[0].split(" ")
    assert (first[0], first[1], first[3], first[5]) == ("q1", "Q0", "1", "mine")


def test_a_query_without_results_is_in_the_run_but_not_in_the_file(tmp_path):
    run = Run.from_scores({"q": {"a": 1.0}, "nothing": {}})
    assert list(run) == ["q", "nothing"]
    run.write_trec(tmp_path / "run.txt")
    assert list(Run.read_trec(tmp_path / "run.txt")) == ["q"]


def test_rank_column_is_ignored(tmp_path):
    (tmp_path / "run.txt").write_text("q Q0 low 1 0.5 t\n\nq\tQ0\thigh\t2\t0.75\tt\n")
    assert Run.read_trec(tmp_path / "run.txt").ids("q") == ["high", "low"]


def test_equality_sees_scores_ids_and_queries():
    run = Run.from_scores({"q": {"a": 1.0, "b": 0.5}, "r": {"a": 1.0}})
    assert run == Run.from_scores({"r": {"a": 1.0}, "q": {"b": 0.5, "a": 1.0}})
    assert run != Run.from_scores({"q": {"a": 1.0, "b": 0.25}, "r": {"a": 1.0}})
    assert run != Run.from_scores({"q": {"a": 1.0, "c": 0.5}, "r": {"a": 1.0}})
    assert run != Run.from_scores({"q": {"a": 1.0, "b": 0.5}})
    assert list(run.rows()) == [("q", "a", 1, 1.0), ("q", "b", 2, 0.5), ("r", "a", 1, 1.0)]


@pytest.mark.parametrize(
    ("ids", "scores", "message"),
    [
        (["a", "b", "a"], [3, 2, 1], "'a' occurs twice"),
        (["a", "b"], [1.0, float("nan")], "'b' is NaN"),
        (["a"], [1.0, 2.0], "1 documents"),
        (["a"], [[1.0]], "shape"),
    ],
)
def test_bad_results_are_refused(ids, scores, message):
    with pytest.raises(InterlinguaError, match=message):
        Run().add("q", ids, scores)


def test_a_query_is_added_once():
    run = Run.from_scores({"q": {}})
    with pytest.raises(InterlinguaError, match="already has results"):
        run.add("q", ["a"], [1.0])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q Q0 b 2 0.5", "line 2: 5 fields"),
        ("q Q0 b 2 high t", "line 2: the score 'high'"),
        ("q Q0 b 2 nan t", "line 2: the score is NaN"),
        ("q Q0 a 2 0.5 t", "line 2: document 'a' occurs twice"),
    ],
)
def test_malformed_lines_name_file_line_and_reason(tmp_path, line, message):
    (tmp_path / "bad.txt").write_text(f"q Q0 a 1 1.0 t\n{line}\n")
    with pytest.raises(InterlinguaError, match=f"bad.txt, {message}"):
        Run.read_trec(tmp_path / "bad.txt")


def test_what_a_trec_file_cannot_hold_is_refused_and_leaves_the_old_file(tmp_path):
    path = tmp_path / "run.txt"
    path.write_text("old")
    with pytest.raises(InterlinguaError, match="document id 'a b'"):
        Run.from_scores({"q": {"a b": 1.0}}).write_trec(path)
    with pytest.raises(InterlinguaError, match="tag ''"):
        Run().write_trec(path, "")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["run.txt"]
