"""The values of a row with one seed: a number for each question, kept in a file beside what they depend on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interlingua.errors import BadInput, Damaged
from interlingua.experiments.spec import CalibrationSpec, Suite
from interlingua.files import atomic_write, read_object
from interlingua.training.recipe import Recipe, kept_recipe, recipe_text, same_recipe

Values = dict[str, dict[str, dict[str, dict[str, float]]]]
"""suite → measure → column → query id → value."""


def join(values: Values, more: Values) -> None:
    """Add the columns of `more` to those of `values`."""
    for suite, by_measure in more.items():
        for name, columns in by_measure.items():
            values.setdefault(suite, {}).setdefault(name, {}).update(columns)


def chosen(values: Values, wanted: Mapping[str, Suite]) -> Values:
    """The values of the suites and columns that are wanted, in their order."""
    result: Values = {}
    for name, suite in wanted.items():
        for label, columns in values.get(name, {}).items():
            order = columns if suite.xor is not None else [column for column in suite.columns() if column in columns]
            result.setdefault(name, {})[label] = {column: columns[column] for column in order}
    return result


@dataclass
class Kept:
    """The values of a row with one seed, in the file `values.json`.

    `columns`: suite → those that need not be tried again. `problems` are of values that are there all the same.
    `formats`: the number formats that the model computed in, such as "int8".
    """

    values: Values = field(default_factory=dict)
    columns: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    calibration: str = ""
    formats: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path, recipe: Recipe | None, asked: Mapping[str, Any], suites: Mapping[str, Suite]) -> Kept:
        """The values of a file, none where there is no file. Raises BadInput unless they depend on the same `recipe`
        (None: the row has no model) and on the same `asked`: measures, suites and what else the row says; Damaged for a
        file that no run wrote whole."""
        if not file.exists():
            return cls()
        try:
            content = read_object(file, values=dict)
            values, stored = content["values"], dict(content.get("asked") or {})
        except (BadInput, KeyError, TypeError, ValueError) as error:
            raise Damaged(
                f"{file}: is damaged. Delete it: the same command measures the row again. ({error})"
            ) from error
        stored.pop("columns", None)  # as older runs have it: which columns there are, the values tell
        if stored.get("calibrate"):  # an option that did not exist yet has its default
            stored["calibrate"] = CalibrationSpec.model_validate(stored["calibrate"]).model_dump()
        if "after" in asked:  # older runs have it of the rows that are trained alone
            previous = kept_recipe(stored.setdefault("after", asked["after"]))
            if previous is not None:  # with the names and fields that there are now
                stored["after"] = recipe_text(previous)
        stored_recipe = stored.pop("recipe", "")
        if (recipe is not None and not same_recipe(stored_recipe, recipe)) or stored != asked:
            raise BadInput(
                f"{file.parent}: holds results of another recipe, suite or --data folder, or --out was given in "
                "another way (relative, absolute). Give it as before, use another --out, or delete the folder."
            )
        return cls(
            values,
            content.get("measured") or measured_columns(suites, values),
            content.get("problems", []),
            content.get("calibration", ""),
            content.get("formats", []),
        )

    def left(self, name: str, suite: Suite) -> Suite | None:
        """The part of a suite that is still to be measured. The languages of a pool are measured together: a pool of
        others is another one."""
        done, columns = self.columns.get(name, []), list(suite.columns())
        if suite.merged:
            return None if sorted(done) == sorted(columns) else suite
        missing = [column for column in columns if column not in done]
        return suite.only(missing) if missing else None

    def add(self, found: Values, suites: Mapping[str, Suite]) -> None:
        """Take in what was measured of these suites. A column without values is tried again."""
        for name, columns in measured_columns(suites, found).items():
            if suites[name].merged:
                self.values.pop(name, None)
                self.columns[name] = []
            self.columns[name] = list(dict.fromkeys([*self.columns.get(name, ()), *columns]))
        join(self.values, found)

    def write(self, file: Path, recipe: Recipe | None, asked: Mapping[str, Any]) -> None:
        """Write the file, whole or not at all."""
        content = {
            "asked": {"recipe": "" if recipe is None else recipe_text(recipe), **asked},
            "measured": self.columns,
            "values": self.values,
            "problems": self.problems,
            "calibration": self.calibration,
            "formats": self.formats,
        }
        with atomic_write(file) as stream:
            json.dump(content, stream)


def measured_columns(suites: Mapping[str, Suite], values: Values) -> dict[str, list[str]]:
    """The columns of each suite that `values` have."""
    return {
        name: [
            column for column in suites[name].columns() if not column or any(column in m for m in by_measure.values())
        ]
        for name, by_measure in values.items()
        if name in suites
    }


def of_formats(formats: Mapping[str, Sequence[str]]) -> str | None:
    """A warning where the models of some rows computed in other number formats than those of others: row → its
    formats, as far as they are known."""
    rows: dict[str, list[str]] = {}
    for row, row_formats in formats.items():
        for name in row_formats:
            rows.setdefault(name, []).append(row)
    if len(rows) < 2:
        return None
    summary = "; ".join(f"{name}: {', '.join(names)}" for name, names in sorted(rows.items()))
    return f"rows were measured in different number formats, so small differences may be theirs ({summary})"
