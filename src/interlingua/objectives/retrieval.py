"""The retrieval loss: DPR with in-batch and hard negatives (Hu et al. 2023, eq. 1)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from interlingua.data.records import Passage, QuestionPassage
from interlingua.errors import BadInput
from interlingua.models.folder import Similarity
from interlingua.objectives.objective import (
    Batch,
    Loss,
    Objective,
    ObjectiveSettings,
    Reduction,
    Text,
    Texts,
    by_language,
    check_temperature,
    reduced,
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
    reduction: Reduction = "mean",
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
        A float32 scalar; with no questions, a zero that is connected to the graph. With the reduction "none" the
        questions' losses, `[queries]`.
    """
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
    return reduced(rows, reduction)


LARGEST_SCALE = 100.0
"""A learnable 1/τ stops here (CLIP)."""


class Retrieval(Objective):
    """`info_nce` on a stream of questions: candidates are all positives and hard negatives of the batch."""

    class Settings(ObjectiveSettings):
        """Options of the comparison of a question with passages."""

        temperature: float = Field(
            1.0, gt=0, description="τ. 1 is the paper's letter, which hardly tells a hard negative from an easy one"
        )
        learnable_temperature: bool = Field(
            False, description=f"train 1/τ from 1/temperature on, up to {LARGEST_SCALE:g}"
        )
        similarity: Similarity = Field("cosine", description="search must use the same; a recipe takes the model's")
        hard_negatives: int = Field(1, ge=0, description="how many of each question's negatives join the candidates")
        symmetric: bool = Field(False, description="let the passage pick its question, too, among the positives")
        mask_false_negatives: bool = Field(
            True, description="leave out candidates that are known to answer the question, or its own passage again"
        )
        self_guided_margin: float | None = Field(
            None, description="leave out candidates that the model scores above the positive minus this (a cosine)"
        )
        teacher_margin: float | None = Field(
            None, description="leave out a question's own negatives that a teacher scores above the positive minus this"
        )
        strip_question_mark: bool = Field(
            False, description='train on questions without their last "?", as CCP\'s public code does; search keeps it'
        )

        @model_validator(mode="after")
        def _start(self) -> Self:
            if self.learnable_temperature and self.temperature < 1 / LARGEST_SCALE:
                raise ValueError(f"a learnable temperature starts at {1 / LARGEST_SCALE} or above.")
            return self

    settings: Settings
    streams = ("questions",)

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        start = -math.log(self.settings.temperature)
        self.log_scale = nn.Parameter(torch.tensor(start)) if self.settings.learnable_temperature else None

    def requests(self, batch: Batch) -> dict[str, Texts]:
        questions = require(batch["questions"], QuestionPassage, self)
        queries = [q.question.removesuffix("?") if self.settings.strip_question_mark else q.question for q in questions]
        compared = candidates(questions, self.settings.hard_negatives)
        return {
            "queries": Texts("query", queries),
            "passages": Texts("passage", [as_text(passage) for passage in compared]),
        }

    def loss(self, batch: Batch, vectors: Mapping[str, Tensor]) -> Loss:
        questions, options = require(batch["questions"], QuestionPassage, self), self.settings
        queries, passages = vectors["queries"], vectors["passages"]
        compared = candidates(questions, options.hard_negatives)
        mask = false_negatives(questions, compared) if options.mask_false_negatives else None
        warning = None
        most = max((len(question.negatives) for question in questions), default=0)
        if options.hard_negatives > max(1, most):
            warning = f"hard_negatives is {options.hard_negatives}, and no question of the batch has more than {most}."
        if options.teacher_margin is not None:
            taught = too_good(questions, options.hard_negatives, options.teacher_margin)
            mask = taught if mask is None else taught | mask
            if questions and not any(question.scores for question in questions):
                warning = "teacher_margin left nothing out of a batch: none of its questions has a teacher's scores."
        if options.self_guided_margin is not None:
            scores = similarities(queries.detach(), passages.detach(), options.similarity)
            guided = scores > scores.diagonal()[:, None] - options.self_guided_margin
            mask = guided if mask is None else guided | mask.to(guided.device)
        rows = info_nce(
            queries,
            passages,
            temperature=self.tau(),
            similarity=options.similarity,
            mask=mask,
            symmetric=options.symmetric,
            reduction="none",
        )
        report = {"ln_candidates": math.log(max(1, len(passages))), **by_language([q.lang for q in questions], rows)}
        if self.log_scale is not None:
            report["temperature"] = float(self.tau().detach())  # type: ignore[union-attr]
        return Loss(reduced(rows), report, warning)

    def tau(self) -> float | Tensor:
        """The temperature in force."""
        if self.log_scale is None:
            return self.settings.temperature
        with torch.no_grad():  # the parameter itself stops at the limit: a clamp in the graph would kill its gradient
            self.log_scale.clamp_(max=math.log(LARGEST_SCALE))
        return (-self.log_scale).exp()


def candidates(questions: Sequence[QuestionPassage], negatives: int) -> list[Passage]:
    """The first positive of each question, then up to `negatives` of each one's hard negatives."""
    return [question.positives[0] for question in questions] + [
        negative for question in questions for negative in question.negatives[:negatives]
    ]


def too_good(questions: Sequence[QuestionPassage], negatives: int, margin: float) -> Tensor:
    """`[questions, candidates]` bool: a question's own negatives whose score by a teacher is above that of the positive
    minus `margin`; none where a question has no scores. Raises BadInput for scores that do not fit its negatives."""
    own = [len(question.negatives[:negatives]) for question in questions]
    mask = torch.zeros(len(questions), len(questions) + sum(own), dtype=torch.bool)
    column = len(questions)
    for row, (question, count) in enumerate(zip(questions, own, strict=True)):
        if question.scores:
            if len(question.scores) != 1 + len(question.negatives):
                raise BadInput(
                    f"question '{question.question[:60]}': a teacher's scores are of the positive and each negative: "
                    f"{1 + len(question.negatives)} are needed; it has {len(question.scores)}."
                )
            positive, *others = question.scores
            mask[row, column : column + count] = torch.tensor([score > positive - margin for score in others[:count]])
        column += count
    return mask


def as_text(passage: Passage) -> Text:
    """The text of a passage for the encoder: the title, where there is one, and the text."""
    return (passage.title, passage.text) if passage.title else passage.text


def false_negatives(questions: Sequence[QuestionPassage], candidates: Sequence[Passage]) -> Tensor:
    """`[questions, candidates]` bool: candidates that answer the question although they are not its own positive."""
    columns: dict[str, list[int]] = defaultdict(list)
    for column, passage in enumerate(candidates):
        columns[text_key(passage.answer)].append(column)
    answers: dict[str, set[str]] = defaultdict(set)
    for question in questions:
        answers[text_key(question.question)].update(text_key(passage.answer) for passage in question.positives)
    mask = torch.zeros(len(questions), len(candidates), dtype=torch.bool)
    for row, question in enumerate(questions):
        for answer in answers[text_key(question.question)]:
            mask[row, columns.get(answer, [])] = True
        mask[row, row] = False
    return mask
