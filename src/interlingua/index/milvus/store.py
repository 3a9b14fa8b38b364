"""The store of an index in Milvus: its views, searched by the server, and its writes."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from interlingua.data.records import Passage
from interlingua.errors import BadInput, NotFound
from interlingua.files import durability_of
from interlingua.index.filters import Filter, Values
from interlingua.index.metadata import IndexMetadata, analyzers_of
from interlingua.index.milvus.collection import (
    PASSAGE,
    Address,
    condition,
    connected,
    disconnect,
    passage_of,
    source_of,
)
from interlingua.index.milvus.version import IndexRecord, IndexVersion, alias_of
from interlingua.index.milvus.write import FORMAT, compact, delete_rows, write_index, write_passages
from interlingua.index.store import AddressedStore, BuildSettings, Floats, LexicalMatches, Scores, View, already_there
from interlingua.models.protocols import Encoder
from interlingua.retrieval.bm25.postings import inverse_frequency, query_vector, term_number
from interlingua.retrieval.late_interaction.static import Ids
from interlingua.retrieval.retriever import Vectors

if TYPE_CHECKING:
    from interlingua.data.files.walk import SourceNames

logger = logging.getLogger(__name__)

SPARE = 16  # candidates beyond the cut, among which ties are ordered by id
MOST = 16_384 - SPARE
"""The most results that Milvus gives to one question, but for those that are asked for to order ties."""
TOGETHER = 64  # questions of one call
COLUMNS = ["number", *PASSAGE, "vector", "sparse", "subwords"]
WRITTEN = [*PASSAGE, "length", "sparse"]
"""The fields that a write must know of a row that it replaces or deletes."""


@dataclass(frozen=True)
class MilvusRow:
    """A row, identified by its number, with the `columns` that were read, by name."""

    number: int
    columns: Mapping[str, Any] = field(compare=False, repr=False)


class WeightedQuery(NamedTuple):
    """A question as Milvus searches for it, and the inverse document frequency of each term."""

    sparse: dict[int, float]
    weights: dict[str, float]


class MilvusView(View[MilvusRow]):
    """The passages of one version, as they are now: in contrast to a folder's, a view shows what is written later."""

    together, deepest = TOGETHER, MOST

    def __init__(self, address: Address, version: IndexVersion, about: IndexRecord) -> None:
        self.address, self.collections, self.about = address, version, about
        self.metadata = IndexMetadata(
            about["model"],
            about["fingerprint"],
            about["similarity"],
            about["dim"],
            about["k1"],
            about["b"],
            version.place,
        )
        self.version = int(version.place.rpartition("_v")[2])
        self._where, self._columns = "", COLUMNS
        self._values: dict[str, list[Values]] = {}

    @property
    def cache(self) -> int:
        """The number of times that the index was compacted."""
        return int(self.about["round"])

    @property
    def languages(self) -> Mapping[str, int]:
        """Passages of each language."""
        languages: dict[str, int] = self.about["languages"]
        return languages

    def __len__(self) -> int:
        return int(self.about["passages"])

    def find(self, ids: Sequence[str]) -> dict[str, list[MilvusRow]]:
        """As `View.find`, with what a write must know of the rows."""
        by_id = self.collections.find(ids, WRITTEN)
        return {id: [MilvusRow(row["number"], row) for row in rows] for id, rows in by_id.items()}

    @property
    def fields(self) -> Collection[str]:
        """As `View.fields`. An index that has too many to count, or was made before they were, is read through."""
        if "fields" in self.about:
            return set(self.about["fields"])
        tags = (
            tag for rows in self.collections.scan(self.about["next"], ["tags"]) for row in rows for tag in row["tags"]
        )
        return {json.loads(tag)[0] for tag in tags}

    def counts(self, key: str) -> Counter[str]:
        """As `View.counts`: all tags are read."""
        counts: Counter[str] = Counter()
        for rows in self.collections.scan(self.collections.about()["next"], ["tags"], self._where):
            for row in rows:
                counts.update(value for name, value in map(json.loads, row["tags"]) if name == key)
        return counts

    def values(self, key: str) -> Iterable[Values]:
        """As `View.values`, read once."""
        if key not in self._values:
            self._values[key] = list(super().values(key))
        return self._values[key]

    def rows(self, where: Filter | None) -> Iterator[list[MilvusRow]]:
        """As `View.rows`, with what `find` gives of each."""
        expression = condition(None, where, self.values)
        for rows in self.collections.scan(self.collections.about()["next"], WRITTEN, expression):
            yield [MilvusRow(row["number"], row) for row in rows]

    def passages(self, rows: Sequence[MilvusRow]) -> list[Passage]:
        return [passage_of(row.columns) for row in rows]

    def ids(self, rows: Sequence[MilvusRow]) -> list[str]:
        return [row.columns["id"] for row in rows]

    def source(self, row: MilvusRow) -> str:
        return source_of(row.columns)

    def langs(self, rows: Sequence[MilvusRow]) -> list[str]:
        return [row.columns["lang"] for row in rows]

    def subwords(self, rows: Sequence[MilvusRow]) -> list[Ids]:
        return [np.array(row.columns["subwords"], dtype=np.int64) for row in rows]

    def narrowed(self, langs: Collection[str] | None, where: Filter | None, mode: str) -> MilvusView:
        """As `View.narrowed`. Subwords are read where `mode` needs them: when the index fuses."""
        view = copy(self)
        view._where = condition(langs, where, self.values)
        view._columns = COLUMNS if mode == "hybrid" and self.address.fusion == "local" else COLUMNS[:-1]
        return view

    def dense(self, vectors: Floats, depth: int) -> list[Scores[MilvusRow]]:
        """As `View.dense`. What the server finds is scored again here."""
        nearest = self._search("vector", list(vectors), depth + SPARE)
        return [self.dense_scores(rows, vector) for rows, vector in zip(nearest, vectors, strict=True)]

    def dense_scores(self, rows: Sequence[MilvusRow], vector: Floats) -> Scores[MilvusRow]:
        """As `View.dense_scores`, each summed in float64, so that it depends on nothing else that was asked for."""
        wide = vector.astype(np.float64)
        return {
            row: float(np.float32(np.dot(np.asarray(row.columns["vector"], dtype=np.float64), wide))) for row in rows
        }

    def lexical(self, terms: Sequence[Counter[str]], depth: int) -> list[LexicalMatches[MilvusRow]]:
        """As `View.lexical`: BM25 as a sparse inner product, with the counts of now."""
        queries = self._weighted(terms)
        known = [number for number, query in enumerate(queries) if query.sparse]  # the others have no known term
        rows = dict(zip(known, self._search("sparse", [queries[n].sparse for n in known], depth + SPARE), strict=True))
        matches = []
        for number, query in enumerate(queries):
            scores = lexical_scores(query.sparse, rows.get(number, []))
            best = {row: score for row, score in scores.items() if score > 0}
            matches.append(LexicalMatches(best, query.weights, partial(lexical_scores, query.sparse)))
        return matches

    def fused(
        self, vectors: Floats, terms: Sequence[Counter[str]], depth: int
    ) -> list[dict[str, Scores[MilvusRow]]] | None:
        """As `View.fused`: with `?fusion=rrf` in the address, reciprocal rank fusion by the server."""
        if self.address.fusion == "local":
            return None
        self._check(depth)
        queries = self._weighted(terms)
        known = [number for number, query in enumerate(queries) if query.sparse]
        rest = [number for number, query in enumerate(queries) if not query.sparse]
        sparse = [queries[number].sparse for number in known]
        results = (
            self.collections.search_hybrid(vectors[known], sparse, depth, depth + SPARE, self._where, self._columns)
            if known
            else []
        )
        scores: dict[int, Scores[MilvusRow]] = {
            number: {_row(hit): hit["distance"] for hit in rows} for number, rows in zip(known, results, strict=True)
        }
        for number, rows in zip(rest, self._search("vector", list(vectors[rest]), depth), strict=True):
            scores[number] = {row: 1 / (60 + rank) for rank, row in enumerate(rows, 1)}
        return [
            {
                "hybrid": scores[number],
                "lexical": lexical_scores(query.sparse, list(scores[number])),
                "dense": self.dense_scores(list(scores[number]), vectors[number]),
            }
            for number, query in enumerate(queries)
        ]

    def _weighted(self, terms: Sequence[Counter[str]]) -> list[WeightedQuery]:
        numbers = sorted({term_number(term) for counts in terms for term in counts})
        about, found_in = self.collections.look_up(numbers)
        count = about["passages"]
        return [
            WeightedQuery(
                query_vector(list(counts.elements()), found_in, count),
                {term: float(inverse_frequency(found_in.get(term_number(term), 0), count)) for term in counts},
            )
            for counts in terms
        ]

    def _search(self, column: str, data: Sequence[Any], limit: int) -> list[list[MilvusRow]]:
        self._check(limit - SPARE)
        results = self.collections.search(column, data, limit, self._where, self._columns) if data else []
        return [[_row(hit) for hit in rows] for rows in results]

    def _check(self, depth: int) -> None:
        if depth > MOST:
            raise BadInput(f"k={depth:,}: must be from 1 to {MOST:,}, the most that Milvus gives.")


