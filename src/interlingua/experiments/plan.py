"""What it takes to run a table: the data that is there, missing or malformed, how many trainings, and at what cost.

`recipes/datasets.yaml` describes the data. Only what was read here to the end is called complete.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from interlingua.data.collections import load_collection
from interlingua.data.datasets import READERS, DataSpec
from interlingua.data.readers.source import files_of
from interlingua.errors import BadInput, Damaged, NotFound
from interlingua.experiments.run import Reproduction
from interlingua.experiments.spec import TableSpec, read_table
from interlingua.files import read_lines
from interlingua.settings import Settings
from interlingua.training.backbones import Backbone
from interlingua.training.recipe import Recipe, read_recipe, read_yaml, recipe_folder
from interlingua.training.weighted import training_digest

logger = logging.getLogger(__name__)

MARK = "{data}"
FETCHED = "ir_datasets:"
UNLIMITED: dict[str, dict[str, Any]] = {"wikimatrix": {"limit": None, "threshold": 0.0}, "passages": {"limit": None}}
"""Options with which a reader gives every row."""


class Check(Settings):
    """What says that a file or folder is complete."""

    kind: Literal["questions", "parallel", "sentences", "documents"] | None = None
    format: str | None = None
    rows: int | None = Field(None, description="records, exactly")
    least: int | None = Field(None, description="records, at least")
    lines: int | None = Field(None, description="lines of a text file, exactly")
    least_lines: int | None = Field(None, description="lines of a text file, at least")
    passages: int | None = Field(None, description="of a collection, at least")
    queries: int | None = Field(None, description="of a collection, at least")
    holds: list[str] = Field(default_factory=list, description="patterns of files in the folder")


class DataSet(Settings):
    """A public data set: where it comes from and how it lies in the data folder."""

    name: str
    address: str
    size: str
    licence: str
    layout: str
    convert: str
    backbone: str = Field("", description="of a model folder: the model of the hub that has its size")
    files: dict[str, Check]


class Fetched(Settings):
    """Collections of ir_datasets."""

    name: str
    address: str
    licence: str
    tokens: int = Field(description="subwords of a passage, assumed")


class HubModel(Settings):
    """A pretrained model of the hub."""

    address: str
    licence: str
    parameters: int
    embedding: int
    layers: int
    hidden: int
    heads: int


class Catalogue(Settings):
    """`recipes/datasets.yaml`."""

    data: list[DataSet]
    fetched: dict[str, Fetched]
    models: dict[str, HubModel]

    @classmethod
    def read(cls) -> Catalogue:
        """The bundled one."""
        path = recipe_folder() / "datasets.yaml"
        return cls.checked(read_yaml(path), str(path))

    def of(self, path: str) -> tuple[DataSet | None, Check]:
        """The data set that a path under the data folder belongs to, and its check."""
        for data in self.data:
            for pattern, check in data.files.items():
                if fnmatchcase(path, pattern):
                    return data, check
        return None, Check()  # type: ignore[call-arg]


@dataclass
class Found:
    """A data set as it is in the data folder."""

    data: DataSet | None
    complete: list[str] = field(default_factory=list)
    named: list[str] = field(default_factory=list)
    """Folders whose files are there by their names and not empty, but were not read."""
    missing: list[str] = field(default_factory=list)
    malformed: list[str] = field(default_factory=list)

    @property
    def ready(self) -> bool:
        """Whether everything that the table reads of it is complete."""
        return not self.missing and not self.malformed

    def lines(self) -> Iterator[str]:
        """What there is, and where the rest comes from."""
        name = self.data.name if self.data is not None else "files of which no public data set is known here"
        found = "there" if self.named else "complete"
        state = "MISSING" if self.missing else "MALFORMED" if self.malformed else found
        if self.data is None and self.ready:
            yield f"- there, not read: {', '.join(self.complete)}"
            return
        yield f"- {state}: {name}"
        yield from (f"    missing: {path}" for path in self.missing)
        yield from (f"    malformed: {reason}" for reason in self.malformed)
        if self.ready and self.named:
            yield f"    {len(self.named)} there, not read: {', '.join(self.named)}"
        if self.ready and self.complete:
            yield f"    {len(self.complete)} read to the end: {', '.join(self.complete)}"
        if self.data is not None and not self.ready:
            for key in ("address", "size", "licence", "layout", "convert"):
                yield f"    {key}: {getattr(self.data, key)}"


def plan(work: Reproduction) -> tuple[str, list[str]]:
    """The plan of a table as text, and the names of the data sets that are missing or malformed."""
    work.check_columns()
    catalogue = Catalogue.read()
    parts = [(part, needs(part)) for part in work.parts()]
    wanted, fetched, models = (list(dict.fromkeys(name for _, read in parts for name in read[i])) for i in range(3))
    if wanted and work.data is None:
        raise BadInput(f"{work.name} at scale {work.scale} reads files. Say where with --data FOLDER.")
    found: dict[str, Found] = {}
    for path in wanted:
        data, check = catalogue.of(path)
        entry = found.setdefault("" if data is None else data.name, Found(data))
        examine(Path(str(work.data)) / path, path, check, entry)
    lines = [f"{work.name} at scale {work.scale}", "", "Rows:", *(f"- {line}" for line in work.plan()), ""]
    lines += [*(line for part, _ in parts for line in trainings(part)), *together(work), ""]
    lines += [f"Data in {work.data}:" if wanted else "Data: none but what is bundled."]
    lines += [line for entry in found.values() for line in entry.lines()]
    lines += elsewhere(catalogue, fetched, models)
    for part, read in parts:
        lines += ["", *costs(part, catalogue, read[1])]
    lacking = [name or entry.missing[0] for name, entry in found.items() if not entry.ready]
    whole = "" not in found and not any(entry.named for entry in found.values())
    end = "The data folder is complete." if whole else "All that is named above as complete was read to its end."
    lines += ["", f"Not ready: {'; '.join(lacking)}." if lacking else end]
    return "\n".join(lines) + "\n", lacking


def needs(work: Reproduction) -> tuple[list[str], list[str], list[str]]:
    """What the rows of one scale read: paths under the data folder, collections of ir_datasets, models of the hub."""
    scale, table = work.table.scale(work.scale), work.table
    read: list[str] = [path for row in work.rows() if (path := table.rows[row].vectors) is not None]
    hub: list[str] = []
    recipes = [table.recipe(row, work.scale, MARK, 1, None) for row in trained_rows(work)]
    if scale.start is not None:
        recipes.append(read_recipe(str(table.folder / scale.start), data=MARK))
    for recipe in recipes:
        # an entry that no objective reads is there for the tokenizer of a new model, or not read at all
        read += [path for spec in recipe.data.values() for path in spec.files()]
        if recipe.validation is not None:
            read += recipe.validation.questions.files()
        if (name := Backbone.of(recipe.model.backbone).name) is not None:
            (read if MARK in name else hub).append(name)
    if isinstance(scale.calibrate_on, DataSpec):
        read += scale.calibrate_on.paths()
    for suite in table.suites(work.scale).values():
        read += [path for paths in work.columns_of(suite).values() for path in paths]
    unique = list(dict.fromkeys(read))
    return (
        [path.replace(f"{MARK}/", "") for path in unique if MARK in path],
        [path.removeprefix(FETCHED).partition("#")[0] for path in unique if path.startswith(FETCHED)],
        list(dict.fromkeys(hub)),
    )


def trained_rows(work: Reproduction) -> list[str]:
    """The rows whose own recipe is trained."""
    found = []
    for row in work.rows():
        spec, ranking = work.table.rows[row], work.table.ranking(row, work.scale)
        if spec.vectors is not None or (ranking is not None and not ranking.needs_model):
            continue
        trained = row if spec.of is None else spec.of
        if trained != "start":
            found += [name for name in (work.table.rows[trained].after, trained) if name is not None]
    return list(dict.fromkeys(found))


def examine(place: Path, path: str, check: Check, entry: Found) -> None:
    """Note in `entry` whether what lies at `place` is complete."""
    if not place.exists():
        try:
            files_of(place)  # a pattern, or what the names of two Moses files have in common
        except (NotFound, BadInput):
            entry.missing.append(path)
            return
    try:
        said = measured(place, check)
    except (BadInput, NotFound, Damaged, OSError, EOFError) as error:
        entry.malformed.append(f"{path}: {error}")
        return
    where = entry.named if check.holds else entry.complete
    where.append(path if entry.data is None else f"{path} ({said})")


def measured(place: Path, check: Check) -> str:
    """What was counted. Raises BadInput where that is not enough."""
    if check.holds:
        absent = [pattern for pattern in check.holds if not any(place.glob(f"{pattern}*"))]
        if absent:
            raise BadInput(f"has no {', '.join(absent)}")
        found = [file for pattern in check.holds for file in sorted(place.glob(f"{pattern}*"))]
        empty = [file.name for file in found if file.is_file() and not file.stat().st_size]
        if empty:
            raise BadInput(f"has empty files: {', '.join(empty)}")
        return f"{len(found)} files"
    if check.passages is not None or check.queries is not None:
        collection = load_collection(place)
        counts = {"passages": len(collection.passages), "queries": len(collection.queries)}
        for name, needed in (("passages", check.passages or 0), ("queries", check.queries or 0)):
            if counts[name] < needed:
                raise BadInput(f"has {counts[name]:,} {name}, {needed:,} are needed")
        return f"{counts['passages']:,} passages, {counts['queries']:,} queries"
    if check.kind is not None:
        what, exactly, least = "rows", check.rows, check.least
        options: dict[str, Any] = UNLIMITED.get(check.format or "", {})
        count = sum(1 for _ in READERS[check.kind](place, format=check.format, **options))
    else:
        what, exactly, least = "lines", check.lines, check.least_lines
        count = sum(1 for _ in read_lines(place)) if (exactly or least) and place.is_file() else 0
    if exactly is not None and count != exactly:
        raise BadInput(f"has {count:,} {what}, {exactly:,} are needed")
    if least is not None and count < least:
        raise BadInput(f"has {count:,} {what}, {least:,} at least are needed")
    return f"{count:,} {what}"


def trainings(work: Reproduction) -> list[str]:
    """How many models are trained, after sharing, and which of them are there."""
    rows = trained_rows(work)
    recipes = {digest(work, row, seed): (row, seed) for row in rows for seed in range(1, work.seeds + 1)}
    every, done = len(rows) * work.seeds, 0
    for row, seed in recipes.values():
        done += (work.run_folder(row, seed) / "model").exists()
    lines = [
        f"Trainings: {len(rows)} rows × {work.seeds} seed(s) = {every}; {every - len(recipes)} shared between rows; "
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


def together(work: Reproduction) -> list[str]:
    """The trainings of all tables of the same paper at this scale: what they have in common is trained once."""
    folder = work.table.folder
    if not folder.resolve().is_relative_to(recipe_folder()):
        return []
    digests: list[str] = []
    tables = 0
    for path in sorted(folder.glob("*.yaml")):
        table = read_table(str(path)) if "title" in read_yaml(path) else None
        if not isinstance(table, TableSpec) or work.scale not in (*table.scales, *table.merged):
            continue
        tables += 1
        other = replace(work, table=table, name=f"{folder.name}/{path.stem}", only=None, columns=None)
        digests += [
            digest(part, row, seed)
            for part in other.parts()
            for row in trained_rows(part)
            for seed in range(1, work.seeds + 1)
        ]
    return [
        f"All {tables} tables and figures of {folder.name} at this scale: {len(digests)} trainings, "
        f"{len(set(digests))} after sharing."
    ]


def elsewhere(catalogue: Catalogue, fetched: Iterable[str], models: Iterable[str]) -> list[str]:
    """What is not in the data folder: it is named, not checked."""
    lines = []
    groups: dict[str, list[str]] = {}
    for name in fetched:
        pattern = next((one for one in catalogue.fetched if fnmatchcase(name, one)), "")
        groups.setdefault(pattern, []).append(name)
    for pattern, names in groups.items():
        about = catalogue.fetched.get(pattern)
        said = f"{about.name}, {about.licence}, {about.address}" if about else "see https://ir-datasets.com"
        lines.append(f"- fetched by ir_datasets at first use, not checked here: {said}: {', '.join(names)}")
    for name in models:
        backbone = catalogue.models.get(name)
        about_model = f"{backbone.parameters:,} parameters, {backbone.licence}, {backbone.address}" if backbone else ""
        lines.append(f"- fetched from the hub at first use, not checked here: {name} {about_model}".rstrip())
    return ["Not in the data folder:", *lines] if lines else []


QUESTION, SENTENCE = 20, 40
"""Subwords of a question and of a sentence, assumed."""
PASSAGE = 180
"""Subwords of a training passage with its title, assumed."""
SPEED = 110e12
"""Useful operations a second: an A100 (312e12 in bfloat16) at 35%."""


def costs(work: Reproduction, catalogue: Catalogue, fetched: list[str]) -> list[str]:
    """Memory, time and disk of each row, with the arithmetic. Estimates: nothing of it was measured."""
    lines = [
        f"Cost a training (estimated: {QUESTION} subwords a question, {PASSAGE} a passage, {SENTENCE} a sentence, "
        f"{SPEED / 1e12:.0f} TFLOP/s, an A100 at 35%):"
    ]
    searched = list(evaluated(catalogue, fetched).values())
    same: dict[str, list[str]] = {}
    for row in trained_rows(work):
        recipe = work.table.recipe(row, work.scale, MARK, 1, None)
        backbone = begun_with(work, row, catalogue)
        if backbone is None:
            said = "    not estimated: the backbone is no model of the hub that is known here"
        else:
            vectors = 2 if work.table.scale(work.scale).vectors == "float16" else 4
            ranking = work.table.ranking(row, work.scale)
            depth = None if ranking is None else reranked(ranking.pipeline)
            measured = searched if work.table.rows[row].shown else []
            said = "\n".join(f"    {line}" for line in cost(recipe, backbone, measured, vectors, depth))
        same.setdefault(said, []).append(row)
    return [*lines, *(f"- {'; '.join(rows)}:\n{said}" for said, rows in same.items())]


def begun_with(work: Reproduction, row: str, catalogue: Catalogue) -> HubModel | None:
    """The model of the hub that the training of a row begins with, or that has its size: it may come after another row,
    or begin with a folder of the user's."""
    while (after := work.table.rows[row].after) is not None:
        row = after
    name = Backbone.of(work.table.recipe(row, work.scale, MARK, 1, None).model.backbone).name or ""
    if name.startswith(f"{MARK}/"):
        data, _ = catalogue.of(name.removeprefix(f"{MARK}/"))
        name = data.backbone if data else ""
    return catalogue.models.get(name)


