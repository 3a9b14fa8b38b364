"""How many models a table trains, and what that and measuring them costs, estimated: nothing of it was measured."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from interlingua.experiments.catalogue import Catalogue, HubModel
from interlingua.experiments.run import Reproduction
from interlingua.training.backbones import Backbone
from interlingua.training.weighted import training_digest

logger = logging.getLogger(__name__)

MARK = "{data}"
QUESTION, SENTENCE = 20, 40
"""Subwords of a question and of a sentence, assumed."""
PASSAGE = 180
"""Subwords of a training passage with its title, assumed."""
SPEED = 110e12
"""Useful operations a second: an A100 (312e12 in bfloat16) at 35%."""


def trainings(work: Reproduction) -> list[str]:
    """How many models are trained, after sharing, and which of them are there."""
    rows = work.trained_rows()
    recipes = {digest(work, row, seed): (row, seed) for row in rows for seed in range(1, work.seeds + 1)}
    total, done = len(rows) * work.seeds, 0
    for row, seed in recipes.values():
        done += (work.run_folder(row, seed) / "model").exists()
    lines = [
        f"Trainings: {len(rows)} rows × {work.seeds} seed(s) = {total}; {total - len(recipes)} shared between rows; "
        f"{done} done before by this or another table in {work.out}; {len(recipes) - done} left."
    ]
    start = work.start_folder()
    if start is not None:
        lines.append(f"A common start: {start} ({'there' if start.exists() else 'trained first'}).")
    return lines


def digest(work: Reproduction, row: str, seed: int) -> str:
    """Equal for trainings that are shared. The model that a row comes after counts by how it is trained, as it may lie
    in another table's folder."""
    after = work.table.rows[row].after
    start = work.start_folder() if after is None else Path(digest(work, after, seed))
    return training_digest(work.table.recipe(row, work.scale, work.data, seed, start))


def costs(work: Reproduction, catalogue: Catalogue, read: Sequence[str], fetched: Sequence[str]) -> list[str]:
    """Memory, time and disk of each row of one scale, with the arithmetic. `read` and `fetched` are what it needs."""
    lines = [
        f"Cost a training (estimated: {QUESTION} subwords a question, {PASSAGE} a passage, {SENTENCE} a sentence, "
        f"{SPEED / 1e12:.0f} TFLOP/s, an A100 at 35%):"
    ]
    test_sets = evaluated(catalogue, read, fetched)
    groups: dict[str, list[str]] = {}
    for row in work.trained_rows():
        estimate = training_cost(work, row, catalogue)
        if estimate is None:
            details = ["not estimated: the backbone is no model of the hub that is known here"]
        else:
            details = estimate.lines
            if work.table.rows[row].shown and (cost := evaluation_cost(work, row, catalogue, test_sets)) is not None:
                details = [*details, cost.line]
        groups.setdefault("\n".join(f"    {line}" for line in details), []).append(row)
    return [*lines, *(f"- {'; '.join(rows)}:\n{text}" for text, rows in groups.items())]


def in_all(parts: Sequence[tuple[Reproduction, Sequence[str], Sequence[str]]], catalogue: Catalogue) -> str:
    """The cost of a whole table, what rows and scales share counted once. A part is a scale and what it needs."""
    by_digest: dict[str, Training | None] = {}
    evaluations: list[Evaluation] = []
    for work, read, fetched in parts:
        test_sets = evaluated(catalogue, read, fetched)
        for seed in range(1, work.seeds + 1):
            by_digest |= {digest(work, row, seed): training_cost(work, row, catalogue) for row in work.trained_rows()}
        for row in work.rows():
            if work.table.rows[row].shown and (cost := evaluation_cost(work, row, catalogue, test_sets)) is not None:
                evaluations += [cost] * work.seeds
    estimates = [one for one in by_digest.values() if one is not None]
    if not estimates and not evaluations:
        return "In all: not estimated."
    vectors = max((one.vectors for one in evaluations), default=0.0)
    items = [
        f"{len(by_digest)} training{'s' if len(by_digest) != 1 else ''}",
        hours(sum(one.hours for one in estimates)),
        f"{max((one.memory for one in estimates), default=0.0) / 2**30:,.0f} GiB of GPU memory for the largest",
        f"{sum(one.disk for one in estimates) / 2**30:,.0f} GiB of disk",
        f"{len(evaluations)} evaluation{'s' if len(evaluations) != 1 else ''}",
        hours(sum(one.hours for one in evaluations)),
        f"{vectors / 2**30:,.0f} GiB of vectors on the disk meanwhile",
    ]
    unknown = len(by_digest) - len(estimates)
    note = f"; {unknown} of the trainings not estimated" if unknown else ""
    return f"In all: {', '.join(items)}{note}. Mining and calibration are not counted."


