"""Late interaction without a transformer: MaxSim over the subword vectors of a static encoder.

    score(q, d) = Σ_i w_i · max_j cos(q_i, d_j) / Σ_i w_i,    w_i = |q_i|² · ln(1 + n / (n_i + ½))

for the subwords i of a question and j of a passage: ColBERT's MaxSim (Khattab & Zaharia 2020; Yang et al. 2022), where
a subword has one vector wherever it stands. Training makes the vectors of telling subwords long, so their squared
lengths say how much each subword of the question counts. It counts the less the more of the n passages compared have
it or one like it, n_i = Σ_d max_j max(0, cos(q_i, d_j))⁸: what all of them say tells none apart. The mean of a
passage's vectors blurs what its single words say; this looks at each of them, in any language. docs/results/hybrid.md
says what it brings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import log1p
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage
from interlingua.errors import Damaged
from interlingua.lazy import LateKernel
from interlingua.models.protocols import AnyEncoder
from interlingua.models.static.encoder import StaticSide, StaticTable, int8_rows, static_sides
from interlingua.retrieval.dense.int8 import ROWS, STEP, laid_out
from interlingua.retrieval.retriever import Vectors, passage_texts, searchable

Ids = NDArray[np.int64]
StoredIds = NDArray[np.integer[Any]]
"""Numbers of subwords as a store has them, in any type of whole numbers."""
Floats = NDArray[np.float32]
MOST = 4_096
"""Distinct subwords of a passage that are looked at, the first of them in the order of the vocabulary."""
LONGEST = 256
"""Distinct subwords of a question that are looked at, the heaviest."""
KERNEL = LateKernel("retrieval.dense.int8_kernel", "subwords are matched by NumPy", worth=5_000)
"""Its work is counted in questions. The results are the same with it and without."""
EXACT = 1_040  # dimensions up to which a product of int8 vectors is a whole number that float32 holds
TOGETHER = 4_096  # passages encoded, and rows of the vocabulary looked at, at a time


class Question(NamedTuple):
    """Distinct subwords of a question, the `LONGEST` heaviest, and how much each counts by its length: float64,
    together 1."""

    subwords: Ids
    weights: NDArray[np.float64]


class StaticMaxSim:
    """MaxSim between questions and passages by the subword vectors of a static encoder, held as int8.

    Cosines depend on nothing but the question and the passage: products of int8 vectors are exact, in whatever order
    they are summed. Make one with `of`; safe to use from several threads.
    """

    def __init__(self, query: StaticSide, passage: StaticSide) -> None:
        self._query, self._passage = query, passage

    @classmethod
    def of(cls, encoder: AnyEncoder | None, before: StaticMaxSim | None = None) -> StaticMaxSim | None:
        """The matcher of an encoder; None for an encoder without `static_sides`. `before` is returned where it belongs
        to the same encoder."""
        sides = static_sides(encoder)
        if sides is None:
            return None
        if before is not None and sides[0].is_like(before._query) and sides[1].is_like(before._passage):
            return before
        return cls(*sides)

    @property
    def vocabulary(self) -> int:
        """Subwords that passages may have."""
        return self._passage.table.shape[0]

    @cached_property
    def _asked(self) -> _Rows:
        return _Rows(self._query.table)

    @cached_property
    def _held(self) -> _Rows:
        return self._asked if self._passage is self._query else _Rows(self._passage.table)

    def subwords(self, passages: Sequence[Passage]) -> list[Ids]:
        """The distinct subwords of each passage, rising."""
        return [distinct for ids in self._tokenized(passages) for distinct in map(_first, ids)]

    def encode(self, passages: Sequence[Passage]) -> tuple[list[Ids], Vectors]:
        """`subwords`, and the vectors `[passages, dim]` that `embed_passages` gives: tokenised once for both."""
        subwords, vectors = list[Ids](), list[Vectors]()
        for ids in self._tokenized(passages):
            vectors.append(self._passage.vectors(ids))
            subwords += map(_first, ids)
        passage_ids = [passage.id for passage in passages]
        return subwords, searchable(np.concatenate(vectors), self._passage.settings.similarity, passage_ids, "passage")

    def _tokenized(self, passages: Sequence[Passage]) -> Iterator[list[list[int]]]:
        texts = passage_texts(passages)
        for start in range(0, len(texts), TOGETHER):
            yield self._passage.tokenize(texts[start : start + TOGETHER], "passage")

    def question(self, text: str) -> Question:
        """The distinct subwords of a question, and their weights."""
        ids, counts = np.unique(np.array(self._query.tokenize([text], "query")[0], dtype=np.int64), return_counts=True)
        weights = counts * self._asked.of(ids).squares[ids]
        if len(ids) > LONGEST:
            heaviest = np.sort(np.argsort(-weights, kind="stable")[:LONGEST])
            ids, weights = ids[heaviest], weights[heaviest]
        return Question(ids, weights / max(weights.sum(), np.finfo(float).tiny))

    def scores(self, question: Question, passages: Sequence[StoredIds]) -> Floats:
        """`[passages]`: the score of each among all, given by its subwords, from −1 to 1; 0 where either side has none.
        Raises Damaged for subwords that the vocabulary does not have."""
        sizes = np.array([len(ids) for ids in passages], dtype=np.int64)
        there, total = sizes > 0, np.zeros(len(passages))
        if not there.any() or not len(question.subwords):
            return total.astype(np.float32)
        cosines = self._nearest(question, passages, sizes).astype(np.float64)
        squares = np.maximum(0, cosines) ** 2
        fourths = squares * squares
        count, alike = np.count_nonzero(there), (fourths * fourths).sum(axis=0).tolist()
        weights = question.weights * [log1p(count / (number + 0.5)) for number in alike]
        weights /= max(weights.sum(), np.finfo(float).tiny)
        for weight, column in zip(weights, cosines.T, strict=True):  # one after another, in this order
            total += weight * column
        return total.astype(np.float32)

    def _nearest(self, question: Question, passages: Sequence[StoredIds], sizes: Ids) -> Floats:
        """`[passages, subwords]`: the cosine of each subword of the question to the nearest one of each passage, 0 for
        a passage without any; `sizes` are their numbers of subwords."""
        flat = np.concatenate(passages).astype(np.int64)
        lowest, highest = int(flat.min()), int(flat.max())
        if lowest < 0 or highest >= self.vocabulary:
            raise Damaged(
                f"a passage has the subword {lowest if lowest < 0 else highest}, and the model has "
                f"{self.vocabulary:,}: the index is damaged. `interlingua check --repair` mends its cache; else build "
                "it again with --overwrite."
            )
        nearest: Floats = np.zeros((len(passages), len(question.subwords)), dtype=np.float32)
        if (compiled := KERNEL(1)) is not None:
            asked, held = self._asked.of(question.subwords), self._held.of(flat)
            packed = laid_out(asked.int8[question.subwords])
            inverses: Floats = np.zeros(packed.shape[0] * ROWS, dtype=np.float32)
            inverses[: len(question.subwords)] = asked.inverse[question.subwords]
            table = held.int8.reshape(len(held.int8), -1, STEP)
            compiled.nearest(packed, inverses, table, held.sums, held.inverse, flat, np.cumsum(sizes), nearest)
            return nearest
        distinct, places = _distinct(flat, self.vocabulary)
        cosines = _cosines(self._asked, question.subwords, self._held, distinct)
        starts = (np.cumsum(sizes) - sizes)[sizes > 0]
        nearest[sizes > 0] = np.maximum.reduceat(cosines[:, places], starts, axis=1).T
        return nearest


class _Rows:
    """Subword vectors as int8 `[vocabulary, dim in whole STEPs]`, their sums, 1 / their lengths (0 for zero vectors),
    and the squared lengths of the vectors themselves. A row is filled in when it is first asked for: a question needs
    few of them."""

    def __init__(self, table: StaticTable) -> None:
        rows, dim = table.shape
        self._table, self._there = table, np.zeros(rows, dtype=bool)
        self.int8, self.squares = np.zeros((rows, dim + -dim % STEP), dtype=np.int8), np.zeros(rows)
        self.sums, self.inverse = np.zeros(rows, dtype=np.int32), np.zeros(rows, dtype=np.float32)

    def of(self, ids: Ids) -> _Rows:
        """These rows filled in. Another thread may fill in the same ones with the same numbers."""
        new = ids[~self._there[ids]]
        if not len(new):
            return self
        new = np.unique(new)
        for start in range(0, len(new), TOGETHER):
            block = new[start : start + TOGETHER]
            rows = self._table.take(block)
            int8, _ = int8_rows(rows)
            lengths = np.sqrt(_squares(int8))
            self.int8[block, : rows.shape[1]], self.squares[block] = int8, _squares(rows)
            self.sums[block] = int8.sum(axis=1, dtype=np.int32)
            self.inverse[block] = np.divide(1, lengths, where=lengths > 0, out=np.zeros(len(lengths)))
            self._there[block] = True
        return self


def _squares(rows: NDArray[Any]) -> NDArray[np.float64]:
    """[rows]: squared lengths."""
    exact = rows.astype(np.float64)
    squares: NDArray[np.float64] = (exact * exact).sum(axis=1)
    return squares


def _first(ids: list[int]) -> Ids:
    return np.array(sorted(set(ids))[:MOST], dtype=np.int64)  # for so few, faster than np.unique


def _distinct(flat: Ids, size: int) -> tuple[Ids, Ids]:
    """The distinct numbers of `flat`, all under `size`, and where among them each is: np.unique without sorting."""
    present = np.zeros(size, dtype=bool)
    present[flat] = True
    distinct = np.flatnonzero(present)
    place = np.zeros(size, dtype=np.int64)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[flat]


def _cosines(query: _Rows, left: Ids, passage: _Rows, right: Ids) -> Floats:
    """`[left, right]`: cosines between the int8 vectors; 0 for a zero vector."""
    dtype: Any = np.float32 if query.int8.shape[1] <= EXACT else np.float64
    query, passage = query.of(left), passage.of(right)
    products = passage.int8[right].astype(dtype) @ query.int8[left].astype(dtype).T  # twice as fast as the other way
    cosines: Floats = products.T.astype(np.float32) * query.inverse[left][:, None] * passage.inverse[right]
    return cosines
