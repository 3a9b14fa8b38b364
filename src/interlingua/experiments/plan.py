"""The plan of a table: the data that is there, missing or malformed, how many trainings, and at what cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from interlingua.data.datasets import DataSpec
from interlingua.data.irds import irds_home
from interlingua.errors import BadInput
from interlingua.experiments.catalogue import Catalogue, Found, examine
from interlingua.experiments.cost import MARK, costs, digest, in_all, trainings
from interlingua.experiments.run import Reproduction
from interlingua.experiments.spec import TableSpec, read_table
from interlingua.training.backbones import Backbone
from interlingua.training.recipe import read_recipe, read_yaml, recipe_folder, warm_up_of

FETCHED = "ir_datasets:"


def plan(work: Reproduction) -> tuple[str, list[str]]:
    """The plan of a table as text, and the names of the data sets that are missing or malformed."""
    work.check_columns()
    catalogue = Catalogue.read()
    parts = [(part, needs(part)) for part in work.parts()]
    paths, fetched, models = (list(dict.fromkeys(name for _, need in parts for name in need[i])) for i in range(3))
    if paths and work.data is None:
        raise BadInput(f"{work.name} at scale {work.scale} reads files. Say where with --data FOLDER.")
    entries: dict[str, Found] = {}
    for path in paths:
        data, check = catalogue.of(path)
        entry = entries.setdefault("" if data is None else data.name, Found(data))
        examine(Path(str(work.data)) / path, path, check, entry)
    changes = f", changed: {', '.join(work.table.changes)}" if work.table.changes else ""
    lines = [f"{work.name} at scale {work.scale}{changes}", "", "Rows:", *(f"- {line}" for line in work.plan()), ""]
    lines += [*(line for part, _ in parts for line in trainings(part)), *together(work), ""]
    lines += [f"Data in {work.data}:" if paths else "Data: none but what is bundled."]
    lines += [line for entry in entries.values() for line in entry.lines()]
    lines += elsewhere(catalogue, fetched, models)
    for part, need in parts:
        lines += ["", *costs(part, catalogue, need[0], need[1])]
    lines += ["", in_all([(part, need[0], need[1]) for part, need in parts], catalogue)]
    incomplete = [name or entry.missing[0] for name, entry in entries.items() if not entry.ready]
    complete = "" not in entries and not any(entry.named for entry in entries.values())
    end = "The data folder is complete." if complete else "All that is named above as complete was read to its end."
    lines += ["", f"Not ready: {'; '.join(incomplete)}." if incomplete else end]
    return "\n".join(lines) + "\n", incomplete


def needs(work: Reproduction) -> tuple[list[str], list[str], list[str]]:
    """The data of the rows at one scale: paths under the data folder, collections of ir_datasets, models of the hub."""
    scale, table = work.table.scale(work.scale), work.table
    paths: list[str] = [path for row in work.rows() if (path := table.rows[row].vectors) is not None]
    hub: list[str] = []
    recipes = [table.recipe(row, work.scale, MARK, 1, None) for row in work.trained_rows()]
    if scale.start is not None:
        recipes.append(read_recipe(str(table.folder / scale.start), data=MARK))
    for recipe in recipes:
        if (warm_up := warm_up_of(recipe)) is not None:
            recipes.append(warm_up)  # this loop comes to it, too
        # an entry that no objective reads is there for the tokenizer of a new model, or not read at all
        paths += [path for spec in recipe.data.values() for path in spec.files()]
        if recipe.validation is not None:
            paths += recipe.validation.questions.files()
        if (name := Backbone.of(recipe.model.backbone).name) is not None:
            (paths if MARK in name else hub).append(name)
    if isinstance(scale.calibrate_on, DataSpec):
        paths += scale.calibrate_on.paths()
    for suite in table.suites(work.scale).values():
        paths += [path for files in work.columns_of(suite).values() for path in files]
    unique = list(dict.fromkeys(paths))
    return (
        [path.replace(f"{MARK}/", "") for path in unique if MARK in path],
        [path.removeprefix(FETCHED).partition("#")[0] for path in unique if path.startswith(FETCHED)],
        list(dict.fromkeys(hub)),
    )


def together(work: Reproduction) -> list[str]:
    """The trainings of all tables of the same paper at this scale: what they have in common is trained once."""
    folder = work.table.folder
    if not folder.resolve().is_relative_to(recipe_folder()):
        return []
    digests: list[str] = []
    tables = 0
    for path in sorted(folder.glob("*.yaml")):
        table = read_table(str(path), work.table.changes) if "title" in read_yaml(path) else None
        if not isinstance(table, TableSpec) or work.scale not in (*table.scales, *table.merged):
            continue
        tables += 1
        other = replace(work, table=table, name=f"{folder.name}/{path.stem}", only=None, columns=None)
        digests += [
            digest(part, row, seed)
            for part in other.parts()
            for row in part.trained_rows()
            for seed in range(1, work.seeds + 1)
        ]
    return [
        f"All {tables} tables and figures of {folder.name} at this scale: {len(digests)} trainings, "
        f"{len(set(digests))} after sharing."
    ]


def elsewhere(catalogue: Catalogue, fetched: Iterable[str], models: Iterable[str]) -> list[str]:
    """Lines on data that is not in the data folder. Of collections of ir_datasets the files are looked for; models of
    the hub are named, not checked."""
    lines: list[str] = []
    groups: dict[str, list[str]] = {}
    for name in fetched:
        pattern = next((one for one in catalogue.fetched if fnmatchcase(name, one)), "")
        groups.setdefault(pattern, []).append(name)
    for pattern, names in groups.items():
        if pattern:
            lines += catalogue.fetched[pattern].lines(names, irds_home())
        else:
            lines.append(f"- of ir_datasets, not checked here: see https://ir-datasets.com: {', '.join(names)}")
    for name in models:
        backbone = catalogue.models.get(name)
        description = f"{backbone.parameters:,} parameters, {backbone.licence}, {backbone.address}" if backbone else ""
        lines.append(f"- fetched from the hub at first use, not checked here: {name} {description}".rstrip())
    return ["Not in the data folder:", *lines] if lines else []
