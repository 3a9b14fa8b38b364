"""Questions put to a snapshot of an index: dense, lexical or both, then perhaps the order of another model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage, Query
from interlingua.retrieval.fusion import normalised
from interlingua.retrieval.index_dense import Near, exactly, scored
from interlingua.retrieval.index_lexical import Lexical, question_terms
from interlingua.retrieval.index_segment import Mask
from interlingua.retrieval.index_snapshot import Place, Snapshot
from interlingua.retrieval.index_tokens import IndexTokens
from interlingua.retrieval.model_retriever import model_retriever
from interlingua.retrieval.rerank import rerank
from interlingua.retrieval.run import Run
from interlingua.retrieval.token_store import TokenStore
from interlingua.text.languages import find_code

Floats = NDArray[np.float32]
DEPTH = 100
"""The best passages of each kind of search from which a hybrid ranking is made, and those that are reranked."""
OWN, FOREIGN = 0.5, 2.0
"""Weights of the dense scores in a hybrid ranking, the lexical ones having 1, where all passages are in the question's
language and where none is: docs/search.md says what was measured."""


class View(NamedTuple):
    """What one search reads: all of one version."""

    snapshot: Snapshot
    lexical: Lexical
    near: Near


class Hit(NamedTuple):
    """A passage found and its score. `parts` are the scores that it came from: "dense" (cosine or dot product, as the
    encoder's similarity says), "lexical" (BM25) and "reranker", those of them that were computed."""

    passage: Passage
    score: float
    parts: dict[str, float]


def dense_weight(lang: str, languages: Mapping[str, int]) -> float:
    """The weight of the dense scores for a question in `lang` among passages in `languages` (how many in each): words
    say less, the fewer passages are in the question's language. An unknown language counts as half of them."""
    code, total = find_code(lang) or "", sum(languages.values())
    own = sum(count for name, count in languages.items() if (find_code(name) or "") == code)
    share = own / total if code and total else 0.5
    return float(FOREIGN ** (1 - share) * OWN**share)


def fuse(lexical: Mapping[str, float], dense: Mapping[str, float], weight: float) -> Run:
    """The hybrid ranking of the candidates of one question, "q". Both kinds of score are given for each of them,
    whichever search found it, and brought to 0 to 1 among them (½ where all are equal); their mean counts, the dense
    ones with `weight`."""
    run = Run()
    for query, ids, (one, other) in normalised([Run.from_scores({"q": lexical}), Run.from_scores({"q": dense})]):
        run.add(query, ids, (one + weight * other) / (1 + weight) + 0.5)
    return run


@dataclass(frozen=True)
class Search:
    """Searches of `mode` for `k` passages among the `chosen` rows (a mask for each segment of `snapshot`), which are in
    `languages`; `near` finds vectors."""

    snapshot: Snapshot
    chosen: Sequence[Mask | None]
    lexical: Lexical
    mode: str
    k: int
    languages: Mapping[str, int]
    near: Near = exactly

    def hits(self, queries: Sequence[Query], vectors: Floats | None, reranker: Any = None,
             tokens: IndexTokens | None = None) -> list[list[Hit]]:
        """The hits for each query; its vector is in `vectors` [queries, dim], None in lexical search. `tokens` are
        those that are kept for the reranker."""
        depth = max(self.k, DEPTH) if reranker is not None or self.mode == "hybrid" else self.k
        near = [{} for _ in queries] if vectors is None else self.near(self.snapshot, vectors, depth, self.chosen)
        run, found = Run(), []
        for number, query in enumerate(queries):
            places, parts = self._parts(query, None if vectors is None else vectors[number], near[number], depth)
            found.append((places, parts))
            ranking = self._fused(parts, query.lang).truncate(depth)["q"]
            run.add(query.id, [name for name, _ in ranking], [score for _, score in ranking])
        if reranker is not None:
            places = {name: place for held, _ in found for name, place in held.items()}
            needed = dict.fromkeys(name for query in run for name in run.ids(query))
            passages = [self.snapshot.passage(places[name]) for name in needed]
            kept = self._kept(tokens, {name: places[name] for name in needed}) if tokens else None
            run = rerank(run, queries, model_retriever(reranker, passages, kept), depth)
            for query, (_, parts) in zip(queries, found, strict=True):
                parts["reranker"] = dict(run[query.id])
        return [[Hit(self.snapshot.passage(places[name]), score,
                     {part: scores[name] for part, scores in parts.items()})
                 for name, score in run[query.id][: self.k]]
                for query, (places, parts) in zip(queries, found, strict=True)]

    def _kept(self, tokens: IndexTokens, places: Mapping[str, Place]) -> dict[str, tuple[TokenStore, int]]:
        """Which of the passages have token vectors, and where."""
        numbers = {name: int(self.snapshot.segments[part].numbers[row]) for name, (part, row) in places.items()}
        found = tokens.find(list(numbers.values()))
        return {name: found[number] for name, number in numbers.items() if number in found}

    def _parts(self, query: Query, vector: Floats | None, near: dict[Place, float], depth: int
               ) -> tuple[dict[str, Place], dict[str, dict[str, float]]]:
        """Where the candidates are, by id, and their scores, by "dense" and "lexical"."""
        parts: dict[str, dict[Place, float]] = {}
        scores: list[Floats] = []
        if self.mode != "dense":
            scores = self.lexical.scores(question_terms(query.text, query.lang, self.snapshot.languages))
            parts["lexical"] = self.lexical.best(scores, depth, self.chosen)
        if vector is not None:
            parts["dense"] = near
        if self.mode == "hybrid" and vector is not None:
            # both scores of each candidate, whichever search found it
            every = {**self._first(parts["lexical"], depth), **self._first(near, depth)}
            parts["lexical"] = {place: float(scores[place[0]][place[1]]) for place in every}
            parts["dense"] = scored(self.snapshot, list(every), vector)
        names = self._names({place for part in parts.values() for place in part})
        return ({name: place for place, name in names.items()},
                {part: {names[place]: score for place, score in held.items()} for part, held in parts.items()})

    def _first(self, scores: dict[Place, float], depth: int) -> dict[Place, float]:
        """The `depth` best of some scores, ordered as all rankings are."""
        names = self._names(scores)
        places = {name: place for place, name in names.items()}
        ranked = Run.from_scores({"q": {names[place]: score for place, score in scores.items()}}).truncate(depth)
        return {places[name]: score for name, score in ranked["q"]}

    def _names(self, places: Any) -> dict[Place, str]:
        named: dict[Place, str] = {}
        for number, segment in enumerate(self.snapshot.segments):
            rows = [row for part, row in places if part == number]
            named.update(zip([(number, row) for row in rows], segment.passages.ids(rows), strict=True))
        return named

    def _fused(self, parts: dict[str, dict[str, float]], lang: str) -> Run:
        if self.mode != "hybrid":
            return Run.from_scores({"q": parts[self.mode]})
        return fuse(parts["lexical"], parts["dense"], dense_weight(lang, self.languages))
