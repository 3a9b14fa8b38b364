"""Rows that rank by a pipeline: tuned on other questions, with translations for BM25, starting from other rows."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest

from interlingua.data.collections import load_collection
from interlingua.data.records import Collection, Query
from interlingua.errors import InterlinguaError
from interlingua.evaluation.measures import evaluate
from interlingua.experiments.present import draw, present
from interlingua.experiments.run import Reproduction
from interlingua.experiments.spec import Ranking, Suite, read_table
from interlingua.experiments.suites import held, measure
from interlingua.retrieval.pipeline.run import run_pipeline

GRID = Ranking("bm25(k1={k1}, b={b})", {"k1": [0.1, 3.0], "b": [0.0, 1.0]})
PIPELINES = [f"bm25(k1={k1}, b={b})" for k1 in (0.1, 3.0) for b in (0.0, 1.0)]


@pytest.fixture(scope="module")
def finnish():
    return load_collection("encyclopedia:fi")


@pytest.fixture(scope="module")
def alone(finnish):
    """Pipeline → question → reciprocal rank, each run by itself."""
    return {
        text: evaluate(run_pipeline(text, finnish, 1000), finnish.qrels, ["RR"]).per_query["RR"] for text in PIPELINES
    }


def mean(values, questions):
    return fmean(values[question] for question in questions)


def test_the_settings_of_a_grid():
    assert GRID.settings() == PIPELINES
    assert not GRID.needs_model
    assert Ranking("bm25 + {alpha} * {model}", {"alpha": [0.5]}).settings() == ["bm25 + 0.5 * model"]


def test_no_question_is_tuned_on_itself(finnish, alone):
    found = GRID.scores(None, finnish, ["RR"])["RR"]
    first, second = list(finnish.qrels)[::2], list(finnish.qrels)[1::2]
    assert list(finnish.qrels) == [q for pair in zip(first, second, strict=True) for q in pair]
    for half, other in ((first, second), (second, first)):
        best = max(PIPELINES, key=lambda text: mean(alone[text], other))
        assert {q: found[q] for q in half} == {q: alone[best][q] for q in half}
    assert len({mean(values, first) for values in alone.values()}) > 1  # else there would be nothing to choose


def test_dev_questions_decide_where_there_are_some(finnish, alone):
    # of the worst pipeline only those questions that it answers better than all others
    odd = min(PIPELINES, key=lambda text: mean(alone[text], finnish.qrels))
    easy = [q for q in finnish.qrels if alone[odd][q] > max(v[q] for t, v in alone.items() if t != odd)]
    if not easy:
        odd = max(PIPELINES, key=lambda text: mean(alone[text], finnish.qrels))
        easy = list(finnish.qrels)
    dev = Collection(
        "dev", finnish.passages, [q for q in finnish.queries if q.id in easy], {q: finnish.qrels[q] for q in easy}
    )
    assert GRID.scores(None, finnish, ["RR"], dev=dev)["RR"] == alone[odd]


def test_a_grid_asks_a_model_once(finnish):
    class Counting:
        similarity, texts = "cosine", 0

        def encode_query(self, sentences, **_):
            self.texts += len(sentences)
            return np.array([[1.0, len(text)] for text in sentences], dtype=np.float32)

        def encode_document(self, sentences, **options):
            return Counting().encode_query([" ".join(text) for text in sentences], **options)

    model = Counting()
    ranking = Ranking("bm25 + {alpha} * {model}", {"alpha": [0.0, 0.5, 1.0]})
    ranking.scores(model, finnish, ["RR"])
    assert model.texts == len(finnish.queries)


def test_one_question_cannot_be_tuned_on_the_other_half(finnish):
    one = Collection(
        "one", finnish.passages, finnish.queries[:1], {finnish.queries[0].id: finnish.qrels[finnish.queries[0].id]}
    )
    with pytest.raises(InterlinguaError, match="'one': tuning takes 2 questions"):
        GRID.scores(None, one, ["RR"])


def test_bm25_reads_the_translation_and_keeps_the_id(finnish):
    suite = Suite(collections={"fi": "encyclopedia:fi"}, questions="encyclopedia:en", translations="columns")
    crossed, translated = held(suite, "fi", None)
    assert crossed.query_langs == ["en"]
    assert crossed.passage_langs == ["fi"]
    assert crossed.name == "fi"
    assert {translated[q.id].lang for q in crossed.queries} == {"fi"}
    by_hand = Collection(
        "x", finnish.passages, [Query(q.id, translated[q.id].text, "fi") for q in crossed.queries], crossed.qrels
    )
    expected = evaluate(run_pipeline("bm25", by_hand, 1000), by_hand.qrels, ["RR"]).per_query["RR"]
    found = measure(None, {"s": suite}, ["RR"], None, ranking=Ranking("bm25"))["s"]["RR"]["fi"]
    assert found == expected
    plain = suite.model_copy(update={"translations": None})
    assert fmean(measure(None, {"s": plain}, ["RR"], None, ranking=Ranking("bm25"))["s"]["RR"]["fi"].values()) < fmean(
        found.values()
    )


def test_bm25_reads_the_question_in_the_language_of_the_suites_passages(finnish):
    suite = Suite(collections={"fi": "encyclopedia:fi"}, passages="encyclopedia:en", translations="passages")
    crossed, translated = held(suite, "fi", None)
    assert (crossed.query_langs, crossed.passage_langs) == (["fi"], ["en"])
    assert {translated[q.id].lang for q in crossed.queries} == {"en"}
    english = load_collection("encyclopedia:en")
    relevant = next(iter(crossed.qrels[crossed.queries[0].id]))
    assert translated[crossed.queries[0].id].text in {
        query.text for query in english.queries if relevant in english.qrels[query.id]
    }
    assert held(suite.model_copy(update={"translations": None}), "fi", None)[1] == {}


def test_translations_are_of_the_side_that_the_suite_has():
    with pytest.raises(ValueError, match="translations: passages is for a suite with passages of its own"):
        Suite(collections={"fi": "encyclopedia:fi"}, questions="encyclopedia:en", translations="passages")


def test_translations_of_a_file(tmp_path, finnish):
    english = load_collection("encyclopedia:en")
    file = tmp_path / "fi.tsv"
    own = {q.id: q.text for q in finnish.queries}
    file.write_text("".join(f"{q.id}\t{own[q.id]}\n" for q in english.queries), encoding="utf-8")
    suite = Suite(collections={"fi": "encyclopedia:fi"}, translations={"fi": str(file)})
    found = measure(None, {"s": suite}, ["RR"], None, ranking=Ranking("bm25"))["s"]["RR"]["fi"]
    assert found == evaluate(run_pipeline("bm25", finnish, 1000), finnish.qrels, ["RR"]).per_query["RR"]


FILES = {
    "start": """
