"""Retriever: the seam of first stages and scorers; texts to vectors that are safe to search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np

from interlingua.data.records import Passage, Query
from interlingua.errors import BadInput
from interlingua.models.protocols import Encoder
from interlingua.models.protocols import Vectors as Vectors
from interlingua.retrieval.run import Run

Place = TypeVar("Place")


@runtime_checkable
class PassageVectors(Protocol):
    """An encoder that has the vectors of passages already (`interlingua.index.export`)."""

    def passage_vectors(self, passages: Sequence[Passage]) -> Vectors:
        """Vectors `[passages, dim]` as `embed_passages` gave them."""


def embed_queries(encoder: Encoder, queries: Sequence[Query], **options: Any) -> Vectors:
    """Vectors `[queries, dim]`, float32, checked and ready for a dot product. `options` go to `encode_query`, with
    the queries' languages as `lang` unless they name it."""
    langs = [query.lang or None for query in queries]
    vectors = encoder.encode_query([query.text for query in queries], **{"lang": langs, **options})
    return searchable(vectors, encoder.similarity, [query.id for query in queries], "query")


def embed_passages(encoder: Encoder, passages: Sequence[Passage], **options: Any) -> Vectors:
    """Vectors `[passages, dim]`, float32, checked and ready for a dot product. `options` go to `encode_document`,
    with the passages' languages as `lang` unless they name it."""
    if isinstance(encoder, PassageVectors):
        return encoder.passage_vectors(passages)
    texts = passage_texts(passages)
    langs = [passage.lang or None for passage in passages]
    vectors = encoder.encode_document(texts, **{"lang": langs, **options})
    return searchable(vectors, encoder.similarity, [passage.id for passage in passages], "passage")


def passage_texts(passages: Sequence[Passage]) -> list[str | tuple[str, str]]:
    """Passages as encoders take them: (title, text), or the text alone where there is no title."""
    return [(passage.title, passage.text) if passage.title else passage.text for passage in passages]


def passages_digest(passages: Iterable[Passage]) -> str:
    """Equal for equal passages (ids, titles, texts, languages) in one order."""
    state = blake2b(digest_size=16)
    for passage in passages:
        for part in (passage.id, passage.title, passage.text, passage.lang):
            encoded = part.encode("utf-8", "surrogatepass")
            state.update(len(encoded).to_bytes(8, "little") + encoded)
    return state.hexdigest()


def searchable(vectors: Any, similarity: str, ids: Sequence[str], what: str) -> Vectors:
    """`vectors` `[texts, dim]` as float32, divided by their lengths where `similarity` is "cosine".

    Raises BadInput naming the first text whose vector is not finite, or is zero under cosine.
    """
    if similarity not in ("cosine", "dot"):
        raise BadInput(f"similarity '{similarity}': must be 'cosine' or 'dot'.")
    array: Vectors = np.asarray(vectors, dtype=np.float32)
    if array.ndim != 2 or len(array) != len(ids):
        raise BadInput(
            f"the encoder gave vectors of shape {array.shape} for {len(ids)} texts ({what}); "
            f"[{len(ids)}, dim] was expected."
        )
    bad = ~np.isfinite(array).all(axis=1)
    if bad.any():
        raise BadInput(
            f"{what} '{ids[int(bad.argmax())]}': its vector holds NaN or infinity ({int(bad.sum())} "
            f"of {len(ids)} do). The model or its number format is at fault: try float32."
        )
    if similarity == "dot":
        return array
    # in float64, since the square of a component under 1e-23 is zero in float32
    lengths = np.sqrt(np.einsum("nd,nd->n", array, array, dtype=np.float64))
    zero = lengths == 0
    if zero.any():
        raise BadInput(
            f"{what} '{ids[int(zero.argmax())]}': its vector is zero ({int(zero.sum())} of"
            f" {len(ids)} are), so it has no cosine. Is its text empty?"
        )
    normalised: Vectors = array / lengths.astype(np.float32)[:, None]
    return normalised


Candidates = Mapping[str, Sequence[str]]
"""query id → the ids of the passages to be scored for it"""


class Scorer(Protocol):
    """Scores candidates, to order them anew."""

    def score(self, queries: Sequence[Query], candidates: Candidates) -> Run:
        """For each query of `candidates`, in their order, exactly its candidates, scored. Raises BadInput for a
        candidate that is no passage here, and for a query that is not among `queries`."""


