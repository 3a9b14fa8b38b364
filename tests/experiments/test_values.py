"""The values that are kept of a row: what is left to measure, of pools too, and what they were computed in."""

import pytest

from interlingua.errors import BadInput, Damaged, NotFound
from interlingua.experiments import suites
from interlingua.experiments.spec import Ranking, Reading, Suite
from interlingua.experiments.suites import measure
from interlingua.experiments.values import Kept, of_formats


def pool(*langs):
    return Suite(pool={lang: f"encyclopedia:{lang}" for lang in langs})


def values(*langs, ap):
    return {"pool": {"AP": {lang: {"mean": ap} for lang in langs}}}


def test_the_pool_of_other_languages_is_measured_anew():
    kept = Kept()
    kept.add(values("en", "fi", ap=0.5), {"pool": pool("en", "fi")})
    assert kept.left("pool", pool("fi", "en")) is None
    whole = pool("en", "fi", "sw")
    assert kept.left("pool", whole) == whole
    kept.add(values("en", "fi", "sw", ap=0.4), {"pool": whole})
    assert kept.left("pool", pool("en", "fi")) is not None
    kept.add(values("en", "fi", ap=0.5), {"pool": pool("en", "fi")})
    assert kept.values == values("en", "fi", ap=0.5)


@pytest.mark.parametrize("content", ['{"asked": {}, "val', "[]", "{}", '{"asked": 1, "values": {}}'])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path, content):
    file = tmp_path / "values.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(Damaged, match=r"values\.json: is damaged\. Delete it"):
        Kept.read(file, None, {}, {})


def test_collections_are_measured_column_by_column():
    suite = Suite(collections={"fi": "encyclopedia:fi", "sw": "encyclopedia:sw"})
    kept = Kept()
    kept.add({"mono": {"RR": {"fi": {"q": 1.0}}}}, {"mono": suite})
    assert kept.left("mono", suite) == suite.only(["sw"])
    kept.add({}, {"mono": suite.only(["sw"])})  # it could not be measured: it is tried again
    assert kept.left("mono", suite) == suite.only(["sw"])


def test_a_collection_that_cannot_be_read_costs_its_column_alone(tmp_path, tiny_static):
    (tmp_path / "bad.tsv").write_text("another\tid\n", encoding="utf-8")
    there = {"fi": "encyclopedia:fi", "sw": f"{tmp_path}/missing"}
    lacking = []
    encoder = tiny_static(seed=3)
    found = measure(encoder, {"mono": Suite(collections=there)}, ["RR"], None, lacking=lacking.append)
    assert list(found["mono"]["RR"]) == ["fi"]
    translated = Suite(collections=there | {"sw": "encyclopedia:sw"}, translations={"sw": f"{tmp_path}/bad.tsv"})
    ranked = measure(None, {"mono": translated}, ["RR"], None, Ranking("bm25"), lacking=lacking.append)
    assert list(ranked["mono"]["RR"]) == ["fi"]
    assert [problem.partition(":")[0] for problem in lacking] == ["mono, sw", "mono, sw"]
    with pytest.raises(NotFound, match="mono, sw: "):
        measure(encoder, {"mono": Suite(collections={"sw": there["sw"]})}, ["RR"], None)


def test_a_collection_that_cannot_be_encoded_costs_its_column_alone(tmp_path, tiny_static):
    folder = tmp_path / "empty_sw"
    folder.mkdir()
    (folder / "passages.jsonl").write_text('{"id": "p", "text": ""}\n', encoding="utf-8")
    (folder / "queries.tsv").write_text("q\tquestion\n", encoding="utf-8")
    (folder / "qrels.txt").write_text("q 0 p 1\n", encoding="utf-8")
    lacking = []
    suite = Suite(collections={"fi": "encyclopedia:fi", "sw": str(folder)})
    found = measure(tiny_static(seed=3), {"mono": suite}, ["RR"], None, lacking=lacking.append)
    assert list(found["mono"]["RR"]) == ["fi"]
    (problem,) = lacking
    assert problem.startswith("mono, ")
    assert "zero" in problem


def test_the_error_of_a_pool_is_its_own(monkeypatch, tiny_static):
    def nothing(*_):
        raise BadInput("the passages of 'fi' are not written in 'fi'")

    monkeypatch.setitem(suites.SUITES, "pool", nothing)
    with pytest.raises(BadInput, match="not written in 'fi'"):
        measure(tiny_static(seed=3), {"pool": pool("en", "fi")}, ["RR"], None)


def test_rows_of_several_number_formats_are_named():
    assert of_formats({"a": ["int8"], "b": ["int8"], "older": []}) is None
    said = of_formats({"a": ["int8"], "b": ["int8", "that of a GPU"]})
    assert said.endswith("(int8: a, b; that of a GPU: b)")


@pytest.mark.parametrize(("device", "precision"), [("cpu", "int8"), ("cuda", None)])
def test_a_gpu_measures_in_its_own_format(monkeypatch, device, precision):
    monkeypatch.setattr(suites, "load_any", lambda folder, **options: options)
    assert suites.read_model("m", Reading(precision="int8"), device) == {"device": device, "precision": precision}
