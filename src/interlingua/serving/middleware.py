"""Around every request: host names, limits of bodies, the log with its audit lines, metrics, safety headers."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from contextlib import suppress
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlingua.serving.schemas import ApiError, error_response

logger = logging.getLogger(__name__)


def log(line: str) -> None:
    """Write a line of the server's own log, which is on standard error whatever messages of the package are shown."""
    print(line, file=sys.stderr, flush=True)


LOCAL = ("localhost", "127.0.0.1", "[::1]")
"""The names of a server that only this machine reaches."""


def _sent(name: str) -> str:
    """A name of a server as clients send it: in ASCII (IDNA 2003), where it is in another script."""
    try:
        return name if name.isascii() else name.encode("idna").decode()
    except UnicodeError:  # no client can send it
        return name


class HostNames:
    """Answers 400 to requests whose header Host is none of `names`, in any case and with any port; without names, to
    none."""

    def __init__(self, app: ASGIApp, names: tuple[str, ...]) -> None:
        self.app, self._names = app, {_sent(name).lower() for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not self._names or self._called(scope) in self._names:
            await self.app(scope, receive, send)
        else:
            error = ApiError(
                400,
                "unknown_host",
                "this server does not answer under that name. Use the address that "
                "it printed when it started, or start it with --name NAME.",
            )
            await error_response(error)(scope, receive, send)

    def _called(self, scope: Scope) -> str:
        host: str = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
        name, colon, port = host.rpartition(":")
        return name if colon and port.isdigit() else host


HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
NOTES = "interlingua.notes"
GONE = 499  # nginx's number for a client that left before the answer; only the log and the metrics see it


def note(scope: Scope, **facts: Any) -> None:
    """Put facts about the request into its line of the log."""
    scope[NOTES].update(facts)


def audit(scope: Scope, **facts: Any) -> None:
    """Put facts about a write into its audit line."""
    scope[NOTES]["audit"].update(facts)


SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Requests by path and status, their times, the sizes of batches, the queue, connections, the size of the index."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "path")
        self.requests = Counter(
            "interlingua_requests", "Requests answered.", (*labels, "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "interlingua_request_seconds",
            "Time from a request to its answer.",
            labels,
            buckets=SECONDS,
            registry=self.registry,
        )
        self.batches = Histogram(
            "interlingua_batch_texts",
            "Texts that went through the model together.",
            buckets=TEXTS,
            registry=self.registry,
        )
        self.waiting = Gauge("interlingua_waiting_requests", "Requests in the queue.", registry=self.registry)
        self.passages = Gauge("interlingua_passages", "Passages in all indexes.", registry=self.registry)
        self.of_index = Gauge("interlingua_index_passages", "Passages in an index.", ("index",), registry=self.registry)
        self.connections = Gauge("interlingua_connections", "Open connections.", registry=self.registry)
        self.ended = Counter(
            "interlingua_connections_ended",
            "Connections that the server ended itself.",
            ("why",),
            registry=self.registry,
        )
        ProcessCollector(registry=self.registry)

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request. `path` is that of a route, not what a client wrote."""
        self.requests.labels(method, path, str(status)).inc()
        self.seconds.labels(method, path).observe(seconds)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return bytes(generate_latest(self.registry))


class RequestLog:
    """The outermost layer. One JSON line a request, without its texts; an error nobody expected becomes a 500 that
    tells the client nothing, and a traceback in the log. A write, or a try, has an audit line more."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, bytes_sent = perf_counter(), 0, 0
        scope[NOTES] = {}

        async def answer(message: Message) -> None:
            nonlocal status, bytes_sent
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            else:
                bytes_sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, answer)
        except Exception:
            logger.exception(f"{scope['method']} {scope['path'][:200]!r}: unexpected error")
            if not status:
                error = ApiError(500, "internal", "internal error; the server's log has the details.")
                await error_response(error)(scope, receive, answer)
        finally:
            self._write(scope, status or GONE, perf_counter() - start, bytes_sent)

    def _write(self, scope: Scope, status: int, seconds: float, bytes_sent: int) -> None:
        route = scope.get("route")
        path = getattr(route, "path", "") or "other"
        path = path.replace("{index}", scope[NOTES].get("index", "{index}"))  # only names that are served are noted
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.answered(method, path, status, seconds)
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        facts = scope[NOTES].pop("audit", None)
        line = {
            "time": time,
            "method": method,
            "path": scope["path"][:200],
            "status": status,
            "ms": round(seconds * 1e3, 1),
            "sent": bytes_sent,
            **scope[NOTES],
        }
        log(json.dumps(line))
        if facts is not None:
            action = {"POST": "write", "DELETE": "delete"}.get(method, method)
            line = {"audit": action, "time": time, "token": scope[NOTES].get("token"), **facts, "status": status}
            log(json.dumps(line))


class Head:
    """Answers HEAD as GET without the body: probes and caches ask so."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return
        got = {**scope, "method": "GET"}

        async def answer(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        try:
            await self.app(got, receive, answer)
        finally:
            scope.update({**got, "method": "HEAD"})  # the log reads the route that was found


class ReadRest:
    """Lets an answer arrive that is given before the body of its request was read: reads on, up to `max_rest` bytes and
    until `timeout` seconds after the begin, and closes the connection then. Closing one that holds unread bytes resets
    it, and a client that still sends would see the reset instead of the answer."""

    def __init__(self, app: ASGIApp, max_rest: int, timeout: float) -> None:
        self.app, self.max_rest, self.timeout = app, max_rest, timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"]) if scope["type"] == "http" else {}
        if headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers:
            await self.app(scope, receive, send)
            return
        end = asyncio.get_running_loop().time() + self.timeout
        unread, early = True, False
        invited = b"expect" not in headers  # else the client sends the body when it was asked to

        async def hear() -> Message:
            nonlocal unread, invited
            invited = True
            message = await receive()
            unread = message["type"] == "http.request" and message.get("more_body", False)
            return message

        async def answer(message: Message) -> None:
            nonlocal early
            if message["type"] == "http.response.start":
                if early := unread:
                    message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            elif early and not message.get("more_body", False):
                await send({**message, "more_body": True})
                remaining = self.max_rest if invited else 0
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(end):
                        while unread and remaining > 0:
                            remaining -= len((await hear()).get("body", b""))
                message = {"type": "http.response.body"}
            await send(message)

        await self.app(scope, hear, answer)


class WholeBody:
    """Answers 413 to a body of more than `max_body` bytes, at its announced length before any of it is read, and 408 to
    one that is not there after `timeout` seconds. What answers is cancelled when the client leaves."""

    def __init__(self, app: ASGIApp, max_body: int, timeout: float) -> None:
        self.app, self.max_body, self.timeout = app, max_body, timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self.timeout):
                body = await self._read(scope, receive)
        except TimeoutError:
            body = ApiError(408, "timeout", f"the request was not complete after {self.timeout:g} seconds.")
        if isinstance(body, ApiError):
            await error_response(body)(scope, receive, send)
        elif body is not None:
            note(scope, received=len(body))
            await self._answer(body, scope, receive, send)

    async def _read(self, scope: Scope, receive: Receive) -> bytes | ApiError | None:
        """The body, what is wrong with it, or None when the client left."""
        too_large = ApiError(413, "too_large", f"the body is larger than {self.max_body:,} bytes. Send less at once.")
        length = dict(scope["headers"]).get(b"content-length", b"")
        if length.isdigit() and (len(length) > 18 or int(length) > self.max_body):
            return too_large
        parts: list[bytes] = []
        size, more_body = 0, True
        while more_body:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size, more_body = size + len(parts[-1]), message.get("more_body", False)
            if size > self.max_body:
                return too_large
        return b"".join(parts)

    async def _answer(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        replayed, disconnected = False, asyncio.Event()

        async def replay() -> Message:
            nonlocal replayed
            if not replayed:
                replayed = True
                return {"type": "http.request", "body": body, "more_body": False}
            await disconnected.wait()
            return {"type": "http.disconnect"}

        async def leave() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            disconnected.set()

        answer = asyncio.ensure_future(self.app(scope, replay, send))
        disconnect = asyncio.ensure_future(leave())
        try:
            await asyncio.wait((answer, disconnect), return_when=asyncio.FIRST_COMPLETED)
        finally:
            disconnect.cancel()
            if not answer.done():
                answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
        if not answer.cancelled() and (error := answer.exception()) is not None:
            raise error
