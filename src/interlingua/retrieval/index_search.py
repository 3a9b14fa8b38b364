"""Questions put to a snapshot of an index: dense, lexical or both, then perhaps the order of another model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage, Query
from interlingua.retrieval.hybrid import hybrid, share_of_own
from interlingua.retrieval.index_dense import Near, exactly, scored
from interlingua.retrieval.index_lexical import Lexical
from interlingua.retrieval.index_questions import Budget, Question, Questions
from interlingua.retrieval.index_segment import Mask
from interlingua.retrieval.index_snapshot import Place, Snapshot
from interlingua.retrieval.index_tokens import IndexTokens
from interlingua.retrieval.model_retriever import model_retriever
from interlingua.retrieval.passage_names import ranking_names
from interlingua.retrieval.rerank import rerank
from interlingua.retrieval.run import Run
from interlingua.retrieval.static_maxsim import Ids, StaticMaxSim

if TYPE_CHECKING:  # it imports torch, which takes seconds
    from interlingua.retrieval.token_store import TokenStore

Floats = NDArray[np.float32]
Ranking = list[tuple[Place, float]]
Parts = dict[str, dict[Place, float]]
DEPTH = 100
"""The best passages of each kind of search from which a hybrid ranking is made, and those that are reranked."""


class View(NamedTuple):
    """What one search reads: all of one version."""

    snapshot: Snapshot
    lexical: Lexical
    near: Near


class Hit(NamedTuple):
    """A passage found and its score. `parts` are the scores that it came from: "dense" (cosine or dot product, as the
    encoder's similarity says), "lexical" (BM25), "tokens" (`StaticMaxSim`) and "reranker", those of them that were
    computed."""

    passage: Passage
    score: float
    parts: dict[str, float]


@dataclass(frozen=True)
class Search:
    """Searches of `mode` for `k` passages among the `chosen` rows (a mask for each segment of `snapshot`), which are in
    `languages`; `near` finds vectors, `words` matches passages subword by subword. `budget` is what each question may
    take."""

    snapshot: Snapshot
    chosen: Sequence[Mask | None]
    lexical: Lexical
    mode: str
    k: int
    languages: Mapping[str, int]
    near: Near = exactly
    words: StaticMaxSim | None = None
    budget: Budget = field(default_factory=Budget)

    def hits(self, questions: Questions, vectors: Floats | None, reranker: Any = None,
             tokens: IndexTokens | None = None) -> list[list[Hit]]:
        """The hits for each question; its vector is in `vectors` [questions, dim], None in lexical search. `tokens` are
        those that are kept for the reranker."""
        asked = questions.asked
        depth = max(self.k, DEPTH) if reranker is not None or self.mode == "hybrid" else self.k
        with self.budget.stage("dense search", *asked):
            near = [{} for _ in asked] if vectors is None else self.near(self.snapshot, vectors, depth, self.chosen)
        found = []
        for number, question in enumerate(asked):
            terms = Counter[str]()
            if self.mode != "dense":
                with self.budget.stage("analysis", question):
                    terms = question.terms(self.snapshot.languages)
            with self.budget.stage("scoring", question):
                vector = None if vectors is None else vectors[number]
                found.append(self._ranked(question, terms, vector, near[number], depth))
        if reranker is not None:
            found = self._reranked(questions.queries, found, reranker, tokens, depth)
        return [[Hit(self.snapshot.passage(place), score,
                     {part: scores[place] for part, scores in parts.items() if place in scores})
                 for place, score in ranking[: self.k]] for ranking, parts in found]

    def _ranked(self, question: Question, terms: Counter[str], vector: Floats | None, near: dict[Place, float],
                depth: int) -> tuple[Ranking, Parts]:
        """The best `depth` passages, and the scores of all candidates, by "dense" and "lexical"."""
        parts: Parts = {}
        scores: list[Floats] = []
        most = 0.0
        if self.mode != "dense":
            scores, most = self.lexical.scores(terms)
            parts["lexical"] = self.lexical.best(scores, depth, self.chosen)
        if vector is not None:
            parts["dense"] = near
        if self.mode != "hybrid" or vector is None:
            return self._first(parts[self.mode], depth), parts
        # both scores of each candidate, whichever search found it
        every = list(dict(self._first(parts["lexical"], depth)) | dict(self._first(near, depth)))
        parts["lexical"] = {place: float(scores[place[0]][place[1]]) for place in every}
        parts["dense"] = scored(self.snapshot, every, vector)
        names = self._names(every)
        places = {name: place for place, name in names.items()}
        named = {part: {names[place]: score for place, score in held.items()} for part, held in parts.items()}

        def subwords(name: str) -> Ids:
            part, row = places[name]
            return self.snapshot.segments[part].subwords[row]

        langs = {name: self.snapshot.lang(place) for name, place in places.items()}
        share = share_of_own(question.lang, self.languages)
        run = hybrid(question.text, named, most, share, langs, self.words, subwords)
        return ([(places[name], score) for name, score in run.truncate(depth)["q"]],
                {part: {places[name]: score for name, score in held.items()} for part, held in named.items()})

    def _first(self, scores: dict[Place, float], depth: int) -> Ranking:
        """The `depth` best of some scores, ordered as all rankings are."""
        names = self._names(list(scores))
        places = {name: place for place, name in names.items()}
        ranked = Run.from_scores({"q": {names[place]: score for place, score in scores.items()}}).truncate(depth)
        return [(places[name], score) for name, score in ranked["q"]]

    def _names(self, places: Sequence[Place]) -> dict[Place, str]:
        """The names with which passages are ranked: see `ranking_names`."""
        order: list[Place] = []
        ids: list[str] = []
        for number, segment in enumerate(self.snapshot.segments):
            rows = [row for part, row in places if part == number]
            order += [(number, row) for row in rows]
            ids += segment.passages.ids(rows)
        return dict(zip(order, ranking_names(ids, lambda: list(map(self.snapshot.source, order))), strict=True))

    def _reranked(self, queries: Sequence[Query], found: Sequence[tuple[Ranking, Parts]], reranker: Any,
                  tokens: IndexTokens | None, depth: int) -> list[tuple[Ranking, Parts]]:
        """What was found, in the order of the reranker, whose scores join the parts."""
        names = self._names(list(dict.fromkeys(place for ranking, _ in found for place, _ in ranking)))
        places = {name: place for place, name in names.items()}
        passages = [replace(self.snapshot.passage(place), id=name) for place, name in names.items()]
        run = Run()
        for query, (ranking, _) in zip(queries, found, strict=True):
            run.add(query.id, [names[place] for place, _ in ranking], [score for _, score in ranking])
        kept = self._kept(tokens, places) if tokens else None
        run = rerank(run, queries, model_retriever(reranker, passages, kept), depth)
        rankings = [[(places[name], score) for name, score in run[query.id]] for query in queries]
        return [(ranking, {**parts, "reranker": dict(ranking)})
                for ranking, (_, parts) in zip(rankings, found, strict=True)]

    def _kept(self, tokens: IndexTokens, places: Mapping[str, Place]) -> dict[str, tuple[TokenStore, int]]:
        """Which of the passages have token vectors, and where."""
        numbers = {name: int(self.snapshot.segments[part].numbers[row]) for name, (part, row) in places.items()}
        found = tokens.find(list(numbers.values()))
        return {name: found[number] for name, number in numbers.items() if number in found}
