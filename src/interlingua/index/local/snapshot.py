"""An index at one version: memory-mapped caches, and the rows that came since."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.array_folder import ArrayFolder, ArrayWriter, Layout
from interlingua.data.records import Passage
from interlingua.errors import BadInput, Damaged, Stale
from interlingua.files import cache_folder, remove_leftovers
from interlingua.index.filters import Filter, Kind, Mask, folded
from interlingua.index.local.rows import (
    BATCH,
    PASSAGE,
    TEXTS,
    PassageRows,
    Rows,
    SubwordRows,
    arrow,
    passages_of,
    subwords_of,
    text_schema,
)
from interlingua.index.local.rows import COLUMN as SUBWORDS
from interlingua.index.local.segment import Segment, longest
from interlingua.index.local.table import PassageTable, go_back, lock, synced_version, vectors_of
from interlingua.index.local.terms import write_terms
from interlingua.index.metadata import analyzers_of, damaged, signature, terms_of
from interlingua.retrieval.bm25.postings import Postings
from interlingua.retrieval.dense.int8 import Int8Matrix
from interlingua.subprocesses import return_memory

logger = logging.getLogger(__name__)

FOLDER = "caches"
CACHE = Layout("cache", 5, "cache of an index")


def write_cache(store: PassageTable, index: Path) -> Path:
    """Write the cache of the version that `store` reads, atomically; return its folder.

    It holds the rows in batches (`passages.arrow`, `subwords.arrow`), arrays (`numbers`, `langs`, `vectors`, `ties`),
    the same vectors as int8, and the `Postings` of BM25. The version is synced first: after a power
    cut another version could get its number, and the cache would not fit it. Where writing fails, what was there stays.
    """
    store.sync()
    return _write_cache(store, index / FOLDER)


def _write_cache(store: PassageTable, caches: Path) -> Path:
    """Write the cache of the version that `store` reads into the folder `caches`."""
    target = caches / str(store.version)
    if target.exists() and not (target / CACHE.file).exists():
        shutil.rmtree(target)  # it is incomplete
    with ArrayFolder.write(target, CACHE) as folder:
        languages = _write_rows(store, folder)
        vectors = folder.added("vectors")
        Int8Matrix.build(vectors, folder.path / "int8")
        folder.facts |= {
            "languages": languages,
            "analyzers": analyzers_of(languages),
            "reach": _reach(vectors),
            "approximate": store.approximate,
        }
    return target


def newest_cache(index: Path, version: int) -> Segment | None:
    """The newest cache that is no newer than `version`; None where there is none. One that is damaged is passed over,
    which is said."""
    fitting: list[tuple[int, Path]] = []
    for folder in (index / FOLDER, readers_folder(index)):
        fitting += [(held, folder / str(held)) for held in _versions(folder) if held <= version][-1:]
    for _, path in sorted(fitting, key=lambda pair: -pair[0]):
        try:
            return open_cache(path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, arrow().ArrowException) as error:
            if path.exists():  # else a writer has just removed it
                said = " ".join(str(error).split())
                logger.warning(f"{path}: is not used, since it is damaged or out of date ({said})")
    return None


def remove_other_caches(index: Path, version: int) -> None:
    """Remove all caches but that of `version`, those that a reader of ours made (`readers_folder`), and what writers
    that were killed left behind."""
    for path in (index / FOLDER).glob("*"):
        if path.name.isdecimal() and path.name != str(version):
            shutil.rmtree(path, ignore_errors=True)
    remove_leftovers(index / FOLDER)
    shutil.rmtree(readers_folder(index), ignore_errors=True)


def cache_versions(index: Path) -> list[int]:
    """The versions of the caches that look complete and lie in the index, the newest last."""
    return _versions(index / FOLDER)


def cache_files(index: Path) -> list[Path]:
    """The folders of these caches."""
    return [index / FOLDER / str(version) for version in cache_versions(index)]


def readers_folder(index: Path) -> Path:
    """The folder, in the user's cache, of caches of an index that this user may read and not write. One that was built
    anew has another."""
    told = json.dumps([str(index.resolve()), *signature(index)])
    return cache_folder() / "indexes" / hashlib.sha256(told.encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _versions(folder: Path) -> list[int]:
    return sorted(int(path.parent.name) for path in folder.glob(f"*/{CACHE.file}") if path.parent.name.isdecimal())


def _write_rows(store: PassageTable, folder: ArrayWriter) -> list[str]:
    """All files but the int8 vectors; the languages."""
    pa = arrow()
    numbers: list[NDArray[np.int64]] = []
    met: dict[str, int] = {}  # languages, in the order in which they are met
    langs: list[NDArray[np.int32]] = []
    words = pa.schema([store.schema.field(SUBWORDS)])

    with (
        pa.OSFile(str(folder.path / "passages.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, text_schema()) as file,
        pa.OSFile(str(folder.path / "subwords.arrow"), "wb") as other,
        pa.ipc.new_file(other, words) as second,
    ):
        folder.add("vectors", np.empty((0, store.dim), dtype=np.float32))

        for batch in _whole_batches(store):
            numbers.append(batch.column("number").to_numpy().copy())  # a view would keep the whole batch
            langs.append(
                np.array([met.setdefault(lang, len(met)) for lang in batch.column("lang").to_pylist()], dtype=np.int32)
            )
            folder.add("vectors", vectors_of(batch, store.dim))
            file.write_batch(batch.select(TEXTS))
            second.write_batch(batch.select([SUBWORDS]))
    return_memory()  # what Lance read ahead
    write_terms(folder.path / "passages.arrow", folder)
    languages = sorted(met)
    places = np.array([languages.index(lang) for lang in met], dtype=np.int32)
    folder.add("numbers", np.concatenate([np.empty(0, np.int64), *numbers]))
    folder.add("langs", np.concatenate([np.empty(0, np.int32), *(places[batch] for batch in langs)]))
    folder.add("ties", PassageRows.open(folder.path / "passages.arrow").ties())
    return languages


def _whole_batches(store: PassageTable) -> Iterator[Any]:
    """The rows of the store in batches of exactly `BATCH`, the last one shorter."""
    pa = arrow()
    held: list[Any] = []
    count = 0
    for batch in store.batches(("number", *TEXTS, "vector", SUBWORDS), BATCH):
        held.append(batch)
        count += batch.num_rows
        if count >= BATCH:
            table = pa.Table.from_batches(held).combine_chunks()
            for start in range(0, count - BATCH + 1, BATCH):
                yield table.slice(start, BATCH).combine_chunks().to_batches()[0]
            rest = table.slice(count - count % BATCH)
            held, count = rest.to_batches(), rest.num_rows
    if count:
        yield pa.Table.from_batches(held).combine_chunks().to_batches()[0]


def open_cache(path: Path) -> Segment:
    """The cache in a folder. Raises Damaged, ValueError or an error of Arrow for one that cannot be what was written,
    and for one whose passages were cut by other versions of the analyzers."""
    with ArrayFolder.open(path, CACHE) as folder:
        languages = tuple(folder.facts["languages"])
        if folder.facts["analyzers"] != analyzers_of(list(languages)):
            raise ValueError("its passages were cut by other versions of the analyzers")
        numbers = folder.array("numbers", "int64", (None,))
        count = len(numbers)
        return Segment(
            numbers,
            PassageRows.open(path / "passages.arrow"),
            SubwordRows.open(path / "subwords.arrow"),
            languages,
            folder.array("langs", "int32", (count,)),
            folder.array("vectors", "float32", (count, None)),
            Postings.read(folder, count),
            folder.array("ties", "int64", (count,)),
            float(folder.facts["reach"]),
            int(path.name),
            Int8Matrix.load(path / "int8"),
            folder.facts.get("approximate"),
        )


def _reach(vectors: NDArray[np.float32]) -> float:
    return max((longest(vectors[start : start + BATCH]) for start in range(0, len(vectors), BATCH)), default=0.0)


Place = tuple[int, int]
"""A segment's number, and a row of it."""
MASKS: Mapping[Kind, Callable[[list[Mask]], Mask]] = {
    "all": np.logical_and.reduce,
    "any": np.logical_or.reduce,
    "not": lambda parts: ~parts[0],
}


