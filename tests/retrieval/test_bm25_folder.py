from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.retrieval.bm25.bm25 import BM25

PASSAGES = [
    Passage("1", "the old lighthouses", "Towers", "en"),
    Passage("2", "die alten Türme", lang="de"),
    Passage("ü 3", "灯台守", lang="ja"),
    Passage("4", "", lang="en"),
    Passage("5", "no language 42"),
]
QUERIES = [Query("a", "lighthouse towers", "en"), Query("b", "Turm", "de"), Query("c", "灯台", "ja"), Query("d", "42")]


@pytest.fixture
def saved(tmp_path):
    index = BM25.build(PASSAGES, k1=1.1, b=0.7)
    index.save(tmp_path / "idx")
    return index, tmp_path / "idx"


def test_what_is_loaded_finds_the_same(saved):
    index, path = saved
    again = BM25.load(path)
    assert again.search(QUERIES, 5) == index.search(QUERIES, 5)
    assert [len(again.search(QUERIES, 5)[query.id]) for query in QUERIES] == [1, 1, 1, 1]
    assert (again.k1, again.b, len(again)) == (1.1, 0.7, 5)
    assert {lang: one.name for lang, one in again.analyzers.items()} == {
        "en": "en/language",
        "de": "de/mixed",
        "ja": "ja/ngram",
        "": "und/ngram",
    }
    ids = {query.id: [passage.id for passage in PASSAGES] for query in QUERIES}
    assert again.score(QUERIES, ids) == index.score(QUERIES, ids)


def test_the_same_index_is_the_same_bytes_and_none_is_a_pickle(saved, tmp_path):
    _, path = saved
    BM25.load(path).save(tmp_path / "again")
    BM25.build(PASSAGES, k1=1.1, b=0.7).save(tmp_path / "built")
    files = {file.name: file.read_bytes() for file in path.iterdir()}
    assert sorted(files) == ["bm25.json", "ids.json", "postings.safetensors", "terms.json"]
    for other in ("again", "built"):
        assert {file.name: file.read_bytes() for file in (tmp_path / other).iterdir()} == files


def test_an_earlier_save_is_replaced_and_nothing_else(saved, tmp_path):
    index, path = saved
    index.weighted(0.9, 0.4).save(path)
    assert BM25.load(path).k1 == 0.9
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("…")
    with pytest.raises(InterlinguaError, match="not an earlier save"):
        index.save(tmp_path / "letters")


def test_another_version_of_an_analyzer_is_refused(saved):
    _, path = saved
    about = json.loads((path / "bm25.json").read_text("utf-8"))
    about["analyzers"]["de"][1] = "0, Snowball 1.0"
    (path / "bm25.json").write_text(json.dumps(about), "utf-8")
    with pytest.raises(InterlinguaError, match=r"the analyzer de/mixed \(0, Snowball 1.0\), here it is de/mixed"):
        BM25.load(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("bm25.json", "{}", "format None"),
        ("bm25.json", '{"format": 9}', "format 9"),
        ("bm25.json", "[", "is damaged"),
        ("bm25.json", '{"format": 1, "k1": 1.0, "b": 0.5}', "analyzers, k1 or b"),
        ("bm25.json", '{"format": 1, "k1": "", "b": 0.5, "analyzers": {}}', "analyzers, k1 or b"),
        ("bm25.json", '{"format": 1, "k1": 1.0, "b": 0.5, "analyzers": {"de": "xy"}}', "analyzer of 'de' has no name"),
        ("bm25.json", '{"format": 1, "k1": 1.0, "b": 0.5, "analyzers": {"de": ["x", "1"]}}', "unknown analyzer 'x'"),
        ("ids.json", '["1", "2"]', "do not belong together"),
        ("ids.json", '["1", "1"]', "different names"),
        ("ids.json", "{}", "no list"),
        ("terms.json", "[1]", "different names"),
        ("terms.json", '["a"]', "belong together"),
        ("postings.safetensors", None, "is damaged"),
        ("postings.safetensors", "", "is damaged"),
        ("ids.json", None, "is damaged"),
        ("bm25.json", None, "is not a BM25 index"),
    ],
)
def test_a_damaged_folder_is_noticed(saved, name, content, message):
    _, path = saved
    (path / name).unlink()
    if content is not None:
        (path / name).write_text(content, "utf-8")
    with pytest.raises(InterlinguaError, match=message):
        BM25.load(path)


@pytest.mark.parametrize(
    ("array", "place", "value"),
    [
        ("passages", 0, 99),
        ("passages", 0, -1),
        ("counts", 0, 0),
        ("starts", 0, 1),
        ("starts", 1, 99),
        ("starts", -1, 3),
    ],
)
def test_numbers_that_point_elsewhere_are_noticed(saved, array, place, value):
    """They would be read as addresses."""
    _, path = saved
    held = load_file(path / "postings.safetensors")
    held[array][place] = value
    save_file(held, path / "postings.safetensors")
    with pytest.raises(InterlinguaError, match="do not belong together"):
        BM25.load(path)


def test_arrays_of_another_type_are_noticed(saved):
    _, path = saved
    held = load_file(path / "postings.safetensors")
    save_file(held | {"lengths": held["lengths"].astype(np.int64)}, path / "postings.safetensors")
    with pytest.raises(InterlinguaError, match="do not belong together"):
        BM25.load(path)
    save_file({name: one for name, one in held.items() if name != "counts"}, path / "postings.safetensors")
    with pytest.raises(InterlinguaError, match="do not belong together"):
        BM25.load(path)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InterlinguaError, match="no such BM25 index"):
        BM25.load(tmp_path / "nowhere")
