"""A transformer without torch: ready for a question when torch would still be loading.

It computes what `InferenceTransformer` computes, in float32 or int8 weights. In float32, longer calls are handed to
that one, which is loaded then: torch takes half the time for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from interlingua.errors import BadInput, Stale
from interlingua.files import read_json
from interlingua.lazy import Once
from interlingua.models.folder import (
    Pooling,
    Settings,
    check,
    fingerprint,
    model_folder,
    read_lengths,
    read_modules,
    read_pooling,
    read_settings,
    subfolder,
)
from interlingua.models.inference.kept import Kept
from interlingua.models.inference.layers import Layers
from interlingua.models.inference.machine import has_no_gpu
from interlingua.models.protocols import EncodesByRole, as_texts
from interlingua.models.static.encoder import TINY, encode_side, mapped
from interlingua.models.subwords import Text

if TYPE_CHECKING:
    from torch import Tensor

    from interlingua.models.dual import DualEncoder
    from interlingua.models.encoder import Encoder

Floats = NDArray[np.float32]
FEW, PATIENCE = 2_000, 20_000
"""Characters of a call, and of all calls together, that are computed here in float32: more are worth loading torch."""
OPTIONS = {"prompt_name", "prompt", "normalize_embeddings", "truncate_dim", "lang", "batch_size", "show_progress_bar"}
"""Those of `Encoder.encode` that are known here."""


class LightEncoder(EncodesByRole):
    """An encoder that computes as `DualEncoder.load` with a precision does, for few texts at a time. Make one with
    `load`. Safe to use from several threads."""

    is_static, language_maps = False, None

    def __init__(
        self, kept: Kept, settings: Settings, pooling: Pooling, normalize: bool, load: Callable[[], DualEncoder]
    ) -> None:
        weights = {name.removeprefix(kept.prefix): array for name, array in mapped(kept.weights_file).items()}
        self.backbone, self.settings, self.pooling, self.normalize = kept, settings, pooling, normalize
        self.whole = Once(lambda: self._same(load()))
        """The encoder that computes longer calls, loaded at the first of them. Raises Stale where the model's folder
        holds another model by then."""
        self._layers = Layers(kept.config, weights, kept.precision == "int8")
        self._read, self._counting = 0, Lock()

    @classmethod
    def load(cls, name_or_path: str | Path, precision: str = "float32") -> LightEncoder | None:
        """The encoder of a folder or name in a precision, where its conversion is in the user's cache, and NumPy
        computes the same: float32 or int8, a Transformer with a Pooling, without Dense layers and calibration, and no
        GPU here. Else None."""
        folder = model_folder(name_or_path)
        if precision not in ("float32", "int8") or not has_no_gpu() or not (folder / "modules.json").is_file():
            return None
        modules = read_modules(folder)
        plain = [kind for kind, _ in modules] in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
        if not plain or any(folder.glob("*calibration.safetensors")):
            return None
        module_folder, settings = subfolder(folder, modules[0][1]), read_settings(folder)
        try:
            kept = Kept.read(module_folder, precision)
            if read_lengths(module_folder, settings, kept.config.positions, kept.max_length).get("do_lower_case"):
                return None
            pooling = read_pooling(subfolder(folder, modules[1][1]))
            encoder = cls(kept, settings, pooling, len(modules) == 3, lambda: _whole(folder, precision))
        except (OSError, ValueError, KeyError, TypeError):  # whoever loads the whole one converts it, or says more
            return None
        if (recorded := read_json(folder / "fingerprint.json")) is not None:
            check(encoder, recorded, str(folder))
        return encoder

    @property
    def similarity(self) -> str:
        """ "cosine" or "dot"."""
        return self.settings.similarity

    @property
    def dim(self) -> int:
        """Size of a vector."""
        return self.backbone.config.hidden_size

    @property
    def query(self) -> Encoder:
        """The whole encoder of questions."""
        return self.whole().query

    @property
    def passage(self) -> Encoder:
        """The whole encoder of passages."""
        return self.whole().passage

    def encoder(self, role: str) -> LightEncoder:
        """The encoder of a role: the same for both."""
        return self

    def tokenize(self, texts: Sequence[Text], role: str | None = None, *, prompt: str | None = None) -> list[list[int]]:
        """As `Encoder.tokenize`."""
        prompt = self.settings.prompt(role, None, prompt)
        template, length = self.settings.template, self.settings.length(role)
        return self.backbone.subwords(texts, prompt=prompt, template=template, max_length=length)

    def _encode(self, sentences: str | Sequence[Text], role: str, **options: Any) -> Floats | Tensor | list[Tensor]:
        if not isinstance(sentences, str):
            sentences, _ = as_texts(sentences)  # an iterator is read once
        if self._is_ours(sentences, options):
            return encode_side(self, sentences, role, **options)
        return self.whole()._encode(sentences, role, **options)

    def _is_ours(self, sentences: str | Sequence[Text], options: dict[str, Any]) -> bool:
        """Whether a call is computed here: with known options, in int8 always, else with few characters."""
        if not options.keys() <= OPTIONS:
            return False
        if self.backbone.precision == "int8":  # by the same code in both
            return True
        if self.whole.value is not None:
            return False
        texts, _ = as_texts(sentences)
        size = sum(len(part) for text in texts for part in ([text] if isinstance(text, str) else text))
        with self._counting:
            self._read += size
            return size <= FEW and self._read <= PATIENCE

    def _same(self, whole: DualEncoder) -> DualEncoder:
        try:
            check(whole, fingerprint(self), str(self.backbone.place))
        except BadInput as error:
            raise Stale("the model was replaced after it was loaded. Load it again.") from error
        return whole

    def vectors(self, ids: Sequence[Sequence[int]]) -> Floats:
        """Token ids of each text → float32 `[texts, dim]`."""
        vectors = self._layers.vectors(ids, self.pooling)
        if self.normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), TINY)
        return vectors


def _whole(folder: Path, precision: str) -> DualEncoder:
    from interlingua.models.dual import DualEncoder

    return DualEncoder.load(folder, device="cpu", precision=precision)
