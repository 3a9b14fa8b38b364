"""The public data that tables read: where it comes from, how it lies, and whether a folder has it complete.

`recipes/datasets.yaml` describes it. Only what was read here to the end is called complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from interlingua.data.collections import load_collection
from interlingua.data.datasets import READERS
from interlingua.data.readers.source import files_of
from interlingua.errors import BadInput, Damaged, NotFound
from interlingua.files import read_lines
from interlingua.settings import Settings
from interlingua.training.recipe import read_yaml, recipe_folder

UNLIMITED: dict[str, dict[str, Any]] = {"wikimatrix": {"limit": None, "threshold": 0.0}, "passages": {"limit": None}}
"""Options with which a reader gives every row."""


class Check(Settings):
    """The conditions under which a file or folder is complete."""

    kind: Literal["questions", "parallel", "sentences", "documents"] | None = None
    format: str | None = None
    rows: int | None = Field(None, description="records, exactly")
    least: int | None = Field(None, description="records, at least")
    lines: int | None = Field(None, description="lines of a text file, exactly")
    least_lines: int | None = Field(None, description="lines of a text file, at least")
    passages: int | None = Field(None, description="of a collection, at least")
    queries: int | None = Field(None, description="of a collection, at least")
    holds: list[str] = Field(default_factory=list, description="patterns of files in the folder")
    pairs: dict[str, int] = Field(
        default_factory=dict, description="patterns of the two files of a language pair in the folder: lines of each"
    )
    langs: list[str] = Field(default_factory=list, description="languages that must occur")
    texts: int | None = Field(None, description="texts that a model reads when it is measured on this")
    tokens: int | None = Field(None, description="subwords of each text, assumed, where they are passages to search")

    def said(self) -> str:
        """The conditions in words."""
        counts = {
            "{} rows": self.rows,
            "{} rows or more": self.least,
            "{} lines": self.lines,
            "{} lines or more": self.least_lines,
            "{} passages or more": self.passages,
            "{} queries or more": self.queries,
        }
        parts = [text.format(f"{count:,}") for text, count in counts.items() if count is not None]
        if self.holds:
            parts.append(f"{len(self.holds)} files, which are not read")
        if self.pairs:
            parts.append(f"two files of {len(self.pairs)} language pairs, {2 * sum(self.pairs.values()):,} lines")
        if self.langs:
            parts.append(f"in {len(self.langs)} languages at least")
        return ", ".join(parts) or "1 row or more"


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
    """Collections of ir_datasets, which keeps them in its own folder."""

    name: str
    address: str
    size: str
    licence: str
    fetch: str
    cached: list[str] = Field(description="patterns of files in the folder of ir_datasets; {1} is a part of the id")
    unchecked: str = Field("", description="what else is needed, and cannot be looked for by its name")
    tokens: int = Field(description="subwords of a passage, assumed")

    def files(self, name: str) -> list[str]:
        """The patterns of the files of one collection."""
        return [pattern.format(*name.split("/")) for pattern in self.cached]

    def lines(self, names: Sequence[str], home: Path) -> Iterator[str]:
        """Lines on the collections that lie in the folder of ir_datasets, by the names of its files, and on where the
        rest comes from."""
        groups: dict[bool, list[str]] = {}
        for name in names:
            groups.setdefault(all(_filled(home, pattern) for pattern in self.files(name)), []).append(name)
        for exists, group in groups.items():
            files = list(dict.fromkeys(pattern for name in group for pattern in self.files(name)))
            state = "not" if not exists else "partly" if self.unchecked else "there, not read,"
            yield f"- {state} in ir_datasets' folder {home}: {self.name}: {', '.join(group)}"
            if not exists:
                yield f"    missing: {', '.join(pattern for pattern in files if not _filled(home, pattern))}"
            for key in ("address", "size", "licence", "fetch"):
                yield f"    {key}: {getattr(self, key)}"
            yield f"    check: by the names of {len(files)} file{'s' * (len(files) > 1)}, not read"
            if self.unchecked:
                yield f"    not looked for: {self.unchecked}"


def _filled(home: Path, pattern: str) -> bool:
    """Whether a file that is not empty fits the pattern."""
    return any(file.stat().st_size for file in home.glob(pattern))


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
    checks: dict[str, Check] = field(default_factory=dict)
    """path that is read → when it is complete."""

    @property
    def ready(self) -> bool:
        """Whether everything that the table reads of it is complete."""
        return not self.missing and not self.malformed

    def lines(self) -> Iterator[str]:
        """Lines on the files that are there, and on where the rest comes from."""
        name = self.data.name if self.data is not None else "files of which no public data set is known here"
        default = "there" if self.named else "complete"
        state = "MISSING" if self.missing else "MALFORMED" if self.malformed else default
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
        if self.data is not None:
            for key in ("address", "size", "licence", "layout", "convert"):
                yield f"    {key}: {getattr(self.data, key)}"
            checks: dict[str, list[str]] = {}
            for path, check in self.checks.items():
                checks.setdefault(check.said(), []).append(path)
            yield from (f"    check: {description}: {', '.join(paths)}" for description, paths in checks.items())


def examine(place: Path, path: str, check: Check, entry: Found) -> None:
    """Note in `entry` whether what lies at `place` is complete."""
    entry.checks[path] = check
    if not place.exists():
        try:
            files_of(place)  # a pattern, or what the names of two Moses files have in common
        except (NotFound, BadInput):
            entry.missing.append(path)
            return
    try:
        summary = measured(place, check)
    except (BadInput, NotFound, Damaged, OSError, EOFError) as error:
        entry.malformed.append(f"{path}: {error}")
        return
    paths = entry.named if check.holds else entry.complete
    paths.append(path if entry.data is None else f"{path} ({summary})")


def measured(place: Path, check: Check) -> str:
    """Count what is at a place, and say how much it is. Raises BadInput where that is not enough."""
    if check.holds:
        missing = [pattern for pattern in check.holds if not any(place.glob(f"{pattern}*"))]
        if missing:
            raise BadInput(f"has no {', '.join(missing)}")
        matches = list(dict.fromkeys(file for pattern in check.holds for file in sorted(place.glob(f"{pattern}*"))))
        empty = [file.name for file in matches if file.is_file() and not file.stat().st_size]
        if empty:
            raise BadInput(f"has empty files: {', '.join(empty)}")
        return f"{len(matches)} files"
    if check.pairs:
        total = 0
        for pattern, needed in check.pairs.items():
            files = sorted(place.glob(pattern))
            if len(files) != 2:
                raise BadInput(f"has {len(files)} files {pattern}, two are needed")
            for file in files:
                if (lines := sum(1 for _ in read_lines(file))) != needed:
                    raise BadInput(f"{file.name} has {lines:,} lines, {needed:,} are needed")
            total += 2 * needed
        return f"{2 * len(check.pairs)} files, {total:,} lines"
    if check.passages is not None or check.queries is not None:
        collection = load_collection(place)
        counts = {"passages": len(collection.passages), "queries": len(collection.queries)}
        for name, needed in (("passages", check.passages or 0), ("queries", check.queries or 0)):
            if counts[name] < needed:
                raise BadInput(f"has {counts[name]:,} {name}, {needed:,} are needed")
        return f"{counts['passages']:,} passages, {counts['queries']:,} queries"
    if check.kind is not None:
        unit, exact, minimum = "rows", check.rows, check.least
        options: dict[str, Any] = UNLIMITED.get(check.format or "", {})
        langs: Counter[str] = Counter(
            getattr(record, "lang", "") for record in READERS[check.kind](place, format=check.format, **options)
        )
        count = langs.total()
        if missing := [lang for lang in check.langs if lang not in langs]:
            raise BadInput(f"has no {check.kind} in {', '.join(missing)}")
    else:
        unit, exact, minimum = "lines", check.lines, check.least_lines
        count = sum(1 for _ in read_lines(place)) if (exact or minimum) and place.is_file() else 0
    if exact is not None and count != exact:
        raise BadInput(f"has {count:,} {unit}, {exact:,} are needed")
    if minimum is not None and count < minimum:
        raise BadInput(f"has {count:,} {unit}, {minimum:,} at least are needed")
    return f"{count:,} {unit}"
