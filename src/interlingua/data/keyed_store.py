"""Passages or queries on disk, by number and by id."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from interlingua.data.records import Passage, Query
from interlingua.data.store import Indices, RecordStore
from interlingua.errors import InterlinguaError

Named = TypeVar("Named", Passage, Query)


class KeyedStore(Generic[Named]):
    """A `RecordStore` in the folder `records`, and beside it `keys.npy` (64-bit hashes of the ids, ascending) and
    `rows.npy` (the number of the record of each). All of it is memory-mapped."""

    def __init__(self, folder: Path) -> None:
        self.records: RecordStore[Named] = RecordStore.open(folder / "records")
        self._keys: npt.NDArray[np.uint64] = np.load(folder / "keys.npy", mmap_mode="r")
        self._rows: Indices = np.load(folder / "rows.npy", mmap_mode="r")

    @classmethod
    def build(cls, folder: Path, records: Iterable[Named], kind: type[Named], where: str) -> KeyedStore[Named]:
        """Write the records of `where` into an empty folder and open the store; holds about 40 bytes a record in
        memory. Raises InterlinguaError for an id that occurs twice, and for no records."""
        hashes = array("Q")

        def seen() -> Iterator[Named]:
            for record in records:
                hashes.append(_hash(record.id))
                yield record

        store = RecordStore.build(folder / "records", seen(), kind)
        keys = np.frombuffer(hashes, dtype=np.uint64)
        rows = np.argsort(keys, kind="stable")
        keys = keys[rows]
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twice):
            first, second = (int(rows[twice[0] + step]) for step in (0, 1))
            raise InterlinguaError(f"{where}: the id '{store[second].id}' occurs twice (rows {first + 1:,} and "
                                   f"{second + 1:,} of those that were read). Ids must be unique.")
        np.save(folder / "keys.npy", keys)
        np.save(folder / "rows.npy", rows)
        return cls(folder)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, row: int) -> Named:
        return self.records[row]

    def rows_of(self, ids: Iterable[str]) -> Indices:
        """The number of the record of each id, −1 where there is none.

        The hashes stand for the ids: those of a store are known to differ, and that an id which it has not shares one
        with an id which it has comes once in 10^12 questions to a store of ten million.
        """
        wanted = np.fromiter(map(_hash, ids), dtype=np.uint64)
        places = np.searchsorted(self._keys, wanted).clip(max=len(self._keys) - 1)
        return np.where(self._keys[places] == wanted, self._rows[places], -1)


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
