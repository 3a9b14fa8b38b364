"""The training loop: batches, gradients, steps, validation, log, resumption."""

from __future__ import annotations

import json
import logging
import math
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

from interlingua.data.store import Store
from interlingua.data.stream import Permutation, Stream, key_of
from interlingua.errors import BadInput
from interlingua.files import atomic_write, sync
from interlingua.models.encode import TokenVectors, embed_in_batches
from interlingua.models.late_interaction import LateInteractionEncoder, Model, embed_rows
from interlingua.objectives import LateInteraction, Retrieval
from interlingua.objectives.geometry import alignment, effective_rank, mean_pairwise_cosine, uniformity
from interlingua.objectives.objective import AnyObjective, Batch, TokenObjective, loss_of
from interlingua.training.checkpoint import load_checkpoint, newest, save_checkpoint
from interlingua.training.encoding import Chunking
from interlingua.training.optimizer import Optimizer
from interlingua.training.processes import Processes
from interlingua.training.recipe import TrainingSpec
from interlingua.training.step import Report, backward, groups, merged
from interlingua.training.weighted import WeightedObjective

logger = logging.getLogger(__name__)


class Journal:
    """Writes `log.jsonl` and TensorBoard events into the run folder.

    On a resume from step s, what an interrupted run had logged after s is dropped: it will be logged again. What it had
    logged up to s must be there: `sync` before the checkpoint of s.
    """

    def __init__(self, folder: Path, start: int, tensorboard: bool = True) -> None:
        self.path = folder / "log.jsonl"
        if self.path.exists():
            lines = [line for line in self.path.read_text(encoding="utf-8").splitlines() if _step(line) <= start]
            with atomic_write(self.path) as stream:
                stream.writelines(f"{line}\n" for line in lines)
        self.board: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                return
            self.board = SummaryWriter(str(folder / "tensorboard"), purge_step=start + 1)

    def write(self, step: int, values: dict[str, float]) -> None:
        """One line of numbers. One that is not finite, the gradient norm of a step that overflowed, is left out."""
        values = {name: value for name, value in values.items() if math.isfinite(value)}
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
    logger.info(f"step {step:,}/{steps:,}  {'  '.join(parts)}  {per_second:.1f} steps/s")


SAMPLE = 512
"""Rows looked at: pairwise numbers cost the square of it."""

COLLAPSED_COSINE = 0.99
COLLAPSED_RANK = 2.0


def space(reports: dict[str, Report]) -> dict[str, float]:
    """Numbers of the vectors of a measured step: of pairs (alignment), and of passages or else sentences."""
    vectors = {name: rows[:SAMPLE] for report in reports.values() for name, rows in report.vectors.items()}
    numbers: dict[str, float] = {}
    source = next((name for name in vectors if name.endswith(".source")), None)
    if source is not None and len(vectors[source]):
        target = vectors[source.replace(".source", ".target")]
        numbers["space/alignment"] = float(alignment(vectors[source], target))
    sample = next(
        (rows for name, rows in vectors.items() if name in ("passages", "targets") or name.endswith(".target")), None
    )
    if sample is not None and len(sample) > 2:
        numbers["space/uniformity"] = float(uniformity(sample))
        numbers["space/mean_cosine"] = float(mean_pairwise_cosine(sample))
        numbers["space/effective_rank"] = float(effective_rank(sample))
    return numbers


def alarm(numbers: dict[str, float]) -> str | None:
    """A sentence when the vectors have collapsed, saying what to try."""
    cosine, rank = numbers.get("space/mean_cosine", 0.0), numbers.get("space/effective_rank", torch.inf)
    if cosine < COLLAPSED_COSINE and rank > COLLAPSED_RANK:
        return None
    return (
        f"The vectors have collapsed (mean cosine {cosine:.3f}, effective rank {rank:.1f}): texts can no longer be "
        "told apart. Lower optimizer.lr, objectives.language.weight if there is one, and the temperature of the "
        "contrastive losses (0.05). At the first step of a bare pretrained model this is no alarm yet."
    )


