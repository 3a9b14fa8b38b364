"""The backbones of a recipe, and the training of a subword vocabulary.

SentencePiece finds the pieces because its result is the same on every run; the trainer of the tokenizers library
gives other scores each time and takes three times as long. The tokenizer that is made holds no SentencePiece.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from pydantic import Field, model_validator
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import Metaspace as MetaspaceDecoder
from tokenizers.models import Unigram
from tokenizers.normalizers import Normalizer
from tokenizers.pre_tokenizers import Metaspace
from tokenizers.processors import TemplateProcessing
from torch import nn

from interlingua.errors import BadInput, NotFound
from interlingua.models.encoder import Encoder
from interlingua.models.folder import Settings as EncoderSettings
from interlingua.models.layout import Parts
from interlingua.models.static.embedding import StaticEmbedding
from interlingua.models.subwords import BYTES, normalizer, token_counts
from interlingua.settings import Settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

    from interlingua.models.transformer import Transformer

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
MASK = "<mask>"
_THREADS = 4
"""Fixed, whatever the machine has: sums over threads decide ties, and a vocabulary must not depend on the machine."""
_LONGEST = 2_000
"""Characters of a text that are read; SentencePiece would leave out longer lines."""


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int,
    *,
    lowercase: bool = False,
    character_coverage: float = 0.9995,
    byte_fallback: bool = False,
    max_length: int = 512,
) -> PreTrainedTokenizerFast:
    """A Unigram tokenizer of `vocab_size` tokens learned from `texts` (Kudo 2018), the same for the same texts.

    NFKC normalisation, words begin with "▁", ids 0–3 are <s> <pad> </s> <unk> and the last is <mask>, as in XLM-R;
    one text becomes `<s> A </s>`, two become `<s> A </s></s> B </s>`. `character_coverage` is the share of characters
    that get a token; the rarest others become <unk>, or with `byte_fallback` the bytes of their UTF-8, which are 256 of
    the tokens (after the first four). A corpus too small for `vocab_size` gives fewer tokens.
    Raises BadInput without the sentencepiece package or without text.
    """
    try:
        import sentencepiece
    except ImportError as error:
        raise NotFound("learning a vocabulary needs sentencepiece: `pip install sentencepiece`.") from error
    if vocab_size < 16:
        raise BadInput(f"vocab_size {vocab_size}: is too small, thousands are usual.")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_sentences(texts, normalizer(lowercase)),
            model_writer=model,
            model_type="unigram",
            vocab_size=vocab_size - 1 - len(BYTES) * byte_fallback,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            normalization_rule_name="identity",
            remove_extra_whitespaces=True,
            num_threads=_THREADS,
            max_sentence_length=8 * _LONGEST,
            minloglevel=2,
            bos_id=0,
            pad_id=1,
            eos_id=2,
            unk_id=3,
            bos_piece=SPECIAL[0],
            pad_piece=SPECIAL[1],
            eos_piece=SPECIAL[2],
            unk_piece=SPECIAL[3],
        )
    except RuntimeError as error:
        advice = "Give more text, or ask for fewer tokens."
        if "required_chars" in str(error):
            advice = "The texts have more characters than that: ask for more tokens, or lower character_coverage."
        raise BadInput(
            f"no vocabulary of {vocab_size:,} tokens could be learned from these texts ({error}). {advice}"
        ) from error
    unigram = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [(unigram.id_to_piece(i), unigram.get_score(i)) for i in range(len(SPECIAL), unigram.get_piece_size())]
    return unigram_tokenizer(pieces, lowercase=lowercase, byte_fallback=byte_fallback, max_length=max_length)


def unigram_tokenizer(
    pieces: Sequence[tuple[str, float]], *, lowercase: bool = False, byte_fallback: bool = False, max_length: int = 512
) -> PreTrainedTokenizerFast:
    """A tokenizer of these `(piece, log probability)` pairs, with XLM-R's special tokens around them."""
    bytes_ = [(token, 0.0) for token in BYTES if byte_fallback]
    vocabulary = [*((token, 0.0) for token in SPECIAL), *bytes_, *pieces, (MASK, 0.0)]
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=SPECIAL.index("<unk>"), byte_fallback=byte_fallback))
    tokenizer.normalizer = normalizer(lowercase)
    tokenizer.pre_tokenizer = Metaspace()
    tokenizer.decoder = MetaspaceDecoder()
    tokenizer.add_special_tokens([*SPECIAL, AddedToken(MASK, lstrip=True)])
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return with_special_tokens(tokenizer, max_length)


