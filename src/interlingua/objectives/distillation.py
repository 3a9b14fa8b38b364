"""Distillation: a multilingual student learns the vectors, or the scores, of a teacher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from interlingua.data.records import ParallelPair
from interlingua.errors import BadInput
from interlingua.objectives.objective import (
    Batch,
    Loss,
    Objective,
    ObjectiveSettings,
    Roles,
    Texts,
    by_language,
    check_paired,
    check_temperature,
    require,
)
from interlingua.objectives.retrieval import info_nce_rows
from interlingua.objectives.semantic import ON, pair_requests, roles
from interlingua.settings import Settings

Teacher = Callable[[list[str]], Tensor]
"""Texts in the teacher's language → its vectors `[texts, dim]`, without a gradient."""
MASKED = torch.finfo(torch.float32).min
"""Not −inf: what is left out then adds 0 · a finite number, also where nothing is left."""


def distil_vectors(source: Tensor, target: Tensor, teacher: Tensor) -> Tensor:
    """Reimers & Gurevych 2020, eq. 1, the mean over pairs and dimensions of (source − teacher)² + (target − teacher)²:
    a sentence in the teacher's language and its translation both go where the teacher puts that sentence.

    Args: all `[pairs, dim]`; no gradient reaches the teacher.
    Returns a float32 scalar; with no pairs, a zero that is connected to the graph.
    """
    rows = distil_vectors_rows(source, target, teacher)
    return rows.mean() if len(rows) else (source.float() + target.float()).sum()


def distil_vectors_rows(source: Tensor, target: Tensor, teacher: Tensor) -> Tensor:
    """`distil_vectors` before its mean over pairs: `[pairs]`."""
    check_paired(source, target, "distillation")
    check_paired(source, teacher, "distillation, student and teacher")
    wanted = teacher.detach().float()
    return (source.float() - wanted).square().mean(-1) + (target.float() - wanted).square().mean(-1)


