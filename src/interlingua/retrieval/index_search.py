"""Questions put to a snapshot of an index: dense, lexical or both, then perhaps the order of another model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage, Query
from interlingua.retrieval.hybrid import hybrid, share_of_own
from interlingua.retrieval.index_dense import Near, exactly, scored
from interlingua.retrieval.index_lexical import Lexical, question_terms
from interlingua.retrieval.index_segment import Mask
from interlingua.retrieval.index_snapshot import Place, Snapshot
from interlingua.retrieval.index_tokens import IndexTokens
from interlingua.retrieval.model_retriever import model_retriever
from interlingua.retrieval.rerank import rerank
from interlingua.retrieval.run import Run
from interlingua.retrieval.static_maxsim import Ids, StaticMaxSim
from interlingua.retrieval.token_store import TokenStore

Floats = NDArray[np.float32]
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
    `languages`; `near` finds vectors, `words` matches passages subword by subword."""

    snapshot: Snapshot
    chosen: Sequence[Mask | None]
    lexical: Lexical
    mode: str
    k: int
    languages: Mapping[str, int]
    near: Near = exactly
    words: StaticMaxSim | None = None

    def hits(self, queries: Sequence[Query], vectors: Floats | None, reranker: Any = None,
             tokens: IndexTokens | None = None) -> list[list[Hit]]:
        """The hits for each query; its vector is in `vectors` [queries, dim], None in lexical search. `tokens` are
        those that are kept for the reranker."""
        depth = max(self.k, DEPTH) if reranker is not None or self.mode == "hybrid" else self.k
        near = [{} for _ in queries] if vectors is None else self.near(self.snapshot, vectors, depth, self.chosen)
        run, found = Run(), []
        for number, query in enumerate(queries):
            places, parts, most = self._parts(query, None if vectors is None else vectors[number], near[number], depth)
            found.append((places, parts))
            ranking = self._ranked(query, places, parts, most).truncate(depth)["q"]
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
                     {part: scores[name] for part, scores in parts.items() if name in scores})
                 for name, score in run[query.id][: self.k]]
                for query, (places, parts) in zip(queries, found, strict=True)]

    def _kept(self, tokens: IndexTokens, places: Mapping[str, Place]) -> dict[str, tuple[TokenStore, int]]:
        """Which of the passages have token vectors, and where."""
        numbers = {name: int(self.snapshot.segments[part].numbers[row]) for name, (part, row) in places.items()}
        found = tokens.find(list(numbers.values()))
        return {name: found[number] for name, number in numbers.items() if number in found}

    def _parts(self, query: Query, vector: Floats | None, near: dict[Place, float], depth: int
               ) -> tuple[dict[str, Place], dict[str, dict[str, float]], float]:
        """Where the candidates are, by id, their scores, by "dense" and "lexical", and the most that the latter could
        be."""
        parts: dict[str, dict[Place, float]] = {}
        scores: list[Floats] = []
        most = 0.0
        if self.mode != "dense":
            scores, most = self.lexical.scores(question_terms(query.text, query.lang, self.snapshot.languages))
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
                {part: {names[place]: score for place, score in held.items()} for part, held in parts.items()}, most)

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

    def _ranked(self, query: Query, places: Mapping[str, Place], parts: dict[str, dict[str, float]], most: float
                ) -> Run:
        if self.mode != "hybrid":
            return Run.from_scores({"q": parts[self.mode]})

        def subwords(name: str) -> Ids:
            part, row = places[name]
            return self.snapshot.segments[part].subwords[row]

        langs = {name: self.snapshot.lang(place) for name, place in places.items()}
        share = share_of_own(query.lang, self.languages)
        return hybrid(query.text, parts, most, share, langs, self.words, subwords)
