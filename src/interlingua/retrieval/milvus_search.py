"""Questions put to an index in Milvus: the server finds the candidates, and they are scored as a local index does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Query
from interlingua.retrieval.hybrid import hybrid, share_of_own
from interlingua.retrieval.index_questions import Budget, Question, Questions
from interlingua.retrieval.index_search import DEPTH, Hit
from interlingua.retrieval.milvus_rows import PASSAGE, passage_of, source_of
from interlingua.retrieval.milvus_store import MilvusStore
from interlingua.retrieval.model_retriever import model_retriever
from interlingua.retrieval.passage_names import ranking_names
from interlingua.retrieval.rerank import rerank
from interlingua.retrieval.run import Run
from interlingua.retrieval.sparse_bm25 import most, query_vector, term_number
from interlingua.retrieval.static_maxsim import StaticMaxSim

Floats = NDArray[np.float32]
SPARE = 16  # candidates beyond the cut, among which ties are ordered by id
TOGETHER = 64  # questions of one call
COLUMNS = ["number", *PASSAGE, "vector", "sparse", "subwords"]


class Asked(NamedTuple):
    """A question as the index needs it: its terms' weights, the most they could give, and the share of its language."""

    text: str
    sparse: dict[int, float]
    most: float
    share: float


@dataclass(frozen=True)
class MilvusSearch:
    """Searches of `mode` for `k` passages that meet the condition `where`, in `languages`. `fusion` as in
    `MilvusIndex`; `words` matches passages subword by subword. `budget` is what each question may take, without the
    reranker."""

    store: MilvusStore
    where: str
    mode: str
    k: int
    fusion: str
    languages: Mapping[str, int]
    words: StaticMaxSim | None = None
    budget: Budget = field(default_factory=Budget)

    def hits(self, questions: Questions, vectors: Floats | None, reranker: Any = None) -> list[list[Hit]]:
        """The hits for each question; its vector is in `vectors` [questions, dim], None in lexical search."""
        depth = max(self.k, DEPTH) if reranker is not None or self.mode == "hybrid" else self.k
        asked = self._asked(questions.asked)
        found: list[list[Hit]] = []
        for start in range(0, len(asked), TOGETHER):
            part = slice(start, start + TOGETHER)
            with self.budget.stage("scoring", *questions.asked[part]):
                found += self._found(None if vectors is None else vectors[part], asked[part], depth)
        if reranker is not None:
            found = self._reranked(found, questions.queries, reranker)
        return [hits[: self.k] for hits in found]

    def _asked(self, questions: Sequence[Question]) -> list[Asked]:
        """The questions' side of BM25, with the counts of now."""
        if self.mode == "dense":
            return [Asked(question.text, {}, 0.0, 0.0) for question in questions]
        languages = self.store.about()["languages"]
        terms: list[list[str]] = []
        for question in questions:
            with self.budget.stage("analysis", question):
                terms.append(list(question.terms(languages).elements()))
        about, found_in = self.store.look_up(sorted({term_number(term) for found in terms for term in found}))
        return [Asked(question.text, query_vector(found, found_in, about["passages"]),
                      most(found, found_in, about["passages"]), share_of_own(question.lang, self.languages))
                for question, found in zip(questions, terms, strict=True)]

    def _found(self, vectors: Floats | None, questions: Sequence[Asked], depth: int) -> list[list[Hit]]:
        sparse = [question.sparse for question in questions]
        asked = [number for number, terms in enumerate(sparse) if terms]  # the others have no term that is known
        if self.mode == "hybrid" and self.fusion == "rrf" and vectors is not None:
            return self._fused_there(vectors, sparse, asked, depth)
        limit, columns = depth + SPARE, COLUMNS if self.mode == "hybrid" else COLUMNS[:-1]
        dense = [] if vectors is None else self.store.search("vector", list(vectors), limit, self.where, columns)
        lexical = self.store.search("sparse", [sparse[number] for number in asked], limit, self.where, columns
                                    ) if asked else []
        held = dict(zip(asked, lexical, strict=True))
        return [self._ranked(dense[number] if dense else [], held.get(number, []),
                             None if vectors is None else vectors[number], question, depth)
                for number, question in enumerate(questions)]

    def _ranked(self, dense: Sequence[Any], lexical: Sequence[Any], vector: Floats | None, question: Asked, depth: int
                ) -> list[Hit]:
        """The best of what two searches found, scored and fused as a local index does it."""
        sparse = question.sparse
        names = _names([*dense, *lexical])
        rows = {names[row["entity"]["number"]]: row["entity"] for row in [*dense, *lexical]}
        parts: dict[str, dict[str, float]] = {}
        if self.mode != "dense":
            parts["lexical"] = {name: score for name in (names[row["entity"]["number"]] for row in lexical)
                                if (score := _lexical(rows[name], sparse)) > 0}
        if vector is not None:
            parts["dense"] = {names[row["entity"]["number"]]: _dense(row["entity"], vector) for row in dense}
        if self.mode == "hybrid" and vector is not None:
            every = {name for scores in parts.values() for name, _ in _run(scores).truncate(depth)["q"]}
            parts = {"lexical": {name: _lexical(rows[name], sparse) for name in every},
                     "dense": {name: _dense(rows[name], vector) for name in every}}
            langs = {name: rows[name]["lang"] for name in every}
            run = hybrid(question.text, parts, question.most, question.share, langs, self.words,
                         lambda name: np.array(rows[name]["subwords"], dtype=np.int64))
        else:
            run = _run(parts[self.mode])
        return [Hit(passage_of(rows[name]), score,
                    {part: scores[name] for part, scores in parts.items() if name in scores})
                for name, score in run.truncate(depth)["q"]]

    def _fused_there(self, vectors: Floats, sparse: Sequence[dict[int, float]], asked: Sequence[int], depth: int
                     ) -> list[list[Hit]]:
        """Hybrid rankings as Milvus makes them, reciprocal rank fusion of both searches."""
        both = self.store.search_hybrid(vectors[list(asked)], [sparse[number] for number in asked], depth,
                                        depth + SPARE, self.where, COLUMNS[:-1]) if asked else []
        rest = [number for number in range(len(sparse)) if number not in set(asked)]
        alone = self.store.search("vector", list(vectors[rest]), depth, self.where, COLUMNS[:-1]) if rest else []
        found: dict[int, list[Hit]] = {}
        for number, rows in [*zip(asked, both, strict=True), *zip(rest, alone, strict=True)]:
            names = _names(rows)
            entities = {names[row["entity"]["number"]]: row["entity"] for row in rows}
            run = _run({names[row["entity"]["number"]]: row["distance"] if number in asked else 1 / (60 + rank)
                        for rank, row in enumerate(rows, 1)})
            found[number] = [
                Hit(passage_of(entities[name]), score, {"lexical": _lexical(entities[name], sparse[number]),
                                                        "dense": _dense(entities[name], vectors[number])})
                for name, score in run.truncate(depth)["q"]]
        return [found[number] for number in range(len(sparse))]

    def _reranked(self, found: Sequence[Sequence[Hit]], queries: Sequence[Query], reranker: Any) -> list[list[Hit]]:
        every = {hit.passage.key: hit.passage for part in found for hit in part}
        called = ranking_names([id for _, id in every], lambda: [source for source, _ in every])
        names = dict(zip(every, called, strict=True))
        hits = [{names[hit.passage.key]: hit for hit in part} for part in found]
        passages = dict(zip(called, every.values(), strict=True))
        run = Run()
        for query, part in zip(queries, hits, strict=True):
            run.add(query.id, list(part), [hit.score for hit in part.values()])
        renamed = [replace(passage, id=name) for name, passage in passages.items()]
        run = rerank(run, queries, model_retriever(reranker, renamed), max(self.k, DEPTH))
        return [[Hit(passages[name], score, {**held[name].parts, "reranker": score}) for name, score in run[query.id]]
                for query, held in zip(queries, hits, strict=True)]


def _names(rows: Sequence[Any]) -> dict[int, str]:
    """The names with which the passages of rows are ranked, by their numbers: see `ranking_names`."""
    entities = {row["entity"]["number"]: row["entity"] for row in rows}
    names = ranking_names([one["id"] for one in entities.values()],
                          lambda: [source_of(one) for one in entities.values()])
    return dict(zip(entities, names, strict=True))


def _run(scores: Mapping[str, float]) -> Run:
    return Run.from_scores({"q": dict(scores)})


def _dense(row: Mapping[str, Any], vector: Floats) -> float:
    """The dot product, summed in float64, so that it depends on nothing else that was asked for."""
    return float(np.float32(np.dot(np.asarray(row["vector"], dtype=np.float64), vector.astype(np.float64))))


def _lexical(row: Mapping[str, Any], sparse: Mapping[int, float]) -> float:
    held = row["sparse"]
    return float(np.float32(sum(weight * held.get(number, 0.0) for number, weight in sparse.items())))
