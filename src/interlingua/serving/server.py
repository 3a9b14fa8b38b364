"""The network side of the server: a port, connections within limits, TLS, a printed address, and an orderly end.

uvicorn speaks HTTP/1.1 with each client. `Server` accepts the connections itself, because uvicorn has no limit on
those that ask for nothing, and `Connection` adds to uvicorn's protocol a deadline for the head of a request.
"""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import logging
import resource
import signal
import socket
import ssl
from collections import Counter
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI

from interlingua.errors import BadInput, NotFound
from interlingua.serving.access import network
from interlingua.serving.middleware import HEADERS, Metrics, log
from interlingua.serving.schemas import ApiError, error_response
from interlingua.serving.service import ServeSettings

try:
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise NotFound(f"serving needs another version of uvicorn ({error}): pip install 'interlingua[serve]'.") from error

logger = logging.getLogger(__name__)

OVERRIDDEN = ("connection_made", "connection_lost", "data_received", "on_response_complete", "send_400_response")
"""The methods of uvicorn's protocol that `Connection` extends."""
for name in OVERRIDDEN:
    if not hasattr(H11Protocol, name):
        raise NotFound(
            f"serving needs another version of uvicorn than {uvicorn.__version__}, whose HTTP protocol has no {name}: "
            "pip install 'interlingua[serve]'."
        )

LINGER = 2.0
"""Seconds for which a refused client may still send: closing before that could destroy the answer on its way."""


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


def address(listener: socket.socket, *, tls: bool = False) -> str:
    """The address to type into a browser."""
    return f"http{'s' if tls else ''}://{own_name(listener)}:{listener.getsockname()[1]}"


