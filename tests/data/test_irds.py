"""Collections of ir_datasets: a stand-in of the same interface, and its own classes over files made here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from interlingua.data import irds, load_collection
from interlingua.data.layouts import StoredPassages
from interlingua.data.records import Collection, Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.retrieval.pipeline.run import RetrieverPool
from interlingua.retrieval.run import Run


class CCDoc(NamedTuple):  # HC4 and NeuCLIR
    doc_id: str
    title: str
    text: str
    url: str
    time: str
    cc_file: str


class CCQuery(NamedTuple):
    query_id: str
    title: str
    description: str
    ht_title: str
    ht_description: str
    mt_title: str
    mt_description: str
    narrative_by_relevance: dict[str, str]
    translation_lang: str

    def default_text(self) -> str:
        return self.title


class MultiQuery(NamedTuple):  # NeuCLIR, several languages of documents
    query_id: str
    title: str
    fa_mt_title: str
    zh_mt_title: str

    def default_text(self) -> str:
        return self.title


class TrecParsedDoc(NamedTuple):  # newswire as NTCIR and CLEF have it
    doc_id: str
    title: str
    body: str
    marked_up_doc: bytes

    def default_text(self) -> str:
        return f"{self.title} {self.body}"


class TrecQuery(NamedTuple):
    query_id: str
    title: str
    description: str
    narrative: str

    def default_text(self) -> str:
        return self.title


class Generic(NamedTuple):  # CLIRMatrix and neuMARCO: documents and queries
    doc_id: str
    text: str

    @property
    def query_id(self) -> str:
        return self.doc_id

    def default_text(self) -> str:
        return self.text


class Judgement(NamedTuple):
    query_id: str
    doc_id: str
    relevance: int
    iteration: str = "0"


class Store:
    """A document store that counts what is read."""

    def __init__(self, docs: list[Any]) -> None:
        self.docs, self.read = docs, 0

    def count(self) -> int:
        return len(self.docs)

    def get_many_iter(self, ids: list[str]) -> Iterator[Any]:
        for doc in self.docs:  # in the store's order, as ir_datasets gives them
            if doc.doc_id in ids:
                self.read += 1
                yield doc


class Data:
    """What a data set of ir_datasets offers."""

    def __init__(
        self,
        docs: list[Any],
        queries: list[Any],
        qrels: list[Judgement],
        docs_lang: str | None,
        queries_lang: str | None,
    ) -> None:
        self.docs, self.queries, self.qrels = docs, queries, qrels
        self.langs, self.store, self.walks = (docs_lang, queries_lang), Store(docs), 0

    def has_docs(self) -> bool:
        return True

    has_queries = has_qrels = has_docs

    def docs_iter(self) -> Iterator[Any]:
        self.walks += 1
        return iter(self.docs)

    def queries_iter(self) -> Iterator[Any]:
        return iter(self.queries)

    def qrels_iter(self) -> Iterator[Judgement]:
        return iter(self.qrels)

    def docs_lang(self) -> str | None:
        return self.langs[0]

    def queries_lang(self) -> str | None:
        return self.langs[1]

    def docs_count(self) -> int | None:
        return None

    def docs_store(self) -> Store:
        return self.store

    def docs_handler(self) -> Store:
        return self.store


HC4_TOPIC = CCQuery("12", "Glacier loss ", "How fast?", "冰川消失", "多快？", "冰川损失", "多块？", {"3": "x"}, "zh")
DATA = {
    "hc4/zh/test": Data(
        [
            CCDoc("a-1", "冰川", "冰川在融化。", "http://x", "2019", "f"),
            CCDoc("a-2", "", "别的。", "http://y", "2020", "f"),
        ],
        [HC4_TOPIC],
        [Judgement("12", "a-1", 3), Judgement("12", "a-2", 0)],
        "zh",
        None,
    ),
    "neuclir/1/zh+fa/x": Data(
        [CCDoc("a", "t", "x", "u", "t", "f")],
        [MultiQuery("7", "Ice", "یخ", "冰")],
        [Judgement("7", "a", 1)],
        "zh",
        None,
    ),
    "ntcir/zh": Data(
        [TrecParsedDoc("N1", "題", "本文", b"<DOC>")],
        [TrecQuery("1", "t", "d", "n")],
        [Judgement("1", "N1", 1)],
        "zh",
        "en",
    ),
    "clirmatrix/sw/bi139-base/en/test1": Data(
        [Generic("99", "Ziwa ni refu.")], [Generic("5", "lake")], [Judgement("5", "99", 6)], "sw", "en"
    ),
    "neumarco/fa/dev": Data(
        [Generic("0", "متن"), Generic("1", "دیگر")], [Generic("3", "a text")], [Judgement("3", "0", 1)], "fa", "en"
    ),
}


@pytest.fixture(autouse=True)
def package(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = ModuleType("ir_datasets")
    stand_in.load = DATA.__getitem__  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ir_datasets", stand_in)


def test_hc4_asks_in_english_and_holds_another_language() -> None:
    loaded = load_collection("ir_datasets:hc4/zh/test")
    assert (loaded.name, loaded.queries) == ("hc4_zh_test", [Query("12", "Glacier loss", "en")])
    assert list(loaded.passages) == [Passage("a-1", "冰川在融化。", "冰川", "zh"), Passage("a-2", "别的。", "", "zh")]
    assert loaded.qrels == {"12": {"a-1": 3, "a-2": 0}}


@pytest.mark.parametrize(
    ("field", "text", "lang"),
    [
        ("title", "Glacier loss", "en"),
        ("description", "How fast?", "en"),
        ("mt_title", "冰川损失", "zh"),
        ("ht_description", "多快？", "zh"),
        ("title+description", "Glacier loss How fast?", "en"),
        ("mt_title+mt_description", "冰川损失 多块？", "zh"),
    ],
)
def test_a_field_of_the_topics_in_its_language(field: str, text: str, lang: str) -> None:
    loaded = load_collection(f"ir_datasets:hc4/zh/test#{field}")
    assert loaded.queries == [Query("12", text, lang)]
    assert loaded.name == f"hc4_zh_test#{field}"
    assert irds.queries(f"hc4/zh/test#{field}") == loaded.queries


@pytest.mark.parametrize(
    ("dataset", "query", "passage"),
    [
        ("neuclir/1/zh+fa/x#fa_mt_title", Query("7", "یخ", "fa"), Passage("a", "x", "t", "zh")),
        ("neuclir/1/zh+fa/x#zh_mt_title", Query("7", "冰", "zh"), Passage("a", "x", "t", "zh")),
        ("neuclir/1/zh+fa/x", Query("7", "Ice", "en"), Passage("a", "x", "t", "zh")),
        ("ntcir/zh#narrative", Query("1", "n", "en"), Passage("N1", "本文", "題", "zh")),
        ("clirmatrix/sw/bi139-base/en/test1", Query("5", "lake", "en"), Passage("99", "Ziwa ni refu.", "", "sw")),
        ("neumarco/fa/dev", Query("3", "a text", "en"), Passage("0", "متن", "", "fa")),
    ],
)
def test_other_shapes(dataset: str, query: Query, passage: Passage) -> None:
    loaded = load_collection(f"ir_datasets:{dataset}")
    assert (loaded.queries, loaded.passages[0]) == ([query], passage)


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (
            "hc4/zh/test#mt_titel",
            r"hc4/zh/test#mt_titel: the topics have no text 'mt_titel'. Did you mean 'mt_title'\?",
        ),
        ("hc4/zh/test#narrative_by_relevance", "no text 'narrative_by_relevance'"),
        ("hc4/zh/test#query_id", "no text 'query_id'"),
        ("hc4/zh/test#default_text", "no text 'default_text'"),
        ("hc4/zh/tset", "ir_datasets knows no such id"),
    ],
)
def test_what_is_not_there(dataset: str, said: str) -> None:
    with pytest.raises(InterlinguaError, match=said):
        load_collection(f"ir_datasets:{dataset}")


def test_documents_stay_on_disk_until_they_are_asked_for() -> None:
    data = DATA["neumarco/fa/dev"]
    data.walks = data.store.read = 0
    passages = load_collection("ir_datasets:neumarco/fa/dev").passages
    assert isinstance(passages, StoredPassages)
    assert (data.walks, data.store.read) == (1, 0)  # the first document, to see that there are some
    assert passages.by_id(["1", "x"]) == {"1": Passage("1", "دیگر", "", "fa")}
    assert data.walks == 1
    assert (len(passages), passages.langs) == (2, {"fa"})
    assert [p.id for p in passages] == ["0", "1"]
    assert (passages[-1].id, [p.id for p in passages[1:]], [p.id for p in passages[:0]]) == ("1", ["1"], [])
    with pytest.raises(IndexError):
        passages[2]
    walks = data.walks
    assert [p.id for p in passages[:1]] == ["0"]
    assert [p.id for p in passages[::-1]] == ["1", "0"]
    assert data.walks == walks + 2


def test_reranking_reads_the_candidates_alone(tmp_path: Any) -> None:
    class Length:
        similarity = "dot"

        def encode_query(self, texts: list[str], **options: Any) -> list[list[float]]:
            return [[1.0]] * len(texts)

        def encode_document(self, texts: list[str], **options: Any) -> list[list[float]]:
            return [[float(len(text))] for text in texts]

    data = Data(
        [Generic(str(i), "x" * i) for i in range(1, 500)], [Generic("q", "?")], [Judgement("q", "7", 1)], "en", "en"
    )
    DATA["big"] = data
    collection: Collection = load_collection("ir_datasets:big")
    Run.from_scores({"q": {"7": 1.0, "400": 0.5, "3": 0.1}}).write_trec(tmp_path / "x.run")
    data.walks = 0
    stages = RetrieverPool(collection.passages, lambda name: Length())
    found = stages.run(f"run({tmp_path}/x.run) >> m", collection.queries, 10)
    assert found == Run.from_scores({"q": {"400": 400.0, "7": 7.0, "3": 3.0}})
    assert (data.walks, data.store.read) == (0, 3)


def test_what_cannot_be_fetched_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise RuntimeError("All download sources failed\nmore")

    for name in ("docs_iter", "queries_iter"):
        with monkeypatch.context() as patch:
            patch.setattr(DATA["hc4/zh/test"], name, fails)
            with pytest.raises(InterlinguaError, match=r"hc4/zh/test.*: ir_datasets cannot provide it \(All download"):
                load_collection("ir_datasets:hc4/zh/test")
    stored = load_collection("ir_datasets:hc4/zh/test").passages
    assert isinstance(stored, StoredPassages)
    monkeypatch.setattr(DATA["hc4/zh/test"], "docs_store", fails)
    with pytest.raises(InterlinguaError, match="cannot provide it"):
        stored.by_id(["a-1"])


def test_a_collection_of_unknown_language() -> None:
    DATA["nowhere"] = Data([Generic("1", "x")], [Generic("q", "?")], [Judgement("q", "1", 1)], None, "en")
    with pytest.raises(InterlinguaError, match="the language of passages is unknown"):
        load_collection("ir_datasets:nowhere")
    assert load_collection("ir_datasets:nowhere", lang="ko").passages[0].lang == "ko"


def test_the_package_itself(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """ir_datasets' own classes of HC4 over files in HC4's format."""
    monkeypatch.delitem(sys.modules, "ir_datasets")
    ir_datasets = pytest.importorskip("ir_datasets")
    formats = pytest.importorskip("ir_datasets.formats")

    class File:
        def __init__(self, name: str, rows: list[Any]) -> None:
            self.file = tmp_path / name
            self.file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))

        def path(self, force: bool = True) -> str:
            return str(self.file)

        def stream(self) -> Any:
            return open(self.file, "rb")

    docs = File(
        "docs.jsonl",
        [{"id": f"d{i}", "title": f"t{i}", "text": f"x{i}", "url": "u", "time": "t", "cc_file": "f"} for i in range(5)],
    )
    topic = [
        {"lang": "eng", "source": "original", "topic_title": "Ice", "topic_description": "?"},
        {"lang": "zho", "source": "human translation", "topic_title": "冰", "topic_description": "？"},
        {"lang": "zho", "source": "google", "topic_title": "冰块", "topic_description": "？"},
    ]
    topics = File(
        "topics.jsonl",
        [
            {
                "topic_id": "1",
                "topics": topic,
                "languages_with_qrels": ["zho"],
                "narratives": {"zho": {}},
                "report": {"text": "r", "url": "u", "date": "d"},
            }
        ],
    )
    data = ir_datasets.Dataset(
        formats.ExctractedCCDocs(docs, subset_lang="zh", namespace="hc4", count=5),
        formats.ExctractedCCQueries(topics, subset_lang="zh", namespace="hc4"),
        formats.TrecQrels(File("qrels", ["1 0 d3 3"]), {}),
    )
    monkeypatch.setattr(ir_datasets, "load", {"hc4/zh/toy": data}.__getitem__)
    loaded = load_collection("ir_datasets:hc4/zh/toy#mt_title")
    assert loaded.queries == [Query("1", "冰块", "zh")]
    assert load_collection("ir_datasets:hc4/zh/toy").queries == [Query("1", "Ice", "en")]
    assert loaded.qrels == {"1": {"d3": 3}}
    assert isinstance(loaded.passages, StoredPassages)
    assert loaded.passages.by_id(["d4", "none", "d1"]) == {
        name: Passage(name, f"x{name[1]}", f"t{name[1]}", "zh") for name in ("d4", "d1")
    }
    assert [p.id for p in loaded.passages] == [f"d{i}" for i in range(5)]
    assert loaded.passages.source is load_collection("ir_datasets:hc4/zh/toy").passages.source  # type: ignore[attr-defined]
