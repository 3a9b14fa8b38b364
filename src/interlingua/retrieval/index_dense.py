"""Dense search in a snapshot of an index, with scores that depend on nothing but the question and the passage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import InterlinguaError
from interlingua.retrieval.index_segment import Mask, Segment
from interlingua.retrieval.index_snapshot import Place, Snapshot
from interlingua.retrieval.passage_rows import Rows

Floats = NDArray[np.float32]
SPARE = 16  # candidates beyond the cut, of which rounding may decide
SMALL = 1 << 22
"""Components of rows, and scores, that NumPy multiplies and holds at once: in a few milliseconds, and without torch and
numba, which take seconds to load."""


class Near(Protocol):
    """For each of `vectors` [queries, dim] the scores of the `depth` best passages, or about these, among the `chosen`
    rows, and of a few more."""

    def __call__(self, snapshot: Snapshot, vectors: Floats, depth: int, chosen: Sequence[Mask | None]
                 ) -> list[dict[Place, float]]: ...


def exactly(snapshot: Snapshot, vectors: Floats, depth: int, chosen: Sequence[Mask | None]) -> list[dict[Place, float]]:
    """For each of `vectors` [queries, dim] the scores of the `depth` best passages among the `chosen` rows, and of a
    few more.

    What a matrix product finds is scored again by `products`, since the last bit of a matrix product depends on what
    stands beside a row. As many are taken as it needs for rounding to hide no better one.
    """
    rows = [None if mask is None else np.flatnonzero(mask) for mask in chosen]
    found: list[dict[Place, float]] = [{} for _ in vectors]
    left, asked = list(range(len(vectors))), depth + SPARE
    while left:
        unseen = np.full(len(left), -np.inf)  # no score beyond what was found is higher
        for number, segment in enumerate(snapshot.segments):
            total = len(segment) if (those := rows[number]) is None else len(those)
            if not total:
                continue
            near, values = _searched(segment, vectors[left], min(asked, total), those)
            for query, columns in zip(left, near, strict=True):
                scores = products(segment, columns, vectors[query]).tolist()
                found[query].update(zip([(number, row) for row in columns.tolist()], scores, strict=True))
            if asked < total:
                unseen = np.maximum(unseen, values[:, -1] + _slack(segment, vectors[left]))
        sure = [len(found[query]) >= depth and sorted(found[query].values())[-depth] > most
                for query, most in zip(left, unseen.tolist(), strict=True)]
        left = [query for query, done, most in zip(left, sure, unseen, strict=True) if not done and most > -np.inf]
        asked *= 4
    return found


def scored(snapshot: Snapshot, places: Sequence[Place], vector: Floats) -> dict[Place, float]:
    """The dot products of passages with `vector` [dim]."""
    found: dict[Place, float] = {}
    for number, segment in enumerate(snapshot.segments):
        rows = np.array([row for part, row in places if part == number], dtype=np.int64)
        scores = products(segment, rows, vector).tolist()
        found.update(zip([(number, row) for row in rows.tolist()], scores, strict=True))
    return found


def products(segment: Segment, rows: Rows, vector: Floats) -> Floats:
    """[rows]: dot products with `vector` [dim], each summed by itself in float64."""
    sums: NDArray[np.float64] = np.einsum("nd,d->n", segment.vectors[rows], vector, dtype=np.float64)
    return sums.astype(np.float32)


def _searched(segment: Segment, vectors: Floats, k: int, rows: Rows | None) -> tuple[Rows, Floats]:
    count = len(segment) if rows is None else len(rows)
    if count * max(len(vectors), segment.vectors.shape[1]) <= SMALL:
        return _by_numpy(vectors, segment.vectors if rows is None else segment.vectors[rows], k, rows)
    if segment.int8 is None:
        from interlingua.retrieval.dense import search_exact

        return search_exact(vectors, segment.vectors, k, rows=rows)
    return segment.int8.search(vectors, segment.vectors, k, rows=rows)


def _by_numpy(vectors: Floats, some: Floats, k: int, rows: Rows | None) -> tuple[Rows, Floats]:
    """What `search_exact` gives, in NumPy: the `k` largest scores of each query, best first; ties in any order."""
    with np.errstate(invalid="ignore"):
        scores = vectors @ some.T
    if np.isnan(scores).any():
        raise InterlinguaError("a score is NaN: some query or passage vector holds NaN or infinity.")
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
