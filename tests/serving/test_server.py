"""A real server in a process of its own: it starts, ends in order, and serves a real index."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from interlingua.cli import main
from interlingua.data.records import Passage
from interlingua.index.index import Index
from interlingua.models.dual import DualEncoder
from interlingua.serving import server

HELD = Path(__file__).with_name("held_server.py")


def ask(port: int, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(
        method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json", **headers}
    )
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def end(process: Any) -> str:
    """What it says last, once it has ended in order."""
    _, said = process.communicate(60)
    assert process.returncode == 0, said
    return said


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_search_that_has_begun_is_answered_before_the_server_ends(
    running: Callable[..., Any], number: signal.Signals
) -> None:
    found: list[Any] = []
    with running(HELD) as (process, port):
        search = {"query": "a book", "lang": "en", "highlight": False}
        asking = threading.Thread(target=lambda: found.append(ask(port, "POST", "/search", search)))
        asking.start()
        assert process.stdout.readline() == "in\n"
        process.send_signal(number)
        while True:  # until nobody is let in any more
            try:
                socket.create_connection(("127.0.0.1", port), timeout=60).close()
            except OSError:
                break
        assert not found
        process.stdin.write("\n")
        process.stdin.flush()
        asking.join(60)
        said = end(process)
    ((status, body),) = found
    assert (status, [hit["id"] for hit in body["hits"]]) == (200, ["a"])
    assert said.splitlines()[-1] == "stopped."


@pytest.mark.slow
def test_a_client_that_leaves_is_not_answered(running: Callable[..., Any]) -> None:
    with running(HELD) as (process, port):
        body = json.dumps({"query": "a book", "lang": "en", "highlight": False})
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(
                f"POST /search HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            assert process.stdout.readline() == "in\n"
        line = json.loads(process.stderr.readline())  # before the search returns
        assert (line["path"], line["status"]) == ("/search", 499)
        process.stdin.write("\n")
        process.stdin.flush()
        assert ask(port, "GET", "/health") == (200, {"status": "ready"})
        process.terminate()
        end(process)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Callable[..., Any], sentences: list[str]) -> Path:
    """An index over a saved model."""
    place = tmp_path_factory.mktemp("serve")
    encoder = DualEncoder(tiny_encoder(pooling="mean", hidden=16))
    encoder.save(place / "model")
    Index.build(
        encoder,
        [
            Passage(f"p/{number}", text, lang="en", metadata={"kind": "sea"})
            for number, text in enumerate(sentences[:3])
        ],
        place / "index",
        model_path=place / "model",
    )
    return place


@pytest.mark.slow
def test_the_verb_serves_an_index_and_sees_what_others_write(running: Callable[..., Any], folder: Path) -> None:
    token = folder / "token"
    token.write_text("secret\n")
    command = ["-m", "interlingua", "serve", str(folder / "index"), "--port", "0", "--token-file", str(token)]
    search = {"query": "Who wrote the book about the stars?", "where": {"kind": "sea"}, "k": 5}
    with running(*command, INTERLINGUA_TOKEN="another") as (process, port):
        status, found = ask(port, "POST", "/search", search)
        assert status == 200
        assert found["hits"][0]["id"] == "p/1"
        assert found["hits"][0]["highlights"]
        assert found["hits"][0]["parts"].keys() == {"dense", "lexical"}
        new = {"passages": [{"id": "new", "text": "A book about the stars.", "metadata": {"kind": "sea"}}]}
        assert ask(port, "POST", "/passages", new, Authorization="Bearer another")[0] == 401
        assert ask(port, "POST", "/passages", new, Authorization="Bearer secret") == (
            200,
            {"written": 1, "passages": 4},
        )
        assert "new" in {hit["id"] for hit in ask(port, "POST", "/search", search)[1]["hits"]}
        Index.open(folder / "index", DualEncoder.load(folder / "model")).delete(["new", "p/0"])
        assert {hit["id"] for hit in ask(port, "POST", "/search", search)[1]["hits"]} == {"p/1", "p/2"}
        assert ask(port, "GET", "/info")[1]["passages"] == 2
        assert ask(port, "GET", "/info")[1]["model"] == "model"
        assert ask(port, "GET", "/info", Host="another.site")[0] == 400
        process.terminate()
        end(process)


def test_a_port_in_use_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", str(folder / "index"), "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"port {port}" in said
    assert "--port" in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["--port", "99999"],
        ["--host", "no such host"],
        ["--timeout", "0"],
        ["--token-file", "missing"],
        ["--read-token-file", __file__],
        [],
    ],
)
def test_what_is_wrong_is_said_before_serving(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path / "no-index"), "--port", "0", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_the_server_answers_under_the_address_it_prints(
    host: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(server, "run", lambda app, listener, *_: started.extend((app, server.address(listener))))
    assert main(["serve", str(folder / "index"), "--host", host, "--port", "0"]) == 0
    app, printed = started
    with TestClient(app, base_url=printed) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/health", headers={"Host": host.upper()}).status_code == 200
        assert client.get("/health", headers={"Host": "another.site"}).status_code == 400


def test_options_of_access_and_limits_reach_the_server(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(server, "run", lambda *given: started.extend(given))
    tokens = tmp_path / "tokens"
    tokens.write_text("page search s1\ncrawler search,write s2\n")
    numbers = "--rate 5 --burst 7 --connections 9 --connections-per-address 3 --head-timeout 4"
    options = ["--tokens", str(tokens), "--host", "0.0.0.0", "--port", "0", *numbers.split()]
    assert main(["serve", str(folder / "index"), *options]) == 0
    _, _, settings, tls = started
    assert [(one.name, one.scopes) for one in settings.access] == [
        ("page", ("search",)),
        ("crawler", ("search", "write")),
    ]
    assert (settings.rate, settings.burst, settings.head_timeout) == (5, 7, 4)
    assert (settings.connections, settings.connections_per_address) == (9, 3)
    assert tls is None
    said = capsys.readouterr().err
    assert "everybody" not in said
    assert "the connection is not encrypted" in said
    assert main(["serve", str(folder / "index"), "--burst", "7"]) == 2
    assert "--burst: is the number of requests at once within a rate. Give --rate, too." in capsys.readouterr().err


def test_everybody_may_search_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(folder / "missing"), "--host", "0.0.0.0", "--port", "0"]) == 2
    assert "everybody" in capsys.readouterr().err
