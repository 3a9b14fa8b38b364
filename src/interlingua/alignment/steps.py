"""What calibration did to a language, step by step, and the table of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tabulate import tabulate

STEPS = ("raw", "shift", "scale", "rotate")
NOTE = """\
numbers: mean cosine of a text and its CSLS match in the pivot (and their mean CSLS), over a fifth of the texts, which
no rotation was fitted on. Shifting changes what a cosine means: compare raw with shift by the CSLS."""


@dataclass(frozen=True)
class Steps:
    """A language's `texts`, and the unsupervised `criterion`, the mean cosine with their CSLS matches in the pivot:
    "raw", then after "shift", "scale" and "rotate" (those that were taken); `csls` is the mean CSLS. Of refinement: its
    `rounds`, whether it `converged`, and the number of matched `pairs` behind the rotation (of given pairs where it is
    supervised; 0: there is no rotation)."""

    lang: str
    texts: int
    criterion: dict[str, float] = field(default_factory=dict)
    csls: dict[str, float] = field(default_factory=dict)
    rounds: int = 0
    converged: bool = False
    pairs: int = 0
    note: str = ""


def steps_table(report: Iterable[Steps]) -> str:
    """One row for each language."""
    rows = [[one.lang, f"{one.texts:,}", *(f"{one.criterion[step]:.4f} ({one.csls[step]:.3f})"
                                           if step in one.criterion else "–" for step in STEPS),
             f"{one.rounds}{' (converged)' if one.converged else ''}", f"{one.pairs:,}", one.note] for one in report]
    body: str = tabulate(rows, ["language", "texts", *STEPS, "rounds", "pairs", ""], disable_numparse=True,
                         colalign=["left", *["right"] * 7, "left"])
    return f"{body}\n\n{NOTE}"
