"""Reranking: what a first stage found, in the order of another scorer."""

from __future__ import annotations

from collections.abc import Sequence

from interlingua.data.records import Query
from interlingua.errors import InterlinguaError
from interlingua.progress import say
from interlingua.retrieval.retriever import Scorer, chosen_queries
from interlingua.retrieval.run import Run

DEPTH = 1000


def rerank(run: Run, queries: Sequence[Query], scorer: Scorer, depth: int = DEPTH) -> Run:
    """The first `depth` results of each query of `run`, in the order of `scorer`'s scores.

    For each query a permutation of these results: nothing is lost and nothing added. Results beyond `depth` are left
    out, which is said with their number. A query with an empty list stays, with an empty list; queries that are not in
    `run` stay out. Raises InterlinguaError for a query of `run` that is not among `queries`, a `depth` under 1, or a
    scorer that does not score exactly its candidates.
    """
    if depth < 1:
        raise InterlinguaError(f"depth {depth}: must be at least 1.")
    candidates = {query_id: run.ids(query_id) for query_id in run}
    left_out = {query_id: len(ids) - depth for query_id, ids in candidates.items() if len(ids) > depth}
    if left_out:
        say(f"reranking the first {depth:,} results of each query: {sum(left_out.values()):,} results of "
            f"{len(left_out):,} queries lie deeper and are left out")
    candidates = {query_id: ids[:depth] for query_id, ids in candidates.items()}
    asked = chosen_queries(queries, candidates)
    filled = {query_id: ids for query_id, ids in candidates.items() if ids}
    scored = scorer.score([query for query in asked if query.id in filled], filled) if filled else Run()
    reranked = Run()
    for query_id, ids in candidates.items():
        found = scored.get(query_id, []) if ids else []
        names, scores = [name for name, _ in found], [score for _, score in found]
        if len(names) != len(ids) or set(names) != set(ids):
            raise InterlinguaError(f"query '{query_id}': the scorer gave {len(names):,} scores for {len(ids):,} "
                                   f"candidates, none for {len(set(ids) - set(names)):,} of them. A scorer scores "
                                   "exactly its candidates.")
        reranked.add(query_id, names, scores)
    return reranked
