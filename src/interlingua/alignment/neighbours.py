"""The nearest of many vectors: candidates from products of blocks, and neighbours by cosine in both directions.

Products round in ways that depend on the processor, the number format and the shape of the block. So for neighbours by
cosine they only choose candidates, with room for their error; the cosines that rank the candidates are computed one by
one. Dense search (`interlingua.retrieval.dense`, a floor above) ranks by the products themselves: its candidates have
no error, and tie as trec_eval says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from interlingua.errors import BadInput
from interlingua.models.encode import default_device, full_float32
from interlingua.models.inference.machine import cpu_has_bfloat16
from interlingua.progress import track

CHECKED = 1 << 14  # vectors looked at together when they are checked
TINY = 1e-37  # a length that float32 cannot divide by


class UnitVectors:
    """Vectors [vectors, dim], an array, memory map or tensor of any floating type; `name` is what errors call them.

    Raises BadInput naming the first row that holds NaN or infinity, or is zero.
    """

    def __init__(self, vectors: Any, name: str) -> None:
        if isinstance(vectors, Tensor):
            vectors = vectors.detach().cpu()
            vectors = (vectors.float() if vectors.dtype == torch.bfloat16 else vectors).numpy()
        self.vectors: NDArray[Any] = np.asanyarray(vectors)
        if self.vectors.ndim != 2:
            raise BadInput(f"{name}: an array of shape {self.vectors.shape}; [vectors, dim] is needed.")
        self.inverse = np.empty(len(self.vectors), dtype=np.float32)  # one over each length
        for start in range(0, len(self.vectors), CHECKED):
            block = self.vectors[start : start + CHECKED].astype(np.float32)
            # in float64, since the square of a component under 1e-23 is zero in float32
            lengths = np.sqrt(np.einsum("nd,nd->n", block, block, dtype=np.float64))
            for bad, problem in ((~np.isfinite(lengths), "holds NaN or infinity"), (lengths < TINY, "is zero")):
                if bad.any():
                    raise BadInput(
                        f"{name}, row {start + int(bad.argmax())} (counted from 0): its vector {problem}, so its "
                        "cosine is undefined. Leave the row out, or check the text that was encoded."
                    )
            self.inverse[start : start + CHECKED] = 1 / lengths

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        return int(self.vectors.shape[1])

    def unit(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        """[rows, dim] vectors of unit length, float32, a copy."""
        unit: NDArray[np.float32] = self.vectors[rows].astype(np.float32, copy=isinstance(rows, slice))
        unit *= self.inverse[rows, None]
        return unit

    def rounding(self, dtype: torch.dtype) -> float:
        """The largest distance between a unit vector and itself in `dtype`."""
        if dtype == torch.float32:
            return 0.0
        parts = (torch.from_numpy(self.unit(slice(i, i + CHECKED))) for i in range(0, len(self), CHECKED))
        return max((float((part - part.to(dtype).float()).norm(dim=1).max()) for part in parts), default=0.0)


def check_pair(x: UnitVectors, y: UnitVectors, k: int) -> None:
    """Raise BadInput unless `x` and `y` can be compared, and `k` nearest be asked for."""
    if x.dim != y.dim:
        raise BadInput(f"x has vectors of {x.dim} dimensions, y of {y.dim}: both must come from one encoder.")
    if k < 1:
        raise BadInput(f"k={k}: must be at least 1.")


Indices = NDArray[np.int64]
Cosines = NDArray[np.float32]
STALE = 2  # new candidates a row, on average, after which they are thinned; half of k where that is more
CROWDED = 12  # candidates a row, beyond 4k, that are too many


class Crowded(Exception):
    """The products are too coarse for these vectors: very many scores differ by less than the error."""


class Candidates:
    """The candidates of `rows` vectors, for the `k` with the highest score of each.

    `error` bounds how far a score that is shown lies from the exact one; `exact(rows, others)` gives exact ones, None
    where those that are shown are exact. Equal scores are in order of `ties` [others], by default of index. `least`
    [rows] is what a score must reach to matter; `full` says that every row has seen k. Where candidates stay too many
    the best are taken early, which bounds memory; if `coarse`, Crowded is raised instead.
    """

    def __init__(
        self,
        rows: int,
        k: int,
        device: torch.device,
        *,
        error: float = 0.0,
        exact: Callable[[Indices, Indices], Cosines] | None = None,
        ties: Tensor | None = None,
        coarse: bool = False,
    ) -> None:
        self.rows, self.k, self.error, self.exact, self.ties, self.coarse = rows, k, error, exact, ties, coarse
        self.least = torch.full((rows,), -torch.inf, device=device)
        self.full = False
        empty = torch.empty(0, dtype=torch.int64, device=device)
        self.parts = [(empty, empty, torch.empty(0, device=device))]
        self.fresh = 0

    def add(self, row: Tensor, other: Tensor, score: Tensor) -> None:
        """Take pairs in: their rows, their indices on the other side, their scores as far as they are known."""
        if len(row):
            self.parts.append((row, other, score.float()))
            self.fresh += len(row)

    def thin(self) -> None:
        """Raise `least` where much is new, and drop what does not reach it. To be called before `least` is used."""
        if self.fresh > max(STALE, self.k // 2) * self.rows:
            self._drop()

    def nearest(self) -> tuple[Indices, Cosines]:
        """[rows, k] indices on the other side and exact scores, best first. Every row must have seen k."""
        if self.exact is not None:
            self._drop()  # fewer to score
        self.parts = [self._all()]
        _, other, score = (column.cpu().numpy() for column in self._best())
        return other.reshape(self.rows, self.k), score.reshape(self.rows, self.k)

    def _all(self) -> tuple[Tensor, Tensor, Tensor]:
        row, other, score = (torch.cat(columns) for columns in zip(*self.parts, strict=True))
        return row, other, score

    def _drop(self) -> None:
        """Keep what lies within twice the error of the k-th best: the k-th may be worse than it looks by the error,
        and what is kept better. Where that is too much, the k best."""
        row, other, score = self._all()
        order = _by_row_and_score(row, score)
        row, other, score = row[order], other[order], score[order]
        counts = row.bincount(minlength=self.rows)
        full = counts >= self.k
        self.full = bool(full.all())
        self.least[full] = score[(counts.cumsum(0) - counts)[full] + self.k - 1] - 2 * self.error
        keep = score >= self.least[row]
        self.parts, self.fresh = [(row[keep], other[keep], score[keep])], 0
        if len(self.parts[0][0]) > (4 * self.k + CROWDED) * self.rows:
            if self.coarse:
                raise Crowded
            self.parts = [self._best()]

    def _best(self) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, others and exact scores of the k best of each row, in order."""
        row, other, score = self.parts[0]
        if self.exact is not None:
            score = torch.from_numpy(self.exact(row.cpu().numpy(), other.cpu().numpy())).to(self.least.device)
        order = (other if self.ties is None else self.ties[other]).argsort()
        order = order[_by_row_and_score(row[order], score[order])]
        row, other, score = row[order], other[order], score[order]
        counts = row.bincount(minlength=self.rows)
        keep = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row] < self.k
        return row[keep], other[keep], score[keep]


