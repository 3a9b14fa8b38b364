"""MaxSim and the fine-tuning losses of late interaction (Khattab & Zaharia 2020)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal, Self, get_args

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from interlingua.data.records import Passage, QuestionPassage
from interlingua.errors import BadInput, suggestion
from interlingua.models.encode import TokenVectors
from interlingua.objectives.objective import (
    Batch,
    Loss,
    Objective,
    ObjectiveSettings,
    Reduction,
    Texts,
    by_language,
    check_temperature,
    product,
    reduced,
    require,
)
from interlingua.objectives.retrieval import as_text, candidates, false_negatives

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

    A query without a token scores 0 with every document. Raises BadInput for a document without a token, which
    has no maximum, and for shapes that do not fit.
    """
    _check(queries, query_mask, "queries")
    _check(documents, document_mask, "documents")
    if queries.shape[2] != documents.shape[2]:
        raise BadInput(
            f"MaxSim: token vectors must have one dim, got {queries.shape[2]} (queries) and "
            f"{documents.shape[2]} (documents)."
        )
    empty = (~document_mask.any(1)).nonzero()
    if len(empty):
        raise BadInput(f"MaxSim: document {int(empty[0])} has no token, so no maximum. Leave it out.")
    scores: Tensor = MaxSim.apply(queries.float(), query_mask, documents.float(), document_mask)  # type: ignore[no-untyped-call]
    return scores


def _check(vectors: Tensor, mask: Tensor, what: str) -> None:
    if vectors.ndim != 3 or mask.shape != vectors.shape[:2] or mask.dtype != torch.bool:
        raise BadInput(
            f"MaxSim: {what} must be [{what}, tokens, dim] with a bool mask [{what}, tokens]; got "
            f"{list(vectors.shape)} and {mask.dtype} {list(mask.shape)}."
        )


class MaxSim(torch.autograd.Function):
    """`maxsim` in the floating type of its inputs, with a gradient that remembers which token was the best alone."""

    @staticmethod
    def forward(context: Any, queries: Tensor, query_mask: Tensor, documents: Tensor, document_mask: Tensor) -> Tensor:
        (count, tokens, dim), (n_documents, width, _) = queries.shape, documents.shape
        columns = documents.reshape(n_documents * width, dim).T
        padding = None if document_mask.all() else ~document_mask
        scores = queries.new_zeros(count, n_documents)
        best = torch.empty(count, tokens, n_documents, dtype=torch.int32, device=queries.device)
        step = max(1, BLOCK // max(1, tokens * n_documents * width))
        for start in range(0, count if tokens * n_documents else 0, step):
            block = slice(start, start + step)
            products = product(queries[block].reshape(-1, dim), columns).view(-1, tokens, n_documents, width)
            if padding is not None:
                products.masked_fill_(padding, -torch.inf)
            highest, indices = products.max(-1)
            scores[block] = highest.masked_fill_(~query_mask[block, :, None], 0.0).sum(1)
            best[block] = indices
        context.save_for_backward(queries, query_mask, documents, best)
        return scores

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, Tensor, None]:
        queries, query_mask, documents, best = context.saved_tensors
        for_queries, for_documents = torch.zeros_like(queries), torch.zeros_like(documents)
        flat = for_queries.view(-1, queries.shape[2])
        for number in range(len(documents)):
            indices = best[:, :, number].flatten().long()
            weights = (gradient[:, number, None] * query_mask).view(-1, 1)
            flat.addcmul_(documents[number][indices], weights)
            for_documents[number].index_add_(0, indices, queries.reshape(flat.shape) * weights)
        return for_queries, None, for_documents, None


TokenSimilarity = Literal["cosine", "l2"]
Contrast = Literal["pairwise", "in_batch", "distilled"]


