"""BM25 over passages of any languages: search, folder, tuning."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import isfinite
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from interlingua.array_folder import ArrayFolder, Layout
from interlingua.data.records import Passage, Query
from interlingua.errors import BadInput
from interlingua.progress import track
from interlingua.retrieval.bm25.postings import Postings
from interlingua.retrieval.bm25.search import TermMatches, TermSearch
from interlingua.retrieval.retriever import Candidates, chosen_queries
from interlingua.retrieval.run import Run, docid_order
from interlingua.text.analyzers import Analyzer, analyzer
from interlingua.text.analyzers import analyzer as analyzer_of
from interlingua.text.languages import find_code

logger = logging.getLogger(__name__)

K1, B = 0.9, 0.4
"""Anserini's, with which the BM25 rows of Mr.TyDi and MIRACL were made."""
LAYOUT = Layout("bm25", 2, "BM25 postings")


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
        self._search = TermSearch(indexed.postings, indexed.postings.weights(self.k1, self.b))

    @classmethod
    def build(cls, passages: Iterable[Passage], *, k1: float = K1, b: float = B, analyzer: str | None = None) -> BM25:
        """Index `passages` (read once; their texts are not kept), title and text together as "title\\ntext".

        `analyzer` is the kind for all languages (`interlingua.text.analyzers`), None each language's default. An empty
        passage is allowed, and never found. Raises BadInput for duplicate ids and when there is no passage.
        """
        ids: dict[str, None] = {}
        analyzers: dict[str, Analyzer] = {}

        def analysed() -> Iterator[list[str]]:
            for passage in track(passages, "analyse passages"):
                if passage.id in ids:
                    raise BadInput(f"passage id '{passage.id}' occurs twice. Ids must be unique in an index.")
                ids[passage.id] = None
                lang = _key(passage.lang)
                if lang not in analyzers:
                    analyzers[lang] = _announced(lang, passage.lang, analyzer)
                yield analyzers[lang](passage.whole_text)

        postings = Postings.of(analysed())
        if not ids:
            raise BadInput("there is no passage to index.")
        return cls(Indexed(list(ids), postings, analyzers), k1, b)

    @classmethod
    def load(cls, path: str | Path) -> BM25:
        """Open the folder that `save` wrote, memory-mapped. Raises NotFound for a folder that is no BM25 index, Damaged
        for one that is not as it was written, and BadInput where an analyzer has another version here than the one that
        cut the passages."""
        with ArrayFolder.open(path, LAYOUT) as folder:
            ids, stored_analyzers = folder.facts["ids"], folder.facts["analyzers"]
            if not all(isinstance(name, str) for name in ids) or len(set(ids)) != len(ids):
                raise ValueError("its ids are no list of different names")
            analyzers = {lang: _same(folder.path, lang, *entry) for lang, entry in stored_analyzers.items()}
            postings = Postings.read(folder, len(ids))
            postings.check()
            return cls(Indexed(ids, postings, analyzers), folder.facts["k1"], folder.facts["b"])

    def save(self, path: str | Path) -> None:
        """Write a folder, whole or not at all. It replaces an earlier save, and nothing else."""
        with ArrayFolder.write(path, LAYOUT) as folder:
            self._indexed.postings.write(folder)
            analyzers = {lang: [chosen.name, chosen.version] for lang, chosen in sorted(self.analyzers.items())}
            folder.facts |= {"k1": self.k1, "b": self.b, "analyzers": analyzers, "ids": self._indexed.ids}

    def weighted(self, k1: float, b: float) -> BM25:
        """Give the same index other parameters, without analysing the passages again."""
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
            raise BadInput(f"depth {depth}: must be at least 1.")
        run, ids = Run(), self._indexed.ids
        for query in queries:
            rows, scores = self._matches(query).best(depth, self._indexed.ties)
            run.add_rows(query.id, rows, scores, ids)
        return run

    def score(self, queries: Sequence[Query], candidates: Candidates) -> Run:
        """For each query of `candidates`, exactly its candidates: 0 where a passage holds none of its terms.

        Raises BadInput for a candidate that is not indexed or a query that is not among `queries`.
        """
        run = Run()
        for query in chosen_queries(queries, candidates):
            ids = list(candidates[query.id])
            unknown = [name for name in ids if name not in self._indexed.rows]
            if unknown:
                raise BadInput(
                    f"query '{query.id}': {len(unknown):,} of its {len(ids):,} candidates are not "
                    f"indexed, the first is '{unknown[0]}'. Index the same collection."
                )
            rows = np.array([self._indexed.rows[name] for name in ids], dtype=np.int64)
            run.add(query.id, ids, self._matches(query).of(rows))
        return run

    def _matches(self, query: Query) -> TermMatches:
        """The scores for the query's terms that some passage holds."""
        lang, analyzers = _key(query.lang), self._indexed.analyzers
        # passages in no known language are looked for by the analyzer that cut them
        codes = {"", lang} if lang and lang in analyzers else analyzers.keys()
        counts: Counter[str] = Counter()
        for code, chosen in analyzers.items():
            if code in codes:
                counts |= Counter(chosen(query.text))
        return self._search.matches(self._indexed.postings.numbers(list(counts.elements())))


