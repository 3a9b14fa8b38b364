"""Linear layers with int8 weights: one scale for each output, and one for each token, found while it is computed.

    y ≈ s·t·(u·v) + b     weights u with the scale s of their output, a token's numbers v with its own scale t

u·v is summed in whole numbers. A token's scale depends on that token alone, so a text's vector does not depend on the
texts beside it. `int8_kernel` computes whole layers on processors with AVX-512 VNNI or AVX2; elsewhere NumPy multiplies
the same whole numbers in float32, so that vectors agree, and the weights are as small. Nothing here needs torch.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.lazy import Once, compiled_module
from interlingua.models.inference.kept import LEVELS
from interlingua.models.inference.machine import processor, threads
from interlingua.models.inference.packing import Run

Floats = NDArray[np.float32]

SPLIT = 256  # tokens, at least, for a thread of its own


class Norm(NamedTuple):
    """Weight and bias of LayerNorm."""

    weight: Any
    bias: Any


class Layer(NamedTuple):
    """The parts of a layer, in the order of their use. `mixed` gives queries, keys and values side by side."""

    mixed: Any
    out: Any
    norm: Norm
    up: Any
    down: Any
    last: Norm


def rounded(rows: Floats) -> tuple[NDArray[np.int8], Floats]:
    """`rows` [rows, features] as int8 and float32 scales [rows]: their product is about the row."""
    scales = np.abs(rows).max(axis=1, initial=0) / np.float32(LEVELS)
    inverse = np.divide(1, scales, out=np.zeros_like(scales), where=scales > 0)
    return np.floor(rows * inverse[:, None] + np.float32(0.5)).astype(np.int8), scales


class Part(NamedTuple):
    """A linear layer, or a part of its outputs: `weight` [out, in] int8, `scales` [out] and `bias` [out] float32."""

    weight: NDArray[np.int8]
    scales: Floats
    bias: Floats


class Int8Linear:
    """A linear layer of `parts`, whose outputs stand side by side."""

    def __init__(self, *parts: Part) -> None:
        self.parts, self.inputs = parts, parts[0].weight.shape[1]
        self._packed = Once(self._pack)  # threads may search at once

    def __call__(self, states: Floats) -> Floats:
        """`states` [tokens, in] float32 → [tokens, out], by NumPy."""
        integers, scales = rounded(states)
        wide = integers.astype(np.float32)
        outputs = [
            wide @ part.weight.T.astype(np.float32) * (scales[:, None] * part.scales) + part.bias for part in self.parts
        ]
        return np.concatenate(outputs, axis=1)

    @property
    def packed(self) -> tuple[Any, ...]:
        """Weights as the kernel takes them: panels [panels, steps, columns · step] int8, scales, the kernel's zero
        times the sum of the weights of an output, and bias, filled up with zeros to whole panels."""
        return self._packed()

    def _pack(self) -> tuple[Any, ...]:
        compiled = kernel()
        assert compiled is not None
        columns, step = compiled.COLUMNS, compiled.STEP
        outputs, inputs = sum(len(part.weight) for part in self.parts), self.inputs
        panels = -(-outputs // columns)
        weights = np.zeros((panels * columns, inputs), np.int8)
        np.concatenate([part.weight for part in self.parts], out=weights[:outputs])
        blocks = weights.reshape(panels, columns, inputs // step, step).transpose(0, 2, 1, 3)
        scales, bias = np.zeros((2, len(weights)), np.float32)
        scales[:outputs] = np.concatenate([part.scales for part in self.parts])
        bias[:outputs] = np.concatenate([part.bias for part in self.parts])
        zeros = weights.sum(axis=1, dtype=np.int32) * np.int32(compiled.ZERO)
        for part in self.parts:
            release(part.weight)
        return np.ascontiguousarray(blocks).reshape(panels, inputs // step, columns * step), scales, zeros, bias


def place_in_file(array: NDArray[Any]) -> tuple[np.memmap[Any, Any], int] | None:
    """The map that `array` is a part of, and where in the file it begins; None for an array in memory."""
    base: Any = array
    while base is not None and not (isinstance(base, np.memmap) and isinstance(base.base, mmap.mmap)):
        base = getattr(base, "base", None)
    if base is None or not array.flags.c_contiguous:
        return None
    return base, base.offset + array.ctypes.data - base.ctypes.data


def release(array: NDArray[Any]) -> None:
    """Give back the memory of an array that is mapped from a file; it is read again where it is needed again."""
    location = place_in_file(array)
    if location is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    pages: Any = location[0].base
    place = location[1] - location[0].offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    first, last = -(-place // mmap.PAGESIZE), (place + array.nbytes) // mmap.PAGESIZE
    if last > first:
        pages.madvise(mmap.MADV_DONTNEED, first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE)


@cache
def kernel() -> ModuleType | None:
    """The compiled layers; None without numba, and where Linux does not say that the processor has AVX-512 VNNI, or
    AVX2 and FMA: elsewhere they were not measured."""
    if not ("avx512_vnni" in processor() or {"avx2", "fma"} <= processor()):
        return None
    return compiled_module("models.inference.int8_kernel", "int8 weights are multiplied by NumPy")


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads(), "int8")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # the threads stay in the parent


def states_of(
    layers: Sequence[Layer], states: Floats, runs: Sequence[Run], heads: int, compiled: ModuleType, eps: float
) -> Floats:
    """The last states [tokens, hidden] of `layers`, from those of the embeddings, which they overwrite."""
    if not layers:
        return states
    tokens, hidden = states.shape
    mixed: Floats = np.empty((tokens, 3 * hidden), np.float32)
    empty, attended = np.empty((0, 3 * hidden), np.float32), np.empty_like(states)
    count = max(1, min(threads(), tokens // SPLIT))
    step = -(-tokens // (count * compiled.TILE)) * compiled.TILE
    shares = [(start, min(start + step, tokens)) for start in range(0, tokens, step)]
    texts = np.array([(start + n * length, length) for start, number, length in runs for n in range(number)])
    groups = [np.ascontiguousarray(texts[number::count]) for number in range(count)]

    def run(work: Callable[[int, int], None]) -> None:
        if len(shares) == 1:
            work(0, tokens)
        else:
            list(_pool().map(lambda share: work(*share), shares))

    attend = partial(compiled.attend, mixed, attended, heads)
    run(partial(compiled.project, states, layers[0].mixed.packed, mixed))
    for layer, following in zip(layers, [*layers[1:], None], strict=True):
        if count == 1:
            attend(texts)
        else:
            list(_pool().map(attend, groups))
        parts = [part.packed for part in (layer.out, layer.up, layer.down, (following or layer).mixed)]
        args = attended, states, parts[0], tuple(layer.norm), parts[1], parts[2], tuple(layer.last), parts[3]
        run(partial(compiled.rest_of_layer, *args, empty if following is None else mixed, eps))
    return states
