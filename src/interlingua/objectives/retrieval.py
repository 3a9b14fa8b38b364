"""The retrieval loss: DPR with in-batch and hard negatives (Hu et al. 2023, eq. 1)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from interlingua.data.records import Passage, QuestionPassage
from interlingua.errors import BadInput
from interlingua.models.folder import Similarity
from interlingua.objectives.objective import (
    Batch,
    Loss,
    Objective,
    Text,
    Texts,
    by_language,
    check_temperature,
    require,
    similarities,
)
from interlingua.text.languages import text_key


def info_nce(
    queries: Tensor,
    passages: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    similarity: Similarity = "cosine",
    mask: Tensor | None = None,
    symmetric: bool = False,
) -> Tensor:
    """L_IR of Hu et al. 2023, eq. 1 (DPR's in-batch negatives): the mean over questions of

        −log  exp(sim(q_i, p_i) / τ) / Σ_j exp(sim(q_i, p_j) / τ)

    With the paper's cosine and τ = 1 the loss lives in a narrow band: ln M when all M candidates are
    alike, ln(1 + (M−1)·e^(−M/(M−1))) at best (3.57 for M = 96). It flattens there; that is convergence.

    Args:
        queries: `[queries, dim]`.
        passages: `[candidates, dim]`, candidates ≥ queries; `passages[:len(queries)]` are the positives,
            the rest are hard negatives, shared by all questions.
        temperature: τ, a float or a learnable scalar tensor.
        similarity: "cosine" or "dot".
        mask: `[queries, candidates]` bool, True = leave this candidate out (a false negative).
            A question's own positive is never left out.
        symmetric: also let each positive pick its question (over the positives only), and average.

    Returns:
        A float32 scalar; with no questions, a zero that is connected to the graph.
    """
    rows = info_nce_rows(
        queries, passages, temperature=temperature, similarity=similarity, mask=mask, symmetric=symmetric
    )
    return rows.mean() if len(rows) else queries.float().sum() + passages.float().sum() * 0


def info_nce_rows(
    queries: Tensor,
    passages: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    similarity: Similarity = "cosine",
    mask: Tensor | None = None,
    symmetric: bool = False,
) -> Tensor:
    """`info_nce` before its mean: one loss a question, `[queries]`."""
    check_temperature(temperature)
    if len(passages) < len(queries):
        raise BadInput(
            f"{len(queries)} questions need at least as many passages, got {len(passages)}: "
            "passages[:len(queries)] are the positives."
        )
    logits = similarities(queries, passages, similarity) / temperature
    if mask is not None:
        if mask.shape != logits.shape:
            raise BadInput(f"mask must be [queries, candidates] = {list(logits.shape)}, got {list(mask.shape)}.")
        own = torch.eye(*logits.shape, dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(mask.to(logits.device) & ~own, -torch.inf)
    gold = torch.arange(len(queries), device=logits.device)
    rows = F.cross_entropy(logits, gold, reduction="none")
    if symmetric:
        rows = (rows + F.cross_entropy(logits[:, : len(queries)].T, gold, reduction="none")) / 2
    return rows


LARGEST_SCALE = 100.0
"""A learnable 1/τ stops here (CLIP)."""


class Retrieval(Objective):
    """`info_nce` on a stream of questions: candidates are all positives and hard negatives of the batch.

    Args:
        similarity: "cosine" or "dot"; search must use the same one.
        temperature: τ. The paper's letter is cosine at 1.0, which hardly tells a hard negative from an easy
            one; 0.05 is the robust choice.
        learnable_temperature: train 1/τ from 1/temperature on, up to 100.
        hard_negatives: how many of each question's negatives join the candidates.
        symmetric: add the passage → question direction over the positives.
        mask_false_negatives: leave out candidates that are the question's own passage or another known positive
            of it (also when the same question stands in the batch twice).
        self_guided_margin: also leave out candidates that the model itself scores above the positive minus
            this margin (a cosine; None: never).
        strip_question_mark: leave out the "?" that ends a question. CCP's public code does so when it trains but not
            when it searches; with this option nor do we (validation and search read the question as it is).
    """

    streams = ("questions",)

    def __init__(
        self,
        *,
        similarity: Similarity = "cosine",
        temperature: float = 1.0,
        learnable_temperature: bool = False,
        hard_negatives: int = 1,
        symmetric: bool = False,
        mask_false_negatives: bool = True,
        self_guided_margin: float | None = None,
        strip_question_mark: bool = False,
    ) -> None:
        super().__init__()
        check_temperature(temperature)
        if hard_negatives < 0:
            raise BadInput(f"hard_negatives must be 0 or more, got {hard_negatives}.")
        self.similarity, self.hard_negatives, self.symmetric = similarity, hard_negatives, symmetric
        self.mask_false_negatives, self.self_guided_margin = mask_false_negatives, self_guided_margin
        self.temperature, self.strip_question_mark = temperature, strip_question_mark
        if learnable_temperature and temperature < 1 / LARGEST_SCALE:
            raise BadInput(f"a learnable temperature starts at {1 / LARGEST_SCALE} or above; got {temperature}.")
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature))) if learnable_temperature else None

    def candidates(self, questions: Sequence[QuestionPassage]) -> list[Passage]:
        """The positives in the order of the questions, then every hard negative."""
        return [question.positives[0] for question in questions] + [
            negative for question in questions for negative in question.negatives[: self.hard_negatives]
        ]

    def requests(self, batch: Batch) -> dict[str, Texts]:
        questions = require(batch["questions"], QuestionPassage, self)
        queries = [q.question.removesuffix("?") if self.strip_question_mark else q.question for q in questions]
        return {
            "queries": Texts("query", queries),
            "passages": Texts("passage", [as_text(passage) for passage in self.candidates(questions)]),
        }

    def loss(self, batch: Batch, vectors: Mapping[str, Tensor]) -> Loss:
        questions = batch["questions"]
        queries, passages = vectors["queries"], vectors["passages"]
        mask = false_negatives(questions, self.candidates(questions)) if self.mask_false_negatives else None
        if self.self_guided_margin is not None:
            scores = similarities(queries.detach(), passages.detach(), self.similarity)
            guided = scores > scores.diagonal()[:, None] - self.self_guided_margin
            mask = guided if mask is None else guided | mask.to(guided.device)
        rows = info_nce_rows(
            queries, passages, temperature=self.tau(), similarity=self.similarity, mask=mask, symmetric=self.symmetric
        )
        report = {"ln_candidates": math.log(max(1, len(passages))), **by_language([q.lang for q in questions], rows)}
        if self.log_scale is not None:
            report["temperature"] = float(self.tau().detach())  # type: ignore[union-attr]
        return Loss(rows.mean() if len(rows) else rows.sum(), report)

    def tau(self) -> float | Tensor:
        """The temperature in force."""
        if self.log_scale is None:
            return self.temperature
        with torch.no_grad():  # the parameter itself stops at the limit: a clamp in the graph would kill its gradient
            self.log_scale.clamp_(max=math.log(LARGEST_SCALE))
        return (-self.log_scale).exp()


def as_text(passage: Passage) -> Text:
    """What the encoder reads of a passage."""
    return (passage.title, passage.text) if passage.title else passage.text


def false_negatives(questions: Sequence[QuestionPassage], candidates: Sequence[Passage]) -> Tensor:
    """`[questions, candidates]` bool: candidates that answer the question although they are not its own positive."""
    columns: dict[str, list[int]] = defaultdict(list)
    for column, passage in enumerate(candidates):
        columns[text_key(passage.text)].append(column)
    answers: dict[str, set[str]] = defaultdict(set)
    for question in questions:
        answers[text_key(question.question)].update(text_key(passage.text) for passage in question.positives)
    mask = torch.zeros(len(questions), len(candidates), dtype=torch.bool)
    for row, question in enumerate(questions):
        for answer in answers[text_key(question.question)]:
            mask[row, columns.get(answer, [])] = True
        mask[row, row] = False
    return mask
