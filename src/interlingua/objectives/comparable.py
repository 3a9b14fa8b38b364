"""C3: pick the span of the linked document out of all spans of the batch (Yang et al. 2022)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from interlingua.data.linked import SpanMode, SpanPair, cut
from interlingua.errors import BadInput
from interlingua.models.encode import TokenVectors
from interlingua.models.inference.packing import Run
from interlingua.models.late_interaction import Model, RoleEncoder
from interlingua.models.static.embedding import StaticEmbedding
from interlingua.objectives.late_interaction import maxsim
from interlingua.objectives.masked_lm import RATE, MaskedLanguageModelHead, mask_words, predicted
from interlingua.objectives.objective import (
    Batch,
    Loss,
    MaskedRow,
    ObjectiveSettings,
    Reduction,
    Role,
    SpanObjective,
    Spans,
    by_language,
    check_known,
    check_temperature,
    product,
    reduced,
    require,
    same_number,
)

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from interlingua.models.transformer import Transformer


class CondenserHead(nn.Module):
    """Fresh transformer layers that read the late state of each text's first token and the early states of the others.

    What the early states lack for predicting masked tokens must come through the one late vector, so the encoder learns
    to put what the text says into it. The layers are BERT's (XLM-R's are the same) in the sizes of the encoder's; their
    weights start with standard deviation 0.02.

    Args:
        config: of the encoder's Hugging Face model.
        skip_from: the hidden state that the early states are taken from (0 = embeddings); the middle one by default
            (6 of 12, as the README of the published code recommends).
        layers: of the head.

    Raises BadInput for a `skip_from` that the model does not have or that is its last.
    """

    def __init__(self, config: PretrainedConfig, *, skip_from: int | None = None, layers: int = 2) -> None:
        from transformers import BertConfig
        from transformers.models.bert.modeling_bert import BertLayer

        from interlingua.models.transformer import ATTENTION

        super().__init__()
        depth = int(config.num_hidden_layers)
        self.skip_from = depth // 2 if skip_from is None else skip_from
        if not 0 <= self.skip_from < depth or layers < 1:
            raise BadInput(
                f"a Condenser head of {layers} layers on hidden state {self.skip_from}: it needs 1 "
                f"layer or more, and early states out of 0 to {depth - 1} for this model."
            )
        head_config = BertConfig(
            hidden_size=config.hidden_size,
            num_attention_heads=config.num_attention_heads,
            intermediate_size=config.intermediate_size,
            hidden_act=getattr(config, "hidden_act", "gelu"),
            hidden_dropout_prob=getattr(config, "hidden_dropout_prob", 0.1),
            attention_probs_dropout_prob=getattr(config, "attention_probs_dropout_prob", 0.1),
            layer_norm_eps=getattr(config, "layer_norm_eps", 1e-5),
            attn_implementation=ATTENTION,
        )
        self.layers = nn.ModuleList(BertLayer(head_config) for _ in range(layers))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, late: Tensor, early: Tensor, lengths: Tensor) -> Tensor:
        """Late and early states `[tokens of all texts, hidden]`, laid end to end as `Encoder.token_states` gives them,
        and the number of tokens of each text `[texts]` (1 or more) → states of the same shape, of which the first of
        each text comes from the late one. No padding: each text attends to itself."""
        counts: list[int] = lengths.tolist()
        first = torch.zeros(len(late), 1, dtype=torch.bool, device=late.device)
        first[(lengths.cumsum(0) - lengths).to(late.device)] = True
        states = torch.where(first, late, early.to(late.dtype))[None]
        runs: list[Run] = []
        start = 0
        for count, group in groupby(counts):
            texts = len(list(group))
            runs.append((start, texts, count))
            start += texts * count
        for layer in self.layers:
            states = layer(states, None, packed_runs=runs)
        return states[0]


def span_tokens(
    encoder: RoleEncoder,
    role: str,
    texts: Sequence[str],
    draws: Sequence[float],
    *,
    length: int,
    mode: SpanMode = "uniform_start",
    least: int = 1,
) -> tuple[list[int], list[list[int]], list[int]]:
    """A span of each text: the ids that stand before every span (special tokens, the role's prompt), for each text up
    to `length` of its own ids as `cut` chooses them by its draw, and the ids that stand after every span.

    Raises BadInput when a span with what stands around it is longer than the model reads.
    """
    mask = encoder.tokenizer.backend_tokenizer.encode("a", add_special_tokens=True).special_tokens_mask
    before = next(place for place, special in enumerate(mask) if not special)
    after = next(place for place, special in enumerate(reversed(mask)) if not special)
    empty = encoder.tokenize([""], role)[0]
    opening, closing = empty[: len(empty) - after], empty[len(empty) - after :]
    limit = None if isinstance(encoder.backbone, StaticEmbedding) else encoder.backbone.positions
    if limit is not None and length + len(empty) > limit:
        raise BadInput(
            f"a span of {length} tokens with the {len(empty)} around it is longer than the {limit} "
            "that this model reads. Lower objectives.comparable.span."
        )
    contents = []
    for ids, draw in zip(encoder.backbone.subwords(texts), draws, strict=True):
        content = ids[before : len(ids) - after]
        contents.append(content[cut(len(content), length, draw, mode, least)])
    return opening, contents, closing


SpanSimilarity = Literal["maxsim", "cls"]
Denominator = Literal["simclr", "as_printed_crosslingual"]
SHORT = 0.1
"""A larger share of a batch's pairs left out as too short is worth a warning."""


def comparable_contrastive(
    source: Tensor,
    source_mask: Tensor | None,
    target: Tensor,
    target_mask: Tensor | None,
    *,
    similarity: SpanSimilarity = "maxsim",
    temperature: float = 0.05,
    token_norm: bool = True,
    length_norm: bool = True,
    symmetrize: bool = False,
    denominator: Denominator = "simclr",
    groups: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """L^co of Yang et al. 2022 (C3), read as SimCLR over the 2n spans of n pairs: the mean over the 2n anchors a of

        −log  exp(f(a, partner of a) / τ) / Σ_{b ≠ a} exp(f(a, b) / τ)

    The denominator holds the positive and the 2n − 2 other spans, of both languages. As printed (§2.2) it would leave
    out the positive and the spans of the anchor's own language.

    Args:
        source, target: `[pairs, tokens, dim]` token vectors, padded; row i of one is linked with row i of the other.
            They need not be equally long. For "cls" also `[pairs, dim]`; of three dimensions the first token is taken.
        source_mask, target_mask: bool `[pairs, tokens]`, True = a token. "cls" reads none (None will do).
        similarity: "maxsim": f(a, b) = Σ_{t ∈ a} max_{u ∈ b} a_t · b_u, in which the sum runs over the anchor; "cls":
            the dot product of the first vectors.
        temperature: τ.
        token_norm: bring every vector to unit length first.
        length_norm: divide f(a, b) by the number of the anchor's tokens (no meaning for "cls").
        symmetrize: ½ (f(a, b) + f(b, a)) in the place of f(a, b).
        denominator: "as_printed_crosslingual" is that of the paper, spans of the other language only, with the positive
            added (without it the loss has no lower bound): n terms.
        groups: `[pairs]` integers; spans of one group are no negatives of each other.

    The paper names no normalisation and no temperature. The defaults are the robust choice; its letter is
    `token_norm=False, length_norm=False, temperature=1`, with logits in the thousands (in float32, as everything here).

    Returns:
        A float32 scalar (no pairs: a zero connected to the graph); with reduction "none" `[2 · pairs]`, sources first.
    """
    check_known("similarity", similarity, ("maxsim", "cls"))
    check_known("denominator", denominator, ("simclr", "as_printed_crosslingual"))
    check_temperature(temperature)
    pairs = len(source)
    dimensions = (2, 3) if similarity == "cls" else (3,)
    if source.ndim not in dimensions or target.ndim not in dimensions or pairs != len(target):
        raise BadInput(
            "comparable loss: source and target must be [pairs, tokens, dim] of equally many pairs "
            f"(for 'cls' also [pairs, dim]); got {list(source.shape)} and {list(target.shape)}."
        )
    if not pairs:
        return reduced((source.float().sum() + target.float().sum()).expand(0), reduction)
    if similarity == "cls":
        spans = torch.cat([side[:, 0] if side.ndim == 3 else side for side in (source, target)]).float()
        spans = F.normalize(spans, dim=-1) if token_norm else spans
        scores = product(spans, spans.T)
    else:
        scores = _maxsim_of_all(source, source_mask, target, target_mask, token_norm, length_norm)
    if symmetrize:
        scores = (scores + scores.T) / 2
    itself = torch.eye(2 * pairs, dtype=torch.bool, device=scores.device)
    partner = itself.roll(pairs, dims=1)
    language = torch.arange(2 * pairs, device=scores.device) < pairs
    left_out = itself if denominator == "simclr" else language[:, None] == language[None, :]
    if groups is not None:
        left_out = left_out | (same_number(groups, pairs, "groups", scores.device).repeat(2, 2) & ~partner)
    logits = (scores / temperature).masked_fill(left_out, -torch.inf)
    return reduced(F.cross_entropy(logits, partner.long().argmax(1), reduction="none"), reduction)


def _maxsim_of_all(
    source: Tensor,
    source_mask: Tensor | None,
    target: Tensor,
    target_mask: Tensor | None,
    token_norm: bool,
    length_norm: bool,
) -> Tensor:
    """`[2 · pairs, 2 · pairs]`: f of every span with every span."""
    if source_mask is None or target_mask is None:
        raise BadInput("comparable loss: MaxSim needs the masks of source and target; only 'cls' does without.")
    longest = max(source.shape[1], target.shape[1])
    spans = torch.cat([F.pad(side.float(), (0, 0, 0, longest - side.shape[1])) for side in (source, target)])
    mask = torch.cat([F.pad(side, (0, longest - side.shape[1])) for side in (source_mask, target_mask)])
    if token_norm:
        spans = F.normalize(spans, dim=-1)
    scores = maxsim(spans, mask, spans, mask)
    return scores / mask.sum(1, keepdim=True) if length_norm else scores


class Comparable(SpanObjective):
    """`comparable_contrastive` on spans of linked documents, with the masked-LM losses of the last layer and of a
    Condenser head: one forward pass on the masked spans serves all three, weighted 1 : 1 : 1 as in the paper. What is
    trained beside the encoder (projection, heads) is dropped when the model is saved.

    Args: `config`: of the encoder's Hugging Face model, `vocabulary`: its number of tokens, `seed`: of the masking.
    """

    class Settings(ObjectiveSettings):
        """Options of the comparison of spans, and of the prediction beside it."""

        similarity: SpanSimilarity = Field("maxsim", description="`cls`: the dot product of first tokens (coCondenser)")
        temperature: float = Field(0.05, gt=0, description="τ; the paper names none")
        token_norm: bool = Field(True, description="bring every token's vector to unit length first")
        length_norm: bool = Field(True, description="divide a MaxSim by the number of the anchor's tokens")
        symmetrize: bool = Field(False, description="½ (f(a, b) + f(b, a))")
        denominator: Denominator = Field(
            "simclr", description="`as_printed_crosslingual`: spans of the other language only, as the paper prints it"
        )
        duplicates: Literal["mask", "keep"] = Field(
            "mask", description="leave spans of one group out of each other's negatives, or keep them"
        )
        proj_dim: int | None = Field(
            None, ge=1, description="compare states through a linear layer of this size (ColBERT's is 128)"
        )
        contrast_unmasked: bool = Field(
            False, description="compare the spans before masking, for a second forward pass"
        )
        mlm: float = Field(
            1.0, ge=0, description="weight of the last layer's masked-LM loss, a mean over predictions; 0: without"
        )
        condenser: float = Field(1.0, ge=0, description="weight of the Condenser head's masked-LM loss; 0: without")
        skip_from: int | None = Field(
            None, ge=0, description="the hidden state that the Condenser head reads; none: the middle one"
        )
        head_layers: int = Field(2, ge=1, description="of the Condenser head")
        rate: float = Field(0.15, gt=0, lt=1, description=RATE)
        whole_word: bool = Field(True, description="the pieces of a word are masked together; else single tokens")
        longest_word: int = Field(
            4, ge=1, description="a word of more pieces falls apart: Chinese and Thai write clauses without a space"
        )
        span: int = Field(
            180, ge=1, description="tokens of a span without the special ones; a shorter document is read whole"
        )
        span_mode: SpanMode = Field(
            "uniform_start", description="from any token on; `tiled`: one of the pieces that the document falls into"
        )
        min_tokens: int = Field(
            16,
            ge=1,
            description="a pair with a side of fewer tokens is left out of its batch, counted in the log as "
            "`comparable/short`, and warned of when it is more than a tenth; where fewer than two others remain, short "
            "ones stay, and it is warned of",
        )
        role: Role = Field("passage", description="which encoder reads")

        @model_validator(mode="after")
        def _fit(self) -> Self:
            if self.min_tokens > self.span:
                raise ValueError(
                    f"span {self.span}, min_tokens {self.min_tokens}: must be min_tokens no more than span."
                )
            return self

    settings: Settings
    streams = ("linked",)

    def __init__(self, *, config: PretrainedConfig, vocabulary: int, seed: int = 0, **options: Any) -> None:
        super().__init__(**options)
        settings = self.settings
        self.vocabulary, self.seed, self.role = vocabulary, seed, settings.role
        self.per_token, self.contrast_unmasked = settings.similarity == "maxsim", settings.contrast_unmasked
        weights = {"mlm": settings.mlm, "condenser": settings.condenser}
        self.weights = {name: weight for name, weight in weights.items() if weight}
        hidden = int(config.hidden_size)
        self.dim = settings.proj_dim or hidden
        self.projection = nn.Linear(hidden, settings.proj_dim, bias=False) if settings.proj_dim else None
        self.head = MaskedLanguageModelHead(hidden, vocabulary) if self.weights else None
        self.condenser = (
            CondenserHead(config, skip_from=settings.skip_from, layers=settings.head_layers)
            if settings.condenser
            else None
        )
        self.early = self.condenser.skip_from if self.condenser else None

    @classmethod
    def for_model(cls, model: Model, seed: int, options: Mapping[str, Any]) -> Self:
        backbone = cast("Transformer", model.passage.backbone)
        rows = len(cast(Tensor, backbone.input_embeddings.weight))
        return cls(config=backbone.model.config, vocabulary=rows, seed=seed, **options)

    def spans(self, batch: Batch, encoder: RoleEncoder, step: int) -> Spans:
        pairs = require(batch["linked"], SpanPair, self)
        if len(pairs) < 2:
            raise BadInput("a batch of one pair has nothing to tell apart. Raise data.linked.batch.")
        if encoder.is_static or encoder.tokenizer.mask_token_id is None:
            raise BadInput(
                "C3 pre-training needs a transformer with a mask token; this model is none (a "
                "static backbone has no token states)."
            )
        opening, contents, closing = span_tokens(
            encoder,
            self.role,
            [*(pair.source for pair in pairs), *(pair.target for pair in pairs)],
            [*(pair.source_draw for pair in pairs), *(pair.target_draw for pair in pairs)],
            length=self.settings.span,
            mode=self.settings.span_mode,
            least=self.settings.min_tokens,
        )
        long = [len(content) >= self.settings.min_tokens for content in contents]
        remaining = [number for number in range(len(pairs)) if long[number] and long[number + len(pairs)]]
        kept: dict[str, float] = {}
        if len(remaining) < 2:  # the next step may have others: short ones are better than no step
            kept["short_kept"] = -float(len(remaining))
            remaining = [number for number in range(len(pairs)) if contents[number] and contents[number + len(pairs)]]
            kept["short_kept"] += len(remaining)
        if len(remaining) < 2:
            raise BadInput(
                f"of {len(pairs)} pairs of linked documents {len(remaining)} have text on both sides: nothing to tell "
                "apart. Give other documents, or raise data.linked.batch."
            )
        random = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 0, step]))
        longest = self.settings.longest_word if self.settings.whole_word else 1
        rows = []
        for number in (*remaining, *(number + len(pairs) for number in remaining)):
            masked = mask_words(
                contents[number], encoder.tokenizer, self.vocabulary, self.settings.rate, longest, random
            )
            rows.append(
                MaskedRow(
                    [*opening, *masked.ids, *closing],
                    [(position + len(opening), token) for position, token in masked.targets],
                )
            )
        left_out = float(len(pairs) - len(remaining))
        return Spans(rows, [pairs[number] for number in remaining], {"short": left_out, **kept})

    def represent(self, states: Tensor, lengths: Tensor) -> Tensor:
        if not self.per_token:
            states = states[(lengths.cumsum(0) - lengths).to(states.device)]
        return states if self.projection is None else self.projection(states)

    def contrastive(self, spans: Spans, vectors: TokenVectors) -> Loss:
        pairs = require(spans.records, SpanPair, self)
        sides = range(len(pairs)), range(len(pairs), 2 * len(pairs))
        (source, source_mask), (target, target_mask) = (vectors.select(side).padded() for side in sides)
        groups = None
        if self.settings.duplicates == "mask":
            numbers: dict[str, int] = {}
            groups = torch.tensor([numbers.setdefault(pair.group, len(numbers)) for pair in pairs])
        rows = comparable_contrastive(
            source,
            source_mask,
            target,
            target_mask,
            similarity=self.settings.similarity,
            temperature=self.settings.temperature,
            token_norm=self.settings.token_norm,
            length_norm=self.settings.length_norm,
            symmetrize=self.settings.symmetrize,
            denominator=self.settings.denominator,
            groups=groups,
            reduction="none",
        )
        others = 2 * len(pairs) - 1 if self.settings.denominator == "simclr" else len(pairs)
        warning = None
        if kept := spans.report.get("short_kept"):
            warning = (
                f"{kept:.0f} of {len(pairs)} pairs of this batch have a side of fewer than {self.settings.min_tokens} "
                "tokens. They were kept, since fewer than two others are there. Raise data.linked.batch, or give "
                "longer documents."
            )
        elif spans.report["short"] > SHORT * (len(pairs) + spans.report["short"]):
            warning = (
                f"{spans.report['short']:.0f} pairs of this batch have a side of fewer than {self.settings.min_tokens} "
                f"tokens and were left out; {len(pairs)} remain."
            )
        return Loss(
            rows.mean(),
            {"ln_candidates": math.log(others), **spans.report, **by_language([pair.lang for pair in pairs] * 2, rows)},
            warning,
        )

    def token_losses(
        self, rows: list[MaskedRow], states: Tensor, lengths: Tensor, early: Tensor | None, encoder: RoleEncoder
    ) -> dict[str, Tensor]:
        positions, targets = (tensor.to(states.device) for tensor in predicted(rows, lengths))
        inputs = {"mlm": states}
        if self.condenser is not None and early is not None:
            inputs["condenser"] = self.condenser(states, early, lengths)
        assert self.head is not None or not self.weights
        return {name: self.head.losses(inputs[name][positions], targets, encoder) for name in self.weights if self.head}
