"""What a batch of searches runs: one call of the index for all questions, and hits as JSON has them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from interlingua.retrieval.index_questions import Budget, OutOfTime, Question

HIGHLIGHTED = 100
"""Hits of an answer that get highlights: they cost some milliseconds each, and all clients wait meanwhile."""


class Answer(NamedTuple):
    """Hits, and in words what of the question, or of the answer to it, was left out."""

    hits: list[dict[str, Any]]
    notices: list[str]


@dataclass(frozen=True)
class Searches:
    """The options that searches of one batch share. An item is a question, which may take `seconds` of work.

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
    seconds: float = math.inf

    def __call__(self, items: Sequence[Question]) -> list[Answer]:
        if self.same:
            self.index.refresh()  # another process may have written the first passage in this language
            if not set(self.langs or ()) & set(self.index.languages):
                return [Answer([], []) for _ in items]
        budget = Budget(self.seconds)
        found = self.index.search_many(
            items, k=self.k, langs=self.langs, mode=self.mode, where=dict(self.where) or None, reranker=self.reranker,
            budget=budget)
        return [self._answer(hits, question, budget) for question, hits in zip(items, found, strict=True)]

    def _answer(self, hits: Sequence[Any], question: Question, budget: Budget) -> Answer:
        wanted = hits[:HIGHLIGHTED] if self.highlight else []
        marked, notices = self._marked(wanted, question, budget), []
        if question.is_cut:
            notices.append("the question is long: its first words were compared with those of the passages, the rest "
                           "only by the model.")
        if len(marked) < len(wanted):
            notices.append(f"highlights were left out from result {len(marked) + 1} on: the question took more than "
                           f"{self.seconds:g} seconds.")
        return Answer([{"id": hit.passage.id, "rank": rank, "score": finite(hit.score),
                        "parts": {name: finite(score) for name, score in hit.parts.items()},
                        "source": hit.passage.source, "lang": hit.passage.lang, "title": hit.passage.title,
                        "text": hit.passage.text, "metadata": dict(hit.passage.metadata),
                        "highlights": marked[rank - 1] if rank <= len(marked) else []}
                       for rank, hit in enumerate(hits, 1)], notices)

    def _marked(self, hits: Sequence[Any], question: Question, budget: Budget) -> list[list[tuple[int, int]]]:
        """The highlights of the hits, of as many as there is time for."""
        from interlingua.retrieval.highlights import Highlights, marker

        marked: list[list[tuple[int, int]]] = []
        try:
            if hits:
                with budget.stage("highlighting", question):
                    spans = Highlights(question, encoder=marker(self.reranker, self.index, self.mode))
            for hit in hits:
                with budget.stage("highlighting", question):
                    marked.append(spans(hit.passage))
        except OutOfTime:
            pass
        return marked


def finite(score: float) -> float | None:
    """The score, or None where JSON has no number for it (a passage without tokens has −∞ under MaxSim)."""
    return float(score) if math.isfinite(score) else None
