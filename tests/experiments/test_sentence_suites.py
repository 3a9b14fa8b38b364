"""Tables that measure sentences: rows that are of another row's model, calibrated ones, and every kind of suite."""

import json
import re

import numpy as np
import pytest

from interlingua.alignment import Calibration
from interlingua.data.collections import cross, load_collection
from interlingua.data.encyclopedia import parallel
from interlingua.data.readers import read_parallel
from interlingua.errors import BadInput, InterlinguaError
from interlingua.evaluation import evaluate_on
from interlingua.evaluation.bitext import bucc, bucc_f1, mined_pairs, planted
from interlingua.evaluation.languages import language_bias
from interlingua.evaluation.tatoeba import StoredVectors, tatoeba_pairs
from interlingua.experiments.present import draw_projections, present
from interlingua.experiments.run import Reproduction
from interlingua.experiments.spec import Suite, read_table
from interlingua.experiments.suites import calibrated, measure
from interlingua.models.dual import DualEncoder

FILES = {
    "start": """
tokenizer_sentences: 400
model: {backbone: {scratch: {vocab_size: 2000, layers: 2, hidden: 16, heads: 2, intermediate: 32, max_length: 32}},
        encoders: tied, pooling: cls}
data: {sentences: {path: "encyclopedia:train", batch: 8}}
objectives: {masked_language_modelling: {}}
training: {steps: 2, tensorboard: false}
""",
    "recipe": """
model: {backbone: {scratch: {}}, encoders: tied, pooling: cls}
data: {contexts: {path: "encyclopedia:train", batch: 4, one_language: true}}
objectives: {context_prediction: {bank: 16}}
optimizer: {lr: 0.01}
training: {steps: 3, tensorboard: false}
""",
    "suites": """
tatoeba: {origins: [kept], most: 20, tatoeba: {fi: "{data}/fi-en.tsv", fi-sw: ["{data}/fi-en.tsv", "{data}/sw-en.tsv"]}}
planted bitext: {planted: {fi: "{data}/fi-en.tsv"}}
BUCC: {bucc: {fi: "{data}/bucc"}}
all languages: {languages: 2, tatoeba_all: {AVG_all: "{data}/laser"}}
dump: {tatoeba_dump: {fi-sw: "{data}/dump"}}
figure: {projection: {fi: "{data}/fi-en.tsv"}}
""",
    "table": """
title: "Sentences"
scales:
  tiny:
    start: start.yaml
    recipe: recipe.yaml
    suites: suites.yaml
    read: {layer: 1, pooling: mean}
    calibrate_on: {kind: sentences, path: "encyclopedia:train", langs: [en, fi, sw], limit: 60}
rows:
  before: {of: start}
  CCP: {}
  + shift: {of: CCP, calibrate: {shift: true, scale: null, rotate: none}}
  + rotate:
    of: CCP
    calibrate: {rotate: adversarial, gate: false, adversarial: {n_epochs: 1, epoch_size: 320, hidden: 8}}
  theirs: {vectors: "{data}/vectors"}
""",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    for name, text in FILES.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    pairs = list(parallel(langs=["fi", "sw"]))
    for lang in ("fi", "sw"):
        rows = [(p.source, p.target)[:: 1 if p.source_lang == lang else -1] for p in pairs if p.lang == lang]
        (folder / f"{lang}-en.tsv").write_text(
            "".join(f"{own}\t{english}\t{'kept' if i % 2 else 'other'}\n" for i, (own, english) in enumerate(rows)),
            encoding="utf-8",
        )
        with open(folder / f"{lang}-en.tsv", "a", encoding="utf-8") as stream:  # a join of few pairs is refused
            stream.writelines(f"{lang} lause {i}\tsentence {i}\tkept\n" for i in range(120))
    bucc = folder / "bucc"
    bucc.mkdir()
    for split, part in (("sample", pairs[:6]), ("training", pairs[6:16])):
        for code, side in (("fi", "source"), ("en", "target")):
            (bucc / f"fi-en.{split}.{code}").write_text(
                "".join(f"{code}-{i}\t{getattr(p, side)}\n" for i, p in enumerate(part)), encoding="utf-8"
            )
        (bucc / f"fi-en.{split}.gold").write_text(
            "".join(f"fi-{i}\ten-{i}\n" for i in range(len(part))), encoding="utf-8"
        )
    (folder / "laser").mkdir()
    for code, lang in (("fin", "fi"), ("swh", "sw")):
        for end, side in ((code, "source"), ("eng", "target")):
            (folder / f"laser/tatoeba.{code}-eng.{end}").write_text(
                "".join(f"{getattr(p, side)}\n" for p in pairs if p.lang == lang), encoding="utf-8"
            )
    (folder / "dump").mkdir()
    (folder / "dump/sentences.csv").write_text(
        "".join(f"{2 * i}\tfin\tlause {i}\n{2 * i + 1}\tswh\tsentensi {i}\n" for i in range(110)), encoding="utf-8"
    )
    (folder / "dump/links.csv").write_text("".join(f"{2 * i}\t{2 * i + 1}\n" for i in range(110)), encoding="utf-8")
    (folder / "vectors").mkdir()
    ours = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
    for lang, vectors in (("fi", ours), ("en", np.concatenate([ours[:15], -ours[15:]]))):
        np.save(folder / f"vectors/fi-en.{lang}.npy", vectors)
    table = read_table(str(folder / "table.yaml"))
    work = Reproduction(table, "sentences", "tiny", str(folder), folder / "runs", seeds=1)
    return work, work.run()


@pytest.mark.slow
def test_every_suite_has_its_measure_and_columns(made):
    _, results = made
    for row, runs in results.items():
        values = runs[0]
        if row == "theirs":
            continue
        assert set(values) == {"tatoeba", "planted bitext", "BUCC", "all languages", "dump", "figure"}
        assert set(values["all languages"]["accuracy"]["AVG_all"]) == {"fin", "swh"}
        assert set(values["dump"]["accuracy"]) == {"fi-sw"}
        assert set(values["tatoeba"]["accuracy"]) == {"fi", "fi-sw"}
        assert set(values["planted bitext"]["F1"]) == {"fi"}
        assert set(values["BUCC"]) == {"F1", "F1, threshold of the sample"}
        assert set(values["figure"]) == {"distance of the languages", "accuracy"}
        assert all(v >= 0 for suite in values.values() for m in suite.values() for c in m.values() for v in c.values())


def test_the_numbers_are_those_of_the_protocols(made):
    """Computed again outside of the table, calibrated vectors and sources of pairs included."""
    work, results = made
    model = work.model("+ shift", 1)
    values = results["+ shift"][0]
    pairs = list(read_parallel(f"{work.data}/fi-en.tsv"))
    kept = [pair for pair in pairs if pair.origin == "kept"][:20]
    assert values["tatoeba"]["accuracy"]["fi"]["mean"] == tatoeba_pairs(model, kept).mean
    task = planted(pairs)
    assert values["planted bitext"]["F1"]["fi"]["mean"] == bucc_f1(mined_pairs(model, task)[0], task.gold).f1 / 100
    scores = bucc(model, f"{work.data}/bucc", "fi-en", "xtreme").scores
    assert values["BUCC"]["F1"]["fi"]["mean"] == scores["train_self"].f1 / 100
    assert values["BUCC"]["F1, threshold of the sample"]["fi"]["mean"] == scores["xtreme"].f1 / 100


def test_only_the_row_that_is_no_other_rows_is_trained(made):
    work, _ = made
    assert (work.folder("CCP", 1) / "model").exists()
    assert not (work.folder("before", 1) / "model").exists()
    assert not (work.folder("+ shift", 1) / "model").exists()
    assert json.loads((work.folder("+ shift", 1) / "values.json").read_text())["asked"]["of"] == "CCP"
    assert [line for line in work.plan() if "the model of" in line] == [
        "before: the model of 'start'",
        "+ shift: the model of 'CCP', calibrated",
        "+ rotate: the model of 'CCP', calibrated",
    ]
    assert work.plan()[-1] == "theirs: vectors of {data}/vectors"


def test_vectors_made_elsewhere_are_a_row_with_the_columns_that_they_have(made):
    """Fifteen of twenty vectors are those of their translations; there are none of Finnish with Swahili."""
    _, results = made
    assert results["theirs"][0] == {"tatoeba": {"accuracy": {"fi": {"mean": 0.75}}}, "dump": {"accuracy": {}}}
    text = present(made[0].table, "tiny", results)
    assert re.search(r"^\| theirs +\| +0\.750 \| +– \|", text, flags=re.MULTILINE)
    assert "- theirs: 0.7500 over 1 of 2 columns; gain " in text


def test_vectors_that_come_later_are_measured_by_the_same_command(made):
    work, _ = made
    file = work.folder("theirs", 1) / "values.json"
    before = file.read_text(encoding="utf-8")
    kept = json.loads(before)
    (name,) = [name for name, by_measure in kept["values"].items() if "fi" in by_measure.get("accuracy", {})][:1]
    expected = kept["values"][name]["accuracy"].pop("fi")  # as if there had been no file of it
    kept["measured"][name].remove("fi")
    file.write_text(json.dumps(kept), encoding="utf-8")
    assert work.run()["theirs"][0][name]["accuracy"]["fi"] == expected
    file.write_text(before, encoding="utf-8")


def test_what_is_wrong_with_vectors_made_elsewhere_is_named(made, tmp_path):
    pairs = list(read_parallel(f"{made[0].data}/fi-en.tsv"))[:3]
    stored = StoredVectors(tmp_path)
    assert stored.accuracy("fi", pairs) is None
    np.save(tmp_path / "fi-en.fi.npy", np.eye(3, dtype=np.float32))
    with pytest.raises(InterlinguaError, match=r"fi-en\.en\.npy: no such"):
        stored.accuracy("fi", pairs)
    np.save(tmp_path / "fi-en.en.npy", np.eye(4, dtype=np.float32))
    with pytest.raises(InterlinguaError, match=r"holds float32 \[4, 4\]; floats of 3 rows are needed"):
        stored.accuracy("fi", pairs)
    np.save(tmp_path / "fi-en.en.npy", np.array([{}] * 3), allow_pickle=True)
    with pytest.raises(InterlinguaError, match=r"is no array as numpy\.save writes it"):
        stored.accuracy("fi", pairs)


def test_an_average_over_all_languages_needs_all_of_them(made, tmp_path):
    work, _ = made
    suites = work.table.suites("tiny")
    suite = suites["all languages"].model_copy(update={"languages": 112})
    with pytest.raises(InterlinguaError, match="laser: 2 languages, 112 are needed"):
        measure(work.model("CCP", 1), {"all": suite}, [], work.data)


def test_a_join_of_few_pairs_is_refused(made, tmp_path):
    work, _ = made
    suite = work.table.suites("tiny")["tatoeba"].model_copy(update={"origins": ["other"]})
    with pytest.raises(InterlinguaError, match=r"fi-sw: \d+ pairs through English; 100 at least are needed"):
        measure(work.model("CCP", 1), {"tatoeba": suite.only(["fi-sw"])}, [], work.data)


def test_the_report_says_what_the_adversarial_step_did_in_each_language(made):
    work, results = made
    assert set(work.calibrations) == {"+ rotate"}
    text = present(work.table, "tiny", results, calibrations=work.calibrations)
    said = text.split("## What calibration did: + rotate, seed 1")[1]
    for lang in ("fi", "sw"):
        assert re.search(rf"^{lang} .*adversarial: criterion .* taken: epoch 1", said, flags=re.MULTILINE)
    again = Reproduction(work.table, "sentences", "tiny", work.data, work.out, seeds=1)
    assert again.run() == results
    assert again.calibrations == work.calibrations  # kept with the values


def test_calibration_reads_its_vectors_from_the_disk_and_leaves_none(made, tmp_path, monkeypatch):
    work, _ = made
    spec, source = work.table.rows["+ rotate"].calibrate, work.table.scale("tiny").calibrate_on
    fit, seen = Calibration.fit, []
    monkeypatch.setattr(
        Calibration, "fit", lambda vectors, **options: seen.append(dict(vectors)) or fit(vectors, **options)
    )
    model, said = calibrated(work.model("CCP", 1), spec, source, tmp_path / "row")
    assert {type(vectors) for vectors in seen[0].values()} == {np.memmap}
    assert said == work.calibrations["+ rotate"]
    assert list((tmp_path / "row").iterdir()) == []
    texts = ["A question?", "An answer."]
    assert np.allclose(
        model.encode_query(texts, lang="fi"), work.model("+ rotate", 1).encode_query(texts, lang="fi"), atol=1e-6
    )


def test_the_vector_is_that_of_the_layer_and_the_calibration_changes_it(made, monkeypatch):
    from interlingua.experiments import run as reproduce

    work, _ = made
    seen = []

    def measure(model, *_):
        seen.append(model)
        return {}

    monkeypatch.setattr(reproduce, "measure", measure)
    for row in ("CCP", "+ shift"):
        (work.folder(row, 1) / "values.json").unlink()
    work.run()
    plain, shifted = [model for model in seen if isinstance(model, DualEncoder)]
    assert len(plain.passage.backbone.model.encoder.layer) == 1
    assert plain.passage.pooling == "mean"
    assert plain.passage.language_maps is None
    assert shifted.passage.language_maps.languages == ["en", "fi", "sw"]
    whole = DualEncoder.load(work.folder("CCP", 1) / "model")
    assert not (plain.encode_document(["koira"]) == whole.encode_document(["koira"])).all()
    assert not (plain.encode_document(["koira"], lang="fi") == shifted.encode_document(["koira"], lang="fi")).all()


@pytest.mark.slow
def test_the_picture_has_a_panel_for_each_row(made):
    pytest.importorskip("matplotlib")
    work, _ = made
    (path,) = draw_projections(work, work.out / "figure")
    assert path.name == "figure-figure-fi.svg"
    assert path.read_text(encoding="utf-8").count("<!-- before -->") == 1


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("bad: {of: nowhere}", "no row that is trained"),
        ("bad: {of: before}", "no row that is trained"),
        ("bad: {of: CCP, set: [seed=3]}", "would change nothing"),
    ],
)
def test_a_row_of_nothing_is_an_error(made, tmp_path, row, message):
    for name, text in FILES.items():
        (tmp_path / f"{name}.yaml").write_text(text + (f"  {row}\n" if name == "table" else ""), encoding="utf-8")
    with pytest.raises(InterlinguaError, match=message):
        read_table(str(tmp_path / "table.yaml"))