def hours(count: float) -> str:
    """GPU hours, or minutes where they are few."""
    return f"{count:,.1f} GPU hours" if count >= 0.1 else f"{60 * count:.1f} GPU minutes"


def begun_with(work: Reproduction, row: str, catalogue: Catalogue) -> HubModel | None:
    """The model of the hub that the training of a row begins with, or that has its size: it may come after another row,
    or begin with a folder of the user's."""
    of = work.table.rows[row].of
    row = row if of in (None, "start") else str(of)
    while (after := work.table.rows[row].after) is not None:
        row = after
    name = Backbone.of(work.table.recipe(row, work.scale, MARK, 1, None).model.backbone).name or ""
    if name.startswith(f"{MARK}/"):
        data, _ = catalogue.of(name.removeprefix(f"{MARK}/"))
        name = data.backbone if data else ""
    return catalogue.models.get(name)


class Measured(NamedTuple):
    """The texts that a model reads when it is measured: passages or sentences, the subwords of each, and the
    questions. Passages that are searched lie on the disk as vectors meanwhile."""

    texts: int
    tokens: int
    questions: int
    searched: bool


def evaluated(catalogue: Catalogue, read: Sequence[str], fetched: Sequence[str]) -> list[Measured]:
    """The test sets among the paths in the data folder that are read and those of ir_datasets, where several splits are
    of one set of passages."""
    test_sets: dict[str, Measured] = {}
    for path in read:
        check = catalogue.of(path)[1]
        if check.passages is not None:
            test_sets[path] = Measured(check.passages, PASSAGE, check.queries or 0, True)
        elif check.texts is not None:
            test_sets[path] = Measured(check.texts, check.tokens or SENTENCE, 0, check.tokens is not None)
    for name in dict.fromkeys(fetched):
        entry = next((entry for pattern, entry in catalogue.fetched.items() if fnmatchcase(name, pattern)), None)
        if entry is not None and not name.startswith("clirmatrix/"):  # which is trained on
            import ir_datasets

            try:
                facts = ir_datasets.load(name).metadata()
            except OSError as error:  # some are described on the network alone
                logger.warning(f"{name}: its size cannot be told ({error})")
                continue
            if count := facts.get("docs", {}).get("count"):
                collection = ir_datasets.docs_parent_id(name)
                previous = test_sets[collection].questions if collection in test_sets else 0
                questions = previous + facts.get("queries", {}).get("count", 0)
                test_sets[collection] = Measured(count, entry.tokens, questions, True)
    return list(test_sets.values())


def reranked(pipeline: str) -> int | None:
    """How many passages a question the model of a row reads, where it only reranks what another retriever found."""
    match = re.search(r"%\s*(\d+)\s*>>\s*\{model\}", pipeline)
    return int(match[1]) if match and pipeline.count("{model}") == 1 else None


class Training(NamedTuple):
    """The cost of one training: hours, bytes on one GPU and on the disk, and the arithmetic."""

    hours: float
    memory: float
    disk: float
    lines: list[str]


