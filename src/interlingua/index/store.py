"""Store: the seam between an index and the place that keeps its passages, and the choice of one by an address.

`Index` does what is the same everywhere: it checks questions, encodes, fuses dense and lexical scores, reranks, and
matches the passages that are written with those that are there. A `Store` keeps passages and their vectors and finds
candidates. What it shows is a `View`: its passages at one version.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from interlingua.data.records import Passage, batched
from interlingua.errors import BadInput
from interlingua.index.filters import Filter, Values
from interlingua.index.metadata import MARKER, IndexMetadata
from interlingua.index.ranking import ranking_names
from interlingua.models.protocols import AnyEncoder, Encoder
from interlingua.retrieval.late_interaction.static import StaticMaxSim, StoredIds
from interlingua.retrieval.retriever import PassageVectors, Vectors, embed_passages
from interlingua.retrieval.run import docid_order

if TYPE_CHECKING:
    from interlingua.data.files.unchanged import Held
    from interlingua.data.files.walk import SourceNames
    from interlingua.retrieval.late_interaction.token_store import TokenStore

Row = TypeVar("Row")
"""A store's own name for one passage of a view: a place, a number, a row. It is hashable, and means nothing else
within one view."""
Scores = dict[Row, float]
Floats = NDArray[np.float32]
CHUNK = 4096
"""Passages that are encoded and written at a time."""


@dataclass(frozen=True)
class LexicalMatches(Generic[Row]):
    """The passages with terms of one question.

    `best` has the BM25 scores of the `depth` best passages, those above 0 only. `weights` has the inverse document
    frequency of each term, also of one that no passage has: the most that one occurrence of the term in the question
    adds to a score. `scores` gives the scores of any rows of the view, 0 for one without a term.
    """

    best: Scores[Row]
    weights: Mapping[str, float]
    scores: Callable[[Sequence[Row]], Scores[Row]]


class Finding(NamedTuple):
    """The result of checking one part of an index: `said` tells its state, and `advice` what to do where something is
    wrong. `derived` is true where `repair` mends it."""

    part: str
    said: str
    advice: str = ""
    derived: bool = False


class View(ABC, Generic[Row]):
    """The passages of a store at one version. It never changes, and several threads may read it at once.

    `metadata` says what the passages were encoded with. `version` grows with each write. Calls raise `Stale` where a
    writer has removed the version meanwhile (the index then refreshes and asks again), `Damaged` where the passages
    cannot be read.
    """

    metadata: IndexMetadata
    version: int
    together: int | None = None
    """Questions that one call of a search takes at most; None for any number."""
    deepest: int | None = None
    """Passages that a search for one question gives at most; None for any number."""
    newer: int = 0
    """Rows that the store's cache does not know yet."""
    deleted: int = 0
    """Rows of the cache that are deleted."""

    @property
    def cache(self) -> int:
        """The version that the store's cache was made from."""
        return self.version

    @property
    @abstractmethod
    def languages(self) -> Mapping[str, int]:
        """Passages of each language, "" where that is unknown."""

    def __len__(self) -> int:
        return sum(self.languages.values())

    @abstractmethod
    def find(self, ids: Sequence[str]) -> Mapping[str, list[Row]]:
        """The rows of the passages with these ids, by id. An id that no passage has is left out."""

    @property
    @abstractmethod
    def fields(self) -> Collection[str]:
        """The keys of metadata that passages have."""

    @abstractmethod
    def counts(self, key: str) -> Counter[str]:
        """The values of a key of metadata, each with the number of its passages; in a view that was `narrowed`, of
        those passages that it finds."""

    def values(self, key: str) -> Iterable[Values]:
        """The values of a key of metadata, in one or more parts."""
        return [Values(list(self.counts(key)))]

    @abstractmethod
    def rows(self, where: Filter | None) -> Iterator[list[Row]]:
        """The rows of all passages that fit `where` (None: all), some thousand at a time."""

    @abstractmethod
    def passages(self, rows: Sequence[Row]) -> list[Passage]:
        """The passages of rows."""

    def ids(self, rows: Sequence[Row]) -> list[str]:
        """The ids of rows."""
        return [passage.id for passage in self.passages(rows)]

    def source(self, row: Row) -> str:
        """The source of the passage of a row."""
        return self.passages([row])[0].source

    def docid_order(self, rows: Sequence[Row]) -> NDArray[np.int64]:
        """The positions of `rows` in the order of equal scores: by id descending, equal ids by source descending."""
        return docid_order(ranking_names(self.ids(rows), lambda: [self.source(row) for row in rows]))

    def sourced(self, wanted: Callable[[str], bool]) -> Iterator[tuple[list[Row], list[str]]]:
        """The rows of all sources that are `wanted`, and the source of each, some thousand at a time."""
        for rows in self.rows(None):
            pairs = [(row, source) for row in rows if wanted(source := self.source(row))]
            yield [row for row, _ in pairs], [source for _, source in pairs]

    def held(self) -> Mapping[str, Held]:
        """The rows of each source. Nothing from a store that cannot tell by rows whether a passage is still the same:
        each file is then read at each sync."""
        return {}

    def langs(self, rows: Sequence[Row]) -> list[str]:
        """The languages of rows."""
        return [passage.lang for passage in self.passages(rows)]

    @abstractmethod
    def subwords(self, rows: Sequence[Row]) -> Sequence[StoredIds]:
        """The subwords of rows as they were written, for `StaticMaxSim`; empty where there were none."""

    @abstractmethod
    def narrowed(self, langs: Collection[str] | None, where: Filter | None, mode: str) -> View[Row]:
        """This view for searches of `mode` ("dense", "lexical", "hybrid"), in which `dense`, `lexical` and `fused` find
        only passages in one of `langs` (None: any) that fit `where` (None: any)."""

    @abstractmethod
    def dense(self, vectors: Floats, depth: int) -> Sequence[Scores[Row]]:
        """For each of `vectors` [questions, dim] the dot products of the `depth` best passages, and perhaps of more."""

    @abstractmethod
    def dense_scores(self, rows: Sequence[Row], vector: Floats) -> Scores[Row]:
        """The dot product of each row with `vector` [dim], the same as `dense` gives."""

    @abstractmethod
    def lexical(self, terms: Sequence[Counter[str]], depth: int) -> Iterable[LexicalMatches[Row]]:
        """For each question, given as its terms and their counts, its matches. The matches may be computed lazily, one
        question after another."""

    def fused(
        self, vectors: Floats, terms: Sequence[Counter[str]], depth: int
    ) -> Sequence[Mapping[str, Scores[Row]]] | None:
        """The store's own hybrid ranking for each question: scores under "hybrid", and of the same rows "dense" and
        "lexical". None where the index is to fuse."""
        return None

    def tokens(self, reranker: AnyEncoder, rows: Sequence[Row]) -> dict[Row, tuple[TokenStore, int]]:
        """The token vectors by `reranker` that are kept for rows, those of some or none: of each where they are."""
        return {}


