"""A retriever that takes its passages in as they are needed: candidates to rerank them, all of them to search."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from interlingua.data.records import Passage, Query
from interlingua.retrieval.retriever import Candidates, Retriever, chosen_queries, passages_by_id
from interlingua.retrieval.run import Run


class OnDemand:
    """Retrievers made by `build` for parts of `passages`, together one retriever over all of them.

    `score` builds one for the candidates that no part holds yet, `search` one for all passages that are left: each
    passage is given to `build` once. For retrievers whose scores do not depend on the other passages.
    """

    def __init__(self, build: Callable[[list[Passage]], Retriever], passages: Sequence[Passage]) -> None:
        self.build, self.passages = build, passages
        self._parts: list[Retriever] = []
        self._part_of: dict[str, int] = {}

    def search(self, queries: Sequence[Query], depth: int) -> Run:
        """The `depth` best passages of all parts for each query."""
        self._take([passage for passage in self.passages if passage.id not in self._part_of])
        return _joined([part.search(queries, depth) for part in self._parts], queries).truncate(depth)

    def score(self, queries: Sequence[Query], candidates: Candidates) -> Run:
        """Each query's candidates, each scored by the part that holds it."""
        needed = dict.fromkeys(name for ids in candidates.values() for name in ids if name not in self._part_of)
        if needed:
            self._take(passages_by_id(self.passages, needed))
        asked = chosen_queries(queries, candidates)
        shares: list[dict[str, list[str]]] = [{} for _ in self._parts]
        for query_id, ids in candidates.items():
            for name in ids:
                shares[self._part_of[name]].setdefault(query_id, []).append(name)
        scored = [part.score([query for query in asked if query.id in share], share)
                  for part, share in zip(self._parts, shares, strict=True) if share]
        return _joined(scored, asked)

    def _take(self, passages: list[Passage]) -> None:
        if passages:
            self._parts.append(self.build(passages))
            self._part_of |= {passage.id: len(self._parts) - 1 for passage in passages}


def _joined(runs: Sequence[Run], queries: Sequence[Query]) -> Run:
    """One run of runs over different passages."""
    joined = Run()
    for query in queries:
        found = [pair for run in runs if query.id in run for pair in run[query.id]]
        joined.add(query.id, [name for name, _ in found], [score for _, score in found])
    return joined
