"""A search engine in one folder that a person can move: passages of any languages, dense and lexical search."""

from __future__ import annotations

import logging
from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from interlingua.data.records import Passage
from interlingua.errors import BadInput, Damaged, Stale
from interlingua.files import Durability, durability_of, existing
from interlingua.index.local.build import build_folder, chunks, encoded, spooled
from interlingua.index.local.snapshot import Snapshot, analyzers_of, remove_other_caches, whole_store, write_cache
from interlingua.index.local.table import PassageStore, lock
from interlingua.index.local.tokens import IndexTokens, keep_tokens
from interlingua.index.metadata import (
    MARKER,
    Budget,
    IndexInfo,
    Question,
    check_encoder,
    is_address,
    load_encoder,
    questions,
    read_about,
    read_sources,
    signature,
    write_sources,
)
from interlingua.index.ranking import Arriving, named, only
from interlingua.index.search import Hit, Lexical, Search, View, exactly, index_vectors, near_of
from interlingua.retrieval.bm25.bm25 import K1, B, check_parameters
from interlingua.retrieval.late_interaction.static import StaticMaxSim
from interlingua.retrieval.retriever import TextEncoder, embed_queries

if TYPE_CHECKING:
    from interlingua.data.files.walk import SourceNames

logger = logging.getLogger(__name__)

__all__ = ["Hit", "Index", "IndexInfo", "build_index", "open_index"]


STALE = 0.1
"""Share of new and deleted rows in the cache from which a writer makes it again."""
FEW = 2_000  # new and deleted rows that are always left to the next time


