"""A transformer layer on int8 weights, compiled by numba: between two attentions nothing leaves the processor's cache.

Imported only where numba is installed (the extra `index`) and the processor has `vpdpbusd`, which multiplies 64 pairs
of bytes at once. `interlingua.models.inference.int8` has the same arithmetic by NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types  # type: ignore[import-untyped]
from numba.core import cgutils  # type: ignore[import-untyped]
from numba.extending import intrinsic  # type: ignore[import-untyped]

from interlingua.models.inference.int8 import COLUMNS, STEP, ZERO
from interlingua.models.inference.kept import LEVELS
from interlingua.models.inference.layers import LOW, TOP

LANES = 16
TOGETHER = 8  # rows of one pass over a panel: 8 × 3 vectors of sums are held in registers
TILE = 64  # rows that go through the whole layer before the next ones
PANELS = COLUMNS // LANES
POWERS = (2.1702255e-4, 1.2439688e-3, 9.6788315e-3, 5.5483342e-2, 2.4022984e-1, 6.9314698e-1, 1.0)
"""2^x from 0 to 1, the highest power first."""
_BYTE, _INT, _INDEX = (ir.IntType(bits) for bits in (8, 32, 64))


def _compiled(**flags: Any) -> Any:
    def decorate(function: Any) -> Any:
        try:
            return njit(cache=True, nogil=True, error_model="numpy", **flags)(function)
        except RuntimeError:  # there is no folder that numba may write to
            return njit(nogil=True, error_model="numpy", **flags)(function)

    return decorate


@intrinsic  # type: ignore[untyped-decorator]
def _products(_: Any, sums: Any, rows: Any, first: Any, panels: Any, panel: Any) -> Any:
    """`sums` [TOGETHER, COLUMNS] int32 becomes the products of the rows of `rows` [rows, steps · STEP] uint8 from
    `first` on with one panel of `panels` [panels, steps, COLUMNS · STEP] int8."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        total = ir.VectorType(_INT, LANES)
        arrays = [context.make_array(signature.args[i])(context, builder, given[i]) for i in (0, 1, 3)]
        out, left, right = (
            builder.bitcast(array.data, kind.as_pointer())
            for array, kind in zip(arrays, (total, _INT, total), strict=True)
        )
        steps = cgutils.unpack_tuple(builder, arrays[2].shape, 3)[1]
        multiply = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(total, [total] * 3), "llvm.x86.avx512.vpdpbusd.512"
        )
        begins = [builder.mul(builder.add(given[2], _INDEX(number)), steps) for number in range(TOGETHER)]
        panel_begin = builder.mul(given[4], builder.mul(steps, _INDEX(PANELS)))
        held = [cgutils.alloca_once_value(builder, ir.Constant(total, None)) for _ in range(TOGETHER * PANELS)]
        with cgutils.for_range(builder, steps) as loop:
            place = builder.add(panel_begin, builder.mul(loop.index, _INDEX(PANELS)))
            weights = [
                builder.load(builder.gep(right, [builder.add(place, _INDEX(number))]), align=1)
                for number in range(PANELS)
            ]
            for row, begin in enumerate(begins):
                four = builder.load(builder.gep(left, [builder.add(begin, loop.index)]), align=1)
                one = builder.insert_element(ir.Constant(total, ir.Undefined), four, _INT(0))
                everywhere = builder.shuffle_vector(one, one, ir.Constant(total, None))
                for number, weight in enumerate(weights):
                    sum_ = held[row * PANELS + number]
                    builder.store(builder.call(multiply, [builder.load(sum_), everywhere, weight]), sum_)
        for number, sum_ in enumerate(held):
            builder.store(builder.load(sum_), builder.gep(out, [_INDEX(number)]), align=4)
        return context.get_dummy_value()

    return types.void(sums, rows, first, panels, panel), generate


@_compiled(fastmath=True)  # type: ignore[untyped-decorator]
def quantise(rows: Any, whole: Any, scales: Any) -> None:
    """`rows` [rows, features] float32 as uint8 around `ZERO`, with one scale a row."""
    bits = rows.view(np.int32)
    for row in range(rows.shape[0]):
        most = np.int32(0)  # as bits: numbers without a sign stand in the order of their bits, and this is faster
        for i in range(rows.shape[1]):
            most = max(most, bits[row, i] & np.int32(0x7FFFFFFF))
        scale = np.int32(most).view(np.float32) / np.float32(LEVELS)
        scales[row] = scale
        turn = np.float32(1) / scale if scale > 0 else np.float32(0)
        for i in range(rows.shape[1]):
            whole[row, i] = np.uint8(np.int32(rows[row, i] * turn + np.float32(ZERO + 0.5)))


@_compiled(fastmath=True)  # type: ignore[untyped-decorator]
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


