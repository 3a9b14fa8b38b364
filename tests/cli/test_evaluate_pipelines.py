"""Pipelines on the command line: `interlingua evaluate --pipeline`."""

from __future__ import annotations

import json
import sys

import pytest

from interlingua.cli import main
from interlingua.data.collections import cross, load_collection
from interlingua.data.records import Query
from interlingua.evaluation.protocol import evaluate_on, evaluate_pipelines
from interlingua.models.dual import DualEncoder
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.retrieval.pipeline.grammar import parse_pipeline
from interlingua.retrieval.pipeline.run import run_pipeline
from interlingua.retrieval.run import Run


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_static, tiny_encoder):
    """A folder with a static model, a late-interaction model, and translations of questions."""
    root = tmp_path_factory.mktemp("place")
    tiny_static().save(root / "static")
    LateInteractionEncoder.start(tiny_encoder(max_length=96), dim=16, query_length=24, document_length=90).save(
        root / "late"
    )
    asked = load_collection("encyclopedia:en").queries
    (root / "en.tsv").write_text("".join(f"{q.id}\t{q.text}\n" for q in asked), encoding="utf-8")
    (root / "some.tsv").write_text(f"{asked[0].id}\ttext\n", encoding="utf-8")
    (root / "upper.py").write_text("import sys\nfor line in sys.stdin: print(line.upper(), end='')", encoding="utf-8")
    (root / "first.py").write_text("print(input())", encoding="utf-8")
    (root / "fi-en.tsv").write_text("talo\thouse\n", encoding="utf-8")
    (root / "other.run").write_text("elsewhere Q0 1 1 1.0 t\n", encoding="utf-8")
    for name in ("dev.fi", "dev-fi"):
        (root / name).mkdir()
        (root / name / "passages.jsonl").write_text('{"id": "p", "text": "talo"}\n', encoding="utf-8")
        (root / name / "queries.tsv").write_text("q\ttalo\n", encoding="utf-8")
        (root / name / "qrels.txt").write_text("q 0 p 1\n", encoding="utf-8")
    return root


@pytest.fixture
def there(place, monkeypatch):
    monkeypatch.chdir(place)


def tables(capsys, *argv):
    """System → measure → column → value of the JSON tables that a command prints."""
    capsys.readouterr()
    assert main(["evaluate", *map(str, argv), "--format", "json"]) == 0
    out, found, at, decoder = capsys.readouterr().out, {}, 0, json.JSONDecoder()
    while (at := out.find("[", at)) >= 0:
        rows, at = decoder.raw_decode(out, at)
        for row in rows:
            found.setdefault(row["system"], {}).setdefault(row["measure"], {})[row["column"]] = row["value"]
    return found


@pytest.mark.slow
def test_pipelines_are_rows_beside_models(there, capsys):
    texts = ["bm25", "bm25 % 20 >> static", "bm25 + 0.5 * static", "rrf(bm25 % 50, static % 50)", "static % 10 >> late"]
    found = tables(
        capsys,
        "static",
        "late",
        "--pipeline",
        *texts,
        "--on",
        "encyclopedia:en",
        "encyclopedia:fi",
        "--measures",
        "RR@10",
        "nDCG@10",
        "--no-intervals",
    )
    assert list(found) == ["static", "late", *texts]
    collections = [load_collection(f"encyclopedia:{lang}") for lang in ("en", "fi")]
    expected = evaluate_pipelines(
        {text: parse_pipeline(text) for text in ("late", *texts)}, collections, ["RR@10", "nDCG@10"]
    )
    expected["static"] = evaluate_on(DualEncoder.load("static"), collections, ["RR@10", "nDCG@10"])
    for name, measures in found.items():
        for measure, cells in measures.items():
            for column, result in zip(("en", "fi"), expected[name], strict=True):
                assert cells[column] == pytest.approx(result.scores[measure])
    assert found["bm25"]["RR@10"]["en"] > 0.5


