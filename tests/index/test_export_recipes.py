"""The recipes of docs/export.md, run where their library is installed, else against one that keeps what it was told."""

from __future__ import annotations

import ast
import json
import re
import sys
import types
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pytest

from interlingua.data.records import Passage
from interlingua.index.export import encoded, write_parquet
from interlingua.models.onnx import export_onnx

DOCUMENT = Path(__file__).parents[2] / "docs/export.md"
RECIPES = dict(re.findall(r"<!-- recipe: (\w+) -->\n```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.S))


@pytest.fixture
def question(tiny_static, sentences, tmp_path, monkeypatch):
    """The files that the recipes read, in the current folder; the vector of the third passage."""
    monkeypatch.chdir(tmp_path)
    rows = [Passage(f"p{i}", text, lang=("fi", "sw", "en")[i % 3]) for i, text in enumerate(sentences)]
    encoder = tiny_static()
    write_parquet("vectors.parquet", encoded(encoder, rows, 5))
    return encoder.encode_document(sentences[3])


def run(name, **names):
    held = dict(names)
    exec(compile(RECIPES[name], f"{DOCUMENT.name}: {name}", "exec"), held)
    return held


def test_each_is_short_python():
    assert set(RECIPES) == {"onnx", "qdrant", "pgvector", "vespa"}
    for code in RECIPES.values():
        assert len(code.splitlines()) <= 12
        ast.parse(code)


@pytest.mark.slow
def test_onnx(tiny_static, sentences, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    monkeypatch.chdir(tmp_path)
    encoder = tiny_static(prompts={"document": "a "})
    export_onnx(encoder, "encoder")
    assert np.allclose(run("onnx")["encode"](sentences), encoder.encode_document(sentences), atol=1e-4)


def test_qdrant(question):
    qdrant = pytest.importorskip("qdrant_client", reason="needs Qdrant's client: .venv/bin/pip install qdrant-client")
    real = qdrant.QdrantClient
    qdrant.QdrantClient = lambda url: real(":memory:")
    try:
        hits = run("qdrant", question=question)["hits"]
    finally:
        qdrant.QdrantClient = real
    assert hits[0].payload["id"] == "p3"
    assert hits[0].score == pytest.approx(1, abs=1e-5)
    assert {hit.payload["lang"] for hit in hits} == {"fi", "sw"}


def test_pgvector_sends_every_row_in_the_order_of_its_columns(question, monkeypatch):
    db = MagicMock()
    psycopg, pgvector = types.ModuleType("psycopg"), types.ModuleType("pgvector.psycopg")
    psycopg.connect = lambda *told, **options: db
    pgvector.register_vector = lambda connection: None
    monkeypatch.setitem(sys.modules, "psycopg", psycopg)
    monkeypatch.setitem(sys.modules, "pgvector", types.ModuleType("pgvector"))
    monkeypatch.setitem(sys.modules, "pgvector.psycopg", pgvector)
    run("pgvector", question=question)
    statements = [call.args[0] for call in db.execute.call_args_list]
    assert "v vector(24)" in statements[1]
    copy = db.cursor().copy.return_value.__enter__.return_value
    written = [call.args[0] for call in copy.write_row.call_args_list]
    assert [row[0] for row in written] == [f"p{i}" for i in range(13)]
    assert all(row[3].dtype == np.float32 and len(row[3]) == 24 for row in written)
    assert statements[-1].count("%s") == len(db.execute.call_args_list[-1].args[1]) == 3


def test_vespa_feeds_what_the_schema_names(question):
    query = run("vespa", question=question)["query"]
    schema = DOCUMENT.read_text(encoding="utf-8").partition("schema passage {")[2].partition("```")[0]
    assert schema.count("{") + 1 == schema.count("}")
    fields = re.findall(r"field (\w+) type", schema)
    rows = [json.loads(line) for line in Path("feed.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["put"] for row in rows] == [f"id:docs:passage::p{i}" for i in range(13)]
    assert all(list(row["fields"]) == fields for row in rows)
    assert len(json.loads(json.dumps(query))["input.query(q)"]) == 24
