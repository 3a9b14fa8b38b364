"""A dense encoder over the passages of a collection: exact search, and scores of given candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from interlingua.data.records import Passage, Query
from interlingua.retrieval.dense import search, search_exact
from interlingua.retrieval.retriever import Candidates, chosen_queries, passages_by_id
from interlingua.retrieval.run import Run
from interlingua.retrieval.vectors import TextEncoder, Vectors, embed_passages, embed_queries


class DenseRetriever:
    """`passages` compared with queries by the vectors of `encoder`, which must give one vector a text.

    A passage is encoded when it is first needed, and once: `search` needs all of them, `score` only the candidates, so
    that as a reranker this encodes (and holds) what some first stage found, whatever the size of the collection.
    """

    def __init__(self, encoder: TextEncoder, passages: Sequence[Passage]) -> None:
        self.encoder, self.passages = encoder, passages
        self._rows: dict[str, int] = {}
        self._vectors: Vectors = np.zeros((0, 0), dtype=np.float32)

    def search(self, queries: Sequence[Query], depth: int) -> Run:
        """The `depth` passages most similar to each query, exactly."""
        self._encode(passage for passage in self.passages if passage.id not in self._rows)
        vectors = embed_queries(self.encoder, queries)
        return search(vectors, [query.id for query in queries], self._vectors, list(self._rows), depth)

    def score(self, queries: Sequence[Query], candidates: Candidates) -> Run:
        """The similarity of each query of `candidates` to exactly its candidates.

        Raises InterlinguaError for a candidate that is no passage here, or a query that is not among `queries`.
        """
        asked = chosen_queries(queries, candidates)
        needed = dict.fromkeys(name for ids in candidates.values() for name in ids if name not in self._rows)
        if needed:
            self._encode(passages_by_id(self.passages, needed))
        vectors = embed_queries(self.encoder, asked)
        run = Run()
        for query, vector in zip(asked, vectors, strict=True):
            named = {self._rows[name]: name for name in candidates[query.id]}
            if named:
                rows = np.fromiter(named, dtype=np.int64)
                found, scores = search_exact(vector[None], self._vectors, len(rows), rows=rows)
                run.add(query.id, [named[row] for row in found[0].tolist()], scores[0])
            else:
                run.add(query.id, [], [])
        return run

    def _encode(self, passages: Iterable[Passage]) -> None:
        """Encode passages that were not, all at once: batches of near-equal lengths are what makes encoding fast."""
        new = list(passages)
        if new:
            vectors = embed_passages(self.encoder, new)
            self._vectors = np.concatenate([self._vectors, vectors]) if self._rows else vectors
            self._rows |= {passage.id: row for row, passage in enumerate(new, len(self._rows))}
