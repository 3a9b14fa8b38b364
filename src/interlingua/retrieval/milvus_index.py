"""The calls of `Index` for passages that are kept in Milvus, a server or cluster or, in one file, Milvus Lite."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.progress import say
from interlingua.retrieval.bm25 import K1, B
from interlingua.retrieval.index_about import IndexInfo
from interlingua.retrieval.index_cache import analyzers_of
from interlingua.retrieval.index_encoder import check_encoder, load_encoder
from interlingua.retrieval.index_questions import Budget, Question, questions
from interlingua.retrieval.index_search import Hit
from interlingua.retrieval.milvus_address import Address, connected, disconnect
from interlingua.retrieval.milvus_rows import PASSAGE, condition, passage_of, source_of
from interlingua.retrieval.milvus_search import SPARE, MilvusSearch
from interlingua.retrieval.milvus_store import About, MilvusStore, alias_of
from interlingua.retrieval.milvus_writer import FORMAT, compact, delete_passages, write_index, write_passages
from interlingua.retrieval.passage_names import named, only
from interlingua.retrieval.static_maxsim import StaticMaxSim
from interlingua.retrieval.vectors import TextEncoder, Vectors, embed_queries

if TYPE_CHECKING:  # it imports every reader of files
    from interlingua.data.files.walk import SourceNames

MOST = 16_384 - SPARE
"""The most results that Milvus gives to one question, but for those that are asked for to order ties."""


class MilvusIndex:
    """Passages searchable by one encoder and by BM25, in Milvus. Make one with `build`, reopen it with `open`.

    Dense and lexical search and all filters are the server's. Lexical search is ours as a sparse inner product: the
    document side is weighted by the analyzers of the passages' languages, the question's side by counts that are kept
    beside them (`interlingua.retrieval.sparse_bm25`). Hybrid results are fused as by a local `Index`, so that both give
    the same; with `?fusion=rrf` in the address the server fuses them itself, by reciprocal rank.

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
    def build(cls, encoder: TextEncoder, passages: Iterable[Passage], address: str, *, model_path: str | Path = "",
              overwrite: bool = False, k1: float = K1, b: float = B, names: SourceNames | None = None,
              **encode_options: Any) -> MilvusIndex:
        """Encode `passages` (any iterable, read once) into an index at `address`, such as
        `milvus://localhost:19530/docs` or `milvus:folder/file.db/docs`; it is there when it is whole, not before.

        A build that was stopped goes on where it ended if model and passages are the same. Options as those of
        `Index.build`. Raises InterlinguaError when there is an index and `overwrite` is not set, for two
        passages with one source and id, for a passage that Milvus has no room for, and when there is no passage.
        """
        from interlingua.models.hub import lasting_name

        place = Address.parse(address)
        if place.local:
            Path(place.uri).parent.mkdir(parents=True, exist_ok=True)
        with connected(place) as client:
            if alias_of(place, client) is not None and not overwrite:
                raise InterlinguaError(f"{place}: already exists. Choose another name, or replace it with --overwrite "
                                       "(in Python: overwrite=True).")
            model = lasting_name(model_path)
            write_index(encoder, passages, place, client, model, float(k1), float(b), names, encode_options)
            return cls(place, client, encoder)

    @classmethod
    def open(cls, address: str, encoder: TextEncoder | None = None) -> MilvusIndex:
        """Open an index. Without `encoder`, the model it was built with is loaded when it is first needed.

        Raises InterlinguaError where there is none, and for an encoder that gives other vectors.
        """
        place = Address.parse(address)
        if place.local and not Path(place.uri).exists():
            raise InterlinguaError(f"{place.uri}: there is no such file of Milvus Lite.")
        with connected(place) as client:
            index = cls(place, client, encoder)
            if encoder is not None:
                check_encoder(encoder, index.about["fingerprint"], index.about["similarity"], place)
        if index.about["writing"]:
            say(f"{place}: a writer is at work, or was stopped. If it was stopped, no passage that it had written is "
                "lost, but counts of terms may be off: `compact` makes them again.")
        elif index.about["analyzers"] != analyzers_of(list(index.languages)):
            say(f"{place}: its passages were cut into terms by other versions of the analyzers than those here. "
                "Lexical search finds less until `compact` cuts them again.")
        return index

    @property
    def languages(self) -> dict[str, int]:
        """Passages of each language."""
        return dict(self.about["languages"])

    def __len__(self) -> int:
        return int(self.about["passages"])

    def passage(self, id: str) -> Passage:
        """The passage with an id, or the one called `source:id`. Raises InterlinguaError where there is none, and for
        an id of several."""
        self.refresh()
        found = named([id], lambda ids: self._store.find(ids, PASSAGE), source_of)
        return passage_of(only(id, found.get(id, []), source_of, self.path))

    def search(self, text: str | Question, k: int = 10, langs: Names[str] | None = None, *, mode: str = "hybrid",
               where: Mapping[str, str] | None = None, lang: str | None = None, reranker: Any = None) -> list[Hit]:
        """The `k` best passages for a question in any language, best first; options as those of `Index.search`."""
        return self.search_many([text], k, langs, mode=mode, where=where, lang=lang, reranker=reranker)[0]

    def search_many(self, texts: Sequence[str | Question], k: int = 10, langs: Names[str] | None = None, *,
                    mode: str = "hybrid", where: Mapping[str, str] | None = None,
                    lang: str | Sequence[str | None] | None = None, reranker: Any = None,
                    budget: Budget | None = None) -> list[list[Hit]]:
        """`search` for several questions, which are encoded together; `lang` may be a list with one for each, and of
        a `Question` its own language counts. Raises OutOfTime where one takes more than the `budget`."""
        if not 1 <= k <= MOST:
            raise InterlinguaError(f"k={k}: must be from 1 to {MOST:,}, the most that Milvus gives.")
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

    def compact(self) -> None:
        """Count all terms anew, write the lexical weights with the mean length of now, and let Milvus tidy up."""
        with self._writer:
            self.refresh()
            compact(self._store)
            self.refresh()

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
        return IndexInfo(len(self), self.languages, about["model"], about["similarity"], about["dim"], version,
                         about["round"], 0, 0, about["k1"], about["b"],
                         {lang: f"{name} ({made})" for lang, (name, made) in analyzers.items()})

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
            raise InterlinguaError(f"{self.path}: is an index of another version of interlingua. Build it again with "
                                   "--overwrite.")
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
