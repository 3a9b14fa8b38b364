"""Texts laid end to end in one row, without padding: ids, positions, attention inside each text, pooling.

Nothing here needs the package transformers, and what gives no tensors not even torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor

OFFSET_POSITIONS = {"roberta", "xlm-roberta", "camembert"}
"""Model types whose positions start after the padding id (fairseq's convention)."""
PACKABLE = OFFSET_POSITIONS | {"bert"}
"""Model types whose positions and attention packing is known to get right."""

PACKED_TOKENS = 2_048
"""Tokens of a batch: a CPU is fastest while the activations of a batch stay in its cache."""

Run = tuple[int, int, int]
"""First token, number of texts, tokens in each text."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Texts laid end to end: ids and positions `[1, tokens]`, and the runs of equally long neighbours."""

    ids: Tensor
    positions: Tensor
    runs: list[Run]


def token_batches(lengths: Sequence[int], tokens: int | None = None, texts: int | None = None) -> Iterator[list[int]]:
    """Indices by falling length, in batches of at most `tokens` (longest × number) and at most `texts` texts.

    None sets no limit; a text of more than `tokens` is a batch of its own. The longest come first: if memory runs
    out it does so at once, and each later batch fits into memory that an earlier one has freed.
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    start = 0
    while start < len(order):
        count = len(order) if texts is None else texts
        if tokens is not None:
            count = max(1, min(count, tokens // max(1, lengths[order[start]])))
        yield order[start : start + count]
        start += count


def laid_out(ids: Sequence[Sequence[int]], config: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Run]]:
    """Texts end to end in the given order: ids and positions `[tokens]` as a model of this `config` has them, and runs.

    Sort by length first: each change of length starts a new run.
    """
    lengths = np.fromiter((len(text) for text in ids), dtype=np.int64, count=len(ids))
    flat = np.fromiter((token for text in ids for token in text), dtype=np.int64, count=int(lengths.sum()))
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(flat)) - np.repeat(starts, lengths)
    if config.model_type in OFFSET_POSITIONS:
        # As the model itself counts: a pad token inside a text takes position `pad` and moves no counter.
        pad = int(config.pad_token_id)
        real = (flat != pad).astype(np.int64)
        counts = np.cumsum(real)
        offsets = np.repeat(counts[starts] - real[starts], lengths)
        positions = (counts - offsets) * real + pad
    runs: list[Run] = []
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        if runs and runs[-1][2] == length:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1, length)
        else:
            runs.append((start, 1, length))
    return flat, positions, runs


def pack(ids: Sequence[Sequence[int]], config: Any, device: torch.device) -> Packed:
    """The result of `laid_out`, as tensors on `device`."""
    import torch

    flat, positions, runs = laid_out(ids, config)
    return Packed(torch.from_numpy(flat)[None].to(device), torch.from_numpy(positions)[None].to(device), runs)


def pool_packed(states: Tensor, runs: list[Run], pooling: str) -> Tensor:
    """`[tokens, hidden]` of texts laid end to end → float32 `[texts, hidden]`."""
    import torch

    parts = []
    for start, count, length in runs:
        texts = states[start : start + count * length].view(count, length, -1)
        parts.append(texts[:, 0].float() if pooling == "cls" else texts.float().mean(1))
    return torch.cat(parts)
