"""Dense and lexical search of a snapshot of a local index."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from math import isqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import BadInput, Stale
from interlingua.index.filters import Mask
from interlingua.index.local.rows import Rows
from interlingua.index.local.segment import Segment
from interlingua.index.local.snapshot import Place, Snapshot
from interlingua.index.local.table import PassageTable
from interlingua.index.store import LexicalMatches
from interlingua.retrieval.bm25.postings import inverse_frequency, length_norms
from interlingua.retrieval.bm25.search import TermSearch
from interlingua.retrieval.dense.int8 import GROUP

logger = logging.getLogger(__name__)

Floats = NDArray[np.float32]
SPARE = 16  # candidates beyond the cut, which rounding may have put there
SMALL = 1 << 22
"""Components of rows, and scores, that NumPy multiplies and holds at once: in a few milliseconds, and without torch,
which takes seconds to load."""


class DenseSearch(Protocol):
    """For each of `vectors` [queries, dim] the scores of the `depth` best passages, or about these, among the `chosen`
    rows, and of a few more."""

    def __call__(
        self, snapshot: Snapshot, vectors: Floats, depth: int, chosen: Sequence[Mask | None]
    ) -> list[dict[Place, float]]: ...


def exactly(snapshot: Snapshot, vectors: Floats, depth: int, chosen: Sequence[Mask | None]) -> list[dict[Place, float]]:
    """For each of `vectors` [queries, dim] the scores of the `depth` best passages among the `chosen` rows, and of a
    few more.

    What a matrix product finds is scored again by `products`, since the last bit of a matrix product depends on what
    stands beside a row. As many are taken as it needs for rounding to hide no better one.
    """
    rows = [None if mask is None else np.flatnonzero(mask) for mask in chosen]
    scores: list[dict[Place, float]] = [{} for _ in vectors]
    queries, limit = list(range(len(vectors))), depth + SPARE
    while queries:
        bounds = np.full(len(queries), -np.inf)  # no score of another row is higher
        for number, segment in enumerate(snapshot.segments):
            total = len(segment) if (subset := rows[number]) is None else len(subset)
            if not total:
                continue
            best, values = _searched(segment, vectors[queries], min(limit, total), subset)
            for query, columns in zip(queries, best, strict=True):
                exact = products(segment, columns, vectors[query]).tolist()
                scores[query].update(zip([(number, row) for row in columns.tolist()], exact, strict=True))
            if limit < total:
                bounds = np.maximum(bounds, values[:, -1] + _slack(segment, vectors[queries]))
        complete = [
            len(scores[query]) >= depth and sorted(scores[query].values())[-depth] > bound
            for query, bound in zip(queries, bounds.tolist(), strict=True)
        ]
        queries = [
            query for query, done, bound in zip(queries, complete, bounds, strict=True) if not done and bound > -np.inf
        ]
        limit *= 4
    return scores


def scored(snapshot: Snapshot, places: Sequence[Place], vector: Floats) -> dict[Place, float]:
    """The dot products of passages with `vector` [dim]."""
    return _by_segment(places, [partial(products, segment, vector=vector) for segment in snapshot.segments])


def _by_segment(places: Sequence[Place], scores: Sequence[Callable[[Rows], Floats]]) -> dict[Place, float]:
    """The scores of passages: `scores` has for each segment what gives those of its rows."""
    by_place: dict[Place, float] = {}
    for number, score in enumerate(scores):
        rows = np.array([row for part, row in places if part == number], dtype=np.int64)
        by_place.update(zip([(number, row) for row in rows.tolist()], score(rows).tolist(), strict=True))
    return by_place


def products(segment: Segment, rows: Rows, vector: Floats) -> Floats:
    """[rows]: dot products with `vector` [dim], each summed by itself in float64."""
    sums: NDArray[np.float64] = np.einsum("nd,d->n", segment.vectors[rows], vector, dtype=np.float64)
    return sums.astype(np.float32)


def _searched(segment: Segment, vectors: Floats, k: int, rows: Rows | None) -> tuple[Rows, Floats]:
    count = len(segment) if rows is None else len(rows)
    if count * max(len(vectors), segment.vectors.shape[1]) <= SMALL:
        return _by_numpy(vectors, segment.vectors if rows is None else segment.vectors[rows], k, rows)
    if segment.int8 is not None and len(vectors) > GROUP:
        return segment.int8.search(vectors, segment.vectors, k, rows=rows)
    candidates = None if segment.int8 is None else segment.int8.candidates(vectors, k, rows)
    if candidates is not None and len(candidates) * max(len(vectors), segment.vectors.shape[1]) <= SMALL:
        return _by_numpy(vectors, segment.vectors[candidates], k, candidates)
    from interlingua.retrieval.dense.exact import search_exact

    return search_exact(vectors, segment.vectors, k, rows=rows if candidates is None else candidates)


def _by_numpy(vectors: Floats, row_vectors: Floats, k: int, rows: Rows | None) -> tuple[Rows, Floats]:
    """`search_exact` in NumPy: the `k` largest scores of each query, best first; ties in any order."""
    with np.errstate(invalid="ignore"):
        scores = vectors @ row_vectors.T
    if np.isnan(scores).any():
        raise BadInput("a score is NaN: some query or passage vector holds NaN or infinity.")
    best = np.argpartition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k :]
    values = np.take_along_axis(scores, best, axis=1)
    order = np.argsort(-values, axis=1)
    best, values = np.take_along_axis(best, order, axis=1), np.take_along_axis(values, order, axis=1)
    return best if rows is None else rows[best], values


def _slack(segment: Segment, vectors: Floats) -> NDArray[np.float64]:
    """[queries]: how much rounding in float32 can change a score."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    slack: NDArray[np.float64] = vectors.shape[1] * float(np.finfo(np.float32).eps) * segment.reach * lengths
    return slack