def _by_row_and_score(row: Tensor, score: Tensor) -> Tensor:
    """The order of pairs by row, then by score (float32), the highest first; of equal ones the first stays first."""
    bits = (score + 0.0).view(torch.int32)  # the sum has no negative zero
    ascending = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the numbers
    return ((row << 32) - ascending).argsort(stable=True)


TILE = 64  # products ruled out together, at the most
UNRULED = 0.25  # share of tiles not ruled out above which a block finds its own k-th score


def reaching_rows(products: Tensor, candidates: Candidates) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, columns and values of the products [rows or more, columns] that may matter to the candidates of the rows. A
    tile is every so many columns, not neighbouring ones: maxima of such tiles are maxima of whole vector registers."""
    tiles = products.view(len(products), _width(products.shape[1], candidates.k), -1)[: candidates.rows]
    row, place, tile, score = _reaching(tiles, candidates, 1)
    return row, place * tiles.shape[2] + tile, score


def reaching_columns(products: Tensor, candidates: Candidates) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, columns and values of the products [rows, columns or more] that may matter to the candidates of the
    columns."""
    tiles = products.view(-1, _width(len(products), candidates.k), products.shape[1])[:, :, : candidates.rows]
    tile, place, column, score = _reaching(tiles, candidates, 0)
    return tile * tiles.shape[1] + place, column, score


