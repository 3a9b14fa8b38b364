"""One affine map for each language, applied to an encoder's vectors: what calibration leaves beside a model."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from interlingua.errors import BadInput, Damaged, suggestion
from interlingua.files import atomic_write
from interlingua.text.languages import find_code, language_key

logger = logging.getLogger(__name__)

ANY = "*"
"""The entry for a language that has no map of its own, or that nobody named."""
BLOCK = 16_384  # vectors mapped at a time

Langs = str | Sequence[str | None] | None
"""The language of all texts, of each text, or of none."""


@dataclass(frozen=True, eq=False)
class LanguageMap:
    """x → W·((x − shift) / scale): `shift` and `scale` float32 [dim], `rotation` W float32 [dim, dim] or None for
    the identity (Wu et al. 2022, cross-lingual calibration)."""

    shift: Tensor
    scale: Tensor
    rotation: Tensor | None = None

    def __call__(self, vectors: Tensor) -> Tensor:
        """Vectors [texts, dim] → float32 [texts, dim], on the device they are on."""
        result = (vectors.float() - self.shift.to(vectors.device)) / self.scale.to(vectors.device)
        return result if self.rotation is None else result @ self.rotation.to(vectors.device).T

    def fold(self) -> tuple[Tensor, Tensor]:
        """The same map as one layer, x → weight·x + bias: float32 [dim, dim] and [dim], multiplied out in float64."""
        shift, scale = self.shift.double(), self.scale.double()
        rotation = torch.eye(len(shift)).double() if self.rotation is None else self.rotation.double()
        weight = rotation / scale
        return weight.float(), -(weight @ shift).float()

    def fault(self, dim: int) -> str | None:
        """The reason why it is no map of `dim` dimensions; None where it is one."""
        expected = {"shift": (dim,), "scale": (dim,), "rotation": (dim, dim)}
        for part, tensor in self.tensors().items():
            if tuple(tensor.shape) != expected[part]:
                return f"{part} of shape {tuple(tensor.shape)}, {expected[part]} is needed"
            if not tensor.isfinite().all():
                return f"{part} holds NaN or infinity"
        return None if bool((self.scale > 0).all()) else "scale is not positive"

    def tensors(self) -> dict[str, Tensor]:
        """Its tensors by name."""
        return {part: tensor for part, tensor in vars(self).items() if tensor is not None}


@dataclass(eq=False)
class LanguageMaps:
    """Language → map; the entry "*" serves every other language. `about` is kept with them and not read here."""

    maps: dict[str, LanguageMap]
    about: dict[str, str] = field(default_factory=dict)
    _named: set[str] = field(default_factory=set)

    @property
    def dim(self) -> int:
        """Size of the vectors that the maps take and give."""
        return len(self.maps[ANY].shift)

    @property
    def languages(self) -> list[str]:
        """Those that have a map of their own."""
        return sorted(self.maps.keys() - {ANY})

    def find(self, lang: str | None) -> str | None:
        """The entry of a language, however its code is spelt ("fra", "fr-CA"; "no" and "nb" are one): None where it has
        none; "*" for None."""
        if lang is None:
            return ANY
        if not isinstance(lang, str):
            raise BadInput(
                f"lang {lang!r} is {type(lang).__name__}: give a language code such as 'fr', one "
                "for each text, or None."
            )
        for own in (lang, find_code(lang)):
            if own in self.maps:
                return own
        key = language_key(lang)
        return next((own for own in self.languages if key and language_key(own) == key), None)

    def of(self, lang: str | None) -> LanguageMap:
        """The map of a language. Raises BadInput with a suggestion for one that has none."""
        entry = self.find(lang)
        if entry is None:
            raise BadInput(
                f"no calibration was fitted for the language '{lang}'."
                f"{suggestion(str(lang), self.languages)} lang=None takes the one of all languages "
                "together."
            )
        return self.maps[entry]

    def apply(self, vectors: Tensor, langs: Langs) -> Tensor:
        """Vectors [texts, dim] → float32 [texts, dim], each by the map of its language.

        `langs` is the language of all or a list of one for each. A language without a map takes "*", which is said
        once. Raises BadInput for a list of another length and for vectors of another size.
        """
        if vectors.shape[-1] != self.dim:
            raise BadInput(
                f"the calibration is for vectors of size {self.dim}, these have "
                f"{vectors.shape[-1]}: it belongs to another encoder. Fit it again with this one."
            )
        names = [langs] * len(vectors) if langs is None or isinstance(langs, str) else list(langs)
        if len(names) != len(vectors):
            raise BadInput(f"{len(names)} languages for {len(vectors)} texts: give one for each text, or one for all.")
        rows: dict[str | None, list[int]] = defaultdict(list)
        for row, name in enumerate(names):
            rows[name].append(row)
        result = torch.empty(vectors.shape, device=vectors.device)
        with torch.no_grad():
            for name, indices in rows.items():
                language_map = self.maps[self._entry(name)]
                for start in range(0, len(indices), BLOCK):
                    part = torch.tensor(indices[start : start + BLOCK], device=vectors.device)
                    result[part] = language_map(vectors[part])
        return result

    def _entry(self, lang: str | None) -> str:
        entry = self.find(lang)
        if entry is None and lang not in self._named:
            self._named.add(str(lang))
            logger.warning(
                f"calibration: none was fitted for '{lang}', so its vectors take the one of all languages together "
                f"(fitted: {', '.join(self.languages)})"
            )
        return entry or ANY

    def save(self, path: str | Path) -> None:
        """Write one safetensors file, whole or not at all."""
        tensors = {
            f"{name}.{part}": tensor.contiguous()
            for name, language_map in self.maps.items()
            for part, tensor in language_map.tensors().items()
        }
        with atomic_write(path, "wb") as stream:
            stream.write(save(tensors, metadata=self.about))

    @classmethod
    def load(cls, path: str | Path) -> LanguageMaps:
        """Read what `save` wrote. Raises BadInput for a file that is something else or is damaged."""
        parts: dict[str, dict[str, Tensor]] = defaultdict(dict)
        try:
            with safe_open(path, "pt") as file:
                about = dict(file.metadata() or {})
                for key in file.keys():  # noqa: SIM118 (a file handle, which is no mapping)
                    name, _, part = key.rpartition(".")
                    parts[name][part] = file.get_tensor(key)
            maps = {name: LanguageMap(**tensors) for name, tensors in parts.items()}
            dim = len(maps[ANY].shift)
        except (SafetensorError, OSError, TypeError, KeyError) as error:
            raise Damaged(f"{path}: cannot be read as a calibration ({error}). Fit it again.") from error
        for name, language_map in maps.items():
            if fault := language_map.fault(dim):
                raise Damaged(f"{path}: the map of '{name}' is damaged ({fault}). Fit it again.")
        return cls(maps, about)

    @classmethod
    def beside(cls, folder: Path, role: str = "") -> LanguageMaps | None:
        """The maps in a model folder, or None where there are none. `role` is one of a model of two encoders."""
        path = folder / file_name(role)
        return cls.load(path) if path.is_file() else None


def file_name(role: str = "") -> str:
    """The name of the maps' file in a model folder."""
    return f"{role}_calibration.safetensors" if role else "calibration.safetensors"
