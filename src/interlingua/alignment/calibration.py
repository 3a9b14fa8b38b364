"""Cross-lingual calibration: shift, scale and rotate each language onto a pivot (Wu et al. 2022).

Wu et al. 2022 (CCP), for a trained encoder and sentence retrieval. It needs raw sentences of each language, no pairs.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tabulate import tabulate
from torch import Tensor

from interlingua.alignment.rotation import (
    Adversarial,
    Floats,
    Matches,
    Matrix,
    Refinement,
    adversarial_rotation,
    csls_matches,
    procrustes,
    refine,
    rotated,
)
from interlingua.data.stream import key_of
from interlingua.errors import BadInput, Damaged, suggestion
from interlingua.models.language_maps import ANY, LanguageMap, LanguageMaps, file_name
from interlingua.progress import track
from interlingua.text.languages import find_code

logger = logging.getLogger(__name__)

EPSILON = 1e-6  # added to what is divided by


@dataclass(frozen=True, eq=False)
class Moments:
    """The `mean` and the standard deviation `std` (divided by n) of the vectors of some `texts`: float64 [dim]."""

    texts: int
    mean: NDArray[np.float64]
    std: NDArray[np.float64]

    @classmethod
    def of(cls, vectors: Floats) -> Moments:
        """The moments of `vectors` [texts, dim]."""
        return cls(len(vectors), vectors.mean(axis=0, dtype=np.float64), vectors.std(axis=0, dtype=np.float64))

    @classmethod
    def pooled(cls, moments: Iterable[Moments]) -> Moments:
        """The moments of all these vectors together, each language weighing the same."""
        languages = list(moments)
        mean = np.mean([language.mean for language in languages], axis=0)
        square = np.mean([language.std**2 + language.mean**2 for language in languages], axis=0)
        return cls(sum(language.texts for language in languages), mean, np.sqrt(np.maximum(0, square - mean**2)))

    def map(self, shift: bool, scale: str, rotation: Floats | None = None) -> LanguageMap:
        """x → (x − mean) / scale, where `scale` is "std", "variance" (as Wu et al. 2022 write, which leaves a
        variance of 1/variance) or "none"; without `shift` the mean stays. Then times the `rotation` [dim, dim]."""
        divisor = {"std": self.std + EPSILON, "variance": self.std**2 + EPSILON, "none": np.ones_like(self.std)}[scale]
        offset = self.mean if shift else np.zeros_like(self.mean)
        turn = None if rotation is None else torch.from_numpy(rotation)
        return LanguageMap(torch.from_numpy(offset).float(), torch.from_numpy(divisor).float(), turn)


def without_components(vectors: Floats, count: int) -> Floats:
    """The projection [dim, dim], x − Σ (x·c) c, that removes the first `count` principal components c of `vectors`
    [texts, dim], whose mean is not subtracted before: those hold what all texts of a language share (Yang et al. 2021,
    LIR). Signs and order of the components do not matter to it."""
    square = vectors.T.astype(np.float64) @ vectors
    components = np.linalg.eigh(square).eigenvectors[:, -count:]
    projection: Floats = (np.eye(len(square)) - components @ components.T).astype(np.float32)
    return projection


def checked(vectors: Any, what: str) -> Floats:
    """`vectors` (an array or tensor of any floating type) as float32 [texts, dim].

    Raises BadInput naming `what` and the first row that holds NaN or infinity, or is zero.
    """
    if isinstance(vectors, Tensor):
        vectors = vectors.detach().float().cpu().numpy()
    array: Floats = np.asarray(vectors, dtype=np.float32)
    if array.ndim != 2 or 0 in array.shape:
        raise BadInput(f"{what}: vectors of shape {array.shape}; [texts, dim] is needed, with a text.")
    for bad, problem in (
        (~np.isfinite(array).all(axis=1), "holds NaN or infinity. Encode in float32"),
        (~array.any(axis=1), "is zero. Is its text empty? Leave it out"),
    ):
        if bad.any():
            raise BadInput(
                f"{what}, row {int(bad.argmax())} (the first is 0; {int(bad.sum())} of {len(array)} "
                f"are like it): its vector {problem}."
            )
    return array


STEPS = ("raw", "remove", "shift", "scale", "rotate")
NOTE = """\
numbers: mean cosine of a text and its CSLS match in the pivot (and their mean CSLS), over a fifth of the texts, which
no rotation was fitted on. Shifting changes what a cosine means: compare raw with shift by the CSLS."""


@dataclass(frozen=True)
class Steps:
    """A language's `texts`, and the unsupervised `criterion`, the mean cosine with their CSLS matches in the pivot:
    "raw", then after "remove", "shift", "scale" and "rotate" (those that were taken); `csls` is the mean CSLS. Of
    refinement: its `rounds`, whether it `converged`, and the number of matched `pairs` behind the rotation (of given
    pairs where it is supervised; 0: there is no rotation)."""

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
    report = list(report)
    steps = [step for step in STEPS if step != "remove" or any(step in one.criterion for one in report)]
    rows = [
        [
            one.lang,
            f"{one.texts:,}",
            *(f"{one.criterion[step]:.4f} ({one.csls[step]:.3f})" if step in one.criterion else "–" for step in steps),
            f"{one.rounds}{' (converged)' if one.converged else ''}",
            f"{one.pairs:,}",
            one.note,
        ]
        for one in report
    ]
    body: str = tabulate(
        rows,
        ["language", "texts", *steps, "rounds", "pairs", ""],
        disable_numparse=True,
        colalign=["left", *["right"] * (len(steps) + 3), "left"],
    )
    return f"{body}\n\n{NOTE}"


SCALES = ("std", "variance", "none")
ROTATIONS = ("refine", "adversarial", "supervised", "none")
HELD_OUT = 5  # one text in so many measures a rotation and does not make it
MOST_TEXTS = 75_000  # compared with the pivot's, of each language


@dataclass(frozen=True)
class CalibrationFitter:
    """Fits the map of a language by the steps it is told to take. Raises BadInput for one that is unknown."""

    shift: bool
    scale: str
    rotate: str
    seed: int
    adversarial: Adversarial
    gate: bool = True
    remove: int = 0

    def __post_init__(self) -> None:
        if self.remove < 0:
            raise BadInput(f"remove={self.remove}: give a number of components, 0 for none.")
        if self.remove and (self.scale != "none" or self.rotate != "none"):
            raise BadInput(
                f"remove={self.remove} goes with the shift alone: set scale and rotate to none. Scaling moves the "
                "components that are removed, and a rotation would be fitted without them."
            )
        for name, value, choices in (("scale", self.scale, SCALES), ("rotate", self.rotate, ROTATIONS)):
            if value not in choices:
                raise BadInput(f"{name}={value!r} is unknown.{suggestion(str(value), choices)}")

    def sample(self, vectors: Floats, lang: str) -> Floats:
        """At most `MOST_TEXTS` of the vectors, in an order drawn for the language."""
        order = np.random.default_rng(key_of(self.seed, lang)).permutation(len(vectors))
        return vectors[order[:MOST_TEXTS]]

    def projection(self, vectors: Floats) -> Floats | None:
        """The map that removes the first components of a language, or None where none are to go."""
        return without_components(vectors, self.remove) if self.remove else None

    def fit(
        self,
        lang: str,
        vectors: Floats,
        own: Moments,
        target: Floats,
        home: Moments,
        kept: Floats | None,
        pairs: tuple[Floats, Floats] | None,
    ) -> tuple[LanguageMap, Steps]:
        """The map of a language onto the pivot, and what each step did. `vectors` [texts, dim] and the pivot's `target`
        [texts, dim] have the moments `own` and `home`; `kept` is the pivot's `projection`, and `pairs`, translations
        row by row, are for "supervised"."""
        source = self.sample(vectors, lang)
        held_out = np.arange(len(source)) % HELD_OUT == 0
        projection = self.projection(source)
        transforms: dict[str, tuple[bool, str, bool]] = {"raw": (False, "none", False)}
        if self.remove:
            transforms["remove"] = (False, "none", True)
        if self.shift:
            transforms["shift"] = (True, "none", True)
        if self.scale != "none":
            transforms["scale"] = (self.shift, self.scale, True)
        steps = Steps(lang, len(vectors))
        for step, (shift, scale, removed) in transforms.items():
            x = _applied(own.map(shift, scale, projection if removed else None), source)
            y = _applied(home.map(shift, scale, kept if removed else None), target)
            before = csls_matches(x, y)
            steps = _measured(steps, step, before, held_out)
        mapping = own.map(self.shift, self.scale, projection)
        if self.rotate == "none":
            return mapping, steps
        if pairs is not None:
            rotation = procrustes(_applied(mapping, pairs[0]), _applied(home.map(self.shift, self.scale), pairs[1]))
            refinement = Refinement(rotation, csls_matches(rotated(x, rotation), y), 0.0, pairs=len(pairs[0]))
        else:
            refinement, summary = self._unsupervised(lang, x, y, held_out, before)
            steps = replace(steps, note=summary)
        steps = replace(steps, rounds=refinement.rounds, converged=refinement.converged)
        if pairs is not None or not self.gate or clear_gain(before, refinement.matches, held_out):
            steps = replace(_measured(steps, "rotate", refinement.matches, held_out), pairs=refinement.pairs)
            return replace(mapping, rotation=torch.from_numpy(refinement.rotation).float()), steps
        reason = "every rotation tried lowered it"
        if refinement.rounds == 0:
            reason = f"fewer pairs matched than the {x.shape[1]} dimensions"
        elif not np.array_equal(refinement.rotation, np.eye(x.shape[1])):
            old, new = (float(matches.cosines[held_out].mean()) for matches in (before, refinement.matches))
            counts = " → ".join(str(_mutual(matches, held_out)) for matches in (before, refinement.matches))
            reason = f"{old:.4f} → {new:.4f} ({counts} mutual matches) is no clear gain"
        note = "; ".join(filter(None, (steps.note, f"not rotated: {reason}")))
        return mapping, replace(_measured(steps, "rotate", before, held_out), note=note)

    def of_few(self, lang: str, own: Moments, home: Moments) -> tuple[LanguageMap, Steps]:
        """The map of a language of few texts: its own mean, and the scale of the pivot, whose moments are `home`."""
        effect = "nothing is removed" if self.remove else "its own mean, the pivot's scale, no rotation"
        note = f"fewer than {MIN_TEXTS} texts: {effect}"
        logger.warning(f"{lang}: {own.texts} texts, {note}")
        return Moments(own.texts, own.mean, home.std).map(self.shift, self.scale), Steps(lang, own.texts, note=note)

    def settings(self) -> dict[str, Any]:
        """The options that are saved with the maps: the steps, and others that differ from the default."""
        steps = {"shift": self.shift, "scale": self.scale, "rotate": self.rotate, "seed": self.seed}
        return steps | ({} if self.gate else {"gate": False}) | ({"remove": self.remove} if self.remove else {})

    def _unsupervised(
        self, lang: str, x: Floats, y: Floats, held_out: NDArray[np.bool_], before: Matches
    ) -> tuple[Refinement, str]:
        """The refined rotation, and what the adversarial step before it did."""
        if self.rotate == "adversarial":

            def criterion(rotation: Matrix) -> float:
                return float(csls_matches(rotated(x, rotation), y).cosines[held_out].mean())

            seed = key_of(self.seed, lang, "adversarial") >> 1
            search = adversarial_rotation(
                x[~held_out], y, criterion, options=self.adversarial, seed=seed, identity=self.gate
            )
            return refine(x, y, held_out, search.rotation), str(search)
        return refine(x, y, held_out, matches=before), ""


def _measured(steps: Steps, step: str, matches: Matches, held_out: NDArray[np.bool_]) -> Steps:
    return replace(
        steps,
        criterion=steps.criterion | {step: float(matches.cosines[held_out].mean())},
        csls=steps.csls | {step: float(matches.csls[held_out].mean())},
    )


def clear_gain(before: Matches, after: Matches, held_out: NDArray[np.bool_]) -> bool:
    """Whether a rotation found without pairs helps texts that it was not fitted on: their mean cosine rises by more
    than three standard errors, and no fewer of them are their match's own match.

    Of unrelated texts the best of five rotations is above zero half of the time, and two standard errors above one time
    in twelve. Where two corpora are on unlike topics, a rotation that brings the topics together raises the cosine and
    loses the translations: texts of one topic then have the same match, and fewer are each other's. The mean CSLS does
    not tell: six layers after CCP kept theirs while Hindi, Thai and Turkish lost two thirds of their accuracy.
    """
    gains = (after.cosines - before.cosines)[held_out]
    error = float(gains.std(ddof=1)) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
    rise = float(gains.mean()) / error if error else 0.0
    return rise > 3 and _mutual(after, held_out) >= _mutual(before, held_out)


def _mutual(matches: Matches, held_out: NDArray[np.bool_]) -> int:
    return int(held_out[matches.mutual()].sum())


def _applied(language_map: LanguageMap, vectors: Floats) -> Floats:
    return language_map(torch.from_numpy(vectors)).numpy()


MIN_TEXTS = 50  # a standard deviation is then known to a tenth


@dataclass(frozen=True, eq=False)
class Calibration:
    """`maps` take each language's vectors into the space of the language `pivot`; `report` tells what each step did.

    `encoder.language_maps = calibration.maps` makes `encoder.encode(texts, lang=…)` apply it.
    """

    maps: LanguageMaps
    pivot: str
    report: dict[str, Steps]

    @classmethod
    def fit(
        cls,
        vectors: Mapping[str, Any],
        pivot: str = "en",
        *,
        shift: bool = True,
        scale: str | None = "std",
        rotate: str | None = "refine",
        seed: int = 0,
        pairs: Mapping[str, tuple[Any, Any]] | None = None,
        adversarial: Adversarial | None = None,
        gate: bool = True,
        remove: int = 0,
    ) -> Calibration:
        """Fit on `vectors`: language → [texts, dim] of raw sentences, which need not be translations of each other.

        For each language, x → W·(x − mean) / std (`scale` "std", "variance" or None), each step measured by itself.
        W is orthogonal, from the language to the pivot; the pivot is not rotated. Two other languages meet in the
        pivot's space. `rotate`: "refine" (mutual CSLS neighbours and Procrustes, from the identity), "adversarial"
        (MUSE's game first, with the settings `adversarial`), "supervised" (Procrustes on `pairs`: language → vectors
        and vectors of their translations into the pivot) or None. Without pairs, a fifth of the texts measures the
        rotation that the others made, and where it shows no clear gain there is no rotation. Without the `gate` the
        rotation found is taken whatever it shows, as Wu et al. 2022 did; the report has the numbers either way.

        `remove` takes the first so many components out of each language's vectors, the pivot's too, in place of scale
        and rotation: language information removal (LIR, Yang et al. 2021), which has no shift either. From "*" and
        from a language of fewer than 50 texts nothing is removed.

        A language of fewer than 50 texts gets its own mean, the pivot's scale and no rotation; a message says so. The
        entry "*" has the mean and scale of all languages together, each weighing the same, and no rotation. Texts
        beyond 75,000 of a language count in its mean and scale alone. Deterministic for a seed and machine.

        Raises BadInput where the pivot is missing or has fewer than 50 texts, for shapes that do not fit, NaN,
        zero vectors, vectors that are all the same, and pairs that are missing or not asked for.
        """
        fitter = CalibrationFitter(
            bool(shift), scale or "none", rotate or "none", int(seed), adversarial or Adversarial(), gate, int(remove)
        )
        by_code, pivot = _by_code(vectors), find_code(pivot) or pivot
        if pivot not in by_code:
            raise BadInput(f"there are no vectors of the pivot '{pivot}'.{suggestion(pivot, by_code)}")
        clouds = {lang: checked(by_code[lang], lang) for lang in sorted(by_code)}
        moments = {lang: Moments.of(cloud) for lang, cloud in clouds.items()}
        home = moments[pivot]
        _check(clouds, moments, pivot, remove)
        translations = _translations(pairs, fitter, clouds, pivot)
        target = fitter.sample(clouds[pivot], pivot)
        projection = fitter.projection(target)
        maps = {
            ANY: Moments.pooled(moments.values()).map(shift, fitter.scale),
            pivot: home.map(shift, fitter.scale, projection),
        }
        report = {pivot: Steps(pivot, home.texts, note="the pivot")}
        for lang in track([lang for lang in clouds if lang != pivot], "calibrate (languages)"):
            if moments[lang].texts < MIN_TEXTS:
                maps[lang], report[lang] = fitter.of_few(lang, moments[lang], home)
            else:
                maps[lang], report[lang] = fitter.fit(
                    lang, clouds[lang], moments[lang], target, home, projection, translations.get(lang)
                )
        description = {
            "format": "interlingua calibration 1",
            "pivot": pivot,
            "settings": json.dumps(fitter.settings()),
            "report": json.dumps([asdict(steps) for steps in report.values()], ensure_ascii=False),
        }
        return cls(LanguageMaps(maps, description), pivot, report)

    def transform(self, vectors: Any, lang: str | None) -> Any:
        """`vectors` [texts, dim] of a language in the pivot's space, float32; a tensor for a tensor, else NumPy.

        `lang=None` takes the entry "*". Raises BadInput with a suggestion for a language that was not fitted,
        for another dim, NaN and zero vectors.
        """
        language_map = self.of(lang)
        array = checked(vectors, lang or "vectors")
        if array.shape[1] != self.maps.dim:
            raise BadInput(
                f"the calibration is for vectors of size {self.maps.dim}, these have "
                f"{array.shape[1]}: they come from another encoder."
            )
        mapped = language_map(torch.from_numpy(array))
        return mapped.to(vectors.device) if isinstance(vectors, Tensor) else mapped.numpy()

    def of(self, lang: str | None) -> LanguageMap:
        """The map of a language, of all together for None. Raises BadInput for one that was not fitted."""
        return self.maps.of(lang)

    def fold(self, lang: str | None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """`transform` of a language as one linear layer x → weight·x + bias: float32 [dim, dim] and [dim]."""
        weight, bias = self.of(lang).fold()
        return weight.numpy(), bias.numpy()

    def table(self) -> str:
        """The report as text."""
        return steps_table(self.report.values())

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, whole or not at all."""
        self.maps.save(path)

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """Read what `save` wrote, or the calibration in a model folder. Raises BadInput for anything else."""
        path = Path(path) / file_name() if Path(path).is_dir() else Path(path)
        maps = LanguageMaps.load(path)
        try:
            report = [Steps(**row) for row in json.loads(maps.about["report"])]
            return cls(maps, maps.about["pivot"], {steps.lang: steps for steps in report})
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"{path}: its description cannot be read ({error}). Fit it again.") from error


