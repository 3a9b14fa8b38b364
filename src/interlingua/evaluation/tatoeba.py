"""Tatoeba: does the nearest sentence in the other language mean the same? (Artetxe & Schwenk 2019)"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import InterlinguaError
from interlingua.retrieval.vectors import searchable


def tatoeba_accuracy(x: Any, y: Any, *, textual: tuple[Sequence[str], Sequence[str]] | None = None) -> dict[str, float]:
    """Accuracy of cosine nearest neighbours between translations `x`, `y` [pairs, dim] (row i of one translates
    row i of the other).

    Returns fractions: "forward" (each x looks for its y), "backward" (each y for its x) and their "mean", which
    CCP and LASER report; XTREME reports one direction only, so the two are not comparable. A hit is the same
    row; with `textual` = (texts of x, texts of y) a hit is the same text, as LASER's option of that name, which
    forgives sentences that occur twice. Among equal similarities the first row wins.

    Raises InterlinguaError for shapes that differ, zero vectors and NaN.
    """
    x, y = np.asarray(x, dtype=np.float32), np.asarray(y, dtype=np.float32)
    if x.ndim != 2 or x.shape != y.shape or not len(x):
        raise InterlinguaError(f"shapes {x.shape} and {y.shape}: both must be the same [pairs, dim], with a pair.")
    sides = [searchable(side, "cosine", [str(i) for i in range(len(side))], "sentence") for side in (x, y)]
    texts = textual or (range(len(x)), range(len(y)))
    if any(len(side) != len(x) for side in texts):
        raise InterlinguaError(f"{len(texts[0])} and {len(texts[1])} texts for {len(x)} pairs: the numbers must agree.")
    forward = _accuracy(sides[0], sides[1], texts[1])
    backward = _accuracy(sides[1], sides[0], texts[0])
    return {"forward": forward, "backward": backward, "mean": (forward + backward) / 2}


def _accuracy(questions: NDArray[np.float32], answers: NDArray[np.float32], keys: Sequence[Any]) -> float:
    from interlingua.retrieval.dense import search_exact

    nearest = search_exact(questions, answers, 1)[0][:, 0]
    return sum(bool(keys[found] == keys[i]) for i, found in enumerate(nearest.tolist())) / len(questions)
