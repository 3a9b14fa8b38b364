"""The encoder: texts in, one vector each out. Backbone → pooling → Dense layers → unit length."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize as unit_length

from interlingua.errors import BadInput
from interlingua.files import atomic_folder, read_json, read_object
from interlingua.models.encode import (
    STATIC_TOKENS,
    TokenVectors,
    compute_dtype,
    default_device,
    encode_windows,
    precision,
    transformer_tokens,
)
from interlingua.models.folder import MaxLength, check, check_pooling, model_folder, read_modules, read_settings
from interlingua.models.inference.precision import chosen
from interlingua.models.language_maps import Langs, LanguageMaps, file_name
from interlingua.models.layout import Dense, Normalize, Parts, read_parts, write_parts, write_root
from interlingua.models.protocols import EncodesByRole, Vectors, as_texts, check_dimensions
from interlingua.models.static.embedding import StaticEmbedding
from interlingua.models.static.encoder import StaticSide
from interlingua.models.subwords import Text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from interlingua.models.transformer import Transformer

logger = logging.getLogger(__name__)


class _Options(TypedDict, total=False):
    """Those of `Encoder.encode` that do not change what it returns."""

    role: str | None
    batch_size: int | None
    prompt_name: str | None
    prompt: str | None
    show_progress_bar: bool | None
    normalize_embeddings: bool
    device: str | torch.device | None
    truncate_dim: int | None
    lang: Langs


def checked(precision: str | None, device: str | torch.device | None, dtype: str | torch.dtype | None) -> str:
    """The precision of a transformer for inference on a processor, "" for one that can be trained."""
    if precision is None:
        return ""
    if dtype is not None:
        raise BadInput("give precision, for inference on a processor, or dtype, not both.")
    return chosen(precision, default_device(device))


class BackboneEncoder(nn.Module):
    """An encoder on one backbone, as far as it is the same with one vector a text and with one a token."""

    backbone: Transformer | StaticEmbedding

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.parameters()).device

    @property
    def packs(self) -> bool:
        """Whether batches are computed without padding now; `backbone.packed` decides (None: by device)."""
        return not isinstance(self.backbone, StaticEmbedding) and self.backbone.packs()

    @property
    def hidden_size(self) -> int:
        """Size of a token state."""
        return self.backbone.hidden_size

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The transformers tokenizer. `tokenize` is the way to ids; this is for its vocabulary and special tokens."""
        return self.backbone.tokenizer

    @property
    def input_embeddings(self) -> nn.Module:
        """The embedding of the vocabulary; its `weight` is `[vocabulary, hidden]`. Set its `sparse` for row-sparse
        gradients (a static backbone's always are)."""
        return self.backbone.input_embeddings


