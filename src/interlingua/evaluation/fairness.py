"""PEER: are documents of different languages ranked alike? (Yang et al. 2024, Language Fairness in Multilingual IR)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from interlingua.errors import InterlinguaError


def peer(ranking: Sequence[str], langs: Mapping[str, str], grades: Mapping[str, int], *, top: int = 20,
         weights: Mapping[int, float] | None = None) -> float:
    """Probability of equal expected rank of one ranking, from 0 (ranks depend on the language) to 1 (nothing shows that
    they do). Of rankings that do not depend on it the mean is about ½, as that of any p-value.

    For each level of relevance a Kruskal-Wallis test asks whether the documents of that level have the same expected
    rank whatever their language; PEER is the mean of its p-values with `weights` by level (the same for all levels that
    occur, if not given). Documents are those among the first `top` of `ranking` (ids, best first) and relevant ones
    below, which share the mean of the ranks that are left. `langs`: document → language, all documents there are;
    `grades`: document → level, 0 where it is missing. A level with documents of one language only counts 1. One with
    a single document of each language is left out, since nothing can be seen in it; without any other level, 1.

    Raises InterlinguaError for a `top` under 1 and weights that are no numbers of 0 or more, or all 0.
    """
    from scipy.stats import kruskal

    if top < 1:
        raise InterlinguaError(f"top={top}: must be at least 1.")
    if weights is not None and (min(weights.values(), default=0) < 0 or not sum(weights.values())):
        raise InterlinguaError(f"weights {dict(weights)}: give numbers of 0 or more by level, not all 0.")
    rank_of = {name: float(rank) for rank, name in enumerate(ranking[:top], 1)}
    below = (top + 1 + max(len(langs), top + 1)) / 2
    held = {name: rank for name, rank in rank_of.items() if name in langs}
    held |= {name: below for name, grade in grades.items() if grade > 0 and name not in rank_of and name in langs}
    values: dict[int, float] = {}
    for level in sorted({grades.get(name, 0) for name in held}):
        groups: dict[str, list[float]] = {}
        for name, rank in held.items():
            if grades.get(name, 0) == level:
                groups.setdefault(langs[name], []).append(rank)
        ranks = [rank for group in groups.values() for rank in group]
        if 1 < len(groups) == len(ranks):
            continue
        alike = len(groups) < 2 or min(ranks) == max(ranks)
        values[level] = 1.0 if alike else float(kruskal(*groups.values()).pvalue)
    counted = {level: 1.0 if weights is None else weights.get(level, 0.0) for level in values}
    if not sum(counted.values()):
        return 1.0
    return float(np.average(list(values.values()), weights=list(counted.values())))
