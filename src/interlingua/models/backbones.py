"""The three backbones of a recipe: a pretrained model by name, a small transformer from nothing, static vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from transformers import XLMRobertaConfig, XLMRobertaModel

from interlingua.errors import InterlinguaError
from interlingua.models.encoder import Encoder
from interlingua.models.layout import Parts
from interlingua.models.settings import Settings
from interlingua.models.static import StaticEmbedding
from interlingua.models.tokenizer import token_counts, train_tokenizer, with_special_tokens
from interlingua.models.transformer import Transformer


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Scratch(_Strict):
    """A transformer of XLM-R's shape with random weights and a vocabulary of its own; or, with `embeddings`, with the
    vocabulary and the subword vectors of a static model (a folder or name, of `hidden` dimensions)."""

    vocab_size: int = Field(16_000, ge=16)
    layers: int = Field(4, ge=1)
    hidden: int = Field(256, ge=1)
    heads: int = Field(4, ge=1)
    intermediate: int = Field(1_024, ge=1)
    max_length: int = Field(256, ge=8)
    dropout: float = Field(0.1, ge=0, lt=1)
    lowercase: bool = False
    embeddings: str | None = None

    @model_validator(mode="after")
    def _heads_fit(self) -> Scratch:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        return self


class Static(_Strict):
    """Subword vectors without a transformer.

    `sif` is a of the weights a / (a + p(token)) that the random vectors start with (smooth inverse frequency, Arora
    et al. 2017), so that frequent subwords weigh little. `byte_fallback`: characters without a token of their own are
    their bytes. `int8`: how the trained vectors are saved.
    """

    vocab_size: int = Field(32_000, ge=16)
    dim: int = Field(256, ge=1)
    token_dropout: float = Field(0.0, ge=0, lt=1)
    token_weights: bool = False
    sif: float = Field(1e-3, gt=0)
    max_length: int | None = Field(None, ge=1)
    lowercase: bool = False
    character_coverage: float = Field(0.9995, gt=0, le=1)
    byte_fallback: bool = False
    int8: bool = False


class Backbone(_Strict):
    """Exactly one of a scratch transformer and static vectors."""

    scratch: Scratch | None = None
    static: Static | None = None

    @model_validator(mode="after")
    def _one(self) -> Backbone:
        if (self.scratch is None) == (self.static is None):
            raise ValueError("give exactly one of scratch and static")
        return self


def build_encoder(
    spec: str | Path | Mapping[str, Any] | Backbone, *, texts: Iterable[str] | None = None, seed: int = 0,
    **options: Any,
) -> Encoder:
    """The encoder a recipe's `backbone:` describes: a name or path, `{"scratch": {…}}` or `{"static": {…}}`.

    `texts` are what a new vocabulary is learned from. `options` are those of `Encoder.load`; new backbones have mean
    pooling unless told otherwise. The same spec, texts and seed give the same weights.
    Raises InterlinguaError for an unknown field, or a new backbone without texts.
    """
    if isinstance(spec, (str, Path)):
        return Encoder.load(spec, **options)
    try:
        backbone = spec if isinstance(spec, Backbone) else Backbone.model_validate(dict(spec))
    except ValidationError as error:
        reasons = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'backbone'}: {e['msg']}" for e in error.errors())
        raise InterlinguaError(f"backbone: {reasons}.") from error
    if texts is None:
        raise InterlinguaError("backbone: a new vocabulary is learned from text; give `texts`.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if backbone.scratch is not None:
            return Encoder.of(_scratch(backbone.scratch, texts), **options)
        if backbone.static is not None:
            return Encoder.of(_static(backbone.static, list(texts)), **options)
    raise AssertionError("validated above")


def _scratch(spec: Scratch, texts: Iterable[str]) -> Parts:
    rows = None if spec.embeddings is None else _static_rows(spec)
    tokenizer = (train_tokenizer(texts, spec.vocab_size, lowercase=spec.lowercase, max_length=spec.max_length)
                 if rows is None else with_special_tokens(rows.subwords.tokenizer, spec.max_length))
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer), hidden_size=spec.hidden, num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads, intermediate_size=spec.intermediate, layer_norm_eps=1e-5, type_vocab_size=1,
        hidden_dropout_prob=spec.dropout, attention_probs_dropout_prob=spec.dropout,
        # XLM-R's positions start after the pad id 1.
        max_position_embeddings=spec.max_length + 2, pad_token_id=1, bos_token_id=0, eos_token_id=2, use_cache=False)
    model = XLMRobertaModel(config)
    if rows is not None:
        with torch.no_grad():  # brought to the scale of random ones, which the layers above expect
            given = rows.folded()
            model.embeddings.word_embeddings.weight[: len(given)] = given * (config.initializer_range / given.std())
    return Parts(Transformer(model, tokenizer), "mean", settings=Settings(max_length=spec.max_length))


def _static_rows(spec: Scratch) -> StaticEmbedding:
    backbone = Encoder.load(str(spec.embeddings), device="cpu").backbone
    if not isinstance(backbone, StaticEmbedding) or backbone.hidden_size != spec.hidden:
        raise InterlinguaError(f"backbone.scratch.embeddings: {spec.embeddings} must be a static model of "
                               f"{spec.hidden} dimensions, as backbone.scratch.hidden says.")
    return backbone


def _static(spec: Static, texts: Sequence[str]) -> Parts:
    tokenizer = train_tokenizer(texts, spec.vocab_size, lowercase=spec.lowercase, byte_fallback=spec.byte_fallback,
                                character_coverage=spec.character_coverage)
    counts = token_counts(tokenizer, texts)
    frequency = torch.tensor([counts[token] for token in range(len(tokenizer))], dtype=torch.float64)
    weights = spec.sif / (spec.sif + frequency / frequency.sum())
    rows = torch.randn(len(tokenizer), spec.dim) / spec.dim**0.5 * weights.float().unsqueeze(1)
    backbone = StaticEmbedding(tokenizer, rows, token_dropout=spec.token_dropout, token_weights=spec.token_weights,
                               int8=spec.int8)
    return Parts(backbone, None, normalize=True, settings=Settings(max_length=spec.max_length))
