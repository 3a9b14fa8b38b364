"""Where given passages stand in the full ranking, without making the ranking."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import InterlinguaError

Vectors = NDArray[np.float32]


def gold_ranks(
    queries: Vectors, passages: Vectors, golds: Sequence[NDArray[np.int64]], tie_order: NDArray[np.int64],
    *, block: int = 256,
) -> list[NDArray[np.int64]]:
    """For each query the ranks (from 1, ascending) of its gold passages among ALL passages.

    `queries` [queries, dim] and `passages` [passages, dim] are float32; `golds[i]` holds the indices of the
    gold passages of query i (none is allowed); `tie_order` [passages] is the project's tie order
    (`interlingua.retrieval.dense.tie_ranks`). Score matrices are held for `block` queries at a time.
    """
    if not len(golds) == len(queries) or len(tie_order) != len(passages):
        raise InterlinguaError(f"{len(queries)} queries with {len(golds)} gold lists, {len(passages)} passages with "
                               f"{len(tie_order)} tie ranks: the numbers must agree.")
    found: list[NDArray[np.int64]] = []
    for start in range(0, len(queries), block):
        scores = queries[start : start + block] @ passages.T
        for row, gold in zip(scores, golds[start : start + block], strict=True):
            ahead = [int((row > row[g]).sum() + ((row == row[g]) & (tie_order < tie_order[g])).sum()) for g in gold]
            found.append(np.sort(np.array(ahead, dtype=np.int64)) + 1)
    return found


def average_precision(ranks: NDArray[np.int64]) -> float:
    """Average precision of one query from the ranks (from 1, ascending) of ALL its relevant passages; 0 without any."""
    if not len(ranks):
        return 0.0
    return float((np.arange(1, len(ranks) + 1) / ranks).mean())
