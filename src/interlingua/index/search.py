"""Search a view of a store: dense, lexical or hybrid, then perhaps reranked. The same for every store."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from math import inf, isfinite
from typing import Generic, NamedTuple

import numpy as np

from interlingua.data.records import Passage, Query
from interlingua.errors import BadInput
from interlingua.index.documents import cut_from, says
from interlingua.index.metadata import Budget, Question, Questions
from interlingua.index.ranking import hybrid, lexical_shares, meaning_weight, ranking_names, share_of_own
from interlingua.index.store import Floats, LexicalMatches, Row, Scores, View
from interlingua.models.protocols import AnyEncoder
from interlingua.retrieval.late_interaction.states import StateMaxSim
from interlingua.retrieval.late_interaction.static import StaticMaxSim
from interlingua.retrieval.rerank import model_retriever, rerank
from interlingua.retrieval.run import Run, ranking_order
from interlingua.text.languages import find_code

DEPTH = 100
"""The best passages of each kind of search from which a hybrid ranking is made, at least, and those that are reranked,
which are all that a reranked search finds."""
HEARD = 4
"""Times as many passages are looked for by their sound as by words: those in the question's language do not count."""
DISTINCT = 1_000
"""The best passages among which those are looked for that say different things; ten for each that is wanted, where that
is more."""
SAME = 5
"""Passages that a hit names which say the same."""
READ = 1_000
"""Passages that are read at once, between two looks at the clock."""
GROUPS = ("source", "document")
"""Groups that can be made of all passages, whether or not any of them has such metadata."""


class Hit(NamedTuple):
    """A passage found and its score. `parts` are the scores that it came from: "dense" (cosine or dot product, as the
    encoder's similarity says), "lexical" (BM25), "phonetic" (BM25 of phonetic keys, of passages in other languages than
    the question's), "tokens" (`StaticMaxSim`) and "reranker", those of them that were computed. Where hits were
    grouped, `group` is the value that the group has in common (None for a passage that stands alone), and `more` the
    number of further hits of the group. Where each text is given once, `repeated` is the number of further passages
    that say the same, and `same` are the first of them."""

    passage: Passage
    score: float
    parts: dict[str, float]
    group: str | None = None
    more: int = 0
    same: tuple[Passage, ...] = ()
    repeated: int = 0


def finite(score: float) -> float | None:
    """The score, or None where JSON has no number for it (a passage without tokens has −∞ under MaxSim)."""
    return float(score) if isfinite(score) else None


@dataclass(frozen=True)
class Ranking(Generic[Row]):
    """The best rows for one question with their scores, best first, and the scores of candidates by part."""

    best: list[tuple[Row, float]]
    parts: Mapping[str, Scores[Row]]


