"""Packing without padding: many texts of different lengths as one row, each attending only to itself.

A padded batch computes every token up to the longest text. Here a batch is one row `[1, tokens]` with positions
that restart at every text; the linear layers never see a pad token and attention runs once per group of equally
long texts. The attention function is registered through transformers' public interface, so the model code is
the library's own. Without packed runs it is ordinary scaled-dot-product attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

ATTENTION = "interlingua_packed"
OFFSET_POSITIONS = {"roberta", "xlm-roberta", "camembert"}
"""Model types whose positions start after the padding id (fairseq's convention)."""
_ARCHITECTURES = OFFSET_POSITIONS | {"bert"}

Run = tuple[int, int, int]
"""First token, number of texts, tokens in each text."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Texts laid end to end: ids and positions `[1, tokens]`, and the runs of equally long neighbours."""

    ids: Tensor
    positions: Tensor
    runs: list[Run]


def can_pack(model: PreTrainedModel) -> bool:
    """Whether `model` is of a type whose positions and attention packing is known to get right."""
    return model.config.model_type in _ARCHITECTURES and not getattr(model.config, "is_decoder", False)


def prepare(model: PreTrainedModel) -> None:
    """Let `model` take packed rows; padded batches go on working as before."""
    model.set_attn_implementation(ATTENTION)


def pack(ids: Sequence[Sequence[int]], model: PreTrainedModel, device: torch.device) -> Packed:
    """Lay texts end to end in the given order. Sort by length first: each change of length starts a new run."""
    lengths = np.fromiter((len(text) for text in ids), dtype=np.int64, count=len(ids))
    flat = np.fromiter((token for text in ids for token in text), dtype=np.int64, count=int(lengths.sum()))
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(flat)) - np.repeat(starts, lengths)
    if model.config.model_type in OFFSET_POSITIONS:
        # As the model itself counts: a pad token inside a text takes position `pad` and moves no counter.
        pad = int(model.config.pad_token_id)
        real = (flat != pad).astype(np.int64)
        counted = np.cumsum(real)
        before = np.repeat(counted[starts] - real[starts], lengths)
        positions = (counted - before) * real + pad
    runs: list[Run] = []
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        if runs and runs[-1][2] == length:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, length)
        else:
            runs.append((start, 1, length))
    return Packed(
        torch.from_numpy(flat)[None].to(device), torch.from_numpy(positions)[None].to(device), runs
    )


def forward(model: PreTrainedModel, packed: Packed, *, hidden_states: bool = False) -> Any:
    """The model's output for a packed row, differentiable: `last_hidden_state` is `[1, tokens, hidden]`."""
    return model(
        input_ids=packed.ids, position_ids=packed.positions, token_type_ids=torch.zeros_like(packed.ids),
        packed_runs=packed.runs, output_hidden_states=hidden_states,
    )


def first_states(
    model: PreTrainedModel, ids: Tensor, positions: Tensor | None = None, mask: Tensor | None = None,
    runs: list[Run] | None = None,
) -> Tensor:
    """Last-layer states of each text's first token, `[texts, hidden]`, differentiable: equal to those of `model`.

    In the last layer only keys and values need the other tokens; queries, attention and feed-forward are computed for
    the first alone. Either a packed row with its `runs` and `positions`, or padded `ids` `[texts, longest]` with their
    0/1 `mask`. For models that `can_pack` and have a layer.
    """
    seen = None if mask is None or mask.all() else mask[:, None, None].bool()
    states = model.embeddings(input_ids=ids, position_ids=positions, token_type_ids=torch.zeros_like(ids))
    for layer in model.encoder.layer[:-1]:
        states = layer(states, seen, packed_runs=runs)
    if runs is None:
        first = states[:, :1]
    else:
        starts = [start + i * length for start, count, length in runs for i in range(count)]
        first = states[:, torch.tensor(starts, device=states.device)]
    layer = model.encoder.layer[-1]
    inner = layer.attention.self
    query, key, value = (
        linear(read).unflatten(-1, (-1, inner.attention_head_size)).transpose(1, 2)
        for linear, read in ((inner.query, first), (inner.key, states), (inner.value, states))
    )
    dropout = inner.dropout.p if inner.training else 0.0
    attended, _ = packed_attention(inner, query, key, value, seen, inner.scaling, dropout, runs)
    last: Tensor = layer.feed_forward_chunk(layer.attention.output(attended.flatten(2), first))
    return last.flatten(0, 1)


def packed_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, dropout: float = 0.0, packed_runs: list[Run] | None = None, **_: Any,
) -> tuple[Tensor, None]:
    """Attention inside each text of a packed row. `key`, `value`: `[1, heads, tokens, head dim]`; `query` the same,
    or `[1, heads, texts, head dim]` with one query for each text.

    Returns `[batch, queries, heads, head dim]` as transformers expects. Without `packed_runs`: plain attention.
    """
    if packed_runs is None:
        plain = scaled_dot_product_attention(query, key, value, attention_mask, dropout, scale=scaling)
        return plain.transpose(1, 2).contiguous(), None
    heads, size = query.shape[1], query.shape[3]
    every = query.shape[2] == key.shape[2]
    parts, asked = [], 0
    for start, count, length in packed_runs:
        queries, end = count * (length if every else 1), start + count * length
        one, two, three = (
            states[0, :, first:last].view(heads, count, -1, size).transpose(0, 1)
            for states, first, last in ((query, asked, asked + queries), (key, start, end), (value, start, end))
        )
        attended = scaled_dot_product_attention(one, two, three, dropout_p=dropout, scale=scaling)
        parts.append(attended.transpose(1, 2).reshape(queries, heads, size))
        asked += queries
    return torch.cat(parts)[None], None


AttentionInterface.register(ATTENTION, packed_attention)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
