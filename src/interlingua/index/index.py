"""The life of an index: build, open, search, write, compact and close. One class for every store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Collection as Names
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from interlingua.data.files.unchanged import FileMemory
from interlingua.data.records import Passage
from interlingua.errors import BadInput, Damaged, Stale
from interlingua.index.documents import Document, document_of, versions
from interlingua.index.filters import Filter, Where, check_field, check_filter, most_frequent, parsed
from interlingua.index.metadata import (
    Budget,
    IndexInfo,
    IndexMetadata,
    Question,
    analyzers_of,
    check_encoder,
    check_limits,
    check_options,
    codes_in,
    load_encoder,
    question_vectors,
    questions,
)
from interlingua.index.ranking import Arriving, named, only
from interlingua.index.search import GROUPS, Hit, Search
from interlingua.index.store import BuildSettings, Finding, Store, View, store_class
from interlingua.index.sync import Changes, Syncing, changed
from interlingua.lazy import Once
from interlingua.models.protocols import AnyEncoder, Encoder, has_token_states
from interlingua.retrieval.bm25.bm25 import K1, B, check_parameters
from interlingua.retrieval.late_interaction.states import StateMaxSim, TokenStates
from interlingua.retrieval.late_interaction.static import StaticMaxSim
from interlingua.retrieval.retriever import Vectors

if TYPE_CHECKING:
    from interlingua.data.files.walk import Scope, SourceNames

Answer = TypeVar("Answer")
TRIES = 3  # searches of one call, where a writer removes each time the version that is searched


class Index:
    """Passages searchable by one encoder and by BM25. Make one with `build`, reopen it with `open`.

    Source (the metadata "source", "" without it) and id identify a passage. Two sources may share an id, as the
    versions of a page in two languages do.

    The passages are in a `Store`: a folder (`LocalStore`), Milvus (`MilvusStore`), or one of your own, as in
    `Index(store, encoder)`. The store says how durable writes are and who may write. Searches see the newest version,
    whoever wrote it. Safe to use from several threads.
    """

    def __init__(self, store: Store[Any], encoder: Encoder | None = None) -> None:
        """An index over an open store. Raises BadInput for an encoder that gives other vectors than those there."""
        self.store, self._words, self._writer = store, StaticMaxSim.of(encoder), RLock()
        self._states: TokenStates | None = None
        self._encoder = Once(lambda: load_encoder(self.metadata, self.path), encoder)
        self._checked: IndexMetadata | None = None
        self._check(store.view)

    @classmethod
    def build(
        cls,
        encoder: Encoder,
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
        """Encode `passages` (any iterable, read once) into a new index, whole or not at all. `path` is a folder, or an
        address such as `milvus://localhost:19530/docs` or `milvus:folder/file.db/docs`.

        A stopped build resumes: passages that it encoded are not encoded again. `model_path` is the name or folder from
        which `open` may load the encoder; `k1` and `b` are BM25's; `names` are those that the reader of the passages
        gave their sources, to be kept; `durability` is that of later writes. Raises BadInput when there is an index and
        `overwrite` is not set, two passages with one source and id, one that the store has no room for, and none.
        """
        from interlingua.models.folder import canonical_model_name

        check_parameters(k1, b)
        check_options(encode_options, encoder.similarity)
        model = canonical_model_name(model_path)
        settings = BuildSettings(model, float(k1), float(b), names, overwrite, durability, encode_options)
        index = cls(store_class(path).build(str(path), encoder, passages, settings))
        index._encoder.value = encoder  # which has just made the vectors: there is nothing to check
        return index

    @classmethod
    def open(cls, path: str | Path, encoder: Encoder | None = None, *, durability: str = "full") -> Index:
        """Open the index in a folder, or at the address of another store. Without `encoder`, the model it was built
        with is loaded when it is first needed.

        `durability` "full": a write is on the disk when its call returns; "process": it survives the end of the
        process, not a power cut. Raises NotFound where there is no index, Damaged for one that cannot be read,
        BadInput for an encoder that gives other vectors than the one it was built with, and for a `durability` that is
        unknown or not for this store to promise.
        """
        store = store_class(path).open(str(path), durability)
        try:
            return cls(store, encoder)
        except BaseException:
            store.close()
            raise

    @property
    def path(self) -> object:
        """The address of the index: a folder's path, or that of another store."""
        return self.store.address

    @property
    def metadata(self) -> IndexMetadata:
        """The model and the settings that the index was made with."""
        return self.store.view.metadata

    @property
    def languages(self) -> dict[str, int]:
        """Passages of each language."""
        return dict(self.store.view.languages)

    def __len__(self) -> int:
        return len(self.store.view)

    def __repr__(self) -> str:
        return f"<Index {self.path}: {len(self)} passages by {self.metadata.model or 'a model without a name'}>"

    def passage(self, id: str) -> Passage:
        """The passage with an id, or the one called `source:id`. Raises NotFound where there is none, and
        BadInput for an id of several."""
        return self._answered(lambda v: v.passages([only(id, v.find, v.source, self.path)])[0], self.refresh())

    def versions(self, id: str) -> list[Passage]:
        """All passages with an id, or the one called `source:id`, in the order of their sources; perhaps none."""
        return self.found([id]).get(id, [])

    def found(self, ids: Iterable[str]) -> dict[str, list[Passage]]:
        """`versions` of those of `ids` that there are, looked up at once."""
        names = [ids] if isinstance(ids, str) else list(ids)
        return self._answered(lambda view: versions(names, view), self.refresh())

    def document(self, id: str, *, around: int | None = None) -> Document:
        """The document of the passage with an id, or of the one called `source:id`: all passages that were cut from it,
        in their order; with `around` only as many before and after. Raises what `passage` does."""

        def ask(view: View[Any]) -> Document:
            return document_of(view, only(id, view.find, view.source, self.path), around)

        return self._answered(ask, self.refresh())

    @property
    def fields(self) -> list[str]:
        """The keys of metadata that passages have."""
        return sorted(self.store.view.fields)

    def facets(
        self, keys: Iterable[str], langs: Names[str] | None = None, *, where: Where | None = None, most: int = 50
    ) -> dict[str, dict[str, int]]:
        """For each of `keys` of metadata its values with the number of their passages, most frequent first, `most` of
        them: of the passages in `langs` that fit the filter `where`. Raises BadInput for a key that no passage has."""
        keys, filters = [keys] if isinstance(keys, str) else list(dict.fromkeys(keys)), parsed(where)

        def ask(view: View[Any]) -> dict[str, dict[str, int]]:
            if not len(view):
                return {key: {} for key in keys}
            self._check_filter(view, filters)
            for key in keys:
                check_field(key, view.fields, self.path)
            narrowed = view.narrowed(codes_in(view.languages, langs), filters, "lexical")
            return {key: most_frequent(narrowed.counts(key), most) for key in keys}

        return self._answered(ask, self.refresh())

    def search(
        self,
        text: str | Question,
        k: int = 10,
        langs: Names[str] | None = None,
        *,
        mode: str = "hybrid",
        where: Where | None = None,
        lang: str | None = None,
        reranker: AnyEncoder | None = None,
        min_score: float | None = None,
        group_by: str | None = None,
        distinct: bool = False,
    ) -> list[Hit]:
        """The `k` best passages for a question in any language, best first.

        Only those in `langs`, and only those whose metadata fit the filter `where` (see `interlingua.index.filters`),
        if given. `mode` is "dense", "lexical" (BM25) or "hybrid". `lang` is the question's language, detected if not
        given. `reranker`, an encoder from `interlingua.models.late_interaction.load_any`, brings the first 100 into
        its own order (see `keep_tokens`). Hits with a lower score than `min_score` are left out; scores of another
        mode or reranker are other numbers, and hybrid ones depend on the other candidates too. With `group_by`, a key
        of metadata, only the best hit of each value is given: "document" means each document or row, "source" each
        file. With `distinct` passages of one text are one hit. Raises BadInput for a key that no passage has.
        """
        return self.search_many(
            [text],
            k,
            langs,
            mode=mode,
            where=where,
            lang=lang,
            reranker=reranker,
            min_score=min_score,
            group_by=group_by,
            distinct=distinct,
        )[0]

    def search_many(
        self,
        texts: Iterable[str | Question],
        k: int = 10,
        langs: Names[str] | None = None,
        *,
        mode: str = "hybrid",
        where: Where | None = None,
        lang: str | Sequence[str | None] | None = None,
        reranker: AnyEncoder | None = None,
        min_score: float | None = None,
        group_by: str | None = None,
        distinct: bool = False,
        budget: Budget | None = None,
    ) -> list[list[Hit]]:
        """`search` for several questions, encoded together; `lang` may be a list with one for each, and of a `Question`
        its own language counts. Raises OutOfTime where one takes more than the `budget`."""
        check_limits(k, min_score)
        k = int(k)  # of NumPy, which a store's client may refuse
        filters, first, timer = parsed(where), self.refresh(), budget or Budget()
        langs = codes_in(first.languages, langs)
        batch = questions(texts, lang, mode, langs, first.languages, self.path)
        if not batch.queries or (langs is not None and not langs):
            return [[] for _ in batch.queries]
        vectors: Vectors | None = None
        if mode != "lexical":
            encoder = self.encoder  # loaded before anything is measured
            with timer.stage("encoding", *batch.asked):
                vectors = question_vectors(encoder, batch)
        static = StaticMaxSim.of(self._encoder.value, self._words)
        self._words = static or self._words
        self._states = TokenStates.of(self._encoder.value, self._states)
        words = static or StateMaxSim[Any].of(self._states if mode == "hybrid" else None, self.store.has_tokens)

        def ask(view: View[Any]) -> list[list[Hit]]:
            self._check_filter(view, filters)
            if group_by is not None and group_by not in GROUPS and len(view):
                check_field(group_by, view.fields, self.path)
            current = batch if view is first else questions(batch.asked, None, mode, langs, view.languages, self.path)
            narrowed, states = view.narrowed(langs, filters, mode), has_token_states(self._encoder.value)
            search = Search(narrowed, mode, k, current.searched, words, timer, states, min_score)
            if group_by is not None or distinct:
                return search.gathered(current, vectors, reranker, group_by, distinct)
            return search.hits(current, vectors, reranker)

        return self._answered(ask, first)

    def _answered(self, ask: Callable[[View[Any]], Answer], view: View[Any]) -> Answer:
        """Call `ask` with a view, or with a newer one where a writer has removed that view meanwhile."""
        for _ in range(TRIES - 1):
            with suppress(Stale):
                return ask(view)
            view = self.refresh()
        return ask(view)

    def add(self, passages: Passage | Iterable[Passage], names: SourceNames | None = None) -> int:
        """Add a passage, or several; return their number. A folder adds all or none; other stores say what is left.

        `names`, with which the reader of `passages` names their sources, learns those that the index knows, and the
        index keeps the new ones. Raises BadInput for a passage that is there already or comes twice, as its
        source and id tell (without a source: its id), and Busy where another writer is at work.
        """
        return self._write(passages, "add", names)

    def replace(self, passages: Passage | Iterable[Passage], names: SourceNames | None = None) -> int:
        """Replace a passage, or several, by source and id, and add new ones; return the number of new and changed ones.
        A passage that is there unchanged is not encoded again.

        A passage without a source takes the place of the only one with its id, and keeps its source. Raises
        BadInput where several have the id, and as `add` does.
        """
        return self._write(passages, "replace", names)

    def sync(
        self,
        passages: Iterable[Passage],
        scope: Scope,
        names: SourceNames | None = None,
        *,
        allow_empty: bool = False,
        dry_run: bool = False,
        read_all: bool = False,
    ) -> Changes:
        """Bring the sources in `scope` to what `passages` hold: add what is new, replace what changed, then delete what
        is gone. Other sources stay as they are, and what is there unchanged is not encoded again.

        `scope` and `names` are filled by the reader of `passages`, and are looked at when all passages have been read.
        Passages of a source that could not be read as a whole (`scope.unread`) are not deleted. With `dry_run` nothing
        is encoded or written. The deletion is a step of its own: where it does not come to that, the same call goes on.
        The reader leaves out files that have not changed since they were synced (`FileMemory`), unless `read_all`.

        Raises BadInput before anything is deleted, in a folder before anything is written: for a folder whose passages
        are all gone, unless `allow_empty`; for a source of which there is nothing, neither now nor in the index; and
        as `replace` does.
        """
        encoder = None if dry_run else self.encoder
        with nullcontext() if dry_run else self.together():
            view = self.refresh()
            syncing = Syncing(view, scope, self.store.sources(), self.path, allow_empty)
            if names is not None:
                names.learn(self.store.sources())
            if not read_all and (seals := self.store.seals()):
                scope.memory = FileMemory(seals, view.held())
            if encoder is None:
                for _ in syncing.changes(passages):
                    pass
                return syncing.done
            self.store.write(syncing.changes(passages), encoder, "replace", names)
            view = self.refresh()
            if rows := syncing.gone(view):
                self.store.delete(view, rows)
                view = self.refresh()
            self.store.keep_seals(scope.memory.sealed(view.held(), scope.__contains__))
        return syncing.done

    def delete(
        self, ids: Iterable[str] = (), *, sources: Iterable[str] = (), where: Where | None = None, dry_run: bool = False
    ) -> int:
        """Delete passages; return their number. With `dry_run` they stay.

        Either those with `ids`: an id names all passages that have it, `source:id` one of them; unknown ids are
        ignored. Or those of one of `sources` ("handbook/": of all whose names begin so) whose metadata fit the filter
        `where`; either may be left out. Raises BadInput for both ways at once, and for a filter by a key that no
        passage has.
        """
        from interlingua.data.files.walk import Scope

        ids = [ids] if isinstance(ids, str) else list(dict.fromkeys(ids))
        sources = [sources] if isinstance(sources, str) else list(sources)
        filters = parsed(where)
        if ids and (sources or filters):
            raise BadInput("give ids, or sources and metadata: not both at once.")
        with nullcontext() if dry_run else self.together():
            view = self.refresh()
            rows: set[Any] = set()
            if ids:
                rows.update(row for rows in named(ids, view.find, view.source).values() for row in rows)
            elif sources or filters:
                scope = Scope(sources) if sources else None
                self._check_filter(view, filters)
                for chunk in view.rows(filters):
                    rows.update(row for row in chunk if scope is None or view.source(row) in scope)
            if rows and not dry_run:
                self.store.delete(view, rows)
                self.refresh()
        return len(rows)

    def compact(self, approximate: bool | None = None) -> None:
        """Compact the store after many changes, while searches go on: it merges files and rebuilds caches and weights
        of terms.

        `approximate` is for an index in a folder. With True dense search among all passages goes by an index of the
        vectors, which misses some of the best and is quicker where there are millions; with False it is exact again;
        None leaves that as it is, but from some millions on makes the index of vectors.
        """
        with self.together():
            self.refresh()
            self.store.compact(approximate)
            self.refresh()

    def repair(self) -> None:
        """Make again, from the passages, the cache of an index in a folder, and search that one."""
        with self.together():
            self.store.repair()
            self.refresh()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Sync several writes at once, when the block ends. Each write within it is atomic, as always."""
        with self._writer, self.store.writing():
            yield

    def keep_tokens(self, reranker: AnyEncoder | None = None) -> int:
        """Keep token vectors (int8) of all passages by `reranker`, a model of late interaction, so that searches need
        not encode what they rerank; without one, token states of the index's own transformer, which hybrid search then
        compares. Return the number of passages that had none. A stopped call keeps what it has done. Raises BadInput
        for another kind of model, and for a store that keeps none."""
        if reranker is None and (reranker := TokenStates.of(self.encoder)) is None:
            raise BadInput(f"{self.path}: its model has no token states to keep. Give a model of late interaction.")
        return self.store.keep_tokens(reranker)

    def vectors(self) -> Iterator[tuple[list[Passage], Vectors]]:
        """All passages with their vectors [passages, dim], some at a time."""
        return self.store.vectors()

    def info(self) -> IndexInfo:
        """The contents of the index and how it was made."""
        metadata, languages = (view := self.refresh()).metadata, dict(view.languages)
        return IndexInfo(
            len(view),
            languages,
            metadata.model,
            metadata.similarity,
            metadata.dim,
            view.version,
            view.cache,
            view.newer,
            view.deleted,
            metadata.k1,
            metadata.b,
            {lang: f"{name} ({version})" for lang, (name, version) in analyzers_of(list(languages)).items()},
        )

    @property
    def encoder(self) -> Encoder:
        """The encoder of the questions, loaded by the name that the index remembers when none was given."""
        return self._encoder()

    @property
    def token_states(self) -> TokenStates | None:
        """The token states of its encoder, where those of passages are kept; else None."""
        states = TokenStates.of(self.encoder, self._states)
        return states if states is not None and self.store.has_tokens(states) else None

    def refresh(self) -> View[Any]:
        """Go to the newest version, whoever wrote it; searches do it by themselves. Raises NotFound where the index is
        gone, and Stale where somebody built it anew with another model: it is to be opened again."""
        view = self.store.refresh()
        try:
            self._check(view)
        except BadInput as error:
            raise Stale(str(error)) from error
        return view

    def close(self) -> None:
        """Close the store: in Milvus the connection. When the last one to a file of Milvus Lite is closed, another
        process may open the file."""
        self.store.close()

    def _check(self, view: View[Any]) -> None:
        if (metadata := view.metadata) is not self._checked and metadata != self._checked:
            if self._encoder.value is not None:
                check_encoder(self._encoder.value, metadata, self.path)
            self._checked = metadata

    def _check_filter(self, view: View[Any], where: Filter | None) -> None:
        if where is not None and len(view):
            check_filter(where, view.fields, view.values, self.path)

    def _write(self, passages: Passage | Iterable[Passage], verb: str, names: SourceNames | None) -> int:
        encoder, passages = self.encoder, [passages] if isinstance(passages, Passage) else passages
        with self.together():
            view = self.refresh()
            if names is not None:
                names.learn(self.store.sources())
            changes = changed(passages, view, Arriving(self.path, verb), Changes())
            count = self.store.write(changes, encoder, verb, names)
            self.refresh()
        return count


def open_index(path_or_uri: str | Path, encoder: Encoder | None = None, *, durability: str = "full") -> Index:
    """`Index.open`: the index in a folder, or at an address such as `milvus://…`."""
    return Index.open(path_or_uri, encoder, durability=durability)


def build_index(encoder: Encoder, passages: Iterable[Passage], path_or_uri: str | Path, **options: Any) -> Index:
    """`Index.build`: a new index in a folder, or at an address such as `milvus://…`, with its options."""
    return Index.build(encoder, passages, path_or_uri, **options)


def check_index(path_or_uri: str | Path, *, repair: bool = False, pace: float | None = None) -> list[Finding]:
    """Check an index in a folder: all files against their checksums, the passages of the table with themselves, the
    cache with the table. One finding for each part and each thing that is wrong; that one has `advice`.

    With `repair` a cache that is missing or damaged is made again from the passages where these are whole, and all is
    checked again. `pace`: the bytes read a second, by default as many as the disk gives. Raises BadInput for an index
    elsewhere, NotFound where there is nothing.
    """
    kind, place = store_class(path_or_uri), str(path_or_uri)
    findings = list(kind.check(place, pace))
    if repair and any(finding.derived for finding in findings):
        with suppress(Damaged):  # of the table, as the findings say
            kind.open(place).repair()
        findings = list(kind.check(place, pace))
    return findings
