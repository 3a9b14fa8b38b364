"""The scores of passages for the terms of a question, and the best of them: by NumPy, or by a kernel of numba's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import Damaged
from interlingua.lazy import LateKernel
from interlingua.retrieval.bm25.postings import Postings, Weights, term_weights

Rows = NDArray[np.int64]
KERNEL = LateKernel("retrieval.bm25.kernel", "BM25 is summed up by NumPy", worth=1e8)
"""Its work is counted in questions times passages. The results are the same with it and without."""
BLOCK = 64  # passages of which only the best may count
MANY = 4  # the kernel is for at most this part of the passages


@dataclass(frozen=True)
class TermSearch:
    """BM25 over `postings`: `values` [postings] are the weights, float32; or, with the `length_norms` `norms`
    [passages], the counts, from which each weight is computed when it is needed."""

    postings: Postings
    values: NDArray[Any]
    norms: NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.postings.lengths)

    def matches(self, terms: Sequence[int], idfs: Sequence[float] = (), times: Sequence[float] = ()) -> TermMatches:
        """The matches of a question with these `terms`, by their numbers in the postings. `idfs`: their inverse
        document frequencies, where `values` are counts; `times`: how often each counts (once)."""
        ones = np.ones(len(terms), dtype=np.float32)
        factors = (np.array(values, dtype=np.float32) if len(values) else ones for values in (idfs, times))
        return TermMatches(self, np.array(terms, dtype=np.int64), *factors)

    def weights(self, idf: Any, at: slice | Rows) -> Weights:
        """The contributions of some postings of a term to scores, float32."""
        if self.norms is None:
            return self.values[at]
        return term_weights(idf, self.values[at], self.norms[self.postings.passages[at]])

    @cached_property
    def arrays(self) -> tuple[tuple[NDArray[Any], ...], NDArray[np.float64]]:
        """The arrays that the kernel reads, of one type, whether they are mapped or not; and the most that a posting of
        each term adds with an idf of 1, which the kernel fills in where it is below 0."""
        norms = np.empty(0) if self.norms is None else self.norms
        arrays = (self.postings.starts, self.postings.passages, self.values, norms)
        return tuple(_read_only(array) for array in arrays), np.full(len(self.postings.terms), -1.0)


class TermMatches:
    """The scores of passages for one question: float32 sums, in the order of its terms."""

    def __init__(self, search: TermSearch, terms: Rows, idfs: Weights, times: Weights) -> None:
        self._search, self._terms, self._idfs, self._times = search, terms, idfs, times

    @cached_property
    def scores(self) -> Weights:
        """[passages]: the score of every passage, by NumPy."""
        search, scores = self._search, np.zeros(len(self._search), dtype=np.float32)
        for term, idf, times in self._each():
            part = search.postings.part(term)
            scores[search.postings.passages[part]] += times * search.weights(idf, part)  # a passage occurs once
        return scores

    def of(self, rows: Rows) -> Weights:
        """[rows]: the scores of some passages."""
        if "scores" in vars(self):
            return self.scores[rows]
        search, scores, targets = self._search, np.zeros(len(rows), dtype=np.float32), rows.astype(np.int32)
        for term, idf, times in self._each():
            part = search.postings.part(term)
            passages = search.postings.passages[part]
            if not len(passages):
                continue
            places = np.searchsorted(passages, targets)
            hits = np.flatnonzero(passages[places.clip(max=len(passages) - 1)] == targets)
            scores[hits] += times * search.weights(idf, part.start + places[hits])
        return scores

    def best(self, depth: int, ties: Rows, chosen: NDArray[np.bool_] | None = None) -> tuple[Rows, Weights]:
        """The `depth` best of the `chosen` passages (None: of all) with a score above 0: their rows and scores, best
        first, equal scores by `ties` [passages] ascending. Raises Damaged where the kernel finds that the
        postings cannot be right."""
        search = self._search
        compiled = None if depth * MANY > len(search) or "scores" in vars(self) else KERNEL(len(search))
        if compiled is None:
            return best_rows(self.scores if chosen is None else self.scores * chosen, depth, ties)
        mask = ALL if chosen is None else _read_only(chosen)
        query = (self._terms, self._idfs, self._times)
        rows, scores = compiled.best(*search.arrays, len(search), query, mask, depth)
        if len(rows) and rows[0] < 0:
            raise Damaged("the postings of BM25 are damaged. Build it again; an index: `interlingua check --repair`.")
        return _ordered(rows, scores, depth, ties)

    def _each(self) -> Iterator[tuple[int, Any, Any]]:
        return zip(self._terms.tolist(), self._idfs, self._times, strict=True)


def best_rows(scores: Weights, depth: int, ties: Rows) -> tuple[Rows, Weights]:
    """The `depth` best of `scores` [passages], those above 0 only: their rows and scores, best first, equal
    scores by `ties` [passages] ascending."""
    threshold = np.float32(0)
    if len(scores) > depth * BLOCK:
        # the depth-th best block has a best passage, and so have all better blocks: no less can be among the first
        peaks = np.maximum.reduceat(scores, np.arange(0, len(scores), BLOCK))
        threshold = np.partition(peaks, len(peaks) - depth)[len(peaks) - depth]
    rows = np.flatnonzero(scores >= threshold) if threshold > 0 else np.flatnonzero(scores)
    return _ordered(rows, scores[rows], depth, ties)


def _ordered(rows: Rows, scores: Weights, depth: int, ties: Rows) -> tuple[Rows, Weights]:
    """The first `depth` of some rows by their `scores`, all above 0, and where these are equal by `ties`."""
    bits = scores.view(np.int32).astype(np.int64)  # float32 above 0 are ordered as their bits are
    order = np.argsort(ties[rows] - (bits << 32))[:depth]
    return rows[order], scores[order]


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view of one type, compiled once, for what is a memory map and what is not."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


ALL = _read_only(np.empty(0, dtype=bool))
