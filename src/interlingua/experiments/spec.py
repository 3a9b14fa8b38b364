"""A paper's table as a file: rows are recipes with keys changed, columns are suites."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import fsum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from tabulate import tabulate

from interlingua.alignment.rotation import Adversarial
from interlingua.data.datasets import DataSpec
from interlingua.data.records import Collection, Query
from interlingua.errors import BadInput, suggestion
from interlingua.evaluation.measures import evaluate
from interlingua.evaluation.protocol import incomplete_runs
from interlingua.files import existing
from interlingua.models.protocols import AnyEncoder
from interlingua.retrieval.dense.sharded import Shards
from interlingua.retrieval.pipeline.grammar import parse_pipeline
from interlingua.retrieval.pipeline.run import PipelineRun, RetrieverPool, searching_models
from interlingua.settings import Settings, explain
from interlingua.training.recipe import Recipe, find_recipe, merge, raw_recipe, read_yaml, resolve

logger = logging.getLogger(__name__)

MODEL = "model"
DEPTH = 1000
Scored = Mapping[str, Mapping[str, float]]
"""measure → query id → value"""


@dataclass(frozen=True)
class Ranking:
    """`pipeline` in the notation of `interlingua evaluate --pipeline`, where {model} is the row's model and {name} a
    number of `grid`."""

    pipeline: str = "{model}"
    grid: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def needs_model(self) -> bool:
        """Whether there is anything to train."""
        return "{model}" in self.pipeline

    @property
    def searches(self) -> bool:
        """Whether the model searches all passages, instead of reranking what another retriever found."""
        return any(searching_models(parse_pipeline(self.settings()[0]), DEPTH, DEPTH))

    def settings(self) -> list[str]:
        """The pipeline with every choice of its numbers, in the order of the grid."""
        pipelines = []
        for numbers in product(*self.grid.values()):
            text = self.pipeline.replace("{model}", MODEL)
            for name, number in zip(self.grid, numbers, strict=True):
                text = text.replace(f"{{{name}}}", repr(number))
            pipelines.append(text)
        return pipelines

    def scores(
        self,
        model: AnyEncoder | None,
        collection: Collection,
        measures: Sequence[str],
        translated: Mapping[str, Query] | None = None,
        dev: Collection | None = None,
        report: Callable[[str], None] = logger.warning,
        shards: Shards | None = None,
    ) -> Scored:
        """Measure → query id → value. `model` is None for a pipeline without one; `translated` are the questions as
        BM25 reads them. `report` is told of run files that lack some of the questions, which then count 0.

        With `shards`, vectors of a large collection's passages are on the disk; of several processes each searches its
        part of them, the first one does the rest, and the others return nothing.

        The numbers of a grid are those that are best in the first measure for the questions of `dev`, which are asked
        of the same passages. Without `dev` every question is ranked by the numbers that are best for the half of the
        questions that it is not in (every other question, as they come): none is tuned on what it is measured on.
        """
        stages = RetrieverPool(collection.passages, None if model is None else lambda name: model)
        translations = (
            None
            if translated is None
            else [Query(query.id, translated[query.id].text, translated[query.id].lang) for query in collection.queries]
        )

        def scored(settings: Sequence[str], run: PipelineRun, split: Collection) -> dict[str, Scored]:
            return {setting: evaluate(run.run(setting, DEPTH), split.qrels, measures).per_query for setting in settings}

        settings = self.settings()
        test_run = PipelineRun(stages, collection.queries, translations)
        dev_run = PipelineRun(stages, dev.queries) if len(settings) > 1 and dev is not None else None
        if shards is not None and shards.wanted(len(collection.passages)):
            for run in filter(None, (test_run, dev_run)):
                run.search_ahead(settings, DEPTH, shards, collection.name)
        if shards is not None and not shards.processes.first:
            return {}
        for warning in incomplete_runs([parse_pipeline(settings[0])], [collection]):
            report(warning)
        if dev_run is not None and dev is not None:
            settings = [_best(scored(settings, dev_run, dev), measures[0], list(dev.qrels))]
            logger.info(f"{collection.name}: tuned on {dev.name}: {settings[0]}")
        results = scored(settings, test_run, collection)
        if len(results) == 1:
            return results[settings[0]]
        halves = [list(collection.qrels)[start::2] for start in (0, 1)]
        if not halves[1]:
            raise BadInput(f"collection '{collection.name}': tuning takes 2 questions at least.")
        best = [_best(results, measures[0], half) for half in reversed(halves)]
        logger.info(f"{collection.name}: tuned on the other half: {', '.join(dict.fromkeys(best))}")
        return {
            measure: {
                query: results[pipeline][measure][query]
                for half, pipeline in zip(halves, best, strict=True)
                for query in half
            }
            for measure in measures
        }


def _best(results: Mapping[str, Scored], measure: str, queries: Sequence[str]) -> str:
    """The pipeline with the highest mean over these questions, the first of equals."""
    return max(results, key=lambda pipeline: fsum(results[pipeline][measure][query] for query in queries))


def steps_of(questions: int, batch: int, epochs: int, devices: int = 8) -> int:
    """Optimizer steps of `epochs` epochs when the data is cut into one shard a device (DPR's loader).

    58,880 questions, batch 48 on 8 devices, 20 epochs: 24,540.
    """
    per_device = batch // devices
    return epochs * math.ceil(math.ceil(questions / devices) / per_device)


def compute_table(spec: dict[str, Any]) -> str:
    """The table as text: batch, steps, and batch × steps over the unit's, ours beside the paper's."""
    unit = spec["unit"]
    steps = steps_of(unit["questions"], unit["batch"], unit["epochs"])
    rows = [
        [name, m["batch"], m["steps"], m["batch"] * m["steps"] / (unit["batch"] * steps), m["expected"]]
        for name, m in spec["models"].items()
    ]
    table = tabulate(rows, ["", "batch", "steps", "relative", "paper"], tablefmt="github", floatfmt=",.1f", intfmt=",")
    return f"{spec['title']}\n\nunit: {unit['batch']} × {steps:,} steps\n\n{table}\n"


def fill(path: str, data: str | None) -> str:
    """`{data}` replaced; what has none (an ir_datasets id) as it is."""
    return path if data is None else path.replace("{data}", data)


def filled(spec: DataSpec, data: str | None) -> DataSpec:
    """An entry of data with the folder put into its paths."""
    return spec.model_copy(update={"path": [fill(path, data) for path in spec.paths()]})


class Reading(Settings):
    """The vector that is measured, where it is not the one that is trained (CCP: the mean over a middle layer)."""

    layer: int | None = None
    pooling: Literal["cls", "mean"] | None = None
    precision: Literal["float32", "bfloat16", "int8"] | None = Field(
        None, description="the number format in which models are measured on a processor; None: as they were trained"
    )


class CalibrationSpec(Settings):
    """The options of `Calibration.fit`."""

    shift: bool = True
    scale: Literal["std", "variance"] | None = "std"
    rotate: Literal["refine", "adversarial", "none"] = "refine"
    pivot: str = "en"
    gate: bool = Field(
        True, description="rotate only where held-out texts gain; false: as the paper, whatever they show"
    )
    adversarial: Adversarial = Adversarial()
    remove: int = Field(0, description="first components of each language that are taken out (LIR)")


class Scale(Settings):
    """One scale of a table: its recipe, its common start and its suites."""

    recipe: str
    suites: str
    start: str | None = None
    columns: list[str] | None = Field(None, description="only these columns")
    read: Reading = Reading()  # type: ignore[call-arg]
    vectors: Literal["float16", "float32"] = Field(
        "float32", description="how the passages of large collections are kept on the disk while they are searched"
    )
    analyzer: str = Field(
        "default", description="what {analyzer} in a pipeline is: 'language' for one analyzer a language as in Anserini"
    )
    maxp: str = Field(
        "180/90", description="what {maxp} in a pipeline is: window and stride of long documents, in tokens"
    )
    first: int = Field(1000, gt=0, description="what {first} in a pipeline is: how many of a list are reranked")
    calibrate_on: DataSpec | None = Field(None, description="raw text that calibrated rows are calibrated on")


class XorRetrieve(Settings):
    """XOR-Retrieve's questions and the English passages that are searched."""

    questions: str
    passages: str


KINDS = (
    "collections", "tatoeba", "tatoeba_dump", "tatoeba_all", "bucc", "planted", "projection", "pool", "matrix", "xor"
)  # fmt: skip
"""The kinds of suites: each has one of them."""


class Suite(Settings):
    """Test sets of one kind: collections, Tatoeba files (two that share English, for a pair without it), the dump of
    Tatoeba, BUCC folders, planted bitext, pictures of translations or a pool of languages by column; XOR-Retrieve."""

    collections: dict[str, str] = Field(default_factory=dict)
    passages: str | None = Field(None, description="search this collection's passages with the others' questions")
    questions: str | None = Field(
        None, description="ask this collection's questions of the others' passages, which are translations of its own"
    )
    translations: Literal["columns", "passages"] | dict[str, str] | None = Field(
        None,
        description="what BM25 reads: the columns' own questions, as translations of `questions`; those of the "
        "collection in `passages`, as translations of the columns'; or for each column a file of translations (id, "
        "text) or translated topics of ir_datasets",
    )
    dev: dict[str, str] = Field(
        default_factory=dict,
        description="questions that a row's numbers are tuned on, of the "
        "column's passages; without, one half of the questions is tuned on the other",
    )
    tatoeba: dict[str, str | tuple[str, str]] = Field(default_factory=dict)
    tatoeba_dump: dict[str, str] = Field(
        default_factory=dict, description="folder of sentences.csv and links.csv, by pair of languages (de-el)"
    )
    tatoeba_all: dict[str, str] = Field(
        default_factory=dict, description="folders of LASER's files, all languages of which are averaged"
    )
    languages: int | None = Field(None, gt=0, description="how many languages the folders of tatoeba_all must hold")
    bucc: dict[str, str] = Field(default_factory=dict)
    planted: dict[str, str] = Field(default_factory=dict, description="parallel files to plant bitext from")
    origins: list[str] | None = Field(None, description="of the pairs in tatoeba and planted, those of these sources")
    most: int | None = Field(None, gt=0, description="of the pairs in tatoeba, the first so many")
    projection: dict[str, str] = Field(default_factory=dict, description="Tatoeba files to draw in two dimensions")
    pool: dict[str, str] = Field(
        default_factory=dict,
        description="collections that translate one another, by "
        "language, searched all at once with each one's questions",
    )
    matrix: dict[str, str] = Field(
        default_factory=dict,
        description="the same, and each language's passages alone: with its own questions, with English ones, and "
        "English passages with its questions; every text is encoded once",
    )
    xor: XorRetrieve | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Suite:
        if sum(bool(getattr(self, kind)) for kind in KINDS) != 1:
            raise ValueError(f"a suite has one of {', '.join(KINDS)}")
        if self.passages is not None and self.questions is not None:
            raise ValueError("a suite has passages or questions of its own, not both")
        if self.dev and self.translations is not None:
            raise ValueError("a suite that is tuned on dev has no translations: there are none of dev's questions")
        if self.translations == "columns" and self.questions is None:
            raise ValueError("translations: columns is for a suite with questions of its own")
        if self.translations == "passages" and self.passages is None:
            raise ValueError("translations: passages is for a suite with passages of its own")
        return self

    @property
    def kind(self) -> str:
        """The one of `KINDS` that it has."""
        return next(kind for kind in KINDS if getattr(self, kind))

    @property
    def merged(self) -> bool:
        """Whether all languages are one pool: that of some of them is another pool."""
        return bool(self.pool or self.matrix)

    def columns(self) -> dict[str, list[str]]:
        """Every column with the files and folders that it needs, `{data}` not yet filled in. XOR-Retrieve, whose
        columns are the languages of its questions, has the one column ""."""
        if self.xor is not None:
            return {"": [self.xor.questions, self.xor.passages]}
        shared = [path for path in (self.passages, self.questions) if path is not None]
        translations = self.translations if isinstance(self.translations, dict) else {}
        files = {}
        for column, path in getattr(self, self.kind).items():
            own = [path] if isinstance(path, str) else list(path)
            of_column = [mapping[column] for mapping in (self.dev, translations) if column in mapping]
            files[column] = [*own, *of_column, *shared]
        return files

    def paths(self) -> list[str]:
        """Every file and folder that it reads, `{data}` not yet filled in."""
        return [path for files in self.columns().values() for path in files]

    def only(self, columns: Container[str]) -> Suite:
        """The same suite with some of its columns."""
        if self.xor is not None:
            return self
        subset = {column: path for column, path in getattr(self, self.kind).items() if column in columns}
        return self.model_copy(update={self.kind: subset})


class TableRow(BaseModel):
    """A row: overrides for every scale (`set`) and for one (a key with the scale's name)."""

    model_config = ConfigDict(extra="allow")

    set: list[str] = []
    recipe: dict[str, str] = Field(default_factory=dict, description="a recipe of its own, by scale")
    after: str | None = Field(None, description="train from this row's model instead of from the common start")
    shown: bool = Field(True, description="false: trained for the rows after it, and not measured")
    of: str | None = Field(None, description="measure this row's model, or the 'start', instead of training one")
    calibrate: CalibrationSpec | None = None
    pipeline: str | None = Field(None, description="how it ranks, in the notation of pipelines; {model} is its model")
    tune: dict[str, list[float]] = Field(
        default_factory=dict, description="numbers to try for each {name} in the pipeline"
    )
    tune_at: dict[str, dict[str, list[float]]] = Field(default_factory=dict, description="the same of one scale")
    vectors: str | None = Field(
        None, description="a folder of vectors of Tatoeba's sentences, made elsewhere, instead of a model"
    )
    x: float | None = Field(None, description="its place on a figure's horizontal axis")
    scales: list[str] | None = Field(None, description="only at these scales")

    def overrides(self, scale: str) -> list[str]:
        """The changes that this row makes to the recipe at this scale."""
        return [*(getattr(self, scale, None) or []), *self.set]


class TableSpec(Settings):
    """A table or figure of a paper."""

    title: str
    measures: list[str] = Field(default_factory=list, description="of collections; other suites have their own")
    scales: dict[str, Scale]
    rows: dict[str, TableRow]
    set: dict[str, list[str]] = Field(default_factory=dict, description="overrides of every row, by scale")
    merged: dict[str, list[str]] = Field(default_factory=dict, description="scales reported together, under one name")
    compare: list[tuple[str, str] | tuple[str, str, str]] = Field(
        default_factory=list,
        description="rows whose difference is tested, each with the row it is compared with, and the mark of a "
        "significant one (*)",
    )
    family: int | None = Field(
        None, gt=0, description="tests in a family, as the paper counts them; more where a scale has more columns"
    )
    subsets: dict[str, dict[str, list[str]]] = Field(default_factory=dict, description="named averages, by scale")
    x: str | None = Field(None, description="a figure: what the rows' x means")
    expected: dict[str, dict[str, dict[str, Any]]] = Field(default_factory=dict)
    folder: Path = Path()
    changes: list[str] = Field(default_factory=list, description="overrides of every row, after all others")

    @model_validator(mode="after")
    def _known_scales(self) -> TableSpec:
        names = {*self.set, *self.subsets}
        for row in self.rows.values():
            names.update(row.scales or (), row.model_extra or (), row.recipe)
        if unknown := sorted(names - set(self.scales)):
            raise ValueError(f"'{unknown[0]}' is neither a key of a row nor a scale of this table")
        for name, parts in self.merged.items():
            if name in self.scales or not parts or not set(parts) <= set(self.scales):
                raise ValueError(f"merged '{name}' must name scales of this table, and not be one of them")
        for name in (name for pair in self.compare for name in pair[:2]):
            if name not in self.rows:
                raise ValueError(f"compare names '{name}', which is no row of this table")
        for name, row in self.rows.items():
            variables = {part.split("}")[0] for part in (row.pipeline or "").split("{")[1:]} - {
                "model",
                "maxp",
                "analyzer",
                "first",
            }
            for grid in (row.tune, *row.tune_at.values()):
                if variables != set(grid):
                    raise ValueError(f"row '{name}': tune has {sorted(grid)}, its pipeline names {sorted(variables)}")
            if unknown := sorted(set(row.tune_at) - set(self.scales)):
                raise ValueError(f"row '{name}': tune_at names '{unknown[0]}', which is no scale of this table")
            if "{model}" not in (row.pipeline or "{model}") and (row.of or row.calibrate or row.set):
                raise ValueError(f"row '{name}': its pipeline has no {{model}}, so of, calibrate and set say nothing")
            if row.vectors is not None and (row.set or row.of or row.after or row.calibrate or row.pipeline):
                raise ValueError(f"row '{name}' has vectors: of, after, set, calibrate and pipeline say nothing")
            if row.after is not None and (
                row.after not in self.rows
                or self.rows[row.after].after is not None
                or self.rows[row.after].of is not None
            ):
                raise ValueError(
                    f"row '{name}' comes after '{row.after}', which is no row that is trained from the start"
                )
            if (
                row.of is not None
                and row.of != "start"
                and (row.of == name or row.of not in self.rows or self.rows[row.of].of is not None)
            ):
                raise ValueError(f"row '{name}' is of '{row.of}', which is no row that is trained")
            if (
                row.of in self.rows
                and (scales := self.rows[str(row.of)].scales) is not None
                and not set(row.scales or self.scales) <= set(scales)
            ):
                raise ValueError(f"row '{name}' is of '{row.of}', which not all of its scales have")
            if row.of not in (None, "start") and row.set:
                raise ValueError(f"row '{name}' is of '{row.of}': what it sets would change nothing")
            if row.calibrate and any(self.scales[s].calibrate_on is None for s in row.scales or self.scales):
                raise ValueError(f"row '{name}' is calibrated: every scale needs calibrate_on")
        return self

    def scale(self, name: str) -> Scale:
        """The scale called `name`, or an error naming those there are."""
        if name not in self.scales:
            names = [*self.scales, *self.merged]
            raise BadInput(f"scale '{name}' is not known for this table.{suggestion(name, names)}")
        return self.scales[name]

    def parts(self, scale: str) -> list[str]:
        """The scales that are reported under this name: itself, or those that are merged."""
        return self.merged.get(scale) or [scale]

    def rows_at(self, scale: str) -> dict[str, TableRow]:
        """The rows that this scale has."""
        parts = set(self.parts(scale))
        return {name: row for name, row in self.rows.items() if row.scales is None or parts & set(row.scales)}

    def ranking(self, row: str, scale: str) -> Ranking | None:
        """The pipeline of a row, where it has one."""
        spec = self.rows[row]
        if spec.pipeline is None:
            return None
        scale_spec = self.scale(scale)
        pipeline = spec.pipeline.replace("{maxp}", scale_spec.maxp).replace("{analyzer}", scale_spec.analyzer)
        return Ranking(pipeline.replace("{first}", str(scale_spec.first)), spec.tune_at.get(scale, spec.tune))

    def has_model(self, row: str, scale: str) -> bool:
        """Whether a row measures a model. Without one nothing depends on the recipe and the seed."""
        ranking = self.ranking(row, scale)
        return self.rows[row].vectors is None and (ranking is None or ranking.needs_model)

    def trained_rows(self, rows: Iterable[str], scale: str) -> list[str]:
        """The rows to train for `rows`: they, or those whose model they measure, and those that these start from."""
        names = []
        for row in rows:
            if not self.has_model(row, scale):
                continue
            of = self.rows[row].of
            source = row if of is None else of
            if source != "start":
                names += [name for name in (self.rows[source].after, source) if name is not None]
        return list(dict.fromkeys(names))

    def recipe(self, row: str, scale: str, data: str | None, seed: int, start: Path | None) -> Recipe:
        """The checked recipe of one row with one seed."""
        tree = raw_recipe(self.folder / self.rows[row].recipe.get(scale, self.scale(scale).recipe))
        # the table's overrides first: a row may switch off what they set, and starts where it is told
        begin = [] if start is None else [f"model.backbone={json.dumps(str(start))}"]
        overrides = [*self.set.get(scale, []), *begin, *self.rows[row].overrides(scale), *self.changes]
        return resolve(merge(tree, {"seed": seed}), overrides, data, where=f"{self.title}, row '{row}'")

    def suites(self, scale: str) -> dict[str, Suite]:
        """The suites of a scale; of merged ones those of the first."""
        scale = self.parts(scale)[0]
        path = existing(self.folder / self.scale(scale).suites, "file of suites")
        try:
            return TypeAdapter(dict[str, Suite]).validate_python(read_yaml(path))
        except ValidationError as error:
            raise BadInput(f"{path}: {explain(error, Suite)}") from error


def read_table(name: str, changes: Sequence[str] = ()) -> TableSpec | dict[str, Any]:
    """The table called `name` (`hu2023/table2`), with `changes` ("training.steps=100") to the recipe of every row; a
    table of plain arithmetic comes back as a mapping."""
    path = find_recipe(name)
    tree = read_yaml(path)
    if not isinstance(tree, dict) or "title" not in tree:
        raise BadInput(f"{name}: is a recipe, not a table. Use `interlingua train {name}`.")
    if tree.get("kind") == "arithmetic":
        return tree
    return TableSpec.checked({**tree, "folder": path.parent, "changes": list(changes)}, str(path))
