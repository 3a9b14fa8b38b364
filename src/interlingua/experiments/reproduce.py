"""Run a paper's table: train each row with each seed, measure it, and set the result beside the paper's numbers.

Every finished part stays in the output folder; the same command goes on after an interruption and costs nothing when
all is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interlingua.errors import InterlinguaError, suggestion
from interlingua.experiments.suites import Values, fill, measure
from interlingua.experiments.table_spec import TableSpec
from interlingua.files import atomic_write
from interlingua.progress import say
from interlingua.training.build import train
from interlingua.training.recipe import read_recipe, recipe_text
from interlingua.training.terms import check


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

    def rows(self) -> list[str]:
        """The rows to run; an unknown name among those asked for is an error, and so is no seed."""
        if self.seeds < 1:
            raise InterlinguaError(f"--seeds {self.seeds}: at least one is needed.")
        there = list(self.table.rows_at(self.scale))
        for name in self.only or ():
            if name not in there:
                raise InterlinguaError(f"row '{name}' is not in this table.{suggestion(name, there)}")
        return [name for name in there if self.only is None or name in self.only]

    @property
    def stem(self) -> str:
        """What folders and files of this table are called: `hu2023-table2`, also for a table of one's own."""
        return slug(self.name.removesuffix(".yaml"))

    def folder(self, row: str, seed: int) -> Path:
        """The run folder of one row and seed."""
        return self.out / self.stem / self.scale / slug(row) / f"seed-{seed}"

    def plan(self) -> list[str]:
        """What would run, one line a row; every recipe is resolved and checked."""
        lines = []
        for row in self.rows():
            recipe = self.table.recipe(row, self.scale, self.data, 1, self._start_folder())
            check(recipe)
            objectives = " + ".join(f"{spec.get('weight', 1.0)}·{name}"
                                    for name, spec in recipe.objectives.items() if spec)
            batches = ", ".join(f"{name} {spec.batch}" for name, spec in recipe.data.items())
            lines.append(f"{row}: {recipe.model.backbone if isinstance(recipe.model.backbone, str) else 'new'}, "
                         f"{objectives}, {recipe.training.steps:,} steps, batch {batches}, {self.seeds} seed(s)")
        return lines

    def run(self) -> dict[str, list[Values]]:
        """Train and measure everything: row → one `Values` a seed."""
        rows = self.rows()
        self._check_data()
        start = self._start()
        results: dict[str, list[Values]] = {}
        for row in rows:
            results[row] = [self._row(row, seed, start) for seed in range(1, self.seeds + 1)]
        return results

    def _row(self, row: str, seed: int, start: Path | None) -> Values:
        folder = self.folder(row, seed)
        recipe = self.table.recipe(row, self.scale, self.data, seed, start)
        file, scale = folder / "values.json", self.table.scale(self.scale)
        suites = self.table.suites(self.scale)
        asked = {"recipe": recipe_text(recipe), "suites": {name: suite.model_dump() for name, suite in suites.items()},
                 "measures": self.table.measures, "columns": scale.columns, "data": self.data}
        if file.exists():
            kept = json.loads(file.read_text(encoding="utf-8"))
            if kept.get("asked") != asked:
                raise InterlinguaError(f"{folder}: holds results of another recipe, suite or --data folder. "
                                       "Delete it, or use another --out.")
            say(f"{row}, seed {seed}: done before ({file})")
            return dict(kept["values"])
        say(f"{row}, seed {seed}")
        values = measure(train(recipe, folder, self.device), suites, self.table.measures, self.data, scale.columns)
        with atomic_write(file) as stream:
            json.dump({"asked": asked, "values": values}, stream)
        return values

    def _start_folder(self) -> Path | None:
        start = self.table.scale(self.scale).start
        if start is None:
            return None
        name = f"{self.table.folder.name}/{start.removesuffix('.yaml')}"
        return self.out / "starts" / slug(name) / "model"

    def _start(self) -> Path | None:
        """The common start of all rows, trained once for all tables of this output folder."""
        folder = self._start_folder()
        if folder is not None:
            recipe = str(self.table.folder / str(self.table.scale(self.scale).start))
            train(read_recipe(recipe, data=self.data), folder.parent, self.device)
        return folder

    def _check_data(self) -> None:
        """Say what is missing before hours pass, not after."""
        for suite in self.table.suites(self.scale).values():
            passages = [suite.passages] if suite.passages else []
            for path in [*suite.collections.values(), *suite.tatoeba.values(), *passages]:
                if "{data}" in path and self.data is None:
                    raise InterlinguaError(f"{self.name} at scale {self.scale} reads files. "
                                           "Say where with --data FOLDER.")
                if "{data}" in path and not Path(fill(path, self.data)).exists():
                    raise InterlinguaError(f"{fill(path, self.data)}: not there. --data must name the folder that "
                                           "holds it.")


def slug(name: str) -> str:
    """A folder name for a row."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "row"