class Store(ABC, Generic[Row]):
    """A place that keeps the passages of one index.

    **Versions.** `view` is what was read last, `refresh` goes to the newest version, whoever wrote it. A reader sees
    a write when it has returned, never a part of one call of `delete`, and of `write` at least whole passages.
    **Threads.** `refresh` and all of a view may be called by several threads at once. `write`, `delete` and `compact`
    are called by one at a time, within `writing`, which the same thread may enter again within itself.
    **Durability.** What a call wrote survives the end of the process when the call returns, and a power cut when the
    outermost `writing` ends, unless the store was opened to promise less.

    A store whose address chooses it (`store_class`) is an `AddressedStore`; any other is passed to `Index`.
    """

    address: object
    """The name of the store in errors: `str(address)`."""

    @property
    @abstractmethod
    def view(self) -> View[Row]:
        """The version that was read last."""

    def refresh(self) -> View[Row]:
        """Go to the newest version; its view."""
        return self.view

    def writing(self) -> AbstractContextManager[None]:
        """Be the one writer. Raises Busy where another one is at work, if the store can tell."""
        return nullcontext()

    @abstractmethod
    def write(
        self,
        changes: Iterable[Sequence[tuple[Passage, Row | None]]],
        encoder: Encoder,
        verb: str,
        names: SourceNames | None,
    ) -> int:
        """Write passages, each in the place of a row of the newest view, None for a new one; return their number.

        `changes` is read once, some thousand at a time, and may raise: what its error leaves is for the store to say.
        `encode_passages` makes the vectors and subwords. `verb` is "add" (nothing is replaced) or "replace". `names`
        of sources are kept, once `changes` has been read, for `sources` to give back.
        """

    @abstractmethod
    def delete(self, view: View[Row], rows: Collection[Row]) -> None:
        """Remove rows of `view`, which is of the newest version."""

    def compact(self, approximate: bool | None = None) -> None:
        """Compact. Raises BadInput for a choice of dense search where there is but one kind."""
        if approximate is not None:
            raise BadInput(
                f"{self.address}: has one kind of dense search. Leave out --approximate and --exact "
                "(in Python: approximate), which go with an index in a folder."
            )

    def sources(self) -> dict[str, str]:
        """The names of the sources that were kept, and where each was."""
        return {}

    def seals(self) -> Mapping[str, str]:
        """The seals that `keep_seals` kept."""
        return {}

    def keep_seals(self, seals: Mapping[str, str]) -> None:
        """Keep what tells that files are as they were (`FileMemory`), once all that was written is there for good."""
        return None

    @abstractmethod
    def vectors(self) -> Iterator[tuple[list[Passage], Vectors]]:
        """All passages with their vectors [passages, dim], some at a time."""

    def keep_tokens(self, reranker: AnyEncoder) -> int:
        """Keep the token vectors of all passages by `reranker`; return the number that had none. Raises BadInput where
        the store keeps none."""
        raise BadInput(f"{self.address}: keeps no token vectors. Its reranker encodes what it reranks.")

    def has_tokens(self, reranker: AnyEncoder) -> bool:
        """Whether token vectors by `reranker` are kept."""
        return False

    def repair(self) -> None:
        """Make again what can be made from the passages. Raises BadInput where the store keeps nothing of that kind."""
        raise BadInput(f"{self.address}: keeps nothing that could be made again from its passages.")

    def close(self) -> None:
        """Close connections and files. No other call follows."""
        return None


