"""The calls of an index for passages in Milvus."""

from __future__ import annotations

import logging
from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage, Query
from interlingua.errors import BadInput, NotFound
from interlingua.index.local.snapshot import analyzers_of
from interlingua.index.metadata import Budget, IndexInfo, Question, Questions, check_encoder, load_encoder, questions
from interlingua.index.milvus.collection import (
    PASSAGE,
    Address,
    condition,
    connected,
    disconnect,
    passage_of,
    source_of,
)
from interlingua.index.milvus.store import About, MilvusStore, alias_of
from interlingua.index.milvus.write import FORMAT, compact, delete_passages, write_index, write_passages
from interlingua.index.ranking import hybrid, named, only, ranking_names, share_of_own
from interlingua.index.search import DEPTH, Hit
from interlingua.retrieval.bm25.bm25 import K1, B
from interlingua.retrieval.bm25.postings import max_score, query_vector, term_number
from interlingua.retrieval.late_interaction.static import StaticMaxSim
from interlingua.retrieval.rerank import model_retriever, rerank
from interlingua.retrieval.retriever import TextEncoder, Vectors, embed_queries
from interlingua.retrieval.run import Run

if TYPE_CHECKING:
    from interlingua.data.files.walk import SourceNames

logger = logging.getLogger(__name__)


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
        return [
            Asked(
                question.text,
                query_vector(found, found_in, about["passages"]),
                max_score((found_in.get(term_number(term), 0) for term in found), about["passages"]),
                share_of_own(question.lang, self.languages),
            )
            for question, found in zip(questions, terms, strict=True)
        ]

    def _found(self, vectors: Floats | None, questions: Sequence[Asked], depth: int) -> list[list[Hit]]:
        sparse = [question.sparse for question in questions]
        asked = [number for number, terms in enumerate(sparse) if terms]  # the others have no term that is known
        if self.mode == "hybrid" and self.fusion == "rrf" and vectors is not None:
            return self._fused_there(vectors, sparse, asked, depth)
        limit, columns = depth + SPARE, COLUMNS if self.mode == "hybrid" else COLUMNS[:-1]
        dense = [] if vectors is None else self.store.search("vector", list(vectors), limit, self.where, columns)
        lexical = (
            self.store.search("sparse", [sparse[number] for number in asked], limit, self.where, columns)
            if asked
            else []
        )
        held = dict(zip(asked, lexical, strict=True))
        return [
            self._ranked(
                dense[number] if dense else [],
                held.get(number, []),
                None if vectors is None else vectors[number],
                question,
                depth,
            )
            for number, question in enumerate(questions)
        ]

    def _ranked(
        self, dense: Sequence[Any], lexical: Sequence[Any], vector: Floats | None, question: Asked, depth: int
    ) -> list[Hit]:
        """The best of what two searches found, scored and fused as a local index does it."""
        sparse = question.sparse
        names = _names([*dense, *lexical])
        rows = {names[row["entity"]["number"]]: row["entity"] for row in [*dense, *lexical]}
        parts: dict[str, dict[str, float]] = {}
        if self.mode != "dense":
            parts["lexical"] = {
                name: score
                for name in (names[row["entity"]["number"]] for row in lexical)
                if (score := _lexical(rows[name], sparse)) > 0
            }
        if vector is not None:
            parts["dense"] = {names[row["entity"]["number"]]: _dense(row["entity"], vector) for row in dense}
        if self.mode == "hybrid" and vector is not None:
            every = {name for scores in parts.values() for name, _ in _run(scores).truncate(depth)["q"]}
            parts = {
                "lexical": {name: _lexical(rows[name], sparse) for name in every},
                "dense": {name: _dense(rows[name], vector) for name in every},
            }
            langs = {name: rows[name]["lang"] for name in every}
            run = hybrid(
                question.text,
                parts,
                question.most,
                question.share,
                langs,
                self.words,
                lambda name: np.array(rows[name]["subwords"], dtype=np.int64),
            )
        else:
            run = _run(parts[self.mode])
        return [
            Hit(passage_of(rows[name]), score, {part: scores[name] for part, scores in parts.items() if name in scores})
            for name, score in run.truncate(depth)["q"]
        ]

    def _fused_there(
        self, vectors: Floats, sparse: Sequence[dict[int, float]], asked: Sequence[int], depth: int
    ) -> list[list[Hit]]:
        """Hybrid rankings as Milvus makes them, reciprocal rank fusion of both searches."""
        both = (
            self.store.search_hybrid(
                vectors[list(asked)],
                [sparse[number] for number in asked],
                depth,
                depth + SPARE,
                self.where,
                COLUMNS[:-1],
            )
            if asked
            else []
        )
        rest = [number for number in range(len(sparse)) if number not in set(asked)]
        alone = self.store.search("vector", list(vectors[rest]), depth, self.where, COLUMNS[:-1]) if rest else []
        found: dict[int, list[Hit]] = {}
        for number, rows in [*zip(asked, both, strict=True), *zip(rest, alone, strict=True)]:
            names = _names(rows)
            entities = {names[row["entity"]["number"]]: row["entity"] for row in rows}
            run = _run(
                {
                    names[row["entity"]["number"]]: row["distance"] if number in asked else 1 / (60 + rank)
                    for rank, row in enumerate(rows, 1)
                }
            )
            found[number] = [
                Hit(
                    passage_of(entities[name]),
                    score,
                    {
                        "lexical": _lexical(entities[name], sparse[number]),
                        "dense": _dense(entities[name], vectors[number]),
                    },
                )
                for name, score in run.truncate(depth)["q"]
            ]
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
        return [
            [Hit(passages[name], score, {**held[name].parts, "reranker": score}) for name, score in run[query.id]]
            for query, held in zip(queries, hits, strict=True)
        ]


