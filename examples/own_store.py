"""A store of your own: passages in SQLite, behind the protocol `Retriever`, so that runs can be measured and fused.

It searches and scores. What an index that takes writes must answer is in CONTRIBUTING.md, "Add a store".

python examples/own_store.py
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Sequence

from interlingua import DualEncoder, Run, load_collection
from interlingua.data.records import Passage, Query
from interlingua.evaluation import evaluate
from interlingua.retrieval import DenseRetriever, interpolate
from interlingua.retrieval.rerank import rerank
from interlingua.retrieval.retriever import Candidates, Retriever

FIND = "SELECT id, -bm25(passages) FROM passages WHERE passages MATCH ? ORDER BY bm25(passages) LIMIT ?"


class SqliteStore:
    """Full-text search of SQLite (FTS5), ranked by its BM25."""

    def __init__(self, passages: Iterable[Passage]) -> None:
        self.db = sqlite3.connect(":memory:")
        self.db.execute("CREATE VIRTUAL TABLE passages USING fts5(id UNINDEXED, text)")
        self.db.executemany("INSERT INTO passages VALUES (?, ?)", ((p.id, f"{p.title}\n{p.text}") for p in passages))

    def search(self, queries: Sequence[Query], depth: int) -> Run:
        """The `depth` best passages for each query."""
        run = Run()
        for query in queries:
            words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query.text)) or '""'
            rows = self.db.execute(FIND, (words, depth)).fetchall()
            run.add(query.id, [name for name, _ in rows], [score for _, score in rows])
        return run

    def score(self, queries: Sequence[Query], candidates: Candidates) -> Run:
        """Each query's candidates, exactly these; 0 for one without a word of the query."""
        found, run = self.search(queries, -1), Run()
        for name, ids in candidates.items():
            scores = dict(found[name])
            run.add(name, ids, [scores.get(one, 0.0) for one in ids])
        return run


if __name__ == "__main__":
    test = load_collection("encyclopedia:en")
    store: Retriever = SqliteStore(test.passages)
    dense = DenseRetriever(DualEncoder.load("default"), test.passages)
    first, second = store.search(test.queries, 100), dense.search(test.queries, 100)
    reranked, fused = rerank(first, test.queries, dense, 100), interpolate(first, second, 1.0)
    for name, run in (("SQLite", first), ("SQLite, reranked", reranked), ("fused", fused)):
        print(f"{name:18} MRR@100 {evaluate(run, test.qrels, ['RR@100'])['RR@100']:.3f}")