@pytest.mark.slow
def test_a_late_interaction_model_alone(there, capsys):
    found = tables(capsys, "late", "--on", "encyclopedia:fi", "--measures", "RR@10")
    run = run_pipeline("late", load_collection("encyclopedia:fi"), 100)
    (result,) = evaluate_pipelines({"late": parse_pipeline("late")}, [load_collection("encyclopedia:fi")], ["RR@10"])[
        "late"
    ]
    assert result.run == run
    assert found["late"]["RR@10"]["fi"] == pytest.approx(result.scores["RR@10"])


@pytest.mark.slow
def test_runs_of_pipelines_read_back_as_pipelines(there, tmp_path, capsys):
    text, long = "bm25 % 20 >> static", "bm25 + " + " + ".join(f"0.{i} * static" for i in range(9))
    tables(capsys, "--pipeline", text, long, "--on", "encyclopedia:fi", "--runs", tmp_path, "--measures", "RR@10")
    names = sorted(file.name for file in tmp_path.glob("*.run"))
    assert names[1] == "bm25---20----static.encyclopedia_fi.run"
    assert all(len(name) < 140 for name in names)
    run = Run.read_trec(tmp_path / names[1])
    assert run == run_pipeline(text, load_collection("encyclopedia:fi"), 100)
    again = tables(
        capsys, "--pipeline", f"run({tmp_path / names[1]})", text, "--on", "encyclopedia:fi", "--measures", "RR@10"
    )
    assert len({cells["RR@10"]["fi"] for cells in again.values()}) == 1


def test_a_run_of_other_passages_is_said(tmp_path, capsys):
    collection, file = load_collection("encyclopedia:fi"), tmp_path / "other.run"
    Run.from_scores({query: {"d7": 2.0, "d8": 1.0} for query in collection.qrels}).write_trec(file)
    assert main(["evaluate", "--pipeline", f"run({file})", "--on", "encyclopedia:fi", "--measures", "RR@10"]) == 0
    said = capsys.readouterr().err
    count = 2 * len(collection.qrels)
    assert f"{count} of {count} results are no passages of the collection, the first is 'd7'" in said


def test_ids_that_no_run_file_holds_are_said_before_anything_is_searched(tmp_path, capsys):
    (tmp_path / "odd_en").mkdir()
    (tmp_path / "odd_en/passages.jsonl").write_text('{"id": "a b", "text": "A text."}\n', encoding="utf-8")
    (tmp_path / "odd_en/queries.tsv").write_text("q\tWhat?\n", encoding="utf-8")
    (tmp_path / "odd_en/qrels.txt").write_text("q\t0\ta b\t1\n", encoding="utf-8")
    asked = ["evaluate", "--pipeline", "bm25", "--on", str(tmp_path / "odd_en")]
    assert main([*asked, "--runs", str(tmp_path / "runs")]) == 2
    printed, said = capsys.readouterr()
    assert not printed
    assert "passage id 'a b': a TREC run separates fields by white space. Use one without spaces." in said
    assert not list((tmp_path / "runs").iterdir())
    assert main(asked) == 0


def test_a_run_file_that_lacks_queries_is_named_and_the_rest_is_printed(there, tmp_path, capsys):
    collection, file = load_collection("encyclopedia:fi"), tmp_path / "some.run"
    queries = list(collection.qrels)
    Run.from_scores({query: dict.fromkeys(collection.qrels[query], 1.0) for query in queries[3:]}).write_trec(file)
    pipelines = ["bm25", f"run({file})", f"bm25 + run({file})"]
    asked = ["--on", "encyclopedia:fi", "--measures", "RR@10", "--format", "json"]
    assert main(["evaluate", "--pipeline", *pipelines, *asked]) == 2
    printed, said = capsys.readouterr()
    rows = {(row["system"], row["column"]): row["value"] for row in json.loads(printed)}
    assert rows[f"run({file})", "fi"] == pytest.approx(1 - 3 / len(queries))
    assert rows["bm25", "fi"] > 0.5
    assert rows[f"bm25 + run({file})", "fi"] > 0.5
    assert said.splitlines()[-1] == (
        f"interlingua: the tables are printed, and are not complete: {file}: no results for 3 of the {len(queries)} "
        f"queries of {collection.name}, such as '{queries[0]}'; they count as nothing found"
    )


