"""Run a paper's table: train each row with each seed, measure it, compare with the paper.

Every finished part stays in the output folder; the same command goes on after an interruption and costs nothing when
all is there.
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from interlingua.data.readers.source import files_of
from interlingua.errors import BadInput, InterlinguaError, NotFound, suggestion
from interlingua.evaluation.tatoeba import StoredVectors
from interlingua.evaluation.xor import nltk_tokenizer
from interlingua.experiments.spec import Suite, TableSpec, fill, filled
from interlingua.experiments.suites import calibrated, measure, measured, read_model
from interlingua.experiments.values import Kept, Values, chosen, join, of_formats
from interlingua.files import atomic_write
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import default_device, on_processor
from interlingua.models.late_interaction import Model
from interlingua.retrieval.dense.sharded import ALONE, Shards
from interlingua.training.backbones import Backbone
from interlingua.training.build import dual_of, train
from interlingua.training.processes import Processes
from interlingua.training.recipe import Recipe, kept_recipe, read_recipe, recipe_folder, recipe_text
from interlingua.training.weighted import check, training_digest

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Reproduction:
    """A table at a scale: where its data is, where its runs go, with which seeds.

    What is missing afterwards is in `problems`: columns without data, seeds that crashed, questions without a value.
    `calibrations` tells, of the rows that were rotated, what calibration did with the first seed.
    """

    table: TableSpec
    name: str
    scale: str
    data: str | None
    out: Path
    seeds: int = 1
    device: str | None = None
    only: Sequence[str] | None = None
    columns: Sequence[str] | None = None
    processes: Processes = ALONE
    problems: list[str] = field(default_factory=list)
    calibrations: dict[str, str] = field(default_factory=dict)
    formats: dict[str, list[str]] = field(default_factory=dict)

    def rows(self) -> list[str]:
        """The rows to run; an unknown name among those asked for is an error, and so is no seed."""
        if self.seeds < 1:
            raise BadInput(f"--seeds {self.seeds}: at least one is needed.")
        names = [name for name, row in self.table.rows_at(self.scale).items() if row.shown]
        for name in self.only or ():
            if name not in names:
                raise BadInput(f"row '{name}' is not in this table.{suggestion(name, names)}")
        return [name for name in names if self.only is None or name in self.only]

    def trained_rows(self) -> list[str]:
        """The rows to train, with those that they start from."""
        return self.table.trained_rows(self.rows(), self.scale)

    @property
    def stem(self) -> str:
        """The name of the folders and files of this table: `hu2023-table2`, also for a table of one's own."""
        return slug(self.name.removesuffix(".yaml"))

    def folder(self, row: str, seed: int) -> Path:
        """The run folder of one row and seed. Of rows that are alike as names of folders all but the first have a
        digest behind it."""
        name = slug(row)
        if row != next((other for other in self.table.rows if slug(other) == name), row):
            name += f"-{blake2b(row.encode(), digest_size=4).hexdigest()}"
        return self.out / self.stem / self.scale / name / f"seed-{seed}"

    def plan(self) -> list[str]:
        """Describe the run that is planned, one line a row; every recipe is resolved and checked."""
        if self.scale in self.table.merged:
            return [f"{part.scale}: {line}" for part in self.parts() for line in part.plan()]
        lines = []
        rows = self.rows()
        predecessors = dict.fromkeys(after for row in rows if (after := self.table.rows[row].after) is not None)
        for row in [*(row for row in predecessors if row not in rows), *rows]:
            spec = self.table.rows[row]
            if spec.vectors is not None:
                lines.append(f"{row}: vectors of {spec.vectors}")
                continue
            recipe = self.recipe(row, 1)
            check(recipe)
            ranking = self.table.ranking(row, self.scale)
            suffix = "" if ranking is None else f", ranked by {ranking.pipeline}"
            if not self.table.has_model(row, self.scale):
                lines.append(f"{row}: no model{suffix}")
                continue
            if spec.of is not None:
                lines.append(f"{row}: the model of '{spec.of}'{', calibrated' * (spec.calibrate is not None)}{suffix}")
                continue
            objectives = " + ".join(
                f"{options.get('weight', 1.0)}·{name}"
                for name, options in recipe.objectives.items()
                if options is not None
            )
            batches = ", ".join(f"{name} {entry.batch}" for name, entry in recipe.data.items())
            backbone = Backbone.of(recipe.model.backbone).name or "new"
            lines.append(
                f"{row}: {backbone}, {objectives}, {recipe.training.steps:,} steps, batch {batches}, "
                f"{self.seeds} seed(s){suffix}"
            )
        return lines

    def parts(self) -> list[Reproduction]:
        """The same of each scale that is reported under this name: of itself, or of those that are merged."""
        names = self.table.parts(self.scale)
        if names == [self.scale]:
            return [self]
        limits = [self.table.scale(name).columns for name in names]
        scales = [
            name
            for name, columns in zip(names, limits, strict=True)
            if self.columns is None or columns is None or set(columns) & set(self.columns)
        ]
        parts = []
        for name in scales or names:
            rows = self.table.rows_at(name)
            only = None if self.only is None else [row for row in self.only if row in rows]
            parts.append(replace(self, scale=name, only=only, problems=[], calibrations={}, formats={}))
        return parts

    def run(self) -> dict[str, list[Values]]:
        """Train and measure everything: row → one `Values` a seed, empty for a seed that crashed. Raises what happened
        where nothing at all could be measured."""
        rows = self.rows()
        self.processes = Processes.join(self.device)
        if self.processes.count > 1:
            self.device = str(self.processes.device)
        if self.scale in self.table.merged:
            return self._merged(rows, self.parts())
        suites = self._wanted()
        for row in self.trained_rows():  # a mistake in a recipe is said before hours of training
            check(self.recipe(row, 1))
        if any(self.table.has_model(row, self.scale) for row in rows):
            self._start()
        results: dict[str, list[Values]] = {}
        errors: dict[tuple[str, int], Exception] = {}
        for row in rows:
            seeds = list(range(1, self.seeds + 1)) if self.table.has_model(row, self.scale) else [1] * self.seeds
            results[row] = [self._attempt(row, seed, suites, errors) for seed in seeds]
        if errors and not any(any(runs) for runs in results.values()):
            raise next(iter(errors.values()))
        self._compare_questions(results)
        if warning := of_formats(self.formats):
            self._say(warning)
        return results

    def _merged(self, rows: Sequence[str], parts: Sequence[Reproduction]) -> dict[str, list[Values]]:
        """The results of several scales, their columns side by side."""
        merged: dict[str, list[Values]] = {row: [{} for _ in range(self.seeds)] for row in rows}
        errors: list[Exception] = []
        for part in parts:
            try:
                results = part.run()
            except Exception as error:
                if self.processes.count > 1:  # the others would wait for this one
                    raise
                errors.append(error)
                self.problems.append(f"{part.scale}: {error}")
                continue
            for row, runs in results.items():
                for target, values in zip(merged[row], runs, strict=True):
                    join(target, values)
            self.problems += [f"{part.scale}: {problem}" for problem in part.problems]
            self.calibrations |= part.calibrations
        if len(errors) == len(parts):
            raise errors[0]
        return merged

    def _attempt(
        self, row: str, seed: int, suites: Mapping[str, Suite], errors: dict[tuple[str, int], Exception]
    ) -> Values:
        """The values of a row and seed; where it crashes, that is said, and the other rows go on without it."""
        if (row, seed) in errors:
            self._say(f"row '{row}', seed {seed}: {_reason(errors[row, seed])}")
            return {}
        spec = self.table.rows[row]
        for name in (spec.of, spec.after):
            if name is not None and (name, seed) in errors and not (self.run_folder(name, seed) / "model").exists():
                self._say(f"row '{row}', seed {seed}: not measured, since '{name}' has no model")
                return {}
        try:
            return self._row(row, seed, suites)
        except Exception as error:
            if self.processes.count > 1:  # the others would wait for this one
                raise
            logger.debug("", exc_info=True)
            errors[row, seed] = error
            if spec.after is not None and not (self.run_folder(spec.after, seed) / "model").exists():
                errors.setdefault((spec.after, seed), error)  # it is trained by the first row that comes after it
            self._say(f"row '{row}', seed {seed}: {_reason(error)}")
            return {}

    def _say(self, problem: str) -> None:
        if problem not in self.problems:
            logger.warning(problem)
            self.problems.append(problem)

    def _compare_questions(self, results: Mapping[str, Sequence[Values]]) -> None:
        """Say which rows have fewer questions in a column than others: results of another copy of the data, say."""
        all_questions: dict[tuple[str, str, str], set[str]] = defaultdict(set)
        entries = [
            (row, number, (suite, measure, column), set(questions))
            for row, runs in results.items()
            for number, run in enumerate(runs, 1)
            for suite, by_measure in run.items()
            for measure, columns in by_measure.items()
            for column, questions in columns.items()
        ]
        for _, _, place, questions in entries:
            all_questions[place] |= questions
        for row, number, place, questions in entries:
            if missing := all_questions[place] - questions:
                self._say(
                    f"row '{row}', seed {number}, {', '.join(place)}: no value of {len(missing):,} of the "
                    f"{len(all_questions[place]):,} questions, such as '{min(missing)}'"
                )

    def recipe(self, row: str, seed: int) -> Recipe:
        """The recipe of one row with one seed: from the common start, or from the model of the row it comes after."""
        after = self.table.rows[row].after
        start = self.start_folder() if after is None else self.run_folder(after, seed) / "model"
        return self.table.recipe(row, self.scale, self.data, seed, start)

    def _trained_as(self, row: str) -> str:
        """The row on whose recipe the values of a row depend: that whose model it measures, or itself."""
        of = self.table.rows[row].of
        return row if of is None or of == "start" else of

    def _asked(self, row: str, seed: int) -> dict[str, Any]:
        """All that a row's values depend on beside its recipe and the columns; what is kept with them."""
        scale, spec = self.table.scale(self.scale), self.table.rows[row]
        suites = self.table.suites(self.scale)
        settings = {
            "measures": self.table.measures,
            "suites": {name: suite.model_dump(mode="json", exclude_defaults=True) for name, suite in suites.items()},
            "data": self.data,
            "of": spec.of,
            "read": scale.read.model_dump(exclude_defaults=True),
            "calibrate": spec.calibrate and spec.calibrate.model_dump(),
            "calibrate_on": spec.calibrate
            and scale.calibrate_on
            and scale.calibrate_on.model_dump(mode="json", exclude_defaults=True),
        }
        ranking = self.table.ranking(row, self.scale)
        if ranking is not None:
            settings["pipeline"] = {ranking.pipeline: ranking.grid}
        if (after := self.table.rows[self._trained_as(row)].after) is not None:
            settings["after"] = recipe_text(self.recipe(after, seed))
        if spec.vectors is not None:
            settings["vectors"] = spec.vectors
        if scale.vectors != "float32":  # what was measured before this was written down had that
            settings["shards"] = scale.vectors
        return settings

    def _row(self, row: str, seed: int, suites: Mapping[str, Suite]) -> Values:
        folder = self.folder(row, seed)
        file, spec, settings = folder / "values.json", self.table.rows[row], self._asked(row, seed)
        recipe = self.recipe(self._trained_as(row), seed) if self.table.has_model(row, self.scale) else None
        ranking = self.table.ranking(row, self.scale)
        results = Kept.read(file, recipe, settings, self.table.suites(self.scale))
        vectors = StoredVectors(Path(fill(spec.vectors, self.data))) if spec.vectors is not None else None
        remaining: dict[str, Suite] = {}
        for name, suite in suites.items():
            if measured(suite.kind, vectors, ranking) and (rest := results.left(name, suite)) is not None:
                remaining[name] = rest
        missing: list[str] = []  # of columns that are tried again next time
        done = file.exists()
        self.processes.wait()  # all have looked before the first one writes
        if done and not remaining:
            logger.info(f"{row}, seed {seed}: done before ({file})")
        else:
            logger.info(f"{row}, seed {seed}")
            model: Any = vectors
            if recipe is not None:
                model, results.calibration = self.read(row, seed)
                results.formats = sorted({*results.formats, self._format()})
            shards = Shards(folder / "vectors", self.table.scale(self.scale).vectors, processes=self.processes)
            report, add_missing = results.problems.append, missing.append
            try:
                values = measure(model, remaining, self.table.measures, self.data, ranking, report, shards, add_missing)
            except (BadInput, NotFound) as error:
                if not results.values:
                    raise
                values = {}  # of what is left nothing can be measured; the rest was before
                missing.append(str(error))
            results.add(values, remaining)
            if self.processes.first:
                results.write(file, recipe, settings)
            shards.remove()
        for problem in (*results.problems, *missing):
            self._say(f"row '{row}': {problem}")
        self.formats[row] = sorted({*self.formats.get(row, ()), *results.formats})
        if results.calibration and spec.calibrate is not None and spec.calibrate.rotate != "none":
            self.calibrations.setdefault(row, results.calibration)
        return chosen(results.values, suites)

    def _format(self) -> str:
        """The number format that models compute in."""
        precision = self.table.scale(self.scale).read.precision
        return on_processor(precision or "float32", self.device) or "that of a GPU"

    def model(self, row: str, seed: int) -> Model:
        """Load the model of a row, read as the scale says and calibrated if the row is."""
        return self.read(row, seed)[0]

    def read(self, row: str, seed: int) -> tuple[Model, str]:
        """The model of a row, and what calibration did to it ("" if it is not calibrated)."""
        scale, spec, start = self.table.scale(self.scale), self.table.rows[row], self.start_folder()
        model: Model
        report = ""
        if spec.of == "start" and start is None:
            model = self._untrained(row, seed)
        else:
            folder = start if spec.of == "start" and start is not None else self._trained(row, seed)
            model = read_model(folder, scale.read, self.device)
        if spec.calibrate is not None and scale.calibrate_on is not None:
            if not isinstance(model, DualEncoder):
                raise BadInput(f"row '{row}': only a model with one vector a text can be calibrated.")
            model, report = calibrated(
                model, spec.calibrate, filled(scale.calibrate_on, self.data), self.folder(row, seed)
            )
        return model, report

    def _trained(self, row: str, seed: int) -> Path:
        """Train the model of a row unless that is done, by whichever table; return its folder."""
        source = self._trained_as(row)
        if (after := self.table.rows[source].after) is not None:
            self._trained(after, seed)
        recipe, folder = self.recipe(source, seed), self.run_folder(source, seed)
        if folder != self.folder(source, seed):
            logger.info(f"{row}, seed {seed}: trained before, by the same recipe, in {folder}")
            return folder / "model"
        train(recipe, folder, self.device, wait=True)  # another run may share this row
        if self.processes.first:
            with atomic_write(self._note(recipe)) as stream:
                stream.write(f"{folder.relative_to(self.out)}\n")
        self.processes.wait()
        return folder / "model"

    def _note(self, recipe: Recipe) -> Path:
        """The file that says where the model of a recipe was trained."""
        return self.out / "trained" / training_digest(recipe)

    def run_folder(self, row: str, seed: int) -> Path:
        """The run folder of the model of a row: where another table, or another row, trained the same recipe to its
        end, else the row's own."""
        recipe, own = self.recipe(row, seed), self.folder(row, seed)
        note = self._note(recipe)
        if (own / "model").exists() or not note.exists():
            return own
        other = self.out / note.read_text(encoding="utf-8").strip()
        file = other / "recipe.yaml"
        theirs = kept_recipe(file.read_text(encoding="utf-8")) if (other / "model").exists() and file.exists() else None
        return other if theirs is not None and training_digest(theirs) == training_digest(recipe) else own

    def _untrained(self, row: str, seed: int) -> DualEncoder:
        """The untrained model of a recipe where the scale has no start: its backbone, pooled as it says."""
        reading = self.table.scale(self.scale).read
        options = reading.model_dump(exclude_none=True, exclude={"precision"})
        spec = self.table.recipe(row, self.scale, self.data, seed, None).model.model_copy(update=options)
        if Backbone.of(spec.backbone).name is None:
            raise BadInput(
                f"row '{row}' measures what training starts from, but the recipe of this scale "
                "starts from nothing. Give the scale a start."
            )
        model = dual_of(spec, None, None, seed)
        if (precision := on_processor(reading.precision, self.device)) is None:
            return model.to(default_device(self.device)).eval()
        folder = self.folder(row, seed) / "untrained"
        if self.processes.first:
            model.save(folder)
        self.processes.wait()
        return DualEncoder.load(folder, device=self.device, precision=precision)

    def start_folder(self) -> Path | None:
        """The folder of the model that all rows start from, if there is one."""
        start = self.table.scale(self.scale).start
        if start is None:
            return None
        path = (self.table.folder / start).resolve().with_suffix("")
        # one name for a start that tables of several papers share
        known = path.is_relative_to(recipe_folder())
        name = path.relative_to(recipe_folder()) if known else f"{self.table.folder.name}/{start.removesuffix('.yaml')}"
        return self.out / "starts" / slug(str(name)) / "model"

    def _start(self) -> Path | None:
        """The common start of all rows, trained once for all tables of this output folder."""
        folder = self.start_folder()
        if folder is not None:
            recipe = str(self.table.folder / str(self.table.scale(self.scale).start))
            train(read_recipe(recipe, data=self.data), folder.parent, self.device, wait=True)
        return folder

    def columns_of(self, suite: Suite) -> dict[str, list[str]]:
        """The columns of a suite that the scale has and that are asked for, each with what it reads."""
        limits = [limit for limit in (self.table.scale(self.scale).columns, self.columns) if limit is not None]
        return {
            column: paths
            for column, paths in suite.columns().items()
            if not column or all(column in limit for limit in limits)
        }

    def check_columns(self) -> None:
        """Raise BadInput for a column that is asked for and is in no suite of this scale, or of those it merges."""
        columns = {
            column
            for part in self.table.parts(self.scale)
            for suite in self.table.suites(part).values()
            for column in suite.columns()
        }
        for column in self.columns or ():
            if column not in columns:
                raise BadInput(f"column '{column}' is not in this table.{suggestion(column, columns)}")

    def _wanted(self) -> dict[str, Suite]:
        """The suites with those of their columns that are asked for and have their data; the others are `problems`.

        Raises BadInput, before hours pass, where no column is left, a column that is asked for is in no suite, or the
        text for calibration is missing, and NotFound where NLTK's tokens cannot be counted.
        """
        scale, suites = self.table.scale(self.scale), self.table.suites(self.scale)
        self.check_columns()
        texts = [] if scale.calibrate_on is None else [path for path in scale.calibrate_on.paths() if "*" not in path]
        for path in texts:
            if reason := self._missing(path):
                raise BadInput(reason)
        selected: dict[str, Suite] = {}
        missing: list[str] = []
        for name, suite in suites.items():
            columns: list[str] = []
            complete = True
            for column, paths in self.columns_of(suite).items():
                reason = next(filter(None, map(self._missing, paths)), None)
                if reason is None:
                    columns.append(column)
                else:
                    complete = False
                    missing.append(f"{name}{column and f', {column}'}: {reason}")
            if columns and (complete or not suite.merged):  # the pool of some languages is another pool
                selected[name] = suite.only(columns)
        if any(suite.xor is not None for suite in selected.values()):
            nltk_tokenizer()
        if not selected:
            raise BadInput(missing[0].partition(": ")[2] if missing else "no column is asked for.")
        for problem in missing:
            self._say(problem)
        return selected

    def _missing(self, path: str) -> str | None:
        """Why a path of a suite cannot be read, or None. Two Moses files may be named by their common beginning."""
        if "{data}" not in path:
            return None
        if self.data is None:
            raise BadInput(f"{self.name} at scale {self.scale} reads files. Say where with --data FOLDER.")
        file = Path(fill(path, self.data))
        if file.exists():
            return None
        try:
            files_of(file)
        except NotFound:
            return f"{file}: not there. --data must name the folder that holds it."
        return None


def _reason(error: Exception) -> str:
    """The reason why a row crashed, for a person."""
    return str(error) if isinstance(error, InterlinguaError) else f"{type(error).__name__}: {error}"


def slug(name: str) -> str:
    """A folder name for a row."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "row"
