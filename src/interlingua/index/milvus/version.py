"""An index in Milvus: a collection of passages, one of term counts beside it, and an alias that makes both current.

The alias has the name of the index; the collections are called `{name}_v1` and `{name}_v1_terms`, `_v2` after the next
build, and so on. Changing the alias replaces a whole index at once, while it is searched.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import BadInput, NotFound, Stale
from interlingua.index.milvus.collection import Address, indexes, plain_errors, schema, with_ids

IndexRecord = dict[str, Any]
"""The record of an index in Milvus: its metadata, and the counts that BM25 needs."""
SLICE = 256  # rows sent or read at a time: the longest texts still fit into one message
NUMBERS = 8_192  # term counts asked for or sent at a time; a query of Milvus returns 16,384 rows at most
_ABOUT = 0
"""The row of the term counts that holds the record of the index; no term has this number."""


class IndexVersion:
    """The collections of one version of the index at `address`. One writer at a time: Milvus keeps none away."""

    def __init__(self, address: Address, client: Any, place: str) -> None:
        self.address, self.client, self.place, self.terms = address, client, place, f"{place}_terms"

    @classmethod
    def current(cls, address: Address, client: Any, known: IndexVersion | None = None) -> IndexVersion:
        """The version that the alias names, loaded: `known` if it is that one. Raises BadInput where there is
        none."""
        place = alias_of(address, client)
        if place is None:
            raise NotFound(f"{address}: there is no such index. Make one with `interlingua index`.")
        return known if known is not None and known.place == place else cls(address, client, place).load()

    @classmethod
    def create(cls, address: Address, client: Any, dim: int) -> IndexVersion:
        """A new version, which no alias names yet."""
        # a stopped writer may have left one of the two collections alone
        places = (name.removesuffix("_terms") for name in client.list_collections())
        versions = [int(match[1]) for match in map(_version(address.name), places) if match]
        store = cls(address, client, f"{address.name}_v{max(versions, default=0) + 1}")
        with plain_errors(address):
            counts = client.create_schema(auto_id=False, enable_dynamic_field=False)
            from pymilvus import DataType  # type: ignore[import-untyped]

            for name, kind in (
                ("number", DataType.INT64),
                ("found_in", DataType.INT64),
                ("round", DataType.INT64),
                ("about", DataType.JSON),
            ):
                counts.add_field(name, kind, is_primary=name == "number")
            counts.add_field("unused", DataType.FLOAT_VECTOR, dim=2)  # Milvus makes no collection without a vector
            unused = client.prepare_index_params()
            unused.add_index("unused", index_type="FLAT", metric_type="IP")
            for name, columns, params in (
                (store.terms, counts, unused),
                (store.place, schema(client, dim), indexes(client, address.local)),
            ):
                client.create_collection(name, schema=columns, index_params=params, consistency_level="Strong")
        return store

    @classmethod
    def unfinished(cls, address: Address, client: Any) -> list[IndexVersion]:
        """Versions, loaded, that a build which was stopped has left. Collections of others are not among them."""
        with plain_errors(address):
            names = set(client.list_collections())
        current = alias_of(address, client)
        places = [name for name in sorted(names) if _version(address.name)(name) and f"{name}_terms" in names]
        return [cls(address, client, place).load() for place in places if place != current]

    def load(self) -> IndexVersion:
        """Let Milvus load both collections, which it searches only then: Milvus Lite has loaded none that another
        process made."""
        with plain_errors(self.address):
            for name in (self.place, self.terms):
                self.client.load_collection(name)
        return self

    def publish(self) -> None:
        """Let the alias name this version, and drop the one that it named before."""
        before = alias_of(self.address, self.client)
        with plain_errors(self.address):
            if before is None:
                self.client.create_alias(self.place, self.address.name)
            else:
                self.client.alter_alias(self.place, self.address.name)
        if before is not None:
            IndexVersion(self.address, self.client, before).drop()

    def drop(self) -> None:
        """Remove both collections."""
        with plain_errors(self.address):
            for name in (self.place, self.terms):
                self.client.drop_collection(name)

    def about(self) -> IndexRecord:
        """The record of the index: metadata and counts; empty before the first `write_about`."""
        return self.look_up([])[0]

    def look_up(self, numbers: Sequence[int]) -> tuple[IndexRecord, dict[int, int]]:
        """The record of the index, and the number of passages that hold each of these terms (terms that none holds are
        left out)."""
        about: IndexRecord = {}
        counts: dict[int, int] = {}
        for start in range(0, max(1, len(numbers)), NUMBERS):
            batch = [_ABOUT, *numbers[start : start + NUMBERS]]
            for row in self._query(self.terms, f"number in {batch}", ["number", "found_in", "about"]):
                if row["number"] == _ABOUT:
                    about = row["about"]
                else:
                    counts[row["number"]] = row["found_in"]
        return about, counts

    def write_about(self, about: IndexRecord) -> None:
        """Replace the record of the index."""
        with plain_errors(self.address):
            self.client.upsert(self.terms, [_count(_ABOUT, 0, 1 << 62, about)])

    def write_counts(self, found_in: Mapping[int, int], round_: int = 0) -> None:
        """Set the number of passages that hold each term."""
        rows = [_count(number, count, round_) for number, count in found_in.items()]
        with plain_errors(self.address):
            for start in range(0, len(rows), NUMBERS):
                self.client.upsert(self.terms, rows[start : start + NUMBERS])

    def drop_counts_before(self, round_: int) -> None:
        """Remove the counts that were written in an earlier round."""
        with plain_errors(self.address):
            self.client.delete(self.terms, filter=f"round < {round_:d}")

    def add_counts(self, change: Counter[int]) -> None:
        """Add to the counts of some terms, or take from them."""
        numbers = sorted(number for number, difference in change.items() if difference)
        _, counts = self.look_up(numbers)
        self.write_counts({number: max(0, counts.get(number, 0) + change[number]) for number in numbers})

    def rows(self) -> int:
        """The number of passages."""
        return int(self._query(self.place, "", ["count(*)"])[0]["count(*)"])

    def scan(self, end: int, columns: list[str], where: str = "") -> Iterator[list[dict[str, Any]]]:
        """All rows with a number under `end` that meet the condition `where`, in the order of their numbers."""
        for start in range(1, end, SLICE):
            part = f"number >= {start} and number < {start + SLICE}" + (f" and {where}" if where else "")
            rows = self._query(self.place, part, ["number", *columns])
            if rows:
                yield sorted(rows, key=lambda row: row["number"])

    def find(self, ids: Sequence[str], columns: list[str]) -> dict[str, list[dict[str, Any]]]:
        """The rows of the passages with these ids, by id; an id that no passage has is left out. Their "tags" come
        along, which tell passages with one id apart (`source_of`)."""
        rows: dict[str, list[dict[str, Any]]] = {}
        columns = [*dict.fromkeys(["number", "id", "tags", *columns])]
        for start in range(0, len(ids), SLICE):
            for row in self._query(self.place, with_ids(ids[start : start + SLICE]), columns):
                rows.setdefault(row["id"], []).append(row)
        return rows

    def upsert(self, rows: Sequence[dict[str, Any]]) -> None:
        """Write rows; one takes the place of an earlier one with its number. They are safe when this returns."""
        with plain_errors(self.address):
            for start in range(0, len(rows), SLICE):
                self.client.upsert(self.place, list(rows[start : start + SLICE]))

    def delete(self, numbers: Sequence[int]) -> None:
        """Remove the rows with these numbers."""
        with plain_errors(self.address):
            for start in range(0, len(numbers), NUMBERS):
                self.client.delete(self.place, filter=f"number in {list(map(int, numbers[start : start + NUMBERS]))}")

    def search(self, field: str, data: Sequence[Any], limit: int, where: str, columns: list[str]) -> list[Any]:
        """For each of `data` the `limit` rows with the highest inner product with it in `field`."""
        with self._reading():
            results: list[Any] = self.client.search(
                self.place,
                data=list(data),
                anns_field=field,
                limit=limit,
                filter=where,
                output_fields=columns,
                search_params={"metric_type": "IP"},
            )
        return results

    def search_hybrid(
        self,
        vectors: NDArray[np.float32],
        sparse: Sequence[dict[int, float]],
        depth: int,
        limit: int,
        where: str,
        columns: list[str],
    ) -> list[Any]:
        """For each question the `limit` best rows by reciprocal rank fusion of two searches of `depth`, ranked by
        Milvus."""
        from pymilvus import AnnSearchRequest, RRFRanker

        with self._reading():
            requests = [
                AnnSearchRequest(
                    data=list(data), anns_field=field, limit=depth, expr=where, param={"metric_type": "IP"}
                )
                for field, data in (("vector", vectors), ("sparse", sparse))
            ]
            results: list[Any] = self.client.hybrid_search(
                self.place, requests, RRFRanker(60), limit=limit, output_fields=columns
            )
        return results

    def compact(self) -> None:
        """Let Milvus drop what was deleted or replaced."""
        with plain_errors(self.address):
            for name in (self.place, self.terms):
                self.client.flush(name)
                self.client.compact(name)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise Stale for what cannot be read because a build has replaced this version."""
        try:
            with plain_errors(self.address):
                yield
        except BadInput as error:
            newest = alias_of(self.address, self.client)
            with plain_errors(self.address):
                is_there = self.place in self.client.list_collections()
            if newest is None or is_there:
                raise
            raise Stale(f"{self.address}: was built anew, {newest} has taken the place of {self.place}") from error

    def _query(self, name: str, where: str, columns: list[str]) -> list[dict[str, Any]]:
        with self._reading():
            rows: list[dict[str, Any]] = self.client.query(name, filter=where, output_fields=columns)
        return rows


def alias_of(address: Address, client: Any) -> str | None:
    """The collection that the alias of an index names, None where there is no alias.

    Raises BadInput where a collection has that name, which then is not ours.
    """
    from pymilvus.exceptions import MilvusException  # type: ignore[import-untyped]

    with plain_errors(address):
        if not client.has_collection(address.name):
            return None
    try:
        place = str(client.describe_alias(address.name)["collection_name"])
    except (MilvusException, KeyError):
        place = ""
    if not _version(address.name)(place):
        raise NotFound(f"{address}: is a collection, but not an index. Choose another name.")
    return place


def _version(name: str) -> Any:
    return re.compile(rf"{re.escape(name)}_v(\d+)").fullmatch


def _count(number: int, found_in: int, round_: int, about: IndexRecord | None = None) -> dict[str, Any]:
    return {"number": number, "found_in": found_in, "round": round_, "about": about or {}, "unused": [0.0, 0.0]}
