"""From token states to one vector per text, and the layers after it, named as sentence-transformers names them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize as unit_length

from interlingua.errors import InterlinguaError, suggestion

if TYPE_CHECKING:  # it imports transformers' models, which takes seconds
    from interlingua.models.packing import Run

Pooling = Literal["cls", "mean"]
POOLINGS: tuple[str, ...] = get_args(Pooling)

TANH = "torch.nn.modules.activation.Tanh"
ACTIVATIONS: dict[str, type[nn.Module]] = {
    TANH: nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
    "torch.nn.modules.activation.SiLU": nn.SiLU,
    "torch.nn.modules.linear.Identity": nn.Identity,
}
"""The names sentence-transformers writes for activations; a model file can name these and no other code."""


def check_pooling(pooling: str, where: str = "pooling") -> Pooling:
    """`pooling` if it is known, else InterlinguaError."""
    if pooling == "cls":
        return "cls"
    if pooling == "mean":
        return "mean"
    raise InterlinguaError(f"{where}: pooling {pooling!r} is not supported.{suggestion(pooling, POOLINGS)}")


def pool_padded(states: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """`[texts, longest, hidden]` and a 0/1 mask `[texts, longest]` → float32 `[texts, hidden]`. Padding is right."""
    if pooling == "cls":
        return states[:, 0].float()
    weights = mask.unsqueeze(-1).float()
    return (states.float() * weights).sum(1) / weights.sum(1)


def pool_packed(states: Tensor, runs: list[Run], pooling: Pooling) -> Tensor:
    """`[tokens, hidden]` of texts laid end to end → float32 `[texts, hidden]`."""
    parts = []
    for start, count, length in runs:
        texts = states[start : start + count * length].view(count, length, -1)
        parts.append(texts[:, 0].float() if pooling == "cls" else texts.float().mean(1))
    return torch.cat(parts)


class Dense(nn.Module):
    """A linear layer and an activation on pooled vectors `[texts, in]` → `[texts, out]` (LaBSE: 768 → 768, tanh)."""

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool = True, activation: str | None = None
    ) -> None:
        super().__init__()
        self.activation_name = activation or "torch.nn.modules.linear.Identity"
        if self.activation_name not in ACTIVATIONS:
            raise InterlinguaError(f"Dense: activation {activation!r} is not one of the known ones: "
                                   f"{', '.join(ACTIVATIONS)}.")
        self.linear = nn.Linear(in_features, out_features, bias=bias)
        self.activation = ACTIVATIONS[self.activation_name]()

    def forward(self, vectors: Tensor) -> Tensor:
        result: Tensor = self.activation(self.linear(vectors))
        return result


class Normalize(nn.Module):
    """Vectors `[texts, dim]` to unit length. Only where layers follow: the last one is `Parts.normalize`."""

    def forward(self, vectors: Tensor) -> Tensor:
        return unit_length(vectors, dim=-1)
