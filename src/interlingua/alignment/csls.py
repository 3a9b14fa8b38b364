"""CSLS, a cosine that is fair to vectors with few neighbours and to hubs with many (Conneau et al. 2018, MUSE).

CSLS(x, y) = 2·cos(x, y) − r(x) − r(y), where r of a vector is its mean cosine with its 10 nearest on the other side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.alignment.neighbours import Neighbours, nearest, nearest_both

NEIGHBOURS = 10
Floats = NDArray[np.float32]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Matches:
    """`forward` [n]: the vector of y with the largest CSLS for each of x; `backward` [m]: of x for each of y. `cosines`
    and `csls` [n]: those of the forward matches, float32."""

    forward: Indices
    backward: Indices
    cosines: Floats
    csls: Floats

    def mutual(self) -> Indices:
        """Rows of x whose match has them for its own."""
        rows: Indices = np.flatnonzero(self.backward[self.forward] == np.arange(len(self.forward)))
        return rows


def csls_matches(x: Any, y: Any, k: int = NEIGHBOURS) -> Matches:
    """The matches between `x` [n, dim] and `y` [m, dim], of any length but zero; r is taken over `k` neighbours.

    Memory is that of `neighbours.nearest`: no matrix of n × m. Raises InterlinguaError for NaN and zero vectors.
    """
    x, y = _unit(x), _unit(y)
    of_x, of_y = (_mean(found) for found in nearest_both(x, y, k))
    forward = nearest(_asking(x), _answering(y, of_y), 1).indices[:, 0]
    backward = nearest(_asking(y), _answering(x, of_x), 1).indices[:, 0]
    cosines = np.einsum("nd,nd->n", x, y[forward])
    return Matches(forward, backward, cosines, 2 * cosines - of_x - of_y[forward])


def _unit(vectors: Any) -> Floats:
    array = np.asarray(vectors, dtype=np.float32)
    # a zero vector stays zero, for the search to name it
    lengths = np.sqrt(np.einsum("nd,nd->n", array, array, dtype=np.float64))
    unit: Floats = array / np.where(lengths == 0, 1, lengths).astype(np.float32)[:, None]
    return unit


def _mean(found: Neighbours) -> Floats:
    mean: Floats = found.cosines.mean(axis=1)
    return mean


# Two more dimensions turn the order by CSLS into an order by cosine: for [x, −1, 0] and [y, r/2, √(1 − r²)/2] the dot
# product is cos(x, y) − r/2, and every vector on the same side has the same length.


def _asking(x: Floats) -> Floats:
    return np.column_stack([x, np.full(len(x), -1, np.float32), np.zeros(len(x), np.float32)])


def _answering(y: Floats, r: Floats) -> Floats:
    return np.column_stack([y, r / 2, np.sqrt(np.maximum(0, 1 - r**2)) / 2]).astype(np.float32)
