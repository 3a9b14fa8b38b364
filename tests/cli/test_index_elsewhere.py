"""`interlingua index` into Milvus Lite and by way of parts that are encoded elsewhere."""

from __future__ import annotations

import json

import pytest

from interlingua.cli import main
from interlingua.index import Index
from interlingua.index import ray as ray_encoding
from interlingua.index.index import open_index
from interlingua.index.ray import PartEncoder
from interlingua.models.dual import DualEncoder


@pytest.fixture
def place(tiny_static, sentences, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_static().save("model")
    with open("docs.jsonl", "w", encoding="utf-8") as stream:
        for i, text in enumerate(sentences):
            stream.write(json.dumps({"id": f"p{i}", "text": text, "lang": ("fi", "sw")[i % 2]}) + "\n")
    return tmp_path


class Here:
    """In the place of Ray: one worker in this process."""

    def __init__(self, address):
        assert address == "somewhere:6379"

    def encode(self, model, folder, todo, workers, options):
        PartEncoder(model, str(folder), options)({"part": todo})


def found(place, sentences):
    index = open_index(place, DualEncoder.load("model"))
    hits = [[(hit.passage.id, round(hit.score, 5)) for hit in index.search(text, 1, lang="fi")] for text in sentences]
    index.close()
    return hits


@pytest.mark.slow
def test_milvus_is_a_place_like_any_other(place, sentences, capsys):
    pytest.importorskip("milvus_lite")
    assert main(["index", "model", "docs.jsonl", "--out", "idx"]) == 0
    for store in ("milvus:lite.db/docs", "milvus:lite.db/more"):
        assert main(["index", "model", "docs.jsonl", "--store", store]) == 0
        assert found(store, sentences) == found("idx", sentences)
    capsys.readouterr()
    assert main(["info", "milvus:lite.db/docs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["languages"] == {"fi": 7, "sw": 6}
    assert main(["delete", "milvus:lite.db/docs", "p0"]) == 0
    for options, message in (
        (["compact", "milvus:lite.db/docs", "--exact"], "has one kind of dense search"),
        (["tokens", "milvus:lite.db/docs", "model"], "keeps no token vectors"),
        (["delete", "milvus:lite.db/docs", "p1", "--durability", "process"], "Milvus server decides by itself"),
    ):
        assert main(options) == 2
        assert message in capsys.readouterr().err
    assert main(["search", "milvus:lite.db/docs", "storm", "-k", "20", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 12
    assert main(["encode", "milvus:lite.db/docs", "--out", "v.parquet"]) == 0
    assert "12 passages with their vectors" in capsys.readouterr().err


@pytest.mark.slow
def test_parts_that_others_encoded_become_the_same_index(place, sentences, monkeypatch, capsys):
    monkeypatch.setattr(ray_encoding, "connected", Here)
    assert main(["index", "model", "docs.jsonl", "--out", "plain"]) == 0
    assert main(["index", "model", "docs.jsonl", "--out", "idx", "--ray", "somewhere:6379"]) == 0
    assert found("idx", sentences) == found("plain", sentences)
    assert not (place / "idx.parts").exists()
    assert Index.open("idx").metadata.model == str(place / "model")
    assert main(["index", "model", "docs.jsonl", "--out", "idx", "--ray", "somewhere:6379"]) == 2
    assert "already exists" in capsys.readouterr().err
    assert main(["encode", "model", "docs.jsonl", "--out", "parts", "--ray", "somewhere:6379"]) == 0
    assert len(list((place / "parts").iterdir())) == 1
