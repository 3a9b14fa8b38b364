"""The margin: a cosine against the cosines of both sentences' neighbours (Artetxe & Schwenk 2019, section 3)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.alignment.unit_vectors import UnitVectors, check_pair
from interlingua.errors import InterlinguaError, suggestion

KINDS = ("ratio", "distance", "absolute")
MATRIX = 1 << 28  # margins held at once by margin_scores: 1 GiB of float32

Scores = NDArray[np.float32]


def margin(cosines: Scores, mean_x: Scores, mean_y: Scores, kind: str = "ratio") -> Scores:
    """Margins of `cosines`, whose shape `mean_x` and `mean_y` must fit (the mean cosine of each sentence to its k
    nearest on the other side).

    With b = (mean_x + mean_y) / 2: "ratio" cosine / b, "distance" cosine − b, "absolute" the cosine. Float32. Where b
    is 0 the ratio is infinite or NaN.
    """
    if kind not in KINDS:
        raise InterlinguaError(f"margin '{kind}' is unknown.{suggestion(kind, KINDS)}")
    if kind == "absolute":
        return cosines
    between = (mean_x + mean_y) / np.float32(2)
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Scores = cosines / between if kind == "ratio" else cosines - between
    return found


def margin_scores(x: Any, y: Any, k: int = 4, kind: str = "ratio") -> Scores:
    """Margins of all pairs of `x` [n, dim] and `y` [m, dim]: [n, m] float32.

    Each mean is over the min(k, other side) nearest. For collections that fit in memory; `mine_bitext` scores the
    nearest neighbours alone and takes millions. A ratio means nothing where the mean of the neighbours' cosines is not
    positive: it is then given as the formula has it.

    Raises InterlinguaError naming side and row for NaN, infinity and zero vectors, for another kind, and for more than
    2²⁸ pairs.
    """
    sides = UnitVectors(x, "x"), UnitVectors(y, "y")
    check_pair(*sides, k)
    if len(sides[0]) * len(sides[1]) > MATRIX:
        raise InterlinguaError(f"{len(sides[0]):,} × {len(sides[1]):,} margins do not fit in memory. Use mine_bitext, "
                               "which scores each sentence with its nearest neighbours alone.")
    cosines = sides[0].unit(slice(None)) @ sides[1].unit(slice(None)).T
    return margin(cosines, _mean_of_best(cosines, k)[:, None], _mean_of_best(cosines.T, k)[None], kind)


def _mean_of_best(cosines: Scores, k: int) -> Scores:
    """The mean of the `k` largest of each row (of all, where there are fewer). Zeros where there are none."""
    k = min(k, cosines.shape[1])
    if not k:
        return np.zeros(len(cosines), dtype=np.float32)
    best = -np.partition(-cosines, k - 1, axis=1)[:, :k]
    mean: Scores = best.mean(axis=1)
    return mean
