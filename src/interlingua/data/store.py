"""Stores: records by number or by id, without the corpus in memory."""

from __future__ import annotations

import hashlib
import mmap
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from interlingua.array_folder import ArrayFolder, ArrayWriter, Layout
from interlingua.data.records import KINDS, Passage, Query, Record, decode, encode, language_of
from interlingua.errors import BadInput, Damaged, NotFound

Indices = npt.NDArray[np.int64]
Held = TypeVar("Held", covariant=True)
RECORDS = Layout("store", 2, "records")
KEYS = Layout("keys", 1, "records by id")
NOTHING = "no records: the source is empty or everything in it was left out. Check the source."


class Store(Protocol[Held]):
    """The records that a stream draws from, by number, and the numbers of each language in ascending order."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Held: ...

    @property
    def languages(self) -> Mapping[str, Indices | range]: ...


class MemoryStore(Generic[Record]):
    """Records that are in memory anyway (tests, the demonstration). Raises BadInput when there are none."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records: Sequence[Record] = list(records)
        if not self._records:
            raise BadInput(NOTHING)
        codes = np.array([language_of(record) for record in self._records])
        self.languages: dict[str, Indices] = {str(code): np.flatnonzero(codes == code) for code in np.unique(codes)}

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Record:
        return self._records[index]


class RecordStore(Generic[Record]):
    """An `ArrayFolder` with `records.jsonl`, the arrays `offsets` (where each record starts, and the end) and `order`
    (record numbers grouped by language), and as facts kind, fingerprint and the part of `order` of each language.

    Everything large is memory-mapped. Languages are parts of one array, not files of their own: nothing from the data
    becomes a path.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        with ArrayFolder.open(folder, RECORDS) as arrays:
            facts = arrays.facts
            self.kind: type[Record] = KINDS[facts["kind"]]
            self.fingerprint: str = facts["fingerprint"]
            self.digest: str = facts["digest"]
            self._offsets: Indices = arrays.array("offsets", "int64", (None,))
            order: Indices = arrays.array("order", "int64", (len(self),))
            self.languages: dict[str, Indices] = {
                code: order[first:end] for code, (first, end) in facts["languages"].items()
            }
            with open(self.folder / "records.jsonl", "rb") as stream:
                self._bytes = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            if len(self._bytes) != self._offsets[-1]:
                raise ValueError("its files do not agree")

    @classmethod
    def open(cls, folder: str | Path) -> RecordStore[Record]:
        """The store in a folder. Raises NotFound when there is none, Damaged when it is not as it was written."""
        return cls(folder)

    @classmethod
    def build(
        cls, folder: str | Path, records: Iterable[Record], kind: type[Record] | None = None, fingerprint: str = ""
    ) -> RecordStore[Record]:
        """Write the records and open the store; or open what is there, without reading `records`, when it was built
        of the same kind with the same `fingerprint` (never when that is ""). `kind` is that of the first record unless
        it is given; a record of another kind raises TypeError. Holds 12 bytes a record in memory.

        A kill leaves what was there before, or nothing under this name; a damaged store is built again. Raises
        BadInput for no records and for a folder that exists and is no record store.
        """
        if fingerprint:
            with suppress(NotFound, Damaged):
                store = cls(folder)
                if store.fingerprint == fingerprint and kind in (None, store.kind):
                    return store
        with ArrayFolder.write(folder, RECORDS) as arrays:
            _write(arrays, records, kind, fingerprint)
        return cls(folder)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> Record:
        index = int(index)
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(index)
        return decode(self.kind, self._bytes[self._offsets[index] : self._offsets[index + 1]])


def _write(folder: ArrayWriter, records: Iterable[Record], kind: type[Record] | None, fingerprint: str) -> None:
    offsets, numbers = array("q", [0]), array("i")
    codes: dict[str, int] = {}
    digest = hashlib.blake2b(digest_size=16)
    with open(folder.path / "records.jsonl", "wb") as stream:
        for record in records:
            kind = kind or type(record)
            if type(record) is not kind:
                raise TypeError(f"a {type(record).__name__} in a store of {kind.__name__}")
            try:
                line = encode(record).encode("utf-8") + b"\n"
            except UnicodeEncodeError as error:
                raise BadInput(
                    f"record {len(numbers) + 1:,} of the source holds half a surrogate pair, which "
                    "is no text. Mend the source."
                ) from error
            stream.write(line)
            digest.update(line)
            offsets.append(offsets[-1] + len(line))
            numbers.append(codes.setdefault(language_of(record), len(codes)))
    if kind is None or not numbers:
        raise BadInput(NOTHING)
    lang_numbers = np.frombuffer(numbers, dtype=np.int32)
    order = np.argsort(lang_numbers, kind="stable").astype(np.int64)
    ends = np.cumsum(np.bincount(lang_numbers, minlength=len(codes)))
    parts = {code: [int(ends[number - 1]) if number else 0, int(ends[number])] for code, number in codes.items()}
    folder.add("offsets", np.frombuffer(offsets, dtype=np.int64))
    folder.add("order", order)
    folder.facts |= {
        "kind": kind.__name__,
        "fingerprint": fingerprint,
        "digest": digest.hexdigest(),
        "languages": dict(sorted(parts.items())),
    }


Named = TypeVar("Named", Passage, Query)


class KeyedStore(Generic[Named]):
    """A `RecordStore` in the folder `records`, and beside it the arrays `keys` (64-bit hashes of the ids, ascending)
    and `rows` (the number of the record of each). All of it is memory-mapped."""

    def __init__(self, folder: Path) -> None:
        with ArrayFolder.open(folder, KEYS) as arrays:
            self.records: RecordStore[Named] = RecordStore.open(folder / "records")
            self._keys: npt.NDArray[np.uint64] = arrays.array("keys", "uint64", (len(self),))
            self._rows: Indices = arrays.array("rows", "int64", (len(self),))

    @classmethod
    def build(cls, folder: Path, records: Iterable[Named], kind: type[Named], where: str) -> KeyedStore[Named]:
        """Write the records of `where` and open the store; holds about 40 bytes a record in memory. Raises BadInput for
        an id that occurs twice, for no records, and for a folder that holds something else."""
        hashes = array("Q")

        def seen() -> Iterator[Named]:
            for record in records:
                hashes.append(_hash(record.id))
                yield record

        with ArrayFolder.write(folder, KEYS) as arrays:
            store = RecordStore.build(arrays.path / "records", seen(), kind)
            keys = np.frombuffer(hashes, dtype=np.uint64)
            rows = np.argsort(keys, kind="stable")
            keys = keys[rows]
            duplicates = np.flatnonzero(keys[1:] == keys[:-1])
            if len(duplicates):
                first, second = (int(rows[duplicates[0] + step]) for step in (0, 1))
                raise BadInput(
                    f"{where}: the id '{store[second].id}' occurs twice (rows {first + 1:,} and "
                    f"{second + 1:,} of those that were read). Ids must be unique."
                )
            arrays.add("keys", keys)
            arrays.add("rows", rows)
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
        keys = np.fromiter(map(_hash, ids), dtype=np.uint64)
        places = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        return np.where(self._keys[places] == keys, self._rows[places], -1)


def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
