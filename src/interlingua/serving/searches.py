"""What a batch of searches runs: one call of the index for all questions, and hits as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

HIGHLIGHTED = 100
"""Hits of an answer that get highlights: they cost some milliseconds each, and all clients wait meanwhile."""


@dataclass(frozen=True)
class Searches:
    """The options that searches of one batch share. An item is a question and its language ("" where it is not sure).

    `same` says that `langs` is the language of the questions, of which the index may have no passage.
    """

    index: Any
    reranker: Any
    k: int
    mode: str
    langs: tuple[str, ...] | None
    same: bool
    where: tuple[tuple[str, str], ...]
    highlight: bool

    def __call__(self, items: Sequence[tuple[str, str]]) -> list[list[dict[str, Any]]]:
        if self.same:
            self.index.refresh()  # another process may have written the first passage in this language
            if not set(self.langs or ()) & set(self.index.languages):
                return [[] for _ in items]
        found = self.index.search_many(
            [text for text, _ in items], k=self.k, langs=self.langs, mode=self.mode, where=dict(self.where) or None,
            lang=[lang or None for _, lang in items], reranker=self.reranker)
        return [self._hits(hits, *item) for item, hits in zip(items, found, strict=True)]

    def _hits(self, hits: Sequence[Any], question: str, lang: str) -> list[dict[str, Any]]:
        from interlingua.retrieval.highlights import Highlights, marker

        spans = None
        if self.highlight and hits:
            spans = Highlights(question, lang, marker(self.reranker, self.index, self.mode))
        return [{"id": hit.passage.id, "rank": rank, "score": finite(hit.score),
                 "parts": {name: finite(score) for name, score in hit.parts.items()},
                 "source": hit.passage.source, "lang": hit.passage.lang,
                 "title": hit.passage.title, "text": hit.passage.text, "metadata": dict(hit.passage.metadata),
                 "highlights": spans(hit.passage) if spans and rank <= HIGHLIGHTED else []}
                for rank, hit in enumerate(hits, 1)]


def finite(score: float) -> float | None:
    """The score, or None where JSON has no number for it (a passage without tokens has −∞ under MaxSim)."""
    return float(score) if math.isfinite(score) else None
