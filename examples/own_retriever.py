"""A retriever of your own: SQLite's full-text search, measured, fused with dense search and used as a reranker.

python examples/own_retriever.py
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence

from interlingua import Run, load_collection
from interlingua.data import Passage, Query
from interlingua.errors import BadInput
from interlingua.evaluation import evaluate
from interlingua.models.late_interaction import load_any
from interlingua.retrieval import DenseRetriever, interpolate
from interlingua.retrieval.rerank import rerank
from interlingua.retrieval.retriever import chosen_queries


class FullText:
    """Passages in a table of FTS5, ranked by its BM25. Put your search engine in its place."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.ids, self.rows = {passage.id for passage in passages}, sqlite3.connect(":memory:")
        self.rows.execute("CREATE VIRTUAL TABLE passage USING fts5(id UNINDEXED, title, text)")
        self.rows.executemany("INSERT INTO passage VALUES (?, ?, ?)", [(p.id, p.title, p.text) for p in passages])

    def search(self, queries: Sequence[Query], depth: int) -> Run:
        """At most `depth` passages for each query. A `Run` orders them; equal scores by id descending."""
        return Run.from_scores({query.id: self._found(query.text, depth) for query in queries})

    def score(self, queries: Sequence[Query], candidates: Mapping[str, Sequence[str]]) -> Run:
        """The scores of exactly the candidates of each query: 0 for one that has no word of it."""
        if unknown := {name for ids in candidates.values() for name in ids} - self.ids:
            raise BadInput(f"{len(unknown)} candidates are no passages here, '{min(unknown)}' for one.")
        found = {query.id: self._found(query.text, len(self.ids)) for query in chosen_queries(queries, candidates)}
        return Run.from_scores({q: {id: found[q].get(id, 0.0) for id in ids} for q, ids in candidates.items()})

    def _found(self, text: str, depth: int) -> dict[str, float]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", text)) or '""'
        ranked = "SELECT id, -rank FROM passage WHERE passage MATCH ? ORDER BY rank, id DESC LIMIT ?"
        return dict(self.rows.execute(ranked, (words, depth)))


if __name__ == "__main__":
    english = load_collection("encyclopedia:en")
    full_text, dense = FullText(english.passages), DenseRetriever(load_any("default"), english.passages)
    runs = {name: one.search(english.queries, 100) for name, one in (("full text", full_text), ("dense", dense))}
    runs["full text + dense"] = interpolate(runs["full text"], runs["dense"], 1.0)
    runs["dense, reranked by full text"] = rerank(runs["dense"], english.queries, full_text, 10)
    for name, run in runs.items():
        print(f"{name:30} MRR@100 {evaluate(run, english.qrels, ['RR@100'])['RR@100']:.3f}")
