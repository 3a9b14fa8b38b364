"""Distillation: a multilingual student learns the vectors, or the scores, of a teacher."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from interlingua.data.records import ParallelPair, QuestionPassage, Sentence
from interlingua.errors import BadInput
from interlingua.objectives.objective import (
    Batch,
    Loss,
    Objective,
    ObjectiveSettings,
    Reduction,
    Roles,
    Text,
    Texts,
    by_language,
    check_paired,
    check_temperature,
    reduced,
    require,
    same_number,
    similarities,
)
from interlingua.objectives.retrieval import as_text, candidates, info_nce
from interlingua.objectives.semantic import ON, pair_requests, roles
from interlingua.settings import Settings
from interlingua.text.languages import normalise_code

Teacher = Callable[..., Tensor]
"""Passages → the teacher's vectors `[texts, dim]`, without a gradient. One that is asked for questions, too, takes
their role "query" as a second argument."""
READS: dict[str, type[ParallelPair] | type[Sentence] | type[QuestionPassage]] = {
    "parallel": ParallelPair,
    "sentences": Sentence,
    "questions": QuestionPassage,
}
MASKED = torch.finfo(torch.float32).min
"""Not −inf: what is left out then adds 0 · a finite number, also where nothing is left."""


def distil_vectors(source: Tensor, target: Tensor, teacher: Tensor) -> Tensor:
    """Reimers & Gurevych 2020, eq. 1, the mean over pairs and dimensions of (source − teacher)² + (target − teacher)²:
    a sentence in the teacher's language and its translation both go where the teacher puts that sentence.

    Args: all `[pairs, dim]`; no gradient reaches the teacher.
    Returns a float32 scalar; with no pairs, a zero that is connected to the graph.
    """
    check_paired(source, target, "distillation")
    check_paired(source, teacher, "distillation, student and teacher")
    teacher_vectors = teacher.detach().float()
    rows = [(side.float() - teacher_vectors).square().mean(-1) for side in (source, target)]
    return reduced(rows[0] + rows[1])


def distil_contrastive(
    student: Tensor,
    teacher: Tensor,
    *,
    temperature: float = 0.05,
    groups: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """The mean over texts of

        −log  exp(cos(s_i, t_i) / τ) / Σ_k exp(cos(s_i, t_k) / τ)

    a text must be nearer to the teacher's vector of what it says than to those of the other texts (contrastive
    distillation, Tian et al. 2020; unlike squares, it asks for the teacher's order of texts and not for its numbers).

    Args:
        student, teacher: `[texts, dim]`; no gradient reaches the teacher.
        temperature: τ.
        groups: `[texts]` integers; texts of one group say the same, so they are left out of each other's candidates.

    Returns:
        A float32 scalar; with no texts, a zero that is connected to the graph. With the reduction "none" the texts'
        losses, `[texts]`.
    """
    check_paired(student, teacher, "distillation, student and teacher")
    related = None if groups is None else same_number(groups, len(student), "groups", student.device)
    return info_nce(student, teacher.detach(), temperature=temperature, mask=related, reduction=reduction)


def distil_scores(
    student: Tensor,
    teacher: Tensor,
    *,
    temperature: float = 1.0,
    mask: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """The mean over questions of KL(softmax(teacher / τ) ‖ softmax(student / τ)) over each question's candidates
    (ColBERTv2, Santhanam et al. 2022; Translate-Distill, Yang et al. 2024).

    Args:
        student, teacher: scores `[questions, candidates]`; no gradient reaches the teacher.
        mask: `[questions, candidates]` bool, True = leave this candidate out.

    Returns:
        A float32 scalar, 0 where the student's differences are the teacher's; with no questions, a zero that is
        connected to the graph. With the reduction "none" the questions' divergences, `[questions]`; one whose
        candidates are all left out has 0.
    """
    check_temperature(temperature)
    if student.ndim != 2 or student.shape != teacher.shape or (mask is not None and mask.shape != student.shape):
        raise BadInput(
            "distillation of scores: student, teacher and mask must all be [questions, candidates]; "
            f"got {list(student.shape)}, {list(teacher.shape)}"
            f"{'' if mask is None else f', {list(mask.shape)}'}."
        )
    left_out = torch.zeros_like(student, dtype=torch.bool) if mask is None else mask.to(student.device)
    scores, teacher_scores = (
        part.float().div(temperature).masked_fill(left_out, MASKED).log_softmax(-1)
        for part in (student, teacher.detach().to(student.device))
    )
    return reduced((teacher_scores.exp() * (teacher_scores - scores)).sum(-1), reduction)


class TeacherSpec(Settings):
    """The teacher of a recipe, where it is more than a name."""

    model: str = Field(description="a folder or name, or package:name/folder")
    vectors: str | None = Field(None, description="a folder for its vectors, for several runs; else the run's own")
    precision: str | None = Field(None, description="the number format in which it computes on a processor: int8, auto")
    layers: int | None = Field(None, ge=0, description="only its first so many layers (0: embeddings)")
    centre: bool = Field(
        False,
        description="subtract the mean of its vectors, and bring them to unit length: for a teacher whose cosines lie "
        "close together, as those of multilingual-e5 do between .7 and .9",
    )


class Distillation(Objective):
    """The student learns what a teacher says of the texts of one stream, each distinct text read once by the teacher.

    Of translations (`parallel`) both sides learn the vector of the side in the teacher's language, or each side its own
    where the teacher reads all languages (`lang: null`). Of `sentences`, and of `questions` and their passages, each
    text learns its own vector; of questions also the scores of the batch's passages. The constructor takes a teacher
    that reads: a `Teacher`.
    """

    class Settings(ObjectiveSettings):
        """Whose vectors are learned, of which texts, and how."""

        teacher: str | TeacherSpec | Teacher = Field(
            description="a model's folder or name, or `{model: …, vectors: FOLDER, precision: …, layers: …, centre: …}`"
            "; frozen, no part of what is saved. Vectors longer than the student's are cut to their principal "
            "components"
        )
        of: Literal["parallel", "sentences", "questions"] = Field(
            "parallel", description="whose texts: the stream that is read"
        )
        loss: Literal["squares", "contrast", "scores"] = Field(
            "squares",
            description="squared differences of the vectors; `contrast`: a text must pick its teacher's vector among "
            "those of the batch; `scores`: the divergence (KL) of the student's from the teacher's softmax over all "
            "passages of a batch of questions",
        )
        temperature: float = Field(0.05, gt=0, description="τ of `contrast`, and of the student's `scores`")
        teacher_temperature: float | None = Field(
            None, gt=0, description="τ of the teacher's `scores`; null: that of the student"
        )
        hard_negatives: int = Field(0, ge=0, description="of `questions`: how many negatives of each are read, too")
        on: Roles = Field("passage", description=f"of `parallel` and `sentences`: {ON}")
        lang: str | None = Field(
            "en",
            description="of `parallel`: the language whose side teaches both; a pair without it is an error. null: "
            "each side learns its own vector",
        )

        @field_validator("lang")
        @classmethod
        def _code(cls, lang: str | None) -> str | None:
            return lang and normalise_code(lang)

        @model_validator(mode="after")
        def _scores_of_questions(self) -> Self:
            if self.loss == "scores" and self.of != "questions":
                raise ValueError(f"loss: scores compares questions with passages; of: {self.of} has none")
            return self

    settings: Settings
    streams: tuple[str, ...] = ("parallel?", "sentences?", "questions?")

    def __init__(self, *, teacher: Teacher, **options: Any) -> None:
        super().__init__(teacher=teacher, **options)
        self.teacher = teacher
        self.streams = (self.settings.of,)

    def requests(self, batch: Batch) -> dict[str, Texts]:
        return {name: texts for name, (texts, _) in self._lessons(batch).items()}

    def loss(self, batch: Batch, vectors: Mapping[str, Tensor]) -> Loss:
        lessons, records = self._lessons(batch), require(batch[self.settings.of], READS[self.settings.of], self)
        langs = [record.lang for record in records]
        if not langs:
            return Loss(torch.stack([vectors[name].float().sum() for name in lessons]).sum())
        if self.settings.loss == "scores":
            rows = self._scores(lessons, vectors)
            return Loss(rows.mean(), by_language(langs, rows))
        # both sides of pairs may have one lesson
        distinct = {(texts.role, id(texts.texts)): texts for _, texts in lessons.values()}
        teacher_vectors = {key: self._taught(texts) for key, texts in distinct.items()}
        losses = [
            self._rows(vectors[name], texts.texts, teacher_vectors[texts.role, id(texts.texts)])
            for name, (_, texts) in lessons.items()
        ]
        if self.settings.of == "questions":  # negatives are taught, too
            value = torch.stack([rows.mean() for rows in losses]).mean()
            return Loss(value, by_language(langs, losses[0]))
        # as in the paper of the squares, the losses of both sides are added up; two encoders are averaged
        rows = torch.stack(losses).sum(0) / len(roles(self.settings.on))
        if self.settings.loss == "contrast":
            rows = rows / (len(losses) // len(roles(self.settings.on)))
        return Loss(rows.mean(), by_language(langs, rows))

    def _lessons(self, batch: Batch) -> dict[str, tuple[Texts, Texts]]:
        """By name, what the student reads, and what the teacher reads in its place."""
        records, on = batch[self.settings.of], roles(self.settings.on)
        if self.settings.of == "questions":
            questions = require(records, QuestionPassage, self)
            passages = [as_text(passage) for passage in candidates(questions, self.settings.hard_negatives)]
            queries = Texts("query", [question.question for question in questions])
            return {"queries": (queries, queries), "passages": (lesson := Texts("passage", passages), lesson)}
        if self.settings.of == "sentences":
            texts = [sentence.text for sentence in require(records, Sentence, self)]
            return {f"{role}.text": (lesson := Texts(role, texts), lesson) for role in on}
        pairs = require(records, ParallelPair, self)
        teacher_texts = None if self.settings.lang is None else [known_side(pair, self.settings.lang) for pair in pairs]
        return {
            name: (texts, texts if teacher_texts is None else Texts("passage", teacher_texts))
            for name, texts in pair_requests(pairs, self.settings.on).items()
        }

    def _rows(self, student: Tensor, texts: Sequence[Text], teacher: Tensor) -> Tensor:
        teacher_vectors = teacher.to(student.device)
        if self.settings.loss == "squares":
            check_paired(student, teacher_vectors, "distillation, student and teacher")
            return (student.float() - teacher_vectors).square().mean(-1)
        numbers: dict[Text, int] = {}
        groups = torch.tensor([numbers.setdefault(text, len(numbers)) for text in texts], dtype=torch.long)
        return distil_contrastive(
            student, teacher_vectors, temperature=self.settings.temperature, groups=groups, reduction="none"
        )

    def _scores(self, lessons: Mapping[str, tuple[Texts, Texts]], vectors: Mapping[str, Tensor]) -> Tensor:
        """The divergence of each question's scores; a passage that comes twice is one candidate."""
        queries, passages = (self._taught(lessons[name][1]) for name in ("queries", "passages"))
        first: dict[Text, int] = {}
        duplicates = torch.tensor([first.setdefault(t, n) != n for n, t in enumerate(lessons["passages"][0].texts)])
        return distil_scores(
            similarities(vectors["queries"], vectors["passages"]) / self.settings.temperature,
            similarities(queries, passages) / (self.settings.teacher_temperature or self.settings.temperature),
            mask=duplicates.expand(len(queries), -1),
            reduction="none",
        )

    @torch.no_grad()
    def _taught(self, texts: Texts) -> Tensor:
        """The teacher's vectors `[texts, dim]`, each distinct text read once."""
        rows: dict[Text, int] = {}
        places = [rows.setdefault(text, len(rows)) for text in texts.texts]
        vectors = self.teacher(list(rows)) if texts.role == "passage" else self.teacher(list(rows), texts.role)
        return vectors[places].float()


def taught_texts(settings: Distillation.Settings, records: Iterable[Any]) -> Iterator[tuple[str, Text]]:
    """The role and text of all that the teacher will be asked for, of all records of a stream."""
    for record in records:
        if settings.of == "questions":
            yield "query", record.question
            yield from (("passage", as_text(passage)) for passage in candidates([record], settings.hard_negatives))
        elif settings.of == "sentences":
            yield from ((role, record.text) for role in roles(settings.on))
        elif settings.lang is None:
            yield from ((role, text) for role in roles(settings.on) for text in (record.source, record.target))
        else:
            yield "passage", known_side(record, settings.lang)


def known_side(pair: ParallelPair, lang: str) -> str:
    """The sentence of a pair that is in the teacher's language; both are: the first."""
    for text, side_lang in ((pair.source, pair.source_lang), (pair.target, pair.target_lang)):
        if side_lang == lang:
            return text
    raise BadInput(
        f"distillation: a pair of '{pair.source_lang}' and '{pair.target_lang}' has no side in the "
        f"teacher's language '{lang}'. Keep pairs that have with data.parallel.langs, or set "
        "objectives.distillation.lang."
    )
