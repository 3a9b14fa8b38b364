"""Running the application: a port of our own, a printed address, and an orderly end."""

from __future__ import annotations

import ipaddress
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from interlingua.errors import InterlinguaError
from interlingua.progress import say


def bind(host: str, port: int) -> socket.socket:
    """A socket at this address, `port` 0 for any that is free. Raises InterlinguaError where it cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except (OSError, UnicodeError, OverflowError) as error:
        raise InterlinguaError(f"--host {host} --port {port}: is no address to listen at ({error}).") from error
    try:
        listener.bind(address)
        listener.listen(socket.SOMAXCONN)  # now, so that another server here fails when it starts
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InterlinguaError(f"{host} port {port}: cannot listen there ({reason}). Stop what runs there, or choose "
                               "another with --port.") from error
    return listener


def is_loopback(listener: socket.socket) -> bool:
    """Whether only programs on this machine reach it."""
    return ipaddress.ip_address(str(listener.getsockname()[0]).partition("%")[0]).is_loopback


def own_name(listener: socket.socket) -> str:
    """The host in its address."""
    host = str(listener.getsockname()[0])
    return f"[{host}]" if ":" in host else host


def address(listener: socket.socket) -> str:
    """What to type into a browser."""
    return f"http://{own_name(listener)}:{listener.getsockname()[1]}"


class _Server(uvicorn.Server):
    """Says when it answers."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()


def run(app: FastAPI, listener: socket.socket, timeout: float) -> None:
    """Answer until SIGINT or SIGTERM; then take nothing new, finish within `timeout` seconds what has begun, return.

    Raises InterlinguaError when the application does not start.
    """
    # h11 also where httptools is installed: it limits how long the head of a request may be
    config = uvicorn.Config(app, log_level="error", access_log=False, server_header=False, proxy_headers=False,
                            timeout_graceful_shutdown=max(1, round(timeout)), lifespan="on", ws="none", http="h11")
    server = _Server(config, lambda: say(f"{address(listener)}  (Ctrl-C ends it)"))
    # uvicorn raises the signal again when it is done: for SIGTERM that would be an end by signal, not a clean one
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with suppress(KeyboardInterrupt):
            server.run(sockets=[listener])
    finally:
        signal.signal(signal.SIGTERM, before)
        listener.close()
    if not server.started:
        raise InterlinguaError("the server did not start; the lines above say why.")
    say("stopped.")
