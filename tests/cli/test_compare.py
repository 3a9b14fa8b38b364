"""`interlingua compare`: pairs of runs as one family of tests."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest
from scipy import stats

from interlingua.cli import main
from interlingua.data.collections import load_collection
from interlingua.retrieval.run import Run

LANGS = ("en", "fi", "ko", "sw")


@pytest.fixture(scope="module")
def trec(tmp_path_factory):
    """Runs of systems a and b on four collections, b worse by more and more, and the qrels."""
    root = tmp_path_factory.mktemp("trec")
    rng = random.Random(0)
    for number, lang in enumerate(LANGS):
        collection = load_collection(f"encyclopedia:{lang}")
        for name, worse in (("a", 0.0), ("b", 0.12 * number)):
            queries = rng.sample(list(collection.qrels), len(collection.qrels))  # in any order, and one finds nothing
            Run.from_scores(
                {
                    query: {
                        p.id: rng.random() + (p.id in collection.qrels[query]) * (0.5 - worse)
                        for p in collection.passages[:30] + collection.passages[-30:]
                    }
                    for query in queries[1:]
                }
                | {queries[0]: {"nowhere": 1.0}}
            ).write_trec(root / f"{name}.{lang}.run")
        (root / f"{lang}.qrels").write_text(
            "".join(
                f"{query} 0 {name} {grade}\n"
                for query, judged in collection.qrels.items()
                for name, grade in judged.items()
            )
        )
    return root


def reciprocal_ranks(file, qrels):
    """Of every judged query, 0 for one that the run lacks."""
    run = Run.read_trec(file)
    found = []
    for query in qrels:
        ids = run.ids(query) if query in run else []
        found.append(max((1 / (ids.index(name) + 1) for name in qrels[query] if name in ids), default=0.0))
    return np.array(found)


def compared(capsys, *argv):
    capsys.readouterr()
    assert main(["compare", *map(str, argv)]) == 0
    return capsys.readouterr().out.splitlines()


def files(trec, kind):
    return [trec / (f"{kind}.{lang}.run" if kind in "ab" else f"{lang}.qrels") for lang in LANGS]


@pytest.mark.slow
@pytest.mark.parametrize("correction", ["holm", "bonferroni", "none"])
@pytest.mark.parametrize("source", ["qrels", "collections"])
def test_a_family_is_corrected_as_by_hand(trec, capsys, correction, source):
    given = ["--qrels", *files(trec, "qrels")] if source == "qrels" else ["--on", *(f"encyclopedia:{x}" for x in LANGS)]
    lines = compared(capsys, *files(trec, "a"), *files(trec, "b"), *given, "--correction", correction)
    assert len(lines) == 3 * len(LANGS)
    p = []
    for lang in LANGS:
        qrels = load_collection(f"encyclopedia:{lang}").qrels
        a, b = (reciprocal_ranks(trec / f"{name}.{lang}.run", qrels) for name in "ab")
        p.append(stats.ttest_rel(a, b).pvalue)
        assert f"{trec}/a.{lang}.run: RR@100 {a.mean():.4f}" in lines
        assert f"{trec}/b.{lang}.run: RR@100 {b.mean():.4f}" in lines
    order = np.argsort(p)
    holm, largest = [0.0] * 4, 0.0
    for place, i in enumerate(order):
        largest = max(largest, min(1.0, p[i] * (4 - place)))
        holm[i] = largest
    corrected = {"holm": holm, "bonferroni": [min(1.0, 4 * one) for one in p], "none": p}[correction]
    assert sum(one < 0.05 for one in corrected) not in (0, 4)
    for number, (line, one, other) in enumerate(zip(lines[8:], p, corrected, strict=True)):
        assert line.startswith(f"{number + 1}. {given[number + 1]}: RR@100 ")
        assert "over 56 queries" in line
        assert f"paired t test p = {one:.3g}" in line
        assert (f"{correction} {other:.3g}" in line) == (correction != "none")
        assert line.endswith(": significant" if other < 0.05 else ": not significant")


@pytest.mark.slow
def test_permutation_and_alpha(trec, capsys):
    given = [*files(trec, "a"), *files(trec, "b"), "--qrels", *files(trec, "qrels")]
    usual, tested = compared(capsys, *given), compared(capsys, *given, "--test", "permutation", "--measure", "nDCG@10")
    assert all("paired permutation test" in line and "nDCG@10" in line for line in tested[8:])
    for line, other in zip(usual[8:], compared(capsys, *given, "--test", "permutation")[8:], strict=True):
        t, permuted = (float(re.search(r"test p = ([\d.e-]+)", one)[1]) for one in (line, other))
        assert permuted == pytest.approx(t, abs=0.03)
    assert all(line.endswith(": not significant") for line in compared(capsys, *given, "--alpha", "1e-12")[8:])


def test_a_run_that_lacks_queries_is_named_and_the_comparison_printed(trec, tmp_path, capsys):
    whole, qrels = trec / "a.sw.run", trec / "sw.qrels"
    run, short = Run.read_trec(trec / "b.sw.run"), tmp_path / "short.run"
    queries = list(load_collection("encyclopedia:sw").qrels)
    Run.from_scores({query: dict(run[query]) for query in queries[2:]}).write_trec(short)
    assert main(["compare", str(whole), str(short), "--qrels", str(qrels)]) == 2
    printed, said = capsys.readouterr()
    a, b = (reciprocal_ranks(file, load_collection("encyclopedia:sw").qrels) for file in (whole, short))
    assert f"{short}: RR@100 {b.mean():.4f}" in printed
    assert f"paired t test p = {stats.ttest_rel(a, b).pvalue:.3g}" in printed
    assert said == (
        f"interlingua: the comparison is printed, and is not complete: {short}: no results for 2 of the 56 queries of "
        f"{qrels}, such as '{queries[0]}'; they count as nothing found\n"
    )
    # of a family the others are printed too, and a run that stands in two of its comparisons is named once
    argv = [str(file) for file in (whole, short, short, whole, "--qrels", qrels)]
    assert main(["compare", *argv]) == 2
    printed, said = capsys.readouterr()
    assert printed.count("paired t test") == 2
    assert said.count("no results for") == 1


def test_several_systems_on_one_collection_are_a_family_too(trec, capsys):
    a, b = trec / "a.sw.run", trec / "b.sw.run"
    lines = compared(capsys, a, b, b, a, "--qrels", trec / "sw.qrels")
    assert [line.split(":")[0] for line in lines[4:]] == [f"{i}. {trec}/sw.qrels" for i in (1, 2)]
    assert "holm" in lines[4]
    one = compared(capsys, a, b, "--qrels", trec / "sw.qrels")
    assert one[2].startswith("A vs B: RR@100")
    assert "holm" not in one[2]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("a.en.run --qrels en.qrels", "1 run file(s) cannot be paired"),
        ("a.en.run b.en.run", "say what is right: --qrels FILE …, or --on COLLECTION …"),
        ("a.en.run b.en.run --qrels en.qrels --on encyclopedia:en", "Give one of them"),
        ("a.en.run b.en.run --qrels en.qrels fi.qrels", "2 sets of judgements for 1 pair(s) of runs"),
        ("a.en.run b.en.run --qrels en.qrels --alpha 5", "--alpha 5.0: must lie between 0 and 1"),
        ("a.en.run b.en.run --on nowhere", "nowhere: no such collection"),
        ("a.en.run nowhere.run --qrels en.qrels", "nowhere.run: no such file"),
    ],
)
def test_what_a_person_can_mend_is_one_line(trec, capsys, monkeypatch, argv, said):
    monkeypatch.chdir(trec)
    assert main(["compare", *argv.split()]) == 2
    captured = capsys.readouterr()
    assert said in captured.err.splitlines()[-1]
    assert not captured.out
