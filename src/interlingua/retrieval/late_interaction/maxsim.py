"""MaxSim without gradient, over ragged token vectors: every token of a query takes its most similar token of a passage.

    score(query, passage) = Σ_t max_u query_t · passage_u        (Khattab & Zaharia 2020, eq. 3)

Nothing is padded. On the CPU numba's kernels compute it where numba is installed, else blocked products of torch, which
also serve a store that lies on another device.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from interlingua.errors import BadInput
from interlingua.lazy import compiled_module
from interlingua.models.encode import TokenVectors, full_float32
from interlingua.models.static.encoder import int8_rows
from interlingua.retrieval.late_interaction.token_store import Floats, TokenStore, tensor

CPU_PRODUCTS, PRODUCTS = 1 << 17, 1 << 24  # of one block in torch: what stays in a cache; on a device 64 MiB
LEAST = 512  # tokens of a block, however many the queries
TILE = 64  # tokens: with whole tiles of columns BLAS rounds equal tokens equally (see `dense.py`)
SHARE = 1 << 19  # products of tokens below which another thread is not worth its start

Rows = Sequence[int] | NDArray[np.int64]


class _Queries(NamedTuple):
    """Tokens of queries laid end to end, as they are multiplied: `tokens` [tokens, dim] float32 or int8, `weights`
    [tokens] what their products are multiplied by, `ends` [queries]."""

    tokens: NDArray[Any]
    weights: Floats
    ends: NDArray[np.int64]


def maxsim_scores(query: Tensor | Floats, store: TokenStore, rows: Rows | None = None) -> Floats:
    """The score of `query` [tokens, dim] with each passage of `store`, or with those at `rows`: float32 [rows].

    As `maxsim_matrix`, of which it is one row.
    """
    scores: Floats = maxsim_matrix(TokenVectors(torch.as_tensor(query), [len(query)]), store, rows)[0]
    return scores


def maxsim_matrix(queries: TokenVectors, store: TokenStore, rows: Rows | None = None) -> Floats:
    """The scores of `queries` with the passages of `store`, or with those at `rows`: float32 [queries, rows].

    Products are float32 whatever the store's format; with int8 the queries are rounded to int8 too, each token with
    its own scale, and sums of products are exact integers. A passage without tokens scores −inf, whatever the query; a
    query without tokens scores 0 with the others. Equal passages have equal scores; from numba a score is the same to
    the last bit whatever else is scored with it. Numba's kernels use as many threads as torch may (`OMP_NUM_THREADS`,
    `torch.set_num_threads`), but no more than `NUMBA_NUM_THREADS`.

    Raises BadInput for another size of vectors than the store's, rows it does not have, and queries that hold
    NaN or infinity.
    """
    tokens = queries.vectors.detach().float().cpu().numpy()
    if tokens.shape[1] != store.dim:
        raise BadInput(
            f"queries of size {tokens.shape[1]} cannot be compared with passages of size "
            f"{store.dim}. Both must be of one model."
        )
    if not np.isfinite(tokens).all():
        raise BadInput(
            "a query's token vectors hold NaN or infinity. The model or its number format is at fault: try float32."
        )
    indices = np.arange(len(store)) if rows is None else np.asarray(rows, dtype=np.int64)
    if len(indices) and not 0 <= indices.min() <= indices.max() < len(store):
        raise BadInput(f"rows {indices.min()} to {indices.max()} of {len(store)} passages: there are no such.")
    starts, stops = store.offsets[indices], store.offsets[indices + 1]
    weights: Floats = np.ones(len(tokens), dtype=np.float32)
    if store.dtype == "int8":
        tokens, weights = int8_rows(tokens)
    query_tokens = _Queries(tokens, weights, np.cumsum(queries.counts, dtype=np.int64))
    scores: Floats = np.empty((len(queries), len(indices)), dtype=np.float32)
    compiled = kernels() if isinstance(store.tokens, np.ndarray) else None
    if not scores.size:
        return scores
    if compiled is None:
        _by_products(query_tokens, store, starts, stops, scores)
    else:
        _by_kernel(compiled, query_tokens, store, starts, stops, scores)
    return scores


@cache
def kernels() -> ModuleType | None:
    """The module of numba's kernels, or None without numba (`pip install 'interlingua[index]'`)."""
    return compiled_module("retrieval.late_interaction.kernels", "MaxSim is computed by torch")


