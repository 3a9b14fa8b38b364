"""Where a collection of Milvus is, and a connection to it."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from interlingua.errors import InterlinguaError, suggestion

FUSIONS = ("local", "rrf")
TOKEN = "MILVUS_TOKEN"
_FORMS = ("milvus://host:port/collection, milvus:https://host:port/collection, or milvus:folder/file.db/collection for "
          "Milvus Lite")
_SERVER = re.compile(r"milvus:(?P<tls>https:)?//(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\])(:(?P<port>\d{1,5}))?"
                     r"/(?P<name>[^/]*)")
_connections: Counter[str] = Counter()
"""Connections of this process to each file of Milvus Lite, whose server ends with the last of them."""
_connecting = Lock()
_FILE = re.compile(r"milvus:(?!//|https:)(?P<file>.+\.db)/(?P<name>[^/]*)")


@dataclass(frozen=True)
class Address:
    """`uri` is what the client connects to, a file where `local`; `name` what the collection is called there. `fusion`
    says who ranks hybrid results (see `MilvusIndex`)."""

    uri: str
    name: str
    local: bool
    fusion: str = "local"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `milvus://host:port/collection`, `milvus:https://…` or `milvus:file.db/collection`, with `?fusion=rrf`
        or without. Raises InterlinguaError for anything else; a token belongs into the environment, not in here."""
        place, _, option = text.partition("?")
        key, _, fusion = option.partition("=") if option else ("fusion", "", FUSIONS[0])
        if key != "fusion" or fusion not in FUSIONS:
            raise InterlinguaError(f"'{option}': the one option of an address is fusion={' or fusion='.join(FUSIONS)}."
                                   f"{suggestion(fusion, FUSIONS)}")
        if "@" in place:
            raise InterlinguaError(f"an address of Milvus holds no user or token: put the token into {TOKEN} in the "
                                   "environment.")
        if found := _SERVER.fullmatch(place):
            scheme, port = ("https" if found["tls"] else "http"), found["port"] or ("443" if found["tls"] else "19530")
            return cls(f"{scheme}://{found['host']}:{port}", _checked(found["name"]), False, fusion)
        if found := _FILE.fullmatch(place):
            return cls(found["file"], _checked(found["name"]), True, fusion)
        raise InterlinguaError(f"'{text}': is no address of a collection. Write {_FORMS}.")

    def __str__(self) -> str:
        return f"{self.uri}/{self.name}"


def connect(address: Address) -> Any:
    """A client. The token comes from the environment (`MILVUS_TOKEN`). Raises InterlinguaError without the extra
    `milvus`, and where nobody answers."""
    try:
        from pymilvus import MilvusClient  # type: ignore[import-untyped]
    except ImportError:
        raise InterlinguaError("Milvus needs pymilvus: pip install 'interlingua[milvus]'") from None
    # All log what they also raise, with a traceback; Milvus Lite's server, also each call that it does not know.
    for name in ("pymilvus", "milvus_lite", "grpc._server") if address.local else ("pymilvus",):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with plain_errors(address), _connecting:
        client = MilvusClient(uri=address.uri, token=os.environ.get(TOKEN, ""))
        if address.local:
            _connections[os.path.abspath(address.uri)] += 1
    return client


def disconnect(address: Address, client: Any) -> None:
    """End a connection. With the last one to a file of Milvus Lite another process may open the file."""
    client.close()
    if address.local:
        from milvus_lite import server_manager_instance

        file = os.path.abspath(address.uri)
        with _connecting:
            _connections[file] -= 1
            if not _connections[file]:
                server_manager_instance.release_server(file)


@contextmanager
def connected(address: Address) -> Iterator[Any]:
    """A client (`connect`) that stays connected after the block, unless the block raises."""
    client = connect(address)
    try:
        yield client
    except BaseException:
        disconnect(address, client)
        raise


@contextmanager
def plain_errors(address: Address) -> Iterator[None]:
    """What Milvus raises, as one line."""
    from pymilvus.exceptions import MilvusException  # type: ignore[import-untyped]

    try:
        yield
    except MilvusException as error:
        told = " ".join(str(error.message).split())[:300].rstrip(".")
        if address.local and "Open local" in told:
            raise InterlinguaError(f"{address.uri}: Milvus Lite cannot open it. It serves one process at a time: end "
                                   "the other one, or keep the index on a Milvus server.") from error
        raise InterlinguaError(f"{address}: Milvus says: {told}.") from error


def _checked(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w{0,199}", name, re.ASCII):
        raise InterlinguaError(f"'{name}': a collection's name has letters, digits and _, and begins with no digit.")
    return name