tokenizer_sentences: 400
model: {backbone: {scratch: {vocab_size: 2500, layers: 1, hidden: 16, heads: 2, intermediate: 32, max_length: 48}},
        encoders: tied, pooling: cls}
data: {sentences: {path: "encyclopedia:train", batch: 8}}
objectives: {masked_language_modelling: {}}
training: {steps: 2, tensorboard: false}
""",
    "c3": """
model: {backbone: {scratch: {}}, encoders: tied, pooling: cls}
data: {sentences: {path: "encyclopedia:train", batch: 8}}
objectives: {masked_language_modelling: {}}
optimizer: {lr: 0.01}
training: {steps: 3, tensorboard: false}
""",
    "colbert": """
model: {backbone: {scratch: {}}, late_interaction: {dim: 8, query_length: 16, document_length: 40}}
data: {questions: {path: "encyclopedia:train", batch: 4}}
objectives: {late_interaction: {contrast: in_batch, hard_negatives: 0}}
optimizer: {lr: 0.01}
training: {steps: 2, tensorboard: false}
""",
    "suites": """
native: {collections: {fi: "encyclopedia:fi"}}
""",
    "table": """
title: "Ranking"
measures: [RR@100]
scales: {tiny: {start: start.yaml, recipe: colbert.yaml, suites: suites.yaml, maxp: 20/10}}
rows:
  C3: {recipe: {tiny: c3.yaml}, shown: false}
  BM25: {pipeline: bm25}
  ColBERT: {pipeline: "bm25 % 20 >> {model}(maxp={maxp})"}
  ColBERT + C3: {after: C3, pipeline: "bm25 % 20 >> {model}(maxp={maxp})"}
  alone: {of: ColBERT + C3}
  hybrid: {of: ColBERT + C3, pipeline: "bm25 + {alpha} * {model}", tune: {alpha: [0.0, 0.5]}}
