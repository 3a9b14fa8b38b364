"""Search a view of a store: dense, lexical or hybrid, then perhaps reranked. The same for every store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Generic, NamedTuple

import numpy as np

from interlingua.data.records import Passage, Query
from interlingua.index.metadata import Budget, Question, Questions
from interlingua.index.ranking import hybrid, lexical_shares, meaning_weight, ranking_names, share_of_own
from interlingua.index.store import Floats, LexicalMatches, Row, Scores, View
from interlingua.models.protocols import AnyEncoder
from interlingua.retrieval.late_interaction.states import StateMaxSim
from interlingua.retrieval.late_interaction.static import StaticMaxSim
from interlingua.retrieval.rerank import model_retriever, rerank
from interlingua.retrieval.run import Run
from interlingua.text.languages import find_code

DEPTH = 100
"""The best passages of each kind of search from which a hybrid ranking is made, and those that are reranked."""


class Hit(NamedTuple):
    """A passage found and its score. `parts` are the scores that it came from: "dense" (cosine or dot product, as the
    encoder's similarity says), "lexical" (BM25), "tokens" (`StaticMaxSim`) and "reranker", those of them that were
    computed."""

    passage: Passage
    score: float
    parts: dict[str, float]


@dataclass(frozen=True)
class Ranking(Generic[Row]):
    """The best rows for one question with their scores, best first, and the scores of candidates by part."""

    best: list[tuple[Row, float]]
    parts: Mapping[str, Scores[Row]]


@dataclass(frozen=True)
class Search(Generic[Row]):
    """Searches of `mode` for `k` passages in `view`, which is narrowed to passages in `languages`; `words` matches
    passages subword by subword, or by token states. `budget` is what each question may take, without the reranker.
    `states`: the vectors come from token states.
    """

    view: View[Row]
    mode: str
    k: int
    languages: Mapping[str, int]
    words: StaticMaxSim | StateMaxSim[Row] | None = None
    budget: Budget = field(default_factory=Budget)
    states: bool = False

    def hits(self, questions: Questions, vectors: Floats | None, reranker: AnyEncoder | None = None) -> list[list[Hit]]:
        """The hits for each question; its vector is in `vectors` [questions, dim], None in lexical search."""
        asked, hits = questions.asked, list[list[Hit]]()
        depth = max(self.k, DEPTH) if reranker is not None or self.mode == "hybrid" else self.k
        together = self.view.together or len(asked)
        rankings: list[Ranking[Row]] = []
        for start in range(0, len(asked), together):
            part = slice(start, start + together)
            rankings += self._rankings(asked[part], None if vectors is None else vectors[part], depth)
            if reranker is None:
                hits += map(self._hits, rankings)
                rankings = []  # rows may hold all that their store knows of a passage
        if reranker is not None:
            hits = [self._hits(ranking) for ranking in self._reranked(questions.queries, rankings, reranker, depth)]
        return hits

    def _hits(self, ranking: Ranking[Row]) -> list[Hit]:
        best = ranking.best[: self.k]
        passages = self.view.passages([row for row, _ in best])
        return [
            Hit(passage, score, {part: scores[row] for part, scores in ranking.parts.items() if row in scores})
            for passage, (row, score) in zip(passages, best, strict=True)
        ]

    def _rankings(self, asked: Sequence[Question], vectors: Floats | None, depth: int) -> list[Ranking[Row]]:
        """The best `depth` passages for each of some questions."""
        view, budget = self.view, self.budget
        dense: Sequence[Scores[Row]] = [{} for _ in asked]
        terms = [Counter[str]() for _ in asked]
        if self.mode != "dense":
            for number, question in enumerate(asked):
                with budget.stage("analysis", question):
                    terms[number] = question.terms(view.languages)
        if self.mode == "hybrid" and vectors is not None:
            with budget.stage("scoring", *asked):
                fused = view.fused(vectors, terms, depth)
            if fused is not None:
                return [Ranking(self._first(parts["hybrid"], depth), {**parts, "hybrid": {}}) for parts in fused]
        if vectors is not None:
            with budget.stage("dense search", *asked):
                dense = view.dense(vectors, depth)
        matches: Iterable[LexicalMatches[Row]] = ()
        if self.mode != "dense":
            with budget.stage("scoring", *asked):
                matches = view.lexical(terms, depth)
        rankings, rest = [], iter(matches)
        for number, question in enumerate(asked):
            with budget.stage("scoring", question):
                vector = None if vectors is None else vectors[number]
                lexical = None if self.mode == "dense" else next(rest)
                rankings.append(self._ranking(question, lexical, vector, dense[number], depth))
        return rankings

    def _ranking(
        self,
        question: Question,
        matches: LexicalMatches[Row] | None,
        vector: Floats | None,
        dense: Scores[Row],
        depth: int,
    ) -> Ranking[Row]:
        """The best `depth` passages, and the scores of all candidates."""
        if matches is None:
            return Ranking(self._first(dense, depth), {"dense": dense})
        if vector is None:
            return Ranking(self._first(matches.best, depth), {"lexical": matches.best})
        # both scores of each candidate, whichever search found it
        every = list(dict(self._first(matches.best, depth)) | dict(self._first(dense, depth)))
        scores = {"lexical": matches.scores(every), "dense": self.view.dense_scores(every, vector)}
        names = self._names(every)
        rows = {name: row for row, name in names.items()}
        parts = {part: {names[row]: score for row, score in by_row.items()} for part, by_row in scores.items()}
        langs = dict(zip(rows, self.view.langs(every), strict=True))
        share = share_of_own(question.lang, self.languages)
        run = hybrid(
            question.text,
            parts,
            lexical_shares(question, self.view.languages, matches.weights, parts["lexical"], langs),
            meaning_weight(share, bool(find_code(question.lang)), self.states),
            share,
            langs,
            self.words,
            lambda chosen: self._tokens([rows[name] for name in chosen]),
        )
        return Ranking(
            [(rows[name], score) for name, score in run.truncate(depth)["q"]],
            {part: {rows[name]: score for name, score in by_name.items()} for part, by_name in parts.items()},
        )

    def _tokens(self, rows: Sequence[Row]) -> Sequence[Sized]:
        """The subwords of passages, or their token states where those are kept."""
        if isinstance(self.words, StateMaxSim):
            return self.words.tokens(rows, self.view.tokens(self.words.states, rows), self.view.passages)
        return self.view.subwords(rows)

    def _first(self, scores: Scores[Row], depth: int) -> list[tuple[Row, float]]:
        """The `depth` best of some scores, ordered as all rankings are."""
        if len(scores) > depth:  # names of those alone that may be among them are read
            values = np.fromiter(scores.values(), np.float32, len(scores))
            least = np.partition(values, -depth)[-depth]
            scores = {
                row: score for row, score, low in zip(scores, scores.values(), values < least, strict=True) if not low
            }
        names = self._names(list(scores))
        rows = {name: row for row, name in names.items()}
        ranked = Run.from_scores({"q": {names[row]: score for row, score in scores.items()}}).truncate(depth)
        return [(rows[name], score) for name, score in ranked["q"]]

    def _names(self, rows: Sequence[Row]) -> dict[Row, str]:
        """The names with which passages are ranked: see `ranking_names`."""
        names = ranking_names(self.view.ids(rows), lambda: [self.view.source(row) for row in rows])
        return dict(zip(rows, names, strict=True))

    def _reranked(
        self, queries: Sequence[Query], rankings: Sequence[Ranking[Row]], reranker: AnyEncoder, depth: int
    ) -> list[Ranking[Row]]:
        """Rerank the rankings; the reranker's scores are one more part."""
        every = list(dict.fromkeys(row for ranking in rankings for row, _ in ranking.best))
        names = self._names(every)
        rows = {name: row for row, name in names.items()}
        passages = [replace(passage, id=name) for passage, name in zip(self.view.passages(every), rows, strict=True)]
        run = Run()
        for query, ranking in zip(queries, rankings, strict=True):
            run.add(query.id, [names[row] for row, _ in ranking.best], [score for _, score in ranking.best])
        tokens = {names[row]: place for row, place in self.view.tokens(reranker, every).items()}
        run = rerank(run, queries, model_retriever(reranker, passages, tokens or None), depth)
        best = [[(rows[name], score) for name, score in run[query.id]] for query in queries]
        return [
            Ranking(ordered, {**ranking.parts, "reranker": dict(ordered)})
            for ordered, ranking in zip(best, rankings, strict=True)
        ]