@_compiled(fastmath=True)  # type: ignore[untyped-decorator]
def softmax(rows: Any, sums: Any) -> None:
    """`rows` [rows, columns] become e to the power of what each is above the largest of its row, and `sums` [rows, 1]
    their sums. 2^x is 2 to the whole part, by its bits, times a polynomial of the rest, off by less than 2e-7."""
    bits = rows.view(np.int32)
    for row in range(rows.shape[0]):
        largest = np.int32(-0x80000000)  # as bits, which stand in the order of the numbers so: this is faster
        for i in range(rows.shape[1]):
            largest = max(largest, bits[row, i] ^ ((bits[row, i] >> np.int32(31)) & np.int32(0x7FFFFFFF)))
        most = np.int32(largest ^ ((largest >> np.int32(31)) & np.int32(0x7FFFFFFF))).view(np.float32)
        total = np.float32(0)
        for i in range(rows.shape[1]):
            x = max((rows[row, i] - most) * np.float32(1.4426950408889634), np.float32(-126))
            whole = np.floor(x)
            rest = x - whole
            power = np.float32(0)
            for factor in POWERS:
                power = power * rest + np.float32(factor)
            value = power * np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)
            rows[row, i] = value
            total += value
        sums[row, 0] = total


@_compiled(fastmath={"contract"})  # type: ignore[untyped-decorator]
def linear(whole: Any, scales: Any, panels: Any, sums: Any, weights: Any, zeros: Any, bias: Any, out: Any) -> None:
    """Rows [rows of whole TOGETHER, in] uint8 times a packed layer → float32 `out` [rows, COLUMNS · panels]."""
    for panel in range(panels.shape[0]):
        at = panel * COLUMNS
        for first in range(0, whole.shape[0], TOGETHER):
            _products(sums, whole, first, panels, panel)
            for row in range(TOGETHER):
                scale = scales[first + row]
                for lane in range(COLUMNS):
                    product = np.float32(sums[row, lane] - zeros[at + lane])
                    out[first + row, at + lane] = product * (scale * weights[at + lane]) + bias[at + lane]


@_compiled(fastmath=True)  # type: ignore[untyped-decorator]
def _norm(rows: Any, residual: Any, weight: Any, bias: Any, eps: Any, out: Any) -> None:
    """LayerNorm of rows + residual."""
    size = residual.shape[1]
    for row in range(residual.shape[0]):
        total = np.float32(0)
        for i in range(size):
            value = rows[row, i] + residual[row, i]
            out[row, i] = value
            total += value
        mean = total / np.float32(size)
        square = np.float32(0)
        for i in range(size):
            value = out[row, i] - mean
            square += value * value
        turn = np.float32(1) / np.sqrt(square / np.float32(size) + np.float32(eps))
        for i in range(size):
            out[row, i] = (out[row, i] - mean) * turn * weight[i] + bias[i]


@_compiled()  # type: ignore[untyped-decorator]
def project(states: Any, layer: Any, out: Any, start: int, stop: int) -> None:
    """`out` [tokens, features] of `states` [tokens, hidden] float32 from `start` to `stop`, by a packed layer."""
    panels, weights, zeros, bias = layer
    sums = np.empty((TOGETHER, COLUMNS), np.int32)
    whole, scales = np.full((TILE, states.shape[1]), ZERO, np.uint8), np.zeros(TILE, np.float32)
    room = np.empty((TILE, panels.shape[0] * COLUMNS), np.float32)
    for first in range(start, stop, TILE):
        count = min(TILE, stop - first)
        filled = -(-count // TOGETHER) * TOGETHER
        quantise(states[first : first + count], whole, scales)
        linear(whole[:filled], scales, panels, sums, weights, zeros, bias, room)
        out[first : first + count] = room[:count, : out.shape[1]]


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
    whole, scales = np.full((TILE, hidden), ZERO, np.uint8), np.zeros(TILE, np.float32)
    wide = np.full((TILE, inner), ZERO, np.uint8)
    room = np.empty((TILE, one[0].shape[0] * COLUMNS), np.float32)
    middle = np.empty((TILE, up[0].shape[0] * COLUMNS), np.float32)
    after = np.empty((TILE, following[0].shape[0] * COLUMNS), np.float32)
    normal = np.empty((TILE, hidden), np.float32)
    for first in range(start, stop, TILE):
        end = min(first + TILE, stop)
        count = end - first
        filled = -(-count // TOGETHER) * TOGETHER
        quantise(attended[first:end], whole, scales)
        linear(whole[:filled], scales, one[0], sums, one[1], one[2], one[3], room)
        _norm(room, states[first:end], norm[0], norm[1], eps, normal)
        quantise(normal[:count], whole, scales)
        linear(whole[:filled], scales, up[0], sums, up[1], up[2], up[3], middle)
        for row in range(count):
            _gelu(middle[row, :inner])
        quantise(middle[:count, :inner], wide, scales)
        linear(wide[:filled], scales, down[0], sums, down[1], down[2], down[3], room)
        _norm(room, normal[:count], last[0], last[1], eps, states[first:end])
        if out.shape[0] > 0:
            quantise(states[first:end], whole, scales)
            linear(whole[:filled], scales, following[0], sums, following[1], following[2], following[3], after)
            out[first:end] = after[:count, : out.shape[1]]