def _width(length: int, k: int) -> int:
    """The products in a tile, a power of two: fewer where k tiles would else be a large part of those in `length`."""
    return max(1, min(TILE, 1 << (length // (4 * k)).bit_length() >> 1))


def _reaching(tiles: Tensor, candidates: Candidates, dim: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Find the products in `tiles` [a, width, b] that may enter `candidates`: their places, and the products. Along
    `dim` (0 or 2, taken without the width: 0 or 1) are the tiles, along the other dimension the candidates' rows."""
    candidates.thin()
    peaks = tiles.amax(dim=1)
    if peaks.isnan().any():
        raise BadInput("a score is NaN: some query or passage vector holds NaN or infinity.")
    threshold = candidates.least.unsqueeze(dim)
    reach = peaks >= threshold
    # where the best so far rules little out, this block does: its k largest maxima are k scores to be had
    if peaks.shape[dim] >= candidates.k and (not candidates.full or reach.sum() > UNRULED * reach.numel()):
        kth = peaks.topk(candidates.k, dim=dim).values.narrow(dim, candidates.k - 1, 1)
        threshold = torch.maximum(threshold, kth.float() - 2 * candidates.error)
        reach = peaks >= threshold
    first, last = reach.nonzero(as_tuple=True)
    inside = tiles[first, :, last]
    tile, place = (inside >= threshold.expand(peaks.shape)[first, last, None]).nonzero(as_tuple=True)
    return first[tile], place, last[tile], inside[tile, place]


ROWS, COLUMNS = 1024, 4096  # vectors of x and of y in one block of products, which stays in the processor's cache
SLAB = 16  # blocks that share one reading of y
SCORED = 256  # pairs scored exactly at a time


@dataclass(frozen=True, eq=False)
class Neighbours:
    """`indices` [vectors, k] int64 on the other side, `cosines` [vectors, k] float32; best first."""

    indices: Indices
    cosines: Cosines

    @classmethod
    def empty(cls, vectors: int, k: int) -> Neighbours:
        """An empty result, which `fill` completes."""
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
    candidates a vector, and a slab of blocks. Raises BadInput for shapes that do not fit, and naming side and
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


def _scan(
    x: UnitVectors, y: UnitVectors, k: int, place: torch.device, both: bool, dtype: torch.dtype
) -> tuple[Neighbours, Neighbours]:
    """Go through all products, a block at a time, and show each block to the candidates of its rows and columns."""
    error = product_error(x, y, dtype)
    forward, backward = (Neighbours.empty(len(side), min(k, len(other))) for side, other in ((x, y), (y, x)))

    def candidates(side: UnitVectors, start: int, limit: int, other: UnitVectors) -> Candidates:
        return Candidates(
            min(limit, len(side) - start),
            min(k, len(other)),
            place,
            error=error,
            exact=_scorer(side, start, other),
            coarse=dtype != torch.float32,
        )

    def block(side: UnitVectors, start: int, limit: int) -> Tensor:
        unit = torch.from_numpy(side.unit(slice(start, start + limit))).to(place, dtype)
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
                    row, column, cosine = reaching_rows(products, of_x)
                    of_x.add(row, left + column, cosine)
                    if both:
                        row, column, cosine = reaching_columns(products, of_y[number])
                        of_y[number].add(column, top + row, cosine)
            for top, _, of_x in slabs:
                forward.fill(top, of_x)
        for left, columns in zip(lefts, of_y, strict=False):
            backward.fill(left, columns)
    return forward, backward


def product_error(x: UnitVectors, y: UnitVectors, dtype: torch.dtype) -> float:
    """The largest error of a product against the cosine: each side's own rounding (by Cauchy and Schwarz), that of
    the result, and twice the bound for a sum in float32 (Higham 2002, section 3.1)."""
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
