"""Where the vectors of a language lie: their mean and standard deviation, and the map that takes these away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from interlingua.alignment.csls import Floats
from interlingua.errors import InterlinguaError
from interlingua.models.language_maps import LanguageMap

EPSILON = 1e-6  # added to what is divided by


@dataclass(frozen=True, eq=False)
class Spread:
    """Of `texts` vectors, in each dimension the `mean` and the standard deviation `std` (by n): float64 [dim]."""

    texts: int
    mean: NDArray[np.float64]
    std: NDArray[np.float64]

    @classmethod
    def of(cls, vectors: Floats) -> Spread:
        """Of `vectors` [texts, dim]."""
        return cls(len(vectors), vectors.mean(axis=0, dtype=np.float64), vectors.std(axis=0, dtype=np.float64))

    @classmethod
    def pooled(cls, spreads: Iterable[Spread]) -> Spread:
        """Of all these vectors together if every language had as many texts."""
        known = list(spreads)
        mean = np.mean([one.mean for one in known], axis=0)
        square = np.mean([one.std**2 + one.mean**2 for one in known], axis=0)
        return cls(sum(one.texts for one in known), mean, np.sqrt(np.maximum(0, square - mean**2)))

    def map(self, shift: bool, scale: str) -> LanguageMap:
        """x → (x − mean) / scale, where `scale` is "std", "variance" (as Wu et al. 2022 write, which leaves a
        variance of 1/variance) or "none"; without `shift` the mean stays."""
        divisor = {"std": self.std + EPSILON, "variance": self.std**2 + EPSILON, "none": np.ones_like(self.std)}[scale]
        moved = self.mean if shift else np.zeros_like(self.mean)
        return LanguageMap(torch.from_numpy(moved).float(), torch.from_numpy(divisor).float())


def checked(vectors: Any, what: str) -> Floats:
    """`vectors` (an array or tensor of any floating type) as float32 [texts, dim].

    Raises InterlinguaError naming `what` and the first row that holds NaN or infinity, or is zero.
    """
    if isinstance(vectors, Tensor):
        vectors = vectors.detach().float().cpu().numpy()
    array: Floats = np.asarray(vectors, dtype=np.float32)
    if array.ndim != 2 or 0 in array.shape:
        raise InterlinguaError(f"{what}: vectors of shape {array.shape}; [texts, dim] is needed, with a text.")
    for bad, why in ((~np.isfinite(array).all(axis=1), "holds NaN or infinity. Encode in float32"),
                     (~array.any(axis=1), "is zero. Is its text empty? Leave it out")):
        if bad.any():
            raise InterlinguaError(f"{what}, row {int(bad.argmax())} (the first is 0; {int(bad.sum())} of {len(array)} "
                                   f"are like it): its vector {why}.")
    return array
