from __future__ import annotations

import json
import os

import numpy as np
import pytest

from interlingua.data.records import Passage, Query
from interlingua.errors import Damaged, InterlinguaError
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
    arrays = ("counts", "lengths", "passages", "starts", "terms")
    assert sorted(files) == ["bm25.json", *(f"{name}.npy" for name in arrays)]
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


def test_another_version_of_an_analyzer_is_refused(saved, without_checksums):
    _, path = saved
    without_checksums(path)
    about = json.loads((path / "bm25.json").read_text("utf-8"))
    about["facts"]["analyzers"]["de"][1] = "0, Snowball 1.0"
    (path / "bm25.json").write_text(json.dumps(about), "utf-8")
    with pytest.raises(InterlinguaError, match=r"the analyzer de/mixed \(0, Snowball 1.0\), here it is de/mixed"):
        BM25.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k1": ""}, "is damaged"),
        ({"b": None}, "is damaged"),
        ({"analyzers": {"de": "x"}}, "is damaged"),
        ({"analyzers": {"de": ["x", "1"]}}, "unknown analyzer 'x'"),
        ({"ids": ["1", "2"]}, r"lengths\.npy is int32 \[5\].* \[2\] was expected"),
        ({"ids": ["1", "1"]}, "no list of different names"),
        ({"ids": {}}, "is damaged"),
        ({"ids": 5}, "is damaged"),
    ],
)
def test_facts_that_do_not_fit_are_noticed(saved, change, message, without_checksums):
    _, path = saved
    without_checksums(path)
    about = json.loads((path / "bm25.json").read_text("utf-8"))
    about["facts"] |= change
    (path / "bm25.json").write_text(json.dumps(about), "utf-8")
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
        ("terms", 0, 2**64 - 1),
    ],
)
def test_numbers_that_point_elsewhere_are_noticed(saved, array, place, value, without_checksums):
    """They would be read as addresses."""
    _, path = saved
    without_checksums(path)
    held = np.load(path / f"{array}.npy")
    held[place] = value
    np.save(path / f"{array}.npy", held)
    with pytest.raises(Damaged, match="do not belong together"):
        BM25.load(path)


def test_what_is_loaded_is_mapped(saved):
    """Postings of a large collection are not copied into memory."""
    _, path = saved
    whole = (path / "counts.npy").read_bytes()
    index = BM25.load(path)
    assert index.search(QUERIES, 5) == saved[0].search(QUERIES, 5)
    with open(f"/proc/{os.getpid()}/maps", encoding="utf-8") as maps:
        assert f"{path}/counts.npy" in maps.read()
    assert (path / "counts.npy").read_bytes() == whole
