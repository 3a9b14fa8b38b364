"""Products of bytes on the CPU, compiled by numba: the first pass of int8 search, of which no score is ever written to
memory, only candidates are; and MaxSim of static subwords (`StaticMaxSim`). numba keeps what it compiled until this
file changes, so both are here.

Imported only where numba is installed (the extra `index`). `products` spells out its vectors, because LLVM does not
arrive at them from plain loops over int8. Where the processor has `vpdpbusd` (AVX-512 VNNI), which multiplies 64 pairs
of bytes at once, queries are held in 8 bits. Elsewhere they are held in 16, and no instruction set is named: LLVM
translates the products to what the processor has (`pmaddwd` on x86). Either way only the bounds differ, never a result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import config, types  # type: ignore[import-untyped]
from numba.core import cgutils  # type: ignore[import-untyped]
from numba.extending import intrinsic  # type: ignore[import-untyped]

from interlingua.lazy import by_numba
from interlingua.models.inference.machine import processor
from interlingua.retrieval.dense.int8 import ROWS, STEP

MOST_THREADS: int = config.NUMBA_NUM_THREADS
_HOST = config.CPU_NAME in (None, "host") and config.CPU_FEATURES is None  # else numba is to compile for another one
BYTES = _HOST and "avx512_vnni" in processor()
"""Whether queries are held in 8 bits."""
MOST = 127 if BYTES else 2**15 - 1
"""The largest number of a query."""
QUERIES, BLOCKS = (8, 2) if BYTES else (4, 1)
"""How many queries and blocks of rows one pass multiplies: as many sums as there are registers for."""
PARTS = 1 if BYTES else 2
"""How many numbers of 32 bits hold the STEP components of a query that are multiplied in one step."""
ORDER = np.array([0, 1, 2, 3] if BYTES else [0, 2, 1, 3])
"""The order in which a query holds the components of a step."""
ZERO = 128 if BYTES else 0
"""The number that `products` adds to each number of a row."""
_BYTE, _SHORT, _INT, _INDEX = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def _compiled(function: Any) -> Any:
    return by_numba(function, nogil=True, fastmath={"contract"})  # a product and a sum may be rounded once


def _plain(function: Any) -> Any:
    return by_numba(function, nogil=True)


@intrinsic  # type: ignore[untyped-decorator]
def products(_: Any, sums: Any, packed: Any, first: Any, second: Any, queries: Any, places: Any) -> Any:
    """`sums` [BLOCKS · QUERIES, ROWS] int32 becomes the products of the blocks `first` and `second` (the same with one
    of BLOCKS) of `packed` [blocks, steps, STEP · ROWS] int8, of which each number is `ZERO` larger then, with the
    `queries` [queries, steps, STEP] at `places` [QUERIES] int64; a step is STEP components, of a query in `ORDER`.
    `queries` [steps, STEP] is one by itself: `sums` [BLOCKS, ROWS]."""
    size = QUERIES if queries.ndim == 3 else 1

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total, bytes_ = ir.VectorType(_INT, ROWS), ir.VectorType(_BYTE, STEP * ROWS)
        arrays = [context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 1, 4, 5)]
        out, rows, words, numbers_of = (
            builder.bitcast(array.data, kind.as_pointer())
            for array, kind in zip(arrays, (total, bytes_, _INT, _INDEX), strict=True)
        )
        steps = cgutils.unpack_tuple(builder, arrays[1].shape, 3)[1]
        begins = [builder.mul(args[2 + number], steps) for number in range(BLOCKS)]
        width, of_queries = builder.mul(steps, _INDEX(PARTS)), [words]
        if size > 1:
            asked = [builder.load(builder.gep(numbers_of, [_INDEX(number)])) for number in range(size)]
            of_queries = [builder.gep(words, [builder.mul(number, width)]) for number in asked]
        slots = [cgutils.alloca_once_value(builder, ir.Constant(total, None)) for _ in range(BLOCKS * size)]
        multiply = _multiply_bytes if BYTES else _multiply_shorts
        with cgutils.for_range(builder, steps) as loop:
            vectors = [builder.load(builder.gep(rows, [builder.add(at, loop.index)]), align=1) for at in begins]
            place = builder.mul(loop.index, _INDEX(PARTS))
            numbers = [
                _everywhere(builder, builder.load(builder.gep(query, [builder.add(place, _INDEX(part))]), align=1))
                for query in of_queries
                for part in range(PARTS)
            ]
            for sum_, product in zip(slots, multiply(builder, vectors, numbers), strict=True):
                builder.store(product(builder.load(sum_)), sum_)
        for number, sum_ in enumerate(slots):
            builder.store(builder.load(sum_), builder.gep(out, [_INDEX(number)]), align=4)
        return context.get_dummy_value()

    return types.void(sums, packed, first, second, queries, places), generate


def _multiply_bytes(builder: Any, rows: Any, numbers: Any) -> Any:
    """For each block of `rows` and each query of `numbers`, a function that adds their products to a sum."""
    total, bytes_ = ir.VectorType(_INT, ROWS), ir.VectorType(_BYTE, STEP * ROWS)
    dot = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(total, [total] * 3), "llvm.x86.avx512.vpdpbusd.512"
    )
    # −128 to 127 as 0 to 255: the first factor has no sign
    shifted = [builder.bitcast(builder.xor(row, ir.Constant(bytes_, [-128] * STEP * ROWS)), total) for row in rows]
    return [lambda sum_, r=row, q=query: builder.call(dot, [sum_, r, q]) for row in shifted for query in numbers]


def _multiply_shorts(builder: Any, rows: Any, numbers: Any) -> Any:
    """The same by products of 16 bits. Of a step the components 0 and 2 are the lower bytes of two numbers of 16 bits,
    1 and 3 the upper ones."""
    total = ir.VectorType(_INT, ROWS)
    shorts, wide = ir.VectorType(_SHORT, 2 * ROWS), ir.VectorType(_INT, 2 * ROWS)
    eight = ir.Constant(shorts, [8] * 2 * ROWS)

    def added(sum_: Any, row: Any, query: Any) -> Any:
        both = builder.mul(builder.sext(row, wide), builder.sext(builder.bitcast(query, shorts), wide))
        even, odd = (
            builder.shuffle_vector(both, both, ir.Constant(total, [2 * lane + start for lane in range(ROWS)]))
            for start in range(2)
        )
        return builder.add(sum_, builder.add(even, odd))

    def halves(row: Any) -> tuple[Any, Any]:
        vector = builder.bitcast(row, shorts)
        return builder.ashr(builder.shl(vector, eight), eight), builder.ashr(vector, eight)

    pairs, queries = [halves(row) for row in rows], list(zip(numbers[::2], numbers[1::2], strict=True))
    return [
        lambda sum_, r=row, q=query: added(added(sum_, r[0], q[0]), r[1], q[1]) for row in pairs for query in queries
    ]


def _everywhere(builder: Any, number: Any) -> Any:
    """A vector of ROWS times `number`."""
    vector = builder.insert_element(ir.Constant(ir.VectorType(number.type, ROWS), ir.Undefined), number, _INT(0))
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_INT, ROWS), None))


@intrinsic  # type: ignore[untyped-decorator]
def _reaches(
    _: Any, sums: Any, number: Any, bounds: Any, block: Any, terms: Any, shifts: Any, query: Any, needed: Any, out: Any
) -> Any:
    """Whether a row of a block may reach the score `needed` of a query. `out` [2, ROWS] float32 becomes the highest
    value of each row, and how far the lowest lies below it, halved. `bounds` are scales, offsets, errors and norms
    [blocks, ROWS] each, `sums` [sums, ROWS] of `products`, `terms` [queries, 5], `shifts` [queries]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number_, lanes, integers = ir.FloatType(), ir.VectorType(ir.FloatType(), ROWS), ir.VectorType(_INT, ROWS)

        def data(place: int, kind: Any) -> Any:
            array = context.make_array(signature.args[place])(context, builder, args[place])
            return builder.bitcast(array.data, kind.as_pointer())

        def row(array: Any, index: Any) -> Any:
            return builder.load(builder.gep(array, [index]), align=4)

        def fused(first: Any, second: Any, sum_: Any) -> Any:
            add = ir.FunctionType(lanes, [lanes] * 3)
            return builder.call(
                cgutils.get_or_insert_function(builder.module, add, f"llvm.fmuladd.v{ROWS}f32"), [first, second, sum_]
            )

        of_blocks = [
            builder.bitcast(context.make_array(kind)(context, builder, value).data, lanes.as_pointer())
            for kind, value in zip(signature.args[2].types, cgutils.unpack_tuple(builder, args[2]), strict=True)
        ]
        scales, offsets, errors, norms = (row(array, args[3]) for array in of_blocks)
        begin, term = builder.mul(args[6], _INDEX(5)), data(4, number_)
        step, along, spread, rough, slack = (
            _everywhere(builder, row(term, builder.add(begin, _INDEX(place)))) for place in range(5)
        )
        product = builder.sub(row(data(0, integers), args[1]), _everywhere(builder, row(data(5, _INT), args[6])))
        radius = fused(spread, errors, fused(rough, norms, slack))
        exact = builder.fmul(scales, builder.sitofp(product, lanes))
        high = builder.fadd(fused(along, offsets, builder.fmul(step, exact)), radius)
        result = data(8, lanes)
        builder.store(high, result, align=4)
        builder.store(radius, builder.gep(result, [_INDEX(1)]), align=4)
        mask = builder.bitcast(builder.fcmp_ordered(">=", high, _everywhere(builder, args[7])), ir.IntType(ROWS))
        return builder.icmp_unsigned("!=", mask, ir.IntType(ROWS)(0))

    return types.boolean(sums, number, bounds, block, terms, shifts, query, needed, out), generate


