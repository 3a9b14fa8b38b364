"""The steps of calibration for one language and the pivot, measured one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from interlingua.alignment.adversarial import Adversarial, adversarial_rotation
from interlingua.alignment.csls import Floats, Matches, csls_matches
from interlingua.alignment.rotation import Matrix, Refinement, procrustes, refine, rotated
from interlingua.alignment.spread import Spread
from interlingua.alignment.steps import Steps
from interlingua.data.permutation import key_of
from interlingua.errors import InterlinguaError, suggestion
from interlingua.models.language_maps import LanguageMap

SCALES = ("std", "variance", "none")
ROTATIONS = ("refine", "adversarial", "supervised", "none")
HELD_OUT = 5  # one text in so many measures a rotation and does not make it
MOST_TEXTS = 75_000  # compared with the pivot's, of each language


@dataclass(frozen=True)
class Plan:
    """Which steps to take, checked. Raises InterlinguaError for one that is unknown."""

    shift: bool
    scale: str
    rotate: str
    seed: int
    adversarial: Adversarial

    def __post_init__(self) -> None:
        for name, value, known in (("scale", self.scale, SCALES), ("rotate", self.rotate, ROTATIONS)):
            if value not in known:
                raise InterlinguaError(f"{name}={value!r} is unknown.{suggestion(str(value), known)}")

    def sample(self, vectors: Floats, lang: str) -> Floats:
        """At most `MOST_TEXTS` of the vectors, in an order drawn for the language."""
        order = np.random.default_rng(key_of(self.seed, lang)).permutation(len(vectors))
        return vectors[order[:MOST_TEXTS]]

    def fit(self, lang: str, vectors: Floats, spread: Spread, target: Floats, home: Spread,
            pairs: tuple[Floats, Floats] | None) -> tuple[LanguageMap, Steps]:
        """The map of a language onto the pivot, and what each step did. `vectors` [texts, dim] and the pivot's `target`
        [texts, dim] have the spreads `spread` and `home`; `pairs`, translations row by row, are for "supervised"."""
        source = self.sample(vectors, lang)
        held_out = np.arange(len(source)) % HELD_OUT == 0
        done: dict[str, tuple[bool, str]] = {"raw": (False, "none")}
        if self.shift:
            done["shift"] = (True, "none")
        if self.scale != "none":
            done["scale"] = (self.shift, self.scale)
        steps = Steps(lang, len(vectors))
        for step, wanted in done.items():
            x, y = _applied(spread.map(*wanted), source), _applied(home.map(*wanted), target)
            before = csls_matches(x, y)
            steps = _measured(steps, step, before, held_out)
        placed = spread.map(self.shift, self.scale)
        if self.rotate == "none":
            return placed, steps
        if pairs is not None:
            given = procrustes(_applied(placed, pairs[0]), _applied(home.map(self.shift, self.scale), pairs[1]))
            found = Refinement(given, csls_matches(rotated(x, given), y), 0.0, pairs=len(pairs[0]))
        else:
            found = self._unsupervised(lang, x, y, held_out, before)
        steps = replace(steps, rounds=found.rounds, converged=found.converged)
        if pairs is not None or clear_gain(before, found.matches, held_out):
            steps = replace(_measured(steps, "rotate", found.matches, held_out), pairs=found.pairs)
            return replace(placed, rotation=torch.from_numpy(found.rotation).float()), steps
        why = "every rotation tried lowered it"
        if found.rounds == 0:
            why = f"fewer pairs matched than the {x.shape[1]} dimensions"
        elif not np.array_equal(found.rotation, np.eye(x.shape[1])):
            cosines, csls = (f"{a[held_out].mean():.4f} → {b[held_out].mean():.4f}" for a, b in (
                (before.cosines, found.matches.cosines), (before.csls, found.matches.csls)))
            why = f"{cosines} (CSLS {csls}) is no clear gain"
        return placed, replace(_measured(steps, "rotate", before, held_out), note=f"not rotated: {why}")

    def _unsupervised(self, lang: str, x: Floats, y: Floats, held_out: NDArray[np.bool_],
                      before: Matches) -> Refinement:
        if self.rotate == "adversarial":
            def criterion(rotation: Matrix) -> float:
                return float(csls_matches(rotated(x, rotation), y).cosines[held_out].mean())

            seed = key_of(self.seed, lang, "adversarial") >> 1
            start = adversarial_rotation(x[~held_out], y, criterion, options=self.adversarial, seed=seed)
            return refine(x, y, held_out, start)
        return refine(x, y, held_out, matches=before)


def _measured(steps: Steps, step: str, matches: Matches, held_out: NDArray[np.bool_]) -> Steps:
    return replace(steps, criterion=steps.criterion | {step: float(matches.cosines[held_out].mean())},
                   csls=steps.csls | {step: float(matches.csls[held_out].mean())})


def clear_gain(before: Matches, after: Matches, held_out: NDArray[np.bool_]) -> bool:
    """Whether a rotation found without pairs helps texts that it was not fitted on: their mean cosine rises by more
    than three standard errors, and their mean CSLS falls by no more than one.

    Of unrelated texts the best of five rotations is above zero half of the time, and two standard errors above one time
    in twelve. Where two corpora are on unlike topics, a rotation that brings the topics together raises the cosine and
    loses the translations; a match then stands out less from its neighbours, which CSLS tells.
    """
    def rise(gains: Floats) -> float:
        error = float(gains.std(ddof=1)) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
        return float(gains.mean()) / error if error else 0.0

    return rise((after.cosines - before.cosines)[held_out]) > 3 and rise((after.csls - before.csls)[held_out]) > -1


def _applied(one: LanguageMap, vectors: Floats) -> Floats:
    mapped: Floats = one(torch.from_numpy(vectors)).numpy()
    return mapped
