"""Linear layers with int8 weights: one scale for each output, and one for each token, found while it is computed.

    y ≈ s·t·(u·v) + b     weights u with the scale s of their output, a token's numbers v with its own scale t

u·v is summed in whole numbers. A token's scale depends on that token alone, so a text's vector does not depend on the
texts beside it. `int8_kernel` computes whole layers where the processor multiplies bytes; elsewhere torch multiplies
the same whole numbers in float32, so that vectors agree, and the weights are as small.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import linear

from interlingua.lazy import Once, compiled_module
from interlingua.models.encode import processor

COLUMNS, STEP = 48, 4
"""How the kernel takes weights: so many outputs side by side, and so many of their inputs."""
LEVELS, ZERO = 127, 128
"""The largest whole number of a weight or a token, and what the kernel adds to those of a token."""
SPLIT = 256  # tokens, at least, for a thread of its own


class Norm(NamedTuple):
    """Weight and bias of LayerNorm."""

    weight: Tensor
    bias: Tensor


class Layer(NamedTuple):
    """The parts of a layer, in the order of their use. `mixed` gives queries, keys and values side by side."""

    mixed: Any
    out: Any
    norm: Norm
    up: Any
    down: Any
    last: Norm


def rounded(rows: Tensor) -> tuple[Tensor, Tensor]:
    """`rows` [rows, features] as int8 and float32 scales [rows]: their product is about the row."""
    scales = rows.abs().amax(dim=1) / LEVELS
    turn = torch.where(scales > 0, 1 / scales, 0)
    return torch.floor(rows * turn[:, None] + 0.5).to(torch.int8), scales


class Int8Linear:
    """A linear layer: `weight` [out, in] int8, `scales` [out] and `bias` [out] float32."""

    def __init__(self, weight: Tensor, scales: Tensor, bias: Tensor) -> None:
        self.weight, self.scales, self.bias = weight, scales, bias
        self._packed = Once(self._pack)  # threads may search at once

    def __call__(self, states: Tensor) -> Tensor:
        """`states` [tokens, in] float32 → [tokens, out], by torch."""
        whole, scales = rounded(states)
        return linear(whole.float(), self.weight.float()) * (scales[:, None] * self.scales) + self.bias

    @property
    def packed(self) -> tuple[Any, ...]:
        """What the kernel takes: panels [panels, steps, COLUMNS · STEP] int8, scales, ZERO times the sum of the weights
        of an output, and bias, filled up with zeros to whole panels."""
        return self._packed()

    def _pack(self) -> tuple[Any, ...]:
        outputs, inputs = self.weight.shape
        panels = -(-outputs // COLUMNS)
        whole = np.zeros((panels * COLUMNS, inputs), np.int8)
        whole[:outputs] = self.weight.numpy()
        blocks = whole.reshape(panels, COLUMNS, inputs // STEP, STEP).transpose(0, 2, 1, 3)
        scales, bias = np.zeros((2, len(whole)), np.float32)
        scales[:outputs], bias[:outputs] = self.scales.numpy(), self.bias.numpy()
        zeros = whole.sum(axis=1, dtype=np.int32) * np.int32(ZERO)
        packed = np.ascontiguousarray(blocks).reshape(panels, inputs // STEP, COLUMNS * STEP)
        self.weight = self.weight[:0]  # held once
        return packed, scales, zeros, bias


@cache
def kernel() -> ModuleType | None:
    """The compiled layers; None without numba, and on a processor without 512 bits of `vpdpbusd`."""
    if "avx512_vnni" not in processor():
        return None
    return compiled_module("models.inference.int8_kernel", "int8 weights are multiplied by torch")


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(torch.get_num_threads(), "int8")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # the threads stay in the parent


def states_of(
    layers: Sequence[Layer], states: Tensor, attend: Callable[[Tensor], Tensor], compiled: ModuleType, eps: float
) -> Tensor:
    """The last states [tokens, hidden] of `layers`, from those of the embeddings, which they overwrite; `attend` turns
    queries, keys and values [tokens, 3 · hidden] into what attention gives, [tokens, hidden]."""
    if not layers:
        return states
    tokens, hidden = states.shape
    rows, mixed = states.numpy(), torch.empty(tokens, 3 * hidden)
    threads = max(1, min(torch.get_num_threads(), tokens // SPLIT))
    step = -(-tokens // (threads * compiled.TILE)) * compiled.TILE
    shares = [(start, min(start + step, tokens)) for start in range(0, tokens, step)]

    def run(work: Callable[[int, int], None]) -> None:
        if len(shares) == 1:
            work(0, tokens)
        else:
            list(_pool().map(lambda share: work(*share), shares))

    run(partial(compiled.project, rows, layers[0].mixed.packed, mixed.numpy()))
    for layer, after in zip(layers, [*layers[1:], None], strict=True):
        attended = attend(mixed).numpy()
        parts = [part.packed for part in (layer.out, layer.up, layer.down, (after or layer).mixed)]
        norms = [(norm.weight.numpy(), norm.bias.numpy()) for norm in (layer.norm, layer.last)]
        out = mixed.numpy() if after is not None else np.empty((0, 3 * hidden), np.float32)
        given = attended, rows, parts[0], norms[0], parts[1], parts[2], norms[1], parts[3], out, eps
        run(partial(compiled.rest_of_layer, *given))
    return states
