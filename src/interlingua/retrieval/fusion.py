"""Several runs of the same queries become one: sums of normalised scores (Mr.TyDi), reciprocal rank fusion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from numbers import Integral, Real

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import BadInput
from interlingua.retrieval.run import Run

Scores = NDArray[np.float64]


def interpolate(sparse: Run, dense: Run, alpha: float) -> Run:
    """`sparse + alpha · dense` on normalised scores, the hybrid of Mr.TyDi (Zhang et al. 2021).

    For each query, over the union of both lists: a document that one list lacks gets that list's lowest score, then
    each list's scores become (s − (min + max) / 2) / (max − min), from −½ to ½. A list whose scores are all equal,
    and an empty one, says nothing and adds 0. Results as long as the union; a query of either run is in the result.
    Raises BadInput for an `alpha` that is no number of 0 or more, or a score that is infinite.
    """
    return weighted_sum([sparse, dense], [1.0, alpha])


def weighted_sum(runs: Sequence[Run], weights: Sequence[float]) -> Run:
    """`Σ weight · normalised run`, each list completed and normalised as by `interpolate`. One weight for each run."""
    check_weights(weights, len(runs))
    return summed(normalised(runs), weights)


def summed(lists: Iterable[tuple[str, list[str], Scores]], weights: Sequence[float]) -> Run:
    """The run of `weights` · the rows of `normalised`."""
    fused = Run()
    for query_id, ids, scores in lists:
        # one product after another, in float64: a document's score does not depend on what stands beside it
        total = np.zeros(len(ids))
        for weight, row in zip(weights, scores, strict=True):
            total += weight * row
        fused.add(query_id, ids, total)
    return fused


def normalised(runs: Sequence[Run]) -> Iterator[tuple[str, list[str], Scores]]:
    """For each query of any run: its id, the union of its documents (id descending), and their normalised scores
    `[runs, documents]` float64, as `interpolate` describes them."""
    if not runs:
        raise BadInput("no runs to fuse. Give at least one.")
    for query_id in dict.fromkeys(name for run in runs for name in run):
        lists = [dict(run.get(query_id, [])) for run in runs]
        ids = sorted({name for results in lists for name in results}, reverse=True)
        scores = np.zeros((len(runs), len(ids)))
        for row, results in zip(scores, lists, strict=True):
            low = min(results.values(), default=0.0)
            row[:] = centred(np.array([results.get(name, low) for name in ids]), f"query '{query_id}'")
        yield query_id, ids, scores


def centred(scores: Scores, of: str) -> Scores:
    """(s − (min + max) / 2) / (max − min) of each score, from −½ to ½; 0 where all are equal. `of`: whose scores they
    are. Raises BadInput for one that is not finite."""
    if not len(scores):
        return scores
    low, high = float(scores.min()), float(scores.max())
    if not (isfinite(low) and isfinite(high)):
        raise BadInput(f"{of}: a score is infinite or NaN, which cannot be normalised. Look at what made it.")
    return (scores - (low + high) / 2) / (high - low) if high > low else np.zeros(len(scores))


def check_weights(weights: Sequence[float], runs: int) -> None:
    """Raise BadInput unless there are `runs` weights, numbers of 0 or more."""
    if len(weights) != runs:
        raise BadInput(f"{len(weights)} weights for {runs} runs: give one for each.")
    for weight in weights:
        if isinstance(weight, bool) or not isinstance(weight, Real) or not isfinite(weight) or weight < 0:
            raise BadInput(f"alpha {weight!r}: must be a number of 0 or more.")


RRF_K = 60
"""k of reciprocal rank fusion, as Cormack et al. have it."""


def rrf(runs: Sequence[Run], k: int = RRF_K) -> Run:
    """Reciprocal rank fusion (Cormack et al. 2009): a document's score is Σ 1 / (k + its rank), over the runs that
    have it; ranks count from 1. A query of any run is in the result.

    Raises BadInput for no runs, or a `k` under 0.
    """
    if not runs:
        raise BadInput("no runs to fuse. Give at least one.")
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 0:
        raise BadInput(f"k={k!r}: must be a whole number of 0 or more (60 in the paper).")
    fused = Run()
    for query_id in dict.fromkeys(name for run in runs for name in run):
        scores: dict[str, float] = {}
        for run in runs:
            for rank, name in enumerate(run.ids(query_id) if query_id in run else (), 1):
                scores[name] = scores.get(name, 0.0) + 1 / (k + rank)
        fused.add(query_id, list(scores), list(scores.values()))
    return fused
