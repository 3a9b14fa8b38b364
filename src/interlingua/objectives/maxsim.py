"""MaxSim: each token of one text finds its best match in another (Khattab & Zaharia 2020, ColBERT), with gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from interlingua.errors import InterlinguaError

BLOCK = 1 << 24
"""Token scores held at a time (64 MiB of float32)."""


def maxsim(queries: Tensor, query_mask: Tensor, documents: Tensor, document_mask: Tensor) -> Tensor:
    """`[queries, documents]` float32 scores, differentiable:

        f(q, d) = Σ_{t ∈ q} max_{u ∈ d} q_t · d_u

    Not symmetric: the sum runs over the tokens of the query. Token scores are computed in blocks of queries and never
    held whole. Kept for the gradient is which token of the document each maximum was, 4 bytes for each token of a query
    and document: the gradient needs no other scores, so none is computed twice.

    Args:
        queries, documents: `[queries, tokens, dim]` and `[documents, tokens, dim]` token vectors, padded.
        query_mask, document_mask: bool `[queries, tokens]` and `[documents, tokens]`, True = a token, False = padding.
            Padding of a document is never the maximum, padding of a query adds nothing; neither gets a gradient.

    A query without a token scores 0 with every document. Raises InterlinguaError for a document without a token, which
    has no maximum, and for shapes that do not fit.
    """
    _check(queries, query_mask, "queries")
    _check(documents, document_mask, "documents")
    if queries.shape[2] != documents.shape[2]:
        raise InterlinguaError(f"MaxSim: token vectors must have one dim, got {queries.shape[2]} (queries) and "
                               f"{documents.shape[2]} (documents).")
    empty = (~document_mask.any(1)).nonzero()
    if len(empty):
        raise InterlinguaError(f"MaxSim: document {int(empty[0])} has no token, so no maximum. Leave it out.")
    scores: Tensor = _MaxSim.apply(queries.float(), query_mask, documents.float(), document_mask)  # type: ignore[no-untyped-call]
    return scores


def _check(vectors: Tensor, mask: Tensor, what: str) -> None:
    if vectors.ndim != 3 or mask.shape != vectors.shape[:2] or mask.dtype != torch.bool:
        raise InterlinguaError(f"MaxSim: {what} must be [{what}, tokens, dim] with a bool mask [{what}, tokens]; got "
                               f"{list(vectors.shape)} and {mask.dtype} {list(mask.shape)}.")


class _MaxSim(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, queries: Tensor, query_mask: Tensor, documents: Tensor, document_mask: Tensor) -> Tensor:
        (count, tokens, dim), (held, width, _) = queries.shape, documents.shape
        columns = documents.reshape(held * width, dim).T
        padding = None if document_mask.all() else ~document_mask
        scores = queries.new_zeros(count, held)
        best = torch.empty(count, tokens, held, dtype=torch.int32, device=queries.device)
        step = max(1, BLOCK // max(1, tokens * held * width))
        for start in range(0, count if tokens * held else 0, step):
            some = slice(start, start + step)
            products = (queries[some].reshape(-1, dim) @ columns).view(-1, tokens, held, width)
            if padding is not None:
                products.masked_fill_(padding, -torch.inf)
            highest, where = products.max(-1)
            scores[some] = highest.masked_fill_(~query_mask[some, :, None], 0.0).sum(1)
            best[some] = where
        context.save_for_backward(queries, query_mask, documents, best)
        return scores

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor, None]:
        queries, query_mask, documents, best = context.saved_tensors
        for_queries, for_documents = torch.zeros_like(queries), torch.zeros_like(documents)
        flat = for_queries.view(-1, queries.shape[2])
        for number in range(len(documents)):
            where = best[:, :, number].flatten().long()
            weights = (gradient[:, number, None] * query_mask).view(-1, 1)
            flat.addcmul_(documents[number][where], weights)
            for_documents[number].index_add_(0, where, queries.reshape(flat.shape) * weights)
        return for_queries, None, for_documents, None
