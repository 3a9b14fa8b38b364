"""Connections at a real port: deadlines, limits, refusals that arrive, and TLS. Clients wait on their sockets."""

from __future__ import annotations

import gc
import json
import re
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from shutil import which
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.responses import Response
from starlette.routing import Route

from interlingua.cli import main
from interlingua.lazy import LateKernel
from interlingua.retrieval.late_interaction import static as static_maxsim
from interlingua.serving.app import create_app
from interlingua.serving.server import Connection, H11Protocol, Server, bind, tls_context
from interlingua.serving.service import ServeSettings, Warm

DEADLINE = 30.0
"""Seconds until a test fails whose socket says nothing."""
HEAD = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
SEARCH = {"query": "a book", "lang": "en", "highlight": False}


@contextmanager
def served(index: Any, tls: ssl.SSLContext | None = None, **options: Any) -> Iterator[Server]:
    """A server over `index` in a thread."""
    settings = ServeSettings(**{"token": "w", "delay": 0.0, **options})
    with bind("127.0.0.1", 0) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # so that an unread answer stays in the server
        server = Server(create_app(index, settings), listener, settings, tls)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            if tls is None:
                assert ask(listener.getsockname()[1]) == 200  # it has started
            yield server
        finally:
            server.should_exit = True
            thread.join(DEADLINE)
            assert not thread.is_alive()


@contextmanager
def serving(index: Any, tls: ssl.SSLContext | None = None, **options: Any) -> Iterator[int]:
    """The port of such a server."""
    with served(index, tls, **options) as server:
        yield int(server.listener.getsockname()[1])


def test_what_a_server_keeps_is_frozen_and_its_routes_are_made_before_the_first_request(index: Any) -> None:
    gc.unfreeze()
    app, looked_at = create_app(index, ServeSettings()), list[str]()

    class Seen(Route):
        def matches(self, scope: Any) -> Any:
            looked_at.append(scope["path"])
            return super().matches(scope)

    app.router.routes.append(Seen("/seen", lambda request: Response()))
    with bind("127.0.0.1", 0) as listener:
        server = Server(app, listener, ServeSettings())
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            assert ask(listener.getsockname()[1]) == 200
        finally:
            server.should_exit = True
            thread.join(DEADLINE)
    assert looked_at[0] == "/"  # and not by a request
    assert gc.get_freeze_count() > 1000


@pytest.mark.parametrize("static", [True, False])
def test_subwords_are_matched_before_the_first_question_also_where_the_index_is_empty(
    static: bool, tiny_static: Any, tiny_encoder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    work: list[float] = []
    monkeypatch.setattr(static_maxsim, "KERNEL", work.append)
    monkeypatch.setattr(LateKernel, "early", False)
    encoder = tiny_static() if static else tiny_encoder()
    Warm(SimpleNamespace(search_many=lambda texts, k: [], encoder=encoder))([None])
    assert (bool(work), LateKernel.early) == (static, True)


def client(port: int, begun: bytes = b"") -> socket.socket:
    """A connection on which `begun` was sent."""
    opened = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE)
    opened.sendall(begun)
    return opened


