"""The layers of a transformer by NumPy, in float32 or int8 weights; int8 by the compiled kernel where it is to be had.

Nothing here needs torch: a question is answered while torch would still be loading.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.models.folder import Pooling
from interlingua.models.inference.int8 import Int8Linear, Layer, Norm, Part, kernel, place_in_file, states_of
from interlingua.models.inference.kept import SCALES, TABLE, Config
from interlingua.models.inference.packing import PACKED_TOKENS, Run, laid_out, token_batches
from interlingua.models.static.encoder import widened

Floats = NDArray[np.float32]
Ids = NDArray[np.int64]
TOP = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
       -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02)  # fmt: skip
LOW = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
       -1.42647390514189e-02)  # fmt: skip
"""erf(x) is about x · TOP(x²) / LOW(x²) from −4 to 4, off by less than 4e-7; the highest power first."""


class Table:
    """Embeddings `[vocabulary, hidden]`: float32, bfloat16 by its bits (uint16), or int8 with `scales` `[vocabulary]`.

    Of a table that is mapped from a file, the rows that are asked for are read, and nothing stays in memory: pages of
    a map count as the process's own, and hold the neighbours of a row as well.
    """

    def __init__(self, rows: NDArray[Any], scales: Floats | None = None) -> None:
        self._rows, self._scales = rows, scales
        self._file: int | None = None
        if (location := place_in_file(rows)) is not None:
            self._file, self._start = os.open(str(location[0].filename), os.O_RDONLY), location[1]
            weakref.finalize(self, os.close, self._file)

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self._rows, self._scales)  # a copy has an open file of its own

    def take(self, ids: Ids) -> Floats:
        """The embeddings `[tokens, hidden]` of `ids` `[tokens]`."""
        distinct, places = np.unique(ids, return_inverse=True)
        if self._file is None or not hasattr(os, "pread"):
            rows = self._rows[distinct]
        else:
            size = self._rows[:1].nbytes
            data = b"".join(os.pread(self._file, size, self._start + number * size) for number in distinct.tolist())
            rows = np.frombuffer(data, self._rows.dtype).reshape(len(distinct), -1)
        embeddings = widened(rows) if rows.dtype == np.uint16 else rows.astype(np.float32)
        if self._scales is not None:
            embeddings *= self._scales[distinct][:, None]
        return embeddings[places]


class Layers:
    """A transformer of `weights` by their names in transformers, those of int8 with scales beside them."""

    def __init__(self, config: Config, weights: Mapping[str, Any], int8: bool) -> None:
        self.config, self.int8 = config, int8
        self._table = Table(weights[TABLE], weights.get(TABLE + SCALES))
        self._positions = weights["embeddings.position_embeddings.weight"]
        self._type = weights["embeddings.token_type_embeddings.weight"][0]
        self._first = norm_of("embeddings", weights)
        linear = partial(_linear, weights, int8)
        self.layers = [layer_of(number, linear, weights) for number in range(config.num_hidden_layers)]
        # the kernel reads the inputs of a layer by fours, or by twos
        self._by_fours = int8 and not any(part.inputs % 4 for layer in self.layers for part in (layer.out, layer.down))

    def vectors(self, ids: Sequence[Sequence[int]], pooling: Pooling) -> Floats:
        """Token ids of each text → float32 `[texts, hidden]`, in batches of texts of near-equal length."""
        vectors: Floats = np.empty((len(ids), self.config.hidden_size), np.float32)
        for batch in token_batches([len(text) for text in ids], PACKED_TOKENS):
            flat, positions, runs = laid_out([ids[number] for number in batch], self.config)
            states, offset = self.states(flat, positions, runs)[0], 0
            for start, count, length in runs:
                texts = states[start : start + count * length].reshape(count, length, -1)
                vectors[batch[offset : offset + count]] = texts[:, 0] if pooling == "cls" else texts.mean(1)
                offset += count
        return vectors

    def states(
        self, ids: Ids, positions: Ids, runs: Sequence[Run], early: int | None = None
    ) -> tuple[Floats, Floats | None]:
        """The last states [tokens, hidden] of texts as `laid_out` gives them, and those of hidden layer `early`."""
        compiled = kernel() if self._by_fours else None
        heads, eps = self.config.num_attention_heads, self.config.layer_norm_eps
        compute: Callable[[Sequence[Layer], Floats], Floats]
        if compiled is None:
            compute = partial(_states, runs=runs, heads=heads, eps=eps)
        else:
            compute = partial(states_of, runs=runs, heads=heads, compiled=compiled, eps=eps)
        states = self._table.take(ids)
        states += self._positions[positions]
        states += self._type
        states = _normal(states, self._first, eps)
        if early is None:
            return compute(self.layers, states), None
        states = compute(self.layers[:early], states)
        early_states = states.copy()
        return compute(self.layers[early:], states), early_states


class FloatLinear:
    """A linear layer of parts, `weight` [out, in] and `bias` [out], whose outputs stand side by side."""

    def __init__(self, *parts: tuple[Floats, Floats]) -> None:
        self.parts, self.inputs = parts, parts[0][0].shape[1]

    def __call__(self, states: Floats) -> Floats:
        """`states` [tokens, in] → [tokens, out]."""
        return np.concatenate([states @ weight.T + bias for weight, bias in self.parts], axis=1)


def _linear(weights: Mapping[str, Any], int8: bool, *names: str) -> Int8Linear | FloatLinear:
    parts = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names]
    if not int8:
        return FloatLinear(*parts)
    scales = [weights[f"{name}.weight{SCALES}"] for name in names]
    return Int8Linear(*(Part(weight, scale, bias) for (weight, bias), scale in zip(parts, scales, strict=True)))


def layer_of(number: int, linear: Callable[..., Any], weights: Mapping[str, Any]) -> Layer:
    """A layer by the names of its weights in transformers; `linear(*names)` is a linear layer, or several in one."""
    base = f"encoder.layer.{number}"
    return Layer(
        linear(*(f"{base}.attention.self.{part}" for part in ("query", "key", "value"))),
        linear(f"{base}.attention.output.dense"),
        norm_of(f"{base}.attention.output", weights),
        linear(f"{base}.intermediate.dense"),
        linear(f"{base}.output.dense"),
        norm_of(f"{base}.output", weights),
    )


def norm_of(name: str, weights: Mapping[str, Any]) -> Norm:
    """The LayerNorm after a part of the model."""
    return Norm(weights[f"{name}.LayerNorm.weight"], weights[f"{name}.LayerNorm.bias"])


def _states(layers: Sequence[Layer], states: Floats, runs: Sequence[Run], heads: int, eps: float) -> Floats:
    attended = np.empty_like(states)
    for layer in layers:
        mixed = layer.mixed(states)
        for start, count, length in runs:
            for begin in range(start, start + count * length, length):
                text = slice(begin, begin + length)
                _attention(mixed[text], attended[text], heads)
        states = _normal(layer.out(attended) + states, layer.norm, eps)
        states = _normal(layer.down(_gelu(layer.up(states))) + states, layer.last, eps)
    return states


def _normal(states: Floats, norm: Norm, eps: float) -> Floats:
    centred = states - states.mean(axis=1, keepdims=True)
    centred /= np.sqrt(np.square(centred).mean(axis=1, keepdims=True) + np.float32(eps))
    return np.asarray(centred * norm.weight + norm.bias)


def _attention(mixed: Floats, out: Floats, heads: int) -> None:
    """Attention inside a text: queries, keys and values [tokens, 3 · hidden] into `out` [tokens, hidden]."""
    length, size = len(mixed), mixed.shape[1] // (3 * heads)
    query, key, value = mixed.reshape(length, 3, heads, size).transpose(1, 2, 0, 3)
    weights = np.matmul(query * np.float32(size**-0.5), key.transpose(0, 2, 1))
    weights -= weights.max(axis=2, keepdims=True)
    np.exp(weights, out=weights)
    context = np.matmul(weights, value)
    context /= weights.sum(axis=2, keepdims=True)
    out[:] = context.transpose(1, 0, 2).reshape(length, -1)


def _gelu(values: Floats) -> Floats:
    """x · Φ(x)."""
    x = np.clip(values * np.float32(0.70710678118654752), -4, 4)
    square = x * x
    erf = x * np.polyval(np.array(TOP, np.float32), square) / np.polyval(np.array(LOW, np.float32), square)
    return np.asarray(values * np.float32(0.5) * (1 + erf))