def _names(rows: Sequence[Any]) -> dict[int, str]:
    """The names with which the passages of rows are ranked, by their numbers: see `ranking_names`."""
    entities = {row["entity"]["number"]: row["entity"] for row in rows}
    names = ranking_names(
        [one["id"] for one in entities.values()], lambda: [source_of(one) for one in entities.values()]
    )
    return dict(zip(entities, names, strict=True))


def _run(scores: Mapping[str, float]) -> Run:
    return Run.from_scores({"q": dict(scores)})


def _dense(row: Mapping[str, Any], vector: Floats) -> float:
    """The dot product, summed in float64, so that it depends on nothing else that was asked for."""
    return float(np.float32(np.dot(np.asarray(row["vector"], dtype=np.float64), vector.astype(np.float64))))


def _lexical(row: Mapping[str, Any], sparse: Mapping[int, float]) -> float:
    held = row["sparse"]
    return float(np.float32(sum(weight * held.get(number, 0.0) for number, weight in sparse.items())))


MOST = 16_384 - SPARE
"""The most results that Milvus gives to one question, but for those that are asked for to order ties."""


class MilvusIndex:
    """Passages searchable by one encoder and by BM25, in Milvus. Make one with `build`, reopen it with `open`.

    Dense and lexical search and all filters are the server's. Lexical search is ours as a sparse inner product: the
    document side is weighted by the analyzers of the passages' languages, the question's side by counts that are kept
    beside them (`interlingua.retrieval.bm25.postings`). Hybrid results are fused as by a local `Index`, so that both
    give the same; with `?fusion=rrf` in the address the server fuses them itself, by reciprocal rank.

    Counts are exact after each write. The mean length of passages in the lexical weights is that of the last `build` or
    `compact`. One writer at a time, which is for you to see to, and any number of readers. A token for the server
    comes from MILVUS_TOKEN in the environment.
    """

    def __init__(self, address: Address, client: Any, encoder: TextEncoder | None) -> None:
        self.path, self._client, self._encoder, self._words = address, client, encoder, StaticMaxSim.of(encoder)
        self._writer, self._loading = RLock(), Lock()
        self._store = MilvusStore.current(address, client)
        self.about: About = {}
        self.refresh()

    @classmethod
    def build(
        cls,
        encoder: TextEncoder,
        passages: Iterable[Passage],
        address: str,
        *,
        model_path: str | Path = "",
        overwrite: bool = False,
        k1: float = K1,
        b: float = B,
        names: SourceNames | None = None,
        **encode_options: Any,
    ) -> MilvusIndex:
        """Encode `passages` (any iterable, read once) into an index at `address`, such as
        `milvus://localhost:19530/docs` or `milvus:folder/file.db/docs`; it is there when it is whole, not before.

        A build that was stopped goes on where it ended if model and passages are the same. Options as those of
        `Index.build`. Raises BadInput when there is an index and `overwrite` is not set, for two
        passages with one source and id, for a passage that Milvus has no room for, and when there is no passage.
        """
        from interlingua.models.folder import canonical_model_name

        place = Address.parse(address)
        if place.local:
            Path(place.uri).parent.mkdir(parents=True, exist_ok=True)
        with connected(place) as client:
            if alias_of(place, client) is not None and not overwrite:
                raise BadInput(
                    f"{place}: already exists. Choose another name, or replace it with --overwrite "
                    "(in Python: overwrite=True)."
                )
            model = canonical_model_name(model_path)
            write_index(encoder, passages, place, client, model, float(k1), float(b), names, encode_options)
            return cls(place, client, encoder)

    @classmethod
    def open(cls, address: str, encoder: TextEncoder | None = None) -> MilvusIndex:
        """Open an index. Without `encoder`, the model it was built with is loaded when it is first needed.

        Raises BadInput where there is none, and for an encoder that gives other vectors.
        """
        place = Address.parse(address)
        if place.local and not Path(place.uri).exists():
            raise NotFound(f"{place.uri}: there is no such file of Milvus Lite.")
        with connected(place) as client:
            index = cls(place, client, encoder)
            if encoder is not None:
                check_encoder(encoder, index.about["fingerprint"], index.about["similarity"], place)
        if index.about["writing"]:
            logger.warning(
                f"{place}: a writer is at work, or was stopped. If it was stopped, no passage that it had written is "
                "lost, but counts of terms may be off: `compact` makes them again."
            )
        elif index.about["analyzers"] != analyzers_of(list(index.languages)):
            logger.warning(
                f"{place}: its passages were cut into terms by other versions of the analyzers than those here. "
                "Lexical search finds less until `compact` cuts them again."
            )
        return index

    @property
    def languages(self) -> dict[str, int]:
        """Passages of each language."""
        return dict(self.about["languages"])

    def __len__(self) -> int:
        return int(self.about["passages"])

    def passage(self, id: str) -> Passage:
        """The passage with an id, or the one called `source:id`. Raises BadInput where there is none, and for
        an id of several."""
        self.refresh()
        found = named([id], lambda ids: self._store.find(ids, PASSAGE), source_of)
        return passage_of(only(id, found.get(id, []), source_of, self.path))

    def search(
        self,
        text: str | Question,
        k: int = 10,
        langs: Names[str] | None = None,
        *,
        mode: str = "hybrid",
        where: Mapping[str, str] | None = None,
        lang: str | None = None,
        reranker: Any = None,
    ) -> list[Hit]:
        """The `k` best passages for a question in any language, best first; options as those of `Index.search`."""
        return self.search_many([text], k, langs, mode=mode, where=where, lang=lang, reranker=reranker)[0]

    def search_many(
        self,
        texts: Sequence[str | Question],
        k: int = 10,
        langs: Names[str] | None = None,
        *,
        mode: str = "hybrid",
        where: Mapping[str, str] | None = None,
        lang: str | Sequence[str | None] | None = None,
        reranker: Any = None,
        budget: Budget | None = None,
    ) -> list[list[Hit]]:
        """`search` for several questions, which are encoded together; `lang` may be a list with one for each, and of
        a `Question` its own language counts. Raises OutOfTime where one takes more than the `budget`."""
        if not 1 <= k <= MOST:
            raise BadInput(f"k={k}: must be from 1 to {MOST:,}, the most that Milvus gives.")
        self.refresh()
        asked = questions(texts, lang, mode, langs, self.languages, self.path)
        if not asked.queries or (langs is not None and not langs):
            return [[] for _ in asked.queries]
        budget, vectors = budget or Budget(), None
        if mode != "lexical":
            encoder = self.encoder  # loaded before anything is measured
            with budget.stage("encoding", *asked.asked):
                vectors = embed_queries(encoder, asked.queries)
        where_ = condition(langs, where or {})
        words = self._words = StaticMaxSim.of(self._encoder, self._words)  # another thread may write the latter
        search = MilvusSearch(self._store, where_, mode, k, self.path.fusion, asked.searched, words, budget)
        return search.hits(asked, vectors, reranker)

    @contextmanager
    def together(self) -> Iterator[None]:
        """As `Index.together`. The server decides when writes are on its disk, so there is nothing to wait for."""
        yield

    def add(self, passages: Iterable[Passage], names: SourceNames | None = None) -> int:
        """Add passages; how many. Every 256 are there for good before the next are encoded.

        `names` and what is raised as in `Index.add`.
        """
        return self._write(passages, "add", names)

    def replace(self, passages: Iterable[Passage], names: SourceNames | None = None) -> int:
        """Put passages in place of those with their source and id, as `Index.replace` does, and add new ones; how many
        were new or different."""
        return self._write(passages, "replace", names)

    def delete(self, ids: Iterable[str]) -> int:
        """Delete passages; how many. An id means all passages that have it, `source:id` one of them. Ids that are not
        there are passed over."""
        with self._writer:
            self.refresh()
            count = delete_passages(self._store, [ids] if isinstance(ids, str) else list(ids))
            self.refresh()
        return count

    def compact(self, approximate: bool | None = None) -> None:
        """Count all terms anew, write the lexical weights with the mean length of now, and let Milvus tidy up. Raises
        BadInput for `approximate`, which Milvus decides by itself."""
        if approximate is not None:
            raise BadInput(
                f"{self.path}: Milvus decides how it searches vectors. Only an index in a folder can be made "
                "approximate or exact."
            )
        with self._writer:
            self.refresh()
            compact(self._store)
            self.refresh()

    def keep_tokens(self, reranker: Any) -> int:
        """Raise BadInput: Milvus keeps no token vectors."""
        raise BadInput(
            f"{self.path}: Milvus keeps no token vectors. A reranker encodes what it reranks; only an index in a "
            "folder keeps them."
        )

    def vectors(self) -> Iterator[tuple[list[Passage], Vectors]]:
        """All passages with their vectors, some hundred at a time."""
        self.refresh()
        for rows in self._store.scan(self.about["next"], [*PASSAGE, "vector"]):
            yield [passage_of(row) for row in rows], np.array([row["vector"] for row in rows], dtype=np.float32)

    def info(self) -> IndexInfo:
        """What is in the index and how it was made. `version` counts builds and `cache` the times it was compacted."""
        self.refresh()
        about, version = self.about, int(self._store.place.rpartition("_v")[2])
        analyzers = analyzers_of(list(self.languages))
        return IndexInfo(
            len(self),
            self.languages,
            about["model"],
            about["similarity"],
            about["dim"],
            version,
            about["round"],
            0,
            0,
            about["k1"],
            about["b"],
            {lang: f"{name} ({made})" for lang, (name, made) in analyzers.items()},
        )

    @property
    def encoder(self) -> TextEncoder:
        """The encoder of the questions, loaded by the name that the index remembers when none was given."""
        with self._loading:
            if self._encoder is None:
                about = self.about
                self._encoder = load_encoder(about["model"], about["fingerprint"], about["similarity"], self.path)
            return self._encoder

    def refresh(self) -> None:
        """Go to the newest version, whoever wrote it; searches do it by themselves."""
        store = MilvusStore.current(self.path, self._client, self._store)
        about = store.about()
        if about.get("format") != FORMAT:
            raise BadInput(
                f"{self.path}: is an index of another version of interlingua. Build it again with --overwrite."
            )
        self._store, self.about = store, about

    def close(self) -> None:
        """End the connection. With the last one to a file of Milvus Lite another process may open the file."""
        disconnect(self.path, self._client)

    def _write(self, passages: Iterable[Passage], verb: str, names: SourceNames | None) -> int:
        encoder = self.encoder
        with self._writer:
            self.refresh()
            count = write_passages(self._store, encoder, passages, verb, names)
            self.refresh()
        return count
