"""Is the space healthy? Alignment, uniformity and spread of the vectors, and the alarm when they collapse."""

from __future__ import annotations

import torch

from interlingua.objectives.geometry import alignment, effective_rank, mean_pairwise_cosine, uniformity
from interlingua.training.step import Report

SAMPLE = 512
"""Rows looked at: pairwise numbers cost the square of it."""

COLLAPSED_COSINE = 0.99
COLLAPSED_RANK = 2.0


def space(reports: dict[str, Report]) -> dict[str, float]:
    """Numbers of the vectors of a measured step: of pairs (alignment), and of passages or else sentences."""
    vectors = {name: rows[:SAMPLE] for report in reports.values() for name, rows in report.vectors.items()}
    found: dict[str, float] = {}
    source = next((name for name in vectors if name.endswith(".source")), None)
    if source is not None and len(vectors[source]):
        target = vectors[source.replace(".source", ".target")]
        found["space/alignment"] = float(alignment(vectors[source], target))
    sample = next((rows for name, rows in vectors.items()
                   if name in ("passages", "targets") or name.endswith(".target")), None)
    if sample is not None and len(sample) > 2:
        found["space/uniformity"] = float(uniformity(sample))
        found["space/mean_cosine"] = float(mean_pairwise_cosine(sample))
        found["space/effective_rank"] = float(effective_rank(sample))
    return found


def alarm(numbers: dict[str, float]) -> str | None:
    """A sentence when the vectors have collapsed, saying what to try."""
    cosine, rank = numbers.get("space/mean_cosine", 0.0), numbers.get("space/effective_rank", torch.inf)
    if cosine < COLLAPSED_COSINE and rank > COLLAPSED_RANK:
        return None
    return (f"The vectors have collapsed (mean cosine {cosine:.3f}, effective rank {rank:.1f}): texts can no longer be "
            "told apart. Lower optimizer.lr, objectives.language.weight if there is one, and the temperature of the "
            "contrastive losses (0.05). At the first step of a bare pretrained model this is no alarm yet.")
