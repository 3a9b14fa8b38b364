"""The first pass of int8 search on the CPU, compiled by numba: no score is ever written to memory, only candidates are.

Imported only where numba is installed (the extra `index`). `_products` spells out its vectors, because LLVM does not
arrive at them from plain loops over int8. It names no instruction set: LLVM translates them to what the processor has
(`vpdpwssd` or `pmaddwd` on x86).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, njit, types  # type: ignore[import-untyped]
from numba.core import cgutils  # type: ignore[import-untyped]
from numba.extending import intrinsic  # type: ignore[import-untyped]

from interlingua.retrieval.dense.int8 import QUERIES, ROWS

MOST_THREADS: int = config.NUMBA_NUM_THREADS
_BYTE, _SHORT, _INT, _INDEX = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def _compiled(function: Any) -> Any:
    options = {"nogil": True, "fastmath": {"contract"}}  # a product and a sum may be rounded once
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # there is no folder that numba may write to
        return njit(**options)(function)


@intrinsic  # type: ignore[untyped-decorator]
def _products(_: Any, sums: Any, packed: Any, block: Any, queries: Any, tile: Any) -> Any:
    """`sums` [QUERIES, ROWS] int32 becomes the products of one block of `packed` [blocks, steps, 2 · ROWS] int8 with
    one tile of `queries` [tiles, steps, 2 · QUERIES] int16; a step is two components side by side."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        total, bytes_, shorts, wide = (
            ir.VectorType(*kind) for kind in ((_INT, ROWS), (_BYTE, 2 * ROWS), (_SHORT, 2 * ROWS), (_INT, 2 * ROWS))
        )
        arrays = [context.make_array(signature.args[i])(context, builder, given[i]) for i in (0, 1, 3)]
        out, rows, pairs = (
            builder.bitcast(array.data, kind.as_pointer())
            for array, kind in zip(arrays, (total, bytes_, _INT), strict=True)
        )
        steps = cgutils.unpack_tuple(builder, arrays[1].shape, 3)[1]
        first, begin = builder.mul(given[2], steps), builder.mul(given[4], steps)
        held = [cgutils.alloca_once_value(builder, ir.Constant(total, None)) for _ in range(QUERIES)]
        with cgutils.for_range(builder, steps) as loop:
            row = builder.sext(builder.load(builder.gep(rows, [builder.add(first, loop.index)]), align=1), wide)
            place = builder.mul(builder.add(begin, loop.index), _INDEX(QUERIES))
            for number, sum_ in enumerate(held):
                pair = builder.load(builder.gep(pairs, [builder.add(place, _INDEX(number))]), align=2)
                one = builder.insert_element(ir.Constant(total, ir.Undefined), pair, _INT(0))
                everywhere = builder.shuffle_vector(one, one, ir.Constant(total, None))
                products = builder.mul(row, builder.sext(builder.bitcast(everywhere, shorts), wide))
                even, odd = (
                    builder.shuffle_vector(
                        products, products, ir.Constant(total, [_INT(2 * lane + start) for lane in range(ROWS)])
                    )
                    for start in range(2)
                )
                builder.store(builder.add(builder.load(sum_), builder.add(even, odd)), sum_)
        for number, sum_ in enumerate(held):
            builder.store(builder.load(sum_), builder.gep(out, [_INDEX(number)]), align=4)
        return context.get_dummy_value()

    return types.void(sums, packed, block, queries, tile), generate


@_compiled
def _aligned(count: int) -> Any:
    """[count, ROWS] int32, each row within one line of the cache."""
    held = np.empty((count + 1) * ROWS, np.int32)
    start = (64 - held.ctypes.data % 64) // 4
    return held[start : start + count * ROWS].reshape(count, ROWS)


@_compiled
def _thin(rows: Any, highest: Any, lowest: Any, count: int, k: int, least: Any) -> Any:
    """Move the candidates that may still be among the k best to the front: how many they are, and what a highest value
    must reach."""
    least = max(least, np.sort(lowest[:count])[count - k])
    kept = 0
    for i in range(count):
        if highest[i] >= least:
            rows[kept], highest[kept], lowest[kept] = rows[i], highest[i], lowest[i]
            kept += 1
    return kept, least


@_compiled
def scan(
    blocks: Any,
    packed: Any,
    scales: Any,
    offsets: Any,
    errors: Any,
    norms: Any,
    queries: Any,
    terms: Any,
    k: int,
    rows: Any,
    highest: Any,
    lowest: Any,
    counts: Any,
) -> bool:
    """Collect, for each query, the rows of `blocks` that may be among its k best; False as soon as one has too many.

    `packed` and `queries` are as `_products` takes them, `scales`, `offsets`, `errors` and `norms` [blocks, ROWS] and
    `terms` [queries of whole tiles, 5] as `Int8Matrix` computes them. A row whose error is −inf is left out. Filled
    in: `rows`, `highest`, `lowest` [queries, room] (which row, and between which values its score lies, but for a
    number that is the same for all rows) and `counts` [queries]. room must be at least 4k.
    """
    asked, room = rows.shape
    sums = _aligned(QUERIES)
    radius, high = _aligned(1)[0].view(np.float32), _aligned(1)[0].view(np.float32)
    least = np.full(asked, np.finfo(np.float32).min, np.float32)
    full = np.full(asked, min(room, max(2 * k, 64)), np.int64)
    for block in blocks:
        for tile in range(len(queries)):
            _products(sums, packed, block, queries, tile)
            for place in range(min(QUERIES, asked - tile * QUERIES)):
                query = tile * QUERIES + place
                step, along, spread = terms[query, 0], terms[query, 1], terms[query, 2]
                rough, slack, needed = terms[query, 3], terms[query, 4], least[query]
                reached = False
                for lane in range(ROWS):
                    radius[lane] = spread * errors[block, lane] + (rough * norms[block, lane] + slack)
                    product = scales[block, lane] * np.float32(sums[place, lane])
                    high[lane] = along * offsets[block, lane] + step * product + radius[lane]
                    reached |= high[lane] >= needed
                if reached:
                    for lane in range(ROWS):
                        at = counts[query]
                        if high[lane] >= least[query]:
                            rows[query, at], highest[query, at] = block * ROWS + lane, high[lane]
                            lowest[query, at] = high[lane] - np.float32(2) * radius[lane]
                            counts[query] += 1
                            if counts[query] == full[query]:
                                counts[query], least[query] = _thin(
                                    rows[query], highest[query], lowest[query], counts[query], k, least[query]
                                )
                                full[query] = min(room, max(2 * counts[query], full[query]))
                                if 4 * counts[query] > 3 * room:
                                    return False
    return True