def with_special_tokens(tokenizer: Tokenizer, max_length: int) -> PreTrainedTokenizerFast:
    """A tokenizer that has XLM-R's special tokens, with their roles. Raises BadInput where it lacks one."""
    from transformers import PreTrainedTokenizerFast

    missing = [token for token in (*SPECIAL, MASK) if tokenizer.token_to_id(token) is None]
    if missing:
        raise BadInput(f"the tokenizer has no token {', '.join(missing)}: a transformer needs XLM-R's.")
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        sep_token="</s>",
        cls_token="<s>",
        pad_token="<pad>",
        mask_token=AddedToken(MASK, lstrip=True),
        model_max_length=max_length,
    )


def _sentences(texts: Iterable[str], normal: Normalizer) -> Iterator[str]:
    for text in texts:
        sentence = normal.normalize_str(text[:_LONGEST])
        if sentence:
            yield sentence


class Scratch(Settings):
    """A transformer of XLM-R's shape with random weights and a vocabulary of its own; or, with `embeddings`, with the
    vocabulary and the subword vectors of a static model (a folder or name, of `hidden` dimensions)."""

    vocab_size: int = Field(16_000, ge=16, le=10_000_000, description="subwords of the vocabulary that is learned")
    layers: int = Field(4, ge=1, le=1_000, description="of the transformer")
    hidden: int = Field(256, ge=1, le=65_536, description="size of a token state")
    heads: int = Field(4, ge=1, le=65_536, description="attention heads, a divisor of `hidden`")
    intermediate: int = Field(1_024, ge=1, le=1_000_000, description="size of the feed-forward layers")
    max_length: int = Field(256, ge=8, le=1_000_000, description="subwords of a text that the model can read")
    dropout: float = Field(0.1, ge=0, lt=1, description="of the transformer, while training")
    lowercase: bool = Field(False, description="lower-case texts first")
    embeddings: str | None = Field(
        None, description="a static model whose vocabulary and vectors of size `hidden` it starts from"
    )

    @model_validator(mode="after")
    def _heads_fit(self) -> Scratch:
        if self.hidden % self.heads:
            raise ValueError(f"hidden {self.hidden} is not a multiple of heads {self.heads}")
        return self


class Static(Settings):
    """Subword vectors without a transformer.

    `sif` is the constant a in the weight a / (a + p(token)) that the random vectors start with (smooth inverse
    frequency, Arora et al. 2017), so that frequent subwords weigh little. With `byte_fallback` a character without a
    token of its own becomes its bytes. With `int8` the trained vectors are saved in 8 bits.
    """

    vocab_size: int = Field(32_000, ge=16, le=10_000_000, description="subwords of the vocabulary that is learned")
    dim: int = Field(256, ge=1, le=65_536, description="size of a vector")
    token_dropout: float = Field(0.0, ge=0, lt=1, description="share of tokens dropped while training")
    token_weights: bool = Field(False, description="learn a weight for each subword beside its vector")
    sif: float = Field(
        1e-3,
        gt=0,
        description="a of the weights a / (a + p(token)) that the random vectors start with (Arora et al. 2017)",
    )
    max_length: int | None = Field(None, ge=1, le=1_000_000, description="subwords of a text that are read; none: all")
    lowercase: bool = Field(False, description="lower-case texts first")
    character_coverage: float = Field(0.9995, gt=0, le=1, description="share of characters that get a subword")
    byte_fallback: bool = Field(
        False, description="characters without a subword are their bytes; else they are unknown"
    )
    int8: bool = Field(False, description="save the trained vectors as int8")


class Backbone(Settings):
    """Exactly one of a model that there is, a scratch transformer and static vectors."""

    name: str | None = Field(None, description="a model's name or folder")
    layers: int | list[int] | None = Field(
        None, description="of the named model: how many layers to keep, the first ones, or which ones, from 0"
    )
    scratch: Scratch | None = Field(None, description="a new transformer with random weights")
    static: Static | None = Field(None, description="subword vectors without a transformer")

    @model_validator(mode="after")
    def _one(self) -> Backbone:
        if sum(part is not None for part in (self.name, self.scratch, self.static)) != 1:
            raise ValueError("give exactly one of name, scratch and static")
        if self.layers is not None and self.name is None:
            raise ValueError("layers are chosen from a named model: give name, or the number of layers in scratch")
        if isinstance(self.layers, int) and self.layers < 1:
            raise ValueError(f"layers: {self.layers} leaves no layer; give at least 1")
        return self

    @classmethod
    def of(cls, spec: str | Path | Mapping[str, Any] | Backbone) -> Backbone:
        """Read a recipe's `backbone:`; a bare text is a name. Raises BadInput for what cannot be."""
        if isinstance(spec, Backbone):
            return spec
        return cls.checked({"name": str(spec)} if isinstance(spec, (str, Path)) else spec, "model.backbone")


