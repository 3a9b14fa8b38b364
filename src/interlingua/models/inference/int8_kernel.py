"""A transformer layer on int8 weights, compiled by numba: between two attentions nothing leaves the processor's cache.

Imported only where numba is installed (the extra `index`) and the processor has one of two instructions. `vpdpbusd`
(AVX-512 VNNI) multiplies 64 pairs of bytes at once: a token's numbers are held in 8 bits. Else they are held in 16, and
LLVM makes `vpmaddwd` (AVX2) of the products, which multiplies 16 pairs. The sums are equal.
`interlingua.models.inference.int8` has the same arithmetic by NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types  # type: ignore[import-untyped]
from numba.core import cgutils  # type: ignore[import-untyped]
from numba.extending import intrinsic  # type: ignore[import-untyped]

from interlingua.lazy import by_numba
from interlingua.models.inference.kept import LEVELS
from interlingua.models.inference.layers import LOW, TOP
from interlingua.models.inference.machine import processor

BYTES = "avx512_vnni" in processor()
"""Whether a token's numbers are held in 8 bits."""
COLUMNS, STEP = (48, 4) if BYTES else (16, 2)
"""How weights are laid out: so many outputs side by side, and so many of their inputs."""
ZERO = 128 if BYTES else 0
"""The number that is added to the whole numbers of a token."""
LANES = 16 if BYTES else 8
TOGETHER = 8 if BYTES else 4  # rows of one pass over a panel: times PANELS vectors of sums are held in registers
WHOLE = np.uint8 if BYTES else np.int16
TILE = 64 if BYTES else 16  # rows whose states between two weights are held in the processor's nearest caches
GROUP = 4 * TILE  # rows for which a weight that fits into the nearer caches is read once from the farther ones
PANELS = COLUMNS // LANES
KEYS, VALUES = 3, 2
"""Vectors of one pass of attention: keys whose scores are summed at once, and numbers of a value."""
SUMS = 64  # of one LayerNorm, side by side: several vectors, whose additions do not wait for each other
LEAST = -3.0e38
POWERS = (2.1702255e-4, 1.2439688e-3, 9.6788315e-3, 5.5483342e-2, 2.4022984e-1, 6.9314698e-1, 1.0)
"""2^x from 0 to 1, the highest power first."""
SHIFT = ZERO - (LEVELS + 1)  # whole numbers are found above 0, where to cut off the fraction is to round
_BYTE, _SHORT, _INT, _INDEX = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def _compiled(**flags: Any) -> Any:
    def decorate(function: Any) -> Any:
        return by_numba(function, nogil=True, error_model="numpy", **flags)

    return decorate