@dataclass(frozen=True)
class UnindexedRows:
    """Passages newer than the cache, with all that a segment is made of."""

    numbers: Rows
    passages: list[Passage]
    vectors: NDArray[np.float32]
    terms: list[list[str]]
    subwords: list[NDArray[np.int64]]

    @classmethod
    def none(cls, dim: int) -> UnindexedRows:
        """No passages."""
        return cls(np.empty(0, dtype=np.int64), [], np.empty((0, dim), dtype=np.float32), [], [])

    def segment(self) -> Segment:
        """A segment in memory, to be searched."""
        return Segment.of(self.numbers, self.passages, self.vectors, self.terms, self.subwords)

    def kept(self, live: Rows) -> UnindexedRows:
        """The rows whose number is among `live`."""
        rows = np.flatnonzero(np.isin(self.numbers, live))
        return (
            self
            if len(rows) == len(self.numbers)
            else UnindexedRows(
                self.numbers[rows],
                [self.passages[row] for row in rows],
                self.vectors[rows],
                [self.terms[r] for r in rows],
                [self.subwords[row] for row in rows],
            )
        )

    def with_new(self, store: PassageTable, after: int) -> UnindexedRows:
        """These and the rows of the store with numbers above `after`."""
        columns = ("number", *PASSAGE, "vector", SUBWORDS)
        batches = list(store.batches(columns, BATCH, after))
        passages = [passage for batch in batches for passage in passages_of(batch)]
        return UnindexedRows(
            np.concatenate([self.numbers, *(batch.column("number").to_numpy() for batch in batches)]),
            self.passages + passages,
            np.concatenate([self.vectors, *(vectors_of(batch, store.dim) for batch in batches)]),
            self.terms + [terms_of(passage) for passage in passages],
            self.subwords + [ids for batch in batches for ids in subwords_of(batch)],
        )