@dataclass(frozen=True)
class Search(Generic[Row]):
    """Searches of `mode` for `k` passages in `view`, which is narrowed to passages in `languages`; `words` matches
    passages subword by subword, or by token states. `budget` is what each question may take, without the reranker.
    `states`: the vectors come from token states. Hits with a lower score than `min_score` are left out.
    """

    view: View[Row]
    mode: str
    k: int
    languages: Mapping[str, int]
    words: StaticMaxSim | StateMaxSim[Row] | None = None
    budget: Budget = field(default_factory=Budget)
    states: bool = False
    min_score: float | None = None

    def hits(self, questions: Questions, vectors: Floats | None, reranker: AnyEncoder | None = None) -> list[list[Hit]]:
        """The hits for each question; its vector is in `vectors` [questions, dim], None in lexical search."""
        asked, hits = questions.asked, list[list[Hit]]()
        depth = DEPTH if reranker is not None else max(self.k, DEPTH) if self.mode == "hybrid" else self.k
        together = self.view.together or len(asked)
        rankings: list[Ranking[Row]] = []
        for start in range(0, len(asked), together):
            part = slice(start, start + together)
            rankings += self._rankings(asked[part], None if vectors is None else vectors[part], depth)
            if reranker is None:
                hits += map(self._hits, asked[part], rankings)
                rankings = []  # rows may hold all that their store knows of a passage
        if reranker is not None:
            hits += map(self._hits, asked, self._reranked(questions.queries, rankings, reranker, depth))
        return hits

    def _hits(self, question: Question, ranking: Ranking[Row]) -> list[Hit]:
        minimum = -inf if self.min_score is None else self.min_score
        best = [(row, score) for row, score in ranking.best[: self.k] if score >= minimum]
        hits: list[Hit] = []
        for start in range(0, len(best), READ):
            with self.budget.stage("reading passages", question):
                part = best[start : start + READ]
                hits += [
                    Hit(passage, score, {part: scores[row] for part, scores in ranking.parts.items() if row in scores})
                    for passage, (row, score) in zip(self.view.passages([row for row, _ in part]), part, strict=True)
                ]
        return hits

    def gathered(
        self, questions: Questions, vectors: Floats | None, reranker: AnyEncoder | None, key: str | None, distinct: bool
    ) -> list[list[Hit]]:
        """For each question the best hit of each of the `k` best groups, a group being the passages with one value
        under `key` in their metadata; or, with `distinct`, the `k` best hits that say different things; or both, of
        the groups then those hits.

        The search goes deeper until there are `k`, or no more passages. With a reranker they are those of the passages
        that it ranks.
        """
        best: dict[int, list[Hit]] = {}
        rest = list(range(len(questions.asked)))
        # without groups as deep as a plain search first: a hybrid score depends on it
        depth = DEPTH if reranker is not None or key is None else max(4 * self.k, DEPTH)
        deepest = self.view.deepest or sys.maxsize
        texts: dict[tuple[str, str], str] = {}

        def said(question: Question, passage: Passage) -> str:
            if passage.key not in texts:
                with self.budget.stage("comparing passages", question):
                    texts[passage.key] = says(passage)
            return texts[passage.key]

        if key is None:
            deepest = min(deepest, max(DISTINCT, 10 * self.k))
        while rest:
            depth = max(self.k, min(depth, deepest))
            part = questions._replace(
                asked=[questions.asked[place] for place in rest], queries=[questions.queries[place] for place in rest]
            )
            search = replace(self, k=depth)
            hits = search.hits(part, None if vectors is None else vectors[rest], reranker)
            for place, question_hits in zip(rest, hits, strict=True):
                groups = question_hits if key is None else grouped(question_hits, key)
                best[place] = groups[: self.k]
                if distinct:
                    best[place] = list(distinct_hits(groups, self.k, partial(said, questions.asked[place])).values())
            if reranker is not None or depth == deepest:
                break
            rest = [
                place
                for place, question_hits in zip(rest, hits, strict=True)
                if len(best[place]) < self.k and len(question_hits) == depth
            ]
            depth *= 4
        return [best[place] for place in range(len(questions.asked))]

    def _rankings(self, questions: Sequence[Question], vectors: Floats | None, depth: int) -> list[Ranking[Row]]:
        """The best `depth` passages for each of some questions."""
        view, budget = self.view, self.budget
        dense: Sequence[Scores[Row]] = [{} for _ in questions]
        terms, sounds = [Counter[str]() for _ in questions], [Counter[str]() for _ in questions]
        if self.mode != "dense":
            for number, question in enumerate(questions):
                with budget.stage("analysis", question):
                    terms[number] = question.terms(view.languages)
        if self.mode == "hybrid" and vectors is not None:
            with budget.stage("scoring", *questions):
                fused = view.fused(vectors, terms, depth)
            if fused is not None:
                return [Ranking(self._first(parts["hybrid"], depth), {**parts, "hybrid": {}}) for parts in fused]
            for number, question in enumerate(questions):
                if any(map(question.is_foreign, self.languages)):
                    with budget.stage("analysis", question):
                        sounds[number] = question.sounds
        if vectors is not None:
            with budget.stage("dense search", *questions):
                dense = view.dense(vectors, depth)
        words: Iterable[LexicalMatches[Row] | None] = repeat(None)
        heard: Iterable[LexicalMatches[Row] | None] = repeat(None)
        if self.mode != "dense":
            with budget.stage("scoring", *questions):
                words = view.lexical(terms, depth)
                if any(sounds):
                    heard = view.lexical(sounds, min(HEARD * depth, view.deepest or sys.maxsize))
        rankings, matches = [], zip(words, heard, strict=False)
        for number, question in enumerate(questions):
            with budget.stage("scoring", question):
                vector = None if vectors is None else vectors[number]
                rankings.append(self._ranking(question, *next(matches), vector, dense[number], depth))
        return rankings

    def _ranking(
        self,
        question: Question,
        words: LexicalMatches[Row] | None,
        heard: LexicalMatches[Row] | None,
        vector: Floats | None,
        dense: Scores[Row],
        depth: int,
    ) -> Ranking[Row]:
        """The best `depth` passages, and the scores of all candidates."""
        if words is None:
            return Ranking(self._first(dense, depth), {"dense": dense})
        if vector is None:
            return Ranking(self._first(words.best, depth), {"lexical": words.best})
        alike = [] if heard is None else self._best(self._foreign(question, heard.best), depth)
        # all scores of each candidate, whichever search found it
        candidates = list(dict.fromkeys(self._best(words.best, depth) + self._best(dense, depth) + alike))
        lexical = words.scores(candidates)
        phonetic = dict.fromkeys(candidates, 0.0) if heard is None else heard.scores(candidates)
        dense = dense | self.view.dense_scores([row for row in candidates if row not in dense], vector)
        langs, share = self.view.langs(candidates), share_of_own(question.lang, self.languages)
        ranked = hybrid(
            question.text,
            self.view.docid_order(candidates),
            langs,
            lexical_shares(
                question,
                self.view.languages,
                words.weights if heard is None else {**words.weights, **heard.weights},
                [lexical[row] for row in candidates],
                [phonetic[row] for row in candidates],
                langs,
            ),
            np.array([dense[row] for row in candidates]),
            meaning_weight(share, bool(find_code(question.lang)), self.states),
            share,
            self.words,
            lambda places: self._tokens([candidates[place] for place in places]),
        )
        best = zip(ranked.order[:depth].tolist(), ranked.scores[:depth].tolist(), strict=True)
        tokens = {candidates[place]: score for place, score in ranked.tokens.items()}
        parts = {"lexical": lexical, "dense": dense} | ({"tokens": tokens} if tokens else {})
        if heard is not None:
            pairs = zip(candidates, langs, strict=True)
            parts["phonetic"] = {
                row: phonetic[row] for row, lang in pairs if phonetic[row] > 0 and question.is_foreign(lang)
            }
        return Ranking([(candidates[place], score) for place, score in best], parts)

    def _foreign(self, question: Question, scores: Scores[Row]) -> Scores[Row]:
        """The scores of rows that are not in the question's language."""
        pairs = zip(scores.items(), self.view.langs(list(scores)), strict=True)
        return {row: score for (row, score), lang in pairs if question.is_foreign(lang)}

    def _tokens(self, rows: Sequence[Row]) -> Sequence[Sized]:
        """The subwords of passages, or their token states where those are kept."""
        if isinstance(self.words, StateMaxSim):
            return self.words.tokens(rows, self.view.tokens(self.words.states, rows), self.view.passages)
        return self.view.subwords(rows)

    def _first(self, scores: Scores[Row], depth: int) -> list[tuple[Row, float]]:
        """The `depth` best of some scores, ordered as all rankings are."""
        if (wrong := next((row for row, score in scores.items() if score != score), None)) is not None:
            raise BadInput(
                f"the score of passage '{self.view.ids([wrong])[0]}' is NaN. Look for NaN in the vectors or the model."
            )
        scores = _highest(scores, depth)  # names of those alone that may be among them are read
        rows, values = list(scores), np.fromiter(scores.values(), np.float32, len(scores))
        order = ranking_order(values, self.view.docid_order(rows))[:depth]
        return [(rows[place], score) for place, score in zip(order.tolist(), values[order].tolist(), strict=True)]

    def _best(self, scores: Scores[Row], depth: int) -> list[Row]:
        """The rows of the `depth` best of some scores, in any order: names are read only where they decide."""
        highest = _highest(scores, depth)
        return list(highest) if len(highest) <= depth else [row for row, _ in self._first(highest, depth)]

    def _reranked(
        self, queries: Sequence[Query], rankings: Sequence[Ranking[Row]], reranker: AnyEncoder, depth: int
    ) -> list[Ranking[Row]]:
        """Rerank the rankings; the reranker's scores are one more part."""
        candidates = list(dict.fromkeys(row for ranking in rankings for row, _ in ranking.best))
        unique = ranking_names(self.view.ids(candidates), lambda: [self.view.source(row) for row in candidates])
        names = dict(zip(candidates, unique, strict=True))
        rows = {name: row for row, name in names.items()}
        passages = [
            replace(passage, id=name) for passage, name in zip(self.view.passages(candidates), rows, strict=True)
        ]
        run = Run()
        for query, ranking in zip(queries, rankings, strict=True):
            run.add(query.id, [names[row] for row, _ in ranking.best], [score for _, score in ranking.best])
        tokens = {names[row]: place for row, place in self.view.tokens(reranker, candidates).items()}
        run = rerank(run, queries, model_retriever(reranker, passages, tokens or None), depth)
        best = [[(rows[name], score) for name, score in run[query.id]] for query in queries]
        return [
            Ranking(pairs, {**ranking.parts, "reranker": dict(pairs)})
            for pairs, ranking in zip(best, rankings, strict=True)
        ]