compare: [[ColBERT + C3, ColBERT]]
""",
}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    for name, text in FILES.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    name = str(folder / "table.yaml")
    table = read_table(name)
    return Reproduction(table, name, "tiny", None, folder / "runs", seeds=2)


@pytest.mark.slow
def test_a_row_goes_on_from_a_row_that_is_not_shown(work, finnish):
    results = work.run()
    assert list(results) == ["BM25", "ColBERT", "ColBERT + C3", "alone", "hybrid"]
    assert results["BM25"][0] == results["BM25"][1]
    assert (work.folder("C3", 1) / "model").exists()
    assert not (work.folder("C3", 1) / "values.json").exists()
    assert str(work.folder("C3", 2)) in (work.folder("ColBERT + C3", 2) / "recipe.yaml").read_text()
    model = work.model("ColBERT + C3", 2)
    run = run_pipeline("bm25 % 20 >> m(maxp=20/10)", finnish, 1000, lambda name: model)
    expected = evaluate(run, finnish.qrels, ["RR@100"]).per_query["RR@100"]
    assert results["ColBERT + C3"][1]["native"]["RR@100"]["fi"] == expected
    whole = evaluate(run_pipeline("m", finnish, 1000, lambda name: model), finnish.qrels, ["RR@100"])
    assert results["alone"][1]["native"]["RR@100"]["fi"] == whole.per_query["RR@100"]
    assert work.run() == results  # nothing is done twice
    # where what C3 is made by changes, all that comes of it is of another recipe
    table = read_table(work.name)
    (work.table.folder / "c4.yaml").write_text(FILES["c3"].replace("0.01", "0.02"), encoding="utf-8")
    table.rows["C3"].recipe = {"tiny": "c4.yaml"}
    changed = Reproduction(table, work.name, "tiny", None, work.out)
    changed.run()
    refused = {problem.partition(",")[0] for problem in changed.problems if "another recipe" in problem}
    assert refused >= {"row 'ColBERT + C3'", "row 'alone'", "row 'hybrid'"}


@pytest.mark.parametrize("trained", [True, False])
def test_a_row_is_measured_though_what_comes_after_it_crashed(work, tmp_path, monkeypatch, trained):
    rows = {"next": work.table.rows["ColBERT + C3"], "C3": work.table.rows["C3"].model_copy(update={"shown": True})}
    table = work.table.model_copy(update={"rows": rows, "compare": []})
    own = Reproduction(table, work.name, "tiny", None, tmp_path)

    def row(self, name, seed, suites):
        if trained:
            (self.run_folder("C3", seed) / "model").mkdir(parents=True, exist_ok=True)
        if name == "next":
            raise RuntimeError("out of memory")
        return {"native": {"RR@100": {"fi": {"1": 0.5}}}}

    monkeypatch.setattr(Reproduction, "_row", row)
    monkeypatch.setattr(Reproduction, "_start", lambda self: None)
    if not trained:
        with pytest.raises(RuntimeError):
            own.run()
        assert own.problems == [f"row '{name}', seed 1: RuntimeError: out of memory" for name in ("next", "C3")]
        return
    assert list(own.run()["C3"][0]) == ["native"]
    assert own.problems == ["row 'next', seed 1: RuntimeError: out of memory"]


def test_a_row_without_a_model_trains_nothing_and_depends_on_no_recipe(work):
    alone = Reproduction(work.table, work.name, "tiny", None, work.out / "alone", only=["BM25"])
    results = alone.run()
    assert not (work.out / "alone" / "starts").exists()
    other = Reproduction(read_table(work.name, ["training.steps=3"]), work.name, "tiny", None, alone.out, only=["BM25"])
    assert other.run() == results
    assert not other.problems


def test_the_plan_names_what_comes_before_and_how_rows_rank(work):
    lines = work.plan()
    assert [line.partition(":")[0] for line in lines] == ["C3", "BM25", "ColBERT", "ColBERT + C3", "alone", "hybrid"]
    assert lines[1] == "BM25: no model, ranked by bm25"
    assert lines[2].endswith("ranked by bm25 % 20 >> {model}(maxp=20/10)")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{pipeline: 'bm25(k1={k1})'}", "names ..k1"),
        ("{pipeline: bm25, tune: {k1: [1.0]}}", "tune has ..k1"),
        ("{pipeline: 'bm25(k1={k1})', tune: {k1: [1.0]}, tune_at: {huge: {k1: [1.0]}}}", "'huge', which is no scale"),
        ("{pipeline: 'bm25(k1={k1})', tune: {k1: [1.0]}, tune_at: {mini: {b: [1.0]}}}", "tune has ..b"),
        ("{pipeline: bm25, set: [seed=3]}", "has no .model., so of, calibrate and set say nothing"),
        ("{after: nobody}", "comes after 'nobody'"),
        ("{recipe: {huge: a.yaml}}", "'huge' is neither"),
    ],
)
def test_rows_that_say_nothing_sensible(tmp_path, row, message):
    for name, text in FILES.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    path = tmp_path / "table.yaml"
    path.write_text(path.read_text().replace("  BM25: {pipeline: bm25}", f"  BM25: {row}"), encoding="utf-8")
    with pytest.raises(InterlinguaError, match=message):
        read_table(str(path))


@pytest.mark.slow
def test_a_row_may_lack_the_suites_that_are_not_searched(tmp_path):
    table = read_table("default/table")
    searched = {"native": {"RR": {"fi": {"q1": 1.0, "q2": 0.5}, "th": {"q1": 0.5, "q2": 0.5}}}}
    results = {"BM25": [searched], "model": [{**searched, "pool": {"AP": {"fi": {"mean": 0.25}, "th": {"mean": 0.5}}}}]}
    text = present(table, "box", results)
    assert "## pool: AP" in text
    assert text.count("| BM25 ") == 1
    assert len(draw(table, "box", results, tmp_path / "stem")) == 2
