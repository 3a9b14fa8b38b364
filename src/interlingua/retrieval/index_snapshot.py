"""An index as it was at one version: the rows of a cache that are still there, and those that came since."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.progress import say
from interlingua.retrieval.index_about import damaged
from interlingua.retrieval.index_cache import FOLDER, cache_versions, newest_cache, write_cache
from interlingua.retrieval.index_segment import Mask, Segment, terms_of
from interlingua.retrieval.passage_rows import BATCH, PASSAGE, Rows, passage_of
from interlingua.retrieval.passage_store import PassageStore, go_back, lock, synced_version, vectors_of
from interlingua.retrieval.subword_rows import COLUMN as SUBWORDS
from interlingua.retrieval.subword_rows import subwords_of

Place = tuple[int, int]
"""A segment's number, and a row of it."""


@dataclass(frozen=True)
class Arrivals:
    """Passages newer than the cache, with all that a segment is made of."""

    numbers: Rows
    passages: list[Passage]
    vectors: NDArray[np.float32]
    terms: list[list[str]]
    subwords: list[NDArray[np.int64]]

    @classmethod
    def none(cls, dim: int) -> Arrivals:
        """No passages."""
        return cls(np.empty(0, dtype=np.int64), [], np.empty((0, dim), dtype=np.float32), [], [])

    def kept(self, live: Rows) -> Arrivals:
        """Those whose number is among `live`."""
        rows = np.flatnonzero(np.isin(self.numbers, live))
        return self if len(rows) == len(self.numbers) else Arrivals(
            self.numbers[rows], [self.passages[row] for row in rows], self.vectors[rows], [self.terms[r] for r in rows],
            [self.subwords[row] for row in rows])

    def with_new(self, store: PassageStore, after: int) -> Arrivals:
        """These and the rows of the store with numbers above `after`."""
        columns = ("number", *PASSAGE, "vector", SUBWORDS)
        batches = list(store.batches(columns, BATCH, after))
        passages = [passage_of(row) for batch in batches for row in batch.select(PASSAGE).to_pylist()]
        return Arrivals(np.concatenate([self.numbers, *(batch.column("number").to_numpy() for batch in batches)]),
                        self.passages + passages,
                        np.concatenate([self.vectors, *(vectors_of(batch, store.dim) for batch in batches)]),
                        self.terms + [terms_of(passage) for passage in passages],
                        self.subwords + [ids for batch in batches for ids in subwords_of(batch)])