def _highest(scores: Scores[Row], depth: int) -> Scores[Row]:
    """The `depth` highest of some scores, and those that are as high as the last of them."""
    if len(scores) <= depth:
        return scores
    values = np.fromiter(scores.values(), np.float32, len(scores))
    threshold = np.partition(values, -depth)[-depth]
    return {row: score for row, score, low in zip(scores, scores.values(), values < threshold, strict=True) if not low}


def grouped(hits: Sequence[Hit], key: str) -> list[Hit]:
    """The first hit of each group, in their order. A passage without a value under `key` stands alone. Under "document"
    each passage has one: where it has no such metadata, the name of the document or row that it was cut from."""
    by_name: dict[Hashable, Hit] = {}
    counts: Counter[Hashable] = Counter()
    for place, hit in enumerate(hits):
        value = hit.passage.metadata.get(key) or None
        name: Hashable = place if value is None else value
        if value is None and key == "document":
            value = cut_from(hit.passage)[0]
            name = hit.passage.source, value  # rows of two files may have one id
        if name in by_name:
            counts[name] += 1
        else:
            by_name[name] = hit._replace(group=value)
    return [hit._replace(more=counts[name]) for name, hit in by_name.items()]


def distinct_hits(hits: Sequence[Hit], k: int, said: Callable[[Passage], str] = says) -> dict[int, Hit]:
    """The first `k` hits that say something else, by their places among all: each with the first `SAME` passages behind
    it that say the same, those that other hits stand for too, and their number. `said` gives what a passage says."""
    places: dict[str, int] = {}
    distinct: dict[int, Hit] = {}
    for place, hit in enumerate(hits):
        first = places.setdefault(said(hit.passage), place)
        if (one := distinct.get(first)) is not None:
            same = (*one.same, hit.passage, *hit.same)[:SAME]
            distinct[first] = one._replace(same=same, repeated=one.repeated + 1 + hit.repeated)
        elif len(distinct) < k:
            distinct[place] = hit
    return distinct