class Snapshot:
    """The rows of one version. `segments` are the cache's rows and the unindexed; `live` has for each segment a mask of
    the rows that are not deleted, None where none is."""

    def __init__(self, version: int, base: Segment, unindexed: UnindexedRows, live: Rows) -> None:
        self.version, self.base, self.unindexed = version, base, unindexed
        there = np.isin(base.numbers, live)
        self.segments: tuple[Segment, ...] = (base,)
        if len(unindexed.numbers):
            self.segments += (unindexed.segment(),)
        self.live: tuple[Mask | None, ...] = (None if there.all() else there, None)[: len(self.segments)]
        self.deleted = int(len(base) - there.sum())

    @classmethod
    def take(cls, store: PassageTable, index: Path, before: Snapshot | None = None) -> Snapshot:
        """The newest version. `before` spares reading what it has read. A cache that is missing is written, which is
        said."""
        version = store.refresh()
        if before is not None and before.version == version == before.base.version:
            return before
        newer = before is None or any(before.base.version < cache <= version for cache in cache_versions(index))
        if before is not None and not newer:
            if before.version == version:
                return before
            base, unindexed = before.base, before.unindexed
        else:
            base = _cache(store, index)
            unindexed = UnindexedRows.none(base.vectors.shape[1])
        version = store.version
        if version == base.version:  # the cache holds exactly these rows, so that the table need not be read
            return cls(version, base, UnindexedRows.none(base.vectors.shape[1]), base.numbers)
        live = store.numbers()
        seen = max(base.highest, int(unindexed.numbers.max(initial=-1)))
        unindexed = unindexed.kept(live)
        if len(live) and live.max() > seen:
            unindexed = unindexed.with_new(store, seen)
        return cls(version, base, unindexed, live)

    def __len__(self) -> int:
        return sum(map(len, self.segments)) - self.deleted

    @cached_property
    def languages(self) -> dict[str, int]:
        """Passages of each language."""
        counts: Counter[str] = Counter()
        for segment, live in zip(self.segments, self.live, strict=True):
            found = np.bincount(
                segment.langs if live is None else segment.langs[live], minlength=len(segment.languages)
            )
            counts.update(dict(zip(segment.languages, found.tolist(), strict=True)))
        return {lang: counts[lang] for lang in sorted(counts) if counts[lang]}

    @cached_property
    def mean_length(self) -> float:
        """Terms of a passage, on average."""
        lengths = [
            segment.postings.lengths if live is None else segment.postings.lengths[live]
            for segment, live in zip(self.segments, self.live, strict=True)
        ]
        return sum(int(part.sum(dtype=np.int64)) for part in lengths) / max(1, len(self))

    def find(self, ids: Sequence[str]) -> dict[str, list[Place]]:
        """The places of the passages with these ids, by id. Unknown ids are left out."""
        found: dict[str, list[Place]] = {}
        for number, (segment, live) in enumerate(zip(self.segments, self.live, strict=True)):
            for name, rows in segment.passages.find(ids).items():
                if there := [(number, row) for row in rows if live is None or live[row]]:
                    found.setdefault(name, []).extend(there)
        return found

    def places(self, numbers: Rows) -> list[Place]:
        """The places of the rows with these numbers. Unknown and deleted rows are left out."""
        found: list[Place] = []
        for part, (segment, live) in enumerate(zip(self.segments, self.live, strict=True)):
            rows = segment.rows(numbers)
            found += [(part, row) for row in rows.tolist() if live is None or live[row]]
        return found

    @cached_property
    def fields(self) -> frozenset[str]:
        """The keys of metadata."""
        parts = zip(self.segments, self.live, strict=True)
        return frozenset().union(*(segment.passages.keys(live) for segment, live in parts))

    def chosen(self, langs: Sequence[str] | None, where: Filter | None) -> list[Mask | None]:
        """For each segment a mask of the live rows in one of `langs` that fit `where`; None for all rows."""
        masks: list[Mask | None] = []
        for segment, live in zip(self.segments, self.live, strict=True):
            wanted = [] if live is None else [live]
            wanted += [] if langs is None else [segment.in_languages(langs)]
            wanted += [] if where is None else [folded(where, segment.where, MASKS)]
            masks.append(np.logical_and.reduce(wanted) if wanted else None)
        return masks


