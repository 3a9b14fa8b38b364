"""The semantic contrastive loss (Hu et al. 2023, eq. 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from interlingua.data.records import ParallelPair
from interlingua.objectives.objective import (
    Batch,
    Loss,
    Objective,
    ObjectiveSettings,
    Reduction,
    Roles,
    Texts,
    by_language,
    check_paired,
    check_temperature,
    reduced,
    require,
    same_number,
    similarities,
)
from interlingua.text.languages import text_key


def same_meaning(pairs: Sequence[ParallelPair]) -> list[int]:
    """One group number a pair, equal for pairs linked (directly or through others) by an equal sentence on
    either side, whatever its case and spacing, or by an equal non-empty `group`. In Hu et al. 2023, eq. 2, such pairs
    are negatives of each other, falsely."""
    return _linked([[text_key(pair.source), text_key(pair.target), *_group(pair)] for pair in pairs])


def right_answers(pairs: Sequence[ParallelPair]) -> list[int]:
    """One number a pair, equal for pairs whose sentences all translate each other: those of one `group`, and pairs that
    come twice. One sentence in common is not enough: "Ja." translates "Yes." and "Indeed."."""
    return _linked([[(text_key(pair.source), text_key(pair.target)), *_group(pair)] for pair in pairs])


def _group(pair: ParallelPair) -> list[tuple[str]]:
    return [(pair.group,)] if pair.group else []


def _linked(keys: Sequence[Sequence[object]]) -> list[int]:
    """A number for each row of keys, equal for rows with a key in common, directly or through others."""
    leader = list(range(len(keys)))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    first: dict[object, int] = {}
    for i, row in enumerate(keys):
        for key in row:
            leader[find(i)] = find(first.setdefault(key, i))
    return [find(i) for i in range(len(keys))]


def semantic_contrastive(
    source: Tensor,
    target: Tensor,
    *,
    temperature: float | Tensor = 0.1,
    groups: Tensor | None = None,
    positives: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """semaCL of Hu et al. 2023, eq. 2 (NT-Xent over the 2B sentences of B pairs, cosine): the mean over
    the 2B anchors of

        −log  exp(s_ij / τ) / Σ_{k ≠ i} exp(s_ik / τ)          j = the translation of i

    The denominator holds the positive and 2(B−1) negatives of both languages and all language pairs.

    Args:
        source, target: `[pairs, dim]`; row i of one translates row i of the other.
        temperature: τ (0.1; the paper does not report it).
        groups: `[pairs]` integers; pairs of one group share a meaning (the same English sentence
            twice, multi-way parallel text), so they are left out of each other's negatives.
        positives: `[pairs]` integers; the sentences of pairs with one number are right answers to each other
            (Khosla et al. 2020, the mean outside the logarithm), not only those of one pair.

    Returns:
        A float32 scalar; with no pairs, a zero that is connected to the graph. With the reduction "none" the anchors'
        losses, `[2 · pairs]`, sources first.
    """
    check_paired(source, target, "semantic loss")
    check_temperature(temperature)
    pairs = len(source)
    sentences = torch.cat([source, target])
    logits = similarities(sentences, sentences) / temperature
    itself = torch.eye(2 * pairs, dtype=torch.bool, device=logits.device)
    partner = itself.roll(pairs, dims=1)
    logits = logits.masked_fill(itself, -torch.inf)
    right = partner
    if positives is not None:
        right = (same_number(positives, pairs, "positives", logits.device).repeat(2, 2) | partner) & ~itself
    if groups is not None:
        related = same_number(groups, pairs, "groups", logits.device).repeat(2, 2)
        logits = logits.masked_fill(related & ~itself & ~right, -torch.inf)
    if positives is None:
        rows = F.cross_entropy(logits, partner.long().argmax(1), reduction="none") if pairs else logits.sum(1)
    else:
        log_share = logits - logits.logsumexp(1, keepdim=True)
        rows = -log_share.masked_fill(~right, 0.0).sum(1) / right.sum(1)
    return reduced(rows, reduction)


ON = (
    "which encoder reads the sentences; `both`: the mean of the two losses, which the paper found unstable (§2.4). With"
    " tied encoders there is but one"
)


class Semantic(Objective):
    """`semantic_contrastive` on the pairs of a parallel stream."""

    class Settings(ObjectiveSettings):
        """Options of the comparison of sentences."""

        temperature: float = Field(0.1, gt=0, description="τ; the paper does not report it")
        on: Roles = Field("passage", description=ON)
        duplicates: Literal["mask", "positives", "keep"] = Field(
            "mask",
            description="a sentence that comes twice (or translations that share a `group`) is no negative; `positives`"
            ": those of a `group`, and of a pair that comes twice, are right answers; `keep`: all are negatives, the "
            "paper's letter",
        )

    settings: Settings
    streams = ("parallel",)

    def requests(self, batch: Batch) -> dict[str, Texts]:
        return pair_requests(require(batch["parallel"], ParallelPair, self), self.settings.on)

    def loss(self, batch: Batch, vectors: Mapping[str, Tensor]) -> Loss:
        pairs = require(batch["parallel"], ParallelPair, self)
        duplicates = self.settings.duplicates
        groups = None if duplicates == "keep" else torch.tensor(same_meaning(pairs), dtype=torch.long)
        positives = torch.tensor(right_answers(pairs), dtype=torch.long) if duplicates == "positives" else None
        rows = torch.stack(
            [
                semantic_contrastive(
                    vectors[f"{role}.source"],
                    vectors[f"{role}.target"],
                    temperature=self.settings.temperature,
                    groups=groups,
                    positives=positives,
                    reduction="none",
                )
                for role in roles(self.settings.on)
            ]
        ).mean(0)
        chance = torch.tensor(2.0 * len(pairs) - 1).log().item() if pairs else 0.0
        return Loss(reduced(rows), {"ln_candidates": chance, **by_language([pair.lang for pair in pairs] * 2, rows)})


def roles(on: str) -> list[str]:
    """The encoders that `on` names."""
    return ["query", "passage"] if on == "both" else [on]


def pair_requests(pairs: Sequence[object], on: str) -> dict[str, Texts]:
    """Both sides of every pair, for every encoder that `on` names."""
    requests = {}
    for role in roles(on):
        requests[f"{role}.source"] = Texts(role, [pair.source for pair in pairs])  # type: ignore[attr-defined]
        requests[f"{role}.target"] = Texts(role, [pair.target for pair in pairs])  # type: ignore[attr-defined]
    return requests
