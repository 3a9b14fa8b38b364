"""Who may be among the k nearest: pairs with approximate cosines, thinned as better ones come, scored exactly at last.

Products round in ways that depend on the processor, the number format and the shape of the block. So they only choose
candidates, with room for their error; the cosines that rank the candidates are computed one by one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Indices = NDArray[np.int64]
Cosines = NDArray[np.float32]
STALE = 2  # new candidates a row, on average, after which they are thinned
CROWDED = 12  # candidates a row, beyond 4k, that are too many


class Crowded(Exception):
    """The products are too coarse for these vectors: very many cosines differ by less than the error."""


class Candidates:
    """The candidates of `rows` vectors, for the `k` nearest of each.

    `error` bounds how far an approximate cosine lies from the exact one; `exact(rows, others)` gives exact ones.
    `least` [rows] is what an approximate cosine must reach to matter; `full` says that every row has seen k.
    Where candidates stay too many they are scored early, which bounds memory; if `coarse`, Crowded is raised instead.
    """

    def __init__(self, rows: int, k: int, error: float, exact: Callable[[Indices, Indices], Cosines], *,
                 coarse: bool, device: torch.device) -> None:
        self.rows, self.k, self.error, self.exact, self.coarse = rows, k, error, exact, coarse
        self.least = torch.full((rows,), -2.0, device=device)  # below every cosine
        self.full = False
        none = torch.empty(0, dtype=torch.int64, device=device)
        self.parts = [(none, none, torch.empty(0, device=device))]
        self.fresh = 0

    def add(self, row: Tensor, other: Tensor, cosine: Tensor) -> None:
        """Take pairs in: their rows, their indices on the other side, their approximate cosines."""
        if len(row):
            self.parts.append((row, other, cosine.float()))
            self.fresh += len(row)
        if self.fresh > STALE * self.rows:
            self._thin()
            if len(self.parts[0][0]) > (4 * self.k + CROWDED) * self.rows:
                if self.coarse:
                    raise Crowded
                row, other, cosine = (torch.from_numpy(column).to(self.least.device) for column in self._best())
                self.parts = [(row, other, cosine)]

    def nearest(self) -> tuple[Indices, Cosines]:
        """[rows, k] indices on the other side and exact cosines, best first. Every row must have seen k."""
        self._thin()
        _, other, cosine = self._best()
        return other.reshape(self.rows, self.k), cosine.reshape(self.rows, self.k)

    def _thin(self) -> None:
        """Keep what lies within twice the error of the k-th best: the k-th may be worse than it looks by the error,
        and what is kept better."""
        row, other, cosine = (torch.cat(columns) for columns in zip(*self.parts, strict=True))
        order = (4 * row.double() - cosine).argsort()  # by row, then best first: cosines are within ±2
        row, other, cosine = row[order], other[order], cosine[order]
        counts = row.bincount(minlength=self.rows)
        full = counts >= self.k
        self.full = bool(full.all())
        self.least[full] = cosine[(counts.cumsum(0) - counts)[full] + self.k - 1] - 2 * self.error
        keep = cosine >= self.least[row]
        self.parts, self.fresh = [(row[keep], other[keep], cosine[keep])], 0

    def _best(self) -> tuple[Indices, Indices, Cosines]:
        """Rows, others and exact cosines of the k best of each row, in order; of equal ones the lowest index first."""
        row, other = (column.cpu().numpy() for column in self.parts[0][:2])
        cosine = self.exact(row, other)
        order = np.lexsort((other, -cosine, row))
        row, other, cosine = row[order], other[order], cosine[order]
        keep = np.arange(len(row)) - np.searchsorted(row, row) < self.k
        return row[keep], other[keep], cosine[keep]
