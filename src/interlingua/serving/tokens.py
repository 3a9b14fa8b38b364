"""Who may do what: bearer tokens, looked at before a body is read."""

from __future__ import annotations

from hmac import compare_digest

from starlette.types import ASGIApp, Receive, Scope, Send

from interlingua.serving.errors import ApiError, error_response
from interlingua.serving.settings import ServeSettings

WRITING = "/passages"
READING = ("/search", "/v1/", "/rerank", "/info", "/metrics", "/openapi.json", "/docs")
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
        if path == WRITING or path.startswith(f"{WRITING}/"):
            if not self._write:
                return ApiError(403, "writing_off", "this server was started without a token, so nobody may write. "
                                "Start it with --token-file or INTERLINGUA_TOKEN.")
            allowed = [self._write]
        elif self._read and path.startswith(READING):
            allowed = [self._write, self._read]
        else:
            return None
        kind, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        right = [compare_digest(given.strip(), token) for token in allowed]
        if kind.lower() == b"bearer" and any(right):
            return None
        return ApiError(401, "unauthorized", "this needs the header Authorization: Bearer TOKEN.",
                        {"WWW-Authenticate": "Bearer"})