@_compiled
def aligned(count: int) -> Any:
    """[count, ROWS] int32, each row within one line of the cache."""
    buffer = np.empty((count + 1) * ROWS, np.int32)
    start = (64 - buffer.ctypes.data % 64) // 4
    return buffer[start : start + count * ROWS].reshape(count, ROWS)


@_compiled
def _thin(rows: Any, highest: Any, lowest: Any, count: int, k: int, threshold: Any) -> Any:
    """Move the candidates that may still be among the k best to the front: how many they are, and what a highest value
    must reach."""
    threshold = max(threshold, np.sort(lowest[:count])[count - k])
    size = 0
    for i in range(count):
        if highest[i] >= threshold:
            rows[size], highest[size], lowest[size] = rows[i], highest[i], lowest[i]
            size += 1
    return size, threshold


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
    shifts: Any,
    k: int,
    rows: Any,
    highest: Any,
    lowest: Any,
    counts: Any,
) -> bool:
    """Collect, for each query, the rows of `blocks` that may be among its k best; False as soon as one has too many.

    `packed` and `queries` are as `products` takes them, the latter of whole tiles of QUERIES; `scales`, `offsets`,
    `errors` and `norms` [blocks, ROWS], `terms` [queries of whole tiles, 5] and `shifts` [queries of whole tiles] as
    `Int8Matrix` computes them. A row whose error is −inf is left out. Filled in: `rows`, `highest`, `lowest`
    [queries, room] (which row, and between which values its score lies, but for a number that is the same for all rows)
    and `counts` [queries]. room must be at least 4k.
    """
    query_count, room = rows.shape
    size = QUERIES if queries.ndim == 3 else 1  # known when it is compiled
    sums, places = aligned(BLOCKS * size), np.arange(len(shifts))
    bounds, out = (scales, offsets, errors, norms), aligned(2).view(np.float32)
    high, radius = out
    thresholds = np.full(query_count, np.finfo(np.float32).min, np.float32)
    full = np.full(query_count, min(room, max(2 * k, 64)), np.int64)
    for begin in range(0, len(blocks), BLOCKS):
        together = min(BLOCKS, len(blocks) - begin)
        for tile in range(-(-query_count // size)):
            asked = places[tile * size : (tile + 1) * size]
            products(sums, packed, blocks[begin], blocks[begin + together - 1], queries, asked)
            for number in range(together * size):
                query, block = tile * size + number % size, blocks[begin + number // size]
                if query >= query_count:
                    continue
                if _reaches(sums, number, bounds, block, terms, shifts, query, thresholds[query], out):
                    for lane in range(ROWS):
                        at = counts[query]
                        if high[lane] >= thresholds[query]:
                            rows[query, at], highest[query, at] = block * ROWS + lane, high[lane]
                            lowest[query, at] = high[lane] - np.float32(2) * radius[lane]
                            counts[query] += 1
                            if counts[query] == full[query]:
                                counts[query], thresholds[query] = _thin(
                                    rows[query], highest[query], lowest[query], counts[query], k, thresholds[query]
                                )
                                full[query] = min(room, max(2 * counts[query], full[query]))
                                if 4 * counts[query] > 3 * room:
                                    return False
    return True


@_plain
def distinct_of(flat: Any, size: int) -> Any:
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


@_plain
def nearest(
    question: Any, inverses: Any, table: Any, sums: Any, inverse: Any, flat: Any, ends: Any, closest: Any
) -> None:
    """Fill in `closest` [passages, subwords] float32 of `StaticMaxSim`. Here the subwords of the question are what
    dense search calls rows, and the vocabulary is its queries. Each number is rounded as NumPy does it.

    `question` [blocks, steps, STEP · ROWS] holds the subwords of the question as `laid_out` gives them, `inverses`
    [blocks · ROWS] 1 / their lengths. `table` [vocabulary, steps, STEP] int8 are the subwords that passages have,
    `sums` [vocabulary] int32 the sum of each and `inverse` [vocabulary] 1 / its length. `flat` are the subwords of all
    passages, which end at `ends`: all in the vocabulary. The row of a passage without subwords stays as it is.
    """
    blocks, steps, _ = question.shape
    distinct, count, places = distinct_of(flat, len(table))
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
                        wide[number, step, part] = row[step, ORDER[part]]
        for block in range(0, blocks, BLOCKS):
            together = min(BLOCKS, blocks - block)
            if BYTES:
                products(out, question, block, block + together - 1, table, tile)
            else:
                products(out, question, block, block + together - 1, wide, numbers)
            for number in range(together * QUERIES):
                subword, start = tile[number % QUERIES], (block + number // QUERIES) * ROWS
                shift, scale = np.int32(ZERO * sums[subword]), inverse[subword]
                for lane in range(ROWS):
                    product = np.float32(np.int32(out[number, lane] - shift))
                    cosines[first + number % QUERIES, start + lane] = product * inverses[start + lane] * scale
    best, begin = np.empty(blocks * ROWS, np.float32), 0
    for passage in range(len(ends)):
        best[:] = -np.inf
        for i in range(begin, ends[passage]):
            row = cosines[places[i]]
            for lane in range(len(best)):
                best[lane] = max(best[lane], row[lane])
        if begin < ends[passage]:
            for subword in range(closest.shape[1]):  # assigned as a whole, numba compiles half as long again
                closest[passage, subword] = best[subword]
        begin = ends[passage]
