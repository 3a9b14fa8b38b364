"""Several indexes in one server: their names, one search over them, tokens for some, and what is as with one."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from interlingua.cli import main
from interlingua.data.records import Passage
from interlingua.errors import BadInput, Damaged
from interlingua.index.index import Index
from interlingua.index.metadata import Budget
from interlingua.models.dual import DualEncoder
from interlingua.serving.access import Token
from interlingua.serving.app import create_app
from interlingua.serving.served import Served, open_all, places_of
from interlingua.serving.service import ServeSettings
from interlingua.serving.watch import Watch

QUESTION = "who wrote the book about the stars?"
PASSAGES = {
    "handbook": [
        Passage("stars", "Who wrote the first book about the stars?", "Stars", "en", {"topic": "sky", "year": "2020"}),
        Passage("bridge", "Two rivers meet below the old town.", "Bridge", "en", {"topic": "town", "year": "2024"}),
        Passage("light", "The lighthouse keeper wrote every storm into a book.", "", "en", {"topic": "sea"}),
    ],
    "faq": [
        Passage("book", "Who wrote this book about the stars of the sky?", "", "en", {"kind": "short"}),
        Passage("kirja", "Kuka kirjoitti kirjan?", "", "fi", {"kind": "short"}),
        Passage("stars", "The stars of the southern sky.", "", "en", {"kind": "long"}),
    ],
    "news": [Passage("storm", "Who saw the storm at sea?", "", "en", {"topic": "sea"})],
}
TOKENS = (
    Token(name="all", scopes=("search", "write"), token="all"),
    Token(name="reader", scopes=("search:faq", "search:news"), token="reader"),
    Token(name="editor", scopes=("search", "write:faq"), token="editor"),
    Token(name="monitor", scopes=("metrics",), token="monitor"),
)


def bearer(name: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {name}"} if name else {}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Callable[..., Any]) -> Path:
    place = tmp_path_factory.mktemp("several") / "model"
    DualEncoder(tiny_encoder(pooling="mean", hidden=16)).save(place)
    return place


@pytest.fixture(scope="module")
def encoder(model: Path) -> Any:
    return DualEncoder.load(model)


def build(encoder: Any, folder: Path, model: Path, **passages: list[Passage]) -> dict[str, Index]:
    return {name: Index.build(encoder, some, folder / name, model_path=model) for name, some in passages.items()}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory, encoder: Any, model: Path) -> dict[str, Index]:
    """Indexes that no test writes to, and `together`, one with all their passages."""
    folder = tmp_path_factory.mktemp("indexes")
    whole = [
        Passage(f"{name}-{one.id}", one.text, one.title, one.lang, one.metadata)
        for name, some in PASSAGES.items()
        for one in some
    ]
    return build(encoder, folder, model, **PASSAGES, together=whole)


@contextmanager
def serving(indexes: Mapping[str, Index] | Index, **settings: Any) -> Iterator[TestClient]:
    options = {"delay": 0.0, "check_pace": 0.0, **settings}
    with TestClient(create_app(indexes, ServeSettings(**options)), raise_server_exceptions=False) as client:
        yield client


def three(read: dict[str, Index]) -> dict[str, Index]:
    return {name: read[name] for name in PASSAGES}


@pytest.fixture
def client(read: dict[str, Index]) -> Iterator[TestClient]:
    with serving(three(read)) as client:
        yield client


def search(client: TestClient, path: str = "/search", **options: Any) -> Any:
    answer = client.post(path, json={"query": QUESTION, "lang": "en", "highlight": False, **options})
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(answer: Any) -> list[str]:
    return [f"{hit['index']}-{hit['id']}" for hit in answer["hits"]]


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(
        method, path, json.dumps(body) if body else None, {"Content-Type": "application/json", **headers}
    )
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def refusal(answer: Any) -> tuple[int, str]:
    assert list(answer.json()) == ["error"]
    return answer.status_code, answer.json()["error"]["code"]


def test_each_index_answers_under_its_name(client: TestClient, read: dict[str, Index]) -> None:
    cards = client.get("/indexes").json()["indexes"]
    assert [(one["name"], one["passages"], one["default"]) for one in cards] == [
        ("handbook", 3, True),
        ("faq", 3, False),
        ("news", 1, False),
    ]
    assert cards[1] | {"name": "", "default": True} == {
        "name": "",
        "default": True,
        "passages": 3,
        "languages": {"en": 2, "fi": 1},
        "fields": ["kind"],
        "model": "model",
    }
    for mode in ("hybrid", "dense", "lexical"):
        hits = search(client, "/indexes/faq/search", mode=mode)["hits"]
        found = read["faq"].search(QUESTION, mode=mode, lang="en")
        assert [(hit["index"], hit["id"], hit["score"]) for hit in hits] == [
            ("faq", hit.passage.id, pytest.approx(hit.score)) for hit in found
        ]
    assert client.get("/indexes/faq/info").json() == {
        "passages": 3,
        "languages": {"en": 2, "fi": 1},
        "modes": ["hybrid", "dense", "lexical"],
        "rerank": False,
        "model": "model",
        "fields": ["kind"],
    }
    assert client.get("/indexes/news/passages/stars").status_code == 404
    for path in ("/v1/embeddings", "/indexes/faq/v1/embeddings"):
        assert len(client.post(path, json={"input": "a book"}).json()["data"]) == 1
    for path in ("/indexes/faq/rerank", "/indexes/faq/v2/rerank", "/rerank"):
        asked = {"query": "a book", "documents": ["a book", "the sea"]}
        assert client.post(path, json=asked).json()["results"][0]["index"] == 0
    assert client.get("/indexes/faq/v1/models/model").json()["id"] == "model"
    within = client.post("/indexes/faq/search", json={"query": "a", "lang": "en", "indexes": ["faq"]})
    assert refusal(within) == (422, "invalid_request")


def test_without_a_name_all_are_read(client: TestClient) -> None:
    info = client.get("/info").json()
    assert (info["passages"], info["languages"], info["model"]) == (7, {"en": 6, "fi": 1}, "model")
    assert info["fields"] == ["kind", "topic", "year"]
    assert info["indexes"] == client.get("/indexes").json()["indexes"]
    passages = client.get("/passages/stars").json()["passages"]
    assert [(one["index"], one["text"][:3]) for one in passages] == [("handbook", "Who"), ("faq", "The")]
    assert client.get("/passages/nothing").status_code == 404
    assert client.get("/documents/book").json()["index"] == "faq"
    assert client.get("/indexes/handbook/documents/stars").json()["passages"][0]["text"][:3] == "Who"
    assert client.get("/documents/nothing").status_code == 404
    both = client.get("/documents/stars")
    assert (both.status_code, "handbook, faq" in both.json()["error"]["message"]) == (400, True)
    assert client.get("/health").json() == {"status": "ready"}


def test_a_queue_with_room_for_one_has_room_for_all_indexes(read: dict[str, Index]) -> None:
    with serving(three(read), queue=1) as client:
        assert len(client.get("/info").json()["indexes"]) == 3
        assert len(client.get("/indexes").json()["indexes"]) == 3
        assert len(client.get("/passages/stars").json()["passages"]) == 2
        assert client.get("/documents/book").json()["index"] == "faq"


def test_one_index_is_served_as_ever(read: dict[str, Index]) -> None:
    with serving(read["faq"]) as client:
        plain = search(client)
        assert "index" not in plain["hits"][0]
        assert "indexes" not in client.get("/info").json()
        assert set(client.get("/passages/book").json()["passages"][0]) == {
            *("id", "source", "lang", "title", "text", "metadata")
        }
        named = search(client, "/indexes/faq/search")
        assert named["hits"] == plain["hits"] == search(client, indexes=["faq"])["hits"]
        assert [(one["name"], one["default"]) for one in client.get("/indexes").json()["indexes"]] == [("faq", True)]


def test_comparable_scores_give_the_order_of_one_index(client: TestClient, read: dict[str, Index]) -> None:
    found = read["together"].search(QUESTION, 5, mode="dense", lang="en")
    answer = search(client, mode="dense", k=5)
    assert names(answer) == [hit.passage.id for hit in found]
    assert [hit["score"] for hit in answer["hits"]] == [pytest.approx(hit.score) for hit in found]
    assert [hit["rank"] for hit in answer["hits"]] == [1, 2, 3, 4, 5]
    least = found[2].score
    assert names(search(client, mode="dense", min_score=least - 1e-6)) == [hit.passage.id for hit in found[:3]]


@pytest.mark.parametrize("mode", ["dense", "lexical"])
def test_what_two_indexes_say_alike_is_one_hit(encoder: Any, tmp_path: Path, mode: str) -> None:
    def copies(*ids: str) -> list[Passage]:
        return [*(Passage(id, "A book about the stars.", lang="en") for id in ids), Passage("z", "A storm book.")]

    indexes = {name: Index.build(encoder, copies(name, "y"), tmp_path / name) for name in ("one", "two")}
    with serving(indexes) as client:
        assert len(search(client, mode=mode)["hits"]) == 6
        first, second = search(client, mode=mode, distinct=True)["hits"]
        assert (first["repeated"], second["repeated"], len(first["same"])) == (3, 1, 3)
        assert len(search(client, mode=mode, distinct=True, k=1)["hits"]) == 1


def test_indexes_of_one_model_are_searched_with_one_encoding(
    read: dict[str, Index], encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[list[str]] = []
    encode = encoder.encode_query

    def counted(texts: Any, **options: Any) -> Any:
        encoded.append(list(texts))
        return encode(texts, **options)

    with serving(three(read)) as client:
        monkeypatch.setattr(encoder, "encode_query", counted)
        assert len(search(client, mode="dense")["hits"]) == 7
    assert encoded == [[QUESTION]]


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_other_rankings_are_merged_by_rank(client: TestClient, read: dict[str, Index], mode: str) -> None:
    own = {name: read[name].search(QUESTION, mode=mode, lang="en") for name in PASSAGES}
    every = [(rank, name, hit) for name, hits in own.items() for rank, hit in enumerate(hits, 1)]
    dense = {"hybrid": lambda hit: hit.parts["dense"], "lexical": lambda hit: 0.0}[mode]
    expected = sorted(every, key=lambda one: (one[0], -dense(one[2]), list(PASSAGES).index(one[1])))
    answer = search(client, mode=mode)
    assert names(answer) == [f"{name}-{hit.passage.id}" for _, name, hit in expected]
    assert [hit["score"] for hit in answer["hits"]] == [1 / (60 + rank) for rank, _, _ in expected]
    assert [hit["parts"]["own"] for hit in answer["hits"]] == [pytest.approx(hit.score) for _, _, hit in expected]
    assert answer == {**search(client, mode=mode), "took_ms": answer["took_ms"]}
    assert names(search(client, mode=mode, indexes=["news", "faq", "news"])) == [
        name for name in names(answer) if not name.startswith("handbook")
    ]
    only = search(client, mode=mode, indexes=["faq"])["hits"]  # one alone has its own scores
    assert [hit["score"] for hit in only] == [pytest.approx(hit.score) for hit in own["faq"]]


@pytest.mark.slow
def test_scores_of_two_models_are_not_compared(
    read: dict[str, Index], tiny_encoder: Callable[..., Any], tmp_path: Path
) -> None:
    other = Index.build(DualEncoder(tiny_encoder(pooling="mean", hidden=32)), PASSAGES["news"], tmp_path / "other")
    with serving({"faq": read["faq"], "other": other}) as client:
        hits = search(client, mode="dense")["hits"]
        assert [hit["score"] for hit in hits] == [1 / 61, 1 / 61, 1 / 62, 1 / 63]
        assert [hit["index"] for hit in hits] == ["faq", "other", "faq", "faq"]
        assert client.get("/info").json()["model"] == "model, unnamed"


def test_a_reranker_makes_scores_comparable(read: dict[str, Index], encoder: Any) -> None:
    app = create_app(three(read), ServeSettings(delay=0.0, check_pace=0.0, rerank_model="r"), encoder)
    with TestClient(app) as client:
        answer = search(client, rerank=True, mode="lexical")
    scores = [hit["parts"]["reranker"] for hit in answer["hits"]]
    assert len(scores) > 3
    assert scores == sorted(scores, reverse=True) == [hit["score"] for hit in answer["hits"]]


FILTERS: list[dict[str, Any]] = [
    {"topic": "sea"},
    {"not": {"topic": "sea"}},
    {"year": {"gte": 2021}},
    {"any": [{"topic": "sea"}, {"kind": "long"}]},
    {"all": [{"topic": "sea"}, {"kind": "long"}]},
    {"all": [{"not": {"kind": "long"}}, {"not": {"topic": "sky"}}]},
    {"not": {"any": [{"topic": "sea"}, {"not": {"kind": "short"}}]}},
]


@pytest.mark.parametrize("where", FILTERS, ids=json.dumps)
def test_filters_and_counts_are_those_of_one_index(
    client: TestClient, read: dict[str, Index], where: dict[str, Any]
) -> None:
    facets = ["topic", "kind"]
    answer = search(client, mode="dense", where=where, facets=facets)
    assert names(answer) == [hit.passage.id for hit in read["together"].search(QUESTION, mode="dense", where=where)]
    wider = {
        json.dumps({"topic": "sea"}): {"topic": None},
        json.dumps(FILTERS[4]): {"topic": {"kind": "long"}, "kind": {"topic": "sea"}},
    }
    filters = {key: wider.get(json.dumps(where), {}).get(key, where) for key in facets}
    assert answer["facets"] == {key: read["together"].facets([key], where=filters[key])[key] for key in facets}


def test_a_range_may_fit_the_values_of_one_index_alone(encoder: Any, model: Path, tmp_path: Path) -> None:
    values = {"a": ["2019", "2021"], "b": ["draft"]}
    passages = {
        name: [Passage(f"{name}{year}", "A storm at sea.", "", "en", {"year": year, "kind": "note"}) for year in years]
        for name, years in values.items()
    }
    with serving(build(encoder, tmp_path, model, **passages)) as client:
        late = {"year": {"gte": 2020}}
        assert names(search(client, where=late)) == ["a-a2021"]
        assert names(search(client, where={"all": [{"not": late}, {"year": "draft"}]})) == ["b-bdraft"]
        asked = client.post("/search", json={"query": QUESTION, "lang": "en", "where": {"kind": {"gte": 5}}})
        assert refusal(asked) == (400, "bad_request")
        assert "the indexes: no value of 'kind' can be compared with '5'" in asked.json()["error"]["message"]


def test_bokmål_is_norwegian_in_each_index(tmp_path: Path, encoder: Any, model: Path) -> None:
    passages = {
        "a": [Passage("nb", "Boken ligger på bordet.", "", "nb")],
        "b": [Passage("no", "Boken ligger der.", "", "no"), Passage("en", "The book.", "", "en")],
    }
    with serving(build(encoder, tmp_path, model, **passages)) as client:
        for name in ("no", "nb"):
            assert sorted(names(search(client, langs=[name]))) == ["a-nb", "b-no"]
            assert sorted(names(search(client, lang=name, lang_of_results="same"))) == ["a-nb", "b-no"]
    with serving(build(encoder, tmp_path / "one", model, a=passages["a"])) as client:
        assert [hit["id"] for hit in search(client, lang="no", lang_of_results="same")["hits"]] == ["nb"]


def test_languages_and_groups_are_those_of_one_index(client: TestClient, read: dict[str, Index]) -> None:
    assert names(search(client, langs=["fi"])) == ["faq-kirja"]
    assert names(search(client, lang="fi", lang_of_results="same")) == ["faq-kirja"]
    assert search(client, lang="th", lang_of_results="same", facets=["kind"])["facets"] == {"kind": {}}
    grouped = search(client, mode="dense", group_by="kind")["hits"]
    groups = [(f"{hit['index']}-{hit['id']}", hit["group"], hit["more"]) for hit in grouped]
    found = read["together"].search(QUESTION, mode="dense", lang="en", group_by="kind")
    assert groups == [(hit.passage.id, hit.group, hit.more) for hit in found]
    for options in ({"where": {"topik": "a"}}, {"group_by": "topik"}, {"facets": ["topik"]}):
        asked = client.post("/search", json={"query": QUESTION, "lang": "en", **options})
        assert refusal(asked) == (400, "bad_request")
        assert "the indexes: no passage has metadata 'topik'. Did you mean 'topic'?" in asked.json()["error"]["message"]
    asked = client.post("/search", json={"query": QUESTION, "lang": "en", "langs": ["en", "th"]})
    assert refusal(asked) == (400, "bad_request")
    assert asked.json()["error"]["message"] == "the indexes: no passage is in language 'th'."


def test_highlights_and_the_budget_are_those_of_the_whole_question(read: dict[str, Index]) -> None:
    with serving(three(read)) as client:
        hits = search(client, highlight=True, k=3)["hits"]
        for hit in hits:
            own = search(client, f"/indexes/{hit['index']}/search", highlight=True)["hits"]
            assert hit["highlights"] == next(one["highlights"] for one in own if one["id"] == hit["id"])
        assert any(hit["highlights"] for hit in hits)
    with serving(three(read), budget=1e-9) as client:
        assert refusal(client.post("/search", json={"query": QUESTION, "lang": "en"})) == (422, "out_of_time")


def test_facets_of_several_indexes_are_within_the_budget(
    read: dict[str, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    stages: list[str] = []
    stage = Budget.stage
    monkeypatch.setattr(Budget, "stage", lambda self, name, *about: stages.append(name) or stage(self, name, *about))
    with serving(three(read)) as client:
        search(client, facets=["kind"])
    assert "counting" in stages


def test_an_index_is_unavailable_until_every_one_has_answered(
    read: dict[str, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, seen = Served(three(read), ServeSettings()), list[str]()
    server.ready = True
    server.fail()

    async def answered(*_: Any) -> None:
        seen.append(server.status)  # what another probe is told meanwhile

    monkeypatch.setattr("interlingua.serving.served.ask_each", answered)
    asyncio.run(server.look_again())
    assert (seen, server.status) == (["index_unavailable"], "ready")


def test_searches_that_wait_together_go_through_every_index_together(
    read: dict[str, Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(three(read), delay=60.0, timeout=60.0, max_batch=6) as client, ThreadPoolExecutor(2) as pool:
        asked: list[tuple[str, int]] = []
        real = Index.search_many

        def counting(self: Index, texts: Any, *args: Any, **options: Any) -> Any:
            asked.append((Path(str(self.path)).name, len(texts)))
            return real(self, texts, *args, **options)

        monkeypatch.setattr(Index, "search_many", counting)
        answers = list(pool.map(lambda query: search(client, query=query), ["the stars", "a storm"]))
    assert asked == [("handbook", 2), ("faq", 2), ("news", 2)]  # 2 questions, a text of each for each index: a batch
    assert [answer["query"] for answer in answers] == ["the stars", "a storm"]
    assert answers[0]["hits"] != answers[1]["hits"]


def test_the_daily_check_names_the_index_and_shares_its_pace(
    read: dict[str, Index], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    served = Served(three(read), ServeSettings(check_pace=9.0))
    assert [one.watch.pace for one in served.services.values()] == [3.0] * 3

    def look(self: Watch) -> None:
        self.close()
        raise Damaged("torn.")

    monkeypatch.setattr(Watch, "look", look)
    for indexes in (three(read), {"faq": read["faq"]}):
        Served(indexes, ServeSettings()).services["faq"].watch._run()
    assert caplog.messages == [
        "index 'faq': the index could not be checked (torn.)",
        "the index could not be checked (torn.)",
    ]


@pytest.mark.slow
def test_writes_reach_the_index_that_the_path_names(
    tmp_path: Path, encoder: Any, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    indexes = build(encoder, tmp_path, model, handbook=PASSAGES["handbook"], faq=PASSAGES["faq"])
    new = {"passages": [{"id": "new", "text": "A new book.", "lang": "en"}]}
    with serving(indexes, token="secret") as client:
        capsys.readouterr()
        written = client.post("/indexes/faq/passages", json=new, headers=bearer("secret"))
        assert written.json() == {"written": 1, "passages": 4}
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert [(line["path"], line.get("index")) for line in lines if "path" in line] == [
            ("/indexes/faq/passages", "faq")
        ]
        assert [(line["audit"], line["index"], line["ids"]) for line in lines if "audit" in line] == [
            ("write", "faq", ["new"])
        ]
        assert [one["index"] for one in client.get("/passages/new").json()["passages"]] == ["faq"]
        assert "faq-new" in names(search(client))
        plain = client.post("/passages", json=new, headers=bearer("secret"))  # without a name: the default
        assert plain.json() == {"written": 1, "passages": 4}
        assert [one["index"] for one in client.get("/passages/new").json()["passages"]] == ["handbook", "faq"]
        capsys.readouterr()
        assert client.delete("/indexes/faq/passages/new", headers=bearer("secret")).json()["passages"] == 3
        line = [json.loads(line) for line in capsys.readouterr().err.splitlines()][-1]
        assert (line["audit"], line["index"], line["ids"]) == ("delete", "faq", ["new"])
        search(client)
        (line,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert line["indexes"] == ["handbook", "faq"]
        text = client.get("/metrics").text
        assert 'interlingua_index_passages{index="handbook"} 4.0' in text
        assert 'interlingua_index_passages{index="faq"} 3.0' in text
        assert "interlingua_passages 7.0" in text
        asked = 'interlingua_requests_total{method="POST",path="/indexes/faq/passages",status="200"} 1.0'
        assert asked in text


def test_a_token_searches_the_indexes_of_its_scopes(read: dict[str, Index]) -> None:
    body = {"query": QUESTION, "lang": "en", "highlight": False}
    with serving(three(read), tokens=TOKENS) as client:

        def ask(method: str, path: str, token: str, **sent: Any) -> Any:
            return client.request(method, path, headers=bearer(token), json={**body, **sent} if sent or body else None)

        def status(method: str, path: str, token: str, **sent: Any) -> int:
            return int(ask(method, path, token, **sent).status_code)

        assert {hit["index"] for hit in ask("POST", "/search", "reader").json()["hits"]} == {"faq", "news"}
        assert {hit["index"] for hit in ask("POST", "/search", "all").json()["hits"]} == set(PASSAGES)
        assert [one["name"] for one in ask("GET", "/indexes", "reader").json()["indexes"]] == ["faq", "news"]
        assert ask("GET", "/info", "reader").json()["passages"] == 4
        assert [one["index"] for one in ask("GET", "/passages/stars", "reader").json()["passages"]] == ["faq"]
        assert ask("GET", "/documents/stars", "reader").json()["index"] == "faq"
        for path in ("search", "rerank", "info", "passages/stars", "documents/stars", "v1/models", "v1/embeddings"):
            method = "POST" if path in ("search", "rerank", "v1/embeddings") else "GET"
            for token, expected in (("reader", 403), ("", 401), ("wrong", 401), ("monitor", 403)):
                assert status(method, f"/indexes/handbook/{path}", token) == expected, (path, token)
            assert status(method, f"/indexes/faq/{path}", "reader") in (200, 422)
        said = ask("POST", "/indexes/handbook/search", "reader").json()["error"]["message"]
        assert said == "this needs a token with the scope search for the index 'handbook', which 'reader' has not."
        assert refusal(ask("POST", "/search", "reader", indexes=["faq", "handbook"])) == (403, "forbidden")
        assert refusal(ask("POST", "/search", "reader", indexes=["nothing"])) == (404, "index_not_found")
        assert status("POST", "/rerank", "reader") == 403  # the default is not its own
        for path in ("/search", "/indexes", "/info", "/documents/stars"):
            assert status("POST" if path == "/search" else "GET", path, "monitor") == 403
            assert status("POST" if path == "/search" else "GET", path, "") == 401


@pytest.mark.slow
def test_a_token_writes_to_the_indexes_of_its_scopes(tmp_path: Path, encoder: Any, model: Path) -> None:
    indexes = build(encoder, tmp_path, model, handbook=PASSAGES["handbook"], faq=PASSAGES["faq"])
    new = {"passages": [{"id": "new", "text": "A new book.", "lang": "en"}]}
    tokens = (*TOKENS[:1], TOKENS[2], Token(name="reader", scopes=("search:faq",), token="reader"))
    with serving(indexes, tokens=tokens) as client:
        for token, statuses in (("editor", [403, 200, 403]), ("reader", [403, 403, 403]), ("all", [200, 200, 200])):
            paths = ("/indexes/handbook/passages", "/indexes/faq/passages", "/passages")
            found = [client.post(path, json=new, headers=bearer(token)).status_code for path in paths]
            assert found == statuses, token
        assert client.delete("/indexes/handbook/passages/new", headers=bearer("editor")).status_code == 403
        assert client.get("/indexes/handbook/passages/new", headers=bearer("editor")).status_code == 200
        assert client.delete("/indexes/faq/passages/new", headers=bearer("editor")).status_code == 200
        assert client.get("/metrics", headers=bearer("editor")).status_code == 403
        assert client.post("/indexes/nothing/passages", json=new, headers=bearer("editor")).status_code == 404
        assert client.post("/indexes/nothing/passages", json=new, headers=bearer("reader")).status_code == 403


NAMES = ("nothing", "FAQ", "%2e%2e", "..%2ffaq", "%2fetc%2fpasswd", "faq%00", "кафе", "a" * 5_000, "{index}", " faq")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_is_not_served_is_nothing(
    read: dict[str, Index], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(three(read), tokens=TOKENS) as client:
        monkeypatch.setattr(Index, "open", lambda *_: pytest.fail("a name became a path"))
        for method, path in (("POST", "search"), ("GET", "info"), ("POST", "passages"), ("DELETE", "passages/stars")):
            asked = client.request(method, f"/indexes/{name}/{path}", json={"query": "a"}, headers=bearer("all"))
            assert refusal(asked)[0] == 404, path
            asked = client.request(method, f"/indexes/{name}/{path}", json={"query": "a"})
            assert refusal(asked)[0] in (401, 404), path
        assert refusal(client.post("/search", json={"query": "a", "indexes": [name]}, headers=bearer("all"))) in (
            (404, "index_not_found"),
            (422, "invalid_request"),
        )
        assert refusal(client.get(f"/indexes/{name}", headers=bearer("all")))[0] == 404
        text = client.get("/metrics", headers=bearer("monitor")).text
        assert f"/{name}/" not in text.replace("/indexes/{index}/", "")


def test_no_error_tells_the_place_of_an_index(
    read: dict[str, Index], client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(self: Index, *_: Any, **__: Any) -> Any:
        raise Damaged(f"{self.path}/caches/x: is damaged.")

    monkeypatch.setattr(Index, "search_many", damaged)
    for path, index in (("/search", "handbook"), ("/indexes/faq/search", "faq")):
        answer = client.post(path, json={"query": QUESTION, "lang": "en"})
        assert refusal(answer) == (500, "damaged")
        assert answer.json()["error"]["message"] == f"the index '{index}'/caches/x: is damaged."


def test_places_are_told_apart_and_only_once() -> None:
    places = {"handbook": "x/idx", "faq": "x/idx2", "idx": "index"}
    served = Served({name: SimpleNamespace(path=place) for name, place in places.items()}, ServeSettings())  # type: ignore[arg-type,misc]
    for said, told in (
        ("x/idx2: torn.", "the index 'faq': torn."),
        ("index: torn.", "the index 'idx': torn."),
        (
            "x/idx2: no 'index'. There are: 'indexes', 'index'.",
            "the index 'faq': no 'index'. There are: 'indexes', 'index'.",
        ),
        ("locked, by index/lock, index_2", "locked, by the index 'idx'/lock, index_2"),
    ):
        assert served.told(Damaged(said)) == told


@pytest.mark.parametrize("scopes", ["metrics:faq", "admin:faq", "search:", "search:a/b", "search:..", "read:faq"])
def test_a_scope_of_an_index_is_checked(scopes: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tokens"
    file.write_text(f"page {scopes} secret\n")
    assert main(["serve", "no-index", "--port", "0", "--tokens", str(file)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "line 1: scopes are some of search, write, metrics, admin" in line
    assert "search:NAME" in line


def test_a_scope_of_an_index_that_is_not_served_is_an_error(read: dict[str, Index]) -> None:
    token = Token(name="page", scopes=("search:handbok",), token="secret")
    with pytest.raises(BadInput, match=r"the token 'page' has a scope for an index that is not served.*faq, handbook"):
        create_app(three(read), ServeSettings(tokens=(token,)))
    with pytest.raises(BadInput, match="'a/b': is no name for an index"):
        create_app({"a/b": read["faq"]})


def test_places_have_the_names_of_their_folders(read: dict[str, Index], tmp_path: Path) -> None:
    folder = Path(str(read["faq"].path)).parent
    faq, news = str(folder / "faq"), str(folder / "news")
    assert places_of([faq, news]) == {"faq": faq, "news": news}
    assert list(places_of([str(folder)])) == ["faq", "handbook", "news", "together"]
    assert places_of([f"old={faq}", f"{news}/"]) == {"old": faq, "news": f"{news}/"}
    assert places_of([f"one={faq}", f"two={faq}"]) == {"one": faq, "two": faq}
    assert places_of(["milvus://host:19530/docs", "milvus:folder/file.db/more"]) == {
        "docs": "milvus://host:19530/docs",
        "more": "milvus:folder/file.db/more",
    }
    assert places_of(["my index"]) == {"index": "my index"}  # an only one may be called anything
    for name in ("b", "a", ".a.building.part"):
        (tmp_path / "some" / name).mkdir(parents=True)
        (tmp_path / "some" / name / "index.json").touch()
    assert list(places_of([str(tmp_path / "some")])) == ["a", "b"]
    (odd := tmp_path / "a=b").mkdir()
    assert places_of([str(odd)]) == {"index": str(odd)}
    for words, said in (
        ([faq, f"{tmp_path}/faq"], f"both are called 'faq'. Name one of them: NAME={tmp_path}/faq"),
        ([faq, str(odd)], "'a=b': is no name for an index"),
        ([f"a b={faq}"], "'a b': is no name for an index"),
        ([f"../x={faq}"], "'../x': is no name for an index"),
    ):
        with pytest.raises(BadInput) as error:
            places_of(words)
        assert said in str(error.value)


@pytest.mark.slow
def test_indexes_of_one_model_share_it(read: dict[str, Index], model: Path) -> None:
    folder = str(Path(str(read["faq"].path)).parent)
    for options in ({}, {"model": str(model)}):
        indexes = open_all(places_of([folder]), **options)
        assert len({id(one.encoder) for one in indexes.values()}) == 1
        assert math.isclose(
            indexes["faq"].search(QUESTION, lang="en")[0].score, read["faq"].search(QUESTION, lang="en")[0].score
        )


def test_an_index_that_cannot_be_opened_is_said_in_a_line(
    read: dict[str, Index], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "index.json").write_text("{")
    for words in ([str(tmp_path / "missing")], [f"x={tmp_path}/missing"], [str(tmp_path)], [str(tmp_path / "bad")]):
        assert main(["serve", str(read["faq"].path), *words, "--port", "0"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert str(tmp_path) in line


@pytest.mark.slow
def test_the_verb_serves_the_indexes_of_a_folder(
    running: Callable[..., Any], tmp_path: Path, encoder: Any, model: Path
) -> None:
    build(encoder, tmp_path / "indexes", model, handbook=PASSAGES["handbook"], faq=PASSAGES["faq"])
    tokens = tmp_path / "tokens"
    tokens.write_text("page search:faq s1\ncrawler search,write:faq s2\n")
    command = ["-m", "interlingua", "serve", str(tmp_path / "indexes"), "--port", "0", "--tokens", str(tokens)]
    with running(*command) as (process, port):
        page, crawler = {"Authorization": "Bearer s1"}, {"Authorization": "Bearer s2"}
        status, found = ask(port, "GET", "/indexes", **crawler)
        assert (status, [one["name"] for one in found["indexes"]]) == (200, ["faq", "handbook"])
        body = {"query": QUESTION, "lang": "en"}
        _, found = ask(port, "POST", "/search", body, **crawler)
        assert {hit["index"] for hit in found["hits"]} == {"faq", "handbook"}
        _, found = ask(port, "POST", "/search", body, **page)
        assert {hit["index"] for hit in found["hits"]} == {"faq"}
        new = {"passages": [{"id": "new", "text": "A new book."}]}
        assert ask(port, "POST", "/indexes/faq/passages", new, **crawler)[0] == 200
        assert ask(port, "POST", "/indexes/handbook/passages", new, **crawler)[0] == 403
        Index.open(tmp_path / "indexes" / "faq", encoder).delete(["new"])
        assert ask(port, "GET", "/indexes/faq/passages/new", **page)[0] == 404
        for path in ("/indexes/../info", "/indexes/%2e%2e/info", "/indexes//info", f"/indexes/{tmp_path}/info"):
            status, found = ask(port, "GET", path, **page)
            assert (status, list(found)) == (404, ["error"])
        process.terminate()
        _, said = process.communicate(60)
        assert process.returncode == 0, said
