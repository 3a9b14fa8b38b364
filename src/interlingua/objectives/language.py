"""The language contrastive loss: every other sentence must be as similar to a sentence as to its translation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self, get_args

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn import functional as F

from interlingua.data.records import ParallelPair, Sentence
from interlingua.errors import BadInput
from interlingua.objectives.objective import (
    Batch,
    Loss,
    Objective,
    ObjectiveSettings,
    Roles,
    Texts,
    by_language,
    check_known,
    check_paired,
    check_temperature,
    require,
    similarities,
)
from interlingua.objectives.semantic import ON, pair_requests, roles
from interlingua.text.languages import text_key

FLOOR = math.log(2.0)
"""The least value of the loss (per log term), reached when no sentence tells the two of a pair apart."""


Form = Literal["contrastive", "squares", "divergence"]


def language_contrastive(
    source: Tensor,
    target: Tensor,
    others: Tensor | None = None,
    *,
    temperature: float = 1.0,
    form: Form = "contrastive",
    normalizer: Literal["mean", "paper"] = "mean",
    mask: Tensor | None = None,
) -> Tensor:
    """langCL of Hu et al. 2023, eq. 3. For each pair (i, j) and each other sentence k, with d = s_ik − s_jk,

        −[ log σ(d/τ) + log σ(−d/τ) ]   =   |d|/τ + 2·log(1 + e^(−|d|/τ))

    summed and divided by the number of log terms, 2·B·(2B + Q − 2). Never less than log 2; the excess over
    log 2 is what is left to learn. Nothing in it repels: never train it alone.

    Two other forms ask the same of a pair, and are 0 at the least: "squares", the mean over k of (d/τ)², and
    "divergence", the Jensen-Shannon divergence of the softmax over k of s_ik/τ from that of s_jk/τ, at most log 2.

    Args:
        source, target: `[pairs, dim]` (B pairs).
        others: `[sentences, dim]`, Q sentences without a translation, or None.
        temperature: τ (the paper has none: 1.0); small-d gradients grow with 1/τ².
        form: "contrastive" is the paper's.
        normalizer: "mean" per log term; "paper" divides by N(N−2), N = 2B + Q (the same when Q = 0), and is for the
            paper's form.
        mask: `[pairs, 2B + Q]` bool, True = leave sentence k out for this pair; columns are the sources, the
            targets, the others. With "mean" the terms left out are not counted.

    Returns:
        A float32 scalar; with no pairs, a zero that is connected to the graph.

    Raises:
        BadInput: for shapes that do not fit, fewer than three sentences, an unknown form or normalizer.
    """
    if form != "contrastive" and normalizer == "paper":
        raise BadInput(f'normalizer "paper" is for form "contrastive", not for "{form}".')
    sums, terms = language_rows(source, target, others, temperature=temperature, form=form, mask=mask)
    return _normalised(sums, terms, 2 * len(source) + (0 if others is None else len(others)), normalizer)


def language_rows(
    source: Tensor,
    target: Tensor,
    others: Tensor | None = None,
    *,
    temperature: float = 1.0,
    form: Form = "contrastive",
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Per pair: the sum over k, and the number of its terms (contrastive: two for each k; squares: one for each k;
    divergence: one); both `[pairs]`."""
    check_known("form", form, get_args(Form))
    check_paired(source, target, "language loss")
    check_temperature(temperature)
    pairs = len(source)
    sentences = torch.cat([source, target] if others is None else [source, target, others.to(source.dtype)])
    if pairs > 0 and len(sentences) < 3:
        raise BadInput("the language loss needs at least three sentences: two pairs, or one pair and one other.")
    # one product for the similarities of every sentence to every source and target
    scores = similarities(sentences[: 2 * pairs], sentences)
    d = (scores[:pairs] - scores[pairs:]) / temperature
    index = torch.arange(pairs, device=d.device)
    left_out = torch.zeros(d.shape, dtype=torch.bool, device=d.device)
    left_out[index, index] = left_out[index, index + pairs] = True
    if mask is not None:
        if mask.shape != d.shape:
            raise BadInput(f"mask must be [pairs, sentences] = {list(d.shape)}, got {list(mask.shape)}.")
        left_out = left_out | mask.to(d.device)
    compared = ~left_out
    if form == "divergence":
        scores = scores / temperature
        return _divergence(scores[:pairs], scores[pairs:], left_out), compared.any(1).to(d.dtype)
    if form == "squares":
        return d.square().masked_fill(left_out, 0.0).sum(1), 1.0 * compared.sum(1)
    size = d.abs()
    brackets = size + 2 * F.softplus(-size)
    return brackets.masked_fill(left_out, 0.0).sum(1), 2.0 * compared.sum(1)


def _divergence(a: Tensor, b: Tensor, left_out: Tensor) -> Tensor:
    """The Jensen-Shannon divergence of the rows' softmaxes over what is not left out; 0 where all is."""
    least = torch.finfo(a.dtype).min / 2  # not −∞, of which differences are no numbers
    log_p, log_q = (scores.masked_fill(left_out, least).log_softmax(1) for scores in (a, b))
    log_mean = torch.logaddexp(log_p, log_q) - FLOOR
    terms = log_p.exp() * (log_p - log_mean) + log_q.exp() * (log_q - log_mean)
    return terms.masked_fill(left_out, 0.0).sum(1) / 2