def _by_code(vectors: Mapping[str, Any]) -> dict[str, Any]:
    by_code: dict[str, Any] = {}
    for lang, cloud in vectors.items():
        code = find_code(lang) or lang
        if code in by_code or code == ANY:
            raise BadInput(
                f"'{lang}': the language '{code}' "
                + (
                    "is given twice. Pass all its vectors under one name."
                    if code in by_code
                    else "means any language. Pass a language code."
                )
            )
        by_code[code] = cloud
    return by_code


def _check(clouds: Mapping[str, Floats], moments: Mapping[str, Moments], pivot: str, remove: int) -> None:
    dim = clouds[pivot].shape[1]
    for lang, cloud in clouds.items():
        if cloud.shape[1] != dim:
            raise BadInput(
                f"{lang}: vectors of size {cloud.shape[1]}, those of the pivot '{pivot}' have "
                f"{dim}. All must come from one encoder."
            )
        if len(cloud) >= MIN_TEXTS and bool((cloud == cloud[0]).all()):
            raise BadInput(f"{lang}: all {len(cloud)} vectors are equal. Check that its texts differ.")
        if remove >= min(dim, max(len(cloud), MIN_TEXTS)):
            raise BadInput(
                f"remove={remove}: {lang} has {len(cloud):,} vectors of size {dim}, of which nothing would be left. "
                "Remove fewer components."
            )
    check_pivot(pivot, moments[pivot].texts)