def check_parameters(k1: float, b: float) -> None:
    """Raise BadInput for parameters that BM25 cannot have."""
    if not (isfinite(k1) and k1 >= 0 and 0 <= b <= 1):
        raise BadInput(f"k1={k1}, b={b}: k1 must be a number of 0 or more, b from 0 to 1. Try k1={K1}, b={B}.")


@lru_cache(maxsize=1024)
def _key(lang: str) -> str:
    """The code of a language, "" where it is not known."""
    return find_code(lang) or ""


def _announced(lang: str, raw_lang: str, kind: str | None) -> Analyzer:
    """The analyzer of a language, saying so where it is a fallback."""
    chosen = analyzer_of(lang, kind)
    if not lang and kind is None:
        reason = f"language '{raw_lang}' is not known" if raw_lang else "no language is given"
        logger.info(f"{reason}: its passages are cut by the analyzer {chosen.name} ({'; '.join(chosen.steps)})")
    return chosen


@dataclass(frozen=True)
class Indexed:
    """An analysed collection: all of BM25 but its parameters. The number of a passage is its place in `ids`;
    `analyzers` by language code, "" for none."""

    ids: list[str]
    postings: Postings
    analyzers: Mapping[str, Analyzer]

    @cached_property
    def rows(self) -> dict[str, int]:
        """The number of each passage by its id."""
        return {name: row for row, name in enumerate(self.ids)}

    @cached_property
    def ties(self) -> NDArray[np.int64]:
        """[passages]: the place of each among all when ordered by id descending, the project's tie order."""
        return np.argsort(docid_order(self.ids))


def _same(folder: Path, lang: str, name: str, version: str) -> Analyzer:
    """The analyzer with this name and version, if it is the same here."""
    current = analyzer(lang, name.rpartition("/")[2])
    if (current.name, current.version) != (name, version):
        raise BadInput(
            f"{folder}: was cut by the analyzer {name} ({version}), here it is {current.name} "
            f"({current.version}), which may cut queries otherwise. Build the index again, or install "
            "those versions."
        )
    return current


K1_GRID = tuple(step / 10 for step in range(1, 17))
B_GRID = tuple(step / 10 for step in range(1, 11))


@dataclass(frozen=True)
class Tuned:
    """`bm25` has the best parameters; `grid` holds what `metric` gave for each (k1, b), in the order tried."""

    bm25: BM25
    grid: dict[tuple[float, float], float]

    @property
    def best(self) -> tuple[float, float]:
        """The best k1 and b."""
        return self.bm25.k1, self.bm25.b

    @property
    def value(self) -> float:
        """The value of `metric` for the best parameters."""
        return self.grid[self.best]


def tune_bm25(
    passages: Iterable[Passage],
    queries: Sequence[Query],
    metric: Callable[[Run], float],
    *,
    k1: Sequence[float] = K1_GRID,
    b: Sequence[float] = B_GRID,
    depth: int = 100,
    analyzer: str | None = None,
) -> Tuned:
    """Search `queries` with every k1 and b, and keep the pair for whose run `metric` is highest.

    `metric` takes a run of `depth` passages a query, for example `lambda run: evaluate(run, qrels, ["RR@100"])
    ["RR@100"]`. Passages are analysed once. Of equal values the pair nearest Anserini's (0.9, 0.4) wins. Use the
    development queries: tuned on the test queries, a number says nothing.
    Raises BadInput for no queries, an empty grid, and what `BM25.build` raises it for.
    """
    k1, b = list(k1), list(b)
    if not queries or not k1 or not b:
        raise BadInput(f"{len(queries)} queries, {len(k1)} values of k1, {len(b)} of b: to tune needs some of each.")
    bm25 = BM25.build(passages, k1=k1[0], b=b[0], analyzer=analyzer)
    pairs = [(float(k1_value), float(b_value)) for k1_value in k1 for b_value in b]
    grid = {pair: metric(bm25.weighted(*pair).search(queries, depth)) for pair in track(pairs, "tune k1 and b")}
    best = max(pairs, key=lambda pair: (grid[pair], -(abs(pair[0] - K1) + abs(pair[1] - B))))
    return Tuned(bm25.weighted(*best), grid)
