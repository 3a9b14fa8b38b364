"""What a reading of files gave, and what it left out and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from interlingua.data.readers.bad_rows import LISTED, BadRow
from interlingua.errors import InterlinguaError
from interlingua.progress import say

Raw = TypeVar("Raw")
Parsed = TypeVar("Parsed")


class BadFile(Exception):
    """Raised by a reader: the reason why a file, or the rest of it, gives no passages; `line` is where."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


class Report:
    """Counts of one call of `read_files`, to be read when it is done.

    `languages`: passages of each language ("" where it is unknown). `skipped`: files of a folder that are none of its
    passages (hidden, empty, of another kind), by reason. `bad`: rows and files that could not be used; under
    `on_bad_row="error"` the first of them raises InterlinguaError, under "skip" they are counted and the first are
    listed. `left_out`: columns that are neither read nor metadata.
    """

    def __init__(self) -> None:
        self.on_bad_row = "error"
        self.files = 0
        self.languages: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.bad = 0
        self.listed: list[str] = []
        self.left_out: dict[tuple[str, str], None] = {}

    def skip(self, name: str, reason: str) -> None:
        """Count a file of a folder that is not read."""
        self.skipped[reason] += 1
        self.examples.setdefault(reason, name)

    def reject(self, path: Path, place: int | None, reason: str) -> None:
        """Raise InterlinguaError for a row (`place` is its line or number) or a file, or count it."""
        where = f"{path}, line {place}" if place else str(path)
        if self.on_bad_row == "error":
            raise InterlinguaError(f"{where}: {reason}{'' if reason.endswith('?') else '.'} Mend it, or leave out what "
                                   "cannot be used with --on-bad-row skip (in Python: on_bad_row='skip'): it is "
                                   "counted and listed.")
        self.bad += 1
        if len(self.listed) < LISTED:
            self.listed.append(f"{where}: {reason}")

    def parsed(self, path: Path, rows: Iterable[tuple[int, Raw]], parse: Callable[[Raw], Parsed]
               ) -> Iterator[tuple[int, Parsed]]:
        """(place, `parse(row)`) of every row; a BadRow that it raises is rejected."""
        for place, row in rows:
            try:
                found = parse(row)
            except BadRow as bad:
                self.reject(path, place, str(bad))
            else:
                yield place, found

    @property
    def passages(self) -> int:
        """How many were read."""
        return sum(self.languages.values())

    def __str__(self) -> str:
        counts = ", ".join(f"{lang or 'unknown'} {count:,}" for lang, count in self.languages.most_common())
        lines = [f"{self.files:,} file{'s'[:self.files != 1]}, {self.passages:,} passages: {counts}"]
        lines += self.reasons()
        lines += [f"{name}: column '{column}' is left out: it holds lists, objects or bytes, which are no metadata"
                  for name, column in self.left_out]
        return "\n".join(lines)

    def reasons(self) -> list[str]:
        """What was not read, a line each."""
        lines = [f"not read: {reason} ({count:,}{':' if count == 1 else ', such as'} {self.examples[reason]})"
                 for reason, count in self.skipped.most_common()]
        if self.bad:
            some = "s"[: self.bad != 1]
            lines.append(f"{self.bad:,} bad row{some} or file{some} left out:")
            lines += [f"  {line}" for line in self.listed]
            if self.bad > len(self.listed):
                lines.append(f"  … and {self.bad - len(self.listed):,} more")
        return lines

    def say(self) -> None:
        """Print it on standard error."""
        say(str(self))