def retrieval_nll(
    objective: Retrieval | LateInteraction, store: Store[Any], limit: int, batch: int
) -> Callable[[Model], dict[str, float]]:
    """A function from a model to `{"nll": mean loss}` over a seeded sample of up to `limit` questions.

    Batches are of one size: a last one that is not full is left out, its fewer candidates would make the loss smaller.
    The temperature is the starting one for every checkpoint, and no negative is left out by the model's own scores,
    so that the numbers of a run can be compared. Late interaction is followed by its in-batch loss also where it trains
    on pairs: questions without negatives then count too.
    """
    count = min(limit, len(store))
    order = Permutation(len(store), key_of("validation"))
    questions = [store[order[i]] for i in range(count - count % batch if count >= batch else count)]
    names = ("temperature", "hard_negatives", "mask_false_negatives")
    options = {name: getattr(objective.settings, name) for name in names}
    followed: AnyObjective = (
        LateInteraction(contrast="in_batch", **options)
        if isinstance(objective, LateInteraction)
        else Retrieval(similarity=objective.settings.similarity, **options)
    )

    def validate(model: Model) -> dict[str, float]:
        losses = []
        for start in range(0, len(questions), batch):
            records = {"questions": questions[start : start + batch]}
            vectors = {
                name: embed(model, texts.role, texts.texts) for name, texts in followed.requests(records).items()
            }
            losses.append(loss_of(followed, records, vectors).value.item())
        return {"nll": sum(losses) / len(losses)}

    return validate


@torch.no_grad()
def embed(model: Model, role: str, texts: list[Any], tokens: int = 16_384) -> torch.Tensor | TokenVectors:
    """Vectors in order, without a graph: `[texts, dim]`, or of a late-interaction model `TokenVectors`."""
    encoder = model.query if role == "query" else model.passage
    ids = encoder.tokenize(texts, role)
    vectors = embed_in_batches(ids, lambda rows: embed_rows(encoder, rows, role), tokens)
    return vectors if isinstance(encoder, LateInteractionEncoder) else vectors.vectors


Validate = Callable[[Model], dict[str, float]]


class Stopped(KeyboardInterrupt):
    """A person or the system asked for the end; a checkpoint was written."""


