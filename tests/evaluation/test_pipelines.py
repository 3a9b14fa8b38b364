from __future__ import annotations

from collections import Counter

import pytest

from interlingua.data.collections import cross, load_collection
from interlingua.data.records import Collection, Query
from interlingua.errors import InterlinguaError, NotFound
from interlingua.evaluation.measures import evaluate
from interlingua.evaluation.protocol import evaluate_on, evaluate_pipelines
from interlingua.models.dual import DualEncoder
from interlingua.retrieval.pipeline.grammar import parse_pipeline
from interlingua.retrieval.pipeline.run import run_pipeline
from interlingua.retrieval.run import Run


class Counting:
    """A model that counts the passages it is given."""

    def __init__(self, encoder):
        self.encoder, self.similarity, self.seen = encoder, encoder.similarity, Counter()

    def encode_query(self, texts, **options):
        return self.encoder.encode_query(texts, **options)

    def encode_document(self, texts, **options):
        self.seen.update(texts)
        return self.encoder.encode_document(texts, **options)


@pytest.fixture(scope="module")
def model(tiny_static):
    return DualEncoder(tiny_static())


@pytest.fixture(scope="module")
def other(tiny_static):
    return DualEncoder(tiny_static(seed=1))


def pipelines(*texts):
    return {text: parse_pipeline(text) for text in texts}


@pytest.mark.slow
def test_rows_are_pipelines_and_a_model_alone_is_what_evaluate_on_measures(model, other):
    english = load_collection("encyclopedia:en")
    collections = [english, load_collection("encyclopedia:fi"), cross(load_collection("encyclopedia:sw"), english)]
    models = {"m": model, "o": other}
    found = evaluate_pipelines(
        pipelines("m", "m % 20 >> o", "rrf(m, o)"), collections, ["RR@10", "nDCG@10"], 50, load=models.__getitem__
    )
    assert found["m"] == evaluate_on(model, collections, ["RR@10", "nDCG@10"], 50)
    for text, results in found.items():
        for collection, result in zip(collections, results, strict=True):
            run = run_pipeline(text, collection, 50, load=models.__getitem__)
            assert (result.collection, result.run) == (collection.name, run)
            assert result.scores == evaluate(run, collection.qrels, ["RR@10", "nDCG@10"])


def test_collections_with_the_same_passages_are_encoded_once(model):
    english = load_collection("encyclopedia:en")
    collections = [english, *(cross(load_collection(f"encyclopedia:{lang}"), english) for lang in ("fi", "sw"))]
    counting = Counting(model)
    loads = []
    evaluate_pipelines(
        pipelines("m", "m % 3 >> m", "m + m"), collections, ["RR@10"], load=lambda name: loads.append(name) or counting
    )
    assert loads == ["m"]
    assert set(counting.seen.values()) == {1}
    assert len(counting.seen) == len(english.passages)


def test_what_is_missing_is_said_before_anything_is_searched(model, tmp_path):
    collection = load_collection("encyclopedia:en")
    counting = Counting(model)

    def load(name):
        if name != "m":
            raise NotFound(f"{name}: is not a model folder")
        return counting

    (tmp_path / "x.run").write_text("x Q0 y 1 1.0 t\n", encoding="utf-8")
    (tmp_path / "t.tsv").write_text("x\ttext\n", encoding="utf-8")
    for text, said in (
        ("m >> nowhere", "nowhere: is not a model"),
        (f"m + run({tmp_path}/nowhere)", "nowhere: no such file"),
        (f"m + run({tmp_path}/x.run)", "has results for no query of encyclopedia_en"),
        (f"m >> m(queries={tmp_path}/t.tsv)", "no translation of 56 of 56 queries"),
    ):
        with pytest.raises(InterlinguaError, match=said):
            evaluate_pipelines(pipelines("m", text), [collection], load=load)
    with pytest.raises(InterlinguaError, match="looks deeper than depth=10"):
        evaluate_pipelines(pipelines("m"), [collection], ["RR@100"], 10, load=load)
    with pytest.raises(InterlinguaError, match="two collections are named"):
        evaluate_pipelines(pipelines("m"), [collection, collection], load=load)
    assert not counting.seen


def test_unjudged_documents_and_empty_lists_count_as_trec_eval_counts_them(tmp_path):
    collection = Collection(
        "c",
        load_collection("encyclopedia:en").passages[:3],
        [Query("a", "?", "en"), Query("b", "?", "en"), Query("c", "?", "en")],
        {"a": {"1": 1}, "b": {"2": 1}, "c": {"3": 1}},
    )
    (tmp_path / "x.run").write_text("a Q0 unjudged 1 2.0 t\na Q0 1 2 1.0 t\nb Q0 2 1 1.0 t\n", encoding="utf-8")
    text = f"run({tmp_path}/x.run)"
    (result,) = evaluate_pipelines(pipelines(text), [collection], ["RR@10"])[text]
    assert result.scores.per_query["RR@10"] == {"a": 0.5, "b": 1.0, "c": 0.0}
    assert result.run == Run.from_scores({"a": {"unjudged": 2.0, "1": 1.0}, "b": {"2": 1.0}, "c": {}})
