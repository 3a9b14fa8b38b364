"""What a server refuses, and what it tells and keeps to itself."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from interlingua.cli import build_parser
from interlingua.errors import BadInput, Busy, Damaged, NotFound
from interlingua.serving import schemas
from interlingua.serving.access import needed
from interlingua.serving.middleware import LOCAL
from interlingua.serving.service import ServeSettings

Serving = Callable[..., Any]
SEARCH = {"query": "a book", "lang": "en", "highlight": False}


def refusal(answer: Any) -> tuple[int, str]:
    """Status and code; every error has exactly this form."""
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert "\n" not in body["error"]["message"]
    assert len(body["error"]["message"]) < 600
    return answer.status_code, body["error"]["code"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"k": 0}, "k"),
        ({"k": schemas.MAX_K + 1}, "k"),
        ({"k": "3"}, "k"),
        ({"k": True}, "k"),
        ({"k": 1.5}, "k"),
        ({"query": ""}, "query"),
        ({"query": " \n"}, "query"),
        ({"query": None}, "query"),
        ({"query": "x" * (schemas.MAX_QUERY + 1)}, "query"),
        ({"query": "half \ud83d"}, "query"),
        ({"mode": "magic"}, "mode"),
        ({"langs": []}, "langs"),
        ({"langs": ["e" * 36]}, "langs"),
        ({"where": {"a": 1}}, "where"),
        ({"where": {"\ud800": "a"}}, "where"),
        ({"where": [{"a": "b"}]}, "where: must be an object"),
        ({"where": {"a": {"above": 1}}}, "where: filter by 'a': unknown comparison"),
        ({"where": {"any": []}}, "where: the filter has no filter in the list of 'any'"),
        ({"where": {"any": [{"a": "b"}] * 201}}, "201 conditions"),
        ({"hybrid": True}, "hybrid"),
        ({"langs": ["en"], "lang_of_results": "same"}, "langs"),
    ],
)
def test_a_bad_field_is_named(client: TestClient, index: Any, change: dict[str, Any], field: str) -> None:
    answer = client.post(
        "/search", content=json.dumps({**SEARCH, **change}), headers={"Content-Type": "application/json"}
    )
    assert refusal(answer) == (422, "invalid_request")
    assert field in answer.json()["error"]["message"]
    assert not index.calls


def test_a_misspelt_field_is_named_before_the_one_that_is_missing_for_it(client: TestClient) -> None:
    said = [
        client.post("/search", json=body).json()["error"]["message"] for body in ({"querry": "a"}, {"q": 1, "w": 2})
    ]
    assert said[0].startswith("querry: ")
    assert said[0].endswith(" (1 more error).")
    assert said[1].endswith(" (2 more errors).")


@pytest.mark.parametrize("document", [{"text": 5}, ["x"], 5, None, {"txt": "x"}, {}, "  ", {"text": "  "}])
def test_a_bad_document_is_named_in_plain_words(client: TestClient, document: Any) -> None:
    answer = client.post("/rerank", json={"query": "a", "documents": ["x", document]})
    assert refusal(answer) == (422, "invalid_request")
    message = answer.json()["error"]["message"]
    assert re.fullmatch(
        r"documents\.1(\.text)?: (input should be a valid string|field required|is empty|"
        r"should be a text, or an object with the field `text`)\.",
        message,
    )


def test_too_many_texts(client: TestClient) -> None:
    many = ["a"] * (schemas.MAX_INPUTS + 1)
    for path, body in (
        ("/v1/embeddings", {"input": many}),
        ("/v1/embeddings", {"input": []}),
        ("/rerank", {"query": "a", "documents": many}),
        ("/rerank", {"query": "a", "documents": []}),
        ("/v1/embeddings", {"input": "x" * (schemas.MAX_TEXT + 1)}),
    ):
        assert refusal(client.post(path, json=body)) == (422, "invalid_request")


def test_what_is_not_json(client: TestClient) -> None:
    for body in (b"{", b"", b"[]", b"null", b'"a"', b"\xff\xfe", b"[" * 100_000, b'{"query": ' + b"9" * 10_000 + b"}"):
        status, _ = refusal(client.post("/search", content=body, headers={"Content-Type": "application/json"}))
        assert status in (400, 422), body[:10]
    for body in (b'{"query": "\xff"}', b"[" * 100_000):
        answer = client.post("/search", content=body, headers={"Content-Type": "application/json"})
        assert refusal(answer) == (400, "bad_request")
        assert "It must be in UTF-8, and not nested too deeply" in answer.json()["error"]["message"]
    form = client.post("/search", content=json.dumps(SEARCH), headers={"Content-Type": "text/plain"})
    assert refusal(form) == (422, "invalid_request")  # so that no form of another site can ask
    assert "application/json" in form.json()["error"]["message"]


@pytest.mark.parametrize("host", ["localhost", "LocalHost:8080", "127.0.0.1:8080", "[::1]", "[::1]:8080", "ours.test"])
def test_answers_under_its_names(serving: Serving, host: str) -> None:
    with serving(names=("ours.test", *LOCAL)) as client:
        assert client.get("/health", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.test", "evil.test:8080", "localhost.evil.test", "ours.test.", "", "[::1", ":80"]
)
def test_and_under_no_other(serving: Serving, host: str) -> None:
    with serving(names=("ours.test", *LOCAL)) as client:
        for path in ("/", "/health", "/info"):
            assert refusal(client.get(path, headers={"Host": host})) == (400, "unknown_host")


def test_a_name_in_another_script_is_sent_in_ascii(serving: Serving) -> None:
    with serving(names=("bücher.example",)) as client:
        assert client.get("/health", headers={"Host": "xn--bcher-kva.example"}).status_code == 200
        assert refusal(client.get("/health", headers={"Host": "other.example"})) == (400, "unknown_host")


def test_unknown_places_and_methods(client: TestClient) -> None:
    assert refusal(client.get("/nothing")) == (404, "not_found")
    assert refusal(client.get("/search")) == (405, "method_not_allowed")


def test_a_large_body_is_refused_at_its_announced_length(serving: Serving) -> None:
    with serving(max_body=1_000) as client:
        read = 0

        def parts() -> Iterator[bytes]:
            nonlocal read
            for _ in range(50):
                read += 1
                yield b"x" * 100

        announced = client.post("/search", content=b"{}", headers={"Content-Length": "1001"})
        assert refusal(announced) == (413, "too_large")
        assert refusal(client.post("/search", content=parts())) == (413, "too_large")  # chunked: no length is announced
        assert client.post("/search", json={**SEARCH, "query": "x" * 800}).status_code == 200


def test_a_refused_body_is_read_on_up_to_a_limit(serving: Serving) -> None:
    async def status(client: TestClient, path: str, headers: list[tuple[bytes, bytes]], limit: int) -> tuple[int, int]:
        read, sent = 0, []

        async def receive() -> dict[str, Any]:
            nonlocal read
            read += 1
            return {"type": "http.request", "body": b" " * 100, "more_body": read < limit}

        async def send(message: dict[str, Any]) -> None:
            sent.append(message.get("status"))

        scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
            "http_version": "1.1",
            "scheme": "http",
            "server": ("here", 80),
            "root_path": "",
        }
        await client.app(scope, receive, send)
        return sent[0], read

    with serving(max_body=1_000) as client:
        announced, chunked = [(b"content-length", b"9" * 5_000)], [(b"transfer-encoding", b"chunked")]
        for headers in (announced, chunked):
            for path, refusal in (("/passages", 401), ("/search", 413)):
                assert asyncio.run(status(client, path, headers, 50)) == (refusal, 50)
                code, read = asyncio.run(status(client, path, headers, 500))
                assert code == refusal
                assert read <= 11 + 160  # 16 bodies of the size that is allowed
                asked = [*headers, (b"expect", b"100-continue")]
                assert asyncio.run(status(client, path, asked, 50))[1] in (0, 50)  # it was never asked for the body
        assert asyncio.run(status(client, "/passages", [*announced, (b"expect", b"100-continue")], 50)) == (401, 0)


def test_a_slow_body_is_408(serving: Serving) -> None:
    async def status(client: TestClient) -> int:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            sent.append(message.get("status"))

        scope = {"type": "http", "method": "POST", "path": "/search", "query_string": b"", "headers": []}
        await client.app(scope, receive, send)
        return int(sent[0])

    with serving(timeout=0.01) as client:
        assert asyncio.run(status(client)) == 408


def test_a_full_queue_is_503_and_a_late_answer_504(serving: Serving, index: Any) -> None:
    found: list[Any] = []
    with serving(queue=1) as client, index.hold():
        threads = [threading.Thread(target=lambda: found.append(client.post("/search", json=SEARCH)))]
        threads[0].start()
        assert index.entered.wait(30)
        # one is being run and one may wait: of two more, one is refused at once, whichever it is
        threads += [threading.Thread(target=lambda: refused(client, found, index)) for _ in range(2)]
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert client.get("/health").status_code == 200
    assert sorted(answer.status_code for answer in found) == [200, 200, 503]
    (full,) = (answer for answer in found if answer.status_code == 503)
    assert refusal(full) == (503, "overloaded")
    assert full.headers["retry-after"] == "1"
    with serving(timeout=0.05) as client, index.hold():
        assert refusal(client.post("/search", json=SEARCH)) == (504, "timeout")
        assert (client.get("/health").status_code, client.get("/health").json()) == (503, {"status": "stuck"})
    assert len(index.calls) == 1


def refused(client: TestClient, found: list[Any], index: Any) -> None:
    answer = client.post("/search", json=SEARCH)
    found.append(answer)
    if answer.status_code == 503:
        index.go.set()


def test_writing_needs_the_token(serving: Serving, index: Any, writer: dict[str, str]) -> None:
    body = {"passages": [{"id": "n", "text": "new"}]}
    with serving(token="") as client:
        assert refusal(client.post("/passages", json=body, headers=writer)) == (403, "writing_off")
        assert refusal(client.post("/passages", json=body, headers={"Authorization": "Bearer "}))[0] == 403
    with serving(read_token="reader") as client:
        for header in (
            "",
            "Bearer",
            "Bearer x",
            f"Basic {writer['Authorization'][7:]}",
            writer["Authorization"][7:],
            writer["Authorization"] + "x",
        ):
            answer = client.post("/passages", json=body, headers={"Authorization": header})
            assert refusal(answer) == (401, "unauthorized")
            assert answer.headers["www-authenticate"] == "Bearer"
            assert refusal(client.delete("/passages/p/0", headers={"Authorization": header}))[0] == 401
        reader = {"Authorization": "Bearer reader"}
        assert refusal(client.post("/passages", json=body, headers=reader)) == (403, "forbidden")
        assert len(index) == 13
        assert client.post("/passages", json=body, headers=writer).status_code == 200


@pytest.mark.slow
def test_reading_may_need_a_token_too(serving: Serving, writer: dict[str, str]) -> None:
    with serving(read_token="reader") as client:
        for method, path in (
            ("POST", "/search"),
            ("POST", "/v1/embeddings"),
            ("POST", "/rerank"),
            ("GET", "/info"),
            ("GET", "/metrics"),
            ("GET", "/openapi.json"),
            ("GET", "/docs"),
            ("GET", "/passages/p/0"),
        ):
            assert refusal(client.request(method, path, json=SEARCH)) == (401, "unauthorized")
            for token in ({"Authorization": "bearer reader"}, writer):
                assert client.request(method, path, json=SEARCH, headers=token).status_code in (200, 422)
        assert client.get("/health").status_code == client.get("/").status_code == 200
        for method in ("POST", "DELETE", "PUT"):  # but for GET and HEAD, passages are for writers
            headers = {"Authorization": "Bearer reader"}
            assert client.request(method, "/passages/p/0", headers=headers).status_code == 403
    with serving(token="") as client:
        assert client.get("/passages/p/0").json()["passages"][0]["id"] == "p/0"


def test_every_endpoint_is_open_or_behind_a_token_on_purpose(client: TestClient) -> None:
    paths = set(client.get("/openapi.json").json()["paths"])
    assert {path for path in paths if needed("GET", path) is None} - {"/passages"} == {"/health"}


def test_the_log_has_one_json_line_a_request_and_no_text_of_questions(
    serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    def lines(**settings: Any) -> list[dict[str, Any]]:
        with serving(**settings) as client:
            capsys.readouterr()
            client.post("/search?q=secret", json={**SEARCH, "query": "my secret\n{}"})
            client.post("/search", json={**SEARCH, "query": "secret", "k": 0})
            client.get("/no%0Athing")
        return [json.loads(line) for line in capsys.readouterr().err.splitlines()]

    plain = lines()
    assert [(line["method"], line["path"], line["status"]) for line in plain] == [
        ("POST", "/search", 200),
        ("POST", "/search", 422),
        ("GET", "/no\nthing", 404),
    ]
    assert "secret" not in json.dumps(plain)
    assert plain[0]["hits"] == 10
    assert plain[0]["received"] > 0 < plain[0]["sent"]
    assert plain[0]["ms"] > 0
    assert lines(log_queries=True)[0]["query"] == "my secret\n{}"


def test_an_error_nobody_expected_tells_the_client_nothing(
    client: TestClient, index: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a detail of the inside")

    monkeypatch.setattr(type(index), "search_many", fail)
    answer = client.post("/search", json=SEARCH)
    assert refusal(answer) == (500, "internal")
    assert "inside" not in answer.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "a detail of the inside" in capsys.readouterr().err
    assert client.get("/health").status_code == 200


def test_a_damaged_index_is_a_fault_of_the_server(
    client: TestClient, index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise Damaged(f"{index.path}: is damaged.")

    monkeypatch.setattr(type(index), "search_many", broken)
    answer = client.post("/search", json=SEARCH)
    assert refusal(answer) == (500, "damaged")
    assert answer.json()["error"]["message"] == "the index: is damaged."


def test_what_the_index_does_not_take_is_409(
    client: TestClient, index: Any, writer: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: Any) -> None:
        raise Busy(f"{index.path}: another writer is at work.")

    monkeypatch.setattr(type(index), "replace", locked)
    answer = client.post("/passages", json={"passages": [{"id": "a", "text": "b"}]}, headers=writer)
    assert refusal(answer) == (409, "not_written")
    assert answer.json()["error"]["message"] == "the index: another writer is at work."


@pytest.mark.parametrize(
    "bad",
    [
        {"max_batch": 0},
        {"queue": 0},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"head_timeout": 0},
        {"connections": 0},
        {"connections_per_address": 0},
        {"rate": -1},
        {"burst": 0},
        {"delay": -1},
        {"token": "two words"},
        {"token": "snø"},
        {"read_token": "only"},
    ],
)
def test_settings_out_of_range(bad: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"^serving: ") as error:
        ServeSettings(**bad)
    assert "\n" not in str(error.value)


def test_the_command_line_and_the_guide_have_the_defaults_of_the_settings() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")
    arguments = vars(build_parser().parse_args(["serve", "idx"]))
    for name in (
        "max_batch",
        "queue",
        "timeout",
        "budget",
        "connections",
        "head_timeout",
        "burst",
        "rate",
        "log_queries",
    ):
        default = ServeSettings.model_fields[name].default
        assert arguments[name] == default
        if name not in ("log_queries", "rate"):
            assert re.search(rf"^\| `--{name.replace('_', '-')} \w+` \| {default:g} \|", guide, re.MULTILINE)


def test_a_length_is_told_in_characters(serving: Serving) -> None:
    with serving() as client:
        answer = client.post("/search", json={**SEARCH, "query": "x" * (schemas.MAX_QUERY + 1)})
        assert answer.json()["error"]["message"] == "query: string should have at most 10000 characters."


def test_an_index_that_is_gone_is_no_fault_of_the_request(tiny_static: Callable[..., Any], tmp_path: Path) -> None:
    from interlingua.data.records import Passage
    from interlingua.index import Index
    from interlingua.serving.app import create_app

    path, away = tmp_path / "idx", tmp_path / "away"
    index = Index.build(tiny_static(), [Passage("1", "a book", lang="en")], path)
    with TestClient(create_app(index, ServeSettings(delay=0.0))) as client:
        path.rename(away)
        with pytest.raises(NotFound, match="is not there any more"), index.together():  # nor does a writer make it anew
            pass
        assert refusal(client.post("/search", json=SEARCH)) == (503, "index_unavailable")
        assert str(tmp_path) not in client.post("/search", json=SEARCH).text
        assert refusal(client.get("/documents/1")) == (503, "index_unavailable")
        health = client.get("/health")
        assert (health.status_code, health.json()) == (503, {"status": "index_unavailable"})
        Index.build(tiny_static(seed=7), [Passage("1", "a book", lang="en")], path)
        assert refusal(client.post("/search", json=SEARCH)) == (503, "index_unavailable")
        assert "made with another model" in client.post("/search", json=SEARCH).text
        assert client.get("/health").status_code == 503
        path.rename(tmp_path / "other")
        away.rename(path)
        assert client.get("/health").json() == {"status": "ready"}
        assert client.post("/search", json=SEARCH).status_code == 200
        assert refusal(client.get("/documents/2")) == (404, "not_found")
