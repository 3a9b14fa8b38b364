"""BM25 in a snapshot of an index: weights are computed for a question's terms only, so a new passage costs nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log

import numpy as np
from numpy.typing import NDArray

from interlingua.retrieval.index_segment import Mask, Segment
from interlingua.retrieval.index_snapshot import Place, Snapshot
from interlingua.retrieval.passage_rows import Rows

Floats = NDArray[np.float32]


class Lexical:
    """Lucene's BM25 over the live rows of `snapshot`, with parameters `k1` and `b`: the weights of
    `interlingua.retrieval.postings`, summed in the order of the question's terms."""

    def __init__(self, snapshot: Snapshot, k1: float, b: float) -> None:
        self.snapshot = snapshot
        mean = max(snapshot.mean_length, np.finfo(float).tiny)
        self._norms = [k1 * (1 - b + b * segment.postings.lengths / mean) for segment in snapshot.segments]

    def scores(self, terms: Counter[str]) -> tuple[list[Floats], float]:
        """For each segment [rows]: the score of every live row; 0 for the others. And what a passage could score at the
        most: all terms count there, also those that no passage has."""
        most = 0.0
        totals: list[Floats] = [np.zeros(len(segment), dtype=np.float32) for segment in self.snapshot.segments]
        for term, times in terms.items():
            held = [_postings(segment, live, term)
                    for segment, live in zip(self.snapshot.segments, self.snapshot.live, strict=True)]
            found = sum(len(rows) for rows, _ in held)
            idf = np.float32(log(1 + (len(self.snapshot) - found + 0.5) / (found + 0.5)))
            most += times * float(idf)
            if not found:
                continue
            for total, norms, (rows, counts) in zip(totals, self._norms, held, strict=True):
                weights = idf * (counts / (counts + norms[rows])).astype(np.float32)
                total[rows] += np.float32(times) * weights  # a row occurs once in the postings of a term
        return totals, most

    def best(self, scores: Sequence[Floats], depth: int, chosen: Sequence[Mask | None]) -> dict[Place, float]:
        """The scores of the `depth` best of the `chosen` rows of each segment, those above 0 only."""
        found: dict[Place, float] = {}
        for number, (segment, values, mask) in enumerate(zip(self.snapshot.segments, scores, chosen, strict=True)):
            rows = np.flatnonzero(values if mask is None else values * mask)
            if len(rows) > depth:
                least = np.partition(values[rows], len(rows) - depth)[len(rows) - depth]
                rows = rows[values[rows] >= least]
            rows = rows[np.lexsort((segment.ties[rows], -values[rows]))][:depth]
            found.update(zip([(number, row) for row in rows.tolist()], values[rows].tolist(), strict=True))
        return found


def _postings(segment: Segment, live: Mask | None, term: str) -> tuple[Rows, NDArray[np.int32]]:
    """The live rows that hold a term, and how often."""
    number = segment.terms.get(term)
    if number is None:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int32)
    part = slice(int(segment.postings.starts[number]), int(segment.postings.starts[number + 1]))
    rows, counts = segment.postings.passages[part], segment.postings.counts[part]
    if live is not None:
        there = live[rows]
        rows, counts = rows[there], counts[there]
    return rows.astype(np.int64), counts
