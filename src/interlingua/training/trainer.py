"""The loop: draw a batch from every stream, add up the gradients of the objectives, take a step, and be ready to be
killed at any moment. What is trained (recipe, files, models) is put together in `build.py`."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from interlingua.data.permutation import key_of
from interlingua.data.stream import Stream
from interlingua.models.loading import Model
from interlingua.objectives.objective import Batch, Objective
from interlingua.progress import say
from interlingua.training.checkpoint import load_checkpoint, newest, save_checkpoint
from interlingua.training.encoding import Chunking
from interlingua.training.journal import Journal, announce, flatten
from interlingua.training.monitor import alarm, space
from interlingua.training.optimizer import Optimizer
from interlingua.training.processes import Processes
from interlingua.training.recipe import TrainingSpec
from interlingua.training.step import Report, Term, backward, groups, merged

Validate = Callable[[Model], dict[str, float]]


class Stopped(Exception):
    """A person or the system asked for the end; a checkpoint was written."""


@dataclass(slots=True)
class Trainer:
    """Everything one run needs. `run()` trains from the newest checkpoint in `folder` (or the start) to the end.

    validate: called every `spec.validate_every` steps; its first number (lower is better) chooses `folder/best`.
    """

    model: Model
    terms: list[Term]
    streams: dict[str, Stream[Any]]
    optimizer: Optimizer
    spec: TrainingSpec
    folder: Path
    processes: Processes
    chunking: Chunking
    seed: int = 0
    validate: Validate | None = None
    best: float = field(default=float("inf"))

    def run(self) -> Model:
        """Train to the end; the model with its last weights. Raises `Stopped` on Ctrl-C or SIGTERM."""
        self.model.train()
        start = self._resume()
        share = self.spec.share_forward and self.spec.step_mode == "accumulate" and self.spec.mix is None
        parts = groups(self.terms, self.streams, share)
        journal = Journal(self.folder, start, self.spec.tensorboard) if self.processes.first else None
        try:
            self._loop(parts, start, journal)
        finally:
            if journal is not None:
                journal.close()
        self.model.eval()
        return self.model

    def _loop(self, parts: list[list[Term]], start: int, journal: Journal | None) -> None:
        since, before = time.monotonic(), start
        with stop_requested() as stop:
            for step in range(start, self.spec.steps):
                last = step + 1 == self.spec.steps
                measure = last or step == 0 or (step + 1) % self.spec.log_every == 0
                # dropout of a step depends on the seed, the step and the process: nothing of it needs saving
                torch.manual_seed(key_of(self.seed, "step", step, self.processes.rank))
                reports, norm = self._step(self._chosen(parts, step), step, measure)
                if measure and journal is not None:
                    numbers = space(reports)
                    journal.write(step + 1, {**flatten(reports), **numbers, "gradient_norm": norm,
                                             "lr": self.optimizer.rate(step)})
                    now = time.monotonic()
                    announce(step + 1, self.spec.steps, reports, (step + 1 - before) / max(now - since, 1e-9))
                    since, before = now, step + 1
                    for warning in (alarm(numbers), *(report.warning for report in reports.values())):
                        if warning is not None:
                            say(f"step {step + 1:,}: {warning}")
                self._validate(step + 1, last, journal)
                # every process must leave after the same step, whichever the signal reached
                stopping = self.processes.total(stop()) > 0
                if stopping or last or (step + 1) % self.spec.checkpoint_every == 0:
                    self._save(step + 1, journal)
                    if stopping and not last:
                        raise Stopped(f"stopped after step {step + 1:,}; the same command goes on from there.")

    def _chosen(self, parts: list[list[Term]], step: int) -> list[list[Term]]:
        """The groups of this step: all of them, or with `mix` one objective drawn by the seed and the step."""
        if self.spec.mix is None:
            return parts
        shares = [self.spec.mix[term.name] for term in self.terms]
        random = np.random.default_rng(key_of(self.seed, "mix", step))
        return [[self.terms[int(random.choice(len(shares), p=np.array(shares) / sum(shares)))]]]

    def _step(self, parts: list[list[Term]], step: int, measure: bool) -> tuple[dict[str, Report], float]:
        """One step of the optimizer (`alternate`: one for each group) on the mean gradient of its batches."""
        read = {name for group in parts for term in group for name in term.streams(self.streams)}
        batches: list[Batch] = [{name: next(self.streams[name]) for name in self.streams if name in read}
                                for _ in range(self.spec.accumulate)]
        found: list[dict[str, Report]] = [{} for _ in batches]
        norm = 0.0
        for turn in [[group] for group in parts] if self.spec.step_mode == "alternate" else [parts]:
            for number, batch in enumerate(batches):
                for group in turn:
                    found[number] |= backward(group, self.model, batch, step * len(batches) + number, self.chunking,
                                              self.processes, measure and number == len(batches) - 1,
                                              self.spec.balance_gradients)
            self._add_up([term for group in turn for term in group])
            for parameter in self.optimizer.parameters if len(batches) > 1 else ():
                if parameter.grad is not None:
                    parameter.grad /= len(batches)
            norm = self.optimizer.step(step)
        for group in parts:
            for term in group:
                if isinstance(term.objective, Objective):
                    term.objective.after_step()
        return merged(found), norm

    def _add_up(self, terms: list[Term]) -> None:
        """Sum over processes. A contrastive objective's own gradient is computed whole on every process already."""
        shared = [*self.model.parameters(), *(p for term in terms if not hasattr(term.objective, "requests")
                                              for p in term.objective.parameters())]
        unique = list({id(p): p for p in shared}.values())
        for parameter, gradient in zip(unique, self.processes.sum(unique, [p.grad for p in unique]), strict=True):
            parameter.grad = gradient

    def _modules(self) -> dict[str, nn.Module]:
        return {"model": self.model, **{f"objectives.{term.name}": term.objective for term in self.terms}}

    def _resume(self) -> int:
        checkpoint = newest(self.folder / "checkpoints")
        if checkpoint is None:
            return 0
        state = load_checkpoint(checkpoint, self._modules(), self.optimizer, self.streams, self.processes.device)
        self.best = state["best"] if state["best"] is not None else float("inf")
        if self.processes.first:
            say(f"{self.folder}: going on after step {state['step']:,} of {self.spec.steps:,}")
        return int(state["step"])

    def _save(self, step: int, journal: Journal | None) -> None:
        if journal is not None:
            journal.sync()
        if self.processes.first:
            extra = {"best": None if self.best == float("inf") else self.best}
            save_checkpoint(self.folder / "checkpoints", step, self._modules(), self.optimizer, self.streams, extra,
                            self.spec.keep_checkpoints)
        self.processes.wait()

    def _validate(self, step: int, last: bool, journal: Journal | None) -> None:
        if self.validate is None or not (last or step % self.spec.validate_every == 0):
            return
        self.model.eval()
        numbers = self.validate(self.model)
        self.model.train()
        score = next(iter(numbers.values()))
        if score < self.best:
            self.best = score
            if self.processes.first:
                self.model.save(self.folder / "best")
        if journal is not None:
            journal.write(step, {f"validation/{name}": value for name, value in numbers.items()})
            say(f"step {step:,}: validation {'  '.join(f'{k} {v:.4f}' for k, v in numbers.items())}")


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Within the block Ctrl-C and SIGTERM set a flag instead of breaking a step in two; a second one breaks."""
    asked: list[int] = []

    def ask(number: int, _frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        say("stopping after this step (once more to stop at once)")

    try:
        before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: leave the signals alone
        before = {}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
