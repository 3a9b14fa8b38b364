"""Run a paper's table: train each row with each seed, measure it, compare with the paper.

Every finished part stays in the output folder; the same command goes on after an interruption and costs nothing when
all is there.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from interlingua.alignment import Calibration
from interlingua.data.datasets import DataSpec, read
from interlingua.errors import BadInput, suggestion
from interlingua.experiments.spec import CalibrationSpec, Reading, TableSpec, fill, filled
from interlingua.experiments.suites import Values, measure
from interlingua.files import atomic_write
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import default_device
from interlingua.models.encoder import Encoder
from interlingua.models.late_interaction import Model, load_any
from interlingua.retrieval.dense.sharded import ALONE, Shards
from interlingua.training.backbones import Backbone
from interlingua.training.build import dual_of, train
from interlingua.training.processes import Processes
from interlingua.training.recipe import (
    Recipe,
    kept_recipe,
    read_recipe,
    recipe_digest,
    recipe_folder,
    recipe_text,
    same_recipe,
)
from interlingua.training.weighted import check

logger = logging.getLogger(__name__)


def read_model(folder: str | Path, how: Reading, device: str | None) -> Model:
    """The model in `folder`; with a layer or a pooling, its one encoder cut to that layer and pooled so."""
    if how.layer is None and how.pooling is None:
        return load_any(folder, device=device)
    return DualEncoder(Encoder.load(folder, layer=how.layer, pooling=how.pooling, device=device))


def calibrated(model: DualEncoder, spec: CalibrationSpec, source: DataSpec) -> DualEncoder:
    """The same model with maps fitted on raw text: of each language a random `source.limit` of its sentences."""
    texts: dict[str, list[str]] = defaultdict(list)
    seen: Counter[str] = Counter()
    random = Random(0)
    for sentence in read("calibrate_on", source):
        held = texts[sentence.lang]
        seen[sentence.lang] += 1
        if source.limit is None or len(held) < source.limit:
            held.append(sentence.text)
        elif (place := random.randrange(seen[sentence.lang])) < source.limit:  # Vitter's reservoir: all equally likely
            held[place] = sentence.text
    for role in ("passage",) if model.tied else ("query", "passage"):
        encoder = model.encoder(role)
        vectors = {lang: encoder.encode(those, role=role) for lang, those in texts.items()}
        encoder.language_maps = Calibration.fit(
            vectors, pivot=spec.pivot, shift=spec.shift, scale=spec.scale, rotate=spec.rotate
        ).maps
    return model


@dataclass(slots=True)
class Reproduction:
    """A table at a scale: where its data is, where its runs go, with which seeds."""

    table: TableSpec
    name: str
    scale: str
    data: str | None
    out: Path
    seeds: int = 1
    device: str | None = None
    only: Sequence[str] | None = None
    processes: Processes = ALONE

    def rows(self) -> list[str]:
        """The rows to run; an unknown name among those asked for is an error, and so is no seed."""
        if self.seeds < 1:
            raise BadInput(f"--seeds {self.seeds}: at least one is needed.")
        there = [name for name, row in self.table.rows_at(self.scale).items() if row.shown]
        for name in self.only or ():
            if name not in there:
                raise BadInput(f"row '{name}' is not in this table.{suggestion(name, there)}")
        return [name for name in there if self.only is None or name in self.only]

    @property
    def stem(self) -> str:
        """The name of the folders and files of this table: `hu2023-table2`, also for a table of one's own."""
        return slug(self.name.removesuffix(".yaml"))

    def folder(self, row: str, seed: int) -> Path:
        """The run folder of one row and seed."""
        return self.out / self.stem / self.scale / slug(row) / f"seed-{seed}"

    def plan(self) -> list[str]:
        """Describe the run that is planned, one line a row; every recipe is resolved and checked."""
        lines = []
        wanted = self.rows()
        before = dict.fromkeys(after for row in wanted if (after := self.table.rows[row].after) is not None)
        for row in [*(row for row in before if row not in wanted), *wanted]:
            recipe = self.recipe(row, 1)
            check(recipe)
            spec = self.table.rows[row]
            ranking = self.table.ranking(row, self.scale)
            ranked = "" if ranking is None else f", ranked by {ranking.pipeline}"
            if ranking is not None and not ranking.needs_model:
                lines.append(f"{row}: no model{ranked}")
                continue
            if spec.of is not None:
                lines.append(f"{row}: the model of '{spec.of}'{', calibrated' * (spec.calibrate is not None)}{ranked}")
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
                f"{self.seeds} seed(s){ranked}"
            )
        return lines

    def run(self) -> dict[str, list[Values]]:
        """Train and measure everything: row → one `Values` a seed. Of several processes the first has all values."""
        rows = self.rows()
        self._check_data()
        self.processes = Processes.join(self.device)
        if self.processes.count > 1:
            self.device = str(self.processes.device)
        self._start()
        results: dict[str, list[Values]] = {}
        for row in rows:
            ranking = self.table.ranking(row, self.scale)
            # without a model nothing depends on the seed
            seeds = range(1, self.seeds + 1) if ranking is None or ranking.needs_model else [1] * self.seeds
            results[row] = [self._row(row, seed) for seed in seeds]
        return results

    def recipe(self, row: str, seed: int) -> Recipe:
        """The recipe of one row with one seed: from the common start, or from the model of the row it comes after."""
        after = self.table.rows[row].after
        start = self.start_folder() if after is None else self.run_folder(after, seed) / "model"
        return self.table.recipe(row, self.scale, self.data, seed, start)

    def _row(self, row: str, seed: int) -> Values:
        folder = self.folder(row, seed)
        file, scale, spec = folder / "values.json", self.table.scale(self.scale), self.table.rows[row]
        # a row of another row's model depends on that row's recipe, not on its own
        trained = row if spec.of in (None, "start") else str(spec.of)
        recipe = self.recipe(trained, seed)
        suites = self.table.suites(self.scale)
        asked = {
            "measures": self.table.measures,
            "columns": scale.columns,
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
            asked["pipeline"] = {ranking.pipeline: spec.tune}
        if spec.after is not None:
            asked["after"] = recipe_text(self.recipe(spec.after, seed))
        done = file.exists()
        self.processes.wait()  # all have looked before the first one writes
        if done:
            kept = json.loads(file.read_text(encoding="utf-8"))
            before = dict(kept.get("asked") or {})
            if not same_recipe(before.pop("recipe", ""), recipe) or before != asked:
                raise BadInput(
                    f"{folder}: holds results of another recipe, suite or --data folder. "
                    "Delete it, or use another --out."
                )
            logger.info(f"{row}, seed {seed}: done before ({file})")
            return dict(kept["values"])
        logger.info(f"{row}, seed {seed}")
        model = self.model(row, seed) if ranking is None or ranking.needs_model else None
        shards = Shards(folder / "vectors", scale.vectors, processes=self.processes)
        values = measure(model, suites, self.table.measures, self.data, scale.columns, ranking, shards)
        if self.processes.first:
            with atomic_write(file) as stream:
                json.dump({"asked": {"recipe": recipe_text(recipe), **asked}, "values": values}, stream)
        shards.remove()
        return values

    def model(self, row: str, seed: int) -> Model:
        """Load the model of a row, read as the scale says and calibrated if the row is."""
        scale, spec, start = self.table.scale(self.scale), self.table.rows[row], self.start_folder()
        model: Model
        if spec.of == "start" and start is None:
            model = self._untrained(row, seed)
        else:
            folder = start if spec.of == "start" and start is not None else self._trained(row, seed)
            model = read_model(folder, scale.read, self.device)
        if spec.calibrate is not None and scale.calibrate_on is not None:
            if not isinstance(model, DualEncoder):
                raise BadInput(f"row '{row}': only a model with one vector a text can be calibrated.")
            model = calibrated(model, spec.calibrate, filled(scale.calibrate_on, self.data))
        return model

    def _trained(self, row: str, seed: int) -> Path:
        """Train the model of a row unless that is done, by whichever table; return its folder."""
        trained = self.table.rows[row].of or row
        if (after := self.table.rows[trained].after) is not None:
            self._trained(after, seed)
        recipe, folder = self.recipe(trained, seed), self.run_folder(trained, seed)
        if folder != self.folder(trained, seed):
            logger.info(f"{row}, seed {seed}: trained before, by the same recipe, in {folder}")
            return folder / "model"
        train(recipe, folder, self.device)
        if self.processes.first:
            with atomic_write(self._note(recipe)) as stream:
                stream.write(f"{folder.relative_to(self.out)}\n")
        self.processes.wait()
        return folder / "model"

    def _note(self, recipe: Recipe) -> Path:
        """The file that says where the model of a recipe was trained."""
        return self.out / "trained" / recipe_digest(recipe)

    def run_folder(self, row: str, seed: int) -> Path:
        """The run folder of the model of a row: where another table, or another row, trained the same recipe to its
        end, else the row's own."""
        recipe, own = self.recipe(row, seed), self.folder(row, seed)
        note = self._note(recipe)
        if (own / "model").exists() or not note.exists():
            return own
        other = self.out / note.read_text(encoding="utf-8").strip()
        text = other / "recipe.yaml"
        kept = kept_recipe(text.read_text(encoding="utf-8")) if (other / "model").exists() and text.exists() else None
        return other if kept is not None and recipe_digest(kept) == recipe_digest(recipe) else own

    def _untrained(self, row: str, seed: int) -> DualEncoder:
        """The untrained model of a recipe where the scale has no start: its backbone, pooled as it says."""
        how = self.table.scale(self.scale).read.model_dump(exclude_none=True)
        spec = self.table.recipe(row, self.scale, self.data, seed, None).model.model_copy(update=how)
        if Backbone.of(spec.backbone).name is None:
            raise BadInput(
                f"row '{row}' measures what training starts from, but the recipe of this scale "
                "starts from nothing. Give the scale a start."
            )
        return dual_of(spec, None, None, seed).to(default_device(self.device)).eval()

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
            train(read_recipe(recipe, data=self.data), folder.parent, self.device)
        return folder

    def _check_data(self) -> None:
        """Say what is missing before hours pass, not after."""
        source = self.table.scale(self.scale).calibrate_on
        texts = [path for path in source.paths() if "*" not in path] if source is not None else []
        for suite in self.table.suites(self.scale).values():
            for path in [*suite.paths(), *texts]:
                if "{data}" in path and self.data is None:
                    raise BadInput(f"{self.name} at scale {self.scale} reads files. Say where with --data FOLDER.")
                if "{data}" in path and not Path(fill(path, self.data)).exists():
                    raise BadInput(f"{fill(path, self.data)}: not there. --data must name the folder that holds it.")


def slug(name: str) -> str:
    """A folder name for a row."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "row"