@dataclass(frozen=True)
class BuildSettings:
    """`model` is the name or folder of the encoder, "" if it has none; `k1` and `b` are BM25's; `names` of sources are
    kept; `durability` is that of later writes; `encode_options` go to `encode_passages`."""

    model: str
    k1: float
    b: float
    names: SourceNames | None
    overwrite: bool
    durability: str
    encode_options: Mapping[str, Any]


class AddressedStore(Store[Row]):
    """A store that is made and opened by its address."""

    @classmethod
    @abstractmethod
    def open(cls, address: str, durability: str = "full") -> AddressedStore[Row]:
        """The index at an address. Raises NotFound where there is none, Damaged where it cannot be read, and BadInput
        for a `durability` that the store cannot promise."""

    @classmethod
    def check(cls, address: str, pace: float | None = None, *, rows: bool = True) -> Iterator[Finding]:
        """Check every part of the index at an address against what was written: files at `pace` bytes a second where
        one is given, and with `rows` the passages, too. It need not be one that can be opened, and nothing is changed.
        Raises BadInput where the store cannot tell."""
        raise BadInput(f"{address}: is looked after by its own server. Only an index in a folder can be checked.")

    @classmethod
    @abstractmethod
    def build(
        cls, address: str, encoder: Encoder, passages: Iterable[Passage], settings: BuildSettings
    ) -> AddressedStore[Row]:
        """A new index of `passages` (read once), there when it is whole, not before.

        A build that was stopped goes on: what it encoded with the same model is not encoded again. Raises BadInput when
        there is an index that is not to be overwritten, for two passages with one source and id, and when there is no
        passage.
        """


STORES = {"milvus:": "interlingua.index.milvus.store.MilvusStore"}
"""The store of each kind of address, by what the address begins with. All others are folders."""
FOLDER = "interlingua.index.local.store.LocalStore"


def store_class(place: str | Path) -> type[AddressedStore[Any]]:
    """The kind of store that is at a place: a folder, or an address such as `milvus://host/name`."""
    home = next((home for prefix, home in STORES.items() if str(place).startswith(prefix)), FOLDER)
    module, _, name = home.rpartition(".")
    kind: type[AddressedStore[Any]] = getattr(import_module(module), name)
    return kind


def is_address(place: str | Path) -> bool:
    """True for the address of a store other than a folder."""
    return str(place).startswith(tuple(STORES))


def is_index(place: str | Path) -> bool:
    """True for a folder that holds an index, and for the address of another store."""
    return is_address(place) or (Path(place) / MARKER).is_file()


def chunks(passages: Iterable[Passage], size: int | None = None) -> Iterator[list[Passage]]:
    """`passages`, `size` at a time, or `CHUNK`."""
    return batched(passages, size or CHUNK)


def already_there(place: object, what: str = "folder") -> BadInput:
    """The error for an index at `place` that is not to be replaced."""
    return BadInput(
        f"{place}: already exists. Choose another {what}, or replace it with --overwrite (in Python: overwrite=True)."
    )


def encode_passages(
    encoder: Encoder, passages: Sequence[Passage], **options: Any
) -> tuple[Vectors, list[NDArray[np.int64]] | None]:
    """The vectors [passages, dim] of `embed_passages`, and the passages' subwords for `StaticMaxSim`: None where the
    encoder has none. `options` go to `encode_document`."""
    words = StaticMaxSim.of(encoder)
    if words is None:
        return embed_passages(encoder, passages, **options), None
    home = next(kind for kind in type(encoder).__mro__ if "static_sides" in vars(kind))
    own = type(encoder).encode_document is getattr(
        home, "encode_document", None
    )  # no subclass that encodes in its own way
    if options or isinstance(encoder, PassageVectors) or not own:  # the vectors are others, or at hand
        return embed_passages(encoder, passages, **options), words.subwords(passages)
    subwords, vectors = words.encode(passages)
    return vectors, subwords