class Searched(NamedTuple):
    """A collection: its passages, the subwords of each, and the questions of the splits that are asked."""

    passages: int
    tokens: int
    questions: int


def evaluated(catalogue: Catalogue, fetched: list[str]) -> dict[str, Searched]:
    """The collections that are searched; several splits are of one set of passages."""
    found: dict[str, Searched] = {}
    for name in dict.fromkeys(fetched):
        about = next((one for pattern, one in catalogue.fetched.items() if fnmatchcase(name, pattern)), None)
        if about is not None and not name.startswith("clirmatrix/"):  # which is trained on
            import ir_datasets  # type: ignore[import-untyped]

            try:
                facts = ir_datasets.load(name).metadata()
            except OSError as error:  # some are described on the network alone
                logger.warning(f"{name}: its size cannot be told ({error})")
                continue
            if count := facts.get("docs", {}).get("count"):
                collection = name.rpartition("/")[0]
                before = found[collection].questions if collection in found else 0
                asked = before + facts.get("queries", {}).get("count", 0)
                found[collection] = Searched(count, about.tokens, asked)
    return found


def reranked(pipeline: str) -> int | None:
    """How many passages a question the model of a row reads, where it only reranks what another retriever found."""
    found = re.search(r"%\s*(\d+)\s*>>\s*\{model\}", pipeline)
    return int(found[1]) if found and pipeline.count("{model}") == 1 else None