def tls_context(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """The certificate (with its chain) and the private key, both in PEM; None without a certificate. A key in the
    file of the certificate needs no file of its own. Raises BadInput for files that cannot be used."""
    if certificate is None:
        if key is not None:
            raise BadInput("--tls-key: needs the certificate beside it. Give --tls-cert FILE.")
        return None
    for option, file in (("--tls-cert", certificate), ("--tls-key", key)):
        if file is not None:
            try:
                with open(file, "rb"):
                    pass
            except OSError as error:
                raise BadInput(f"{option} {file}: cannot be read ({error.strerror}).") from error

    def password() -> str:
        raise BadInput(
            f"{'--tls-key' if key else '--tls-cert'} {key or certificate}: the private key is encrypted. "
            "Decrypt it with `openssl pkey -in FILE -out NEW`."
        )

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        files = f"--tls-cert {certificate}" + (f" --tls-key {key}" if key else "")
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BadInput(f"{files}: the private key does not belong to the certificate.") from error
        raise BadInput(
            f"{files}: not a certificate and its private key in PEM. "
            + ("Look into both files." if key else "Where the key has a file of its own, name it with --tls-key.")
        ) from error
    return context


def connection_limit(wanted: int) -> int:
    """`wanted`, or half of the files that this process may have open where that is less: the index needs some too."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if files == resource.RLIM_INFINITY or files // 2 >= wanted:
        return wanted
    logger.warning(
        f"warning: {files // 2} connections at once instead of {wanted}, since this process may open only {files} "
        "files (ulimit -n)."
    )
    return max(1, files // 2)


class Connection(H11Protocol):
    """HTTP/1.1 with one client, which has `settings.head_timeout` seconds for the head of each request. What it sends
    that is not HTTP is refused in the form of all errors.

    A client with `refusal` gets that instead of an answer.
    """

    opening: asyncio.Task[None]
    """Connects it: the TLS handshake."""

    def __init__(self, server: Server, client: str, refusal: ApiError | None) -> None:
        super().__init__(config=server.config, server_state=server.server_state, app_state=server.lifespan.state)
        self.of, self.open, self.settings, self.metrics = client, server.open, server.settings, server.metrics
        self.refusal, self.connected = refusal, False
        self._head: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> bool:
        """Whether the client owes something: the handshake, a request or the rest of one, or to leave."""
        if not self.connected:
            return True
        if self.transport.get_write_buffer_size():
            return False
        return (
            self.refusal is not None
            or self.transport.is_closing()
            or self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        )

    def turn_out(self) -> None:
        """End it at once, so that another may come."""
        self.metrics.ended.labels("for_another").inc()
        if not self.connected:
            self.opening.cancel()
            return
        begun = self.conn.trailing_data[0] or self.conn.their_state is h11.SEND_BODY
        if begun and self.refusal is None and self.transport.can_write_eof():
            self._tell(ApiError(503, "overloaded", "the server is full, and this request was not complete. Try again."))
            self.transport.close()
        else:
            self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.connected = True
        if self.refusal is not None:
            self._refuse(self.refusal, "too_many")
        else:
            self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self.refusal is None:
            super().data_received(data)
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head, self._reading):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        self.open.remove(self)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.open.again(self)
        if self.refusal is None:  # else the clock for its end runs
            if self._reading is not None:
                self._reading.cancel()  # of an earlier answer, which had another size
            self._watch_reading(self.transport.get_write_buffer_size())

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(
            ApiError(400, "bad_request", "this is not HTTP/1.1, or its headers have more than 16 KiB."), "not_http"
        )

    def _expect_head(self) -> None:
        """Start the clock when the client begins a request, and stop it when the head is complete."""
        incomplete = self.conn.their_state is h11.IDLE and self.refusal is None
        if incomplete and self._head is None:
            self._head = self.loop.call_later(self.settings.head_timeout, self._too_slow)
        elif not incomplete and self._head is not None:
            self._head.cancel()
            self._head = None

    def _too_slow(self) -> None:
        if not self.conn.trailing_data[0]:
            self.metrics.ended.labels("silent").inc()
            self.transport.abort()
            return
        seconds = self.settings.head_timeout
        self._refuse(
            ApiError(408, "timeout", f"the headers were not complete after {seconds:g} seconds."), "slow_headers"
        )

    def _refuse(self, error: ApiError, why: str) -> None:
        """Answer with an error and close. What the client still sends is discarded for `LINGER` seconds."""
        self.refusal = error
        self.metrics.ended.labels(why).inc()
        self._expect_head()
        idle = self.conn.our_state is h11.IDLE
        self._tell(error)
        if idle and self.transport.can_write_eof():
            self.transport.write_eof()
            if self._reading is not None:
                self._reading.cancel()
            self._reading = self.loop.call_later(LINGER, self.transport.abort)
        else:
            self.transport.close()

    def _tell(self, error: ApiError) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer has begun already
            self.transport.write(plain(error))

    def _watch_reading(self, before: int) -> None:
        """Give a client up that reads nothing of its answer for `settings.timeout` seconds."""

        def look() -> None:
            now = self.transport.get_write_buffer_size()
            if now >= before:
                self.metrics.ended.labels("unread_answer").inc()
                self.transport.abort()
            else:
                self._watch_reading(now)

        self._reading = self.loop.call_later(self.settings.timeout, look) if before else None


def plain(error: ApiError) -> bytes:
    """An error as the bytes of an HTTP answer, after which the connection ends."""
    answer = error_response(error)
    headers = [*answer.raw_headers, *HEADERS, (b"connection", b"close")]
    lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode(), *map(b": ".join, headers), b""]
    return b"\r\n".join([*lines, bytes(answer.body)])


class Connections:
    """All that are open, those that have waited longest for their client first. At the limit a new one takes the
    place of the first that `waiting`; requests that are being answered are left alone."""

    def __init__(self, limit: int, per_address: int) -> None:
        self.limit, self.per_address = limit, per_address
        self._all: dict[Connection, None] = {}
        self._of: Counter[str] = Counter()
        self._news = asyncio.Event()

    def __len__(self) -> int:
        return len(self._all)

    async def make_room(self, client: str) -> ApiError | None:
        """Return when there is room for one more of `client`, with the error to tell it if it has too many already."""
        full = self._of[client] >= self.per_address and not self.turn_out(client)
        while len(self._all) >= self.limit and not self.turn_out():
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):  # a client that has read its answer is no news
                    await self._news.wait()
        if not full:
            return None
        message = f"{self.per_address} requests of this address are being answered already. Try again in a second."
        return ApiError(503, "overloaded", message, {"Retry-After": "1"})

    def turn_out(self, client: str | None = None) -> bool:
        """End the one that has waited longest, of `client` if it is given. False where none waits."""
        for connection in self._all:
            if (client is None or connection.of == client) and connection.waiting:
                connection.turn_out()
                self.remove(connection)
                return True
        return False

    def add(self, one: Connection) -> None:
        """A new connection."""
        self._all[one] = None
        self._of[one.of] += 1

    def again(self, one: Connection) -> None:
        """A connection that waits for its next request from now on."""
        if one in self._all:
            del self._all[one]
            self._all[one] = None
        self._news.set()

    def remove(self, one: Connection) -> None:
        """A connection that has ended, or will at once."""
        if one in self._all:
            del self._all[one]
            self._of[one.of] -= 1
            if not self._of[one.of]:
                del self._of[one.of]
        self._news.set()

    def cancel_handshakes(self) -> None:
        """End those that are not connected yet."""
        for connection in list(self._all):
            if not connection.connected:
                connection.opening.cancel()


class Server(uvicorn.Server):
    """Answers at `listener` for an application of `create_app`, within the limits of `settings`, and logs its address
    when it is ready.

    `server.run()` returns after a signal, or when `should_exit` was set.
    """

    lifespan: Any

    def __init__(
        self, app: FastAPI, listener: socket.socket, settings: ServeSettings, tls: ssl.SSLContext | None = None
    ) -> None:
        # h11 also where httptools is installed: it limits how long the head of a request may be
        config = uvicorn.Config(
            app,
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=max(1, round(settings.timeout)),
            lifespan="on",
            ws="none",
            http="h11",
        )
        super().__init__(config)
        self.listener, self.settings, self.tls = listener, settings, tls
        self.metrics: Metrics = app.state.metrics
        limit = connection_limit(settings.connections)
        self.open = Connections(limit, settings.connections_per_address or max(1, limit // 2))
        self.metrics.connections.set_function(lambda: len(self.open))
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup([])
        if self.started:
            gc.collect()
            gc.freeze()  # without what stays to the end, no full collection stops all threads for a fifth of a second
            self._accepting = asyncio.create_task(self._accept())
            log(f"{address(self.listener, tls=self.tls is not None)}  (Ctrl-C ends it)")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._accepting is not None:
            self._accepting.cancel()
            with suppress(asyncio.CancelledError):
                await self._accepting
        self.open.cancel_handshakes()
        await super().shutdown([self.listener])

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        self.listener.setblocking(False)
        while True:
            try:
                accepted, (host, *_) = await loop.sock_accept(self.listener)
            except OSError:  # no file is left to open, say
                self.open.turn_out()
                await asyncio.sleep(0.05)
                continue
            try:
                client = network(host)
                connection = Connection(self, client, await self.open.make_room(client))
            except BaseException:
                accepted.close()
                raise
            self.open.add(connection)
            connection.opening = loop.create_task(self._connect(connection, accepted))
            connection.opening.add_done_callback(partial(self._connected, connection, accepted))
            await asyncio.sleep(0)  # where many wait, accepting does not, and others have their turn here

    async def _connect(self, connection: Connection, accepted: socket.socket) -> None:
        limits = {"ssl_handshake_timeout": self.settings.head_timeout, "ssl_shutdown_timeout": LINGER}
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: connection, accepted, ssl=self.tls, **(limits if self.tls else {})
        )

    def _connected(self, connection: Connection, accepted: socket.socket, opening: asyncio.Task[None]) -> None:
        if opening.cancelled() or (error := opening.exception()) is not None:
            accepted.close()
            self.open.remove(connection)
            if opening.cancelled():
                return
            self.metrics.ended.labels("no_tls").inc()
            if not isinstance(error, OSError):  # else the client left, was too slow or speaks no TLS
                logger.error("a connection failed", exc_info=error)


def run(app: FastAPI, listener: socket.socket, settings: ServeSettings, tls: ssl.SSLContext | None = None) -> None:
    """Answer until SIGINT or SIGTERM; then take nothing new, finish within `settings.timeout` seconds what has begun,
    return.

    Raises BadInput when the application does not start.
    """
    server = Server(app, listener, settings, tls)
    # uvicorn raises the signal again when it is done: for SIGTERM that would be an end by signal, not a clean one
    previous_handler = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        with suppress(KeyboardInterrupt):
            server.run()
    finally:
        signal.signal(signal.SIGTERM, previous_handler)
        listener.close()
    if not server.started:
        raise BadInput("the server did not start; the lines above say why.")
    log("stopped.")