@pytest.mark.slow
def test_questions_translated_beforehand(there, capsys):
    given = ["--on", "encyclopedia:fi", "encyclopedia:sw", "--passages", "encyclopedia:en", "--measures", "RR@10"]
    plain = tables(capsys, "--pipeline", "bm25", *given)["bm25"]["RR@10"]
    for translated in (["en.tsv"], ["en.tsv", "en.tsv"]):
        found = tables(capsys, "--pipeline", "bm25", "bm25 % 9 >> static", *given, "--translated", *translated)
        assert found["bm25"]["RR@10"]["fi"] == found["bm25"]["RR@10"]["sw"] > plain["fi"]
    named = tables(capsys, "--pipeline", "bm25(queries=en.tsv)", *given)
    assert named["bm25(queries=en.tsv)"] == {"RR@10": found["bm25"]["RR@10"]}
    english = load_collection("encyclopedia:en")
    pair = cross(load_collection("encyclopedia:fi"), english)
    asked = [Query(q.id, q.text, "en") for q in english.queries]
    run = run_pipeline("bm25 % 9 >> static", pair, 100, translated=asked)
    expected = evaluate_pipelines(
        {"x": parse_pipeline("bm25 % 9 >> static")}, [pair], ["RR@10"], translated={pair.name: asked}
    )["x"][0]
    assert expected.run == run
    assert found["bm25 % 9 >> static"]["RR@10"]["fi"] == pytest.approx(expected.scores["RR@10"])