def test_a_suite_is_of_one_kind(tmp_path):
    for name, text in FILES.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "suites.yaml").write_text("both: {bucc: {fi: x}, planted: {fi: y}}\n", encoding="utf-8")
    with pytest.raises(InterlinguaError, match="one of collections, tatoeba"):
        read_table(str(tmp_path / "table.yaml")).suites("tiny")


def test_a_suite_is_not_tuned_on_questions_that_are_not_translated():
    with pytest.raises(ValueError, match="none of dev's questions"):
        Suite(collections={"fi": "x"}, dev={"fi": "y"}, translations={"fi": "z"})


def test_a_pair_with_too_few_sentences_costs_its_column_and_no_other(tmp_path):
    """As vectors made elsewhere, so that no model is needed."""
    links = {"swh": 110, "deu": 50}
    sentences = [f"{i}\tfin\tlause {i}" for i in range(200)]
    joined = []
    for at, (lang, count) in enumerate(links.items(), 1):
        sentences += [f"{1000 * at + i}\t{lang}\t{lang} {i}" for i in range(count)]
        joined += [f"{i}\t{1000 * at + i}" for i in range(count)]
    (tmp_path / "sentences.csv").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    (tmp_path / "links.csv").write_text("\n".join(joined) + "\n", encoding="utf-8")
    for lang in ("fi", "sw"):
        np.save(tmp_path / f"fi-sw.{lang}.npy", np.eye(110, dtype=np.float32))
    both = {"dump": Suite(tatoeba_dump={"fi-sw": str(tmp_path), "fi-de": str(tmp_path)})}
    told: list[str] = []
    found = measure(StoredVectors(tmp_path), both, [], None, report=told.append)
    assert found == {"dump": {"accuracy": {"fi-sw": {"mean": 1.0}}}}
    assert len(told) == 1
    assert "too few sentences are linked for fi-de (50)" in told[0]
    absent = {"dump": Suite(tatoeba_dump={"fi-sw": str(tmp_path), "fi-de": str(tmp_path / "absent")})}
    assert measure(StoredVectors(tmp_path), absent, [], None, report=told.append) == found
    assert "absent" in told[1]
    with pytest.raises(BadInput, match=r"fi-de \(50\)"):
        measure(StoredVectors(tmp_path), {"dump": both["dump"].only(["fi-de"])}, [], None)


