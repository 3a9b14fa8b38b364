"""Search a snapshot of an index: dense, lexical or hybrid, then perhaps reranked."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage, Query
from interlingua.errors import BadInput, Stale
from interlingua.index.local.rows import Rows
from interlingua.index.local.snapshot import Mask, Place, Segment, Snapshot
from interlingua.index.local.table import PassageStore
from interlingua.index.local.tokens import IndexTokens
from interlingua.index.metadata import Budget, Question, Questions
from interlingua.index.ranking import hybrid, ranking_names, share_of_own
from interlingua.retrieval.bm25.bm25 import best_rows
from interlingua.retrieval.bm25.postings import inverse_frequency, length_norms, max_score, term_weights
from interlingua.retrieval.late_interaction.static import Ids, StaticMaxSim
from interlingua.retrieval.rerank import model_retriever, rerank
from interlingua.retrieval.run import Run

if TYPE_CHECKING:
    from interlingua.retrieval.late_interaction.token_store import TokenStore

logger = logging.getLogger(__name__)


Floats = NDArray[np.float32]
SPARE = 16  # candidates beyond the cut, of which rounding may decide
SMALL = 1 << 22
"""Components of rows, and scores, that NumPy multiplies and holds at once: in a few milliseconds, and without torch and
numba, which take seconds to load."""


class Near(Protocol):
    """For each of `vectors` [queries, dim] the scores of the `depth` best passages, or about these, among the `chosen`
    rows, and of a few more."""

    def __call__(
        self, snapshot: Snapshot, vectors: Floats, depth: int, chosen: Sequence[Mask | None]
    ) -> list[dict[Place, float]]: ...


def exactly(snapshot: Snapshot, vectors: Floats, depth: int, chosen: Sequence[Mask | None]) -> list[dict[Place, float]]:
    """For each of `vectors` [queries, dim] the scores of the `depth` best passages among the `chosen` rows, and of a
    few more.

    What a matrix product finds is scored again by `products`, since the last bit of a matrix product depends on what
    stands beside a row. As many are taken as it needs for rounding to hide no better one.
    """
    rows = [None if mask is None else np.flatnonzero(mask) for mask in chosen]
    found: list[dict[Place, float]] = [{} for _ in vectors]
    left, asked = list(range(len(vectors))), depth + SPARE
    while left:
        unseen = np.full(len(left), -np.inf)  # no score beyond what was found is higher
        for number, segment in enumerate(snapshot.segments):
            total = len(segment) if (those := rows[number]) is None else len(those)
            if not total:
                continue
            near, values = _searched(segment, vectors[left], min(asked, total), those)
            for query, columns in zip(left, near, strict=True):
                scores = products(segment, columns, vectors[query]).tolist()
                found[query].update(zip([(number, row) for row in columns.tolist()], scores, strict=True))
            if asked < total:
                unseen = np.maximum(unseen, values[:, -1] + _slack(segment, vectors[left]))
        sure = [
            len(found[query]) >= depth and sorted(found[query].values())[-depth] > most
            for query, most in zip(left, unseen.tolist(), strict=True)
        ]
        left = [query for query, done, most in zip(left, sure, unseen, strict=True) if not done and most > -np.inf]
        asked *= 4
    return found


def scored(snapshot: Snapshot, places: Sequence[Place], vector: Floats) -> dict[Place, float]:
    """The dot products of passages with `vector` [dim]."""
    found: dict[Place, float] = {}
    for number, segment in enumerate(snapshot.segments):
        rows = np.array([row for part, row in places if part == number], dtype=np.int64)
        scores = products(segment, rows, vector).tolist()
        found.update(zip([(number, row) for row in rows.tolist()], scores, strict=True))
    return found


def products(segment: Segment, rows: Rows, vector: Floats) -> Floats:
    """[rows]: dot products with `vector` [dim], each summed by itself in float64."""
    sums: NDArray[np.float64] = np.einsum("nd,d->n", segment.vectors[rows], vector, dtype=np.float64)
    return sums.astype(np.float32)


def _searched(segment: Segment, vectors: Floats, k: int, rows: Rows | None) -> tuple[Rows, Floats]:
    count = len(segment) if rows is None else len(rows)
    if count * max(len(vectors), segment.vectors.shape[1]) <= SMALL:
        return _by_numpy(vectors, segment.vectors if rows is None else segment.vectors[rows], k, rows)
    if segment.int8 is None:
        from interlingua.retrieval.dense.exact import search_exact

        return search_exact(vectors, segment.vectors, k, rows=rows)
    return segment.int8.search(vectors, segment.vectors, k, rows=rows)


def _by_numpy(vectors: Floats, some: Floats, k: int, rows: Rows | None) -> tuple[Rows, Floats]:
    """What `search_exact` gives, in NumPy: the `k` largest scores of each query, best first; ties in any order."""
    with np.errstate(invalid="ignore"):
        scores = vectors @ some.T
    if np.isnan(scores).any():
        raise BadInput("a score is NaN: some query or passage vector holds NaN or infinity.")
    best = np.argpartition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k :]
    values = np.take_along_axis(scores, best, axis=1)
    order = np.argsort(-values, axis=1)
    best, values = np.take_along_axis(best, order, axis=1), np.take_along_axis(values, order, axis=1)
    return best if rows is None else rows[best], values


def _slack(segment: Segment, vectors: Floats) -> NDArray[np.float64]:
    """[queries]: how much rounding in float32 can change a score."""
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
    slack: NDArray[np.float64] = vectors.shape[1] * float(np.finfo(np.float32).eps) * segment.reach * lengths
    return slack


APPROXIMATE_FROM = 3_000_000
"""Passages from which it is worth it: docs/benchmarks.md says what was measured."""
SPARE_NEAR, LEAST = 4, 400  # times as many candidates as are wanted, and the least, which are then scored exactly
PROBES = 20  # parts of the index that are looked into at least; else an eighth of √n


def index_vectors(store: PassageStore, wanted: bool | None = None) -> None:
    """Give the vectors of `store` an approximate index, or take it away. None gives one to `APPROXIMATE_FROM` passages
    and leaves fewer as they are."""
    if wanted is None and len(store) >= APPROXIMATE_FROM:
        wanted = True
    if wanted is None or wanted == store.approximate:
        return
    if wanted:
        logger.info(f"{store.folder}: indexing {len(store):,} vectors for approximate search")
    store.index_vectors(wanted)


def near_of(store: PassageStore, snapshot: Snapshot) -> Near:
    """How to find vectors in `snapshot`, which was just taken from `store`: by Lance's index where there is one."""
    said = snapshot.base.approximate if snapshot.version == snapshot.base.version else None
    indexed = store.approximate if said is None else said
    return approximately(PassageStore.open(store.folder, snapshot.version)) if indexed else exactly


