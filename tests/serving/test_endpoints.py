"""Every endpoint gives what a client of its kind expects."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from starlette.testclient import TestClient

from interlingua.data.records import Passage
from interlingua.errors import Damaged
from interlingua.index import Index
from interlingua.index.filters import parsed
from interlingua.models.late_interaction import LateInteractionEncoder
from interlingua.serving import service
from interlingua.serving.app import create_app
from interlingua.serving.passages import Change, Changed
from interlingua.serving.served import Served
from interlingua.serving.service import ServeSettings

Serving = Callable[..., Any]


@pytest.fixture(autouse=True)
def _spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks the first character of every passage."""
    monkeypatch.setattr("interlingua.index.highlights.highlight_encoder", lambda *_: None)
    monkeypatch.setattr("interlingua.index.highlights.Highlights", lambda *_, **__: lambda passage: [(0, 1)])


def test_head_is_answered_as_get_without_a_body(serving: Serving, capsys: Any) -> None:
    with serving(token="w") as client:
        for path in ("/health", "/info", "/", "/passages/p%2F1", "/nothing"):
            got, asked = client.get(path), client.head(path)
            assert (asked.status_code, asked.content) == (got.status_code, b"")
            assert asked.headers["content-length"] == str(len(got.content))
        assert client.head("/search").status_code == 405
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if '"HEAD"' in line]
        assert lines[0]["path"] == "/health"
        assert lines[0]["sent"] == 0
        assert 'method="HEAD",path="/health"' in client.get("/metrics").text


def test_search_gives_flat_hits_best_first(client: TestClient, index: Any) -> None:
    answer = client.post(
        "/search", json={"query": "who wrote the book?", "k": 3, "mode": "dense", "where": {"kind": "sea"}}
    ).json()
    assert {key: answer[key] for key in ("query", "lang", "mode")} == {
        "query": "who wrote the book?",
        "lang": "en",
        "mode": "dense",
    }
    assert [hit["rank"] for hit in answer["hits"]] == [1, 2, 3]
    assert [hit["score"] for hit in answer["hits"]] == sorted((hit["score"] for hit in answer["hits"]), reverse=True)
    first = answer["hits"][0]
    passage = index.passages[first["id"]]
    assert (first["text"], first["title"], first["lang"]) == (passage.text, passage.title, passage.lang)
    assert (first["metadata"], first["highlights"]) == ({"kind": "sea"}, [[0, 1]])
    assert first["parts"] == {"dense": first["score"], "lexical": None}  # JSON has no −∞
    options = {"mode": "dense", "where": parsed({"kind": "sea"}), "reranker": None, "min_score": None}
    assert index.options == [{"k": 3, "langs": None, **options, "group_by": None, "distinct": False}]
    plain = client.post("/search", json={"query": "who wrote the book?", "highlight": False}).json()
    assert all(hit["highlights"] == [] for hit in plain["hits"])


def test_the_languages_of_results(client: TestClient, index: Any, sentences: list[str]) -> None:
    def langs(**options: Any) -> set[str]:
        answer = client.post("/search", json={"query": sentences[5], "k": 20, **options})
        return {hit["lang"] for hit in answer.json()["hits"]} if answer.status_code == 200 else {answer.text}

    assert len(langs()) > 5
    assert langs(langs=["sw", "TH-x"]) == {"sw", "th"}
    assert langs(lang_of_results="same") == {"fi"}
    assert langs(lang_of_results="same", lang="ru") == {"ru"}
    assert langs(lang_of_results="same", lang="de") == set()  # the index has none: no hits, no error
    (error,) = langs(langs=["tlh"])
    assert "tlh" in error
    assert index.path not in error
    assert client.post("/search", json={"query": "1984", "lang_of_results": "same"}).json()["error"]["code"] == (
        "language_not_sure"
    )


