"""Rotating one language's vectors onto another's, with pairs or without (Procrustes; MUSE's refinement)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.alignment.csls import Floats, Indices, Matches, csls_matches
from interlingua.errors import InterlinguaError

ROUNDS = 5
Matrix = NDArray[np.float64]
_TINY = 1e-9


def procrustes(source: NDArray[Any], target: NDArray[Any], start: Matrix | None = None) -> Matrix:
    """The orthogonal W [dim, dim] float64 with the least Σ|W·source − target|² over pairs: rows of `source` and
    `target` [pairs, dim]. W = U·Vᵀ where U·S·Vᵀ = targetᵀ·source (Schönemann 1966).

    Where the pairs leave W open, as fewer pairs than dimensions do, it is the nearest to `start` (the identity).
    Raises InterlinguaError for shapes that differ and for NaN.
    """
    if source.ndim != 2 or source.shape != target.shape:
        raise InterlinguaError(f"pairs of shapes {source.shape} and {target.shape}: both must be the same "
                               "[pairs, dim].")
    product: Matrix = target.astype(np.float64).T @ source.astype(np.float64)
    if not np.isfinite(product).all():
        raise InterlinguaError("the vectors of some pair hold NaN or infinity. Encode them in float32.")
    product += _TINY * np.linalg.norm(product, 2) * (np.eye(len(product)) if start is None else start)
    left, _, right = np.linalg.svd(product)
    rotation: Matrix = left @ right
    return rotation


@dataclass(frozen=True, eq=False)
class Refinement:
    """`rotation` [dim, dim], the best one; the `matches` under it and its `criterion`; how many `rounds` were done (0:
    too few pairs for one), whether the last changed nothing any more (`converged`), and from how many `pairs` the best
    came (0: it is the start)."""

    rotation: Matrix
    matches: Matches
    criterion: float
    rounds: int = 0
    converged: bool = False
    pairs: int = 0


def refine(source: Floats, target: Floats, held_out: NDArray[np.bool_], start: Matrix | None = None, *,
           matches: Matches | None = None, rounds: int = ROUNDS) -> Refinement:
    """Rotate `source` [n, dim] onto `target` [m, dim] without pairs (Conneau et al. 2018, section 2.2).

    Each round: the pairs that are each other's CSLS match under the rotation so far, then Procrustes on them. Stops
    when the pairs stay the same or are fewer than dimensions, when the criterion falls, or after `rounds`; gives the
    rotation with the best criterion, that of `start` (the identity) included.

    The criterion is MUSE's, the mean cosine of the CSLS matches, but of the rows `held_out` [n] alone, which no
    rotation is fitted on: on rows that it was fitted on, every rotation looks better. `matches` are those of `start`
    where they are known.
    """
    rotation = np.eye(source.shape[1]) if start is None else start
    matches = csls_matches(rotated(source, rotation), target) if matches is None else matches
    best = Refinement(rotation, matches, float(matches.cosines[held_out].mean()))
    pairs = _pairs(matches, held_out)
    for number in range(1, rounds + 1):
        if pairs.shape[1] < len(rotation):
            break
        rotation = procrustes(source[pairs[0]], target[pairs[1]], rotation)
        matches = csls_matches(rotated(source, rotation), target)
        criterion, found = float(matches.cosines[held_out].mean()), _pairs(matches, held_out)
        if criterion <= best.criterion:
            return replace(best, rounds=number)
        converged = np.array_equal(found, pairs)
        best = Refinement(rotation, matches, criterion, number, converged, pairs.shape[1])
        if converged:
            break
        pairs = found
    return best


def rotated(vectors: Floats, rotation: Matrix) -> Floats:
    """W·x for each row x of `vectors` [texts, dim], float32."""
    result: Floats = vectors @ rotation.T.astype(np.float32)
    return result


def _pairs(matches: Matches, held_out: NDArray[np.bool_]) -> Indices:
    """The rows to fit the next rotation on: of the source and of the target, [2, pairs]."""
    rows = matches.mutual()
    rows = rows[~held_out[rows]]
    return np.stack([rows, matches.forward[rows]])
