"""Translation ranking with an additive margin (LaBSE): a sentence must pick its translation with room to spare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from interlingua.data.records import ParallelPair
from interlingua.errors import BadInput
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
from interlingua.objectives.semantic import ON, pair_requests, roles, same_meaning


def translation_ranking(
    source: Tensor,
    target: Tensor,
    *,
    margin: float = 0.3,
    temperature: float | Tensor = 0.05,
    groups: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Bidirectional additive-margin softmax of Yang et al. 2019 and LaBSE (Feng et al. 2022, eq. 1 and 2), cosine: the
    mean over pairs i of both directions' sum, source → target being

        −log  exp((cos(x_i, y_i) − m) / τ) / [ exp((cos(x_i, y_i) − m) / τ) + Σ_{n ≠ i} exp(cos(x_i, y_n) / τ) ]

    The negatives are the other pairs' sentences of the other side only. The margin has to be won by every translation
    over every negative before the loss falls.

    Args:
        source, target: `[pairs, dim]`; row i of one translates row i of the other.
        margin: m.
        temperature: τ; the papers print none.
        groups: `[pairs]` integers; pairs of one group share a meaning and are left out of each other's negatives.

    Returns:
        A float32 scalar; with no pairs, a zero that is connected to the graph. With the reduction "none" the pairs'
        losses, `[pairs]`, both directions together.
    """
    check_paired(source, target, "translation ranking")
    check_temperature(temperature)
    if not 0 <= margin < 2:  # the range of a difference of cosines
        raise BadInput(f"margin must be at least 0 and less than 2, got {margin}.")
    scores = similarities(source, target)
    own = torch.eye(len(source), dtype=torch.bool, device=scores.device)
    logits = (scores - margin * own) / temperature
    if groups is not None:
        logits = logits.masked_fill(same_number(groups, len(source), "groups", scores.device) & ~own, -torch.inf)
    gold = torch.arange(len(source), device=scores.device)
    rows = F.cross_entropy(logits, gold, reduction="none") + F.cross_entropy(logits.T, gold, reduction="none")
    return reduced(rows, reduction)


class TranslationRanking(Objective):
    """`translation_ranking` on the pairs of a parallel stream."""

    class Settings(ObjectiveSettings):
        """Options of the comparison of sentences."""

        margin: float = Field(0.3, ge=0, lt=2, description="m; 0.3 is LaBSE's, 0 is InfoNCE in both directions")
        temperature: float = Field(0.05, gt=0, description="τ; the papers print none")
        on: Roles = Field("passage", description=ON)
        duplicates: Literal["mask", "keep"] = Field(
            "mask", description="whether a sentence that comes twice (or a shared `group`) is left out of the negatives"
        )

    settings: Settings
    streams = ("parallel",)

    def requests(self, batch: Batch) -> dict[str, Texts]:
        return pair_requests(require(batch["parallel"], ParallelPair, self), self.settings.on)

    def loss(self, batch: Batch, vectors: Mapping[str, Tensor]) -> Loss:
        pairs = require(batch["parallel"], ParallelPair, self)
        groups = None if self.settings.duplicates == "keep" else torch.tensor(same_meaning(pairs), dtype=torch.long)
        rows = torch.stack(
            [
                translation_ranking(
                    vectors[f"{role}.source"],
                    vectors[f"{role}.target"],
                    margin=self.settings.margin,
                    temperature=self.settings.temperature,
                    groups=groups,
                    reduction="none",
                )
                for role in roles(self.settings.on)
            ]
        ).mean(0)
        report = {"chance": 2 * math.log(max(1, len(pairs))), **by_language([pair.lang for pair in pairs], rows)}
        return Loss(reduced(rows), report)
