"""Which differences between two rows are more than chance: paired tests over the questions of each column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from interlingua.evaluation.significance import correct, paired_p
from interlingua.experiments.suites import Values

ALPHA = 0.05
Pair = tuple[str, str]


def comparisons(pairs: Sequence[Pair], results: Mapping[str, Sequence[Values]], suite: str, measure: str) -> list[str]:
    """A line for each (row, row it is compared with): the difference in every column, with a star where a two-tailed
    paired t-test over its questions is significant. A question's value is its mean over seeds.

    The columns of a pair are one family: p-values are multiplied by their number (Bonferroni; Yang et al. 2022, §4).
    Pairs with a row that was not run, and columns with one value for all questions, are left out.
    """
    lines = []
    for row, other in pairs:
        if row not in results or other not in results:
            continue
        columns = [column for column, values in results[row][0][suite][measure].items() if len(values) > 1]
        if not columns:
            continue
        both = [(_questions(results[row], suite, measure, column), _questions(results[other], suite, measure, column))
                for column in columns]
        corrected = correct([paired_p(a, b) for a, b in both], "bonferroni")
        differences = [f"{column} {float((a - b).mean()):+.3f}{'*' if p < ALPHA else ''}"
                       for column, (a, b), p in zip(columns, both, corrected, strict=True)]
        lines.append(f"- {row} against {other}: {', '.join(differences)}")
    return lines


def _questions(runs: Sequence[Values], suite: str, measure: str, column: str) -> np.ndarray[tuple[int], np.dtype[
        np.float64]]:
    """`[questions]` in the order of the first run."""
    first = runs[0][suite][measure][column]
    return np.array([fmean(run[suite][measure][column][question] for run in runs) for question in first])
