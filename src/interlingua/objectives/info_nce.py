"""The retrieval loss: a question must pick its passage out of all passages of the batch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from interlingua.errors import InterlinguaError
from interlingua.objectives.similarity import Similarity, check_temperature, similarities


def info_nce(queries: Tensor, passages: Tensor, *, temperature: float | Tensor = 1.0,
             similarity: Similarity = "cosine", mask: Tensor | None = None, symmetric: bool = False) -> Tensor:
    """L_IR of Hu et al. 2023, eq. 1 (DPR's in-batch negatives): the mean over questions of

        −log  exp(sim(q_i, p_i) / τ) / Σ_j exp(sim(q_i, p_j) / τ)

    With the paper's cosine and τ = 1 the loss lives in a narrow band: ln M when all M candidates are
    alike, ln(1 + (M−1)·e^(−M/(M−1))) at best (3.57 for M = 96). It flattens there; that is convergence.

    Args:
        queries: `[queries, dim]`.
        passages: `[candidates, dim]`, candidates ≥ queries; `passages[:len(queries)]` are the positives,
            the rest are hard negatives, shared by all questions.
        temperature: τ, a float or a learnable scalar tensor.
        similarity: "cosine" or "dot".
        mask: `[queries, candidates]` bool, True = leave this candidate out (a false negative).
            A question's own positive is never left out.
        symmetric: also let each positive pick its question (over the positives only), and average.

    Returns:
        A float32 scalar; with no questions, a zero that is connected to the graph.
    """
    rows = info_nce_rows(queries, passages, temperature=temperature, similarity=similarity, mask=mask,
                         symmetric=symmetric)
    return rows.mean() if len(rows) else queries.float().sum() + passages.float().sum() * 0


def info_nce_rows(queries: Tensor, passages: Tensor, *, temperature: float | Tensor = 1.0,
                  similarity: Similarity = "cosine", mask: Tensor | None = None, symmetric: bool = False) -> Tensor:
    """`info_nce` before its mean: one loss a question, `[queries]`."""
    check_temperature(temperature)
    if len(passages) < len(queries):
        raise InterlinguaError(f"{len(queries)} questions need at least as many passages, got {len(passages)}: "
                               "passages[:len(queries)] are the positives.")
    logits = similarities(queries, passages, similarity) / temperature
    if mask is not None:
        if mask.shape != logits.shape:
            raise InterlinguaError(f"mask must be [queries, candidates] = {list(logits.shape)}, "
                                   f"got {list(mask.shape)}.")
        own = torch.eye(*logits.shape, dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(mask.to(logits.device) & ~own, -torch.inf)
    gold = torch.arange(len(queries), device=logits.device)
    rows = F.cross_entropy(logits, gold, reduction="none")
    if symmetric:
        rows = (rows + F.cross_entropy(logits[:, : len(queries)].T, gold, reduction="none")) / 2
    return rows
