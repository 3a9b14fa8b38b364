"""A store of your own: passages in memory, behind the seam `Store`, so that `Index` searches and changes them.

`Index` encodes, checks, fuses and reranks; the store keeps passages and finds candidates. A row is here a place in a
list. CONTRIBUTING.md, "Add a store", says what else a store that an address names needs.

python examples/own_store.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np

from interlingua import DualEncoder, Run, load_collection
from interlingua.data.records import Passage
from interlingua.evaluation import evaluate
from interlingua.index import Index
from interlingua.index.filters import Filter, fits
from interlingua.index.metadata import IndexMetadata, terms_of
from interlingua.index.store import LexicalMatches, Store, View, encode_passages
from interlingua.models.folder import fingerprint
from interlingua.retrieval.bm25.postings import document_vector, inverse_frequency, length_of, query_vector, term_number

Entry = tuple[Passage, Any, Any]
"""A passage, its vector and its subwords."""


class MemoryView(View[int]):
    """Entries that never change, with what BM25 counts in them."""

    def __init__(self, metadata: IndexMetadata, version: int, entries: Sequence[Entry]) -> None:
        self.metadata, self.version, self.entries = metadata, version, entries
        terms = [terms_of(passage) for passage, _, _ in entries]
        mean = sum(map(length_of, terms)) / max(1, len(terms))
        self.weights = [document_vector(one, mean, metadata.k1, metadata.b) for one in terms]
        self.found_in = Counter(number for weights in self.weights for number in weights)
        self.chosen = list(range(len(entries)))

    @property
    def languages(self) -> Mapping[str, int]:
        return Counter(passage.lang for passage, _, _ in self.entries)

    def find(self, ids: Sequence[str]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row, (passage, _, _) in enumerate(self.entries):
            if passage.id in ids:
                found.setdefault(passage.id, []).append(row)
        return found

    @property
    def fields(self) -> set[str]:
        return {key for passage, _, _ in self.entries for key in passage.metadata}

    def counts(self, key: str) -> Counter[str]:
        found = [self.entries[row][0].metadata for row in self.chosen]
        return Counter(metadata[key] for metadata in found if key in metadata)

    def rows(self, where: Filter | None) -> Iterator[list[int]]:
        yield self.narrowed(None, where, "").chosen

    def passages(self, rows: Sequence[int]) -> list[Passage]:
        return [self.entries[row][0] for row in rows]

    def subwords(self, rows: Sequence[int]) -> list[Any]:
        return [self.entries[row][2] for row in rows]

    def narrowed(self, langs: Collection[str] | None, where: Filter | None, mode: str) -> MemoryView:
        view = copy(self)
        view.chosen = [
            row
            for row, (passage, _, _) in enumerate(self.entries)
            if (langs is None or passage.lang in langs) and (where is None or fits(where, passage.metadata))
        ]
        return view

    def dense(self, vectors: Any, depth: int) -> list[dict[int, float]]:
        return [self.dense_scores(self.chosen, vector) for vector in vectors]

    def dense_scores(self, rows: Sequence[int], vector: Any) -> dict[int, float]:
        wide = vector.astype(np.float64)
        return {row: float(np.float32(wide @ self.entries[row][1].astype(np.float64))) for row in rows}

    def lexical(self, terms: Sequence[Counter[str]], depth: int) -> Iterator[LexicalMatches[int]]:
        for counts in terms:
            scores = partial(self.lexical_scores, query_vector(list(counts.elements()), self.found_in, len(self)))
            best = {row: score for row, score in scores(self.chosen).items() if score > 0}
            found = {term: self.found_in.get(term_number(term), 0) for term in counts}
            weights = {term: float(inverse_frequency(number, len(self))) for term, number in found.items()}
            yield LexicalMatches(best, weights, scores)

    def lexical_scores(self, question: Mapping[int, float], rows: Sequence[int]) -> dict[int, float]:
        sums = {row: sum(weight * self.weights[row].get(term, 0) for term, weight in question.items()) for row in rows}
        return {row: float(np.float32(score)) for row, score in sums.items()}


class MemoryStore(Store[int]):
    """Passages in memory: each write makes a new view, whole or not at all."""

    address = "memory"

    def __init__(self, encoder: Any, k1: float = 0.9, b: float = 0.4) -> None:
        [vector], _ = encode_passages(encoder, [Passage("", "a")])
        self._view = MemoryView(IndexMetadata("", fingerprint(encoder), encoder.similarity, len(vector), k1, b), 1, [])

    @property
    def view(self) -> MemoryView:
        return self._view

    def write(
        self, changes: Iterable[Sequence[tuple[Passage, int | None]]], encoder: Any, verb: str, names: Any
    ) -> int:
        entries, count = list(self._view.entries), 0
        for chunk in changes:
            passages = [passage for passage, _ in chunk]
            vectors, subwords = encode_passages(encoder, passages)
            empty = [np.empty(0, dtype=np.int64)] * len(passages)
            fresh = zip(passages, vectors, subwords or empty, strict=True)
            for (_, row), entry in zip(chunk, fresh, strict=True):
                if row is None:
                    entries.append(entry)
                else:
                    entries[row] = entry
            count += len(passages)
        self._view = MemoryView(self._view.metadata, self._view.version + 1, entries)
        return count

    def delete(self, view: View[int], rows: Collection[int]) -> None:
        entries = [entry for row, entry in enumerate(self._view.entries) if row not in rows]
        self._view = MemoryView(self._view.metadata, self._view.version + 1, entries)

    def vectors(self) -> Iterator[tuple[list[Passage], Any]]:
        view = self._view
        yield view.passages(range(len(view.entries))), np.stack([vector for _, vector, _ in view.entries])


if __name__ == "__main__":
    test, encoder = load_collection("encyclopedia:en"), DualEncoder.load("default")
    index = Index(MemoryStore(encoder), encoder)
    index.add(test.passages)
    for mode in ("lexical", "dense", "hybrid"):
        run = Run()
        hits = index.search_many([query.text for query in test.queries], 100, mode=mode, lang="en")
        for query, found in zip(test.queries, hits, strict=True):
            run.add(query.id, [hit.passage.id for hit in found], [hit.score for hit in found])
        print(f"{mode:8} MRR@100 {evaluate(run, test.qrels, ['RR@100'])['RR@100']:.3f}")
    print(f"{index.delete([test.passages[0].id])} deleted, {len(index):,} passages")
