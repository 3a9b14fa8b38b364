"""A collection of Milvus: its address, columns and conditions."""

from __future__ import annotations

import json
import logging
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage
from interlingua.errors import BadInput, NotFound, suggestion
from interlingua.index.filters import VALUES, Condition, Filter, Kind, Values, folded
from interlingua.retrieval.late_interaction.static import MOST
from interlingua.text.languages import is_unicode

FUSIONS = ("local", "rrf")
TOKEN = "MILVUS_TOKEN"
_FORMS = (
    "milvus://host:port/collection, milvus:https://host:port/collection, or milvus:folder/file.db/collection for "
    "Milvus Lite"
)
_SERVER = re.compile(
    r"milvus:(?P<tls>https:)?//(?P<host>[\w.-]+|\[[0-9a-fA-F:]+\])(:(?P<port>\d{1,5}))?"
    r"/(?P<name>[^/]*)"
)
_connections: Counter[str] = Counter()
"""Connections of this process to each file of Milvus Lite, whose server ends with the last of them."""
_connecting = Lock()
_FILE = re.compile(r"milvus:(?!//|https:)(?P<file>.+\.db)/(?P<name>[^/]*)")


@dataclass(frozen=True)
class Address:
    """`uri` is what the client connects to, a file where `local`; `name` what the collection is called there. `fusion`
    says who ranks hybrid results (see `MilvusStore`)."""

    uri: str
    name: str
    local: bool
    fusion: str = "local"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read `milvus://host:port/collection`, `milvus:https://…` or `milvus:file.db/collection`, with `?fusion=rrf`
        or without. Raises BadInput for anything else; a token belongs into the environment, not in here."""
        place, _, option = text.partition("?")
        key, _, fusion = option.partition("=") if option else ("fusion", "", FUSIONS[0])
        if key != "fusion" or fusion not in FUSIONS:
            raise BadInput(
                f"'{option}': the one option of an address is fusion={' or fusion='.join(FUSIONS)}."
                f"{suggestion(fusion, FUSIONS)}"
            )
        if "@" in place:
            raise BadInput(
                f"an address of Milvus holds no user or token: put the token into {TOKEN} in the environment."
            )
        if parts := _SERVER.fullmatch(place):
            scheme, port = ("https" if parts["tls"] else "http"), parts["port"] or ("443" if parts["tls"] else "19530")
            return cls(f"{scheme}://{parts['host']}:{port}", _checked(parts["name"]), False, fusion)
        if parts := _FILE.fullmatch(place):
            return cls(parts["file"], _checked(parts["name"]), True, fusion)
        raise BadInput(f"'{text}': is no address of a collection. Write {_FORMS}.")

    def __str__(self) -> str:
        return f"milvus:{self.uri.removeprefix('http:')}/{self.name}"


def connect(address: Address) -> Any:
    """A client. The token comes from the environment (`MILVUS_TOKEN`). Raises BadInput without the extra
    `milvus`, and where nobody answers."""
    try:
        from pymilvus import MilvusClient  # type: ignore[import-untyped]
    except ImportError:
        raise NotFound("Milvus needs pymilvus: pip install 'interlingua[milvus]'") from None
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
        from milvus_lite.server_manager import server_manager_instance

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
    """Turn errors of Milvus into BadInput, with one line of text."""
    from pymilvus.exceptions import MilvusException  # type: ignore[import-untyped]

    try:
        yield
    except MilvusException as error:
        message = " ".join(str(error.message).split())[:300].rstrip(".")
        if address.local and "Open local" in message:
            raise BadInput(
                f"{address.uri}: Milvus Lite cannot open it. It serves one process at a time: end "
                "the other one, or keep the index on a Milvus server."
            ) from error
        raise BadInput(f"{address}: Milvus says: {message}.") from error


def _checked(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z_]\w{0,199}", name, re.ASCII):
        raise BadInput(f"'{name}': a collection's name has letters, digits and _, and begins with no digit.")
    return name


LONGEST = 65_535  # bytes of a VARCHAR
LONGEST_TAG, MOST_TAGS = 4_096, 256
PASSAGE = ["id", "lang", "title", "text", "tags"]
"""The columns that a passage is made of. `tags` holds its metadata, each entry as the JSON list [key, value]."""


def schema(client: Any, dim: int) -> Any:
    """`number` (key), the passage, `length` (terms), `vector` float32 [dim], `sparse` (BM25), `subwords`."""
    from pymilvus import DataType  # type: ignore[import-untyped]

    columns = client.create_schema(auto_id=False, enable_dynamic_field=False)
    columns.add_field("number", DataType.INT64, is_primary=True)
    for name in PASSAGE[:-1]:
        columns.add_field(name, DataType.VARCHAR, max_length=LONGEST)
    columns.add_field(
        "tags", DataType.ARRAY, element_type=DataType.VARCHAR, max_capacity=MOST_TAGS, max_length=LONGEST_TAG
    )
    columns.add_field("length", DataType.INT64)
    columns.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
    columns.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
    columns.add_field("subwords", DataType.ARRAY, element_type=DataType.INT32, max_capacity=MOST)
    return columns


def indexes(client: Any, local: bool) -> Any:
    """The indexes for Milvus to build: exact dense search in Milvus Lite, its own choice of an approximate one on a
    server; inverted lists for the sparse vectors and for what results are narrowed by."""
    params = client.prepare_index_params()
    params.add_index("vector", index_type="FLAT" if local else "AUTOINDEX", metric_type="IP")
    params.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    for name in ("id", "lang") if local else ("id", "lang", "tags"):  # Lite has none for arrays, and looks at each row
        params.add_index(name, index_type="INVERTED")
    return params


def row_of(
    number: int,
    passage: Passage,
    length: int,
    vector: NDArray[np.float32],
    sparse: Mapping[int, float],
    subwords: Sequence[int],
) -> dict[str, Any]:
    """The row of a passage. Raises BadInput, naming it, for what Milvus has no room for."""
    tags = [tag(key, value) for key, value in sorted(passage.metadata.items())]
    for name in PASSAGE[:-1]:
        _fits(passage, name, getattr(passage, name), LONGEST)
    for entry in tags:
        _fits(passage, "metadata", entry, LONGEST_TAG)
    if len(tags) > MOST_TAGS:
        raise BadInput(
            f"passage {passage.id!a}: has {len(tags)} entries of metadata, of which Milvus keeps {MOST_TAGS}."
        )
    return {
        "number": number,
        "id": passage.id,
        "lang": passage.lang,
        "title": passage.title,
        "text": passage.text,
        "tags": tags,
        "length": length,
        "vector": vector,
        "sparse": dict(sparse),
        "subwords": list(subwords),
    }


def passage_of(row: Mapping[str, Any]) -> Passage:
    """The passage that `row_of` wrote."""
    return Passage(row["id"], row["text"], row["title"], row["lang"], dict(json.loads(entry) for entry in row["tags"]))


def source_of(row: Mapping[str, Any]) -> str:
    """The source of the passage in a row."""
    return passage_of({"text": "", "title": "", "lang": "", **row}).source


def tag(key: str, value: str) -> str:
    """An entry of metadata as one string, from which it can be read back."""
    return json.dumps([key, value], ensure_ascii=False)


def condition(
    langs: Iterable[str] | None, where: Filter | None, values: Callable[[str], Iterable[Values]] | None = None
) -> str:
    """The condition for passages in one of `langs` (None: any) that fit `where` (None: any); "" for none.

    `values` of a key are asked for where there is a range: Milvus looks for those that are within. Raises
    BadInput where these are too many.
    """

    def leaf(one: Condition) -> str:
        texts: Sequence[str] = one.values
        if one.bounds:
            parts = [] if values is None else values(one.key)
            texts = [part.texts[place] for part in parts for place in np.flatnonzero(one.holds(part)).tolist()]
        if len(texts) > VALUES:
            raise BadInput(
                f"filter by '{one.key}': {len(texts):,} values are within the range, and Milvus is asked for at most "
                f"{VALUES:,}. Narrow it."
            )
        tags = _list(tag(one.key, value) for value in texts)
        return f"array_contains_any(tags, {tags})" if texts else "number < 0"

    parts = [] if langs is None else [f"lang in {_list(langs)}"]
    parts += [] if where is None else [folded(where, leaf, CONDITIONS)]
    return " and ".join(parts)


CONDITIONS: Mapping[Kind, Callable[[list[str]], str]] = {
    "all": lambda parts: f"({' and '.join(parts)})",
    "any": lambda parts: f"({' or '.join(parts)})",
    "not": lambda parts: f"(not {parts[0]})",
}


def with_ids(ids: Sequence[str]) -> str:
    """The condition for passages with these ids. (The client's own `ids=` puts them between quotes unescaped.)"""
    return f"id in {_list(ids)}"


def literal(text: str) -> str:
    """`text` as a string in a condition, whatever is in it: nothing in it can end the string.

    Only escapes are used that both the server and Milvus Lite read; all other characters stand for themselves.
    Raises BadInput for half a surrogate pair, which cannot be sent.
    """
    if not is_unicode(text):
        raise BadInput(f"{text!a}: is not valid Unicode, so nothing can be looked up by it.")
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
        text = text.replace(plain, escaped)
    return f'"{text}"'


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(literal, texts))}]"


def _fits(passage: Passage, name: str, text: str, limit: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise BadInput(f"passage {passage.id!a}: its {name} is not valid Unicode.") from None
    if size > limit:
        raise BadInput(
            f"passage {passage.id!a}: its {name} has {size:,} bytes, Milvus keeps {limit:,}. Cut the "
            "passage into shorter ones."
        )
