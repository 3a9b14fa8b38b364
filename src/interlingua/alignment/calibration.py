"""Cross-lingual calibration: shift, scale and rotate the vectors of each language onto those of a pivot.

Wu et al. 2022 (CCP), for a trained encoder and sentence retrieval. It needs raw sentences of each language, no pairs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from interlingua.alignment.adversarial import Adversarial
from interlingua.alignment.csls import Floats
from interlingua.alignment.fitting import Plan
from interlingua.alignment.spread import Spread, checked
from interlingua.alignment.steps import Steps, steps_table
from interlingua.errors import InterlinguaError, suggestion
from interlingua.models.language_maps import ANY, LanguageMap, LanguageMaps, file_name
from interlingua.progress import say, track
from interlingua.text.languages import find_code

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
    def fit(cls, vectors: Mapping[str, Any], pivot: str = "en", *, shift: bool = True, scale: str | None = "std",
            rotate: str | None = "refine", seed: int = 0, pairs: Mapping[str, tuple[Any, Any]] | None = None,
            adversarial: Adversarial | None = None) -> Calibration:
        """Fit on `vectors`: language → [texts, dim] of raw sentences, which are nobody's translations.

        For each language, x → W·(x − mean) / std (`scale` "std", "variance" or None), each step measured by itself.
        W is orthogonal, from the language to the pivot; the pivot is not rotated. Two other languages meet in the
        pivot's space. `rotate`: "refine" (mutual CSLS neighbours and Procrustes, from the identity), "adversarial"
        (MUSE's game first, with the settings `adversarial`), "supervised" (Procrustes on `pairs`: language → vectors
        and vectors of their translations into the pivot) or None. Without pairs, a fifth of the texts measures the
        rotation that the others made, and where it shows no clear gain there is no rotation.

        A language of fewer than 50 texts gets its own mean, the pivot's scale and no rotation, which is said. The entry
        "*" has the mean and scale of all languages together, each weighing the same, and no rotation. Texts beyond
        75,000 of a language count in its mean and scale alone. Deterministic for a seed and machine.

        Raises InterlinguaError where the pivot is missing or has fewer than 50 texts, for shapes that do not fit, NaN,
        zero vectors, vectors that are all the same, and pairs that are missing or not asked for.
        """
        plan = Plan(shift, scale or "none", rotate or "none", seed, adversarial or Adversarial())
        given, pivot = _by_code(vectors), find_code(pivot) or pivot
        if pivot not in given:
            raise InterlinguaError(f"there are no vectors of the pivot '{pivot}'.{suggestion(pivot, given)}")
        clouds = {lang: checked(given[lang], lang) for lang in sorted(given)}
        spreads = {lang: Spread.of(cloud) for lang, cloud in clouds.items()}
        home = spreads[pivot]
        _check(clouds, spreads, pivot)
        translations = _translations(pairs, plan, clouds, pivot)
        target = plan.sample(clouds[pivot], pivot)
        maps = {ANY: Spread.pooled(spreads.values()).map(shift, plan.scale), pivot: home.map(shift, plan.scale)}
        report = {pivot: Steps(pivot, home.texts, note="the pivot")}
        for lang in track([lang for lang in clouds if lang != pivot], "calibrate (languages)"):
            if spreads[lang].texts < MIN_TEXTS:
                note = f"fewer than {MIN_TEXTS} texts: its own mean, the pivot's scale, no rotation"
                say(f"{lang}: {spreads[lang].texts} texts, {note}")
                borrowed = Spread(home.texts, spreads[lang].mean, home.std)
                maps[lang], report[lang] = borrowed.map(shift, plan.scale), Steps(lang, spreads[lang].texts, note=note)
            else:
                maps[lang], report[lang] = plan.fit(lang, clouds[lang], spreads[lang], target, home,
                                                    translations.get(lang))
        about = {"format": "interlingua calibration 1", "pivot": pivot,
                 "settings": json.dumps({"shift": shift, "scale": plan.scale, "rotate": plan.rotate, "seed": seed}),
                 "report": json.dumps([asdict(one) for one in report.values()], ensure_ascii=False)}
        return cls(LanguageMaps(maps, about), pivot, report)

    def transform(self, vectors: Any, lang: str | None) -> Any:
        """`vectors` [texts, dim] of a language in the pivot's space, float32; a tensor for a tensor, else NumPy.

        `lang=None` takes the entry "*". Raises InterlinguaError with a suggestion for a language that was not fitted,
        for another dim, NaN and zero vectors.
        """
        name = self.of(lang)
        array = checked(vectors, lang or "vectors")
        if array.shape[1] != self.maps.dim:
            raise InterlinguaError(f"the calibration is for vectors of size {self.maps.dim}, these have "
                                   f"{array.shape[1]}: they come from another encoder.")
        mapped = name(torch.from_numpy(array))
        return mapped.to(vectors.device) if isinstance(vectors, Tensor) else mapped.numpy()

    def of(self, lang: str | None) -> LanguageMap:
        """The map of a language, of all together for None. Raises InterlinguaError for one that was not fitted."""
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
        """Read what `save` wrote, or the calibration in a model folder. Raises InterlinguaError for anything else."""
        path = Path(path) / file_name() if Path(path).is_dir() else Path(path)
        maps = LanguageMaps.load(path)
        try:
            report = [Steps(**row) for row in json.loads(maps.about["report"])]
            return cls(maps, maps.about["pivot"], {one.lang: one for one in report})
        except (KeyError, TypeError, ValueError) as error:
            raise InterlinguaError(f"{path}: its description cannot be read ({error}). Fit it again.") from error


def _by_code(vectors: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for lang, cloud in vectors.items():
        code = find_code(lang) or lang
        if code in found or code == ANY:
            raise InterlinguaError(f"'{lang}': the language '{code}' " + ("is given twice. Put its vectors together."
                                   if code in found else "stands for all languages. Give a language code."))
        found[code] = cloud
    return found


def _check(clouds: Mapping[str, Floats], spreads: Mapping[str, Spread], pivot: str) -> None:
    dim = clouds[pivot].shape[1]
    for lang, cloud in clouds.items():
        if cloud.shape[1] != dim:
            raise InterlinguaError(f"{lang}: vectors of size {cloud.shape[1]}, those of the pivot '{pivot}' have "
                                   f"{dim}. All must come from one encoder.")
        if len(cloud) >= MIN_TEXTS and bool((cloud == cloud[0]).all()):
            raise InterlinguaError(f"{lang}: all its {len(cloud)} vectors are the same. Are its texts?")
    if spreads[pivot].texts < MIN_TEXTS:
        raise InterlinguaError(f"the pivot '{pivot}' has {spreads[pivot].texts} texts; {MIN_TEXTS} at least are "
                               "needed, since every language is brought to it.")


def _translations(pairs: Mapping[str, tuple[Any, Any]] | None, plan: Plan, clouds: Mapping[str, Floats], pivot: str
                  ) -> dict[str, tuple[Floats, Floats]]:
    """The pairs, checked: there for every language where they are asked for, and nowhere else."""
    if plan.rotate != "supervised":
        if pairs:
            raise InterlinguaError(f"pairs are for rotate='supervised', not for '{plan.rotate}'. Leave them out.")
        return {}
    given = _by_code(pairs or {})
    dim = clouds[pivot].shape[1]
    found = {}
    for lang in clouds:
        if lang == pivot or len(clouds[lang]) < MIN_TEXTS:
            continue
        if lang not in given:
            raise InterlinguaError(f"rotate='supervised' needs pairs of '{lang}' and '{pivot}', and there are none.")
        source, target = (checked(side, f"pairs of {lang}") for side in given[lang])
        if source.shape != target.shape or source.shape[1] != dim:
            raise InterlinguaError(f"pairs of {lang}: vectors of shapes {source.shape} and {target.shape}; both "
                                   f"must be [pairs, {dim}].")
        found[lang] = source, target
    return found
