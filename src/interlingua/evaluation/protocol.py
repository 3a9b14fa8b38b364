"""Evaluation of an encoder on test collections; every text is encoded once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from interlingua.data.collections.stored import StoredPassages
from interlingua.data.records import Collection, Passage
from interlingua.errors import InterlinguaError
from interlingua.evaluation.measures import DEFAULT_MEASURES, check_depth, evaluate
from interlingua.evaluation.results import Result, result
from interlingua.retrieval.dense import search
from interlingua.retrieval.vectors import TextEncoder, embed_passages, embed_queries


def evaluate_on(
    encoder: TextEncoder, collections: Iterable[Collection], measures: Sequence[str] = DEFAULT_MEASURES,
    depth: int = 100, **encode_options: Any,
) -> list[Result]:
    """Retrieve `depth` passages for each question of each collection, and measure.

    Collections with the same passages are searched one after another so that the passages are encoded once,
    and only one set of vectors is in memory. Results come in the order of `collections`. `encode_options`
    go to the encoder. Raises InterlinguaError for two collections with one name, a collection without
    queries, passages or qrels, or a measure that looks deeper than `depth`.
    """
    given = list(collections)
    check_collections(given, measures, depth)
    found: dict[str, Result] = {}
    for group in by_passages(given):
        passages = embed_passages(encoder, group[0].passages, **encode_options)
        passage_ids = [passage.id for passage in group[0].passages]
        for collection in group:
            queries = embed_queries(encoder, collection.queries, **encode_options)
            run = search(queries, [query.id for query in collection.queries], passages, passage_ids, depth)
            found[collection.name] = result(collection, run, evaluate(run, collection.qrels, measures))
    return [found[collection.name] for collection in given]


def check_collections(collections: Sequence[Collection], measures: Sequence[str], depth: int) -> None:
    """Raise InterlinguaError for what cannot be evaluated: two collections with one name, one without queries,
    passages or qrels, a measure that looks deeper than `depth`."""
    for name in measures:
        check_depth(name, depth)
    for collection in collections:
        if sum(other.name == collection.name for other in collections) > 1:
            raise InterlinguaError(f"two collections are named '{collection.name}'. Give each its own name.")
        for what in ("queries", "passages", "qrels"):
            if not getattr(collection, what):
                raise InterlinguaError(f"collection '{collection.name}': has no {what}.")


def by_passages(collections: Sequence[Collection]) -> list[list[Collection]]:
    """The collections in groups with the same passages."""
    groups: dict[object, list[Collection]] = {}
    for collection in collections:
        passages = collection.passages
        key = passages.source if isinstance(passages, StoredPassages) else _digest(passages)
        groups.setdefault(key, []).append(collection)
    return list(groups.values())


def _digest(passages: Sequence[Passage]) -> bytes:
    """Equal for equal lists of passages (ids and texts)."""
    state = blake2b(digest_size=16)
    for passage in passages:
        for part in (passage.id, passage.title, passage.text):
            encoded = part.encode("utf-8", "surrogatepass")
            state.update(len(encoded).to_bytes(8, "little") + encoded)
    return state.digest()