def everything(connection: socket.socket) -> bytes:
    """What is said until the server closes; nothing where it only resets."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def sent(connection: socket.socket, part: bytes) -> Iterator[int]:
    """Send `part` again and again, at most 1,000 times, until the server has closed."""
    with suppress(ConnectionResetError, BrokenPipeError):
        for _ in range(1_000):
            connection.sendall(part)
            yield len(part)


def refusal(said: bytes) -> tuple[int, str]:
    """Status and code of an answer that ends the connection, in the form of all errors."""
    head, _, body = said.partition(b"\r\n\r\n")
    status, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert headers["content-type"] == "application/json"
    assert headers["connection"] == "close"
    assert headers["x-content-type-options"] == "nosniff"
    assert int(headers["content-length"]) == len(body)
    error = json.loads(body)["error"]
    assert set(error) == {"code", "message"}
    return int(status.split()[1]), error["code"]


def made_room(connection: socket.socket) -> bool:
    """Whether it was ended for another. It is told where the server had seen some of its request."""
    said = everything(connection)
    return not said or refusal(said) == (503, "overloaded")


def ask(port: int, path: str = "/health", body: Any = None) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    connection.request("POST" if body else "GET", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def test_head_leaves_the_connection_in_step(index: Any) -> None:
    asked = HEAD.replace(b"GET", b"HEAD") + b"\r\n"
    with serving(index) as port, client(port, asked) as probe:
        first = probe.recv(65_536)
        assert first.startswith(b"HTTP/1.1 200")
        assert first.endswith(b"\r\n\r\n")  # no body
        probe.sendall(HEAD + b"Connection: close\r\n\r\n")
        assert everything(probe).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_headers_that_do_not_end_are_408(index: Any) -> None:
    with serving(index, head_timeout=1.0) as port:
        with client(port, HEAD) as slow, client(port) as silent, client(port, HEAD + b"\r\n") as second:
            assert second.recv(65_536).startswith(b"HTTP/1.1 200")
            second.sendall(HEAD)
            assert refusal(everything(slow)) == refusal(everything(second)) == (408, "timeout")
            assert everything(silent) == b""  # nothing was asked
        assert ended(port) == {"slow_headers": 2, "silent": 1}


@pytest.mark.slow
def test_headers_that_come_drop_by_drop_are_408(index: Any) -> None:
    with serving(index, head_timeout=1.0) as port, client(port, HEAD) as slow:
        slow.settimeout(0.01)
        said = b""
        for number in range(10_000):
            try:
                slow.sendall(f"X-{number}: a\r\n".encode())
                said += slow.recv(65_536)
                break
            except TimeoutError:
                continue
        slow.settimeout(DEADLINE)
        assert refusal(said + everything(slow)) == (408, "timeout")


@pytest.mark.parametrize("begun", [b"", HEAD, b"POST /search HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n{"])
def test_unfinished_requests_do_not_keep_others_out(index: Any, begun: bytes) -> None:
    with ExitStack() as stack, ExitStack() as many:
        port = stack.enter_context(serving(index, head_timeout=600, timeout=600, connections=8))
        half = [many.enter_context(client(port, begun)) for _ in range(40)]
        assert ask(port) == 200
        assert ask(port, "/search", SEARCH) == 200
        assert all(made_room(one) for one in half[:24])  # the oldest


def test_who_is_ended_for_another_is_told(index: Any) -> None:
    with serving(index, head_timeout=600, connections=1) as port, client(port, HEAD + b"\r\n" + HEAD) as begun:
        assert begun.recv(65_536).startswith(b"HTTP/1.1 200")  # the beginning of the next was there too
        assert ask(port) == 200
        said = everything(begun)
        assert refusal(said[said.index(b"HTTP/1.1 503") :]) == (503, "overloaded")


@pytest.mark.slow
def test_unfinished_headers_do_not_use_up_the_open_files(python: Callable[..., Any]) -> None:
    process = python(Path(__file__).with_name("held_server.py"), json.dumps({"head_timeout": 600}), "120")
    try:
        said = [process.stderr.readline()]
        while said[-1] and not said[-1].startswith("http://"):
            said.append(process.stderr.readline())
        assert "60 connections at once instead of 512" in "".join(said)
        port = int(said[-1].split()[0].rpartition(":")[2])
        with ExitStack() as many:
            for _ in range(300):
                many.enter_context(client(port, HEAD))
            assert ask(port) == 200
    finally:
        process.close()


def ended(port: int) -> dict[str, int]:
    """Why connections were ended, as the metrics tell it."""
    connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode()
    connection.close()
    assert re.search(r"^interlingua_connections [1-9]", lines, re.MULTILINE)
    found = re.findall(r'^interlingua_connections_ended_total{why="(\w+)"} (\d+)', lines, re.MULTILINE)
    return {why: int(count) for why, count in found}


@contextmanager
def three_searches(server: Server, index: Any) -> Iterator[None]:
    """Three that are being answered meanwhile, and are answered then."""
    port, body = server.listener.getsockname()[1], json.dumps(SEARCH)
    head = "POST /search HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    # head and body in one piece: who has sent only the head may be ended for another
    whole = f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
    with ExitStack() as many:
        with index.hold():
            searches = [many.enter_context(client(port, whole)) for _ in range(3)]
            end = monotonic() + DEADLINE
            while len(server.server_state.tasks) < 3:
                assert monotonic() < end
            yield
        assert all(everything(one).startswith(b"HTTP/1.1 200 ") for one in searches)


def test_one_address_cannot_take_all_connections(index: Any) -> None:
    with served(index, head_timeout=600, connections=40, connections_per_address=3) as server, ExitStack() as many:
        port = server.listener.getsockname()[1]
        half = [many.enter_context(client(port, HEAD)) for _ in range(6)]
        assert all(made_room(one) for one in half[:3])
        with three_searches(server, index):
            assert all(made_room(one) for one in half[3:])
            with client(port) as more:
                said = everything(more)
            assert refusal(said) == (503, "overloaded")
            assert b"retry-after: 1\r\n" in said
        counts = ended(port)
        assert counts["for_another"] >= 6
        assert counts["too_many"] == 1


def test_requests_that_are_answered_are_never_ended_for_others(index: Any) -> None:
    with served(index, head_timeout=600, connections=4, connections_per_address=4) as server, ExitStack() as many:
        port = server.listener.getsockname()[1]
        with three_searches(server, index):
            for _ in range(10):
                many.enter_context(client(port, HEAD))
            assert ask(port) == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # TLS
        b"GET / HTTP/1.1\r\n\r\n",  # no Host
        HEAD + b"Content-Length: x\r\n\r\n",
        HEAD + b"X: " + b"a" * 70_000,
        HEAD + b"\r\n" + b"nonsense\r\n\r\n",  # after a good one
        b"POST /search HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_what_is_not_http_is_refused_in_the_form_of_all_errors(index: Any, sent: bytes) -> None:
    with serving(index) as port, client(port, sent) as wrong:
        said = everything(wrong)
        assert refusal(said[said.rindex(b"HTTP/1.1 ") :]) == (400, "bad_request")
        assert ended(port) == {"not_http": 1}


@pytest.mark.slow
def test_who_was_refused_and_stays_is_ended(index: Any) -> None:
    with served(index) as server, client(server.listener.getsockname()[1], b"nonsense\r\n\r\n") as wrong:
        assert refusal(everything(wrong)) == (400, "bad_request")
        end = monotonic() + DEADLINE
        while len(server.open):
            assert monotonic() < end


@pytest.mark.parametrize("path", ["/search", "/passages"])
@pytest.mark.parametrize("close", [False, True])
def test_a_refusal_arrives_before_the_body_was_read(index: Any, path: str, close: bool) -> None:
    large = b"x" * 12_000_000
    with serving(index, max_body=1_000_000) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
        headers = {"Content-Type": "application/json"} | ({"Connection": "close"} if close else {})
        connection.request("POST", path, large, headers)  # sends all of it, and only then looks for the answer
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["error"]["code"]) in (
            (413, "too_large"),
            (401, "unauthorized"),
        )
        assert answer.headers["connection"] == "close"
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 999999999999\r\n\r\n"
        with client(port, head.encode()) as endless:
            assert sum(1 for _ in sent(endless, large)) < 1_000  # not all of it is read
        assert ask(port) == 200


def test_the_clock_of_an_answer_is_not_that_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads answer after answer, none of them at once."""
    clocks: list[tuple[float, Any]] = []
    left = iter([20_000, 1_500_000, 700_000, 0])

    def call_later(seconds: float, look: Any) -> Any:
        clocks.append((seconds, look))
        return SimpleNamespace(cancel=lambda: clocks.remove((seconds, look)))

    def abort() -> None:
        raise AssertionError("it was given up")

    monkeypatch.setattr(H11Protocol, "on_response_complete", lambda self: None)
    connection = object.__new__(Connection)
    connection.refusal, connection._reading = None, None
    connection.open = SimpleNamespace(again=lambda _: None)
    connection.settings = SimpleNamespace(timeout=30.0)
    connection.loop = SimpleNamespace(call_later=call_later)
    connection.transport = SimpleNamespace(get_write_buffer_size=lambda: next(left), abort=abort)
    connection.on_response_complete()
    connection.on_response_complete()
    ((_, look),) = clocks
    clocks.clear()
    look()
    ((_, look),) = clocks
    look()