APPROXIMATE_FROM = 3_000_000
"""Passages from which it is worth it: docs/benchmarks.md says what was measured."""
SPARE_NEAR, LEAST = 4, 400  # times as many candidates as are wanted, and the least, which are then scored exactly
PROBES = 20  # parts of the index that are looked into at least; else an eighth of √n


def index_vectors(store: PassageTable, wanted: bool | None = None) -> None:
    """Give the vectors of `store` an approximate index, or take it away. None gives one to `APPROXIMATE_FROM` passages
    and leaves fewer as they are."""
    if wanted is None and len(store) >= APPROXIMATE_FROM:
        wanted = True
    if wanted is None or wanted == store.approximate:
        return
    if wanted:
        logger.info(f"{store.folder}: indexing {len(store):,} vectors for approximate search")
    store.index_vectors(wanted)


def dense_search_of(store: PassageTable, snapshot: Snapshot) -> DenseSearch:
    """The dense search for `snapshot`, which was just taken from `store`: by Lance's index where there is one."""
    approximate = snapshot.files.approximate if snapshot.version == snapshot.files.version else None
    indexed = store.approximate if approximate is None else approximate
    return approximately(PassageTable.open(store.folder, snapshot.version)) if indexed else exactly


def approximately(store: PassageTable) -> DenseSearch:
    """A search by the index in `store`, which is at the version of the snapshots that are searched. What it finds is
    scored again. It is for all rows: `chosen` is what is left of the deleted ones, which Lance leaves out too. Where a
    writer has removed the version meanwhile, and where too little is found, search is exact."""
    probes = max(PROBES, isqrt(len(store)) // 8)

    def search(
        snapshot: Snapshot, vectors: Floats, depth: int, chosen: Sequence[Mask | None]
    ) -> list[dict[Place, float]]:
        try:
            places = [snapshot.places(store.near(vector, max(LEAST, SPARE_NEAR * depth), probes)) for vector in vectors]
        except Stale:
            return exactly(snapshot, vectors, depth, chosen)
        if any(len(candidates) < min(depth, len(snapshot)) for candidates in places):
            return exactly(snapshot, vectors, depth, chosen)
        return [scored(snapshot, candidates, vector) for candidates, vector in zip(places, vectors, strict=True)]

    return search


class Lexical:
    """Lucene's BM25 over the live rows of `snapshot`, with parameters `k1` and `b`: the weights of
    `interlingua.retrieval.bm25.postings` for the counts of now, summed in the order of the question's terms."""

    def __init__(self, snapshot: Snapshot, k1: float, b: float) -> None:
        self.snapshot = snapshot
        mean = snapshot.mean_length
        self._parts = [
            TermSearch(postings, postings.counts, length_norms(postings.lengths, mean, k1, b))
            for postings in (segment.postings for segment in snapshot.segments)
        ]

    def matches(self, terms: Counter[str], depth: int, chosen: Sequence[Mask | None]) -> LexicalMatches[Place]:
        """The `depth` best of the `chosen` rows of each segment, those above 0 only; the scores of any live rows."""
        weights: dict[str, float] = {}
        queries: list[tuple[list[int], list[float], list[int]]] = [([], [], []) for _ in self._parts]
        for term, times in terms.items():
            term_numbers = [part.postings.numbers([term]) for part in self._parts]
            count = sum(self._found(part, number) for part, numbers in enumerate(term_numbers) for number in numbers)
            weights[term] = float(inverse_frequency(count, len(self.snapshot)))
            for (asked, idfs, repeats), numbers in zip(queries, term_numbers, strict=True):
                asked.extend(numbers)
                idfs.extend([weights[term]] * len(numbers))
                repeats.extend([times] * len(numbers))
        parts = [part.matches(*query) for part, query in zip(self._parts, queries, strict=True)]
        best: dict[Place, float] = {}
        for number, (segment, matches, mask) in enumerate(zip(self.snapshot.segments, parts, chosen, strict=True)):
            rows, scores = matches.best(depth, segment.ties, mask)
            best.update(zip([(number, row) for row in rows.tolist()], scores.tolist(), strict=True))

        return LexicalMatches(best, weights, partial(_by_segment, scores=[matches.of for matches in parts]))

    def _found(self, part: int, number: int) -> int:
        """How many live rows of a segment hold a term."""
        postings, live = self._parts[part].postings, self.snapshot.live[part]
        rows = postings.passages[postings.part(number)]
        return len(rows) if live is None else int(np.count_nonzero(live[rows]))