def training_cost(work: Reproduction, row: str, catalogue: Catalogue) -> Training | None:
    """Of the training of a row; None where its backbone is not known."""
    recipe, backbone = work.table.recipe(row, work.scale, MARK, 1, None), begun_with(work, row, catalogue)
    if backbone is None:
        return None
    body = backbone.parameters - backbone.embedding
    encoders = 1 if recipe.model.encoders == "tied" else 2
    weights = encoders * backbone.parameters
    objectives = {name for name, options in recipe.objectives.items() if options is not None}
    batch = {name: spec.batch for name, spec in recipe.data.items()}
    rankings = [recipe.objectives.get(name) for name in ("retrieval", "late_interaction")]
    options = next((one for one in rankings if one is not None), {"hard_negatives": 0})
    parts = []
    if "questions" in batch:
        per_question = QUESTION + PASSAGE * (1 + int(options.get("hard_negatives", 1)))
        parts.append((batch["questions"] * per_question, f"{batch['questions']} × {per_question}"))
    if objectives & {"semantic", "language"} and "parallel" in batch:
        parts.append((2 * batch["parallel"] * SENTENCE, f"2 × {batch['parallel']} × {SENTENCE}"))
    if "language" in objectives and "sentences" in batch:
        parts.append((batch["sentences"] * SENTENCE, f"{batch['sentences']} × {SENTENCE}"))
    shares = recipe.training.objective_sampling or {}  # one objective a step, with these probabilities
    for objective, entry, times in (
        ("context_prediction", "contexts", 2),
        ("masked_language_modelling", "sentences", 1),
        ("comparable", "linked", 2),
    ):
        if objective in objectives and entry in batch:
            share = shares.get(objective, 1.0)
            length = PASSAGE if entry == "linked" else SENTENCE
            formula = (
                f"{f'{share:g} × ' if share < 1 else ''}{f'{times} × ' if times > 1 else ''}{batch[entry]} × {length}"
            )
            parts.append((round(share * times * batch[entry] * length), formula))
    if not parts:
        return Training(0.0, 0.0, 0.0, ["not estimated: the recipe reads nothing that is counted here"])
    batches = recipe.training.accumulate
    tokens = batches * sum(count for count, _ in parts)
    steps = recipe.training.steps
    time = 6 * body * tokens * steps / SPEED / 3600
    # bytes of activations a token and layer: 34 · hidden + 5 · heads · length (Korthikanti et al. 2022), half precision
    layer = 34 * backbone.hidden + 5 * backbone.heads * PASSAGE
    largest = max(count for count, _ in parts) if parts else 0
    chunk = largest if recipe.training.gradient_cache is None else min(largest, recipe.training.chunk_tokens)
    memory = 16 * weights + chunk * layer * backbone.layers
    files = weights * (12 * recipe.training.keep_checkpoints + 4 * 3)
    lines = [
        f"{steps:,} steps × {f'{batches} batches × ' if batches > 1 else ''}"
        f"({' + '.join(formula for _, formula in parts)} = "
        f"{tokens // batches:,} tokens) × 6 × {body / 1e6:.0f}M "
        f"= {6 * body * tokens * steps:.1e} operations: {hours(time)}",
        f"memory on one GPU: 16 bytes × {weights / 1e6:,.0f}M parameters (weight, gradient, two moments) = "
        f"{16 * weights / 2**30:.0f} GiB, and activations of {chunk:,} tokens × {backbone.layers} layers × {layer:,} "
        f"bytes = {chunk * layer * backbone.layers / 2**30:.0f} GiB: {memory / 2**30:.0f} GiB (GPUs share the latter)",
        f"disk: {weights / 1e6:,.0f}M parameters × ({recipe.training.keep_checkpoints} checkpoints × 12 + start, best "
        f"and model × 4 bytes) = {files / 2**30:.0f} GiB",
    ]
    return Training(time, memory, files, lines)


class Evaluation(NamedTuple):
    """The cost of measuring a row once: hours, bytes of vectors on the disk, and the arithmetic."""

    hours: float
    vectors: float
    line: str


def evaluation_cost(
    work: Reproduction, row: str, catalogue: Catalogue, measured: Sequence[Measured]
) -> Evaluation | None:
    """Of measuring a row; None where nothing is read, or its backbone is not known. A model that only reranks reads
    some passages a question, not the collections."""
    ranking, backbone = work.table.ranking(row, work.scale), begun_with(work, row, catalogue)
    if not measured or backbone is None or not work.table.has_model(row, work.scale):
        return None
    depth = None if ranking is None else reranked(ranking.pipeline)
    body = backbone.parameters - backbone.embedding
    terms: dict[tuple[str, int], int] = {}
    for test_set in measured:
        unit = "passages" if test_set.searched else "sentences"
        count = test_set.texts if depth is None else min(test_set.texts, test_set.questions * depth)
        terms[unit, test_set.tokens] = terms.get((unit, test_set.tokens), 0) + count
    operations = 2 * body * sum(count * tokens for (_, tokens), count in terms.items())
    formula = " + ".join(f"{count:,} {unit} × {tokens} tokens" for (unit, tokens), count in terms.items())
    if depth is not None:
        formula = f"{sum(one.questions for one in measured):,} questions × {depth:,} passages at most = {formula}"
    passages = sum(one.texts for one in measured if one.searched) if depth is None else 0
    width = 2 if work.table.scale(work.scale).vectors == "float16" else 4
    vectors = passages * backbone.hidden * width
    size = f"{passages:,} × {backbone.hidden} × {width} bytes = {vectors / 2**30:.0f} GiB"
    time = operations / SPEED / 3600
    term = formula if len(terms) == 1 else f"({formula})"
    line = f"evaluation: {term} × 2 × {body / 1e6:.0f}M = {operations:.1e} operations: {hours(time)}"
    return Evaluation(time, vectors, line + (f"; vectors on the disk meanwhile: {size}" if passages else ""))
