"""An index at one version: memory-mapped caches, and the rows that came since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage
from interlingua.errors import Damaged, Stale
from interlingua.index.filters import Mask
from interlingua.index.local.caches import (
    FOLDER,
    cache_of,
    complete_caches,
    newest_supplement,
    readers_folder,
    remove_later_caches,
)
from interlingua.index.local.rows import BATCH, PASSAGE, Rows, among, passages_of, subwords_of
from interlingua.index.local.rows import COLUMN as SUBWORDS
from interlingua.index.local.segment import Segment
from interlingua.index.local.table import PassageTable, go_back, lock, synced_version, vectors_of
from interlingua.index.metadata import damaged, terms_of

Place = tuple[int, int]
"""A segment's number, and a row of it."""


@dataclass(frozen=True)
class UnindexedRows:
    """Passages newer than cache and supplement, with all that a segment is made of."""

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

    def kept(self, live: Rows, after: int) -> UnindexedRows:
        """The rows whose number is above `after` and among `live`, which are sorted."""
        rows = np.flatnonzero(among(self.numbers, live) & (self.numbers > after))
        return (
            self
            if len(rows) == len(self.numbers)
            else UnindexedRows(
                self.numbers[rows],
                [self.passages[row] for row in rows],
                self.vectors[rows],
                [self.terms[row] for row in rows],
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
    """The rows of one version. `segments` are those of a cache (`base`), those of its `supplement` if there is one, and
    the `unindexed` ones, in memory; the first `mapped` of them are files. `live` has for each segment a mask of the
    rows that are not deleted, None where none is; `loose` is the number of rows that no file tells of: unindexed ones,
    and those that are deleted since."""

    def __init__(
        self,
        version: int,
        base: Segment,
        supplement: Segment | None,
        unindexed: UnindexedRows,
        live: Rows | None,
        listed: set[tuple[tuple[int, ...], int]],
    ) -> None:
        """`live` are the numbers of all rows, sorted; None where cache and supplement are of this version. `listed` are
        the caches and supplements that there were to choose from, and when they were written (`complete_caches`)."""
        self.listed = listed
        self.version, self.base, self.supplement, self.unindexed = version, base, supplement, unindexed
        files = (base, supplement) if supplement is not None and len(supplement) else (base,)
        if live is not None:
            masks = [among(segment.numbers, live) for segment in files]
        else:
            masks = [np.ones(len(segment), dtype=bool) for segment in files]
            if supplement is not None:
                masks[0] = ~among(base.numbers, supplement.gone)
        self.mapped = len(files)
        self.segments: tuple[Segment, ...] = files
        if len(unindexed.numbers):
            self.segments += (unindexed.segment(),)
        live_masks = (None if mask.all() else mask for mask in masks)
        self.live: tuple[Mask | None, ...] = (*live_masks, None)[: len(self.segments)]
        self.deleted = sum(int(len(mask) - mask.sum()) for mask in masks)
        self.loose = len(unindexed.numbers) + self.deleted - (0 if supplement is None else len(supplement.gone))

    @classmethod
    def take(cls, store: PassageTable, index: Path, before: Snapshot | None = None) -> Snapshot:
        """The newest version. `before` spares reading what it has read. A cache that is missing is written, which is
        said."""
        version = store.refresh()
        listed = {(key, time) for key, time in complete_caches(index / FOLDER).items() if key[-1] <= version}
        # what could not be used is not tried again
        new_keys = {key for key, _ in (listed if before is None else listed - before.listed)}
        # also one of the same version, which another process has made again
        if before is None or any(len(key) == 1 and key[0] >= before.base.version for key in new_keys):
            base = cache_of(store, index)
            listed |= {one for one in complete_caches(index / FOLDER).items() if one[0] == (base.version,)}
            version = store.version
            supplement, unindexed = newest_supplement(index, base, version), UnindexedRows.none(base.vectors.shape[1])
        else:
            base, supplement, unindexed = before.base, before.supplement, before.unindexed
            if any(len(key) == 2 and key[0] == base.version and key[1] > before.files.version for key in new_keys):
                candidate = newest_supplement(index, base, version)
                if candidate is not None and candidate.version > before.files.version:
                    supplement = candidate
            if before.version == version and before.supplement is supplement:
                before.listed = listed
                return before
        files = base if supplement is None else supplement
        if version == files.version:  # the files hold exactly these rows, so that the table need not be read
            return cls(version, base, supplement, UnindexedRows.none(base.vectors.shape[1]), None, listed)
        live = np.sort(store.numbers())
        highest = max(base.highest, files.highest)
        unindexed = unindexed.kept(live, highest)
        last_number = max(highest, int(unindexed.numbers.max(initial=-1)))
        if len(live) and live[-1] > last_number:
            unindexed = unindexed.with_new(store, last_number)
        return cls(version, base, supplement, unindexed, live, listed)

    @property
    def files(self) -> Segment:
        """The newest of cache and supplement."""
        return self.base if self.supplement is None else self.supplement

    @property
    def parts(self) -> Iterator[tuple[Segment, Mask | None]]:
        """Each segment with the mask of its live rows."""
        return zip(self.segments, self.live, strict=True)

    def __len__(self) -> int:
        return sum(map(len, self.segments)) - self.deleted

    @cached_property
    def mean_length(self) -> float:
        """Terms of a passage, on average."""
        lengths = [
            segment.postings.lengths if live is None else segment.postings.lengths[live] for segment, live in self.parts
        ]
        return sum(int(part.sum(dtype=np.int64)) for part in lengths) / max(1, len(self))

    def places(self, numbers: Rows) -> list[Place]:
        """The places of the rows with these numbers. Unknown and deleted rows are left out."""
        places: list[Place] = []
        for part, (segment, live) in enumerate(self.parts):
            rows = segment.rows(numbers)
            places += [(part, row) for row in rows.tolist() if live is None or live[row]]
        return places


def whole_table(index: Path) -> PassageTable:
    """The store of an index at its newest version. Where a power cut took files of versions that were not synced, that
    is the newest one that is whole (`go_back`). Raises Damaged where there is none."""
    previous = -1
    reason: Damaged | Stale
    while True:
        synced = synced_version(index)
        try:
            store = PassageTable(index)
            if store.version > synced:
                store.check()
            if store.version >= synced:
                return store
            reason = damaged(index, f"its table ends before version {synced}, which was written")
        except (Damaged, Stale) as error:
            reason = error
        if synced == previous:
            break
        previous = synced  # once more: a writer may have removed the version that was being read
    try:
        with lock(index):
            remove_later_caches(index / FOLDER, synced)
            remove_later_caches(readers_folder(index), synced)
            return go_back(index)
    except OSError:  # not ours to write
        raise reason from None
