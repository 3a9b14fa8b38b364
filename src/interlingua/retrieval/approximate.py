"""Dense search by an approximate index of the vectors, Lance's own, for more passages than are quickly gone through."""

from __future__ import annotations

from collections.abc import Sequence

from interlingua.progress import say
from interlingua.retrieval.index_dense import Floats, Near, scored
from interlingua.retrieval.index_segment import Mask
from interlingua.retrieval.index_snapshot import Place, Snapshot
from interlingua.retrieval.passage_store import PassageStore

APPROXIMATE_FROM = 3_000_000
"""Passages from which it is worth it: docs/benchmarks.md says what was measured."""
SPARE = 4  # times as many candidates as are wanted, which are then scored exactly


def index_vectors(store: PassageStore, wanted: bool | None = None) -> None:
    """Give the vectors of `store` an approximate index, or take it away. None gives one to `APPROXIMATE_FROM` passages
    and leaves fewer as they are."""
    if wanted is None and len(store) >= APPROXIMATE_FROM:
        wanted = True
    if wanted is None or wanted == store.approximate:
        return
    if wanted:
        say(f"{store.folder}: indexing {len(store):,} vectors for approximate search")
    store.index_vectors(wanted)


def approximately(store: PassageStore) -> Near:
    """A search by the index in `store`, whose answers are scored again. It is for all rows: `chosen` is
    what is left of the deleted ones, which Lance leaves out too."""

    def near(snapshot: Snapshot, vectors: Floats, depth: int, chosen: Sequence[Mask | None]
             ) -> list[dict[Place, float]]:
        return [scored(snapshot, snapshot.places(store.near(vector, SPARE * depth)), vector) for vector in vectors]

    return near
