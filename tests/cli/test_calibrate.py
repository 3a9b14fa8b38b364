"""`interlingua calibrate` as a person types it."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from interlingua.alignment import Calibration
from interlingua.cli import main
from interlingua.data import encyclopedia
from interlingua.models.dual import DualEncoder
from interlingua.models.encoder import Encoder

LANGS = ("en", "fi", "sw")


@pytest.fixture
def made(tmp_path, tiny_static, sentences):
    """A static model, sentences in three languages, and pairs."""
    tiny_static(prompts={"query": "ask "}).save(tmp_path / "model")
    for lang in LANGS:
        texts = [one.text for one in encyclopedia.sentences("train", [lang])]
        (tmp_path / f"{lang}.txt").write_text("\n".join(texts), encoding="utf-8")
    return tmp_path


def ok(*argv):
    assert main([str(one) for one in argv]) == 0


def test_a_calibrated_model_is_written_and_used(made, sentences, capsys):
    ok(
        "calibrate",
        made / "model",
        "--on",
        f"fi={made / 'fi.txt'}",
        made / "sw.txt",
        made / "en.txt",
        "--out",
        made / "out",
        "--limit",
        60,
        "--rotate",
        "refine",
    )
    captured = capsys.readouterr()
    rows = {cells[0]: cells for cells in map(str.split, captured.out.splitlines()) if cells and cells[0] in LANGS}
    assert rows.keys() == set(LANGS)
    calibration = Calibration.load(made / "out")
    assert calibration.maps.languages == list(LANGS)
    for lang in ("fi", "sw"):
        steps = calibration.report[lang]
        assert rows[lang][1:10] == [
            "60",
            *(
                cell
                for step in ("raw", "shift", "scale", "rotate")
                for cell in (f"{steps.criterion[step]:.4f}", f"({steps.csls[step]:.3f})")
            ),
        ]
    plain, out = DualEncoder.load(made / "model"), DualEncoder.load(made / "out")
    vectors = calibration.transform(plain.encode_document(sentences), "fi")
    np.testing.assert_allclose(
        out.encode_document(sentences, lang="fi"), vectors / np.linalg.norm(vectors, axis=1, keepdims=True), atol=1e-5
    )
    assert "encode(texts, lang=…)" in captured.err
    # the fitted texts themselves are centred
    texts = (made / "fi.txt").read_text(encoding="utf-8").splitlines()
    ok("calibrate", made / "model", "--on", made / "fi.txt", made / "en.txt", "--out", made / "all", "--rotate", "none")
    mapped = Calibration.load(made / "all").transform(plain.encode_document(sorted(set(texts))), "fi")
    np.testing.assert_allclose(mapped.mean(axis=0), 0, atol=1e-4)
    np.testing.assert_allclose(mapped.var(axis=0), 1, atol=1e-3)


def test_one_language_alone_is_brought_to_nothing(made, capsys):
    ok("calibrate", made / "model", "--on", made / "en.txt", "--out", made / "out")
    assert "--on has text in 'en' alone: no other language is brought to it" in capsys.readouterr().err


def test_steps_role_and_pivot_are_chosen(made, capsys):
    ok(
        "calibrate",
        made / "model",
        "--on",
        *(made / f"{lang}.txt" for lang in LANGS),
        "--out",
        made / "out",
        "--no-shift",
        "--scale",
        "none",
        "--rotate",
        "none",
        "--pivot",
        "fin",
        "--role",
        "query",
        "--seed",
        3,
    )
    calibration = Calibration.load(made / "out")
    assert calibration.pivot == "fi"
    assert json.loads(calibration.maps.about["settings"]) == {
        "shift": False,
        "scale": "none",
        "rotate": "none",
        "seed": 3,
    }
    assert list(calibration.report["sw"].criterion) == ["raw"]
    ok(
        "calibrate",
        made / "model",
        "--on",
        made / "en.txt",
        made / "fi.txt",
        "--out",
        made / "asked",
        "--role",
        "query",
    )
    texts = sorted(set((made / "fi.txt").read_text(encoding="utf-8").splitlines()))
    mean = Encoder.load(made / "model").encode_query(texts).mean(axis=0)
    np.testing.assert_allclose(Calibration.load(made / "asked").of("fi").shift, mean, atol=1e-6)
    # calibrating again replaces: it is not fitted on what the first calibration gave
    ok("calibrate", made / "model", "--on", made / "en.txt", made / "fi.txt", "--out", made / "once")
    ok("calibrate", made / "once", "--on", made / "en.txt", made / "fi.txt", "--out", made / "once")
    first = Calibration.load(made / "once")
    ok("calibrate", made / "model", "--on", made / "en.txt", made / "fi.txt", "--out", made / "twice")
    np.testing.assert_array_equal(first.of("fi").shift, Calibration.load(made / "twice").of("fi").shift)


def test_pairs_rotate(made, capsys):
    rows = [f"{pair.source}\t{pair.target}\n" for pair in encyclopedia.parallel("train", ["fi"])]
    (made / "fi-en.tsv").write_text("".join(rows), encoding="utf-8")
    ok(
        "calibrate",
        made / "model",
        "--on",
        made / "fi-en.tsv",
        "--rotate",
        "supervised",
        "--pairs",
        made / "fi-en.tsv",
        "--out",
        made / "out",
        "--limit",
        90,
    )
    calibration = Calibration.load(made / "out")
    assert calibration.report["fi"].pairs == 90
    rotation = calibration.of("fi").rotation.double().numpy()
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(24), atol=1e-6)


@pytest.mark.slow
def test_vectors_may_be_computed_in_int8_and_the_weights_stay(made, tiny_encoder):
    tiny_encoder(pooling="mean").save(made / "tiny")
    for name, options in (("plain", []), ("int8", ["--precision", "int8"])):
        ok("calibrate", made / "tiny", "--on", made / "en.txt", made / "fi.txt", "--out", made / name, *options)
    weights = [sorted((made / name).rglob("model.safetensors")) for name in ("plain", "int8")]
    assert [file.read_bytes() for file in weights[0]] == [file.read_bytes() for file in weights[1]]
    plain, other = (Encoder.load(made / name).language_maps.maps["fi"].shift for name in ("plain", "int8"))
    assert np.allclose(plain, other, atol=0.02)
    assert not np.array_equal(plain, other)


def test_fold_writes_a_plain_model(made, sentences, capsys):
    from sentence_transformers import SentenceTransformer

    on = [made / "en.txt", made / "fi.txt"]
    ok("calibrate", made / "model", "--on", *on, "--out", made / "out", "--scale", "std")
    ok("calibrate", made / "model", "--on", *on, "--out", made / "fi", "--fold", "fi")
    ok("calibrate", made / "out", "--out", made / "fin", "--fold", "fin")
    expected = Encoder.load(made / "out").encode(sentences, lang="fi")
    for name in ("fi", "fin"):
        types = [entry["type"].rsplit(".", 1)[1] for entry in json.loads((made / name / "modules.json").read_text())]
        assert types == ["StaticEmbedding", "Normalize", "Dense", "Normalize"]
        theirs = SentenceTransformer(str(made / name), device="cpu")
        np.testing.assert_allclose(theirs.encode(sentences), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("{model} --out {out}", "say what to fit on"),
        ("{model} --on {fi} --out {out}", r"--on has no text in 'en' \(it has: fi\)"),
        ("{model} --on {fi} {en} --out {out} --pivot klingon", "not a language code"),
        ("{model} --on {fi} {en} --out {out} --rotate supervised", "--pairs FILE … belong together"),
        ("{model} --on {fi} {en} --out {out} --pairs {fi}", "--pairs FILE … belong together"),
        ("{model} --on {fi} {nowhere} --out {out}", "no such file"),
        ("{model} --on {fi} {en} --out {here}", "exists and is not an earlier save"),
        ("{model} --on {fi} {en} --out {out} --fold de", "--on has no text in 'de'"),
        ("{model} --on {fi} {en} --out {out} --fold klingon", "not a language code"),
        ("{model} --out {out} --fold de", "no calibration to fold in"),
        ("{model} --out {out} --fold de --rotate refine", "--rotate: a calibration is fitted on texts. Say on which"),
        ("{model} --out {out} --fold de --precision int8", "--precision: a calibration is fitted on texts"),
        ("{model} --out {out} --fold de --limit 100 --pivot fr", "--pivot, --limit: a calibration is fitted on texts"),
        ("{model} --out {out} --fold de --on-bad-row skip", "--on-bad-row: a calibration is fitted on texts"),
        ("{model} --on {fi} {en} --out {out} --epochs 3", "--epochs goes with --rotate adversarial only"),
        ("{two} --on {fi} {en} --out {out}", "holds two encoders"),
        ("{model} --on {fi} {en} --out {out} --remove 1 --rotate refine", "remove"),
        ("{model} --on {fi} {en} --out {out} --remove -1", "remove"),
        ("{nowhere} --on {fi} {en} --out {out}", "no such folder|not a model folder"),
        ("{model} --on {fi} {en} --out {out} --limit 0", "at least 1 is needed"),
        ("{model} --on {fi} {en} --out {out} --limit 20", "the pivot 'en' has 20 texts; 50 at least"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line_before_anything_is_encoded(
    made, tiny_static, capsys, monkeypatch, argv, message
):
    monkeypatch.setattr(Encoder, "encode", lambda *texts, **options: pytest.fail("encoded before the error was found"))
    if "{two}" in argv:
        DualEncoder.untied(tiny_static()).save(made / "two")
    names = {"model": "model", "out": "out", "fi": "fi.txt", "en": "en.txt", "nowhere": "nowhere/x/y/z", "two": "two"}
    paths = {key: made / name for key, name in names.items()} | {"here": made}
    assert main(["calibrate", *(part.format(**paths) for part in argv.split())]) == 2
    captured = capsys.readouterr()
    assert re.search(message, captured.err.splitlines()[-1]), captured.err
    assert not (made / "out").exists()


def test_the_card_of_the_model_is_that_of_the_calibrated_one(made):
    (made / "model/README.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    ok("calibrate", made / "model", "--on", *(made / f"{lang}.txt" for lang in LANGS), "--out", made / "carded")
    assert (made / "carded/README.md").read_text().startswith("---\nlicense: mit\n---\n# Mine\n\nCalibrated by")
    ok("calibrate", made / "carded", "--on", *(made / f"{lang}.txt" for lang in LANGS), "--out", made / "carded")
    assert (made / "carded/README.md").read_text().count("Calibrated by") == 2  # in place, too


def test_remove_needs_no_word_about_the_scale(made):
    on = [made / f"{lang}.txt" for lang in LANGS]
    for name, more in (("brief", []), ("full", ["--scale", "none"])):
        ok("calibrate", made / "model", "--on", *on, "--out", made / name, "--remove", 1, "--no-shift", *more)
    brief, full = (Calibration.load(made / name) for name in ("brief", "full"))
    vectors = DualEncoder.load(made / "model").encode_document(["Ziwa ni refu.", "Mnara ni mrefu."])
    np.testing.assert_array_equal(brief.transform(vectors, "sw"), full.transform(vectors, "sw"))
    assert not np.allclose(brief.transform(vectors, "sw"), vectors)
    contradicting = ["calibrate", made / "model", "--on", *on, "--out", made / "no", "--remove", 1, "--scale", "std"]
    assert main(list(map(str, contradicting))) == 2
