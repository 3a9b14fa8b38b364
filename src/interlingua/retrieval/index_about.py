"""What an index was made with (index.json), and what it holds."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from interlingua.errors import InterlinguaError
from interlingua.files import atomic_write

if TYPE_CHECKING:  # it imports every reader of files
    from interlingua.data.files.walk import SourceNames

FORMAT = 4
MARKER = "index.json"
SOURCES = "sources.json"


@dataclass(frozen=True)
class About:
    """`model` is the name or folder of the encoder ("" if it was not said) and `fingerprint` its own; `k1` and `b` are
    BM25's. `made` is another one for each index that is built."""

    model: str
    fingerprint: dict[str, Any]
    similarity: str
    dim: int
    k1: float
    b: float
    made: str = field(default_factory=lambda: uuid4().hex)

    def write(self, folder: Path) -> None:
        """Write index.json."""
        content = json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False, indent=1)
        (folder / MARKER).write_text(content + "\n", encoding="utf-8")


@dataclass(frozen=True)
class IndexInfo:
    """`version` of the store and the version that the `cache` was made from; `newer` and `deleted` are the rows that
    the cache does not know yet. `analyzers` by language: which one, and its version."""

    passages: int
    languages: dict[str, int]
    model: str
    similarity: str
    dim: int
    version: int
    cache: int
    newer: int
    deleted: int
    k1: float
    b: float
    analyzers: dict[str, str]


def read_about(folder: Path) -> About:
    """What index.json says. Raises InterlinguaError when `folder` is no index, or one that cannot be read."""
    file = folder / MARKER
    if not file.is_file():
        raise InterlinguaError(f"{folder}: is not an index (no {MARKER}). Make one with `interlingua index`.")
    try:
        about = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(file, error) from error
    if not isinstance(about, dict) or "format" not in about:
        raise damaged(file, "no 'format'")
    if (known := about.pop("format")) != FORMAT:
        raise InterlinguaError(f"{folder}: has index format {known}, {FORMAT} is known. Build it again with "
                               "--overwrite.")
    kinds = {"model": str, "fingerprint": dict, "similarity": str, "dim": int, "k1": float, "b": float, "made": str}
    for key, kind in kinds.items():
        if not isinstance(about.get(key), kind):
            raise damaged(file, f"'{key}' is missing or no {kind.__name__}")
    return About(**{key: about[key] for key in kinds})


def read_sources(folder: Path) -> dict[str, str]:
    """The names of the files and folders that an index was made from, and where each was; none for one that was made
    of passages."""
    file = folder / SOURCES
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise damaged(file, error) from error
    if not isinstance(known, dict) or not all(isinstance(place, str) for place in known.values()):
        raise damaged(file, "no object of names and paths")
    return known


def write_sources(folder: Path, names: SourceNames) -> None:
    """Keep the names, whole or not at all."""
    if names.known != read_sources(folder):
        with atomic_write(folder / SOURCES) as stream:
            stream.write(json.dumps(names.known, ensure_ascii=False, indent=1) + "\n")


def signature(folder: Path) -> tuple[int, int]:
    """Of index.json, which is another file for each index that is built."""
    try:
        found = (folder / MARKER).stat()
    except OSError:
        return (0, 0)  # an index that is just being replaced, or gone
    return found.st_ino, found.st_mtime_ns


def damaged(path: Path, reason: object) -> InterlinguaError:
    """The error for a part of an index that cannot be what was written."""
    return InterlinguaError(f"{path}: is damaged ({reason}). Build it again with --overwrite.")