def _row(result: Mapping[str, Any]) -> MilvusRow:
    return MilvusRow(result["entity"]["number"], result["entity"])


def lexical_scores(sparse: Mapping[int, float], rows: Sequence[MilvusRow]) -> Scores[MilvusRow]:
    """The inner product of each row's weights of terms with `sparse`."""
    return {
        row: float(
            np.float32(sum(weight * row.columns["sparse"].get(number, 0.0) for number, weight in sparse.items()))
        )
        for row in rows
    }


class MilvusStore(AddressedStore[MilvusRow]):
    """A collection of passages in Milvus, and one of the counts of their terms.

    Dense and lexical search and all filters are the server's. Lexical search is ours as a sparse inner product: the
    document side is weighted by the analyzers of the passages' languages, the question's side by counts that are kept
    beside them (`interlingua.retrieval.bm25.postings`). Hybrid results are fused as those of a folder, so that both
    give the same; with `?fusion=rrf` in the address the server fuses them itself, by reciprocal rank.

    Counts are exact after each write. The mean length of passages in the lexical weights is that of the last `build` or
    `compact`. One writer at a time, which is for you to see to, and any number of readers. The server decides when a
    write is on its disk. A token for the server comes from MILVUS_TOKEN in the environment.
    """

    def __init__(self, address: Address, client: Any) -> None:
        self.address: Address = address
        self.client = client
        self._closed = False
        self._version: IndexVersion | None = None
        self.refresh()

    @classmethod
    def open(cls, address: str, durability: str = "full") -> MilvusStore:
        """The index at an address. Warns of a stopped writer, and of other versions of the analyzers."""
        _check_durability(address, durability)
        place = Address.parse(address)
        if place.local and not Path(place.uri).exists():
            raise NotFound(f"{place.uri}: there is no such file of Milvus Lite.")
        with connected(place) as client:
            store = cls(place, client)
        about = store.view.about
        if about["writing"]:
            logger.warning(
                f"{place}: a writer is at work, or was stopped. If it was stopped, no passage that it had written is "
                "lost, but counts of terms may be off: `compact` makes them again."
            )
        elif about["analyzers"] != analyzers_of(list(store.view.languages)):
            logger.warning(
                f"{place}: its passages were cut into terms by other versions of the analyzers than those here. "
                "Lexical search finds less until `compact` cuts them again."
            )
        return store

    @classmethod
    def build(cls, address: str, encoder: Encoder, passages: Iterable[Passage], settings: BuildSettings) -> MilvusStore:
        """As `AddressedStore.build`. A build that was stopped goes on where it ended if model and passages are the
        same. Raises BadInput also for a passage that Milvus has no room for."""
        _check_durability(address, settings.durability)
        place = Address.parse(address)
        if place.local:
            Path(place.uri).parent.mkdir(parents=True, exist_ok=True)
        with connected(place) as client:
            if alias_of(place, client) is not None and not settings.overwrite:
                raise already_there(place, "name")
            write_index(encoder, passages, place, client, settings)
            return cls(place, client)

    @property
    def view(self) -> MilvusView:
        """The version that was read last."""
        return self._view

    def refresh(self) -> MilvusView:
        """Read what the index says about itself now."""
        version = IndexVersion.current(self.address, self.client, self._version)
        about = version.about()
        if about.get("format") != FORMAT:
            raise BadInput(
                f"{self.address}: is an index of another version of interlingua. Build it again with --overwrite."
            )
        self._version, self._view = version, MilvusView(self.address, version, about)
        return self._view

    def write(
        self,
        changes: Iterable[Sequence[tuple[Passage, MilvusRow | None]]],
        encoder: Encoder,
        verb: str,
        names: SourceNames | None,
    ) -> int:
        """As `Store.write`. Every 256 passages are there for good before the next are written, and stay after an
        error."""
        rows = ([(passage, row.columns if row else None) for passage, row in chunk] for chunk in changes)
        return write_passages(self._view.collections, encoder, rows, names)

    def delete(self, view: View[MilvusRow], rows: Collection[MilvusRow]) -> None:
        delete_rows(self._view.collections, [row.columns for row in rows])

    def compact(self, approximate: bool | None = None) -> None:
        """Count all terms anew, write the lexical weights with the mean length of now, and let Milvus tidy up."""
        super().compact(approximate)
        compact(self._view.collections)

    def sources(self) -> dict[str, str]:
        return dict(self.refresh().about.get("sources", {}))

    def vectors(self) -> Iterator[tuple[list[Passage], Vectors]]:
        """All passages with their vectors, some hundred at a time."""
        view = self.refresh()
        for rows in view.collections.scan(view.about["next"], [*PASSAGE, "vector"]):
            yield [passage_of(row) for row in rows], np.array([row["vector"] for row in rows], dtype=np.float32)

    def close(self) -> None:
        """End the connection. With the last one to a file of Milvus Lite another process may open the file."""
        if not self._closed:  # `disconnect` counts the clients of a file
            self._closed = True
            disconnect(self.address, self.client)


def _check_durability(address: str, durability: str) -> None:
    if durability_of(durability) != "full":
        raise BadInput(
            f"{address}: a Milvus server decides by itself when a write is on its disk. "
            "Durability is an option of an index in a folder: leave it out."
        )
