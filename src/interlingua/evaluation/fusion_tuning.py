"""The weight of an interpolation, chosen on a development set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interlingua.data.records import Qrels
from interlingua.errors import InterlinguaError
from interlingua.evaluation.measures import canonical, evaluate
from interlingua.retrieval.fusion import check_weights, normalised, summed
from interlingua.retrieval.run import Run

ALPHAS = tuple(round(step / 20, 2) for step in range(41))
"""0, 0.05, … 2: the weights that Mr.TyDi's authors chose lie between 0.56 and 1."""


@dataclass(frozen=True, slots=True)
class TunedAlpha:
    """The best weight, its score, and the score of every weight that was tried."""

    alpha: float
    measure: str
    score: float
    tried: dict[float, float]


def tune_alpha(sparse: Run, dense: Run, qrels: Qrels, measure: str = "RR@100", alphas: Sequence[float] = ALPHAS,
               depth: int | None = None) -> TunedAlpha:
    """The `alpha` for which `interpolate(sparse, dense, alpha)` has the highest `measure`; the smallest of equals.

    The runs and `qrels` are those of a development set: a weight chosen on the questions it is then measured on is no
    result. `depth` cuts the fused list, as the run that is reported will be cut. Raises InterlinguaError for no weights
    to try, one that is no number of 0 or more, an unknown measure, or runs without a query of `qrels`.
    """
    if not alphas:
        raise InterlinguaError("no weights to try: give at least one.")
    check_weights(alphas, len(alphas))
    if not qrels.keys() & (sparse.keys() | dense.keys()):
        raise InterlinguaError("the runs have results for no query of the qrels. They must be of one development set.")
    lists = list(normalised([sparse, dense]))
    tried: dict[float, float] = {}
    for alpha in sorted(set(alphas)):
        run = summed(lists, [1.0, alpha])
        tried[alpha] = evaluate(run if depth is None else run.truncate(depth), qrels, [measure])[measure]
    best = max(tried, key=lambda alpha: (tried[alpha], -alpha))
    return TunedAlpha(best, canonical(measure), tried[best], tried)