def whole_table(index: Path) -> PassageTable:
    """The store of an index at its newest version. Where a power cut took files of versions that were not synced, that
    is the newest one that is whole (`go_back`). Raises Damaged where there is none."""
    seen = -1
    reason: Damaged | Stale
    while True:
        synced = synced_version(index)
        try:
            store = PassageTable(index)
            if store.version == synced:
                return store
            if store.version > synced:
                store.check()
                return store
            reason = damaged(index, f"its table ends before version {synced}, which was written")
        except (Damaged, Stale) as error:
            reason = error
        if synced == seen:
            break
        seen = synced  # once more: a writer may have removed the version that was being read
    try:
        with lock(index):
            for folder in (index / FOLDER, readers_folder(index)):
                for cache in _versions(folder):
                    if cache > synced:
                        shutil.rmtree(folder / str(cache))
            return go_back(index)
    except OSError:  # not ours to write
        raise reason from None


def _cache(store: PassageTable, index: Path) -> Segment:
    """The newest cache that fits the version of the store, or an even newer one. Written where there is none."""
    for said in (False, True):
        while (found := newest_cache(index, version := store.version)) is None and store.refresh() != version:
            pass  # a writer has removed it and made a newer one
        if found is not None:
            return found
        if not said:
            _make_cache(store, index)
    raise Damaged(f"{index}: the cache that was just written cannot be read. Look at the disk.")


def _make_cache(store: PassageTable, index: Path) -> None:
    """Write the cache, or where the index cannot be written, by a reader say or on a full disk, one in the user's cache
    folder."""
    reason = "is not ours to write"
    if all(os.access(folder, os.W_OK) for folder in (index, index / FOLDER) if folder.exists()):
        try:
            logger.info(f"{index}: its cache is made again from its passages")
            made = write_cache(store, index)
            _remove_older(made)
            return
        except (OSError, Damaged) as error:
            reason = f"cannot be written ({' '.join(str(error).split())})"
    place = readers_folder(index)
    logger.info(f"{index}: {reason}. Its cache is made in {place}")
    try:
        made = _write_cache(store, place)
    except OSError as error:
        raise BadInput(
            f"{index}: has no cache that fits, and none can be made in {place} ({error.strerror or error}). Let "
            "XDG_CACHE_HOME name a folder with room."
        ) from error
    _remove_older(made)
    remove_leftovers(place)


def _remove_older(made: Path) -> None:
    """Remove the caches of earlier versions than `made`: a writer may have written a later one."""
    for version in _versions(made.parent):
        if version < int(made.name):
            shutil.rmtree(made.with_name(str(version)), ignore_errors=True)