def cost(
    recipe: Recipe, backbone: HubModel, searched: Sequence[Searched], vector_bytes: int, depth: int | None
) -> list[str]:
    """The arithmetic of one training and its evaluation. With `depth` the model reads that many passages a question,
    not the collections."""
    body = backbone.parameters - backbone.embedding
    encoders = 1 if recipe.model.encoders == "tied" else 2
    weights = encoders * backbone.parameters
    used = {name for name, options in recipe.objectives.items() if options is not None}
    batch = {name: spec.batch for name, spec in recipe.data.items()}
    options = recipe.objectives.get("retrieval") or {}
    parts = []
    if "questions" in batch:
        each = QUESTION + PASSAGE * (1 + int(options.get("hard_negatives", 0)))
        parts.append((batch["questions"] * each, f"{batch['questions']} × {each}"))
    if used & {"semantic", "language"} and "parallel" in batch:
        parts.append((2 * batch["parallel"] * SENTENCE, f"2 × {batch['parallel']} × {SENTENCE}"))
    if "language" in used and "sentences" in batch:
        parts.append((batch["sentences"] * SENTENCE, f"{batch['sentences']} × {SENTENCE}"))
    shares = recipe.training.objective_sampling or {}  # one objective a step, with these probabilities
    for objective, entry, times in (
        ("context_prediction", "contexts", 2),
        ("masked_language_modelling", "sentences", 1),
        ("comparable", "linked", 2),
    ):
        if objective in used and entry in batch:
            share = shares.get(objective, 1.0)
            length = PASSAGE if entry == "linked" else SENTENCE
            said = (
                f"{f'{share:g} × ' if share < 1 else ''}{f'{times} × ' if times > 1 else ''}{batch[entry]} × {length}"
            )
            parts.append((round(share * times * batch[entry] * length), said))
    if not parts:
        return ["not estimated: the recipe reads nothing that is counted here"]
    together = recipe.training.accumulate
    tokens = together * sum(count for count, _ in parts)
    steps = recipe.training.steps
    hours = 6 * body * tokens * steps / SPEED / 3600
    # bytes of activations a token and layer: 34 · hidden + 5 · heads · length (Korthikanti et al. 2022), half precision
    layer = 34 * backbone.hidden + 5 * backbone.heads * PASSAGE
    largest = max(count for count, _ in parts) if parts else 0
    held = largest if recipe.training.gradient_cache is None else min(largest, recipe.training.chunk_tokens)
    memory = 16 * weights + held * layer * backbone.layers
    files = weights * (12 * recipe.training.keep_checkpoints + 4 * 3)
    lines = [
        f"{steps:,} steps × {f'{together} batches × ' if together > 1 else ''}"
        f"({' + '.join(said for _, said in parts)} = "
        f"{tokens // together:,} tokens) × 6 × {body / 1e6:.0f}M "
        f"= {6 * body * tokens * steps:.1e} operations: {hours:.1f} GPU hours",
        f"memory on one GPU: 16 bytes × {weights / 1e6:,.0f}M parameters (weight, gradient, two moments) = "
        f"{16 * weights / 2**30:.0f} GiB, and activations of {held:,} tokens × {backbone.layers} layers × {layer:,} "
        f"bytes = {held * layer * backbone.layers / 2**30:.0f} GiB: {memory / 2**30:.0f} GiB (GPUs share the latter)",
        f"disk: {weights / 1e6:,.0f}M parameters × ({recipe.training.keep_checkpoints} checkpoints × 12 + start, best "
        f"and model × 4 bytes) = {files / 2**30:.0f} GiB",
    ]
    return [*lines, *evaluation_cost(backbone, searched, vector_bytes, depth)]


def evaluation_cost(
    backbone: HubModel, searched: Sequence[Searched], vector_bytes: int, depth: int | None
) -> Iterator[str]:
    """The arithmetic of one evaluation, if anything is searched; `depth` as for `cost`."""
    if not searched:
        return
    body = backbone.parameters - backbone.embedding
    read = [one.passages if depth is None else min(one.passages, one.questions * depth) for one in searched]
    work = 2 * body * sum(count * one.tokens for count, one in zip(read, searched, strict=True))
    total = sum(read)
    what = f"{total:,} passages"
    if depth is not None:
        what = f"{sum(one.questions for one in searched):,} questions × {depth:,} passages at most = {what}"
    disk = (
        f"; vectors on the disk meanwhile: {total:,} × {backbone.hidden} × {vector_bytes} bytes = "
        f"{total * backbone.hidden * vector_bytes / 2**30:.0f} GiB"
    )
    yield (
        f"evaluation: {what} × {searched[0].tokens} tokens × 2 × {body / 1e6:.0f}M = {work:.1e} operations: "
        f"{work / SPEED / 3600:.1f} GPU hours{disk if depth is None else ''}"
    )
