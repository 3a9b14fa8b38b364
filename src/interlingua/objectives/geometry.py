"""The shape of an embedding space in a few numbers: the signs of collapse, and how far languages lie apart.

Pure functions of embeddings `[texts, dim]` (tensor or array, any floating type, any device); all arithmetic
in float32, without gradient. Each raises BadInput where there are too few texts to say anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from interlingua.errors import BadInput


@torch.no_grad()
def alignment(x: Any, y: Any) -> float:
    """mean ‖x_i − y_i‖² over pairs of unit vectors, 0 to 4: 0 when translations coincide (Wang & Isola 2020, α=2).

    `x`, `y`: [pairs, dim], brought to unit length here.
    """
    left, right = normalize(_matrix(x, 1), dim=1), normalize(_matrix(y, 1), dim=1)
    if left.shape != right.shape:
        raise BadInput(f"shapes {tuple(left.shape)} and {tuple(right.shape)}: pairs need equal shapes.")
    return float((left - right).square().sum(dim=1).mean())


@torch.no_grad()
def uniformity(z: Any) -> float:
    """log mean_{i<j} exp(−2‖z_i − z_j‖²) over unit vectors, −8 to 0: 0 when all coincide, and the lower the more
    evenly the sphere is used (Wang & Isola 2020, t=2). `z`: [texts, dim]; memory grows with texts²."""
    return float(torch.pdist(normalize(_matrix(z, 2), dim=1)).square().mul(-2).exp().mean().log())


@torch.no_grad()
def mean_pairwise_cosine(z: Any) -> float:
    """Mean cosine of all pairs i ≠ j: near 1 for a narrow cone or a collapsed space, near 0 for an even one."""
    unit = normalize(_matrix(z, 2), dim=1)
    n = len(unit)
    # Σ_{i≠j} cos = ‖Σ z‖² − Σ ‖z_i‖²: no [texts, texts] matrix
    return float((unit.sum(dim=0).square().sum() - unit.square().sum()) / (n * (n - 1)))


@torch.no_grad()
def effective_rank(z: Any) -> float:
    """exp of the entropy of the normalised singular values of `z` [texts, dim], not centred (Roy & Vetterli 2007):
    1 when all vectors are multiples of one, at most min(texts, dim), 0 when all are zero."""
    values = torch.linalg.svdvals(_matrix(z, 1))
    if not float(values.sum()):
        return 0.0
    shares = values / values.sum()
    return float(torch.special.entr(shares).sum().exp())


@torch.no_grad()
def language_distance(vectors: Mapping[str, Any]) -> float:
    """Distance between language centroids, in units of the spread within languages; the mean over language pairs.

    `vectors`: language → [texts, dim]. For languages a, b: ‖μ_a − μ_b‖ / √((s_a² + s_b²) / 2), where
    s² is the mean squared distance of a language's vectors from their centroid. 0 when a space knows no
    language; above 1 when the language matters more than what is said.
    """
    if len(vectors) < 2:
        raise BadInput(f"{len(vectors)} languages: a distance needs two.")
    matrices = {lang: _matrix(rows, 2) for lang, rows in vectors.items()}
    centroids = {lang: rows.mean(dim=0) for lang, rows in matrices.items()}
    spreads = {lang: (rows - centroids[lang]).square().sum(dim=1).mean() for lang, rows in matrices.items()}
    ratios = []
    for a, b in combinations(matrices, 2):
        spread = ((spreads[a] + spreads[b]) / 2).sqrt()
        if not float(spread):
            raise BadInput(f"the vectors of '{a}' and of '{b}' are all equal: distances have no unit.")
        ratios.append((centroids[a] - centroids[b]).norm() / spread)
    return float(torch.stack(ratios).mean())


def _matrix(z: Any, minimum: int) -> Tensor:
    matrix = torch.as_tensor(z).detach().float()
    if matrix.ndim != 2 or len(matrix) < minimum:
        raise BadInput(
            f"embeddings of shape {tuple(matrix.shape)}: [texts, dim] is needed, with {minimum} texts or more."
        )
    return matrix
