"""The number format of a transformer's weights: which one, and its conversion, which is kept in the user's cache."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from interlingua.errors import BadInput, suggestion
from interlingua.files import atomic_folder
from interlingua.models.folder import PROBE, weight_lines
from interlingua.models.inference.bert import InferenceTransformer, converted
from interlingua.models.inference.int8 import kernel
from interlingua.models.inference.kept import MARKER, TABLE, WEIGHTS, Config, Kept, place_of
from interlingua.models.inference.machine import cpu_has_bfloat16, processor
from interlingua.models.inference.unigram import keep
from interlingua.models.static.encoder import mapped

if TYPE_CHECKING:
    from interlingua.models.transformer import Transformer

logger = logging.getLogger(__name__)

KEPT = 1 << 22
"""Weights from which on a conversion is kept: that of a smaller model takes no time."""


def fastest() -> str:
    """The precision that this processor computes fastest.

    bfloat16 where it has units for whole matrices (AMX, or those of ARM); int8 where there is a kernel for it; else
    float32. The vector instructions avx512_bf16 alone are no faster than float32 on Intel's processors.
    """
    if {"amx_bf16", "bf16"} & processor():
        return "bfloat16"
    return "float32" if kernel() is None else "int8"


def chosen(precision: str, device: torch.device) -> str:
    """The precision that a user means by `precision`; "auto" stays, since each model decides what it can have. ""
    where a GPU computes: it has its own formats.

    Raises BadInput for an unknown one, and for one that the processor or a GPU cannot have.
    """
    precisions = ("float32", "bfloat16", "int8", "auto")
    if precision not in precisions:
        raise BadInput(f"precision '{precision}' is unknown.{suggestion(precision, precisions)}")
    if device.type != "cpu":
        if precision in ("float32", "auto"):
            return ""
        raise BadInput(
            f"precision {precision}: is for processors, the model runs on {device}. Leave it out, or give dtype there."
        )
    if precision == "bfloat16" and not cpu_has_bfloat16():
        raise BadInput("precision bfloat16: this processor has no bfloat16 units. Use int8 or float32.")
    return precision


def load(folder: Path, precision: str) -> InferenceTransformer | Transformer:
    """The transformer of a Hugging Face folder with its weights in a precision; "auto" is `fastest`, which is said. The
    first time it is converted into the user's cache. Of another kind than `Config` there is float32 alone, as
    transformers computes it.

    Raises BadInput for another precision of such a model, and where the folder cannot be loaded.
    """
    choice, precision = precision, fastest() if precision == "auto" else precision
    if choice == "auto":
        logger.info(f"precision {precision}: the fastest on this processor")
    place = place_of(folder, precision)
    try:
        return _read(folder, precision)
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        logger.warning(f"{place}: is damaged ({error}), so it is made again")
        shutil.rmtree(place, ignore_errors=True)
    from interlingua.models.transformer import Transformer

    transformer = Transformer.load(folder)
    if (choice == "auto" or precision == "float32") and not Config.fits(transformer.model.config):
        if choice == "auto" and precision != "float32":
            logger.info(f"{folder}: is no BERT or RoBERTa, so it stays in float32")
        return transformer
    model, about, weights = _converted(transformer, precision)
    if sum(weight.numel() for weight in weights.values()) < KEPT:
        return model
    try:
        with atomic_folder(place, MARKER) as new_folder:
            about["prefix"] = _prefix(folder, weights) if precision == "float32" else None
            if about["prefix"] is None:
                save_file(weights, new_folder / WEIGHTS)
            transformer.subwords.tokenizer.save(str(new_folder / "tokenizer.json"), pretty=False)
            about["vocabulary"] = keep(transformer.subwords.tokenizer, new_folder)
            (new_folder / MARKER).write_text(json.dumps(about), encoding="utf-8")
        for old in place.parent.glob(f"{place.name.partition('-')[0]}-*-{precision}"):  # of what the folder held before
            if old != place:
                shutil.rmtree(old, ignore_errors=True)
    except (OSError, BadInput) as error:
        logger.warning(f"{place}: cannot be kept ({error}), so the model is converted each time")
    return model


def _read(folder: Path, precision: str) -> InferenceTransformer:
    kept = Kept.read(folder, precision)
    arrays = mapped(kept.weights_file, wide=False)
    tensors: dict[str, Any] = arrays
    if precision != "int8":
        tensors = {**load_file(kept.weights_file), kept.prefix + TABLE: arrays[kept.prefix + TABLE]}
    weights = {name.removeprefix(kept.prefix): weight for name, weight in tensors.items()}
    model = InferenceTransformer(
        kept.config, weights, kept.subwords, precision, lines=kept.lines, agreement=kept.agreement
    )
    model.model_max_length, model.weights_file = kept.max_length, str(kept.weights_file)
    return model


def _prefix(folder: Path, weights: Mapping[str, torch.Tensor]) -> str | None:
    """The prefix of these weights' names in the folder's own file; None where that does not hold all of them in
    float32."""
    if not (folder / WEIGHTS).is_file():
        return None
    with safe_open(folder / WEIGHTS, "pt") as file:
        names = set(file.keys())
        for prefix in ("", "bert.", "roberta."):
            if all(f"{prefix}{name}" in names for name in weights):
                is_float32 = all(file.get_slice(f"{prefix}{name}").get_dtype() == "F32" for name in weights)
                return prefix if is_float32 else None
    return None


def _converted(
    transformer: Transformer, precision: str
) -> tuple[InferenceTransformer, dict[str, Any], dict[str, torch.Tensor]]:
    """A transformer in a precision, what the cache says of it, and its weights."""
    weights = {
        part: tensor.contiguous()
        for name, weight in transformer.model.named_parameters()
        if not name.startswith("pooler.")
        for part, tensor in converted(name, weight, precision).items()
    }
    about: dict[str, Any] = {
        "config": Config.of(transformer.model.config)._asdict(),
        "max_length": transformer.model_max_length,
        "lines": weight_lines(transformer),
        "agreement": 1.0,
    }
    config = Config(**about["config"])
    model = InferenceTransformer(config, weights, transformer.subwords, precision, lines=about["lines"], agreement=1.0)
    model.model_max_length = about["max_length"]
    if precision != "float32":
        ids = transformer.subwords(PROBE)
        with torch.inference_mode():
            pairs = model.vectors(ids, "mean"), transformer.vectors(ids, "mean")
        model.agreement = about["agreement"] = round(float(torch.cosine_similarity(*pairs).min()), 4)
    return model, about, weights