class Snapshot:
    """What one search sees. `segments` are the cache's rows and the arrivals; `live` has for each a mask of the rows
    that are still there, None where all are."""

    def __init__(self, version: int, base: Segment, arrivals: Arrivals, live: Rows) -> None:
        self.version, self.base, self.arrivals = version, base, arrivals
        there = np.isin(base.numbers, live)
        self.segments: tuple[Segment, ...] = (base,)
        if len(arrivals.numbers):
            self.segments += (Segment.of(arrivals.numbers, arrivals.passages, arrivals.vectors, arrivals.terms,
                                         arrivals.subwords),)
        self.live: tuple[Mask | None, ...] = (None if there.all() else there, None)[: len(self.segments)]
        self.deleted = int(len(base) - there.sum())

    @classmethod
    def take(cls, store: PassageStore, index: Path, before: Snapshot | None = None) -> Snapshot:
        """The newest version. `before` spares reading what it has read. A cache that is missing is written, which is
        said."""
        version = store.refresh()
        newer = before is None or any(before.base.version < cache <= version for cache in cache_versions(index))
        if before is not None and not newer:
            if before.version == version:
                return before
            base, arrivals = before.base, before.arrivals
        else:
            base = _cache(store, index)
            arrivals = Arrivals.none(base.vectors.shape[1])
        version = store.version
        if version == base.version:  # the cache holds exactly these rows, so that the table need not be read
            return cls(version, base, Arrivals.none(base.vectors.shape[1]), base.numbers)
        live = store.numbers()
        seen = max(base.highest, int(arrivals.numbers.max(initial=-1)))
        arrivals = arrivals.kept(live)
        if len(live) and live.max() > seen:
            arrivals = arrivals.with_new(store, seen)
        return cls(version, base, arrivals, live)

    def __len__(self) -> int:
        return sum(map(len, self.segments)) - self.deleted

    @cached_property
    def languages(self) -> dict[str, int]:
        """Passages of each language."""
        counts: Counter[str] = Counter()
        for segment, live in zip(self.segments, self.live, strict=True):
            found = np.bincount(segment.langs if live is None else segment.langs[live],
                                minlength=len(segment.languages))
            counts.update(dict(zip(segment.languages, found.tolist(), strict=True)))
        return {lang: counts[lang] for lang in sorted(counts) if counts[lang]}

    @cached_property
    def mean_length(self) -> float:
        """Terms of a passage, on average."""
        lengths = [segment.postings.lengths if live is None else segment.postings.lengths[live]
                   for segment, live in zip(self.segments, self.live, strict=True)]
        return sum(int(part.sum(dtype=np.int64)) for part in lengths) / max(1, len(self))

    def find(self, ids: Sequence[str]) -> dict[str, list[Place]]:
        """Where the passages with these ids are; an id that is not there is left out."""
        found: dict[str, list[Place]] = {}
        for number, (segment, live) in enumerate(zip(self.segments, self.live, strict=True)):
            for name, rows in segment.passages.find(ids).items():
                if there := [(number, row) for row in rows if live is None or live[row]]:
                    found.setdefault(name, []).extend(there)
        return found

    def places(self, numbers: Rows) -> list[Place]:
        """Where the rows with these numbers are; one that is not here, or not any more, is left out."""
        found: list[Place] = []
        for part, (segment, live) in enumerate(zip(self.segments, self.live, strict=True)):
            rows = segment.rows(numbers)
            found += [(part, row) for row in rows.tolist() if live is None or live[row]]
        return found

    def passage(self, place: Place) -> Passage:
        """The passage at a place."""
        return self.segments[place[0]].passages[place[1]]

    def source(self, place: Place) -> str:
        """The source of the passage at a place."""
        return self.segments[place[0]].passages.source(place[1])

    def lang(self, place: Place) -> str:
        """The language of the passage at a place."""
        segment = self.segments[place[0]]
        return segment.languages[int(segment.langs[place[1]])]

    def chosen(self, langs: Sequence[str] | None, where: Mapping[str, str]) -> list[Mask | None]:
        """For each segment a mask of the live rows in one of `langs` with all of `where` in their metadata; None for
        all rows."""
        masks: list[Mask | None] = []
        for segment, live in zip(self.segments, self.live, strict=True):
            wanted = [] if live is None else [live]
            wanted += [] if langs is None else [segment.in_languages(langs)]
            wanted += [segment.where(key, value) for key, value in where.items()]
            masks.append(np.logical_and.reduce(wanted) if wanted else None)
        return masks


def whole_store(index: Path) -> PassageStore:
    """The store of an index at its newest version. Where a power cut took files of versions that were not synced, that
    is the newest one that is whole (`go_back`). Raises InterlinguaError where there is none."""
    seen = -1
    while True:
        synced = synced_version(index)
        try:
            store = PassageStore(index)
            if store.version == synced:
                return store
            if store.version > synced:
                store.check()
                return store
            reason = damaged(index, f"its table ends before version {synced}, which was written")
        except InterlinguaError as error:
            reason = error
        if synced == seen:
            break
        seen = synced  # once more: a writer may have removed the version that was being read
    try:
        with lock(index):
            for cache in cache_versions(index):
                if cache > synced:
                    shutil.rmtree(index / FOLDER / str(cache))
            return go_back(index)
    except OSError:  # not ours to write
        raise reason from None


def _cache(store: PassageStore, index: Path) -> Segment:
    """The newest cache that fits the version of the store, or an even newer one. Written where there is none."""
    for said in (False, True):
        while (found := newest_cache(index, version := store.version)) is None and store.refresh() != version:
            pass  # a writer has removed it and made a newer one
        if found is not None:
            return found
        if not said:
            say(f"{index}: its cache is made again from its passages")
            write_cache(store, index)
    raise InterlinguaError(f"{index}: the cache that was just written cannot be read. Look at the disk.")
