"""Nearest neighbours by cosine between two sets of vectors of any size, in both directions from one set of products."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from interlingua.alignment.candidates import Candidates, Cosines, Crowded, Indices
from interlingua.alignment.unit_vectors import UnitVectors, check_pair
from interlingua.models.devices import cpu_has_bfloat16, default_device, full_float32
from interlingua.progress import track

ROWS, COLUMNS = 1024, 4096  # vectors of x and of y in one block of products, which stays in the processor's cache
SLAB = 16  # blocks that share one reading of y
TILE = 64  # products ruled out together
SCORED = 256  # pairs scored exactly at a time


@dataclass(frozen=True, eq=False)
class Neighbours:
    """`indices` [vectors, k] int64 on the other side, `cosines` [vectors, k] float32; best first."""

    indices: Indices
    cosines: Cosines

    @classmethod
    def empty(cls, vectors: int, k: int) -> Neighbours:
        """To be filled in."""
        return cls(np.empty((vectors, k), dtype=np.int64), np.empty((vectors, k), dtype=np.float32))

    def fill(self, start: int, candidates: Candidates) -> None:
        """Write the result of `candidates`, the first of which is the vector `start`."""
        part = slice(start, start + candidates.rows)
        self.indices[part], self.cosines[part] = candidates.nearest()


def nearest(x: Any, y: Any, k: int, *, device: str | torch.device | None = None) -> Neighbours:
    """The `k` vectors of `y` [m, dim] with the largest cosine, for each vector of `x` [n, dim].

    Arrays, memory maps or tensors of any floating type and any length. Exact: a cosine is the dot product of the two
    vectors brought to unit length in float32, summed in float64, rounded to float32, whatever the device and the size
    of the blocks; equal ones are in order of index. Gives min(k, m) columns. Memory: the result, some ten
    candidates a vector, and a slab of blocks. Raises InterlinguaError for shapes that do not fit, and naming side and
    row for NaN, infinity and zero vectors.
    """
    return _search(x, y, k, device, both=False)[0]


def nearest_both(x: Any, y: Any, k: int, *, device: str | torch.device | None = None) -> tuple[Neighbours, Neighbours]:
    """`nearest` of `x` among `y`, and of `y` among `x`. Each product is computed once and serves its row and its
    column; two searches compute it twice."""
    return _search(x, y, k, device, both=True)


def _search(x: Any, y: Any, k: int, device: str | torch.device | None, both: bool) -> tuple[Neighbours, Neighbours]:
    sides, place = (UnitVectors(x, "x"), UnitVectors(y, "y")), default_device(device)
    check_pair(*sides, k)
    # half the bits give twice the products a second, where the processor has them
    if place.type == "cpu" and cpu_has_bfloat16():
        try:
            return _scan(*sides, k, place, both, torch.bfloat16)
        except Crowded:
            pass
    return _scan(*sides, k, place, both, torch.float32)


def _scan(x: UnitVectors, y: UnitVectors, k: int, place: torch.device, both: bool, dtype: torch.dtype
          ) -> tuple[Neighbours, Neighbours]:
    """Go through all products, a block at a time, and show each block to the candidates of its rows and columns."""
    error = _error(x, y, dtype)
    forward, backward = (Neighbours.empty(len(one), min(k, len(other))) for one, other in ((x, y), (y, x)))

    def candidates(one: UnitVectors, start: int, most: int, other: UnitVectors) -> Candidates:
        return Candidates(min(most, len(one) - start), min(k, len(other)), error, _scorer(one, start, other),
                          coarse=dtype != torch.float32, device=place)

    def block(one: UnitVectors, start: int, most: int) -> Tensor:
        unit = torch.from_numpy(one.unit(slice(start, start + most))).to(place, dtype)
        return pad(unit, (0, 0, 0, -len(unit) % TILE))

    lefts = range(0, len(y), COLUMNS)
    of_y = [candidates(y, left, COLUMNS, x) for left in lefts] if both and len(x) else []
    memory = torch.empty(ROWS * COLUMNS, dtype=dtype, device=place)
    with torch.inference_mode(), full_float32():
        for slab in track(range(0, len(x) if len(y) else 0, SLAB * ROWS), f"neighbours ({SLAB * ROWS:,} at a time)"):
            tops = range(slab, min(slab + SLAB * ROWS, len(x)), ROWS)
            slabs = [(top, block(x, top, ROWS), candidates(x, top, ROWS, y)) for top in tops]
            for number, left in enumerate(lefts):
                others = block(y, left, COLUMNS)
                for top, vectors, of_x in slabs:
                    products = memory[: len(vectors) * len(others)].view(len(vectors), len(others))
                    torch.mm(vectors, others.T, out=products)
                    products[of_x.rows :] = products[:, len(y) - left :] = -torch.inf  # the padding
                    _show_rows(products, of_x, left)
                    if both:
                        _show_columns(products, of_y[number], top)
            for top, _, of_x in slabs:
                forward.fill(top, of_x)
        for left, columns in zip(lefts, of_y, strict=False):
            backward.fill(left, columns)
    return forward, backward


def _error(x: UnitVectors, y: UnitVectors, dtype: torch.dtype) -> float:
    """How far a product can lie from the cosine: each side's own rounding (by Cauchy and Schwarz), that of the
    result, and twice the bound for a sum in float32 (Higham 2002, section 3.1)."""
    result = 0.0 if dtype == torch.float32 else torch.finfo(dtype).eps / 2
    return x.rounding(dtype) + 1.01 * y.rounding(dtype) + result + (x.dim + 8) * torch.finfo(torch.float32).eps


def _scorer(mine: UnitVectors, start: int, theirs: UnitVectors) -> Callable[[Indices, Indices], Cosines]:
    """Exact cosines of pairs: rows of `mine` counted from `start`, rows of `theirs`."""
    def exact(rows: Indices, others: Indices) -> Cosines:
        cosines = np.empty(len(rows), dtype=np.float32)
        for i in range(0, len(rows), SCORED):
            part = slice(i, i + SCORED)
            cosines[part] = (mine.unit(start + rows[part]).astype(np.float64) * theirs.unit(others[part])).sum(axis=1)
        return cosines

    return exact


def _show_rows(products: Tensor, rows: Candidates, left: int) -> None:
    """Show a block, whose first column is the vector `left`, to the candidates of its rows. A tile is every so many
    columns, not neighbouring ones: maxima of such tiles are maxima of whole vector registers."""
    tiles = products.view(len(products), _width(rows.k), -1)[: rows.rows]
    row, place, tile, cosine = _reaching(tiles, rows, 1)
    rows.add(row, left + place * tiles.shape[2] + tile, cosine)


def _show_columns(products: Tensor, columns: Candidates, top: int) -> None:
    """Show a block, whose first row is the vector `top`, to the candidates of its columns."""
    tiles = products.view(-1, _width(columns.k), products.shape[1])[:, :, : columns.rows]
    tile, place, column, cosine = _reaching(tiles, columns, 0)
    columns.add(column, top + tile * tiles.shape[1] + place, cosine)


def _width(k: int) -> int:
    """The products in a tile: fewer where k tiles would else be a large part of a block's."""
    return max(1, min(TILE, 1 << (ROWS // (4 * k)).bit_length() >> 1))


def _reaching(tiles: Tensor, candidates: Candidates, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Where in `tiles` [a, width, b] the products are that may matter to `candidates`, and the products. Along `dim`
    (0 or 2, taken without the width: 0 or 1) are the tiles, along the other dimension the candidates' rows."""
    peaks = tiles.amax(dim=1)
    least = candidates.least.unsqueeze(dim)
    if not candidates.full and peaks.shape[dim] >= candidates.k:  # the k largest maxima are k cosines to be had
        kth = peaks.topk(candidates.k, dim=dim).values.narrow(dim, candidates.k - 1, 1)
        least = torch.maximum(least, kth.float() - 2 * candidates.error)
    first, last = (peaks >= least).nonzero(as_tuple=True)
    inside = tiles[first, :, last]
    found, place = (inside >= least.expand(peaks.shape)[first, last, None]).nonzero(as_tuple=True)
    return first[found], place, last[found], inside[found, place]