def check_pivot(pivot: str, texts: int) -> None:
    """Raise BadInput for a pivot of too few texts to map other languages to."""
    if texts < MIN_TEXTS:
        raise BadInput(
            f"the pivot '{pivot}' has {texts} texts; {MIN_TEXTS} at least are needed, because every language is "
            "mapped to it."
        )


def _translations(
    pairs: Mapping[str, tuple[Any, Any]] | None, fitter: CalibrationFitter, clouds: Mapping[str, Floats], pivot: str
) -> dict[str, tuple[Floats, Floats]]:
    """The pairs, checked: every language has some where `rotate` needs them, and none has any where it does not."""
    if fitter.rotate != "supervised":
        if pairs:
            raise BadInput(f"pairs are used by rotate='supervised' only; rotate is '{fitter.rotate}'. Leave them out.")
        return {}
    by_code = _by_code(pairs or {})
    dim = clouds[pivot].shape[1]
    translations = {}
    for lang in clouds:
        if lang == pivot or len(clouds[lang]) < MIN_TEXTS:
            continue
        if lang not in by_code:
            raise BadInput(f"rotate='supervised' needs pairs of '{lang}' and '{pivot}'; none were passed.")
        source, target = (checked(side, f"pairs of {lang}") for side in by_code[lang])
        if source.shape != target.shape or source.shape[1] != dim:
            raise BadInput(
                f"pairs of {lang}: vectors of shapes {source.shape} and {target.shape}; both must be [pairs, {dim}]."
            )
        translations[lang] = source, target
    return translations
