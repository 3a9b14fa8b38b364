"""A set of vectors as cosines need it: checked, read by the block, of unit length. It may be far larger than memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from interlingua.errors import InterlinguaError

CHECKED = 1 << 14  # vectors looked at together when they are checked
TINY = 1e-37  # a length that float32 cannot divide by


class UnitVectors:
    """Vectors [vectors, dim], an array, memory map or tensor of any floating type; `name` is what errors call them.

    Raises InterlinguaError naming the first row that holds NaN or infinity, or is zero.
    """

    def __init__(self, vectors: Any, name: str) -> None:
        if isinstance(vectors, Tensor):
            vectors = vectors.detach().cpu()
            vectors = (vectors.float() if vectors.dtype == torch.bfloat16 else vectors).numpy()
        self.vectors: NDArray[Any] = np.asanyarray(vectors)
        if self.vectors.ndim != 2:
            raise InterlinguaError(f"{name}: an array of shape {self.vectors.shape}; [vectors, dim] is needed.")
        self.inverse = np.empty(len(self.vectors), dtype=np.float32)  # one over each length
        for start in range(0, len(self.vectors), CHECKED):
            block = self.vectors[start : start + CHECKED].astype(np.float32)
            # in float64, since the square of a component under 1e-23 is zero in float32
            lengths = np.sqrt(np.einsum("nd,nd->n", block, block, dtype=np.float64))
            for bad, what in ((~np.isfinite(lengths), "holds NaN or infinity"), (lengths < TINY, "is zero")):
                if bad.any():
                    raise InterlinguaError(
                        f"{name}, row {start + int(bad.argmax())} (counted from 0): its vector {what}, so it has no "
                        "cosine. Leave the row out, or look at what the encoder read.")
            self.inverse[start : start + CHECKED] = 1 / lengths

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    def unit(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        """[rows, dim] vectors of unit length, float32, a copy."""
        found: NDArray[np.float32] = self.vectors[rows].astype(np.float32, copy=isinstance(rows, slice))
        found *= self.inverse[rows, None]
        return found

    def rounding(self, dtype: torch.dtype) -> float:
        """The largest distance between a unit vector and itself in `dtype`."""
        if dtype == torch.float32:
            return 0.0
        parts = (torch.from_numpy(self.unit(slice(i, i + CHECKED))) for i in range(0, len(self), CHECKED))
        return max((float((part - part.to(dtype).float()).norm(dim=1).max()) for part in parts), default=0.0)


def check_pair(x: UnitVectors, y: UnitVectors, k: int) -> None:
    """Raise InterlinguaError unless `x` and `y` can be compared, and `k` nearest be asked for."""
    if x.dim != y.dim:
        raise InterlinguaError(f"x has vectors of {x.dim} dimensions, y of {y.dim}: both must come from one encoder.")
    if k < 1:
        raise InterlinguaError(f"k={k}: must be at least 1.")
