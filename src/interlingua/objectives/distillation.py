"""Distillation: a multilingual student learns the vectors, or the scores, of a teacher."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError
from interlingua.objectives.objective import Batch, Loss, Objective, Texts, by_language, require
from interlingua.objectives.semantic import pair_requests, roles
from interlingua.objectives.similarity import check_paired, check_temperature

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


def distil_scores_rows(student: Tensor, teacher: Tensor, *, temperature: float = 1.0,
                       mask: Tensor | None = None) -> Tensor:
    """`distil_scores` before its mean: `[questions]`; a question whose candidates are all left out has 0."""
    check_temperature(temperature)
    if student.ndim != 2 or student.shape != teacher.shape or (mask is not None and mask.shape != student.shape):
        raise InterlinguaError("distillation of scores: student, teacher and mask must all be [questions, candidates]; "
                               f"got {list(student.shape)}, {list(teacher.shape)}"
                               f"{'' if mask is None else f', {list(mask.shape)}'}.")
    left_out = torch.zeros_like(student, dtype=torch.bool) if mask is None else mask.to(student.device)
    scores, wanted = (part.float().div(temperature).masked_fill(left_out, MASKED).log_softmax(-1)
                      for part in (student, teacher.detach().to(student.device)))
    return (wanted.exp() * (wanted - scores)).sum(-1)


class Distillation(Objective):
    """`distil_vectors` on the pairs of a parallel stream, of which one side is in the teacher's language.

    Args:
        teacher: what the vectors come from: it reads each distinct sentence in its language once a step. In a recipe, a
            model's folder or name; its vectors must be as long as the student's.
        on: which encoder reads the sentences; "both" averages the losses of the two encoders.
        lang: the teacher's language.
    """

    streams = ("parallel",)

    def __init__(self, *, teacher: Teacher, on: Literal["passage", "query", "both"] = "passage",
                 lang: str = "en") -> None:
        super().__init__()
        self.teacher, self.on, self.lang = teacher, on, lang

    def requests(self, batch: Batch) -> dict[str, Texts]:
        return pair_requests(require(batch["parallel"], ParallelPair, self), self.on)

    def loss(self, batch: Batch, vectors: Mapping[str, Tensor]) -> Loss:
        pairs = batch["parallel"]
        known = [self._known(pair) for pair in pairs]
        student = vectors[f"{roles(self.on)[0]}.source"]
        wanted = self._taught(known).to(student.device) if pairs else torch.zeros_like(student)
        rows = torch.stack([distil_vectors_rows(vectors[f"{role}.source"], vectors[f"{role}.target"], wanted)
                            for role in roles(self.on)]).mean(0)
        return Loss(rows.mean() if pairs else rows.sum(), by_language([pair.lang for pair in pairs], rows))

    def _known(self, pair: ParallelPair) -> str:
        for text, lang in ((pair.source, pair.source_lang), (pair.target, pair.target_lang)):
            if lang == self.lang:
                return text
        raise InterlinguaError(f"distillation: a pair of '{pair.source_lang}' and '{pair.target_lang}' has no side in "
                               f"the teacher's language '{self.lang}'. Keep pairs that have with data.parallel.langs, "
                               "or set objectives.distillation.lang.")

    @torch.no_grad()
    def _taught(self, texts: Sequence[str]) -> Tensor:
        """The teacher's vectors `[texts, dim]`, each distinct text read once."""
        rows: dict[str, int] = {}
        places = [rows.setdefault(text, len(rows)) for text in texts]
        return self.teacher(list(rows))[places].float()
