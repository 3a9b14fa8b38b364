"""The search behind BM25: bm25s adds up the weights, and ties at the cut are resolved after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import InterlinguaError
from interlingua.retrieval.postings import Postings

Rows = NDArray[np.int64]
Scores = NDArray[np.float32]
WORTH_COMPILING = 1e9
"""Queries times passages, summed up over a process, at which bm25s's numba kernel would have saved the seconds that it
takes to compile. From then on it is used where numba is installed, before that numpy. The results are the same."""
SPARE = 16  # results beyond the cut, to see whether more tie with the last
BLOCK = 64  # passages of which only the best may count


class Engine:
    """Sums of `weights` [postings] float32 over the postings of a query's terms."""

    searched: ClassVar[float] = 0  # queries times passages, of all engines

    def __init__(self, postings: Postings, weights: NDArray[np.float32]) -> None:
        self._postings, self._weights = postings, weights

    def scores(self, terms: Sequence[int]) -> Scores:
        """[passages]: the score of every passage for the numbers of a query's terms."""
        if not terms:
            return np.zeros(len(self._postings.lengths), dtype=np.float32)
        found: Scores = self._with_numpy.get_scores_from_ids(list(terms))
        return found

    def best(self, queries: Sequence[list[int]], depth: int, ties: Rows) -> Iterator[tuple[Rows, Scores]]:
        """For each query (the numbers of its terms, at least one) the `depth` best passages with a score above 0, in
        any order. Equal scores are taken by `ties` [passages] ascending where the cut goes through a tie."""
        count = len(self._postings.lengths)
        Engine.searched += len(queries) * count
        if not queries or Engine.searched < WORTH_COMPILING or find_spec("numba") is None:
            for terms in queries:
                yield _first(self.scores(terms), depth, ties)
            return
        asked = min(depth + SPARE, count)
        found = self._with_numba.retrieve(list(queries), k=asked, show_progress=False)
        for terms, rows, scores in zip(queries, found.documents, found.scores, strict=True):
            if asked < count and scores[-1] == scores[depth - 1] > 0:  # more may tie than came along
                yield _first(self.scores(terms), depth, ties)
            else:
                positive = np.count_nonzero(scores)
                yield _cut(rows[:positive], scores[:positive], depth, ties)

    @cached_property
    def _with_numpy(self) -> Any:
        return self._bm25s("numpy")

    @cached_property
    def _with_numba(self) -> Any:
        return self._bm25s("numba")

    def _bm25s(self, backend: str) -> Any:
        """A bm25s retriever that holds these postings and weights, in place of what its own `index` would make."""
        try:
            from bm25s import BM25
        except ImportError:
            raise InterlinguaError("BM25 needs bm25s: pip install 'interlingua[index]'") from None
        retriever = BM25(method="lucene", backend=backend)
        terms = len(self._postings.starts) - 1
        retriever.scores = {"data": self._weights, "indices": self._postings.passages, "indptr": self._postings.starts,
                            "num_docs": len(self._postings.lengths)}
        retriever.vocab_dict, retriever.unique_token_ids_set = {}, range(terms)
        retriever.nonoccurrence_array = None
        return retriever


def _first(scores: Scores, depth: int, ties: Rows) -> tuple[Rows, Scores]:
    """The `depth` best of all `scores` [passages]."""
    least = np.float32(0)
    if len(scores) > depth * BLOCK:
        # the depth-th best block has a best passage, and so have all better blocks: no less can be among the first
        peaks = np.maximum.reduceat(scores, np.arange(0, len(scores), BLOCK))
        least = np.partition(peaks, len(peaks) - depth)[len(peaks) - depth]
    rows = np.flatnonzero(scores >= least) if least > 0 else np.flatnonzero(scores)
    order = np.argsort(-scores[rows], kind="stable")
    return _cut(rows[order], scores[rows][order], depth, ties)


def _cut(rows: Rows, scores: Scores, depth: int, ties: Rows) -> tuple[Rows, Scores]:
    """The first `depth` of results ordered by score; of those that tie with the last, the first by `ties`."""
    if len(rows) > depth and scores[depth - 1] == scores[depth]:
        order = np.lexsort((ties[rows], -scores))
        rows, scores = rows[order], scores[order]
    return rows[:depth], scores[:depth]