@pytest.mark.slow
def test_a_client_that_does_not_read_its_answer_is_given_up(index: Any) -> None:
    body = json.dumps({"input": ["a"] * 300}).encode()
    with served(index, timeout=3.0) as server, socket.socket() as unread:
        # the system must not take the whole answer: how much it takes by itself differs from machine to machine
        server.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.settimeout(DEADLINE)
        unread.connect(server.listener.getsockname())
        head = (
            f"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        unread.sendall(head.encode() + b"\r\n\r\n" + body)
        end, port = monotonic() + DEADLINE, server.listener.getsockname()[1]
        while ended(port) != {"unread_answer": 1}:  # before it was accepted no connection is open either
            assert monotonic() < end
        head, _, answer = everything(unread).partition(b"\r\n\r\n")
        length = next(
            int(line.split()[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
        )
        assert 0 < len(answer) < length
        assert ended(port) == {"unread_answer": 1}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost and 127.0.0.1, and its key."""
    if which("openssl") is None:
        pytest.skip("needs the program openssl to make a certificate")
    place = tmp_path_factory.mktemp("tls")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = (
        f"req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost -addext {names}"
    )
    files = place / "certificate.pem", place / "key.pem"
    subprocess.run(
        ["openssl", *command.split(), "-out", files[0], "-keyout", files[1]], check=True, capture_output=True
    )
    return files


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


@pytest.mark.slow
def test_tls_is_spoken(index: Any, certificate: tuple[Path, Path], capfd: pytest.CaptureFixture[str]) -> None:
    context = tls_context(*map(str, certificate))
    with serving(index, context, head_timeout=600, connections=4) as port, ExitStack() as many:
        for _ in range(3):
            many.enter_context(client(port))  # no handshake
            many.enter_context(client(port, b"\x16\x03\x01"))  # a part of one
            many.enter_context(client(port, HEAD + b"\r\n"))  # no TLS
            connection = HTTPSConnection("127.0.0.1", port, timeout=DEADLINE, context=trusting(certificate[0]))
            connection.request("POST", "/search", json.dumps(SEARCH), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            assert answer.status == 200
            assert len(json.loads(answer.read())["hits"]) == 10
        with trusting(certificate[0]).wrap_socket(client(port), server_hostname="localhost") as wrong:
            wrong.sendall(b"nonsense\r\n\r\n")
            assert refusal(everything(wrong)) == (400, "bad_request")
    said = capfd.readouterr().err
    assert f"https://127.0.0.1:{port}" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_handshake_has_the_deadline_of_headers(index: Any, certificate: tuple[Path, Path]) -> None:
    with serving(index, tls_context(*map(str, certificate)), head_timeout=1.0) as port:
        # a handshake of its own, with headers that do not end
        begun = trusting(certificate[0]).wrap_socket(client(port), server_hostname="localhost")
        with client(port) as silent, client(port, b"\x16\x03\x01") as half, begun as slow:
            slow.sendall(HEAD)
            assert refusal(everything(slow)) == (408, "timeout")
            assert everything(silent) == everything(half) == b""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--tls-cert missing", "--tls-cert missing: cannot be read (No such file or directory)"),
        ("--tls-key {key}", "--tls-key: needs the certificate beside it"),
        ("--tls-cert {certificate}", "name it with --tls-key"),
        ("--tls-cert {key} --tls-key {key}", "not a certificate and its private key in PEM"),
        ("--tls-cert {certificate} --tls-key {other}", "does not belong to the certificate"),
        ("--tls-cert {certificate} --tls-key {locked}", "the private key is encrypted"),
        ("--tls-cert {certificate} --tls-key {page}", "not a certificate and its private key in PEM"),
    ],
)
def test_wrong_files_of_tls(
    options: str, said: str, certificate: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"certificate": certificate[0], "key": certificate[1], "page": Path(__file__)}
    for name, more in (("other", ()), ("locked", ("-aes-256-cbc", "-pass", "pass:a long password"))):
        files[name] = tmp_path / name
        made = ["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", *more]
        subprocess.run([*made, "-out", files[name]], check=True, capture_output=True)
    assert main(["serve", "no-index", "--port", "0", *options.format(**files).split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
