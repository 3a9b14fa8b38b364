"""Token vectors of an index's passages, kept for a model of late interaction: reranking then encodes questions only."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from interlingua.data.records import Passage
from interlingua.errors import BadInput, Damaged, NotFound, Stale
from interlingua.files import make_folder, remove_folder, remove_leftovers
from interlingua.index.local.rows import BATCH, PASSAGE, Rows, passage_of, rows_of
from interlingua.index.local.table import PassageTable, lock
from interlingua.index.metadata import signature
from interlingua.models.folder import fingerprint
from interlingua.models.protocols import AnyEncoder, MultiVectorEncoder, has_token_vectors

if TYPE_CHECKING:
    from interlingua.retrieval.late_interaction.token_store import TokenStore

logger = logging.getLogger(__name__)


FOLDER = "tokens"
PART = 8192
"""Passages of a part: what has to be encoded again after a stop."""
SMALL = 20
"""Parts of less than half of that, from many small changes: when there are more, they are made again together."""
DTYPE = "int8"


class Part(NamedTuple):
    """A part, with time and inode, by which it differs from an older part in the same place."""

    path: Path
    written: int
    inode: int


class IndexTokens:
    """The parts in a folder, each a `TokenStore` whose ids are numbers of passages. Row numbers are immutable
    until the index is built anew, so that nothing here is out of date: new passages have numbers that are not here, and
    numbers of deleted ones are never looked up."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self.parts = parts
        self.stores = [_open(part) for part in parts]
        numbers = [_numbers(store) for store in self.stores]
        self._numbers = np.concatenate([np.empty(0, dtype=np.int64), *numbers])
        self._order = np.argsort(self._numbers)
        self._starts = np.cumsum([0, *map(len, numbers)])

    @classmethod
    def open(cls, folder: Path, before: IndexTokens | None) -> IndexTokens:
        """The token vectors in a `folder_of` an encoder, perhaps none. `before` is returned where nothing has changed
        since. Raises Damaged for a damaged part."""
        before = before or cls(())
        while (parts := complete(folder)) != before.parts:
            try:
                return cls(parts)
            except (NotFound, Damaged):
                if complete(folder) == parts:
                    raise  # else a part was removed just now
        return before

    def __len__(self) -> int:
        return len(self._numbers)

    def rows(self, numbers: Sequence[int] | Rows) -> Rows:
        """The row of each of these numbers, counted over all parts; −1 for one that is not here."""
        return rows_of(numbers, self._numbers, self._order)

    def find(self, numbers: Sequence[int]) -> dict[int, tuple[TokenStore, int]]:
        """The store and the row of each of these numbers that is here."""
        places: dict[int, tuple[TokenStore, int]] = {}
        for number, row in zip(numbers, self.rows(numbers).tolist(), strict=True):
            if row >= 0:
                part = int(np.searchsorted(self._starts, row, side="right")) - 1
                places[number] = self.stores[part], int(row - self._starts[part])
        return places


def keep_tokens(index: Path, encoder: AnyEncoder) -> int:
    """Encode the passages of an index that have no token vectors by `encoder` yet, part by part; return their number.

    A part of which most passages are gone is removed first. The index may be searched and changed meanwhile. Raises
    BadInput for an encoder without token vectors, and where another process does the same.
    """
    if not has_token_vectors(encoder):
        raise BadInput(
            "this model gives one vector a text, and reranks without token vectors. Give a model of late interaction."
        )
    folder, stamp = folder_of(index, encoder), signature(index)
    make_folder(folder)
    with lock(folder):
        _tidy(folder, PassageTable.open(index).numbers())
        count = 0
        while True:
            store = PassageTable.open(index)
            store.sync()  # the numbers of a version that a power cut takes would be given again
            try:
                for passages in _missing(store, IndexTokens(complete(folder))):
                    _write(folder / passages[0].id, encoder, passages, lambda: signature(index) == stamp)
                    count += len(passages)
                return count
            except Stale:
                if signature(index) != stamp:
                    raise  # else a newer version is to be read


def _write(path: Path, encoder: MultiVectorEncoder, passages: Sequence[Passage], same: Callable[[], bool]) -> None:
    """One part, unless the index is not the `same` any more: one that was built anew gives the numbers again."""
    from interlingua.retrieval.late_interaction.retriever import passage_tokens
    from interlingua.retrieval.late_interaction.token_store import TokenStore

    try:
        TokenStore.build(passage_tokens(encoder, passages), dtype=DTYPE, path=path)
    except OSError:
        if same():
            raise
    if not same():
        shutil.rmtree(path, ignore_errors=True)
        raise Stale(f"{path.parent}: the index was built anew meanwhile. Give the command again.")


def _tidy(folder: Path, live: Rows) -> None:
    """Remove parts of which most passages are gone or that are damaged, many small ones, and what a process that was
    killed was writing."""
    small = []
    for part in complete(folder):
        try:
            numbers = _numbers(_open(part))
        except (NotFound, Damaged):
            numbers = np.empty(0, dtype=np.int64)
        if not len(numbers) or 2 * np.isin(numbers, live).sum() < len(numbers):
            remove_folder(part.path)
        elif 2 * len(numbers) < PART:
            small.append(part.path)
    for path in small if len(small) > SMALL else []:
        remove_folder(path)
    remove_leftovers(folder)


def _open(part: Part) -> TokenStore:
    from interlingua.retrieval.late_interaction.token_store import TokenStore

    return TokenStore.open(part.path)


def _numbers(store: TokenStore) -> Rows:
    return np.array(store.ids, dtype=np.int64)


def folder_of(index: Path, encoder: AnyEncoder) -> Path:
    """The folder of the token vectors of an encoder. It is named by the encoder's fingerprint, so that another model
    finds none."""
    return index / FOLDER / hashlib.sha256(json.dumps(fingerprint(encoder), sort_keys=True).encode()).hexdigest()[:16]


def complete(folder: Path) -> tuple[Part, ...]:
    """The parts in a folder; one that is being written has another name."""
    from interlingua.retrieval.late_interaction.token_store import ABOUT

    parts = []
    for path in sorted(folder.glob("*")):
        with suppress(FileNotFoundError):  # it was removed just now
            if path.name.isdecimal():
                status = (path / ABOUT).stat()
                parts.append(Part(path, status.st_mtime_ns, status.st_ino))
    return tuple(parts)


def _missing(store: PassageTable, tokens: IndexTokens) -> Iterator[list[Passage]]:
    """The passages that are not in `tokens`, a part at a time, with their numbers as ids."""
    passages: list[Passage] = []
    live = store.numbers()
    logger.info(f"{int((tokens.rows(live) < 0).sum()):,} of {len(live):,} passages have no token vectors yet")
    for batch in store.batches(("number", *PASSAGE), BATCH):
        places = tokens.rows(batch.column("number").to_numpy()).tolist()
        passages += [
            replace(passage_of(row), id=str(row["number"]))
            for row, place in zip(batch.to_pylist(), places, strict=True)
            if place < 0
        ]
        while len(passages) >= PART:
            yield passages[:PART]
            passages = passages[PART:]
    if passages:
        yield passages