def test_searches_of_sixteen_clients_share_calls_of_the_encoder(serving: Serving, index: Any) -> None:
    queries = [f"question {number}" for number in range(16)]
    found: dict[str, Any] = {}

    def ask(client: TestClient, query: str) -> None:
        found[query] = client.post("/search", json={"query": query, "k": 1, "lang": "en"}).json()["hits"][0]

    with serving(delay=600.0, max_batch=16) as client:  # waits until all are there
        threads = [threading.Thread(target=ask, args=(client, query)) for query in queries]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert [sorted(call) for call in index.calls] == [sorted(queries)]
    for query in queries:
        alone = index.search_many([query], k=1)[0][0]
        assert found[query]["id"] == alone.passage.id
        assert found[query]["score"] == pytest.approx(alone.score, abs=1e-4)


def test_a_broken_search_of_a_batch_is_alone_in_its_error(serving: Serving, index: Any) -> None:
    status: dict[str, int] = {}

    def ask(client: TestClient, query: str) -> None:
        status[query] = client.post("/search", json={"query": query, "lang": "en"}).status_code

    with serving(delay=600.0, max_batch=3) as client:
        threads = [threading.Thread(target=ask, args=(client, query)) for query in ("a", "broken", "b")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert status == {"a": 200, "broken": 400, "b": 200}
    assert sorted(index.calls[0]) == ["a", "b", "broken"]


def test_embeddings_as_openai_gives_them(client: TestClient, encoder: Any) -> None:
    texts = ["a blue book", "two rivers meet"]
    expected = encoder.encode_document(texts)
    answer = client.post("/v1/embeddings", json={"input": texts, "model": "tiny", "user": "somebody"}).json()
    assert (answer["object"], answer["model"]) == ("list", "tiny")
    assert [one["index"] for one in answer["data"]] == [0, 1]
    np.testing.assert_allclose([one["embedding"] for one in answer["data"]], expected, atol=1e-6)
    tokens = sum(len(ids) for ids in encoder.passage.tokenize(texts, "passage"))
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    packed = client.post("/v1/embeddings", json={"input": texts[0], "encoding_format": "base64"}).json()
    vector = np.frombuffer(base64.b64decode(packed["data"][0]["embedding"]), "<f4")
    np.testing.assert_allclose(vector, expected[0], atol=1e-6)
    asked = client.post("/v1/embeddings", json={"input": texts, "input_type": "query"}).json()
    np.testing.assert_allclose([one["embedding"] for one in asked["data"]], encoder.encode_query(texts), atol=1e-6)


def test_fewer_dimensions_have_unit_length_again(client: TestClient, encoder: Any) -> None:
    def vector(dimensions: int) -> Any:
        answer = client.post("/v1/embeddings", json={"input": "a blue book", "dimensions": dimensions})
        return np.array(answer.json()["data"][0]["embedding"]) if answer.status_code == 200 else answer

    full = encoder.encode_document(["a blue book"])[0]
    np.testing.assert_allclose(vector(4), full[:4] / np.linalg.norm(full[:4]), atol=1e-6)
    np.testing.assert_allclose(vector(16), full, atol=1e-6)  # nothing is cut: as the model gives it
    assert vector(17).status_code == 400
    assert "16" in vector(17).json()["error"]["message"]


@pytest.mark.parametrize("tokens", [[1, 2, 3], [[1, 2], [3]], 7])
def test_token_ids_are_refused_plainly(client: TestClient, tokens: Any) -> None:
    answer = client.post("/v1/embeddings", json={"input": tokens})
    assert answer.status_code == 400
    assert "token ids" in answer.json()["error"]["message"]


def test_a_model_is_compared_and_never_loaded(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlingua.models.dual.DualEncoder.load", lambda *_, **__: pytest.fail("loaded"))
    for path, body in (("/v1/embeddings", {"input": "a"}), ("/rerank", {"query": "a", "documents": ["b"]})):
        assert client.post(path, json={**body, "model": "tiny"}).status_code == 200
        answer = client.post(path, json={**body, "model": "../../etc/passwd"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_rerank_by_the_vectors_of_the_index(client: TestClient, encoder: Any, sentences: list[str]) -> None:
    documents = [sentences[0], {"text": sentences[9]}, sentences[2], sentences[2]]
    answer = client.post("/rerank", json={"query": "a book", "documents": documents, "return_documents": True}).json()
    texts = [document if isinstance(document, str) else document["text"] for document in documents]
    scores = encoder.encode_document(texts) @ encoder.encode_query(["a book"])[0]
    if encoder.similarity == "cosine":
        scores /= np.linalg.norm(encoder.encode_document(texts), axis=1)
        scores /= np.linalg.norm(encoder.encode_query(["a book"])[0])
    order = [result["index"] for result in answer["results"]]
    assert order == np.argsort(-scores.round(6), kind="stable").tolist()
    assert order.index(2) + 1 == order.index(3)  # equal ones stay as they were sent
    assert [result["document"]["text"] for result in answer["results"]] == [texts[place] for place in order]
    np.testing.assert_allclose([result["relevance_score"] for result in answer["results"]], scores[order], atol=1e-5)
    best = client.post("/rerank", json={"query": "a book", "documents": documents, "top_n": 1}).json()["results"]
    assert [result["index"] for result in best] == order[:1]
    assert "document" not in best[0]


def test_null_is_what_was_not_said(client: TestClient) -> None:
    asked = {"input": ["a book"], "encoding_format": None, "input_type": None, "dimensions": None}
    plain = client.post("/v1/embeddings", json={"input": ["a book"]}).json()
    assert client.post("/v1/embeddings", json=asked).json() == plain
    asked = {"query": "a", "documents": ["b"], "return_documents": None, "top_n": None}
    assert "document" not in client.post("/rerank", json=asked).json()["results"][0]


def test_a_reranker_is_told_the_languages(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A calibrated model has a map for each."""
    seen: list[str] = []
    real = service.model_retriever

    def capturing(encoder: Any, passages: Any) -> Any:
        seen.extend(passage.lang for passage in passages)
        return real(encoder, passages)

    monkeypatch.setattr(service, "model_retriever", capturing)
    documents = ["Kirja on pöydällä, ja lukija tulee illalla kotiin.", "The book lies on the table in the evening."]
    assert client.post("/rerank", json={"query": "a book", "documents": documents}).status_code == 200
    assert seen == ["fi", "en"]


def test_a_late_interaction_reranker(serving: Serving, index: Any, tiny_encoder: Any, sentences: list[str]) -> None:
    late = LateInteractionEncoder.start(tiny_encoder(seed=3), dim=8, query_length=16, document_length=32)
    with serving(reranker=late, rerank_model="tiny-colbert") as client:
        answer = client.post("/rerank", json={"query": "a book", "documents": sentences[:3]}).json()
        assert answer["model"] == "tiny-colbert"
        query, documents = late.encode_query(["a book"])[0], late.encode_document(sentences[:3])
        scores = {place: float((query @ vectors.T).max(1).values.sum()) for place, vectors in enumerate(documents)}
        assert [result["index"] for result in answer["results"]] == sorted(scores, key=lambda place: -scores[place])
        for result in answer["results"]:
            assert result["relevance_score"] == pytest.approx(scores[result["index"]], abs=1e-4)
        assert client.post("/search", json={"query": "a book", "rerank": True}).status_code == 200
        assert index.options[-1]["reranker"] is late
        assert client.get("/info").json()["rerank"] is True


def test_rerank_without_a_reranker_is_said(client: TestClient) -> None:
    answer = client.post("/search", json={"query": "a book", "rerank": True})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_reranker")


def test_passages_are_added_replaced_and_deleted(client: TestClient, index: Any, writer: dict[str, str]) -> None:
    new = {"id": "a/b c", "text": "Kaksi jokea kohtaa vanhan kaupungin alapuolella.", "metadata": {"kind": "river"}}
    old = {"id": "p/0", "text": "A new text in its place.", "lang": "en-GB", "title": "T"}
    answer = client.post("/passages", json={"passages": [new, old]}, headers=writer)
    assert answer.json() == {"written": 2, "passages": 14}
    passage = index.passages["a/b c"]
    assert (passage.lang, dict(passage.metadata), passage.title) == ("fi", {"kind": "river"}, "")  # recognised
    assert (index.passages["p/0"].text, index.passages["p/0"].lang) == (old["text"], "en")
    assert client.get("/info").json()["passages"] == 14
    assert client.delete("/passages/a%2Fb%20c", headers=writer).json() == {"deleted": 1, "passages": 13}
    assert client.delete("/passages/a%2Fb%20c", headers=writer).status_code == 404
    assert client.delete("/passages/p/0", headers=writer).status_code == 200
    lines = {"id": "two\nlines\n", "text": "Kaksi jokea kohtaa."}
    assert client.post("/passages", json={"passages": [lines]}, headers=writer).json()["written"] == 1
    assert client.get("/passages/two%0Alines%0A").status_code == 200
    assert client.delete("/passages/two%0Alines%0A", headers=writer).json()["deleted"] == 1
    assert "interlingua_passages 12.0" in client.get("/metrics").text


@pytest.mark.slow
def test_a_document_around_a_passage(tmp_path: Path, encoder: Any) -> None:
    def cut(source: str, *texts: str) -> list[Passage]:
        about = [{"source": source, "chunk": str(number)} for number in range(1, len(texts) + 1)]
        return [Passage(f"a/b.md#{one['chunk']}", text, "", "en", one) for one, text in zip(about, texts, strict=True)]

    texts = ("One. Two.", "Two. Three.", "Three. Four.", "Four. Five.", "Five. Six.", "Six.")
    passages = [*cut("a/b.md", *texts), *cut("other", "Seven."), Passage("8", "A bridge.", lang="en")]
    index = Index.build(encoder, passages, tmp_path / "idx")
    with TestClient(create_app(index, ServeSettings(delay=0.0))) as client:

        def ask(id: str, **options: Any) -> Any:
            return client.get(f"/documents/{quote(id, safe='')}", params=options)

        answer = ask("a/b.md:a/b.md#4").json()
        assert {key: value for key, value in answer.items() if key != "passages"} == {
            "name": "a/b.md",
            "source": "a/b.md",
            "position": 2,
        }
        assert [one["id"] for one in answer["passages"]] == [f"a/b.md#{number}" for number in range(2, 7)]
        assert [one["text"] for one in answer["passages"]] == list(texts[1:])
        assert [one["part"] for one in answer["passages"]] == ["Two.", "Three.", "Four. Five.", "Six.", "Six."]
        assert [one["text"] for one in ask("a/b.md#6", around=1).json()["passages"]] == list(texts[4:])
        assert [one["text"] for one in ask("a/b.md#2", around=500).json()["passages"]] == list(texts)
        assert [one["text"] for one in ask("a/b.md#2", around=0).json()["passages"]] == [texts[1]]
        assert (ask("8").json()["name"], ask("8").json()["passages"][0]["part"]) == ("8", "A bridge.")
        assert ask("a/b.md#7").json()["error"] == {"code": "not_found", "message": "no passage has this id."}
        answer = ask("a/b.md#1")
        assert answer.status_code == 400
        assert "has 2 passages with the id 'a/b.md#1'" in answer.json()["error"]["message"]
        assert str(tmp_path) not in answer.text
        assert ask("other:a/b.md#1").json()["passages"][0]["text"] == "Seven."
        for around in (-1, 501, "x"):
            assert ask("8", around=around).status_code == 422
        misspelt = ask("a/b.md#6", arround=1)
        assert misspelt.status_code == 422
        assert "arround" in misspelt.json()["error"]["message"]


def test_what_says_the_same_is_one_hit(tmp_path: Path, encoder: Any) -> None:
    passages = [
        Passage("a", "A small blue book.", lang="en", metadata={"source": "x"}),
        Passage("b", "a small,  blue BOOK", lang="en"),
        Passage("c", "A small red book.", lang="en"),
    ]
    index = Index.build(encoder, passages, tmp_path / "idx")
    with TestClient(create_app(index, ServeSettings(delay=0.0))) as client:

        def ask(**options: Any) -> Any:
            hits = client.post("/search", json={"query": "a small blue book", "mode": "lexical", **options}).json()[
                "hits"
            ]
            return [(hit["id"], hit["same"], hit["repeated"]) for hit in hits]

        assert sorted(ask()) == [("a", [], 0), ("b", [], 0), ("c", [], 0)]
        first, second = ask(distinct=True)
        assert first in (("a", ["b"], 1), ("b", ["x:a"], 1))
        assert second == ("c", [], 0)


def test_versions_of_a_page_are_told_apart(tmp_path: Path, encoder: Any, writer: dict[str, str]) -> None:
    pages = [
        {"id": "7", "text": text, "lang": lang, "metadata": {"source": f"{lang}.jsonl"}}
        for lang, text in (("en", "A small blue book."), ("fi", "Pieni sininen kirja."))
    ]
    index = Index.build(encoder, [Passage("8", "A bridge.", lang="en")], tmp_path / "idx")
    token = writer["Authorization"].removeprefix("Bearer ")
    with TestClient(create_app(index, ServeSettings(token=token, delay=0.0))) as client:

        def post(*passages: dict[str, Any]) -> Any:
            return client.post("/passages", json={"passages": list(passages)}, headers=writer)

        assert post(*pages).json() == {"written": 2, "passages": 3}
        hits = client.post("/search", json={"query": "sininen kirja"}).json()["hits"]
        assert {(hit["id"], hit["source"], hit["lang"]) for hit in hits} == {
            ("7", "en.jsonl", "en"),
            ("7", "fi.jsonl", "fi"),
            ("8", "", "en"),
        }
        passages = client.get("/passages/7").json()["passages"]
        assert passages == [
            {key: hit[key] for key in passages[0]} for hit in sorted(hits, key=lambda hit: hit["source"])[1:]
        ]
        assert client.get("/passages/fi.jsonl:7").json()["passages"] == passages[1:]
        assert client.get("/passages/70").json()["error"] == {"code": "not_found", "message": "no passage has this id."}
        for mode in ("dense", "hybrid", "lexical"):
            body = {"query": "sininen kirja", "mode": mode}
            hits = client.post("/search", json=body).json()["hits"]
            least = {**body, "min_score": hits[0]["score"]}
            assert client.post("/search", json=least).json()["hits"] == [
                hit for hit in hits if hit["score"] >= hits[0]["score"]
            ]
            assert client.post("/search", json={**least, "min_score": hits[0]["score"] + 1}).json()["hits"] == []
        answer = post({"id": "7", "text": "Which of them?"})
        assert (answer.status_code, len(index)) == (400, 3)
        assert "from 'en.jsonl', 'fi.jsonl'" in answer.json()["error"]["message"]
        assert post(pages[0], pages[0]).status_code == 422
        assert client.delete("/passages/fi.jsonl:7", headers=writer).json() == {"deleted": 1, "passages": 2}
        assert post({"id": "7", "text": "A small red book.", "lang": "en"}).json() == {"written": 1, "passages": 2}
        assert index.passage("en.jsonl:7").text == "A small red book."
        assert post(pages[1]).json()["passages"] == 3
        assert client.delete("/passages/7", headers=writer).json() == {"deleted": 2, "passages": 1}


def test_one_hit_a_group_and_counts_of_values(tmp_path: Path, encoder: Any) -> None:
    rows = [("a", "storm"), ("a", "storm"), ("a", "sea"), ("b", "storm"), ("b", "calm"), ("c", "storm")]
    passages = [
        Passage(
            f"p{place}", f"A book about {topic} number {place}.", lang="en", metadata={"source": at, "topic": topic}
        )
        for place, (at, topic) in enumerate(rows)
    ]
    with TestClient(create_app(Index.build(encoder, passages, tmp_path / "idx"), ServeSettings(delay=0.0))) as client:

        def ask(**options: Any) -> Any:
            return client.post("/search", json={"query": "a book", **options}).json()

        answer = ask(group_by="source", facets=["topic", "source"], mode="dense")
        assert {hit["group"]: hit["more"] for hit in answer["hits"]} == {"a": 2, "b": 1, "c": 0}
        assert [hit["source"] for hit in answer["hits"]] == [hit["group"] for hit in answer["hits"]]
        assert answer["facets"] == {"topic": {"storm": 4, "calm": 1, "sea": 1}, "source": {"a": 3, "b": 2, "c": 1}}
        assert list(answer["facets"]["topic"]) == ["storm", "calm", "sea"]
        answer = ask(k=1, facets=["topic"], where={"any": [{"source": "b"}, {"topic": "sea"}]})
        assert (len(answer["hits"]), answer["facets"]) == (1, {"topic": {"calm": 1, "sea": 1, "storm": 1}})
        answer = ask(facets=["topic", "source"], where={"topic": ["sea"]}, mode="dense")  # storm could be chosen, too
        assert answer["facets"] == {"topic": {"storm": 4, "calm": 1, "sea": 1}, "source": {"a": 1}}
        both = {"all": [{"topic": ["sea", "calm"]}, {"source": ["b", "c"]}]}
        answer = ask(facets=["topic", "source"], where=both, mode="dense")
        assert answer["facets"] == {"topic": {"storm": 2, "calm": 1}, "source": {"a": 1, "b": 1}}
        assert [hit["id"] for hit in answer["hits"]] == ["p4"]
        plain = ask()
        assert plain["facets"] == {}
        assert {(hit["group"], hit["more"]) for hit in plain["hits"]} == {(None, 0)}
        for options in ({"group_by": "topik"}, {"facets": ["topik"]}, {"where": {"topik": "a"}}):
            error = ask(**options)["error"]
            known = "no passage has metadata 'topik'. Did you mean 'topic'? There are: 'source', 'topic'."
            assert error == {"code": "bad_request", "message": f"the index: {known}"}
        assert client.get("/info").json()["fields"] == ["source", "topic"]


def test_writes_that_wait_are_synced_together_and_answered_afterwards(index: Any) -> None:
    async def main() -> list[Any]:
        service = Served({"idx": index}, ServeSettings(max_batch=3)).services["idx"]
        service.writer.start()

        async def write(name: str) -> Any:
            passages = [Passage(name, "text", lang="en")]
            return await service.writer.submit(Change(index), lambda index: index.replace(passages))

        with index.hold():
            tasks = [asyncio.create_task(write("first"))]
            await asyncio.to_thread(index.entered.wait, 30)
            tasks += [asyncio.create_task(write(name)) for name in ("a", "b", "broken", "c", "d")]
            await asyncio.sleep(0)
            assert service.writer.waiting == 5
            assert index.written == ["first"]
            assert not tasks[0].done()  # it is written, but not acknowledged
        answers = await asyncio.gather(*tasks)
        await service.writer.close()
        return answers

    first, a, b, broken, c, d = asyncio.run(main())
    assert index.written == ["first", "synced", "a", "b", "synced", "c", "d", "synced"]  # three texts at most
    assert [first, a, b, c, d] == [Changed(1, 14 + number) for number in range(5)]
    assert "'broken' cannot be written" in str(broken)


def test_a_write_that_the_disk_does_not_take_is_not_acknowledged(
    client: TestClient, index: Any, writer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def failing() -> Iterator[None]:
        yield
        raise Damaged(f"{index.path}: the disk does not answer.")

    @contextmanager
    def full() -> Iterator[None]:
        raise OSError(28, "No space left on device", str(index.path))
        yield

    monkeypatch.setattr(index, "together", full)
    answer = client.delete("/passages/p/0", headers=writer)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_written")
    assert answer.json()["error"]["message"] == "No space left on device."
    monkeypatch.setattr(index, "together", failing)
    broken = client.post("/passages", json={"passages": [{"id": "broken", "text": "b"}]}, headers=writer)
    assert (broken.status_code, "'broken' cannot be written" in broken.json()["error"]["message"]) == (400, True)
    for answer in (
        client.delete("/passages/p/0", headers=writer),
        client.post("/passages", json={"passages": [{"id": "a", "text": "b"}]}, headers=writer),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "not_safe")
        said = "the change is made and found, but the disk may lose it (the index: the disk does not answer)."
        assert answer.json()["error"]["message"] == f"{said} Send it again."


def test_bad_passages_change_nothing(client: TestClient, index: Any, writer: dict[str, str]) -> None:
    good = {"id": "new", "text": "good"}
    for bad in (
        {"id": "new", "text": "twice"},
        {"id": "x"},
        {"id": "", "text": "a"},
        {"id": "x", "text": " "},
        {"id": "x", "text": "a", "lang": "klingon"},
        {"id": "x", "text": "a", "metadata": {"n": 1}},
        {"id": "x", "text": "a", "vector": [1.0]},
    ):
        answer = client.post("/passages", json={"passages": [good, bad]}, headers=writer)
        assert answer.status_code in (400, 422), bad
    assert len(index) == 13


def test_info_and_health(client: TestClient, index: Any) -> None:
    info = client.get("/info").json()
    assert info == {
        "passages": 13,
        "languages": index.languages,
        "modes": ["hybrid", "dense", "lexical"],
        "rerank": False,
        "model": "tiny",
        "fields": ["kind"],
    }
    assert (client.get("/health").status_code, client.get("/health").json()) == (200, {"status": "ready"})


def test_metrics_count_requests_by_route_and_the_texts_of_batches(client: TestClient) -> None:
    client.post("/v1/embeddings", json={"input": ["a", "b", "c"]})
    client.get("/a/path/of/a/client")
    text = client.get("/metrics").text
    assert 'interlingua_requests_total{method="POST",path="/v1/embeddings",status="200"} 1.0' in text
    assert 'interlingua_requests_total{method="GET",path="other",status="404"} 1.0' in text
    assert "interlingua_batch_texts_sum 5.0" in text  # two when it started
    assert "interlingua_waiting_requests 0.0" in text
    assert "/a/path" not in text


def test_the_pages_load_nothing_from_another_host(client: TestClient) -> None:
    for path in ("/", "/docs", "/docs.css"):
        answer = client.get(path)
        assert answer.status_code == 200
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        for text in ("//cdn", 'src="http', 'href="http', "url(http", "@import"):
            assert text not in answer.text
    docs = client.get("/docs").text
    for path in client.get("/openapi.json").json()["paths"]:
        assert path in docs
    assert "<script" not in docs
    assert client.get("/", headers={"If-None-Match": client.get("/").headers["etag"]}).status_code == 304
    assert client.get("/../settings.py").status_code == 404


def test_the_first_passage_in_a_language_is_found_whoever_wrote_it(
    client: TestClient, index: Any, sentences: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refresh() -> None:
        index.passages["de"] = replace(index.passages["p/0"], id="de", lang="de")

    monkeypatch.setattr(index, "refresh", refresh)
    body = {"query": sentences[5], "lang": "de", "lang_of_results": "same"}
    assert [hit["id"] for hit in client.post("/search", json=body).json()["hits"]] == ["de"]
