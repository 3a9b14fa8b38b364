"""The sentence-transformers folder layout: an encoder's modules in it, read and written with built-in types only."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers.normalizers import Lowercase
from tokenizers.normalizers import Sequence as Normalizers
from torch import Tensor, nn
from torch.nn.functional import normalize as unit_length

from interlingua.errors import BadInput, Damaged
from interlingua.files import read_json, read_object
from interlingua.models.folder import (
    OURS,
    TYPES,
    Module,
    Pooling,
    Settings,
    read_lengths,
    read_pooling,
    require_safetensors,
    stored_role,
    subfolder,
)
from interlingua.models.language_maps import LanguageMaps
from interlingua.models.static.embedding import StaticEmbedding

if TYPE_CHECKING:
    from interlingua.models.transformer import Transformer

TANH = "torch.nn.modules.activation.Tanh"


ACTIVATIONS: dict[str, type[nn.Module]] = {
    TANH: nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.Sigmoid": nn.Sigmoid,
    "torch.nn.modules.activation.SiLU": nn.SiLU,
    "torch.nn.modules.linear.Identity": nn.Identity,
}
"""The names sentence-transformers writes for activations; a model file can name these and no other code."""


class Dense(nn.Module):
    """A linear layer and an activation on pooled vectors `[texts, in]` → `[texts, out]` (LaBSE: 768 → 768, tanh)."""

    def __init__(
        self, in_features: int, out_features: int, *, bias: bool = True, activation: str | None = None
    ) -> None:
        super().__init__()
        self.activation_name = activation or "torch.nn.modules.linear.Identity"
        if self.activation_name not in ACTIVATIONS:
            raise BadInput(f"Dense: activation {activation!r} is not one of the known ones: {', '.join(ACTIVATIONS)}.")
        self.linear = nn.Linear(in_features, out_features, bias=bias)
        self.activation = ACTIVATIONS[self.activation_name]()

    def forward(self, vectors: Tensor) -> Tensor:
        result: Tensor = self.activation(self.linear(vectors))
        return result


class Normalize(nn.Module):
    """Vectors `[texts, dim]` to unit length. Only where layers follow: the last one is `Parts.normalize`."""

    def forward(self, vectors: Tensor) -> Tensor:
        return unit_length(vectors, dim=-1)


@dataclass
class Parts:
    """The parts of an encoder. `pooling` is None for a static backbone, which has pooled already. `dense` are the
    layers after it; `language_maps`, if any, follow the last of them in `encode`. A backbone for inference
    alone is an `InferenceTransformer`, which computes the same as a `Transformer`."""

    backbone: Transformer | StaticEmbedding
    pooling: Pooling | None
    dense: list[Dense | Normalize] = field(default_factory=list)
    normalize: bool = False
    settings: Settings = field(default_factory=Settings)
    language_maps: LanguageMaps | None = None


def read_parts(folder: Path, modules: list[Module], settings: Settings, precision: str = "") -> Parts:
    """Load one encoder's modules: a Transformer with a Pooling, or a StaticEmbedding; then Dense and Normalize. With a
    `precision` the transformer is one for inference."""
    kinds = [kind for kind, _ in modules]
    if "MultiVectorMask" in kinds:
        raise BadInput(
            f"{folder}: holds a late-interaction model, which gives several vectors a text; a model that gives one is "
            "needed here. In Python LateInteractionEncoder.load loads it."
        )
    if not re.fullmatch(r"(Transformer Pooling|StaticEmbedding)( Dense| Normalize)*", " ".join(kinds)):
        raise BadInput(
            f"{folder}: modules {' → '.join(kinds) or 'none'} are not supported. Supported: "
            "Transformer → Pooling or StaticEmbedding, then Dense and Normalize."
        )
    backbone_folder = subfolder(folder, modules[0][1])
    if kinds[0] != "StaticEmbedding":
        backbone = read_transformer(backbone_folder, settings, precision)
    elif precision in ("", "float32", "auto"):
        backbone = _static(backbone_folder, settings)
    else:
        raise BadInput(f"{folder}: is a static model, which has no precision to choose. Leave the precision out.")
    parts = Parts(backbone, None, settings=settings)
    for kind, name in modules[1:]:
        path = subfolder(folder, name)
        if kind == "Pooling":
            parts.pooling = read_pooling(path)
        else:
            parts.dense.append(read_dense(path) if kind == "Dense" else Normalize())
    if kinds[-1] == "Normalize":
        parts.dense.pop()
        parts.normalize = True
    return parts


def _static(folder: Path, settings: Settings) -> StaticEmbedding:
    training = read_object(folder / OURS, training=dict).get("training") or {}
    dropout, weights = training.get("token_dropout", 0.0), training.get("token_weights", False)
    if not isinstance(dropout, float | int) or not 0 <= dropout < 1 or not isinstance(weights, bool):
        raise BadInput(
            f"{folder / OURS}: training is {training}; a token_dropout from 0 to below 1 and token_weights, true or "
            "false, are expected."
        )
    backbone, settings.max_length = StaticEmbedding.load(folder, token_dropout=float(dropout), token_weights=weights)
    return backbone


def read_transformer(folder: Path, settings: Settings, precision: str = "") -> Any:
    """The Transformer module of a folder, in a `precision` one for inference; its lengths go into `settings`."""
    backbone: Any
    if precision:
        from interlingua.models.inference.precision import load

        backbone = load(folder, precision)
    else:
        from interlingua.models.transformer import Transformer

        backbone = Transformer.load(folder)
    config = read_lengths(folder, settings, backbone.positions, backbone.model_max_length)
    tokenizer = backbone.subwords.tokenizer
    if config.get("do_lower_case") and not _lowers(tokenizer):
        tokenizer.normalizer = Normalizers([Lowercase(), *([tokenizer.normalizer] if tokenizer.normalizer else [])])
    return backbone


def _lowers(tokenizer: Any) -> bool:
    """Whether a tokenizer lower-cases texts before all else, as `do_lower_case` asks for."""
    own = tokenizer.normalizer
    return isinstance(own, Normalizers) and len(own) > 0 and isinstance(own[0], Lowercase)


def read_dense(folder: Path, of: str = "sentence_embedding") -> Dense:
    """A Dense module on what sentence-transformers calls `of`."""
    where = folder / "config.json"
    config = read_object(where, in_features=int, out_features=int, bias=bool, activation_function=str)
    names = {config.get(key) or of for key in ("module_input_name", "module_output_name")}
    if config.get("use_residual") or names != {of}:
        raise BadInput(f"{where}: only a plain Dense layer on {of} is supported here.")
    require_safetensors(folder)
    try:
        dense = Dense(
            config["in_features"],
            config["out_features"],
            bias=config.get("bias", True),
            activation=config.get("activation_function", TANH),
        )
        dense.load_state_dict(load_file(folder / "model.safetensors"))
    except (KeyError, RuntimeError, SafetensorError) as error:
        raise Damaged(f"{folder}: cannot be read as a Dense layer ({error}).") from error
    return dense


def write_parts(folder: Path, parts: Parts, prefix: str | None = None) -> list[Module]:
    """Write the modules of one encoder into `folder`; the list for modules.json.

    Without a prefix the backbone lies in the folder itself; with one (a Router's route) in a folder of its own.
    """
    kinds = ["StaticEmbedding" if parts.pooling is None else "Transformer"]
    kinds += ["Pooling"] * (parts.pooling is not None) + [type(layer).__name__ for layer in parts.dense]
    kinds += ["Normalize"] * parts.normalize
    modules = [(kind, f"{prefix}_{i}_{kind}" if prefix else f"{i}_{kind}" if i else "") for i, kind in enumerate(kinds)]
    dense = (layer for layer in parts.dense if isinstance(layer, Dense))
    for kind, name in modules:
        path = folder / name
        path.mkdir(exist_ok=True)
        if kind == "Dense":
            write_dense(path, next(dense))
        elif kind == "Pooling":
            write_json(
                path / "config.json",
                {
                    "embedding_dimension": parts.backbone.hidden_size,
                    "pooling_mode": parts.pooling,
                    "include_prompt": True,
                },
            )
        elif kind == "Normalize":
            write_normalize(path)
        else:
            _write_backbone(path, parts)
    return modules


def _write_backbone(folder: Path, parts: Parts) -> None:
    backbone, settings = parts.backbone, parts.settings
    if isinstance(backbone, StaticEmbedding):
        backbone.save(folder, settings.max_length)
        training = {"token_dropout": backbone.token_dropout, "token_weights": backbone.log_weights is not None}
        write_json(folder / OURS, {"template": settings.template, "training": training})
        return
    write_transformer(folder, backbone, settings)


def write_transformer(folder: Path, backbone: Transformer, settings: Settings, **more: Any) -> None:
    """Write a Transformer module with the lengths in `settings`; `more` goes into its configuration."""
    if settings.max_length is not None:
        backbone.tokenizer.model_max_length = settings.max_length
    backbone.save(folder)
    text = {"method": "forward", "method_output_name": "last_hidden_state"}
    lengths = {f"{role}_length": length for role, length in settings.role_lengths.items()}
    # some classes of transformers make their normaliser anew, whatever tokenizer.json says
    lower = {"do_lower_case": True} if _lowers(backbone.subwords.tokenizer) else {}
    write_json(
        folder / "sentence_bert_config.json",
        {
            "transformer_task": "feature-extraction",
            "modality_config": {"text": text},
            "module_output_name": "token_embeddings",
            **lengths,
            **lower,
            **more,
        },
    )


def write_normalize(folder: Path, of: str = "sentence_embedding") -> None:
    """Write a Normalize module for what sentence-transformers calls `of`."""
    write_json(folder / "config.json", {"module_input_name": of, "module_output_name": of})


def write_dense(folder: Path, dense: Dense, of: str = "sentence_embedding") -> None:
    """Write a Dense module for what sentence-transformers calls `of`."""
    write_json(
        folder / "config.json",
        {
            "in_features": dense.linear.in_features,
            "out_features": dense.linear.out_features,
            "bias": dense.linear.bias is not None,
            "activation_function": dense.activation_name,
            "module_input_name": of,
            "module_output_name": of,
        },
    )
    save_file(
        {name: value.detach().cpu().contiguous() for name, value in dense.state_dict().items()},
        folder / "model.safetensors",
    )


def write_root(
    folder: Path,
    modules: list[Module],
    settings: Settings,
    model_type: str = "SentenceTransformer",
    similarity: str | None = None,
) -> None:
    """Write modules.json, config_sentence_transformers.json and interlingua.json; `similarity` instead of that in
    `settings`."""
    entries = [{"idx": i, "name": str(i), "path": name, "type": TYPES[kind]} for i, (kind, name) in enumerate(modules)]
    write_json(folder / "modules.json", entries)
    prompts = {stored_role("query"): "", stored_role("passage"): "", **settings.prompts}
    write_json(
        folder / "config_sentence_transformers.json",
        {
            "model_type": model_type,
            "prompts": prompts,
            "default_prompt_name": settings.default_prompt_name,
            "similarity_fn_name": similarity or settings.similarity,
        },
    )
    write_json(folder / OURS, {**read_json(folder / OURS, {}), "template": settings.template})


def write_json(path: Path, content: Mapping[str, Any] | list[Any]) -> None:
    """Write `content` as a person can read it."""
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