def build_encoder(
    spec: str | Path | Mapping[str, Any] | Backbone,
    *,
    texts: Iterable[str] | None = None,
    seed: int = 0,
    **options: Any,
) -> Encoder:
    """The encoder a recipe's `backbone:` describes: a name or path, `{"name": …, "layers": …}`, `{"scratch": {…}}` or
    `{"static": {…}}`.

    `texts` are what a new vocabulary is learned from. `options` are those of `Encoder.load`; new backbones have mean
    pooling unless told otherwise. The same spec, texts and seed give the same weights.
    Raises BadInput for an unknown field, or a new backbone without texts.
    """
    backbone = Backbone.of(spec)
    if backbone.name is not None:
        if backbone.layers is not None:
            if options.get("layer") is not None:
                raise BadInput("model.layer and model.backbone.layers both choose layers. Leave one of them out.")
            options["layer"] = backbone.layers
        return Encoder.load(backbone.name, **options)
    if texts is None:
        raise BadInput("backbone: a new vocabulary is learned from text; give `texts`.")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if backbone.scratch is not None:
            return Encoder.of(_scratch(backbone.scratch, texts), **options)
        if backbone.static is not None:
            return Encoder.of(_static(backbone.static, list(texts)), **options)
    raise AssertionError("validated above")


def freeze(backbone: Transformer | StaticEmbedding, parts: Iterable[str]) -> None:
    """Have training leave parts of a backbone as they are: "embeddings", "layers.3", "layers.0-3".

    Raises BadInput for a layer that the model does not have.
    """
    for part in parts:
        if part == "embeddings":
            module = backbone if isinstance(backbone, StaticEmbedding) else backbone.model
            getattr(module, "embeddings", backbone.input_embeddings).requires_grad_(False)
            continue
        first, _, last = part.removeprefix("layers.").partition("-")
        stack = nn.ModuleList() if isinstance(backbone, StaticEmbedding) else backbone.stack()
        if int(last or first) >= len(stack):
            layers = f"the layers 0 to {len(stack) - 1}" if len(stack) else "no layers"
            raise BadInput(f"model.freeze: {part} is not in this model, which has {layers}.")
        for layer in stack[int(first) : int(last or first) + 1]:
            layer.requires_grad_(False)


def _scratch(spec: Scratch, texts: Iterable[str]) -> Parts:
    from transformers import XLMRobertaConfig, XLMRobertaModel

    from interlingua.models.transformer import Transformer

    rows = None if spec.embeddings is None else _static_rows(spec)
    tokenizer = (
        train_tokenizer(texts, spec.vocab_size, lowercase=spec.lowercase, max_length=spec.max_length)
        if rows is None
        else with_special_tokens(rows.subwords.tokenizer, spec.max_length)
    )
    config = XLMRobertaConfig(
        vocab_size=len(tokenizer),
        hidden_size=spec.hidden,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        intermediate_size=spec.intermediate,
        layer_norm_eps=1e-5,
        type_vocab_size=1,
        hidden_dropout_prob=spec.dropout,
        attention_probs_dropout_prob=spec.dropout,
        # XLM-R's positions start after the pad id 1.
        max_position_embeddings=spec.max_length + 2,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        use_cache=False,
    )
    model = XLMRobertaModel(config)
    if rows is not None:
        with torch.no_grad():  # brought to the scale of random ones, which the layers above expect
            weight = rows.folded()
            model.embeddings.word_embeddings.weight[: len(weight)] = weight * (config.initializer_range / weight.std())
    return Parts(Transformer(model, tokenizer), "mean", settings=EncoderSettings(max_length=spec.max_length))


def _static_rows(spec: Scratch) -> StaticEmbedding:
    backbone = Encoder.load(str(spec.embeddings), device="cpu").backbone
    if not isinstance(backbone, StaticEmbedding) or backbone.hidden_size != spec.hidden:
        raise BadInput(
            f"backbone.scratch.embeddings: {spec.embeddings} must be a static model of "
            f"{spec.hidden} dimensions, as backbone.scratch.hidden says."
        )
    return backbone


def _static(spec: Static, texts: Sequence[str]) -> Parts:
    tokenizer = train_tokenizer(
        texts,
        spec.vocab_size,
        lowercase=spec.lowercase,
        byte_fallback=spec.byte_fallback,
        character_coverage=spec.character_coverage,
    )
    counts = token_counts(tokenizer.backend_tokenizer, texts)
    frequency = torch.tensor([counts[token] for token in range(len(tokenizer))], dtype=torch.float64)
    weights = spec.sif / (spec.sif + frequency / frequency.sum())
    rows = torch.randn(len(tokenizer), spec.dim) / spec.dim**0.5 * weights.float().unsqueeze(1)
    backbone = StaticEmbedding(
        tokenizer, rows, token_dropout=spec.token_dropout, token_weights=spec.token_weights, int8=spec.int8
    )
    return Parts(backbone, None, normalize=True, settings=EncoderSettings(max_length=spec.max_length))
