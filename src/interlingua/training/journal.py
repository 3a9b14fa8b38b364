"""The log of a run: one JSON object a line, TensorBoard where it is installed, a short line for the person."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from interlingua.files import atomic_write, sync
from interlingua.progress import say
from interlingua.training.step import Report


class Journal:
    """Writes `log.jsonl` and TensorBoard events into the run folder.

    On a resume from step s, what an interrupted run had logged after s is dropped: it will be logged again. What it had
    logged up to s must be there: `sync` before the checkpoint of s.
    """

    def __init__(self, folder: Path, start: int, tensorboard: bool = True) -> None:
        self.path = folder / "log.jsonl"
        if self.path.exists():
            kept = [line for line in self.path.read_text(encoding="utf-8").splitlines() if _step(line) <= start]
            with atomic_write(self.path) as stream:
                stream.writelines(f"{line}\n" for line in kept)
        self.board: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return
            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)

    def write(self, step: int, values: dict[str, float]) -> None:
        """One line of numbers."""
        with open(self.path, "a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": step, **values}) + "\n")
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, step)

    def sync(self) -> None:
        """Have the disk hold the lines written so far."""
        sync([self.path, self.path.parent])

    def close(self) -> None:
        """Flush TensorBoard."""
        if self.board is not None:
            self.board.close()


def _step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf  # a line cut by a kill


def flatten(reports: dict[str, Report]) -> dict[str, float]:
    """`{"retrieval/loss": …, "retrieval/gradient_norm": …, "semantic/lang/de": …}`."""
    flat = {}
    for name, report in reports.items():
        flat[f"{name}/loss"] = report.loss
        if report.gradient_norm is not None:
            flat[f"{name}/gradient_norm"] = report.gradient_norm
        flat.update({f"{name}/{key}": value for key, value in report.details.items()})
    return flat


def announce(step: int, steps: int, reports: dict[str, Report], per_second: float) -> None:
    """The person's line: each loss beside what chance (or the floor) would give."""
    parts = []
    for name, report in reports.items():
        beside = ""
        if "excess" in report.details:
            beside = f" (ln 2 + {report.details['excess']:.5f})"
        elif "ln_candidates" in report.details:
            beside = f" (chance {report.details['ln_candidates']:.2f})"
        parts.append(f"{name} {report.loss:.4f}{beside}")
    say(f"step {step:,}/{steps:,}  {'  '.join(parts)}  {per_second:.1f} steps/s")
