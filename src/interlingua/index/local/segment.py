"""A segment of an index: passages with all that a search reads of them, in memory or mapped from files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage
from interlingua.index.filters import Condition, Mask
from interlingua.index.local.rows import MetadataColumn, PassageRows, Rows, SubwordRows, rows_of
from interlingua.retrieval.bm25.postings import Postings
from interlingua.retrieval.dense.int8 import Int8Matrix

Vectors = NDArray[np.float32]
REMEMBERED = 32


@dataclass(frozen=True)
class Segment:
    """Row i is passage `numbers[i]` of the store. `langs` [rows] counts into `languages`; `ties` [rows] is the place
    of each in the order of `PassageRows.ties`; `reach` is the length of the longest vector. A cache has the `version`
    it was made from, and its vectors as `int8` too; it says whether the store had an `approximate` index of them then
    (None where it does not say). A supplement has the rows `after` the highest number of its cache, and
    the sorted numbers of the cache's rows that were `gone`."""

    numbers: Rows
    passages: PassageRows
    subwords: SubwordRows
    languages: tuple[str, ...]
    langs: NDArray[np.int32]
    vectors: Vectors
    postings: Postings
    ties: Rows
    reach: float
    version: int = 0
    int8: Int8Matrix | None = None
    approximate: bool | None = None
    after: int = -1
    gone: Rows = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @classmethod
    def of(
        cls,
        numbers: Rows,
        passages: Sequence[Passage],
        vectors: Vectors,
        terms: Sequence[list[str]],
        subwords: Sequence[NDArray[np.int64]],
    ) -> Segment:
        """In memory. `terms` are those of each passage, as `terms_of` gives them."""
        languages = tuple(sorted({passage.lang for passage in passages}))
        langs = np.array([languages.index(passage.lang) for passage in passages], dtype=np.int32)
        rows = PassageRows.of(passages)
        return cls(
            numbers,
            rows,
            SubwordRows.of(subwords),
            languages,
            langs,
            vectors,
            Postings.of(terms),
            rows.ties(),
            longest(vectors),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def highest(self) -> int:
        """The highest number, −1 without rows."""
        return int(self.numbers.max(initial=-1))

    def rows(self, numbers: Rows) -> Rows:
        """The rows with these numbers, without those that are not here."""
        rows = rows_of(numbers, self.numbers, self._order)
        return rows[rows >= 0]

    @cached_property
    def _order(self) -> Rows:
        return np.argsort(self.numbers, kind="stable")

    def in_languages(self, langs: Collection[str]) -> Mask:
        """[rows]: whether each is in one of these languages."""
        return np.isin(self.langs, [place for place, name in enumerate(self.languages) if name in langs])

    @cached_property
    def column(self) -> Callable[[str], MetadataColumn]:
        """key of metadata → its values, remembered for the last few"""
        return lru_cache(REMEMBERED)(self.passages.column)

    def sources(self) -> tuple[list[str], NDArray[np.int32]]:
        """The sources, "" at the end, and [rows]: the place of each row's among them."""
        column = self.column("source")
        names = [*column.values.texts, ""]
        return names, np.where(column.codes < 0, len(names) - 1, column.codes)

    @cached_property
    def where(self) -> Callable[[Condition], Mask]:
        """condition → [rows]: whether each fits it, remembered for the last few"""
        column = self.column  # not `self`: files that are mapped would stay open until cycles are collected
        return lru_cache(REMEMBERED)(lambda one: column(one.key).where(one))


def longest(vectors: Vectors) -> float:
    """The length of the longest of `vectors` [rows, dim]."""
    squares = np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64)
    return float(np.sqrt(squares.max(initial=0)))
