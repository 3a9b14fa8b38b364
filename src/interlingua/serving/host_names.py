"""Under which names the server answers. A page of another site whose name was made to point to this machine (DNS
rebinding) could read everything here through the visitor's browser; its requests carry that site's name."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from interlingua.serving.errors import ApiError, error_response

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
            error = ApiError(400, "unknown_host", "this server does not answer under that name. Use the address that "
                             "it printed when it started, or start it with --name NAME.")
            await error_response(error)(scope, receive, send)

    def _called(self, scope: Scope) -> str:
        host: str = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
        name, colon, port = host.rpartition(":")
        return name if colon and port.isdigit() else host