def _normalised(sums: Tensor, terms: Tensor, sentences: int, normalizer: str) -> Tensor:
    """The loss of these rows among N `sentences`; with no rows, a zero that is connected to the graph."""
    check_known("normalizer", normalizer, ("mean", "paper"))
    if not len(sums):
        return sums.sum()
    return sums.sum() / (terms.sum().clamp(min=1) if normalizer == "mean" else sentences * (sentences - 2))


class Language(Objective):
    """`language_contrastive` on the pairs of a parallel stream and, where given, sentences without translation."""

    class Settings(ObjectiveSettings):
        """Options of the comparison of sentences."""

        temperature: float = Field(1.0, gt=0, description="τ; the paper has none. Gradients grow with 1/τ²")
        form: Form = Field(
            "contrastive",
            description="the paper's; `squares`: the mean of (d/τ)²; `divergence`: the Jensen-Shannon divergence of the"
            " pair's softmaxes over all other sentences",
        )
        on: Roles = Field("passage", description=ON)
        duplicates: Literal["mask", "keep"] = Field(
            "mask", description="whether a sentence with the text of a member of the pair is left out"
        )
        normalizer: Literal["mean", "paper"] = Field(
            "mean", description="`paper` divides by N(N − 2), N = 2B + Q; the same without `sentences`"
        )
        detach: Literal["none", "pair", "others"] = Field(
            "none", description="stop the gradient into k (`others`), or into i and j (`pair`); the paper: into neither"
        )

        @model_validator(mode="after")
        def _normalizer_of_the_paper(self) -> Self:
            if self.form != "contrastive" and self.normalizer == "paper":
                raise ValueError(f"normalizer: paper is for form: contrastive, not for {self.form}.")
            return self

    settings: Settings
    streams = ("parallel", "sentences?")

    def requests(self, batch: Batch) -> dict[str, Texts]:
        sentences = require(batch.get("sentences", ()), Sentence, self)
        requests = pair_requests(require(batch["parallel"], ParallelPair, self), self.settings.on)
        for role in roles(self.settings.on) if sentences else ():
            requests[f"{role}.others"] = Texts(role, [sentence.text for sentence in sentences])
        return requests

    def loss(self, batch: Batch, vectors: Mapping[str, Tensor]) -> Loss:
        pairs = require(batch["parallel"], ParallelPair, self)
        sentences = require(batch.get("sentences", ()), Sentence, self)
        mask = self.mask(pairs, sentences) if self.settings.duplicates == "mask" and pairs else None
        results = [self._rows(vectors, role, mask) for role in roles(self.settings.on)]
        sums = torch.stack([rows for rows, _ in results]).mean(0)
        terms = results[0][1]
        count = 2 * len(pairs) + len(sentences)
        value = _normalised(sums, terms, count, self.settings.normalizer)
        compared = terms > 0  # with everything masked there is nothing to be in excess of
        floor = FLOOR if self.settings.form == "contrastive" else 0.0
        rows = (sums / terms.clamp(min=1) - floor)[compared]
        langs = [pair.lang for pair, has_terms in zip(pairs, compared.tolist(), strict=True) if has_terms]
        excess = {"excess": _normalised(sums, terms, count, "mean").item() - floor} if langs and floor else {}
        return Loss(value, {**excess, **by_language(langs, rows)})

    def _rows(self, vectors: Mapping[str, Tensor], role: str, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        detach = self.settings.detach
        options: dict[str, Any] = {"temperature": self.settings.temperature, "form": self.settings.form}
        source, target = vectors[f"{role}.source"], vectors[f"{role}.target"]
        others = vectors.get(f"{role}.others")
        if detach == "none":
            return language_rows(source, target, others, mask=mask, **options)
        detached = (source.detach(), target.detach())
        i, j = detached if detach == "pair" else (source, target)
        k_side = (source, target) if detach == "pair" else detached
        # k as "others" of its own: the pair's own two columns are then masked by hand
        k = torch.cat([*k_side, *([] if others is None else [others if detach == "pair" else others.detach()])])
        pairs = len(source)
        own = torch.eye(pairs, dtype=torch.bool, device=k.device)
        left_out = torch.cat([own, own, own.new_zeros(pairs, len(k) - 2 * pairs)], 1)
        if mask is not None:
            left_out = left_out | mask.to(k.device)
        everything_else = torch.ones(pairs, 2 * pairs, dtype=torch.bool, device=k.device)
        return language_rows(i, j, k, mask=torch.cat([everything_else, left_out], 1), **options)

    @staticmethod
    def mask(pairs: Sequence[ParallelPair], sentences: Sequence[Sentence]) -> Tensor:
        """`[pairs, 2B + Q]`: True where sentence k has the text of the pair's source or target."""
        numbers: dict[str, int] = {}

        def number(text: str) -> int:
            return numbers.setdefault(text_key(text), len(numbers))

        source = torch.tensor([number(pair.source) for pair in pairs])
        target = torch.tensor([number(pair.target) for pair in pairs])
        other = torch.tensor([number(s.text) for s in sentences], dtype=torch.long)
        k = torch.cat([source, target, other])
        return (source[:, None] == k) | (target[:, None] == k)
