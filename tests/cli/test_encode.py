from __future__ import annotations

import json

import numpy as np
import pytest

from interlingua.cli import main
from interlingua.data.records import Passage
from interlingua.index import Index
from interlingua.index.export import read_parquet
from interlingua.models.dual import DualEncoder
from interlingua.retrieval.retriever import embed_passages


@pytest.fixture(scope="module")
def model(tiny_static, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny_static().save(folder)
    return folder


@pytest.fixture
def rows(sentences, tmp_path):
    """Passages as a file of them holds them."""
    made = [
        Passage(f"p{i}", text, title="T" * (i % 2), lang="fi", metadata={"source": "docs.jsonl"})
        for i, text in enumerate(sentences)
    ]
    with open(tmp_path / "docs.jsonl", "w", encoding="utf-8") as stream:
        for one in made:
            stream.write(json.dumps({"id": one.id, "text": one.text, "title": one.title, "lang": one.lang}) + "\n")
    return made


def test_passages_go_to_parquet_and_to_npy(model, rows, tmp_path, capsys):
    expected = embed_passages(DualEncoder.load(model), rows)
    assert main(["encode", str(model), f"{tmp_path}/docs.jsonl", "--out", f"{tmp_path}/v.parquet"]) == 0
    [(passages, vectors)] = read_parquet(tmp_path / "v.parquet")
    assert passages == rows
    assert np.allclose(vectors, expected, atol=1e-6)
    assert main(["encode", str(model), f"{tmp_path}/docs.jsonl", "--out", f"{tmp_path}/npy"]) == 0
    assert np.allclose(np.load(tmp_path / "npy/vectors.npy"), expected, atol=1e-6)
    ids = [json.loads(line)["id"] for line in (tmp_path / "npy/ids.jsonl").read_text().splitlines()]
    assert ids == [one.id for one in rows]
    assert "13 passages with their vectors" in capsys.readouterr().err


def test_passages_are_read_with_the_options_of_index(model, tmp_path, capsys):
    (tmp_path / "faq.csv").write_text("id,field9\n7,Refunds take five days.\n", encoding="utf-8")
    (tmp_path / "bad.csv").write_text("id,field9\n8,It rains.\n", encoding="utf-8")
    files = [f"{tmp_path}/faq.csv", f"{tmp_path}/bad.csv"]
    command = ["encode", str(model), *files, "--columns", "faq.csv:text=field9", "--out", f"{tmp_path}/v.parquet"]
    assert main(command) == 0
    assert [passage.text for passages, _ in read_parquet(tmp_path / "v.parquet") for passage in passages] == [
        "Refunds take five days."
    ]
    assert "bad.csv" in capsys.readouterr().err  # counted and left out
    assert main([*command, "--on-bad-row", "error"]) == 2
    assert "no column of text" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--overlap", "0"], ["--columns", "text=field9"], ["--on-bad-row", "skip"]])
def test_options_of_passages_are_refused_where_none_are_read(model, rows, tmp_path, capsys, options):
    Index.build(DualEncoder.load(model), rows, tmp_path / "idx")
    for command in (
        [str(model), f"{tmp_path}/docs.jsonl", "--out", f"{tmp_path}/v.npy"],
        [f"{tmp_path}/idx", "--out", f"{tmp_path}/v.parquet"],
        [str(model), "--onnx", f"{tmp_path}/onnx"],
    ):
        assert main(["encode", *command, *options]) == 2
        assert f"{options[0]}: " in capsys.readouterr().err
    assert not (tmp_path / "v.npy").exists()


def test_onnx_has_no_precision(model, tmp_path, capsys):
    assert main(["encode", str(model), "--onnx", f"{tmp_path}/onnx", "--precision", "int8"]) == 2
    assert "written in float32. Leave out --precision" in capsys.readouterr().err


def test_an_index_gives_the_vectors_it_holds_and_needs_no_model(model, rows, tmp_path):
    Index.build(DualEncoder.load(model), rows, tmp_path / "idx", model_path="gone")
    assert main(["encode", f"{tmp_path}/idx", "--out", f"{tmp_path}/v.parquet"]) == 0
    [(passages, vectors)] = read_parquet(tmp_path / "v.parquet")
    assert {one.id: one for one in passages} == {one.id: one for one in rows}
    by_id = dict(zip((one.id for one in passages), vectors, strict=True))
    for one, vector in zip(rows, embed_passages(DualEncoder.load(model), rows), strict=True):
        assert np.allclose(by_id[one.id], vector, atol=1e-6)


def test_lines_are_encoded_in_their_language(model, tmp_path, monkeypatch, sentences):
    asked = []
    encode = DualEncoder.encode_document
    monkeypatch.setattr(
        DualEncoder,
        "encode_document",
        lambda self, texts, **o: asked.append(o.pop("lang", None)) or encode(self, texts, **o),
    )
    (tmp_path / "fi.txt").write_text("\n".join(sentences), encoding="utf-8")
    command = ["encode", str(model), f"{tmp_path}/fi.txt", "--out", f"{tmp_path}/v.npy"]
    assert main([*command, "--lang", "FI"]) == 0
    assert main(command) == 0
    assert asked == ["fi", None]
    assert main([*command, "--lang", "no language"]) == 2


@pytest.mark.slow
def test_the_encoder_goes_to_onnx(model, tmp_path):
    pytest.importorskip("onnxscript")
    assert main(["encode", str(model), "--onnx", f"{tmp_path}/onnx", "--role", "query"]) == 0
    assert json.loads((tmp_path / "onnx/onnx.json").read_text())["role"] == "query"
    assert (tmp_path / "onnx/model.onnx").stat().st_size > 1000


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("encode MODEL", "one of the arguments --out --onnx is required"),
        ("encode MODEL a b --out x.npy", "lines of one file"),
        ("encode MODEL --out x.parquet", "is not an index, so there must be files"),
        ("encode MODEL rows.jsonl --out x.npy", "rows.jsonl: holds rows of jsonl, and a .npy takes lines of text"),
        ("encode MODEL encyclopedia:fi --out x.npy", "encyclopedia:fi: is a collection, and a .npy takes lines"),
        ("encode lines.txt --out x.parquet", "lines.txt: is no model. Give the model first: interlingua encode"),
        ("encode lines.txt --out x.npy", "lines.txt: is no model. Give the model first: interlingua encode default"),
        ("encode mine --out x.parquet", "mine: is no model. Give the model first: interlingua encode default mine"),
        ("encode MODEL docs.jsonl --out x.parquet --role query", "--role query: passages are encoded as passages"),
        ("encode MODEL docs.jsonl --onnx x", "reads no texts"),
        ("encode MODEL docs.jsonl --out x.parquet --ray", "--ray: encodes files of passages into a folder"),
        ("encode MODEL --onnx x --lang fi", "is not calibrated"),
        ("encode IDX --out x.npy", "is an index, and a .npy takes lines of text"),
        ("encode IDX docs.jsonl --out x.parquet", "is an index, whose own vectors are written"),
        ("encode IDX --out x.parquet --precision int8", "Leave out --precision and --lang"),
        ("encode MODEL docs.jsonl --out mine", "mine: exists and is not an earlier save"),
    ],
)
def test_what_does_not_go_together_is_told(model, rows, tmp_path, monkeypatch, capsys, line, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/photo").touch()
    (tmp_path / "lines.txt").write_text("A line.", encoding="utf-8")
    (tmp_path / "rows.jsonl").write_text('{"text": "A line."}', encoding="utf-8")
    (tmp_path / "idx").mkdir()
    (tmp_path / "idx/index.json").touch()
    words = line.replace("MODEL", str(model)).replace("IDX", "idx").split()
    if "required" in told:
        with pytest.raises(SystemExit):
            main(words)
    else:
        assert main(words) == 2
    assert told in " ".join(capsys.readouterr().err.split())