class Retriever(Scorer, Protocol):
    """Searches its passages, and scores some of them: `BM25`, `DenseRetriever`, `LateInteractionRetriever`,
    `MaxP`, `OnDemand`, or one of your own (`examples/own_retriever.py`).

    A passage has one score for a query, whether it is searched for or a candidate, but for the last bit of float32: how
    a matrix product is rounded depends on what else is in it. Passages are encoded or read when they are first needed.
    `RetrieverPool.retriever` gives that of a stage of a pipeline. Pipelines that fuse or rerank, run files and an
    `Index` keep the promise of `search` alone: their scores belong to one list.
    """

    def search(self, queries: Sequence[Query], depth: int) -> Run:
        """The `depth` best passages for each query, also for one that finds none. They are the first of any deeper
        search: equal scores are ordered by id descending before the list is cut."""


def passages_by_id(passages: Sequence[Passage], ids: Iterable[str]) -> list[Passage]:
    """The passages with these ids, in the order of `ids`. Those of a collection that stays on disk
    (`interlingua.data.layouts`) are read one by one.

    Raises BadInput for ids that no passage has, saying how many.
    """
    names = list(ids)
    lookup = getattr(passages, "by_id", None)
    if lookup is not None:
        by_id = lookup(names)
    else:
        distinct = set(names)
        by_id = {passage.id: passage for passage in passages if passage.id in distinct}
    unknown = [name for name in names if name not in by_id]
    if unknown:
        raise BadInput(
            f"{len(unknown):,} of {len(names):,} candidates are no passages of the collection, the "
            f"first is '{unknown[0]}'. The first stage must be of the same collection."
        )
    return [by_id[name] for name in names]


def chosen_queries(queries: Sequence[Query], candidates: Candidates) -> list[Query]:
    """The queries of `candidates`, in its order. Raises BadInput for candidates of a query without text."""
    by_id = {query.id: query for query in queries}
    unknown = [name for name in candidates if name not in by_id]
    if unknown:
        raise BadInput(
            f"{len(unknown):,} queries of the first stage have no text, the first is "
            f"'{unknown[0]}'. The run and the queries must be of one test set."
        )
    return [by_id[name] for name in candidates]


class LazyPassages(ABC, Generic[Place]):
    """`passages`, each of which is encoded when it is first needed, and once: a search needs all of them, scores only
    the candidates. So a reranker encodes (and holds) what some first stage found, whatever the size of the collection.

    `places` says of each passage that was encoded where its vectors are.
    """

    def __init__(self, passages: Sequence[Passage]) -> None:
        self.passages = passages
        self.places: dict[str, Place] = {}

    @abstractmethod
    def encode(self, passages: list[Passage]) -> Mapping[str, Place]:
        """Encode some passages together, since batches of near-equal lengths make that fast; the place of each."""

    def need_all(self) -> None:
        """Encode the passages that were not."""
        if new := [passage for passage in self.passages if passage.id not in self.places]:
            self.places |= self.encode(new)

    def need(self, candidates: Candidates) -> None:
        """Encode the candidates that were not. Raises BadInput for one that is no passage here."""
        if new := dict.fromkeys(name for ids in candidates.values() for name in ids if name not in self.places):
            self.places |= self.encode(passages_by_id(self.passages, new))


class OnDemand(LazyPassages[int]):
    """Retrievers made by `build` for parts of `passages`, together one retriever over all of them.

    `score` builds one for the candidates that no part holds yet, `search` one for all passages that are left. For
    retrievers whose scores do not depend on the other passages.
    """

    def __init__(self, build: Callable[[list[Passage]], Retriever], passages: Sequence[Passage]) -> None:
        super().__init__(passages)
        self.build = build
        self._parts: list[Retriever] = []

    def search(self, queries: Sequence[Query], depth: int) -> Run:
        """The `depth` best passages of all parts for each query."""
        self.need_all()
        runs = (part.search(queries, depth) for part in self._parts)
        return Run.joined(runs, [query.id for query in queries], depth)

    def score(self, queries: Sequence[Query], candidates: Candidates) -> Run:
        """Each query's candidates, each scored by the part that holds it."""
        self.need(candidates)
        candidate_queries = chosen_queries(queries, candidates)
        shares: list[dict[str, list[str]]] = [{} for _ in self._parts]
        for query_id, ids in candidates.items():
            for name in ids:
                shares[self.places[name]].setdefault(query_id, []).append(name)
        runs = (
            part.score([query for query in candidate_queries if query.id in share], share)
            for part, share in zip(self._parts, shares, strict=True)
            if share
        )
        return Run.joined(runs, candidates)

    def encode(self, passages: list[Passage]) -> dict[str, int]:
        """One more part; its number for each of the passages."""
        self._parts.append(self.build(passages))
        return {passage.id: len(self._parts) - 1 for passage in passages}
