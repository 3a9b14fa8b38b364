"""Cosine and dot product between two sets of vectors, in float32 whatever comes in."""

from __future__ import annotations

from typing import get_args

from torch import Tensor
from torch.nn import functional as F

from interlingua.errors import InterlinguaError, suggestion
from interlingua.models.settings import Similarity as Similarity


def similarities(a: Tensor, b: Tensor, kind: Similarity = "cosine") -> Tensor:
    """`[rows of a, rows of b]` similarities, float32. A zero vector has cosine 0 with everything.

    Raises InterlinguaError for an unknown `kind` or vectors of different length.
    """
    if kind not in get_args(Similarity):
        raise InterlinguaError(f"similarity '{kind}' is not known.{suggestion(kind, get_args(Similarity))}")
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise InterlinguaError(f"vectors must be [rows, dim] with one dim; got {list(a.shape)} and {list(b.shape)}.")
    a, b = a.float(), b.float()
    if kind == "cosine":
        a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    return a @ b.T


def check_temperature(temperature: float | Tensor) -> None:
    """Raise InterlinguaError unless the temperature is positive."""
    value = float(temperature.detach() if isinstance(temperature, Tensor) else temperature)
    if not value > 0:
        raise InterlinguaError(f"temperature must be positive, got {value}.")


def check_paired(source: Tensor, target: Tensor, what: str) -> None:
    """Raise InterlinguaError unless both are `[pairs, dim]` of one shape."""
    if source.ndim != 2 or source.shape != target.shape:
        raise InterlinguaError(f"{what}: source and target must both be [pairs, dim]; "
                               f"got {list(source.shape)} and {list(target.shape)}.")
