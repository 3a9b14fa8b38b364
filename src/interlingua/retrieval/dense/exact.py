"""Exact dense search by blocked matrix products, with trec_eval's ties.

`Candidates` and what rules out most of a block are those of `interlingua.alignment.neighbours`, which is on the floor
below. Three things stay apart. Here the float32 products rank, so nothing is scored again; for mining that would make
scores depend on the size of the blocks. `Int8Matrix` finds its candidates in compiled code that never writes a product
to memory, and has them ranked here. And an index multiplies a few rows with NumPy, since torch takes seconds to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from interlingua.alignment.neighbours import TILE, Candidates, reaching_rows
from interlingua.data.records import Collection, Passage, Query
from interlingua.errors import BadInput
from interlingua.models.encode import full_float32
from interlingua.models.protocols import Encoder
from interlingua.retrieval.retriever import Candidates as Chosen
from interlingua.retrieval.retriever import LazyPassages, Vectors, chosen_queries, embed_passages, embed_queries
from interlingua.retrieval.run import Run, docid_order

Matrix = NDArray[Any] | Tensor
SCORES_HELD = 1 << 24  # scores of one block in memory: 64 MiB of float32


def search_exact(
    queries: Matrix,
    passages: Matrix,
    k: int,
    *,
    rows: NDArray[np.int64] | None = None,
    tie_order: NDArray[np.int64] | None = None,
    block: int = 16_384,
    device: str | torch.device | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The `k` passages with the largest dot product, for each query.

    `queries` [queries, dim] and `passages` [passages, dim] are arrays, memory maps or tensors of any
    floating type; products are accumulated in float32. `passages` is read `block` rows at a time and queries
    are taken in groups, so that no more than `SCORES_HELD` scores exist at once. `rows` restricts the search
    to some passages. Equal scores are ordered by `tie_order` ([passages]: a rank for each passage, the lowest
    first), without it by position; a tie that straddles the cut is resolved the same way.

    Returns indices into `passages` [queries, min(k, passages)] int64 and scores float32, best first.
    Nothing is padded: a smaller collection gives fewer columns. Raises BadInput for shapes that do
    not fit and for NaN.
    """
    if queries.ndim != 2 or passages.ndim != 2 or queries.shape[1] != passages.shape[1]:
        raise BadInput(
            f"queries of shape {tuple(queries.shape)} cannot be searched in passages of shape "
            f"{tuple(passages.shape)}: both must be [texts, dim] with the same dim."
        )
    if k < 1 or block < 1:
        raise BadInput(f"k={k}, block={block}: both must be at least 1.")
    place = torch.device(device) if device is not None else _device_of(passages, queries)
    count = passages.shape[0] if rows is None else len(rows)
    group = max(1, SCORES_HELD // max(1, min(block, count)))
    total = queries.shape[0]
    indices = np.empty((total, min(k, count)), dtype=np.int64)
    scores = np.empty((total, min(k, count)), dtype=np.float32)
    block = -(-block // TILE) * TILE
    ties = None if tie_order is None else _on(tie_order, place, torch.int64)
    with torch.inference_mode(), full_float32():
        for start in range(0, total if count else 0, group):
            part = _on(queries[start : start + group], place)
            best = Candidates(len(part), indices.shape[1], place, ties=ties)
            _show(part, passages, rows, block, best)
            indices[start : start + group], scores[start : start + group] = best.nearest()
    return indices, scores


def search(
    queries: Matrix,
    query_ids: Sequence[str],
    passages: Matrix,
    passage_ids: Sequence[str],
    k: int,
    *,
    block: int = 16_384,
    device: str | torch.device | None = None,
) -> Run:
    """The run of encoded `queries` over encoded `passages`: exactly what sorting all scores by
    (score descending, docid descending) and cutting at `k` gives. Ids must be unique on each side."""
    if len(query_ids) != queries.shape[0] or len(passage_ids) != passages.shape[0]:
        raise BadInput(
            f"{queries.shape[0]} query vectors with {len(query_ids)} ids, {passages.shape[0]} "
            f"passage vectors with {len(passage_ids)} ids: the numbers must agree."
        )
    indices, scores = search_exact(queries, passages, k, tie_order=tie_ranks(passage_ids), block=block, device=device)
    run = Run()
    for query_id, row, values in zip(query_ids, indices.tolist(), scores, strict=True):
        run.add(query_id, [passage_ids[i] for i in row], values)
    return run


def retrieve(encoder: Encoder, collection: Collection, *, depth: int = 100, **encode_options: Any) -> Run:
    """Encode the queries and passages of `collection` and search: the run a dense retriever gives.

    The encoder's `similarity` decides: "cosine" brings both sides to unit length, "dot" leaves them.
    `encode_options` go to both `encode_query` and `encode_document`.
    """
    queries = embed_queries(encoder, collection.queries, **encode_options)
    passages = embed_passages(encoder, collection.passages, **encode_options)
    return search(queries, [q.id for q in collection.queries], passages, [p.id for p in collection.passages], depth)


def tie_ranks(ids: Sequence[str]) -> NDArray[np.int64]:
    """[passages]: the place of each passage among all when ordered by docid descending (the project's tie order)."""
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[docid_order(ids)] = np.arange(len(ids))
    return ranks


def _show(queries: Tensor, passages: Matrix, rows: NDArray[np.int64] | None, block: int, best: Candidates) -> None:
    """Show the scores of all passages, a block at a time, to the candidates of some queries."""
    place = queries.device
    count = passages.shape[0] if rows is None else len(rows)
    for start in range(0, count, block):
        part = slice(start, min(start + block, count))
        vectors = passages[part] if rows is None else passages[rows[part]]
        row, column, score = reaching_rows(_products(queries, _on(vectors, place)), best)
        real = column < len(vectors)
        row, column, score = row[real], column[real], score[real]
        indices = column + start if rows is None else _on(rows[part], place, torch.int64)[column]
        best.add(row, indices, score)


def _products(queries: Tensor, passages: Tensor) -> Tensor:
    """Scores [queries, passages rounded up to whole tiles] in which equal passages have equal scores.

    BLAS computes the columns left over from its register tiles by another route, which may round
    differently: two copies of one passage would then differ in the last bit and no longer tie.
    A whole number of tiles leaves nothing over. The columns added score −inf.
    """
    count = len(passages)
    if count % TILE == 0:
        return queries @ passages.T
    products = queries @ pad(passages, (0, 0, 0, -count % TILE)).T
    products[:, count:] = -torch.inf
    return products


def _device_of(*matrices: Matrix) -> torch.device:
    return next((m.device for m in matrices if isinstance(m, Tensor)), torch.device("cpu"))


def _on(matrix: Matrix, place: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """`matrix` as a tensor there. A copy where torch would otherwise warn of a read-only memory map."""
    if isinstance(matrix, np.ndarray):
        matrix = torch.from_numpy(np.array(matrix) if not matrix.flags.writeable else np.ascontiguousarray(matrix))
    return matrix.to(device=place, dtype=dtype)


class DenseRetriever(LazyPassages[int]):
    """`passages` compared with queries by the vectors of `encoder`, which must give one vector a text. Passages are
    encoded when they are needed (`LazyPassages`)."""

    def __init__(self, encoder: Encoder, passages: Sequence[Passage]) -> None:
        super().__init__(passages)
        self.encoder = encoder
        self._vectors: Vectors = np.zeros((0, 0), dtype=np.float32)

    def search(self, queries: Sequence[Query], depth: int) -> Run:
        """The `depth` passages most similar to each query, exactly."""
        self.need_all()
        vectors = embed_queries(self.encoder, queries)
        return search(vectors, [query.id for query in queries], self._vectors, list(self.places), depth)

    def score(self, queries: Sequence[Query], candidates: Chosen) -> Run:
        """The similarity of each query of `candidates` to exactly its candidates.

        Raises BadInput for a candidate that is no passage here, or a query that is not among `queries`.
        """
        candidate_queries = chosen_queries(queries, candidates)
        self.need(candidates)
        vectors = embed_queries(self.encoder, candidate_queries)
        run = Run()
        for query, vector in zip(candidate_queries, vectors, strict=True):
            names = {self.places[name]: name for name in candidates[query.id]}
            if names:
                rows = np.fromiter(names, dtype=np.int64)
                indices, scores = search_exact(vector[None], self._vectors, len(rows), rows=rows)
                run.add(query.id, [names[row] for row in indices[0].tolist()], scores[0])
            else:
                run.add(query.id, [], [])
        return run

    def encode(self, passages: list[Passage]) -> dict[str, int]:
        """The row of each passage among the vectors."""
        vectors = embed_passages(self.encoder, passages)
        self._vectors = np.concatenate([self._vectors, vectors]) if self.places else vectors
        return {passage.id: row for row, passage in enumerate(passages, len(self.places))}
