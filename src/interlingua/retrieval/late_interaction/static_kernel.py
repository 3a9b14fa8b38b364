"""`StaticMaxSim.scores` compiled by numba, with the products of int8 vectors of dense search.

Imported only where numba is installed (the extra `index`). Here the subwords of the question are what dense search
calls rows, and the vocabulary is its queries. Each number is rounded as NumPy does: scores are equal to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from interlingua.lazy import by_numba
from interlingua.retrieval.dense.int8 import ROWS, STEP
from interlingua.retrieval.dense.int8_kernel import BLOCKS, BYTES, ORDER, QUERIES, ZERO, aligned, products

_ORDER = np.array(ORDER)


def _distinct(flat: Any, size: int) -> Any:
    """The distinct numbers of `flat`, all under `size`, in the order in which they come and followed by QUERIES times
    the first; how many they are; and where among them each is."""
    before = np.zeros(size, np.int32)  # 0: has not come yet
    distinct, places, count = np.empty(len(flat) + QUERIES, np.int64), np.empty(len(flat), np.int32), 0
    for i in range(len(flat)):
        place = before[flat[i]]
        if place == 0:
            distinct[count] = flat[i]
            count += 1
            before[flat[i]] = place = count
        places[i] = place - 1
    distinct[count : count + QUERIES] = flat[0]
    return distinct, count, places


def _scores(
    question: Any, lengths: Any, weights: Any, table: Any, sums: Any, inverse: Any, flat: Any, ends: Any, scores: Any
) -> None:
    """Fill in `scores` [passages] float32. `question` [blocks, steps, STEP · ROWS] holds the subwords of the question
    as `laid_out` gives them, `lengths` [blocks · ROWS] 1 / their lengths, `weights` [subwords] float32 their weights.
    `table` [vocabulary, steps, STEP] int8 are the subwords that passages have, `sums` [vocabulary] int32 the sum of
    each and `inverse` [vocabulary] 1 / its length. `flat` are the subwords of all passages, which end at `ends`.
    """
    blocks, steps, _ = question.shape
    distinct, count, places = compiled_distinct(flat, len(table))
    cosines = np.empty((count + QUERIES, blocks * ROWS), np.float32)
    numbers, out = np.arange(QUERIES), aligned(BLOCKS * QUERIES)
    wide = np.empty((QUERIES, steps, STEP), np.int16)
    for first in range(0, count, QUERIES):
        tile = distinct[first : first + QUERIES]
        if not BYTES:
            for number in range(QUERIES):
                row = table[tile[number]]
                for step in range(steps):
                    for part in range(STEP):
                        wide[number, step, part] = row[step, _ORDER[part]]
        for block in range(0, blocks, BLOCKS):
            together = min(BLOCKS, blocks - block)
            if BYTES:
                products(out, question, block, block + together - 1, table, tile)
            else:
                products(out, question, block, block + together - 1, wide, numbers)
            for number in range(together * QUERIES):
                subword, start = tile[number % QUERIES], (block + number // QUERIES) * ROWS
                shift, length = np.int32(ZERO * sums[subword]), inverse[subword]
                for lane in range(ROWS):
                    product = np.float32(np.int32(out[number, lane] - shift))
                    cosines[first + number % QUERIES, start + lane] = product * lengths[start + lane] * length
    best, begin = np.empty(blocks * ROWS, np.float32), 0
    for passage in range(len(ends)):
        best[:] = -np.inf
        for i in range(begin, ends[passage]):
            row = cosines[places[i]]
            for lane in range(len(best)):
                best[lane] = max(best[lane], row[lane])
        total = 0.0
        for lane in range(len(weights)):  # one after another, in this order
            total += weights[lane] * best[lane]
        scores[passage] = total if begin < ends[passage] else 0.0
        begin = ends[passage]


compiled_distinct = by_numba(_distinct, nogil=True)
scores = by_numba(_scores, nogil=True)
