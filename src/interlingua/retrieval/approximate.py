"""Dense search by an approximate index of the vectors, Lance's own, for more passages than are quickly gone through."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from interlingua.errors import InterlinguaError
from interlingua.progress import say
from interlingua.retrieval.index_dense import Floats, Near, exactly, scored
from interlingua.retrieval.index_segment import Mask
from interlingua.retrieval.index_snapshot import Place, Snapshot
from interlingua.retrieval.passage_store import PassageStore

APPROXIMATE_FROM = 3_000_000
"""Passages from which it is worth it: docs/benchmarks.md says what was measured."""
SPARE, LEAST = 4, 400  # times as many candidates as are wanted, and the least, which are then scored exactly
PROBES = 20  # parts of the index that are looked into at least; else an eighth of √n


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


def near_of(store: PassageStore, snapshot: Snapshot) -> Near:
    """How to find vectors in `snapshot`, which was just taken from `store`: by Lance's index where there is one."""
    said = snapshot.base.approximate if snapshot.version == snapshot.base.version else None
    indexed = store.approximate if said is None else said
    return approximately(PassageStore.open(store.folder, snapshot.version)) if indexed else exactly


def approximately(store: PassageStore) -> Near:
    """A search by the index in `store`, which is at the version of the snapshots that are searched. What it finds is
    scored again. It is for all rows: `chosen` is what is left of the deleted ones, which Lance leaves out too. Where a
    writer has removed the version meanwhile, and where too little is found, search is exact."""
    probes = max(PROBES, isqrt(len(store)) // 8)

    def near(snapshot: Snapshot, vectors: Floats, depth: int, chosen: Sequence[Mask | None]
             ) -> list[dict[Place, float]]:
        try:
            places = [snapshot.places(store.near(vector, max(LEAST, SPARE * depth), probes)) for vector in vectors]
        except InterlinguaError:
            return exactly(snapshot, vectors, depth, chosen)
        if any(len(found) < min(depth, len(snapshot)) for found in places):
            return exactly(snapshot, vectors, depth, chosen)
        return [scored(snapshot, found, vector) for found, vector in zip(places, vectors, strict=True)]

    return near