def _by_kernel(
    compiled: Any,
    queries: _Queries,
    store: TokenStore,
    starts: NDArray[np.int64],
    stops: NDArray[np.int64],
    scores: Floats,
) -> None:
    """Fill `scores`, each thread an equal share of the tokens."""
    lanes, whole = compiled.LANES, store.dtype == "int8"
    blocks = max(1, -(-len(queries.tokens) // lanes))
    packed = np.zeros((blocks * lanes, store.dim + store.dim % 2 if whole else store.dim), queries.tokens.dtype)
    packed[: len(queries.tokens), : store.dim] = queries.tokens
    # [blocks, dim, lanes]; two components side by side for integers: [blocks, dim / 2, 2 · lanes]
    packed = packed.reshape(blocks, lanes, -1, 2 if whole else 1).transpose(0, 2, 1, 3)
    packed = np.ascontiguousarray(packed.reshape(*packed.shape[:2], -1), dtype=np.int16 if whole else np.float32)
    tokens, scales = np.asarray(store.tokens), np.asarray(store.scales)
    if store.dtype == "float16":
        tokens = tokens.view(np.uint16)
    if not whole:
        scales = np.broadcast_to(np.float32(1), len(tokens))
    work = np.concatenate([[0], np.cumsum(stops - starts)])
    threads = max(1, min(torch.get_num_threads(), compiled.MOST_THREADS, int(work[-1]) * len(packed) * lanes // SHARE))
    cuts = np.searchsorted(work, work[-1] * np.arange(1, threads) // threads)
    args: list[NDArray[Any]] = [array.view() for array in (packed, queries.weights, queries.ends, tokens, scales)]
    for array in args:
        array.flags.writeable = False  # one type, compiled once, for what is a memory map and what is not

    def share(part: slice) -> None:
        part_scores = np.empty((part.stop - part.start, len(queries.ends)), dtype=np.float32)
        compiled.scores(*args, starts[part], stops[part], part_scores)
        scores[:, part] = part_scores.T

    parts = [slice(int(a), int(b)) for a, b in zip([0, *cuts], [*cuts, len(starts)], strict=True)]
    if threads == 1:
        share(parts[0])
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(share, parts))


def _by_products(
    queries: _Queries, store: TokenStore, starts: NDArray[np.int64], stops: NDArray[np.int64], scores: Floats
) -> None:
    """Fill `scores` on the device of the store: products of a block of tokens with all queries, then the largest of
    each passage. Integers are multiplied as float32: their sums are exact below 2^24,
    which 1,040 components do not reach."""
    device = store.tokens.device if isinstance(store.tokens, Tensor) else torch.device("cpu")
    tokens, weights = (tensor(array).to(device).float() for array in (queries.tokens, queries.weights))
    ends = queries.ends.tolist()
    limit = max(LEAST, (CPU_PRODUCTS if device.type == "cpu" else PRODUCTS) // max(1, len(tokens)))
    work = np.concatenate([[0], np.cumsum(stops - starts)])
    first = 0
    with torch.inference_mode(), full_float32():
        while first < len(starts):
            last = max(first + 1, int(np.searchsorted(work, work[first] + limit, side="right")) - 1)
            counts = torch.from_numpy(np.diff(work[first : last + 1]))
            shift = torch.from_numpy(starts[first:last] - (work[first:last] - work[first]))
            rows = torch.arange(int(work[last] - work[first])) + shift.repeat_interleave(counts)
            index = rows.to(device) if isinstance(store.tokens, Tensor) else rows.numpy()
            block = tensor(store.tokens[index]).float()
            products = (tokens @ pad(block, (0, 0, 0, -len(block) % TILE)).T)[:, : len(block)]
            if store.dtype == "int8":
                products *= tensor(store.scales[index])
            passage = torch.arange(last - first).repeat_interleave(counts).to(device)
            best = torch.full((len(tokens), last - first), -torch.inf, device=device)
            best.scatter_reduce_(1, passage.expand_as(products), products, "amax")
            best = (best.T * weights).contiguous()  # a row for each passage: each is summed in the same order
            sums = torch.stack([best[:, a:b].sum(1) for a, b in zip([0, *ends], ends, strict=False)])
            sums[:, (counts == 0).to(device)] = -torch.inf
            scores[:, first:last] = sums.cpu().numpy()
            first = last