@intrinsic  # type: ignore[untyped-decorator]
def _products(_: Any, sums: Any, rows: Any, first: Any, panels: Any, panel: Any) -> Any:
    """`sums` [TOGETHER, COLUMNS] int32 becomes the products of the rows of `rows` [rows, steps · STEP] WHOLE from
    `first` on with one panel of `panels` [panels, steps, COLUMNS · STEP] int8."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total, bytes_ = ir.VectorType(_INT, LANES), ir.VectorType(_BYTE, LANES * STEP)
        arrays = [context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 1, 3)]
        out, left, right = (
            builder.bitcast(array.data, kind.as_pointer())
            for array, kind in zip(arrays, (total, _INT, bytes_), strict=True)
        )
        steps = cgutils.unpack_tuple(builder, arrays[2].shape, 3)[1]
        begins = [builder.mul(builder.add(args[2], _INDEX(number)), steps) for number in range(TOGETHER)]
        panel_begin = builder.mul(args[4], builder.mul(steps, _INDEX(PANELS)))
        slots = [cgutils.alloca_once_value(builder, ir.Constant(total, None)) for _ in range(TOGETHER * PANELS)]
        widen, multiply = (_as_bytes, _multiply_bytes) if BYTES else (_as_shorts, _multiply_shorts)
        with cgutils.for_range(builder, steps) as loop:
            place = builder.add(panel_begin, builder.mul(loop.index, _INDEX(PANELS)))
            weights = [
                widen(builder, builder.load(builder.gep(right, [builder.add(place, _INDEX(number))]), align=1))
                for number in range(PANELS)
            ]
            for row, begin in enumerate(begins):
                numbers = builder.load(builder.gep(left, [builder.add(begin, loop.index)]), align=1)
                vector = builder.insert_element(ir.Constant(total, ir.Undefined), numbers, _INT(0))
                splat = builder.shuffle_vector(vector, vector, ir.Constant(total, None))
                for number, weight in enumerate(weights):
                    sum_ = slots[row * PANELS + number]
                    builder.store(multiply(builder, builder.load(sum_), splat, weight), sum_)
        for number, sum_ in enumerate(slots):
            builder.store(builder.load(sum_), builder.gep(out, [_INDEX(number)]), align=4)
        return context.get_dummy_value()

    return types.void(sums, rows, first, panels, panel), generate


def _as_bytes(builder: Any, weights: Any) -> Any:
    return builder.bitcast(weights, ir.VectorType(_INT, LANES))


def _multiply_bytes(builder: Any, sums: Any, numbers: Any, weights: Any) -> Any:
    """`sums` with the products of four `numbers` and weights in each of its places."""
    total = ir.VectorType(_INT, LANES)
    dot = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(total, [total] * 3), "llvm.x86.avx512.vpdpbusd.512"
    )
    return builder.call(dot, [sums, numbers, weights])


def _as_shorts(builder: Any, weights: Any) -> Any:
    return builder.sext(weights, ir.VectorType(_SHORT, LANES * STEP))


def _multiply_shorts(builder: Any, sums: Any, numbers: Any, weights: Any) -> Any:
    """The same with two of each."""
    wide, total = ir.VectorType(_INT, LANES * STEP), ir.VectorType(_INT, LANES)
    shorts = builder.bitcast(numbers, ir.VectorType(_SHORT, LANES * STEP))
    products = builder.mul(builder.sext(weights, wide), builder.sext(shorts, wide))
    even, odd = (
        builder.shuffle_vector(products, products, ir.Constant(total, [STEP * lane + start for lane in range(LANES)]))
        for start in range(STEP)
    )
    return builder.add(sums, builder.add(even, odd))


def _float_products(vectors: int) -> Any:
    """The function that makes `out` [TOGETHER, columns] float32, from column `at` on, the product of `rows` [TOGETHER,
    depth] with one panel of `panels` [panels, depth, vectors · LANES]. Only the first `depth` of them are summed."""

    @intrinsic  # type: ignore[untyped-decorator]
    def products(_: Any, out: Any, at: Any, rows: Any, panels: Any, panel: Any, depth: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            number, lanes = ir.FloatType(), ir.VectorType(ir.FloatType(), LANES)
            arrays = [context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 2, 3)]
            buffer, left, right = (builder.bitcast(array.data, number.as_pointer()) for array in arrays)
            width, length = (cgutils.unpack_tuple(builder, array.shape, 2)[1] for array in arrays[:2])
            panel_depth = cgutils.unpack_tuple(builder, arrays[2].shape, 3)[1]
            panel_width = _INDEX(vectors * LANES)
            add = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(lanes, [lanes] * 3), f"llvm.fma.v{LANES}f32"
            )
            begin = builder.mul(args[4], builder.mul(panel_depth, panel_width))
            slots = [cgutils.alloca_once_value(builder, ir.Constant(lanes, None)) for _ in range(TOGETHER * vectors)]
            with cgutils.for_range(builder, args[5]) as loop:
                place = builder.add(begin, builder.mul(loop.index, panel_width))
                columns = [
                    builder.load(
                        builder.bitcast(
                            builder.gep(right, [builder.add(place, _INDEX(n * LANES))]), lanes.as_pointer()
                        ),
                        align=4,
                    )
                    for n in range(vectors)
                ]
                for row in range(TOGETHER):
                    value = builder.load(builder.gep(left, [builder.add(builder.mul(_INDEX(row), length), loop.index)]))
                    vector = builder.insert_element(ir.Constant(lanes, ir.Undefined), value, _INT(0))
                    splat = builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_INT, LANES), None))
                    for n, column in enumerate(columns):
                        sum_ = slots[row * vectors + n]
                        builder.store(builder.call(add, [splat, column, builder.load(sum_)]), sum_)
            for row in range(TOGETHER):
                for n in range(vectors):
                    place = builder.add(builder.mul(_INDEX(row), width), builder.add(args[1], _INDEX(n * LANES)))
                    builder.store(
                        builder.load(slots[row * vectors + n]),
                        builder.bitcast(builder.gep(buffer, [place]), lanes.as_pointer()),
                        align=4,
                    )
            return context.get_dummy_value()

        return types.void(out, at, rows, panels, panel, depth), generate

    return products


_scores, _sums = _float_products(KEYS), _float_products(VALUES)


@intrinsic  # type: ignore[untyped-decorator]
def _softmax(_: Any, rows: Any, blocks: Any, sums: Any) -> Any:
    """The first `blocks` · LANES numbers of `rows` [TOGETHER, columns] float32 become e to the power of what each is
    above the largest of its row, and `sums` [TOGETHER] their sums. 2^x is 2 to the whole part, by its bits, times a
    polynomial of the rest, off by less than 2e-7."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number, lanes, integers = ir.FloatType(), ir.VectorType(ir.FloatType(), LANES), ir.VectorType(_INT, LANES)
        matrix, out = (context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 2))
        width = cgutils.unpack_tuple(builder, matrix.shape, 2)[1]
        data, totals = (builder.bitcast(array.data, number.as_pointer()) for array in (matrix, out))

        def call(name: str, kind: Any, *values: Any) -> Any:
            function = ir.FunctionType(kind, [value.type for value in values])
            return builder.call(cgutils.get_or_insert_function(builder.module, function, name), values)

        def everywhere(value: Any) -> Any:
            first = builder.insert_element(ir.Constant(lanes, ir.Undefined), value, _INT(0))
            return builder.shuffle_vector(first, first, ir.Constant(integers, None))

        def constant(value: float) -> Any:
            return ir.Constant(lanes, [value] * LANES)

        def larger(first: Any, second: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", first, second), first, second)

        def numbers(row: int, block: Any) -> Any:
            place = builder.add(builder.mul(_INDEX(row), width), builder.mul(block, _INDEX(LANES)))
            return builder.bitcast(builder.gep(data, [place]), lanes.as_pointer())

        smallest = constant(LEAST)
        maxima = [cgutils.alloca_once_value(builder, smallest) for _ in range(TOGETHER)]
        with cgutils.for_range(builder, args[1]) as loop:
            for row, largest in enumerate(maxima):
                values = builder.load(numbers(row, loop.index), align=4)
                builder.store(larger(values, builder.load(largest)), largest)
        tops = [everywhere(call(f"llvm.vector.reduce.fmax.v{LANES}f32", number, builder.load(slot))) for slot in maxima]
        row_sums = [cgutils.alloca_once_value(builder, ir.Constant(lanes, None)) for _ in range(TOGETHER)]
        with cgutils.for_range(builder, args[1]) as loop:
            for row, (top, total) in enumerate(zip(tops, row_sums, strict=True)):
                place = numbers(row, loop.index)
                x = builder.fmul(builder.fsub(builder.load(place, align=4), top), constant(1.4426950408889634))
                x = larger(x, constant(-126.0))
                floor = call(f"llvm.floor.v{LANES}f32", lanes, x)
                fraction, power = builder.fsub(x, floor), constant(POWERS[0])
                for factor in POWERS[1:]:
                    power = call(f"llvm.fma.v{LANES}f32", lanes, power, fraction, constant(factor))
                exponent = builder.add(builder.fptosi(floor, integers), ir.Constant(integers, [127] * LANES))
                scale = builder.bitcast(builder.shl(exponent, ir.Constant(integers, [23] * LANES)), lanes)
                value = builder.fmul(power, scale)
                builder.store(value, place, align=4)
                builder.store(builder.fadd(builder.load(total), value), total)
        for row, total in enumerate(row_sums):
            sum_ = call(f"llvm.vector.reduce.fadd.v{LANES}f32", number, number(0.0), builder.load(total))
            builder.store(sum_, builder.gep(totals, [_INDEX(row)]))
        return context.get_dummy_value()

    return types.void(rows, blocks, sums), generate


@_compiled(fastmath={"contract"})  # type: ignore[untyped-decorator]
def quantise(rows: Any, whole: Any, scales: Any) -> None:
    """`rows` [rows, features] float32 as WHOLE around `ZERO`, with one scale a row."""
    bits = rows.view(np.int32)
    for row in range(rows.shape[0]):
        maximum = np.int32(0)  # as bits: numbers without a sign stand in the order of their bits, and this is faster
        for i in range(rows.shape[1]):
            maximum = max(maximum, bits[row, i] & np.int32(0x7FFFFFFF))
        scale = np.int32(maximum).view(np.float32) / np.float32(LEVELS)
        scales[row] = scale
        inverse = np.float32(1) / scale if scale > 0 else np.float32(0)
        for i in range(rows.shape[1]):
            whole[row, i] = WHOLE(np.int32(rows[row, i] * inverse + np.float32(LEVELS + 1.5)) + SHIFT)


@_compiled(fastmath={"contract"})  # type: ignore[untyped-decorator]
def _gelu(values: Any) -> None:
    """x · Φ(x) in place."""
    for i in range(values.size):
        x = values[i] * np.float32(0.70710678118654752)
        x = np.float32(-4) if x < np.float32(-4) else x
        x = np.float32(4) if x > np.float32(4) else x
        s = x * x
        top, low = np.float32(0), np.float32(0)
        for factor in TOP:
            top = top * s + np.float32(factor)
        for factor in LOW:
            low = low * s + np.float32(factor)
        values[i] = values[i] * np.float32(0.5) * (np.float32(1) + x * top / low)


@_compiled()  # type: ignore[untyped-decorator]
def attend(mixed: Any, out: Any, heads: int, texts: Any) -> None:
    """Attention inside each text: `mixed` [tokens, 3 · hidden] float32, queries, keys and values side by side, into
    `out` [tokens, hidden]. `texts` [texts, 2] are where each begins, and its length. A head's keys and values are laid
    out once; then `TOGETHER` queries at a time stay in the processor's cache from their scores to their sums."""
    hidden = out.shape[1]
    size, longest = hidden // heads, 0
    for number in range(texts.shape[0]):
        longest = max(longest, texts[number, 1])
    key_width, value_width = KEYS * LANES, VALUES * LANES
    panels, parts = -(-longest // key_width), -(-size // value_width)
    keys = np.zeros((panels, size, key_width), np.float32)
    values = np.zeros((parts, longest, value_width), np.float32)
    queries = np.zeros((TOGETHER, size), np.float32)
    scores, sums = np.zeros((TOGETHER, panels * key_width), np.float32), np.zeros(TOGETHER, np.float32)
    context = np.zeros((TOGETHER, parts * value_width), np.float32)
    factor = np.float32(1 / np.sqrt(size))
    for number in range(texts.shape[0]):
        start, length = texts[number, 0], texts[number, 1]
        blocks = -(-length // LANES)
        for head in range(heads):
            at = head * size
            for panel in range(-(-length // key_width)):
                begin = start + panel * key_width
                for i in range(size):
                    for lane in range(min(key_width, start + length - begin)):
                        keys[panel, i, lane] = mixed[begin + lane, hidden + at + i]
            for part in range(parts):
                begin = 2 * hidden + at + part * value_width
                for token in range(length):
                    for i in range(min(value_width, size - part * value_width)):
                        values[part, token, i] = mixed[start + token, begin + i]
            for first in range(0, length, TOGETHER):
                count = min(TOGETHER, length - first)
                for row in range(count):
                    for i in range(size):
                        queries[row, i] = mixed[start + first + row, at + i] * factor
                for panel in range(-(-length // key_width)):
                    _scores(scores, panel * key_width, queries, keys, panel, size)
                scores[:, length : blocks * LANES] = LEAST
                _softmax(scores, blocks, sums)
                for part in range(parts):
                    _sums(context, part * value_width, scores, values, part, length)
                for row in range(count):
                    inverse = np.float32(1) / sums[row]
                    for i in range(size):
                        out[start + first + row, at + i] = context[row, i] * inverse


@_compiled(fastmath={"contract"})  # type: ignore[untyped-decorator]
def linear(whole: Any, scales: Any, panels: Any, sums: Any, weights: Any, zeros: Any, bias: Any, out: Any) -> None:
    """Rows [rows of whole TOGETHER, in] WHOLE times a packed layer → float32 `out` [rows, COLUMNS · panels]."""
    for panel in range(panels.shape[0]):
        at = panel * COLUMNS
        for first in range(0, whole.shape[0], TOGETHER):
            _products(sums, whole, first, panels, panel)
            for row in range(TOGETHER):
                scale = scales[first + row]
                for lane in range(COLUMNS):
                    product = np.float32(sums[row, lane] - zeros[at + lane])
                    out[first + row, at + lane] = product * (scale * weights[at + lane]) + bias[at + lane]


@_compiled()  # type: ignore[untyped-decorator]
def _norm(rows: Any, residual: Any, weight: Any, bias: Any, eps: Any, out: Any) -> None:
    """LayerNorm of rows + residual."""
    size = residual.shape[1]
    sums = np.empty(SUMS, np.float32)
    for row in range(residual.shape[0]):
        for i in range(size):
            out[row, i] = rows[row, i] + residual[row, i]
        mean = _sum(out[row], np.float32(0), 1, sums) / np.float32(size)
        variance = _sum(out[row], mean, 2, sums) / np.float32(size)
        inverse = np.float32(1) / np.sqrt(variance + np.float32(eps))
        for i in range(size):
            out[row, i] = (out[row, i] - mean) * inverse * weight[i] + bias[i]


@_compiled()  # type: ignore[untyped-decorator]
def _sum(values: Any, mean: Any, power: int, sums: Any) -> Any:
    """The sum of `values` - `mean`, or with `power` 2 of its squares. `sums` [SUMS] stand side by side and are joined
    in one order: left to the compiler, the order would depend on the function into which this one is compiled, and so
    on what was compiled before."""
    stop = values.size - values.size % SUMS
    sums[:] = 0
    for first in range(0, stop, SUMS):
        for lane in range(SUMS):
            value = values[first + lane] - mean
            sums[lane] += value * value if power == 2 else value
    for i in range(stop, values.size):
        value = values[i] - mean
        sums[i - stop] += value * value if power == 2 else value
    half = SUMS // 2
    while half:
        for lane in range(half):
            sums[lane] += sums[half + lane]
        half //= 2
    return sums[0]


@_compiled()  # type: ignore[untyped-decorator]
def _filled(count: int) -> int:
    """So many rows, filled up to whole `TOGETHER`."""
    return -(-count // TOGETHER) * TOGETHER


@_compiled()  # type: ignore[untyped-decorator]
def _copy(rows: Any, out: Any) -> None:
    """`out` becomes the first rows and columns of `rows`. Number by number: numba compiles the assignment of a part of
    an array for twice as long as all other lines of a layer, since it can fail."""
    for row in range(out.shape[0]):
        for i in range(out.shape[1]):
            out[row, i] = rows[row, i]


@_compiled()  # type: ignore[untyped-decorator]
def project(states: Any, layer: Any, out: Any, start: int, stop: int) -> None:
    """`out` [tokens, features] of `states` [tokens, hidden] float32 from `start` to `stop`, by a packed layer."""
    panels, weights, zeros, bias = layer
    sums = np.empty((TOGETHER, COLUMNS), np.int32)
    whole, scales = np.full((TILE, states.shape[1]), ZERO, WHOLE), np.zeros(TILE, np.float32)
    buffer = np.empty((TILE, panels.shape[0] * COLUMNS), np.float32)
    for first in range(start, stop, TILE):
        count = min(TILE, stop - first)
        quantise(states[first : first + count], whole, scales)
        linear(whole[: _filled(count)], scales, panels, sums, weights, zeros, bias, buffer)
        _copy(buffer, out[first : first + count])


@_compiled()  # type: ignore[untyped-decorator]
def rest_of_layer(
    attended: Any,
    states: Any,
    one: Any,
    norm: Any,
    up: Any,
    down: Any,
    last: Any,
    following: Any,
    out: Any,
    eps: float,
    start: int,
    stop: int,
) -> None:
    """Turn `states` [tokens, hidden] into those of the next layer, from `start` to `stop`, when its attention gave
    `attended` [tokens, hidden]; `out` [tokens, 3 · hidden] becomes what the next attention needs, or stays where it has
    no rows. `one`, `up`, `down` and `following` are packed layers, `norm` and `last` weight and bias of LayerNorm."""
    hidden, inner = states.shape[1], down[0].shape[1] * STEP
    sums = np.empty((TOGETHER, COLUMNS), np.int32)
    whole, scales = np.full((TILE, hidden), ZERO, WHOLE), np.zeros(TILE, np.float32)
    capacity = min(GROUP, _filled(stop - start))
    wide, wide_scales = np.full((capacity, inner), ZERO, WHOLE), np.zeros(capacity, np.float32)
    buffer = np.empty((TILE, one[0].shape[0] * COLUMNS), np.float32)
    middle = np.empty((TILE, up[0].shape[0] * COLUMNS), np.float32)
    after = np.empty((TILE, following[0].shape[0] * COLUMNS), np.float32)
    normal = np.empty((capacity, hidden), np.float32)
    for group in range(start, stop, GROUP):
        length = min(GROUP, stop - group)
        for first in range(0, length, TILE):
            end = min(first + TILE, length)
            quantise(attended[group + first : group + end], whole, scales)
            linear(whole[: _filled(end - first)], scales, one[0], sums, one[1], one[2], one[3], buffer)
            _norm(buffer, states[group + first : group + end], norm[0], norm[1], eps, normal[first:end])
        for first in range(0, length, TILE):
            end = min(first + TILE, length)
            quantise(normal[first:end], whole, scales)
            linear(whole[: _filled(end - first)], scales, up[0], sums, up[1], up[2], up[3], middle)
            for row in range(end - first):
                _gelu(middle[row, :inner])
            quantise(middle[: end - first, :inner], wide[first:end], wide_scales[first:end])
        for first in range(0, length, TILE):
            end = min(first + TILE, length)
            rows = wide[first : first + _filled(end - first)]
            linear(rows, wide_scales[first:], down[0], sums, down[1], down[2], down[3], buffer)
            _norm(buffer, normal[first:end], last[0], last[1], eps, states[group + first : group + end])
        if out.shape[0] == 0:
            continue
        for first in range(0, length, TILE):
            end = min(first + TILE, length)
            quantise(states[group + first : group + end], whole, scales)
            rows, part = whole[: _filled(end - first)], out[group + first : group + end]
            if rows.shape[0] == part.shape[0] and after.shape[1] == part.shape[1]:  # no rows and columns are filled up
                linear(rows, scales, following[0], sums, following[1], following[2], following[3], part)
            else:
                linear(rows, scales, following[0], sums, following[1], following[2], following[3], after)
                _copy(after, part)