def late_interaction_scores(
    queries: Tensor,
    query_mask: Tensor,
    documents: Tensor,
    document_mask: Tensor,
    *,
    similarity: TokenSimilarity = "cosine",
) -> Tensor:
    """Scores of each query with its own documents only, `[queries, …]` float32:

        Σ_{t ∈ q} max_{u ∈ d} s(q_t, d_u)

    with s = q_t · d_u ("cosine": vectors have unit length) or −‖q_t − d_u‖² ("l2"). For unit vectors l2 is 2·cosine − 2
    for each token of the query: the same ranking, twice the slope.

    Args:
        queries: `[queries, tokens, dim]`, query_mask: bool `[queries, tokens]`, True = a token, False = padding.
        documents: `[queries, …, tokens, dim]` with any dimensions between, document_mask: bool `[queries, …, tokens]`.

    Raises BadInput for an unknown similarity, shapes that do not fit, and a document without a token.
    """
    if similarity not in get_args(TokenSimilarity):
        raise BadInput(
            f"similarity '{similarity}' is not known for tokens.{suggestion(similarity, get_args(TokenSimilarity))}"
        )
    shapes = queries.shape[:2] == query_mask.shape and documents.shape[:-1] == document_mask.shape
    if not shapes or queries.shape[0] != documents.shape[0] or queries.shape[-1] != documents.shape[-1]:
        raise BadInput(
            "late interaction: queries must be [queries, tokens, dim] and documents [queries, …, "
            f"tokens, dim], with masks; got {list(queries.shape)}, {list(query_mask.shape)}, "
            f"{list(documents.shape)}, {list(document_mask.shape)}."
        )
    if query_mask.dtype != torch.bool or document_mask.dtype != torch.bool:
        raise BadInput(f"late interaction: masks must be bool, got {query_mask.dtype} and {document_mask.dtype}.")
    if not bool(document_mask.any(-1).all()):
        raise BadInput("late interaction: a document has no token, so no maximum. Leave it out.")
    count, dim = len(queries), queries.shape[-1]
    queries, flat = queries.float(), documents.float().reshape(count, -1, dim)
    tokens = product(queries, flat.transpose(1, 2))
    if similarity == "l2":
        tokens = 2 * tokens - queries.pow(2).sum(-1)[:, :, None] - flat.pow(2).sum(-1)[:, None]
    tokens = tokens.view(count, queries.shape[1], *documents.shape[1:-1]).movedim(1, -2)
    best = tokens.masked_fill(~document_mask.unsqueeze(-2), -torch.inf).max(-1).values
    return best.masked_fill(~query_mask.view(count, *[1] * (best.ndim - 2), -1), 0.0).sum(-1)


def late_interaction_pairwise(
    queries: Tensor,
    query_mask: Tensor,
    positives: Tensor,
    positive_mask: Tensor,
    negatives: Tensor,
    negative_mask: Tensor,
    *,
    similarity: TokenSimilarity = "cosine",
    reduction: Reduction = "mean",
) -> Tensor:
    """ColBERT v1: the mean over triples (q, p, n) of −log e^{f(q,p)} / (e^{f(q,p)} + e^{f(q,n)}). No document of
    another triple takes part.

    Args: token vectors `[triples, tokens, dim]` and bool masks `[triples, tokens]` of queries, positives, negatives.
    Returns a float32 scalar; without triples a zero that is connected to the graph. With the reduction "none" the
    triples' losses, `[triples]`.
    """
    if not len(queries):
        return reduced((queries.sum() + positives.sum() + negatives.sum()).float().expand(0), reduction)
    positive = late_interaction_scores(queries, query_mask, positives, positive_mask, similarity=similarity)
    negative = late_interaction_scores(queries, query_mask, negatives, negative_mask, similarity=similarity)
    return reduced(F.softplus(negative - positive), reduction)


