"""The frozen model that a student learns from."""

from __future__ import annotations

import torch
from torch import Tensor

from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.models.loading import Model
from interlingua.objectives.distillation import Teacher


def load_teacher(name: str, student: Model) -> Teacher:
    """What gives the vectors of the model `name` (a folder or name), on the student's device, with the prompt and the
    calibration of passages. Raises InterlinguaError where they are not as long as the student's."""
    teacher = DualEncoder.load(name, device=str(student.device))
    if teacher.dim != student.dim:
        raise InterlinguaError(f"objectives.distillation.teacher: the vectors of {name} have {teacher.dim} numbers, "
                               f"those of the model {student.dim}. They must have as many.")

    def vectors(texts: list[str]) -> Tensor:
        found = teacher.encode_document(texts, convert_to_tensor=True, show_progress_bar=False)
        return torch.as_tensor(found)

    return vectors