class Encoder(BackboneEncoder, EncodesByRole):
    """A text encoder. Make one with `Encoder.load` or `build_encoder`; `parts` are its pieces.

    A text is a string or a `(title, text)` pair, joined by the encoder's own template. `role` is "query" or
    "passage"; it chooses the prompt and the length limit. `language_maps`, where it is not None, calibrates this
    encoder's vectors (see `interlingua.alignment`): `encode` applies it, `embed` does not.
    """

    def __init__(self, parts: Parts, *, dtype: str | torch.dtype | None = None) -> None:
        super().__init__()
        if not isinstance(parts, Parts):
            raise BadInput(f"Encoder is made of its parts. A folder or a name is loaded: Encoder.load({str(parts)!r}).")
        if (parts.pooling is None) != isinstance(parts.backbone, StaticEmbedding):
            raise BadInput("a transformer needs a pooling ('cls' or 'mean'), a static backbone takes none.")
        self.backbone = parts.backbone
        self.dense = nn.ModuleList(parts.dense)
        self.pooling = parts.pooling
        self.normalize = parts.normalize
        self.settings = parts.settings
        self.language_maps: LanguageMaps | None = parts.language_maps
        self.dtype = dtype
        self.eval()

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        *,
        pooling: str | None = None,
        layer: int | Sequence[int] | None = None,
        dense: bool | None = None,
        normalize: bool | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        precision: str | None = None,
        max_length: MaxLength = None,
        prompts: Mapping[str, str] | None = None,
        template: str | None = None,
    ) -> Encoder:
        """Load a Hugging Face id, a Hugging Face folder or a sentence-transformers folder.

        What is not given stays as the folder says; a bare Hugging Face model gets mean pooling. `layer=k` cuts the
        model to its first k layers and pools hidden state k (0 = embeddings); a list keeps these layers, from 0.
        `dense=False` leaves out the folder's Dense layers, such as LaBSE's pooler. So does another pooling or
        last layer, which they were not trained for, unless `dense=True`.
        `max_length` is a number of tokens or one per role. `template` joins title and text: a format string, or "pair"
        (`<s> title </s></s> text </s>`).
        `dtype` is what `encode` computes in (weights stay float32): by default float32 on a CPU, float16 on CUDA.

        `precision` loads a transformer for inference on a processor: "float32", "bfloat16", "int8", or "auto", the
        fastest there. Its weights are kept in that format, converted once into the user's cache. It is ready sooner
        than one without, and cannot be trained or saved.

        Raises BadInput for pickled weights, custom code, unknown modules or a folder that holds no model, and for a
        precision that the model or the processor cannot have.
        """
        folder = model_folder(name_or_path)
        precision = checked(precision, device, dtype)
        if (folder / "modules.json").is_file():
            modules = read_modules(folder)
            if modules[:1] and modules[0][0] == "Router":
                raise BadInput(
                    f"{folder}: holds two encoders, of queries and of passages. Load it with DualEncoder.load."
                )
            parts = read_parts(folder, modules, read_settings(folder), precision)
        elif (folder / "config.json").is_file():
            _check_architecture(folder)
            parts = read_parts(
                folder, [("Transformer", ""), ("Pooling", "1_Pooling")], read_settings(folder), precision
            )
        else:
            hint = f" Its model is {folder / 'model'}." if (folder / "model/modules.json").is_file() else ""
            raise BadInput(f"{folder}: is not a model folder (looked for modules.json and config.json).{hint}")
        if prompts is None and not any(parts.settings.prompts.values()) and _is_e5(folder):
            logger.warning(
                f"{folder}: E5 models read 'query: ' or 'passage: ' before a text, but this folder names no prompts. "
                "Write them into its config_sentence_transformers.json: "
                '"prompts": {"query": "query: ", "document": "passage: "}'
            )
        parts.language_maps = LanguageMaps.beside(folder)
        if (fingerprint := read_json(folder / "fingerprint.json")) is not None:
            check(cls(parts), fingerprint, str(folder))
        return cls.of(
            parts,
            pooling=pooling,
            layer=layer,
            dense=dense,
            normalize=normalize,
            device=device,
            dtype=dtype,
            max_length=max_length,
            prompts=prompts,
            template=template,
        )

    @classmethod
    def of(
        cls,
        parts: Parts,
        *,
        pooling: str | None = None,
        layer: int | Sequence[int] | None = None,
        dense: bool | None = None,
        normalize: bool | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        max_length: MaxLength = None,
        prompts: Mapping[str, str] | None = None,
        template: str | None = None,
    ) -> Encoder:
        """An encoder of these parts with the options of `load` applied to them."""
        backbone = parts.backbone
        changed = layer is not None or pooling not in (None, parts.pooling) or normalize not in (None, parts.normalize)
        changed |= dense is False and bool(parts.dense)
        if parts.language_maps is not None and changed:
            logger.warning("the calibration is left out: it was fitted with another layer, pooling or normalisation.")
            parts.language_maps = None
        heads = [part for part in parts.dense if isinstance(part, Dense)]
        if heads and not isinstance(backbone, StaticEmbedding) and dense is None:
            last = layer if isinstance(layer, int) else 1 + max(layer) if layer else backbone.layers
            dense = pooling in (None, parts.pooling) and last == backbone.layers
            if not dense:
                logger.warning("the Dense layers are left out: they were trained with another layer or pooling.")
        if dense is False:
            parts.dense = []
        limit = None
        if isinstance(backbone, StaticEmbedding):
            if pooling not in (None, "mean") or layer not in (None, 0) or isinstance(max_length, Mapping):
                raise BadInput(
                    "a static backbone has mean pooling, no layers and one max_length for all "
                    "roles: leave out pooling and layer, and give max_length as one number."
                )
        else:
            limit = backbone.positions
            if pooling is not None:
                parts.pooling = check_pooling(pooling)
            if isinstance(layer, int):
                backbone.cut(layer)
            elif layer is not None:
                backbone.keep(layer)
        parts.settings.change(prompts=prompts, template=template, max_length=max_length, limit=limit)
        if normalize is not None:
            parts.normalize = normalize
        place = default_device(device)
        compute_dtype(place, dtype)
        return cls(parts, dtype=dtype).to(place)

    @property
    def is_static(self) -> bool:
        """Whether vectors are means of subword vectors, without a transformer."""
        return isinstance(self.backbone, StaticEmbedding)

    def static_sides(self) -> tuple[StaticSide, StaticSide] | None:
        """The static encoders of questions and of passages, where vectors are means of subword vectors and nothing
        comes after; else None."""
        backbone = self.backbone
        if not isinstance(backbone, StaticEmbedding) or len(self.dense) or self.language_maps is not None:
            return None
        side = StaticSide(backbone.table, backbone.subwords, self.settings, self.normalize, self._without_gradient)
        return side, side

    def _without_gradient(self, ids: Sequence[Sequence[int]]) -> Vectors:
        """`embed_ids` as `encode` computes it."""
        training = self.training
        self.eval()
        try:
            with torch.inference_mode():
                return np.asarray(self.embed_ids(ids).float().cpu().numpy())
        finally:
            self.train(training)

    @property
    def dim(self) -> int:
        """Size of a vector."""
        sizes = [layer.linear.out_features for layer in self.dense if isinstance(layer, Dense)]
        return sizes[-1] if sizes else self.hidden_size

    @property
    def pad_id(self) -> int:
        """The padding token's id (XLM-R: 1)."""
        return self.backbone.pad_id

    @property
    def similarity(self) -> str:
        """The similarity by which vectors are to be compared: "cosine" or "dot"."""
        return self.settings.similarity

    def tokenize(self, texts: Sequence[Text], role: str | None = None, *, prompt: str | None = None) -> list[list[int]]:
        """Token ids of each text with the role's prompt and special tokens, cut to the role's length at the end."""
        return self.backbone.subwords(
            texts,
            prompt=self.settings.prompt(role, None, prompt),
            template=self.settings.template,
            max_length=self.settings.length(role),
        )

    def embed_ids(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Token ids of each text → float32 vectors `[texts, dim]`, in one forward pass, with gradient."""
        if not ids:
            return torch.empty(0, self.dim, device=self.device)
        if isinstance(self.backbone, StaticEmbedding):
            vectors = self.backbone.vectors(ids)
        else:
            vectors = self.backbone.vectors(ids, check_pooling(str(self.pooling)))
        for dense in self.dense:
            vectors = dense(vectors).float()
        return unit_length(vectors, dim=-1) if self.normalize else vectors

    def embed(self, texts: Sequence[Text], role: str | None = None) -> Tensor:
        """Texts → float32 vectors `[texts, dim]`, in one forward pass, with gradient."""
        return self.embed_ids(self.tokenize(texts, role))

    def forward(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """`embed_ids`, so that wrappers of modules work."""
        return self.embed_ids(ids)

    @overload
    def token_states(self, ids: Sequence[Sequence[int]], layer: None = None) -> tuple[Tensor, Tensor]: ...
    @overload
    def token_states(self, ids: Sequence[Sequence[int]], layer: int) -> tuple[Tensor, Tensor, Tensor]: ...
    def token_states(
        self, ids: Sequence[Sequence[int]], layer: int | None = None
    ) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
        """Token ids → `(states, lengths)`: last-layer states `[tokens of all texts, hidden]` laid end to end, and the
        number of tokens of each text `[texts]`. With `layer=k` also hidden state k (0 = embeddings) of the same
        forward pass, as a third tensor (Condenser). With gradient. Raises BadInput on a static backbone."""
        if isinstance(self.backbone, StaticEmbedding):
            raise BadInput("a static backbone has no token states; this needs a transformer.")
        states, lengths, early = self.backbone.token_states(ids, layer)
        return (states, lengths) if early is None else (states, lengths, early)

    @overload
    def encode(
        self,
        sentences: str | Sequence[Text],
        *,
        convert_to_tensor: Literal[True],
        convert_to_numpy: bool = True,
        **options: Unpack[_Options],
    ) -> Tensor: ...
    @overload
    def encode(
        self, sentences: str | Sequence[Text], *, convert_to_numpy: Literal[False], **options: Unpack[_Options]
    ) -> Tensor | list[Tensor]: ...
    @overload
    def encode(self, sentences: str | Sequence[Text], **options: Unpack[_Options]) -> Vectors: ...
    def encode(
        self,
        sentences: str | Sequence[Text],
        *,
        role: str | None = None,
        batch_size: int | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        show_progress_bar: bool | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        normalize_embeddings: bool = False,
        device: str | torch.device | None = None,
        truncate_dim: int | None = None,
        lang: Langs = None,
    ) -> Vectors | Tensor | list[Tensor]:
        """Vectors `[texts, dim]` in the order given; of a single string, `[dim]`. Argument names are those of
        sentence-transformers.

        `batch_size` counts texts; without it batches hold a budget of tokens, which is faster. Returns float32 NumPy,
        a float32 tensor on the device with `convert_to_tensor`, or a list of tensors with neither.

        `lang`, one code or one for each text, says whose map a calibrated encoder applies to the vectors (which then
        have unit length again if the encoder normalises); a language without one, or None, takes the map of all
        languages together. An encoder that is not calibrated has no use for it.
        """
        if device is not None:
            self.to(default_device(device))
        texts, single = as_texts(sentences)
        prefix = self.settings.prompt(role, prompt_name, prompt)
        autocast = precision(self.device, self.dtype)  # also of a static one: a dtype that the device lacks is an error
        on_device = convert_to_tensor or not convert_to_numpy
        vectors = torch.empty(len(texts), self.dim, device=self.device if on_device else "cpu")
        start = 0
        for window in encode_windows(
            self,
            texts,
            lambda batch: self.tokenize(batch, role, prompt=prefix),
            lambda ids: TokenVectors.one_each(self.embed_ids(ids).float()),
            precision=nullcontext() if self.is_static else autocast,
            tokens=STATIC_TOKENS if self.is_static else transformer_tokens(self.device, self.packs),
            batch_size=batch_size,
            progress=bool(show_progress_bar),
        ):
            vectors[start : start + len(window)] = window.vectors
            start += len(window)
        if self.language_maps is not None:
            vectors = self.language_maps.apply(vectors, lang)
            vectors = unit_length(vectors, dim=-1) if self.normalize else vectors
        if truncate_dim is not None:
            vectors = vectors[:, : check_dimensions(truncate_dim, self.dim)]
        if normalize_embeddings:
            vectors = unit_length(vectors, dim=-1)
        if convert_to_tensor:
            return vectors[0] if single else vectors
        if not convert_to_numpy:
            return vectors[0] if single else list(vectors)
        array: Vectors = vectors.numpy()
        return array[0] if single else array

    def _encode(self, sentences: str | Sequence[Text], role: str, **options: Any) -> Vectors | Tensor | list[Tensor]:
        vectors: Vectors | Tensor | list[Tensor] = self.encode(sentences, role=role, **options)
        return vectors

    def parts(self) -> Parts:
        """The pieces this encoder is made of, as the folder layout writes them."""
        dense: list[Any] = list(self.dense)
        return Parts(self.backbone, self.pooling, dense, self.normalize, self.settings, self.language_maps)

    def folded(self, lang: str) -> Encoder:
        """This encoder with the map of one language as its last layer, for software that knows no calibration: it
        gives the vectors of `encode(…, lang=lang)` for every text. Weights are shared. Raises BadInput for an
        encoder that is not calibrated and for a language that has no map."""
        if self.language_maps is None:
            raise BadInput("this encoder has no calibration to fold in. Fit one: interlingua calibrate.")
        parts = self.parts()
        weight, bias = self.language_maps.of(lang).fold()
        layer = Dense(self.dim, self.dim)
        layer.load_state_dict({"linear.weight": weight, "linear.bias": bias})
        parts.dense += [Normalize(), layer] if self.normalize else [layer]
        parts.language_maps = None
        return Encoder(parts, dtype=self.dtype).to(self.device)

    def save(self, path: str | Path) -> None:
        """Write a sentence-transformers folder, whole or not at all. An earlier save at `path` is replaced. The
        calibration lies beside the modules; sentence-transformers does not read it (see `folded`)."""
        with atomic_folder(path, "modules.json") as folder:
            write_root(folder, write_parts(folder, self.parts()), self.settings)
            if self.language_maps is not None:
                self.language_maps.save(folder / file_name())


def _check_architecture(folder: Path) -> None:
    """Raise BadInput for a folder of ColBERT's authors, of which transformers would read the BERT alone."""
    if "HF_ColBERT" in (read_object(folder / "config.json", architectures=list).get("architectures") or ()):
        raise BadInput(
            f"{folder}: is a ColBERT model in its authors' layout, which gives several vectors a text. Convert it with "
            "sentence-transformers 6: MultiVectorEncoder(name).save_pretrained(folder)."
        )


def _is_e5(folder: Path) -> bool:
    """Whether a model folder, or the hub's folder that it is a snapshot in, is called E5."""
    names = [folder.name, *(parent.name for parent in folder.parents if parent.name.startswith("models--"))]
    # those that follow instructions read no such prompts
    return any(re.search(r"(?:^|[-_])e5(?:[-_](?!.*instruct)|$)", name.lower()) for name in names)