def late_interaction_in_batch(
    queries: Tensor,
    query_mask: Tensor,
    documents: Tensor,
    document_mask: Tensor,
    *,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """InfoNCE over the MaxSim scores of all documents of the batch: the mean over queries of
    −log e^{f(q_i,d_i)/τ} / Σ_j e^{f(q_i,d_j)/τ}.

    Args:
        queries: `[queries, tokens, dim]` with query_mask; documents: `[documents, tokens, dim]` with document_mask;
            documents[:len(queries)] are the positives, the rest are hard negatives for all.
        mask: bool `[queries, documents]`, True = leave this document out; never a query's own positive.
        reduction: "none" gives the queries' losses, `[queries]`.
    """
    check_temperature(temperature)
    if len(documents) < len(queries):
        raise BadInput(
            f"{len(queries)} queries need at least as many documents, got {len(documents)}: "
            "documents[:len(queries)] are the positives."
        )
    logits = maxsim(queries, query_mask, documents, document_mask) / temperature
    if mask is not None:
        own = torch.eye(*logits.shape, dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(mask.to(logits.device) & ~own, -torch.inf)
    gold = torch.arange(len(queries), device=logits.device)
    return reduced(F.cross_entropy(logits, gold, reduction="none"), reduction)


def late_interaction_distilled(
    queries: Tensor,
    query_mask: Tensor,
    documents: Tensor,
    document_mask: Tensor,
    teacher: Tensor,
    *,
    temperature: float = 1.0,
    reduction: Reduction = "mean",
) -> Tensor:
    """The mean over queries of KL(softmax(teacher) ‖ softmax(f / τ)) over each query's own candidates.

    Args: `queries` as above, documents `[queries, candidates, tokens, dim]` with their mask `[queries, candidates,
    tokens]`, and the teacher's scores `[queries, candidates]`. No gradient reaches the teacher. With the reduction
    "none" the queries' divergences, `[queries]`.
    """
    check_temperature(temperature)
    if not len(queries):
        return reduced((queries.sum() + documents.sum()).float().expand(0), reduction)
    scores = late_interaction_scores(queries, query_mask, documents, document_mask)
    if teacher.shape != scores.shape:
        raise BadInput(f"teacher must be [queries, candidates] = {list(scores.shape)}, got {list(teacher.shape)}.")
    teacher_scores = teacher.detach().to(scores).log_softmax(-1)
    rows = F.kl_div((scores / temperature).log_softmax(-1), teacher_scores, log_target=True, reduction="none")
    return reduced(rows.sum(-1), reduction)


class LateInteraction(Objective[TokenVectors]):
    """ColBERT's fine-tuning on a stream of questions, for a model with `late_interaction`. Questions that lack what it
    reads teach nothing, which is said."""

    class Settings(ObjectiveSettings):
        """Options of the comparison of a question with passages."""

        contrast: Contrast = Field(
            "pairwise",
            description="ColBERT v1: a question's positive against each of its own negatives; `in_batch`: against all "
            "positives and hard negatives of the batch; `distilled`: a teacher's scores of the positive and of exactly "
            "`hard_negatives` negatives",
        )
        similarity: TokenSimilarity = Field(
            "cosine", description="of two tokens in `pairwise`; `l2` is ColBERT-X's, twice the slope. Both rank alike"
        )
        temperature: float = Field(
            1.0, gt=0, description="τ of `in_batch` and `distilled`; scores are sums over some 32 tokens, so 1 is sharp"
        )
        hard_negatives: int = Field(1, ge=0, description="how many of each question's negatives are read")
        mask_false_negatives: bool = Field(
            True, description="`in_batch` leaves out other known positives of a question"
        )

        @model_validator(mode="after")
        def _fit(self) -> Self:
            if self.hard_negatives < 1 and self.contrast != "in_batch":
                raise ValueError(f"hard_negatives {self.hard_negatives} is too few for contrast '{self.contrast}'.")
            if self.contrast == "pairwise" and self.temperature != 1.0:
                raise ValueError("temperature is for contrast 'in_batch' and 'distilled'; 'pairwise' has none.")
            if self.contrast != "pairwise" and self.similarity != "cosine":
                raise ValueError(
                    f"similarity 'l2' is for contrast 'pairwise'; with '{self.contrast}' halve the temperature."
                )
            return self

    settings: Settings
    streams = ("questions",)
    multi_vector = True

    def requests(self, batch: Batch) -> dict[str, Texts]:
        asked, compared = self._compared(require(batch["questions"], QuestionPassage, self))
        queries = Texts("query", [question.question for question in asked])
        return {"queries": queries} | {
            name: Texts("passage", [as_text(passage) for passage in passages]) for name, passages in compared.items()
        }

    def loss(self, batch: Batch, vectors: Mapping[str, TokenVectors]) -> Loss:
        questions, settings = require(batch["questions"], QuestionPassage, self), self.settings
        asked, compared = self._compared(questions)
        padded = [tensor for part in vectors.values() for tensor in part.padded()]
        count, lacking, advice = 2, 0, ""
        if settings.contrast == "in_batch":
            count = len(compared["documents"])
            mask = false_negatives(questions, compared["documents"]) if settings.mask_false_negatives else None
            rows = late_interaction_in_batch(*padded, temperature=settings.temperature, mask=mask, reduction="none")
        elif settings.contrast == "distilled":
            count, lacking = 1 + settings.hard_negatives, len(questions) - len(asked)
            advice = f"lack {count - 1} negatives with a teacher's scores and teach nothing."
            queries, query_mask, documents, mask = padded
            documents, mask = (torch.unflatten(part, 0, (len(asked), count)) for part in (documents, mask))
            teacher = torch.tensor([question.scores[:count] for question in asked]).view(len(asked), count)
            rows = late_interaction_distilled(
                queries, query_mask, documents, mask, teacher, temperature=settings.temperature, reduction="none"
            )
        else:
            lacking = sum(not question.negatives for question in questions)
            advice = (
                "have no negative and teach nothing. Mine negatives, or use "
                "objectives.late_interaction.contrast=in_batch."
            )
            rows = late_interaction_pairwise(*padded, similarity=settings.similarity, reduction="none")
        report = {} if settings.contrast == "distilled" else {"ln_candidates": math.log(max(1, count))}
        report |= by_language([question.lang for question in asked], rows)
        warning = f"{lacking} of {len(questions)} questions {advice}" if lacking else None
        return Loss(reduced(rows), report, warning)

    def _compared(self, questions: Sequence[QuestionPassage]) -> tuple[list[QuestionPassage], dict[str, list[Passage]]]:
        """The questions, each as often as it is compared, and the passages by the part of the batch they are."""
        count = self.settings.hard_negatives
        if self.settings.contrast == "in_batch":
            return list(questions), {"documents": candidates(questions, count)}
        if self.settings.contrast == "distilled":
            taught = [q for q in questions if min(len(q.negatives), len(q.scores) - 1) >= count]
            own = [(question.positives[0], *question.negatives[:count]) for question in taught]
            return taught, {"documents": list(chain.from_iterable(own))}
        triples = [(question, negative) for question in questions for negative in question.negatives[:count]]
        return [question for question, _ in triples], {
            "positives": [question.positives[0] for question, _ in triples],
            "negatives": [negative for _, negative in triples],
        }
