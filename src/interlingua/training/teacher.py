"""The frozen model that a student learns from: its vectors of all texts it is asked for, before training begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from interlingua.data.store import Store
from interlingua.errors import InterlinguaError
from interlingua.models.dual import DualEncoder
from interlingua.objectives.distillation import known_side
from interlingua.training.processes import Processes
from interlingua.training.teacher_vectors import TeacherVectors


class TeacherSpec(BaseModel):
    """`objectives.distillation.teacher`, where it is more than a name."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(description="a folder or name, or package:name/folder")
    vectors: str | None = Field(None, description="a folder for its vectors, for several runs; else the run's own")


def learn_from(spec: str | TeacherSpec, pairs: Store[Any], lang: str, dim: int, out: Path,
               processes: Processes) -> TeacherVectors:
    """The vectors of `spec`'s model, with the prompt and the calibration of passages, for the side in `lang` of all
    `pairs`, in `dim` dimensions; kept in the folder that the spec names, or under `out`."""
    if isinstance(spec, str):
        spec = TeacherSpec(model=spec, vectors=None)
    folder = Path(spec.vectors) if spec.vectors else out / "data" / "teacher"
    made: dict[str, Any] | None = None
    if processes.first:
        teacher = DualEncoder.load(spec.model, device=str(processes.device))
        made = TeacherVectors.build(folder, teacher, (known_side(pairs[number], lang) for number in range(len(pairs))))
    processes.wait()
    vectors = TeacherVectors(folder, dim, processes.device)
    if made is not None and vectors.about != made:
        raise InterlinguaError(f"{folder}: another run has put other vectors there just now. Give each run a folder of "
                               "its own (objectives.distillation.teacher.vectors).")
    return vectors
