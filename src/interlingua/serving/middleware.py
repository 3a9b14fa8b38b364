"""Around every request: host names, tokens, body limits, log, safety headers."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from datetime import UTC, datetime
from hmac import compare_digest
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlingua.serving.schemas import ApiError, error_response
from interlingua.serving.service import Metrics, ServeSettings

logger = logging.getLogger(__name__)


def log(line: str) -> None:
    """Write a line of the server's own log, which is on standard error whatever messages of the package are shown."""
    print(line, file=sys.stderr, flush=True)


LOCAL = ("localhost", "127.0.0.1", "[::1]")
"""What a server is called that only this machine reaches."""


class HostNames:
    """Answers 400 to requests whose header Host is none of `names`, in any case and with any port; without names, to
    none."""

    def __init__(self, app: ASGIApp, names: tuple[str, ...]) -> None:
        self.app, self._names = app, {name.lower() for name in names}

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


class RequestLog:
    """The outermost layer. One JSON line a request, without its texts; an error nobody expected becomes a 500 that
    tells the client nothing, and a traceback in the log."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status, sent = perf_counter(), 0, 0
        scope[NOTES] = {}

        async def answer(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *HEADERS]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, answer)
        except Exception:
            logger.exception(f"{scope['method']} {scope['path'][:200]!r}: unexpected error")
            if not status:
                error = ApiError(500, "internal", "internal error; the server's log has the details.")
                await error_response(error)(scope, receive, answer)
        finally:
            self._write(scope, status or GONE, perf_counter() - start, sent)

    def _write(self, scope: Scope, status: int, seconds: float, sent: int) -> None:
        route = scope.get("route")
        path = getattr(route, "path", "") or "other"
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.answered(method, path, status, seconds)
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "method": method,
            "path": scope["path"][:200],
            "status": status,
            "ms": round(seconds * 1e3, 1),
            "sent": sent,
            **scope[NOTES],
        }
        log(json.dumps(line))


WRITING = "/passages"
READING = ("/search", "/passages/", "/v1/", "/v2/", "/rerank", "/info", "/metrics", "/openapi.json", "/docs")
"""What needs a token when one for reading is set. The page and /health show nothing of the index."""


class Tokens:
    """Answers 401 without the right token, and 403 to writing where no token is set. `settings.token` may do all."""

    def __init__(self, app: ASGIApp, settings: ServeSettings) -> None:
        self.app = app
        self._write = settings.token.encode()
        self._read = settings.read_token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refused(scope) if scope["type"] == "http" else None
        if refused is None:
            await self.app(scope, receive, send)
        else:
            await error_response(refused)(scope, receive, send)

    def _refused(self, scope: Scope) -> ApiError | None:
        path = scope["path"]
        writes = path == WRITING or (path.startswith(f"{WRITING}/") and scope["method"] != "GET")
        if writes:
            if not self._write:
                return ApiError(
                    403,
                    "writing_off",
                    "this server was started without a token, so nobody may write. "
                    "Start it with --token-file or INTERLINGUA_TOKEN.",
                )
            allowed = [self._write]
        elif self._read and path.startswith(READING):
            allowed = [self._write, self._read]
        else:
            return None
        kind, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        right = [compare_digest(given.strip(), token) for token in allowed]
        if kind.lower() == b"bearer" and any(right):
            return None
        return ApiError(
            401, "unauthorized", "this needs the header Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"}
        )


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
            body.headers["Connection"] = "close"  # what is left of the body is not read
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
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size, more = size + len(parts[-1]), message.get("more_body", False)
            if size > self.max_body:
                return too_large
        return b"".join(parts)

    async def _answer(self, body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        told, gone = False, asyncio.Event()

        async def replay() -> Message:
            nonlocal told
            if not told:
                told = True
                return {"type": "http.request", "body": body, "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def leave() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            gone.set()

        answer = asyncio.ensure_future(self.app(scope, replay, send))
        left = asyncio.ensure_future(leave())
        try:
            await asyncio.wait((answer, left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            left.cancel()
            if not answer.done():
                answer.cancel()
        await asyncio.gather(answer, return_exceptions=True)
        if not answer.cancelled() and (error := answer.exception()) is not None:
            raise error
