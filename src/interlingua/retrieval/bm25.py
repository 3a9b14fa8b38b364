"""BM25 over passages of any languages, each cut into terms by the analyzer of its own language."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import isfinite
from pathlib import Path

import numpy as np

from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError
from interlingua.progress import say, track
from interlingua.retrieval.bm25_engine import Engine
from interlingua.retrieval.bm25_folder import Indexed, read_bm25, write_bm25
from interlingua.retrieval.postings import Postings
from interlingua.retrieval.retriever import Candidates, chosen_queries
from interlingua.retrieval.run import Run
from interlingua.text.analyzers import Analyzer
from interlingua.text.analyzers import analyzer as analyzer_of
from interlingua.text.languages import find_code

K1, B = 0.9, 0.4
"""Anserini's, with which the BM25 rows of Mr.TyDi and MIRACL were made."""
TOGETHER = 1024  # queries searched in one call


class BM25:
    """Make one with `build`, keep it with `save`, reopen it with `load`.

    All languages share one list of terms and one count of passages. A query is cut by the analyzer of its own language
    where some passage is in that language, else by the analyzers of all languages of the passages; a term then counts
    as often as the analyzer that finds it most often says.
    """

    def __init__(self, indexed: Indexed, k1: float, b: float) -> None:
        check_parameters(k1, b)
        self.k1, self.b = float(k1), float(b)
        self._indexed = indexed
        self._engine = Engine(indexed.postings, indexed.postings.weights(self.k1, self.b))

    @classmethod
    def build(cls, passages: Iterable[Passage], *, k1: float = K1, b: float = B, analyzer: str | None = None) -> BM25:
        """Index `passages` (read once; their texts are not kept), title and text together as "title\\ntext".

        `analyzer` is the kind for all languages (`interlingua.text.analyzers`), None each language's default. An empty
        passage is allowed, and never found. Raises InterlinguaError for duplicate ids and when there is no passage.
        """
        ids: dict[str, None] = {}
        analyzers: dict[str, Analyzer] = {}
        terms: defaultdict[str, int] = defaultdict()
        terms.default_factory = terms.__len__  # a new term gets the next number

        def numbered() -> Iterator[list[int]]:
            for passage in track(passages, "analyse passages"):
                if passage.id in ids:
                    raise InterlinguaError(f"passage id '{passage.id}' occurs twice. Ids must be unique in an index.")
                ids[passage.id] = None
                lang = _key(passage.lang)
                if lang not in analyzers:
                    analyzers[lang] = _announced(lang, passage.lang, analyzer)
                text = f"{passage.title}\n{passage.text}" if passage.title else passage.text
                yield [terms[term] for term in analyzers[lang](text)]

        postings = Postings.of(numbered())
        if not ids:
            raise InterlinguaError("there is no passage to index.")
        return cls(Indexed(list(ids), dict(terms), postings, analyzers), k1, b)

    @classmethod
    def load(cls, path: str | Path) -> BM25:
        """What `save` wrote. Raises InterlinguaError for a folder that is no BM25 index or is damaged, and where an
        analyzer has another version here than the one that cut the passages."""
        return cls(*read_bm25(path))

    def save(self, path: str | Path) -> None:
        """Write a folder, whole or not at all. It replaces an earlier save, and nothing else."""
        write_bm25(path, self._indexed, self.k1, self.b)

    def weighted(self, k1: float, b: float) -> BM25:
        """The same index with other parameters. Nothing is analysed again."""
        return BM25(self._indexed, k1, b)

    @property
    def analyzers(self) -> dict[str, Analyzer]:
        """The analyzer of each language of the passages."""
        return dict(self._indexed.analyzers)

    def __len__(self) -> int:
        return len(self._indexed.ids)

    def search(self, queries: Sequence[Query], depth: int) -> Run:
        """The `depth` best passages for each query, those with a score above 0 only: a query without a term that some
        passage holds has an empty list."""
        if depth < 1:
            raise InterlinguaError(f"depth {depth}: must be at least 1.")
        run, ids = Run(), self._indexed.ids
        for start in range(0, len(queries), TOGETHER):
            part = queries[start : start + TOGETHER]
            terms = [self._known_terms(query) for query in part]
            found = self._engine.best([known for known in terms if known], depth, self._indexed.ties)
            for query, known in zip(part, terms, strict=True):
                if known:
                    rows, scores = next(found)
                    run.add(query.id, [ids[row] for row in rows.tolist()], scores)
                else:
                    run.add(query.id, [], [])
        return run

    def score(self, queries: Sequence[Query], candidates: Candidates) -> Run:
        """For each query of `candidates`, exactly its candidates: 0 where a passage holds none of its terms.

        Raises InterlinguaError for a candidate that is not indexed or a query that is not among `queries`.
        """
        run = Run()
        for query in chosen_queries(queries, candidates):
            ids = list(candidates[query.id])
            unknown = [name for name in ids if name not in self._indexed.rows]
            if unknown:
                raise InterlinguaError(f"query '{query.id}': {len(unknown):,} of its {len(ids):,} candidates are not "
                                       f"indexed, the first is '{unknown[0]}'. Index the same collection.")
            rows = np.array([self._indexed.rows[name] for name in ids], dtype=np.int64)
            run.add(query.id, ids, self._engine.scores(self._known_terms(query))[rows])
        return run

    def _known_terms(self, query: Query) -> list[int]:
        """The numbers of the query's terms that some passage holds."""
        lang, analyzers, numbers = _key(query.lang), self._indexed.analyzers, self._indexed.terms
        if lang in analyzers:
            found = analyzers[lang](query.text)
        else:
            most: Counter[str] = Counter()
            for chosen in analyzers.values():
                most |= Counter(chosen(query.text))
            found = list(most.elements())
        return [numbers[term] for term in found if term in numbers]


def check_parameters(k1: float, b: float) -> None:
    """Raise InterlinguaError for parameters that BM25 cannot have."""
    if not (isfinite(k1) and k1 >= 0 and 0 <= b <= 1):
        raise InterlinguaError(f"k1={k1}, b={b}: k1 must be a number of 0 or more, b from 0 to 1. Lucene's are "
                               f"k1={K1}, b={B}.")


@lru_cache(maxsize=1024)
def _key(lang: str) -> str:
    """The code of a language, "" where it is not known."""
    return find_code(lang) or ""


def _announced(lang: str, given: str, kind: str | None) -> Analyzer:
    """The analyzer of a language, saying so where it is a fallback."""
    chosen = analyzer_of(lang, kind)
    if not lang and kind is None:
        named = f"language '{given}' is not known" if given else "no language is given"
        say(f"{named}: its passages are cut by the analyzer {chosen.name} ({'; '.join(chosen.steps)})")
    return chosen
