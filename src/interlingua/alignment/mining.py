"""Bitext mining: the pairs of two comparable sets of sentences that translate each other, by margin, one to one.

Artetxe & Schwenk 2019, "Margin-based Parallel Corpus Mining with Multilingual Sentence Embeddings", section 3.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from interlingua.alignment.corpus_side import CorpusSide
from interlingua.alignment.margin import KINDS, Scores, margin
from interlingua.alignment.neighbours import nearest_both
from interlingua.errors import InterlinguaError, suggestion
from interlingua.progress import say

RETRIEVALS = ("max", "intersection", "forward")
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Bitext:
    """Mined pairs, the best first: `x` and `y` [pairs] int64 are rows of the two sides, `scores` [pairs] float32 their
    margins. Iterating gives `(x, y, score)`."""

    x: Rows
    y: Rows
    scores: Scores

    def __len__(self) -> int:
        return len(self.scores)

    def __iter__(self) -> Iterator[tuple[int, int, float]]:
        return iter(zip(self.x.tolist(), self.y.tolist(), self.scores.tolist(), strict=True))

    def __getitem__(self, place: int) -> tuple[int, int, float]:
        return int(self.x[place]), int(self.y[place]), float(self.scores[place])


def mine_bitext(x: Any, y: Any, k: int = 4, threshold: float | None = None, kind: str = "ratio",
                retrieval: str = "max", *, device: str | torch.device | None = None) -> Bitext:
    """Pairs of rows of `x` [n, dim] and `y` [m, dim] whose vectors are likely translations, by falling margin.

    The sides may be of any and of unequal length, arrays, memory maps or tensors; no [n, m] matrix is made. Each
    sentence proposes the one of its `k` nearest with the largest `kind` of margin ("ratio", "distance", "absolute": see
    `margin`). `retrieval`: "max" takes the proposals of both sides, the best first, and leaves out those of which a
    sentence is taken already; "intersection" takes those that both sides make; "forward" takes those of `x`, so that a
    row of `y` may come several times. `threshold` drops lower margins; without it all are given. Equal margins are in
    order of the rows.

    Proposals whose neighbours' mean cosine is not positive have no ratio: they are left out, and counted on standard
    error. Raises InterlinguaError for an unknown option, and naming side and row for NaN, infinity and zero vectors.
    """
    for name, value, known in (("margin", kind, KINDS), ("retrieval", retrieval, RETRIEVALS)):
        if value not in known:
            raise InterlinguaError(f"{name} '{value}' is unknown.{suggestion(value, known)}")
    of_x, of_y = nearest_both(x, y, k, device=device)
    if not len(of_x.indices) or not len(of_y.indices):
        return Bitext(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    mean_x, mean_y = of_x.cosines.mean(axis=1), of_y.cosines.mean(axis=1)
    of_x_score = margin(of_x.cosines, mean_x[:, None], mean_y[of_x.indices], kind)
    of_y_score = margin(of_y.cosines, mean_x[of_y.indices], mean_y[:, None], kind)
    if kind == "ratio":
        of_x_score[mean_x[:, None] + mean_y[of_x.indices] <= 0] = -np.inf
        of_y_score[mean_x[of_y.indices] + mean_y[:, None] <= 0] = -np.inf
    rows_x, rows_y = np.arange(len(mean_x)), np.arange(len(mean_y))
    best_x, best_y = of_x_score.argmax(axis=1), of_y_score.argmax(axis=1)
    forward = rows_x, of_x.indices[rows_x, best_x], of_x_score[rows_x, best_x]
    backward = of_y.indices[rows_y, best_y], rows_y, of_y_score[rows_y, best_y]
    if retrieval == "max":
        proposals = tuple(np.concatenate(pair) for pair in zip(forward, backward, strict=True))
    else:
        agreed = backward[0][forward[1]] == rows_x if retrieval == "intersection" else slice(None)
        proposals = tuple(part[agreed] for part in forward)
    pairs_x, pairs_y, scores = proposals
    without = int(np.isneginf(scores).sum())
    if without:
        say(f"{without:,} of {len(scores):,} proposals left out: the mean cosine of their neighbours is not positive, "
            "so they have no ratio. Try the margin 'distance'.")
    kept = np.flatnonzero(scores > -np.inf if threshold is None else (scores >= threshold) & (scores > -np.inf))
    order = kept[np.lexsort((pairs_y[kept], pairs_x[kept], -scores[kept]))]
    if retrieval == "max":
        order = _one_to_one(pairs_x, pairs_y, order)
    return Bitext(pairs_x[order], pairs_y[order], scores[order])


def mine_sentences(x: CorpusSide, y: CorpusSide, encode: Callable[..., Any], *, half: bool = False,
                   langs: tuple[str | None, str | None] = (None, None), **options: Any) -> Bitext:
    """`mine_bitext` of the sentences of `x` and `y`, with its `options`. Their vectors, `encode(texts)` or, where the
    side's lang is given, `encode(texts, lang=lang)`, are kept in temporary files, in float16 with `half`."""
    with tempfile.TemporaryDirectory(prefix="interlingua-mine-") as folder:
        return mine_bitext(x.encode(encode, Path(folder) / "x.npy", lang=langs[0], half=half),
                           y.encode(encode, Path(folder) / "y.npy", lang=langs[1], half=half), **options)


def _one_to_one(x: Rows, y: Rows, order: Rows) -> Rows:
    """Those of `order`, places in `x` and `y`, at which neither row has come before."""
    taken_x, taken_y = bytearray(int(x.max()) + 1), bytearray(int(y.max()) + 1)
    kept = []
    for place, one, other in zip(order.tolist(), x[order].tolist(), y[order].tolist(), strict=True):
        if not taken_x[one] and not taken_y[other]:
            taken_x[one] = taken_y[other] = 1
            kept.append(place)
    return np.array(kept, dtype=np.int64)
