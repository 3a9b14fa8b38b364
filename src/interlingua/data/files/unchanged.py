"""Files that an index holds as they are, so that they need not be read again."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from xxhash import xxh3_64, xxh3_128

SETTLED = 2.0
"""Seconds that a file must be older than its reading to be remembered: one that is written within the same tick of its
file system's clock (two seconds at the most, FAT) can look the same."""
READERS = ("interlingua", "py3langid", "pypdf", "python-docx", "python-pptx", "charset-normalizer", "pyarrow")
"""Packages that another version of which may read other passages from the same bytes."""


class Held(NamedTuple):
    """The passages of one source in an index: how many, and a digest of their row numbers, which are never given
    twice."""

    passages: int
    digest: int


class Stamp(NamedTuple):
    """The size and times of a file. A change of its content changes `changed` (ctime), which no program can set back,
    whatever it does to `modified`."""

    size: int
    modified: int
    changed: int
    inode: int
    device: int

    @classmethod
    def of(cls, path: str | Path) -> Stamp | None:
        """The stamp of a regular file; None for anything else, and where there is none."""
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_dev)

    def is_settled(self, now: float) -> bool:
        """Whether a change after `now` would have another stamp."""
        return max(self.modified, self.changed) < (now - SETTLED) * 1e9


class FileMemory:
    """The files that an index holds as they are, for one sync. A file is not read again where three things are as they
    were when it was read as a whole: its stamp, how it was read, and the rows of its passages in the index.

    `seals` is what an index remembers: name → a digest of the three. `held` are the rows of each source. `same` are the
    files that were not read, with the number of their passages.
    """

    def __init__(self, seals: Mapping[str, str] | None = None, held: Mapping[str, Held] | None = None) -> None:
        self.seals, self.held = seals or {}, held or {}
        self.same: dict[str, int] = {}
        self._marks: dict[str, str] = {}
        self._shared: set[str] = set()

    def is_same(self, name: str, stamp: Stamp, how: str) -> bool:
        """Whether a file need not be read. It is then one of `same`; else it is not, also where it was one before."""
        rows, seal = self.held.get(name), self.seals.get(name)
        if rows is None or seal is None or seal != _seal(_mark(stamp, how), rows):
            self.same.pop(name, None)
            return False
        self.same[name] = rows.passages
        return True

    def note(self, name: str, stamp: Stamp, how: str) -> None:
        """Remember a file that was read as a whole."""
        self._marks[name] = _mark(stamp, how)

    def share(self, source: str) -> None:
        """A row of a file names this source as its own, so that its passages are not those of one file."""
        self._shared.add(source)

    def sealed(self, held: Mapping[str, Held], may_be_gone: Callable[[str], bool]) -> dict[str, str]:
        """The seals to keep when the index has the rows `held`: of the files that were noted, of `same`, and of others
        but those that `may_be_gone` tells of by their names."""
        old_seals = {name: seal for name, seal in self.seals.items() if name in self.same or not may_be_gone(name)}
        new_seals = {name: _seal(mark, held[name]) for name, mark in self._marks.items() if name in held}
        return {name: seal for name, seal in (old_seals | new_seals).items() if name not in self._shared}


def way_of_reading(options: Mapping[str, Any]) -> str:
    """A digest of options of reading, and of the versions of what reads."""
    return xxh3_64(
        json.dumps([dict(options), [_version(name) for name in READERS]], sort_keys=True).encode()
    ).hexdigest()


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _mark(stamp: Stamp, how: str) -> str:
    return f"{' '.join(map(str, stamp))} {how}"


def _seal(mark: str, rows: Held) -> str:
    return xxh3_128(f"{mark} {rows.passages} {rows.digest}".encode()).hexdigest()