class Index:
    """Passages searchable by one encoder and by BM25. Make one with `build`, reopen it with `open`.

    A passage is told from all others by its source (the metadata "source", "" without it) and its id: two sources may
    have an id in common, as the versions of a page in two languages do.

    The folder holds `index.json`, `sources.json` (`SourceNames`), the table `passages.lance` (LanceDB: the store of
    record), `caches/` (which can be made again from the table), `tokens/` (see `keep_tokens`) and `writer.lock`.
    Searches see the newest version of the table; `add`, `replace` and `delete` each make one version, whole or not at
    all. One writer at a time, any number of readers. Safe to use from several threads.

    With `durability` "full" a write is on the disk when its call returns: a power cut does not undo it. With "process"
    it is quicker and survives the end of the process, not a power cut, after which the index may be as it was some
    writes before. What `build` and `compact` make is on the disk either way.
    """

    def __init__(self, path: Path, encoder: TextEncoder | None, durability: Durability = "full") -> None:
        self.path, self._encoder, self._tokens, self._words = path, encoder, IndexTokens(()), StaticMaxSim.of(encoder)
        self.durability = durability
        self._held: PassageStore | None = None  # by the one who writes
        self._writer, self._reader, self._loading = RLock(), RLock(), Lock()
        self._load()

    @classmethod
    def build(
        cls,
        encoder: TextEncoder,
        passages: Iterable[Passage],
        path: str | Path,
        *,
        model_path: str | Path = "",
        overwrite: bool = False,
        k1: float = K1,
        b: float = B,
        names: SourceNames | None = None,
        durability: str = "full",
        **encode_options: Any,
    ) -> Index:
        """Encode `passages` (any iterable, read once) into a new folder at `path`, whole or not at all.

        What a build that was stopped has encoded is not encoded again. `model_path` is the name or folder from which
        `open` may load the encoder; `k1` and `b` are BM25's; `names` are those that the reader of the passages gives
        to their sources, for the index to keep; `durability` is that of later writes. Raises BadInput when the
        folder exists and `overwrite` is not set, for two passages with one source and id, and when there is no passage.
        From `interlingua.index.search.APPROXIMATE_FROM` passages on dense search is approximate, see
        `compact`.
        """
        from interlingua.models.folder import canonical_model_name

        path = Path(path)
        if path.exists() and not overwrite:
            raise BadInput(
                f"{path}: already exists. Choose another folder, or replace it with --overwrite "
                "(in Python: overwrite=True)."
            )
        if path.exists() and not (path / MARKER).exists():
            raise BadInput(f"{path}: is not an index, so it is not overwritten. Choose another folder.")
        check_parameters(k1, b)
        kept = durability_of(durability)
        model = canonical_model_name(model_path)
        build_folder(encoder, passages, path.resolve(), model, float(k1), float(b), names, encode_options)
        return cls(path, encoder, kept)

    @classmethod
    def open(cls, path: str | Path, encoder: TextEncoder | None = None, *, durability: str = "full") -> Index:
        """Open an index. Without `encoder`, the model it was built with is loaded when it is first needed.

        Raises BadInput for a folder that is no index, a damaged one, an encoder that gives other vectors
        than the one it was built with, and an unknown `durability`.
        """
        index = cls(existing(path, "index folder"), encoder, durability_of(durability))
        if encoder is not None:
            check_encoder(encoder, index.about.fingerprint, index.about.similarity, index.path)
        return index

    @property
    def languages(self) -> dict[str, int]:
        """Passages of each language."""
        return dict(self._snapshot.languages)

    def __len__(self) -> int:
        return len(self._snapshot)

    def passage(self, id: str) -> Passage:
        """The passage with an id, or the one called `source:id`. Raises BadInput where there is none, and for
        an id of several."""
        snapshot = self.refresh()
        found = named([id], snapshot.find, snapshot.source)
        return snapshot.passage(only(id, found.get(id, []), snapshot.source, self.path))

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
        """The `k` best passages for a question in any language, best first.

        Only those in `langs`, and only those whose metadata have every value of `where`, if given. `mode` is "dense",
        "lexical" (BM25) or "hybrid". `lang` is the question's language, detected if not given. `reranker`, an encoder
        from `interlingua.models.late_interaction.load_any`, brings the first 100 into its own order (see
        `keep_tokens`).
        """
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
        if k < 1:
            raise BadInput(f"k={k}: must be at least 1.")
        snapshot, lexical, near = self._newest()
        asked = questions(texts, lang, mode, langs, snapshot.languages, self.path)
        if not asked.queries:
            return []
        budget, vectors = budget or Budget(), None
        if mode != "lexical":
            encoder = self.encoder  # loaded before anything is measured
            with budget.stage("encoding", *asked.asked):
                vectors = embed_queries(encoder, asked.queries)
        chosen = snapshot.chosen(None if langs is None else list(langs), where or {})
        words = self._words = StaticMaxSim.of(self._encoder, self._words)  # another thread may write the latter
        search = Search(
            snapshot,
            chosen,
            lexical,
            mode,
            k,
            asked.searched,
            exactly if where or langs is not None else near,
            words,
            budget,
        )
        tokens = IndexTokens.open(self.path, reranker, self._tokens)
        self._tokens = tokens or self._tokens  # stays open while others search without a reranker
        return search.hits(asked, vectors, reranker, tokens)

    def add(self, passages: Iterable[Passage], names: SourceNames | None = None) -> int:
        """Add passages; how many. They are there for good when this returns (see `durability`), and all or none.

        `names`, with which the reader of `passages` names their sources, learns those that the index knows, and the
        index keeps the new ones. Raises BadInput for a passage that is there already or comes twice, as its
        source and id tell (without a source: its id), and where another writer is at work.
        """
        return self._write(passages, "add", names)

    def replace(self, passages: Iterable[Passage], names: SourceNames | None = None) -> int:
        """Put passages in place of those with their source and id, and add new ones; how many were new or different.
        One that is there already, exactly so, is not encoded again.

        A passage without a source takes the place of the only one with its id, and keeps its source. Raises
        BadInput where several have the id, and as `add` does.
        """
        return self._write(passages, "replace", names)

    def delete(self, ids: Iterable[str]) -> int:
        """Delete passages; how many. An id means all passages that have it, `source:id` one of them. Ids that are not
        there are passed over."""
        ids = [ids] if isinstance(ids, str) else list(ids)
        with self._writing() as store:
            snapshot = self._snapshot
            places = {place for found in named(ids, snapshot.find, snapshot.source).values() for place in found}
            if places:
                store.delete(np.array(sorted(int(snapshot.segments[part].numbers[row]) for part, row in places)))
                self._written(store)
        return len(places)

    def compact(self, approximate: bool | None = None) -> None:
        """Make the cache again, join the table's files and remove what only older versions need, while searches go on.

        With `approximate` dense search among all passages goes by Lance's index of the vectors, which misses some of
        the best and is quicker where there are millions; with False it is exact again. None leaves that as it is, but
        from `APPROXIMATE_FROM` passages on makes the index of vectors.
        """
        with self._writing() as store:
            store.compact()
            index_vectors(store, approximate)
            self._cache(store)

    def keep_tokens(self, reranker: Any) -> int:
        """Keep token vectors (int8) of all passages by `reranker`, a model of late interaction, so that searches need
        not encode what they rerank; of how many there were none yet. What was done when this is stopped stays."""
        return keep_tokens(self.path, reranker)

    def info(self) -> IndexInfo:
        """What is in the index and how it was made."""
        snapshot = self.refresh()
        return IndexInfo(
            len(snapshot),
            dict(snapshot.languages),
            self.about.model,
            self.about.similarity,
            self.about.dim,
            snapshot.version,
            snapshot.base.version,
            len(snapshot.arrivals.numbers),
            snapshot.deleted,
            self.about.k1,
            self.about.b,
            {lang: f"{name} ({version})" for lang, (name, version) in analyzers_of(list(snapshot.languages)).items()},
        )

    @property
    def encoder(self) -> TextEncoder:
        """The encoder of the questions, loaded by the name in index.json when none was given."""
        with self._loading:
            if self._encoder is None:
                self._encoder = load_encoder(self.about.model, self.about.fingerprint, self.about.similarity, self.path)
            return self._encoder

    def refresh(self) -> Snapshot:
        """Go to the newest version, whoever wrote it; searches do it by themselves."""
        return self._newest().snapshot

    def _newest(self) -> View:
        with self._reader:
            if signature(self.path) != self._signature:  # somebody built the index anew
                self._load(self._encoder)
            else:
                self._take(self._snapshot)
            return self._view

    @property
    def _snapshot(self) -> Snapshot:
        return self._view.snapshot

    def _load(self, encoder: TextEncoder | None = None) -> None:
        found, about = signature(self.path), read_about(self.path)
        if encoder is not None:
            check_encoder(encoder, about.fingerprint, about.similarity, self.path)
        self.about, self._store = about, whole_store(self.path)
        self._take(None)
        self._signature = found  # last, so that the next search finds what is wrong here again

    def _take(self, before: Snapshot | None) -> None:
        while True:
            try:
                taken = Snapshot.take(self._store, self.path, before)
                near = None if taken is before else near_of(self._store, taken)
                break
            except Stale:
                self._store = PassageStore.open(self.path)
        if near is not None:
            self._view = View(taken, Lexical(taken, self.about.k1, self.about.b), near)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Writes within the block are each done or not, as ever; on the disk they are together, when the block ends. Of
        use where several are acknowledged at once: the disk is waited for once."""
        with self._writing():
            yield

    @contextmanager
    def _writing(self) -> Iterator[PassageStore]:
        """The store, for the one who may write; what was written is on the disk when the outermost block ends."""
        with self._writer:
            if self._held is not None:
                self.refresh()
                yield self._held
                return
            with lock(self.path):
                self.refresh()
                self._held = PassageStore.open(self.path)
                try:
                    yield self._held
                    if self.durability == "full":
                        self._held.sync()
                finally:
                    self._held = None

    def _write(self, passages: Iterable[Passage], verb: str, names: SourceNames | None) -> int:
        encoder = self.encoder
        with self._writing() as store:
            if names is not None:
                names.learn(read_sources(self.path))
            first, snapshot, arriving = store.next_number(), self._snapshot, Arriving(self.path, verb)

            def batches() -> Iterator[Any]:
                count = 0
                for chunk in chunks(passages):
                    chosen = [
                        passage
                        for passage, place in arriving.match(chunk, snapshot.find, snapshot.source)
                        if place is None or snapshot.passage(place) != passage
                    ]
                    if chosen:
                        yield store.batch(first + count, *encoded(encoder, chosen))
                        count += len(chosen)

            with spooled(batches(), store.schema, self.path) as (count, reader):
                if names is not None:
                    write_sources(self.path, names)  # first: a name without a passage does no harm
                if count:
                    getattr(store, verb)(reader)
            if count:
                self._written(store)
        return count

    def _written(self, store: PassageStore) -> None:
        """After a write, which is there for good: see it, and make the cache again where much has changed."""
        snapshot = self.refresh()
        changed = len(snapshot.arrivals.numbers) + snapshot.deleted
        if changed > max(FEW, STALE * len(snapshot.base)):
            try:
                self._cache(store)
            except (OSError, Damaged) as error:
                logger.warning(
                    f"{self.path}: the passages are written, but not the new cache ({error}). Searches go on without."
                )

    def _cache(self, store: PassageStore) -> None:
        store.refresh()
        write_cache(store, self.path)
        remove_other_caches(self.path, store.version)
        self.refresh()


def open_index(path_or_uri: str | Path, encoder: TextEncoder | None = None, *, durability: str = "full") -> Any:
    """The index at a place: `Index.open` for a folder, `MilvusIndex.open` for `milvus://…`."""
    kind, options = _kind(path_or_uri, durability)
    return kind.open(path_or_uri, encoder, **options)


def build_index(
    encoder: TextEncoder,
    passages: Iterable[Passage],
    path_or_uri: str | Path,
    *,
    durability: str = "full",
    **options: Any,
) -> Any:
    """A new index at a place: `Index.build` for a folder, `MilvusIndex.build` for `milvus://…`, with its options."""
    kind, own = _kind(path_or_uri, durability)
    return kind.build(encoder, passages, path_or_uri, **own, **options)


def _kind(path_or_uri: str | Path, durability: str) -> tuple[Any, dict[str, str]]:
    if is_address(path_or_uri):
        from interlingua.index.milvus.index import MilvusIndex

        if durability_of(durability) != "full":
            raise BadInput(
                f"{path_or_uri}: a Milvus server decides by itself when a write is on its disk. "
                "Durability is an option of an index in a folder: leave it out."
            )
        return MilvusIndex, {}
    return Index, {"durability": durability}
