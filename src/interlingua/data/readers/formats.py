"""How a format is named, recognised and read, and how a path is read with one of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from interlingua.data.readers.bad_rows import BadRows
from interlingua.data.readers.pairing import TwoFiles
from interlingua.data.readers.source import head
from interlingua.errors import InterlinguaError, suggestion

Record = TypeVar("Record")


@dataclass(frozen=True)
class Format(Generic[Record]):
    """`matches(path, first 64 KiB)` recognises it by content; `read(path, bad rows, **options)` reads it.
    A format of two files has no `matches`: the files were found by their names."""

    name: str
    what: str
    read: Callable[..., Iterator[Record]]
    matches: Callable[[Path, str], bool] | None

    def options(self) -> dict[str, Any]:
        """Each option's name and type."""
        return {name: parameter.annotation
                for name, parameter in inspect.signature(self.read, eval_str=True).parameters.items()
                if parameter.kind is parameter.KEYWORD_ONLY}

    def checked(self, given: dict[str, Any]) -> dict[str, Any]:
        """Those of the options `given` that this format has. Raises InterlinguaError for a value of another type, and
        for a value of an option that it does not have."""
        known, found = self.options(), {}
        for key, value in given.items():
            if key in known:
                try:
                    found[key] = TypeAdapter(known[key]).validate_python(value)
                except ValidationError as error:
                    reason = error.errors()[0]["msg"].lower()
                    raise InterlinguaError(f"the format '{self.name}': {key}={value!r}: {reason}.") from error
            elif value is not None:
                raise InterlinguaError(f"the format '{self.name}' has no option '{key}'.{suggestion(key, known)}")
        return found


def recognise(unit: Path | TwoFiles, formats: Sequence[Format[Record]], name: str | None) -> Format[Record]:
    """The format called `name`, else the first whose content matches. Raises InterlinguaError for an unknown name,
    an empty file, or a file that no format matches."""
    if name is not None:
        chosen = next((one for one in formats if one.name == name), None)
        if chosen is None:
            raise InterlinguaError(f"format='{name}' is unknown.{suggestion(name, [one.name for one in formats])}")
        if (chosen.matches is None) != isinstance(unit, tuple):
            needs = "two files (x.ar, x.en)" if chosen.matches is None else "one file"
            raise InterlinguaError(f"{unit if isinstance(unit, Path) else unit[0]}: the format '{name}' needs {needs}.")
        return chosen
    if isinstance(unit, tuple):
        return next(one for one in formats if one.matches is None)
    start = head(unit)
    for one in formats:
        if one.matches and one.matches(unit, start):
            return one
    known = "; ".join(f"{one.name} ({one.what})" for one in formats)
    raise InterlinguaError(f"{unit}: none of the formats that are read here. Known: {known}. "
                           "If it is one of them, say which with format=….")


def read_all(units: Iterable[Path | TwoFiles], formats: Sequence[Format[Record]], name: str | None, policy: str,
             options: dict[str, Any]) -> Iterator[Record]:
    """The records of every unit in order. Formats, options and empty files are checked at once, rows when they are
    read. What was left out is said at the end, also when the reader is closed early."""
    bad = BadRows(policy)
    chosen = []
    for unit in units:
        for file in unit if isinstance(unit, tuple) else (unit,):
            head(file)
        one = recognise(unit, formats, name)
        chosen.append((unit, one, one.checked(options)))

    def records() -> Iterator[Record]:
        try:
            for unit, one, given in chosen:
                yield from one.read(unit, bad, **given)
        finally:
            bad.report()

    return records()
