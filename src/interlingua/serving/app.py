"""The application, and running it: a port of our own, a printed address, and an orderly end."""

from __future__ import annotations

import ipaddress
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from interlingua import __version__
from interlingua.errors import BadInput
from interlingua.index.index import Index
from interlingua.models.protocols import AnyEncoder
from interlingua.serving.middleware import HostNames, RequestLog, Tokens, WholeBody, log
from interlingua.serving.routes import (
    embedding_routes,
    page_routes,
    passage_routes,
    rerank_routes,
    search_routes,
    status_routes,
)
from interlingua.serving.schemas import ErrorAnswer, tell_errors
from interlingua.serving.service import ServeSettings, Service

REFUSALS = {
    400: "Not possible here, or not JSON",
    401: "The token is missing or wrong",
    403: "Writing is off",
    404: "There is no such thing",
    408: "The request came too slowly",
    413: "The body is too large",
    422: "A field is missing, misspelt or out of its limits, or the question took too much time",
    503: "Too many requests wait; see Retry-After",
    504: "No answer in time",
}
DESCRIPTION = "Search in any language, and the model behind it."


def create_app(index: Index, settings: ServeSettings | None = None, reranker: AnyEncoder | None = None) -> FastAPI:
    """The HTTP API and the page over `index`.

    `reranker` is a model of `load_any`, used by searches that ask for it and by /rerank, which otherwise compares the
    vectors of the index's own model. What the application needs it
    takes when it starts (`with TestClient(app)` in tests).
    """
    service = Service(index, settings or ServeSettings(), reranker)
    app = FastAPI(
        title="interlingua",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=service.life,
        responses={code: {"model": ErrorAnswer, "description": text} for code, text in REFUSALS.items()},
    )
    tell_errors(app, service.told)
    app.include_router(search_routes(service))
    app.include_router(rerank_routes(service))
    app.include_router(embedding_routes(service))
    app.include_router(passage_routes(service))
    app.include_router(status_routes(service, app))
    app.router.routes.extend(page_routes())
    app.add_middleware(WholeBody, max_body=service.settings.max_body, timeout=service.settings.timeout)
    app.add_middleware(Tokens, settings=service.settings)
    app.add_middleware(HostNames, names=service.settings.names)
    app.add_middleware(RequestLog, metrics=service.metrics)  # the last is the outermost
    return app


def bind(host: str, port: int) -> socket.socket:
    """A socket at this address, `port` 0 for any that is free. Raises BadInput where it cannot be had."""
    if not 0 <= port < 1 << 16:
        raise BadInput(f"--port {port}: a port is a number from 0 to 65535.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except (OSError, UnicodeError, OverflowError) as error:
        raise BadInput(f"--host {host} --port {port}: not a valid address ({error}).") from error
    try:
        listener.bind(address)
        listener.listen(socket.SOMAXCONN)  # now, so that another server here fails when it starts
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(
            f"{host} port {port}: cannot listen there ({reason}). Stop what runs there, or choose another with --port."
        ) from error
    return listener


def is_loopback(listener: socket.socket) -> bool:
    """Whether an address is reached from this machine alone."""
    return ipaddress.ip_address(str(listener.getsockname()[0]).partition("%")[0]).is_loopback


def own_name(listener: socket.socket) -> str:
    """The host in its address."""
    host = str(listener.getsockname()[0])
    return f"[{host}]" if ":" in host else host


def address(listener: socket.socket) -> str:
    """The address to type into a browser."""
    return f"http://{own_name(listener)}:{listener.getsockname()[1]}"


class _Server(uvicorn.Server):
    """A server that logs its address when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def run(app: FastAPI, listener: socket.socket, timeout: float) -> None:
    """Answer until SIGINT or SIGTERM; then take nothing new, finish within `timeout` seconds what has begun, return.

    Raises BadInput when the application does not start.
    """
    # h11 also where httptools is installed: it limits how long the head of a request may be
    config = uvicorn.Config(
        app,
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=max(1, round(timeout)),
        lifespan="on",
        ws="none",
        http="h11",
    )
    server = _Server(config, lambda: log(f"{address(listener)}  (Ctrl-C ends it)"))
    # uvicorn raises the signal again when it is done: for SIGTERM that would be an end by signal, not a clean one
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)
        listener.close()
    if not server.started:
        raise BadInput("the server did not start; the lines above say why.")
    log("stopped.")
