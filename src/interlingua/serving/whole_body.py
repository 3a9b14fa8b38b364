"""A request's body is read before anything looks at it: no longer than allowed, no slower than allowed."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from interlingua.serving.errors import ApiError, error_response
from interlingua.serving.request_log import note


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
