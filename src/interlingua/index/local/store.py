"""The store of an index in a folder: LanceDB's table is the store of record, memory-mapped caches are searched."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import cached_property
from itertools import chain
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage
from interlingua.errors import BadInput, Damaged, InterlinguaError, Stale
from interlingua.files import Durability, durability_of, existing, remove_leftovers, restore
from interlingua.index.filters import Filter, Kind, Mask, Values, folded
from interlingua.index.local.build import build_folder, spooled
from interlingua.index.local.caches import FOLDER as CACHES
from interlingua.index.local.caches import remove_other_caches, write_cache, write_supplement
from interlingua.index.local.check import check_folder
from interlingua.index.local.rows import PASSAGE, passages_of, to_rows
from interlingua.index.local.seals import held_by, read_seals, write_seals
from interlingua.index.local.search import DenseSearch, Lexical, dense_search_of, exactly, index_vectors, scored
from interlingua.index.local.snapshot import Place, Snapshot, whole_table
from interlingua.index.local.staged import Staged
from interlingua.index.local.table import PassageTable, lock, vectors_of
from interlingua.index.local.tokens import FOLDER as TOKENS
from interlingua.index.local.tokens import IndexTokens, folder_of, keep_tokens
from interlingua.index.metadata import MARKER, IndexMetadata, read_metadata, read_sources, signature, write_sources
from interlingua.index.store import (
    CHUNK,
    AddressedStore,
    BuildSettings,
    Finding,
    Floats,
    LexicalMatches,
    Scores,
    View,
    already_there,
)
from interlingua.models.protocols import AnyEncoder, Encoder
from interlingua.retrieval.late_interaction.static import StoredIds
from interlingua.retrieval.retriever import Vectors

if TYPE_CHECKING:
    from interlingua.data.files.unchanged import Held
    from interlingua.data.files.walk import SourceNames
    from interlingua.retrieval.late_interaction.token_store import TokenStore

logger = logging.getLogger(__name__)

STALE = 0.1
"""Share of new and deleted rows in a cache from which a writer makes it again; of rows that no file tells of in a
supplement, from which it makes that again."""
FEW = 2_000  # new and deleted rows that are always left to the next time


MASKS: Mapping[Kind, Callable[[list[Mask]], Mask]] = {
    "all": np.logical_and.reduce,
    "any": np.logical_or.reduce,
    "not": lambda parts: ~parts[0],
}


class LocalView(View[Place]):
    """A snapshot of the table with what searches it. A row is a place in the snapshot."""

    def __init__(
        self, store: LocalStore, metadata: IndexMetadata, made: tuple[int, int], snapshot: Snapshot, search: DenseSearch
    ) -> None:
        self.metadata, self.version, self.snapshot = metadata, snapshot.version, snapshot
        self.newer, self.deleted = sum(map(len, snapshot.segments[1:])), snapshot.deleted
        self.terms = Lexical(snapshot, metadata.k1, metadata.b)
        self._store, self._made, self._dense_search = store, made, search
        self._chosen: Sequence[Mask | None] = snapshot.live

    @property
    def cache(self) -> int:
        """The version of the cache."""
        return self.snapshot.base.version

    @cached_property
    def languages(self) -> dict[str, int]:
        """Passages of each language."""
        counts: Counter[str] = Counter()
        for segment, live in self.snapshot.parts:
            langs = segment.langs if live is None else segment.langs[live]
            of_segment = np.bincount(langs, minlength=len(segment.languages)).tolist()
            counts.update(dict(zip(segment.languages, of_segment, strict=True)))
        return {lang: counts[lang] for lang in sorted(counts) if counts[lang]}

    def __len__(self) -> int:
        return len(self.snapshot)

    def find(self, ids: Sequence[str]) -> dict[str, list[Place]]:
        places: dict[str, list[Place]] = {}
        for part, (segment, live) in enumerate(self.snapshot.parts):
            for name, rows in segment.passages.find(ids).items():
                if matches := [(part, row) for row in rows if live is None or live[row]]:
                    places.setdefault(name, []).extend(matches)
        return places

    @cached_property
    def fields(self) -> frozenset[str]:
        """As `View.fields`."""
        return frozenset().union(*(segment.passages.keys(live) for segment, live in self.snapshot.parts))

    def counts(self, key: str) -> Counter[str]:
        parts = zip(self.snapshot.segments, self._chosen, strict=True)
        return sum((segment.column(key).counts(mask) for segment, mask in parts), Counter[str]())

    def values(self, key: str) -> Iterator[Values]:
        """As `View.values`, and perhaps values of passages that are deleted."""
        return (segment.column(key).values for segment in self.snapshot.segments)

    def rows(self, where: Filter | None) -> Iterator[list[Place]]:
        for part, mask in enumerate(self._masks(None, where)):
            places = np.flatnonzero(mask) if mask is not None else np.arange(len(self.snapshot.segments[part]))
            for start in range(0, len(places), CHUNK):
                yield [(part, row) for row in places[start : start + CHUNK].tolist()]

    def passages(self, rows: Sequence[Place]) -> list[Passage]:
        segments = self.snapshot.segments
        return [segments[part].passages[row] for part, row in rows]

    def ids(self, rows: Sequence[Place]) -> list[str]:
        segments = self.snapshot.segments
        return [segments[part].passages.id(row) for part, row in rows]

    def docid_order(self, rows: Sequence[Place]) -> NDArray[np.int64]:
        """As `View.docid_order`, without reading names where all rows are of one segment."""
        if len({part for part, _ in rows}) != 1:
            return super().docid_order(rows)
        ties: NDArray[np.int64] = self.snapshot.segments[rows[0][0]].ties[[row for _, row in rows]]
        return np.argsort(ties)

    def source(self, row: Place) -> str:
        return self.snapshot.segments[row[0]].passages.source(row[1])

    def sourced(self, wanted: Callable[[str], bool]) -> Iterator[tuple[list[Place], list[str]]]:
        """As `View.sourced`: each source is asked about once."""
        for part, (segment, live) in enumerate(self.snapshot.parts):
            names, codes = segment.sources()
            mask = np.array([wanted(name) for name in names], dtype=bool)[codes]
            places = np.flatnonzero(mask if live is None else mask & live)
            for start in range(0, len(places), CHUNK):
                rows = places[start : start + CHUNK]
                yield [(part, row) for row in rows.tolist()], [names[code] for code in codes[rows].tolist()]

    def held(self) -> dict[str, Held]:
        """As `View.held`."""
        return held_by(self.snapshot.parts)

    def langs(self, rows: Sequence[Place]) -> list[str]:
        segments = self.snapshot.segments
        return [segments[part].languages[int(segments[part].langs[row])] for part, row in rows]

    def subwords(self, rows: Sequence[Place]) -> list[StoredIds]:
        segments = self.snapshot.segments
        return [segments[part].subwords[row] for part, row in rows]

    def narrowed(self, langs: Collection[str] | None, where: Filter | None, mode: str) -> LocalView:
        """As `View.narrowed`. A narrowed dense search is exact."""
        if langs is None and where is None:
            return self
        view = copy(self)
        view._chosen = self._masks(langs, where)
        view._dense_search = exactly
        return view

    def _masks(self, langs: Collection[str] | None, where: Filter | None) -> list[Mask | None]:
        """For each segment a mask of the live rows in one of `langs` that fit `where`; None for all rows."""
        masks: list[Mask | None] = []
        for segment, live in self.snapshot.parts:
            segment_masks = [] if live is None else [live]
            segment_masks += [] if langs is None else [segment.in_languages(langs)]
            segment_masks += [] if where is None else [folded(where, segment.where, MASKS)]
            masks.append(np.logical_and.reduce(segment_masks) if segment_masks else None)
        return masks

    def dense(self, vectors: Floats, depth: int) -> list[Scores[Place]]:
        return self._dense_search(self.snapshot, vectors, depth, self._chosen)

    def dense_scores(self, rows: Sequence[Place], vector: Floats) -> Scores[Place]:
        return scored(self.snapshot, rows, vector)

    def lexical(self, terms: Sequence[Counter[str]], depth: int) -> Iterator[LexicalMatches[Place]]:
        """As `View.lexical`, one question after another: each may take a score for every row."""
        return (self.terms.matches(counts, depth, self._chosen) for counts in terms)

    def tokens(self, reranker: AnyEncoder, rows: Sequence[Place]) -> dict[Place, tuple[TokenStore, int]]:
        tokens = self._store.tokens(reranker)
        if tokens is None or signature(self._store.path) != self._made:  # built anew: its numbers are of others
            return {}
        numbers = {place: int(self.snapshot.segments[place[0]].numbers[place[1]]) for place in rows}
        places = tokens.find(list(numbers.values()))
        return {place: places[number] for place, number in numbers.items() if number in places}


class LocalStore(AddressedStore[Place]):
    """A folder that a person can move.

    It holds `index.json`, `sources.json` (`SourceNames`), the table `passages.lance` (LanceDB: the store of record),
    `caches/` (which can be made again from the table), `tokens/` (see `keep_tokens`) and `writer.lock`. A view is the
    newest version of the table. Each call of `write` and `delete` makes one version, whole or not at all. One writer
    at a time, any number of readers, in this process and others.

    With `durability` "full" a write is on the disk when `writing` ends: a power cut does not undo it. With "process"
    it is quicker and survives the end of the process, not a power cut, after which the index may be as it was some
    writes before. What `build` and `compact` make is on the disk either way.
    """

    def __init__(self, path: Path, durability: Durability = "full") -> None:
        self.path, self.address, self.durability = path, path, durability
        self._reader = RLock()
        self._written: PassageTable | None = None  # within `writing`
        self._sealed: Mapping[str, str] | None = None  # to be written when that ends
        self._tokens: dict[Path, IndexTokens] = {}
        self._load()

    @classmethod
    def open(cls, address: str, durability: str = "full") -> LocalStore:
        """The index in a folder. Where a power cut took files, it goes on from the last version that is whole."""
        return cls(existing(address, "index folder"), durability_of(durability))

    @classmethod
    def build(cls, address: str, encoder: Encoder, passages: Iterable[Passage], settings: BuildSettings) -> LocalStore:
        """As `AddressedStore.build`. From `interlingua.index.local.search.APPROXIMATE_FROM` passages on dense search is
        approximate."""
        path = restore(Path(address))
        if path.exists() and not (path / MARKER).exists():
            raise BadInput(f"{path}: is not an index, so it is not overwritten. Choose another folder.")
        if path.exists() and not settings.overwrite:
            raise already_there(path)
        durability = durability_of(settings.durability)
        build_folder(encoder, passages, path.resolve(), settings)
        return cls(path, durability)

    @classmethod
    def check(cls, address: str, pace: float | None = None, *, rows: bool = True) -> Iterator[Finding]:
        return check_folder(existing(address, "index folder"), pace, rows=rows)

    @property
    def view(self) -> LocalView:
        """The snapshot that was taken last."""
        return self._view

    def refresh(self) -> LocalView:
        """Take a snapshot of the newest version, or of the index that was built anew in this folder."""
        with self._reader:
            if signature(self.path) != self._signature:
                self._load()
            else:
                self._take(self._view, self._signature)
            return self._view

    def _load(self) -> None:
        restore(self.path)  # a build with `overwrite` moves the old one aside for a moment
        stamp, metadata = signature(self.path), read_metadata(self.path)
        self._metadata, self._table = metadata, whole_table(self.path)
        self._take(None, stamp)
        self._signature = stamp  # last, so that the next call finds what is wrong here again

    def _take(self, before: LocalView | None, stamp: tuple[int, int]) -> None:
        while True:
            try:
                snapshot = Snapshot.take(self._table, self.path, before.snapshot if before else None)
                if before is not None and snapshot is before.snapshot:
                    return
                search = dense_search_of(self._table, snapshot)
                break
            except Stale:
                self._table = PassageTable.open(self.path)
        self._view = LocalView(self, self._metadata, stamp, snapshot, search)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock of the folder; what was written is on the disk when the outermost block ends."""
        if self._written is not None:
            yield
            return
        with lock(self.path):
            for folder in (self.path, *self.path.glob(f"{TOKENS}/*")):
                remove_leftovers(folder)
            self.refresh()
            self._written = table = PassageTable(self.path)
            try:
                try:
                    yield
                except BaseException:
                    if self.durability == "full":
                        with suppress(InterlinguaError, OSError):  # what was changed before stays, and is to stay
                            table.sync()
                    raise
                if self.durability == "full":
                    table.sync()
                    if self._sealed is not None:
                        write_seals(self.path, self._sealed)
            finally:
                self._written = self._sealed = None

    def _writable(self) -> PassageTable:
        if self._written is None:
            raise RuntimeError("a store in a folder is written within `writing`")
        return self._written

    def write(
        self,
        changes: Iterable[Sequence[tuple[Passage, Place | None]]],
        encoder: Encoder,
        verb: str,
        names: SourceNames | None,
    ) -> int:
        """As `Store.write`: all passages are encoded before the first is written, and they are one version. What a
        write that was stopped has encoded is not encoded again (`Staged`)."""
        table, changes = self._writable(), iter(changes)
        if (first := next(changes, None)) is None:
            if names is not None:
                write_sources(self.path, names)
            return 0
        staged, number = Staged(self.path, encoder, table.schema), table.next_number()
        mapped = self._view.snapshot.mapped
        replaced = Counter[bool]()  # rows: those in files, and those in memory

        def batches() -> Iterator[Any]:
            count = 0
            for chunk in chain([first], changes):
                passages = [passage for passage, _ in chunk]
                yield table.batch(number + count, to_rows(passages), *staged.encoded(passages))
                count += len(chunk)
                replaced.update(row[0] < mapped for _, row in chunk if row is not None)

        try:
            with spooled(batches(), table.schema, self.path) as (count, reader):
                if names is not None:
                    write_sources(self.path, names)  # first: a name without a passage does no harm
                (table.replace if replaced else table.add)(reader)
        except BaseException:
            staged.stopped()
            raise
        staged.done()
        # who replaces a row in a file makes a new row and a deleted one, who replaces one in memory neither
        self._renew_cache(table, count + replaced[True] - replaced[False])
        return count

    def delete(self, view: View[Place], rows: Collection[Place]) -> None:
        assert isinstance(view, LocalView)  # a later one may have its rows in other places
        table, segments = self._writable(), view.snapshot.segments
        table.delete(np.array(sorted(int(segments[part].numbers[row]) for part, row in rows)))
        self._renew_cache(table, sum(1 if part < view.snapshot.mapped else -1 for part, _ in rows))

    def compact(self, approximate: bool | None = None) -> None:
        """Make the cache again, join the table's files and remove what only older versions need, while searches go on.

        With `approximate` dense search among all passages goes by Lance's index of the vectors, which misses some of
        the best and is quicker where there are millions; with False it is exact again. None leaves that as it is, but
        from `APPROXIMATE_FROM` passages on makes the index of vectors.
        """
        table = self._writable()
        table.compact()
        index_vectors(table, approximate)
        self._write_cache(table)

    def sources(self) -> dict[str, str]:
        return read_sources(self.path)

    def seals(self) -> dict[str, str]:
        return read_seals(self.path)

    def keep_seals(self, seals: Mapping[str, str]) -> None:
        """As `Store.keep_seals`. With the durability "process" nothing is kept: a row number that a power cut took may
        be given again."""
        self._sealed = seals

    def vectors(self) -> Iterator[tuple[list[Passage], Vectors]]:
        """All passages with the vectors that the table holds, in the order of their numbers."""
        table = whole_table(self.path)
        for batch in table.batches((*PASSAGE, "vector"), CHUNK):
            yield passages_of(batch), vectors_of(batch, table.dim)

    def keep_tokens(self, reranker: AnyEncoder) -> int:
        """Keep token vectors (int8) of all passages; return the number that had none. A stopped call keeps what it has
        done."""
        return keep_tokens(self.path, reranker)

    def tokens(self, reranker: AnyEncoder) -> IndexTokens | None:
        """The token vectors that are kept for a reranker; None for none. They stay open for the next search."""
        if not (self.path / TOKENS).exists() or getattr(reranker, "similarity", "") != "maxsim":
            return None
        folder = folder_of(self.path, reranker)  # of several rerankers each has its own
        self._tokens[folder] = IndexTokens.open(folder, self._tokens.get(folder))
        return self._tokens[folder] or None

    def has_tokens(self, reranker: AnyEncoder) -> bool:
        return bool(self.tokens(reranker))

    def repair(self) -> None:
        """Make the cache again, and search that one. Raises Damaged where files of the table are not what was written:
        the cache may be all that is left."""
        with self.writing():
            for name, reason in PassageTable(self.path).damaged()[0]:
                raise Damaged(f"{self.path}: {name} {reason}, so the cache is not made again. Restore a backup.")
            self._write_cache(self._writable())
            self._load()

    def _renew_cache(self, table: PassageTable, changes: int) -> None:
        """After a write, which is there for good and brought so many rows more that are new or deleted: make the cache
        again where much has changed, else its supplement where there is more than is good to read each time. It is
        made before anybody here reads the new rows, which would all be held in memory."""
        view = self._view
        base, supplement = view.snapshot.base, view.snapshot.supplement
        try:
            if changes + view.newer + view.deleted > max(FEW, STALE * len(base)):
                self._write_cache(table)
                return
            loose = changes + view.snapshot.loose
            is_ours = (self.path / CACHES / str(base.version)).exists()  # else a reader made it
            if is_ours and loose > max(FEW, STALE * (0 if supplement is None else len(supplement))):
                table.refresh()
                write_supplement(table, self.path, base)
        except (OSError, Damaged) as error:
            logger.warning(
                f"{self.path}: the passages are written, but not the new cache ({error}). Searches go on without."
            )
        self.refresh()

    def _write_cache(self, table: PassageTable) -> None:
        table.refresh()
        write_cache(table, self.path)
        remove_other_caches(self.path, table.version)
        self.refresh()
