"""Float vectors as whole numbers, with bounds of what the rounding lost, laid out as int8 search multiplies them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import InterlinguaError
from interlingua.progress import track

if TYPE_CHECKING:  # it imports torch, which takes seconds
    from interlingua.retrieval.dense import Matrix

ROWS = 16  # rows laid out together: the lanes of a vector of sums
QUERIES = 4  # queries that share one reading of these rows
BLOCK = 4096  # rows rounded at a time, a multiple of ROWS
SAMPLE = 16_384  # rows, at least, whose mean is the centre
UP = 1 + 1e-6  # makes up for rounding a bound to float32

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


def centre_of(vectors: Matrix) -> Floats:
    """[dim]: the mean of every so many rows. Any centre is right; one in the middle makes the bounds narrow."""
    some = as_float32(vectors[:: max(1, vectors.shape[0] // SAMPLE)]).astype(np.float64)
    some = some[np.isfinite(some).all(axis=1)]
    return (some.mean(axis=0) if len(some) else np.zeros(vectors.shape[1])).astype(np.float32)


def direction_of(centre: Floats) -> tuple[Doubles, float]:
    """The centre at unit length (zeros if it is zero), and its length."""
    length = float(np.linalg.norm(centre.astype(np.float64)))
    return centre.astype(np.float64) / (length or 1.0), length


def rounded_rows(vectors: Matrix, centre: Floats, bounds: Floats) -> Iterator[NDArray[np.int8]]:
    """`vectors` [rows, dim] around `centre` as int8, in blocks laid out by `laid_out`, some at a time.

    Fills in `bounds` [4, rows of whole blocks]: scale, product with the centre's direction, norm of the error of
    rounding (−inf for the rows that fill the last block) and norm of the row, both around the centre. Raises
    InterlinguaError naming the first row with NaN or infinity.
    """
    direction, _ = direction_of(centre)
    for start in track(range(0, vectors.shape[0], BLOCK), f"int8 ({BLOCK:,} vectors at a time)"):
        given = as_float32(vectors[start : start + BLOCK]).astype(np.float64)
        finite = np.isfinite(given).all(axis=1)
        if not finite.all():
            raise InterlinguaError(f"vector {start + int(finite.argmin())} holds NaN or infinity. The model or its "
                                   "number format is at fault: try float32.")
        given -= centre
        whole, scales = whole_numbers(given, 127)
        error = np.linalg.norm(given - whole * scales[:, None].astype(np.float64), axis=1)
        part = bounds[:, start : start + BLOCK]
        part[:] = np.array([0, 0, -np.inf, 0])[:, None]
        with np.errstate(over="ignore"):
            part[:, : len(given)] = scales, given @ direction, UP * error, UP * np.linalg.norm(given, axis=1)
        yield laid_out(whole.astype(np.int8), ROWS)


def whole_numbers(exact: Doubles, most: int) -> tuple[Doubles, Floats]:
    """Whole numbers up to `most` and a scale for each row: their product is about `exact` [rows, dim]."""
    with np.errstate(over="ignore"):
        scales = (np.abs(exact).max(axis=1) / most).astype(np.float32)
    scales[(scales == 0) | ~np.isfinite(scales)] = 1
    return np.rint(exact / scales[:, None].astype(np.float64)).clip(-most, most), scales


def laid_out(whole: NDArray[Any], together: int) -> NDArray[Any]:
    """[rows, dim] as [blocks, dim / 2, 2 · together]: a block of rows, two components of each row side by side.
    Filled up with zeros."""
    rows, dim = whole.shape
    filled = np.pad(whole, ((0, -rows % together), (0, dim % 2)))
    blocks = filled.reshape(-1, together, (dim + 1) // 2, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(blocks).reshape(-1, (dim + 1) // 2, 2 * together)


def as_float32(matrix: Matrix) -> Floats:
    """`matrix` as an array of float32; what is too large becomes infinity."""
    if not isinstance(matrix, np.ndarray):
        matrix = matrix.detach().float().cpu().numpy()
    with np.errstate(over="ignore"):
        return np.asarray(matrix, dtype=np.float32)