@dataclass(slots=True)
class Trainer:
    """Everything one run needs. `run()` trains from the newest checkpoint in `folder` (or the start) to the end.

    validate: called every `spec.validate_every` steps; its first number (lower is better) chooses `folder/best`.
    """

    model: Model
    objectives: list[WeightedObjective]
    streams: dict[str, Stream[Any]]
    optimizer: Optimizer
    spec: TrainingSpec
    folder: Path
    processes: Processes
    chunking: Chunking
    seed: int = 0
    validate: Validate | None = None
    best: float = field(default=float("inf"))
    held_out: str = ""
    """The digest of the questions that `validate` reads."""

    def run(self) -> Model:
        """Train to the end; the model with its last weights. Raises `Stopped` on Ctrl-C or SIGTERM."""
        if self.spec.own_batches and self.spec.accumulate % self.processes.count:
            raise BadInput(
                f"training.accumulate is {self.spec.accumulate}, and {self.processes.count} processes read batches of "
                "their own: it must be a multiple of their number."
            )
        self.model.train()
        start = self._resume()
        share = self.spec.share_forward and self.spec.step_mode == "accumulate" and self.spec.objective_sampling is None
        parts = groups(self.objectives, self.streams, share)
        journal = Journal(self.folder, start, self.spec.tensorboard) if self.processes.first else None
        try:
            self._loop(parts, start, journal)
        finally:
            if journal is not None:
                journal.close()
        self.model.eval()
        return self.model

    def _loop(self, parts: list[list[WeightedObjective]], start: int, journal: Journal | None) -> None:
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
                    scale = {} if self.chunking.loss_scale is None else {"loss_scale": self.chunking.scale}
                    rate = self.optimizer.rate(step)
                    journal.write(step + 1, {**flatten(reports), **numbers, "gradient_norm": norm, "lr": rate, **scale})
                    now = time.monotonic()
                    announce(step + 1, self.spec.steps, reports, (step + 1 - before) / max(now - since, 1e-9))
                    since, before = now, step + 1
                    for warning in (alarm(numbers), *(report.warning for report in reports.values())):
                        if warning is not None:
                            logger.warning(f"step {step + 1:,}: {warning}")
                self._validate(step + 1, last, journal)
                # every process must leave after the same step, whichever the signal reached
                stopping = self.processes.total(stop()) > 0
                if stopping or last or (step + 1) % self.spec.checkpoint_every == 0:
                    self._save(step + 1, journal)
                    if stopping and not last:
                        raise Stopped(f"stopped after step {step + 1:,}; the same command goes on from there.")

    def _chosen(self, parts: list[list[WeightedObjective]], step: int) -> list[list[WeightedObjective]]:
        """The groups of this step: all, or with `objective_sampling` one objective drawn by the seed and the step."""
        if self.spec.objective_sampling is None:
            return parts
        shares = [self.spec.objective_sampling[weighted.name] for weighted in self.objectives]
        random = np.random.default_rng(key_of(self.seed, "mix", step))  # its former name: runs go on as they began
        return [[self.objectives[int(random.choice(len(shares), p=np.array(shares) / sum(shares)))]]]

    def _step(self, parts: list[list[WeightedObjective]], step: int, measure: bool) -> tuple[dict[str, Report], float]:
        """One step of the optimizer (`alternate`: one for each group) on the mean gradient of its batches."""
        names = {name for group in parts for weighted in group for name in weighted.streams(self.streams)}
        batches: list[Batch] = [
            {name: next(self.streams[name]) for name in self.streams if name in names}
            for _ in range(self.spec.accumulate)
        ]
        own, group_of = self.spec.own_batches and self.processes.count > 1, self.processes
        numbers = list(range(len(batches)))
        if own:  # all draw the same batches, so that their streams stay together; each reads every so many of them
            numbers, group_of = numbers[self.processes.rank :: self.processes.count], self.processes.alone()
        batch_reports: list[dict[str, Report]] = [{} for _ in numbers]
        norm = 0.0
        for turn in [[group] for group in parts] if self.spec.step_mode == "alternate" else [parts]:
            for place, number in enumerate(numbers):
                for group in turn:
                    batch_reports[place] |= backward(
                        group,
                        self.model,
                        batches[number],
                        step * len(batches) + number,
                        self.chunking,
                        group_of,
                        measure and place == len(numbers) - 1,
                        self.spec.balance_gradients,
                    )
            self._add_up([weighted for group in turn for weighted in group], own)
            for parameter in self.optimizer.parameters if len(batches) > 1 else ():
                if parameter.grad is not None:
                    parameter.grad /= len(batches)
            norm = self.optimizer.step(step)
        for group in parts:
            for weighted in group:
                if own:
                    weighted.objective.exchange(self.processes.rows)
                weighted.objective.after_step()
        reports = merged(batch_reports)
        if own and measure:
            for report in reports.values():
                report.loss = self.processes.total(report.loss) / self.processes.count
        return reports, norm

    def _add_up(self, objectives: list[WeightedObjective], own: bool) -> None:
        """Sum over processes. Where they share batches, a contrastive objective's own gradient is computed whole on
        every process already."""
        shared = [
            *self.model.parameters(),
            *(
                p
                for weighted in objectives
                if own or isinstance(weighted.objective, TokenObjective)
                for p in weighted.objective.parameters()
            ),
        ]
        unique = list({id(p): p for p in shared}.values())
        for parameter, gradient in zip(unique, self.processes.sum(unique, [p.grad for p in unique]), strict=True):
            parameter.grad = gradient

    def _modules(self) -> dict[str, nn.Module]:
        return {
            "model": self.model,
            **{f"objectives.{weighted.name}": weighted.objective for weighted in self.objectives},
        }

    def _resume(self) -> int:
        checkpoint = newest(self.folder / "checkpoints")
        if checkpoint is None:
            return 0
        state = load_checkpoint(checkpoint, self._modules(), self.optimizer, self.streams, self.processes.device)
        if state.get("held_out", self.held_out) != self.held_out:  # older checkpoints do not say it
            raise BadInput(
                "validation.questions: holds others than when the run began, and their losses cannot be compared. "
                "Continue with those of the start, or start anew with another --out."
            )
        self.best = state["best"] if state["best"] is not None else float("inf")
        if self.chunking.loss_scale is not None and "loss_scale" in state:
            self.chunking.loss_scale.value, self.chunking.loss_scale.sound = state["loss_scale"]
        if self.processes.first:
            logger.info(f"{self.folder}: going on after step {state['step']:,} of {self.spec.steps:,}")
        return int(state["step"])

    def _save(self, step: int, journal: Journal | None) -> None:
        if journal is not None:
            journal.sync()
        if self.processes.first:
            best = None if self.best == float("inf") else self.best
            extra: dict[str, Any] = {"best": best, "held_out": self.held_out}
            if (scale := self.chunking.loss_scale) is not None:
                extra["loss_scale"] = [scale.value, scale.sound]
            save_checkpoint(
                self.folder / "checkpoints",
                step,
                self._modules(),
                self.optimizer,
                self.streams,
                extra,
                self.spec.keep_checkpoints,
            )
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
            logger.info(f"step {step:,}: validation {'  '.join(f'{k} {v:.4f}' for k, v in numbers.items())}")


@contextmanager
def stop_requested() -> Iterator[Callable[[], bool]]:
    """Within the block Ctrl-C and SIGTERM set a flag instead of breaking a step in two; a second one breaks."""
    signals: list[int] = []

    def ask(number: int, _frame: object) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)
        logger.info("stopping after this step (once more to stop at once)")

    try:
        handlers = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: leave the signals alone
        handlers = {}
    try:
        yield lambda: bool(signals)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