def approximately(store: PassageStore) -> Near:
    """A search by the index in `store`, which is at the version of the snapshots that are searched. What it finds is
    scored again. It is for all rows: `chosen` is what is left of the deleted ones, which Lance leaves out too. Where a
    writer has removed the version meanwhile, and where too little is found, search is exact."""
    probes = max(PROBES, isqrt(len(store)) // 8)

    def near(
        snapshot: Snapshot, vectors: Floats, depth: int, chosen: Sequence[Mask | None]
    ) -> list[dict[Place, float]]:
        try:
            places = [snapshot.places(store.near(vector, max(LEAST, SPARE_NEAR * depth), probes)) for vector in vectors]
        except Stale:
            return exactly(snapshot, vectors, depth, chosen)
        if any(len(found) < min(depth, len(snapshot)) for found in places):
            return exactly(snapshot, vectors, depth, chosen)
        return [scored(snapshot, found, vector) for found, vector in zip(places, vectors, strict=True)]

    return near


class Lexical:
    """Lucene's BM25 over the live rows of `snapshot`, with parameters `k1` and `b`: the weights of
    `interlingua.retrieval.bm25.postings` for the counts of now, summed in the order of the question's terms."""

    def __init__(self, snapshot: Snapshot, k1: float, b: float) -> None:
        self.snapshot = snapshot
        mean = snapshot.mean_length
        self._norms = [length_norms(segment.postings.lengths, mean, k1, b) for segment in snapshot.segments]

    def scores(self, terms: Counter[str]) -> tuple[list[Floats], float]:
        """For each segment [rows]: the score of every live row; 0 for the others. And what a passage could score at the
        most: all terms count there, also those that no passage has."""
        frequencies: list[int] = []
        totals: list[Floats] = [np.zeros(len(segment), dtype=np.float32) for segment in self.snapshot.segments]
        for term, times in terms.items():
            held = [
                _postings(segment, live, term)
                for segment, live in zip(self.snapshot.segments, self.snapshot.live, strict=True)
            ]
            found = sum(len(rows) for rows, _ in held)
            frequencies += [found] * times
            if not found:
                continue
            idf = inverse_frequency(found, len(self.snapshot))
            for total, norms, (rows, counts) in zip(totals, self._norms, held, strict=True):
                # a row occurs once in the postings of a term
                total[rows] += np.float32(times) * term_weights(idf, counts, norms[rows])
        return totals, max_score(frequencies, len(self.snapshot))

    def best(self, scores: Sequence[Floats], depth: int, chosen: Sequence[Mask | None]) -> dict[Place, float]:
        """The scores of the `depth` best of the `chosen` rows of each segment, those above 0 only."""
        found: dict[Place, float] = {}
        for number, (segment, values, mask) in enumerate(zip(self.snapshot.segments, scores, chosen, strict=True)):
            rows, best = best_rows(values if mask is None else values * mask, depth, segment.ties)
            found.update(zip([(number, row) for row in rows.tolist()], best.tolist(), strict=True))
        return found


def _postings(segment: Segment, live: Mask | None, term: str) -> tuple[Rows, NDArray[np.int32]]:
    """The live rows that hold a term, and how often."""
    numbers = segment.postings.numbers([term])
    part = segment.postings.part(numbers[0]) if numbers else slice(0)
    rows, counts = segment.postings.passages[part], segment.postings.counts[part]
    if live is not None:
        there = live[rows]
        rows, counts = rows[there], counts[there]
    return rows.astype(np.int64), counts


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

    def hits(
        self, questions: Questions, vectors: Floats | None, reranker: Any = None, tokens: IndexTokens | None = None
    ) -> list[list[Hit]]:
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
        return [
            [
                Hit(
                    self.snapshot.passage(place),
                    score,
                    {part: scores[place] for part, scores in parts.items() if place in scores},
                )
                for place, score in ranking[: self.k]
            ]
            for ranking, parts in found
        ]

    def _ranked(
        self, question: Question, terms: Counter[str], vector: Floats | None, near: dict[Place, float], depth: int
    ) -> tuple[Ranking, Parts]:
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
        return (
            [(places[name], score) for name, score in run.truncate(depth)["q"]],
            {part: {places[name]: score for name, score in held.items()} for part, held in named.items()},
        )

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

    def _reranked(
        self,
        queries: Sequence[Query],
        found: Sequence[tuple[Ranking, Parts]],
        reranker: Any,
        tokens: IndexTokens | None,
        depth: int,
    ) -> list[tuple[Ranking, Parts]]:
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
        return [
            (ranking, {**parts, "reranker": dict(ranking)}) for ranking, (_, parts) in zip(rankings, found, strict=True)
        ]

    def _kept(self, tokens: IndexTokens, places: Mapping[str, Place]) -> dict[str, tuple[TokenStore, int]]:
        """Which of the passages have token vectors, and where."""
        numbers = {name: int(self.snapshot.segments[part].numbers[row]) for name, (part, row) in places.items()}
        found = tokens.find(list(numbers.values()))
        return {name: found[number] for name, number in numbers.items() if number in found}
