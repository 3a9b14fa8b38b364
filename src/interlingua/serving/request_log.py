"""Around every request: its line in the log, its count in the metrics, the safety headers of its answer."""

from __future__ import annotations

import json
import traceback
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlingua.progress import say
from interlingua.serving.errors import ApiError, error_response
from interlingua.serving.metrics import Metrics

HEADERS = (
    (b"content-security-policy", b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
                                 b"object-src 'none'"),
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
            say(traceback.format_exc())
            if not status:
                error = ApiError(500, "internal", "something went wrong here; the server's log says what.")
                await error_response(error)(scope, receive, answer)
        finally:
            self._write(scope, status or GONE, perf_counter() - start, sent)

    def _write(self, scope: Scope, status: int, seconds: float, sent: int) -> None:
        route = scope.get("route")
        path = getattr(route, "path", "") or "other"
        method = scope["method"] if scope["method"] in METHODS else "other"
        self.metrics.answered(method, path, status, seconds)
        line = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "method": method,
                "path": scope["path"][:200], "status": status, "ms": round(seconds * 1e3, 1),
                "sent": sent, **scope[NOTES]}
        say(json.dumps(line))