def test_questions_translated_by_a_program(there, capsys):
    given = ["--pipeline", "bm25(analyzer=whitespace)", "--on", "encyclopedia:fi", "--measures", "RR@10"]
    upper = tables(capsys, *given, "--translate", f"'{sys.executable}' upper.py")
    collection = load_collection("encyclopedia:fi")
    run = run_pipeline(
        "bm25(analyzer=whitespace)",
        collection,
        100,
        translated=[Query(q.id, q.text.upper(), "fi") for q in collection.queries],
    )
    ranks = [
        ([*run.ids(q), *collection.qrels[q]].index(next(iter(collection.qrels[q]))) + 1, len(run.ids(q)))
        for q in collection.qrels
    ]
    expected = sum(1 / rank for rank, length in ranks if rank <= min(10, length)) / len(ranks)
    assert upper["bm25(analyzer=whitespace)"]["RR@10"]["fi"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--pipeline", "bm25"], "say what to measure on"),
        (["--pipeline", "bm25", "--tatoeba", "x"], "say which MODEL"),
        (["static", "--pipeline", "bm25", "--tatoeba", "x"], "--pipeline is for collections"),
        (["static", "--pipeline", "bm25", "--on", "encyclopedia:fi", "--matrix"], "--matrix has no use for --pipeline"),
        (["--pipeline", "bm25 >> ", "--on", "nowhere"], "at the end: bm25, the path of a model"),
        (["--pipeline", "bm25 % ten", "--on", "nowhere"], "at position 8, before 'ten': the number of results to keep"),
        (["--pipeline", "static + half * bm25", "--on", "nowhere"], "at position 10, before 'half * bm25': a number"),
        (["--pipeline", "bm25", "bm25", "--on", "encyclopedia:fi"], "one of them is given twice"),
        (["static", "--pipeline", "static", "--on", "encyclopedia:fi"], "is given twice, or is a MODEL as well"),
        (["static", "--pipeline", "bm25", "--on", "encyclopedia:fi", "--runs", "r", "bm25.1"], "no such folder"),
        (
            ["--pipeline", "static % 9 % 5", "static % 9 * 5", "--on", "encyclopedia:fi"],
            "%, +, >> or the end was expected",
        ),
        (
            ["--pipeline", "bm25 % 5 + bm25", "bm25 + 5 * bm25", "--on", "encyclopedia:fi", "--runs", "r"],
            "--runs would write 'bm25 % 5 + bm25' and 'bm25 + 5 * bm25' to files of one name",
        ),
        (
            ["--pipeline", "bm25", "--on", "dev.fi", "dev-fi", "--runs", "r"],
            "--runs would write the collections 'dev.fi' and 'dev-fi' to files of one name",
        ),
        (["static", "--on", "encyclopedia:fi", "--translated", "en.tsv"], "--translated is for the bm25 stages"),
        (
            ["--pipeline", "static", "--on", "encyclopedia:fi", "--translated", "en.tsv"],
            "no stage of the pipelines reads",
        ),
        (
            ["--pipeline", "bm25(queries=en.tsv)", "--on", "encyclopedia:fi", "--translate", "cat"],
            "--translate: no stage",
        ),
        (
            ["--pipeline", "bm25", "--on", "encyclopedia:fi", "--translate", "cat", "--translated", "en.tsv"],
            "Give one of",
        ),
        (
            ["--pipeline", "bm25", "--on", "encyclopedia:fi", "--translated", "some.tsv"],
            "some.tsv: no translation of 55 of 56 queries",
        ),
        (
            ["--pipeline", "bm25", "--on", "encyclopedia:fi", "--translated", "en.tsv", "en.tsv"],
            "2 files for 1 collections",
        ),
        (["--pipeline", "bm25", "--on", "encyclopedia:fi", "--translate", "nowhere-to-be-found"], "cannot be run"),
        (["--pipeline", "bm25", "--on", "encyclopedia:fi", "--translate", "'"], "--translate ': No closing quotation"),
        (
            ["--pipeline", "bm25", "--on", "encyclopedia:fi", "--translate", f"'{sys.executable}' first.py"],
            "the translation has 1 lines for 56 queries",
        ),
        (["--pipeline", "bm25 >> ./nowhere", "--on", "encyclopedia:fi"], "nowhere: is not a model folder"),
        (["--pipeline", "bm25 + run(nowhere.run)", "--on", "encyclopedia:fi"], "nowhere.run: no such file"),
        (["--pipeline", "run(other.run)", "--on", "encyclopedia:fi"], "other.run: has results for no query of"),
        (["--pipeline", "bm25 >> late(maxp=180/90)", "--on", "encyclopedia:fi"], "this model reads 90"),
        (["--pipeline", "bm25(analyzer=klingon)", "--on", "encyclopedia:fi"], "klingon"),
        (["late", "--tatoeba", "fi-en.tsv"], "--tatoeba takes models of one vector a text. Measure it with --on"),
        (["late", "--on", "encyclopedia:fi", "encyclopedia:en", "--matrix"], "late: is a late-interaction model"),
        (["late", "--on", "encyclopedia:fi", "--layer", "0"], "--layer takes models of one vector a text"),
    ],
)
def test_what_a_person_can_mend_is_one_line(there, capsys, argv, said):
    assert main(["evaluate", *argv]) == 2
    captured = capsys.readouterr()
    error = captured.err.splitlines()[-1]
    assert error.startswith("interlingua: ")
    assert said in error
    assert not captured.out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--precision", "int8"], "static: "),
        (["--layer", "0"], "--layer is for MODELs"),
        (["--pooling", "cls"], "--pooling is for MODELs"),
    ],
)
def test_no_option_of_models_is_passed_over_where_a_pipeline_names_them(options, told, there, capsys):
    assert main(["evaluate", "--pipeline", "static", "--on", "encyclopedia:fi", *options]) == 2
    assert told in capsys.readouterr().err