def test_a_matrix_measures_all_directions_of_one_encoding(tmp_path, tiny_static):
    texts = {"en": ["a cold river", "the high hill", "a red house"], "de": ["ein Fluss", "der Berg", "ein rotes Haus"]}
    for lang, found in texts.items():
        (tmp_path / lang).mkdir()
        for name, rows in (
            (
                "passages.jsonl",
                [json.dumps({"id": f"p{n}", "title": "", "text": text}) for n, text in enumerate(found)],
            ),
            ("queries.tsv", [f"q{n}\t{text}?" for n, text in enumerate(found)]),
            ("qrels.txt", [f"q{n} 0 p{n} 1" for n in range(len(found))]),
        ):
            (tmp_path / lang / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    encoder = tiny_static(seed=3)
    asked = []
    read = encoder.encode_document
    encoder.encode_document = lambda sentences, **options: asked.extend(sentences) or read(sentences, **options)
    where = {lang: f"{{data}}/{lang}" for lang in ("de", "en")}
    found = measure(encoder, {"xquad": Suite(matrix=where)}, ["RR@100"], str(tmp_path))["xquad"]
    assert sorted(asked) == sorted([*texts["en"], *texts["de"]])
    pooled = measure(encoder, {"pool": Suite(pool=where)}, ["RR@100"], str(tmp_path))["pool"]
    assert {label: found[label] for label in pooled} == pooled
    collections = {lang: load_collection(tmp_path / lang) for lang in texts}
    fair = language_bias(encoder, {lang: collections[lang] for lang in where}).peer
    assert found["PEER @20"] == {lang: {"mean": pytest.approx(one)} for lang, one in zip(where, fair, strict=True)}
    for label, cells in {
        "same language": {"de": ("de", "de"), "en": ("en", "en")},
        "to English": {"de": ("de", "en")},
        "from English": {"de": ("en", "de")},
    }.items():
        assert found[f"RR@100, {label}"] == {
            lang: evaluate_on(
                encoder, [collections[a] if a == b else cross(collections[a], collections[b])], ["RR@100"]
            )[0].scores.per_query["RR@100"]
            for lang, (a, b) in cells.items()
        }