def distil_contrastive(
    student: Tensor, teacher: Tensor, *, temperature: float = 0.05, groups: Tensor | None = None
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
        A float32 scalar; with no texts, a zero that is connected to the graph.
    """
    rows = distil_contrastive_rows(student, teacher, temperature=temperature, groups=groups)
    return rows.mean() if len(rows) else student.float().sum()


def distil_contrastive_rows(
    student: Tensor, teacher: Tensor, *, temperature: float = 0.05, groups: Tensor | None = None
) -> Tensor:
    """`distil_contrastive` before its mean: `[texts]`."""
    check_paired(student, teacher, "distillation, student and teacher")
    related = None if groups is None else (groups[:, None] == groups[None, :]).to(student.device)
    return info_nce_rows(student, teacher.detach(), temperature=temperature, mask=related)


def distil_scores(student: Tensor, teacher: Tensor, *, temperature: float = 1.0, mask: Tensor | None = None) -> Tensor:
    """The mean over questions of KL(softmax(teacher / τ) ‖ softmax(student / τ)) over each question's candidates
    (ColBERTv2, Santhanam et al. 2022; Translate-Distill, Yang et al. 2024).

    Args:
        student, teacher: scores `[questions, candidates]`; no gradient reaches the teacher.
        mask: `[questions, candidates]` bool, True = leave this candidate out.

    Returns:
        A float32 scalar, 0 where the student's differences are the teacher's; with no questions, a zero that is
        connected to the graph.
    """
    rows = distil_scores_rows(student, teacher, temperature=temperature, mask=mask)
    return rows.mean() if len(rows) else student.float().sum()


def distil_scores_rows(
    student: Tensor, teacher: Tensor, *, temperature: float = 1.0, mask: Tensor | None = None
) -> Tensor:
    """`distil_scores` before its mean: `[questions]`; a question whose candidates are all left out has 0."""
    check_temperature(temperature)
    if student.ndim != 2 or student.shape != teacher.shape or (mask is not None and mask.shape != student.shape):
        raise BadInput(
            "distillation of scores: student, teacher and mask must all be [questions, candidates]; "
            f"got {list(student.shape)}, {list(teacher.shape)}"
            f"{'' if mask is None else f', {list(mask.shape)}'}."
        )
    left_out = torch.zeros_like(student, dtype=torch.bool) if mask is None else mask.to(student.device)
    scores, wanted = (
        part.float().div(temperature).masked_fill(left_out, MASKED).log_softmax(-1)
        for part in (student, teacher.detach().to(student.device))
    )
    return (wanted.exp() * (wanted - scores)).sum(-1)


class TeacherSpec(Settings):
    """The teacher of a recipe, where it is more than a name."""

    model: str = Field(description="a folder or name, or package:name/folder")
    vectors: str | None = Field(None, description="a folder for its vectors, for several runs; else the run's own")


class Distillation(Objective):
    """`distil_vectors`, or `distil_contrastive` for both sides, on the pairs of a parallel stream. Each pair has a side
    in the teacher's language. The constructor takes a teacher that reads: a `Teacher`."""

    class Settings(ObjectiveSettings):
        """Whose vectors are learned, and how."""

        teacher: str | TeacherSpec | Teacher = Field(
            description="a model's folder or name, or `{model: …, vectors: FOLDER}`; frozen, no part of what is saved. "
            "Vectors longer than the student's are cut to their principal components"
        )
        loss: Literal["squares", "contrast"] = Field("squares", description="the first form, or the second")
        temperature: float = Field(0.05, gt=0, description="τ of `contrast`")
        on: Roles = Field("passage", description=ON)
        lang: str = Field("en", description="the teacher's language; a pair without a side in it is an error")

    settings: Settings
    streams = ("parallel",)

    def __init__(self, *, teacher: Teacher, **options: Any) -> None:
        super().__init__(teacher=teacher, **options)
        self.teacher = teacher

    def requests(self, batch: Batch) -> dict[str, Texts]:
        return pair_requests(require(batch["parallel"], ParallelPair, self), self.settings.on)

    def loss(self, batch: Batch, vectors: Mapping[str, Tensor]) -> Loss:
        pairs = require(batch["parallel"], ParallelPair, self)
        known = [known_side(pair, self.settings.lang) for pair in pairs]
        student = vectors[f"{roles(self.settings.on)[0]}.source"]
        wanted = self._taught(known).to(student.device) if pairs else torch.zeros_like(student)
        rows = torch.stack(
            [
                self._rows(vectors[f"{role}.source"], vectors[f"{role}.target"], wanted, known)
                for role in roles(self.settings.on)
            ]
        ).mean(0)
        return Loss(rows.mean() if pairs else rows.sum(), by_language([pair.lang for pair in pairs], rows))

    def _rows(self, source: Tensor, target: Tensor, wanted: Tensor, known: Sequence[str]) -> Tensor:
        if self.settings.loss == "squares":
            return distil_vectors_rows(source, target, wanted)
        numbers: dict[str, int] = {}
        groups = torch.tensor([numbers.setdefault(text, len(numbers)) for text in known], dtype=torch.long)
        return torch.stack(
            [
                distil_contrastive_rows(side, wanted, temperature=self.settings.temperature, groups=groups)
                for side in (source, target)
            ]
        ).mean(0)

    @torch.no_grad()
    def _taught(self, texts: Sequence[str]) -> Tensor:
        """The teacher's vectors `[texts, dim]`, each distinct text read once."""
        rows: dict[str, int] = {}
        places = [rows.setdefault(text, len(rows)) for text in texts]
        return self.teacher(list(rows))[places].float()


def known_side(pair: ParallelPair, lang: str) -> str:
    """The sentence of a pair that is in the teacher's language; both are: the first."""
    for text, of in ((pair.source, pair.source_lang), (pair.target, pair.target_lang)):
        if of == lang:
            return text
    raise BadInput(
        f"distillation: a pair of '{pair.source_lang}' and '{pair.target_lang}' has no side in the "
        f"teacher's language '{lang}'. Keep pairs that have with data.parallel.langs, or set "
        "objectives.distillation.lang."
    )
