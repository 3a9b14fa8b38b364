"""Where rows come from: a file, a folder, a glob; their first characters; their lines; their identity."""

from __future__ import annotations

import glob
import gzip
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from interlingua.errors import InterlinguaError
from interlingua.files import existing, read_lines

PathLike = str | Path
HEAD_BYTES = 1 << 16


def expand(path: PathLike | Iterable[PathLike]) -> list[Path]:
    """The files meant by a path: itself, the files of a folder (not of its sub-folders, no hidden ones), or the
    matches of a glob, in sorted order. An iterable of paths is expanded one by one, in the order given."""
    if not isinstance(path, (str, Path)):
        return [file for one in path for file in expand(one)]
    here = Path(path)
    if here.is_file():
        return [here]
    if here.is_dir():
        found = sorted(file for file in here.iterdir() if file.is_file() and not file.name.startswith("."))
        what = "the folder holds no file"
    elif glob.has_magic(str(path)):
        found = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
        what = "no file matches"
    else:
        return [existing(here)]
    if not found:
        raise InterlinguaError(f"{path}: {what}. Check the path.")
    return found


def open_bytes(path: Path) -> IO[bytes]:
    """The bytes of a file, gunzipped when it is gzipped."""
    with open(existing(path), "rb") as probe:
        packed = probe.read(2) == b"\x1f\x8b"
    return cast("IO[bytes]", gzip.open(path, "rb")) if packed else open(path, "rb")


def head(path: Path) -> str:
    """The first 64 KiB as text, to recognise a format by. Raises InterlinguaError for an empty file."""
    try:
        with open_bytes(path) as stream:
            start = stream.read(HEAD_BYTES)
    except (EOFError, OSError) as error:
        raise InterlinguaError(f"{path}: cannot be read ({error}).") from error
    utf16 = start.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = start.decode("utf-16" if utf16 else "utf-8-sig", errors="ignore")
    if not text.strip():
        raise InterlinguaError(f"{path}: is empty. Check how the file was made, or remove it.")
    return text


def whole_json(path: Path) -> Any:
    """The parsed JSON of a file that fits in memory (SQuAD), with errors that name the line."""
    text = "\n".join(line for _, line in read_lines(path))
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InterlinguaError(f"{path}: not JSON ({error}). Fetch the file again.") from error


def filled_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a jsonl file that are not blank: a blank line carries no row."""
    return ((number, line) for number, line in read_lines(path) if line.strip())


def first_keys(start: str) -> set[str]:
    """The keys of the JSON object that `start` begins with, also when the text was cut inside it."""
    try:
        row, _ = json.JSONDecoder().raw_decode(start.lstrip())
    except (ValueError, RecursionError):
        return set(re.findall(r'"(\w+)"\s*:', start)) if start.lstrip().startswith("{") else set()
    return set(row) if isinstance(row, dict) else set()


def columns(start: str) -> set[int]:
    """The numbers of tab-separated columns among the first twenty complete lines."""
    lines = start.split("\n")
    return {line.count("\t") + 1 for line in (lines[:-1] or lines)[:20]}


def plain_name(path: Path) -> str:
    """The file name without `.gz`."""
    return path.name[:-3] if path.name.endswith(".gz") else path.name

