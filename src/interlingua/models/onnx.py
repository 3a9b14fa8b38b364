"""Export an encoder as ONNX."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize as unit_length

from interlingua.errors import BadInput, NotFound
from interlingua.files import atomic_folder
from interlingua.models.encoder import Encoder
from interlingua.models.folder import check_pooling
from interlingua.models.language_maps import ANY
from interlingua.models.layout import write_json
from interlingua.models.static.embedding import StaticEmbedding
from interlingua.models.transformer import pool_padded

INPUTS = ("input_ids", "attention_mask")
OUTPUT = "sentence_embedding"
OPSET = 18
MARKER = "onnx.json"
_SINGLE_FILE = 1 << 30  # bytes of weights in model.onnx itself; more lie in a file beside it (protobuf ends at 2 GB)


class PaddedEncoder(nn.Module):
    """The encoder on padded ids `[texts, longest]` and their 0/1 mask, right-padded: float32 vectors `[texts, dim]`.

    What `Encoder.embed_ids` computes, in operations that a graph can hold: no packing, no lengths known beforehand.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.rows: nn.Embedding | None = None
        if isinstance(encoder.backbone, StaticEmbedding):
            rows = encoder.backbone.folded()
            self.rows = nn.Embedding(rows.shape[0], rows.shape[1], _weight=rows)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        encoder = self.encoder
        if self.rows is not None:
            weights = attention_mask.unsqueeze(-1).float()
            vectors = (self.rows(input_ids) * weights).sum(1) / weights.sum(1).clamp(min=1.0)
        else:
            model: Any = encoder.backbone.model
            states = model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
            vectors = pool_padded(states, attention_mask, check_pooling(str(encoder.pooling)))
        for layer in encoder.dense:
            vectors = layer(vectors).float()
        return unit_length(vectors, dim=-1) if encoder.normalize else vectors


def export_onnx(encoder: Encoder, folder: str | Path, *, role: str = "passage", lang: str | None = None) -> Path:
    """Write a folder, whole or not at all, and return the path of its `model.onnx`.

    `model.onnx` takes int64 `input_ids` and `attention_mask` `[texts, tokens]`, both axes of any size, and gives
    `sentence_embedding` float32 `[texts, dim]`. `tokenizer.json` cuts at the role's length and pads, so that the
    library `tokenizers` alone makes the inputs; `onnx.json` names the prompt to put in front and the similarity.
    A calibrated encoder is exported with the map of `lang` as its last layer, or that of all languages together.

    Raises BadInput without the extra `onnx`, for `lang` on an encoder that is not calibrated, and for a folder
    that holds something else.
    """
    if encoder.language_maps is not None:
        encoder = encoder.folded(lang or ANY)
    elif lang is not None:
        raise BadInput(
            f"lang '{lang}': this encoder is not calibrated, so it has one ONNX for all languages. "
            "Leave the language out."
        )
    _require_onnxscript()
    encoder.eval()
    special = not encoder.is_static
    with atomic_folder(folder, MARKER) as place:
        _write_graph(encoder, place / "model.onnx")
        tokenizer = copy.deepcopy(encoder.backbone.subwords.tokenizer)
        length = encoder.settings.length(role)
        if length is not None:
            tokenizer.enable_truncation(length)
        pad = tokenizer.id_to_token(encoder.pad_id)
        tokenizer.enable_padding(pad_id=encoder.pad_id, **({} if pad is None else {"pad_token": pad}))
        tokenizer.save(str(place / "tokenizer.json"))
        write_json(
            place / MARKER,
            {
                "inputs": list(INPUTS),
                "output": OUTPUT,
                "dim": encoder.dim,
                "role": role,
                "prompt": encoder.settings.prompt(role),
                "template": encoder.settings.template,
                "max_length": length,
                "add_special_tokens": special,
                "similarity": encoder.similarity,
                "opset": OPSET,
            },
        )
    return Path(folder) / "model.onnx"


def _write_graph(encoder: Encoder, file: Path) -> None:
    module = PaddedEncoder(encoder).eval()
    # Two texts of different lengths: an axis of one would be taken for a constant.
    ids = torch.full((2, 5), 3, dtype=torch.long, device=encoder.device)
    mask = torch.ones_like(ids)
    mask[1, 3:] = 0
    axes = {0: torch.export.Dim("texts"), 1: torch.export.Dim("tokens")}
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                module,
                (ids, mask),
                dynamo=True,
                input_names=INPUTS,
                output_names=[OUTPUT],
                opset_version=OPSET,
                dynamic_shapes=dict.fromkeys(INPUTS, axes),
                verbose=False,
            )
            if program is None:  # only where a file name was given
                raise RuntimeError("no graph came back")
            size = sum(weight.numel() * weight.element_size() for weight in module.parameters())
            program.save(file, external_data=size > _SINGLE_FILE)
    except Exception as error:  # torch.onnx raises whatever went wrong in any of its stages
        config = getattr(getattr(encoder.backbone, "model", None), "config", None)
        raise BadInput(
            f"torch.onnx cannot export this {getattr(config, 'model_type', 'static')} encoder "
            f"({type(error).__name__}: {str(error).strip().splitlines()[0][:200]})."
        ) from error


def _require_onnxscript() -> None:
    try:
        import onnxscript  # noqa: F401
    except ImportError:
        raise NotFound("ONNX export needs onnx and onnxscript: pip install 'interlingua[onnx]'") from None


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter prints its stages and warns of axes whose names it shares; a person has no use for either."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
