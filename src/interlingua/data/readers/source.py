"""Where rows come from: a file, a folder, a glob; their first characters; their lines; their identity."""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from interlingua.errors import InterlinguaError
from interlingua.files import UNREADABLE, existing, is_input, open_input, read_lines
from interlingua.progress import say

PathLike = str | Path
HEAD_BYTES = 1 << 16


def expand(path: PathLike | Iterable[PathLike]) -> list[Path]:
    """The files meant by a path: itself (a pipe too; `-` is /dev/stdin), the files of a folder (not of its sub-folders,
    no hidden ones), or the matches of a glob, in sorted order. What else a folder holds, a pipe or a broken link, is
    said. An iterable of paths is expanded one by one, in the order given."""
    if not isinstance(path, (str, Path)):
        return [file for one in path for file in expand(one)]
    here = Path(path)
    if is_input(here):
        return [existing(here)]
    if here.is_dir():
        inside = sorted(one for one in here.iterdir() if not one.name.startswith(".") and not one.is_dir())
        found = [one for one in inside if one.is_file()]
        if other := [one.name for one in inside if not one.is_file()]:
            say(f"{path}: not read, as they are no regular files: {', '.join(other)}")
        what = "the folder holds no file"
    elif glob.has_magic(str(path)):
        found = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if not Path(name).is_dir())
        what = "no file matches"
    else:
        return [existing(here)]
    if not found:
        raise InterlinguaError(f"{path}: {what}. Check the path.")
    return found


def head(path: Path) -> str:
    """The first 64 KiB as text, to recognise a format by. Raises InterlinguaError for an empty file."""
    try:
        with open_input(path) as stream:
            start = stream.read(HEAD_BYTES)
    except UNREADABLE as error:
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


def kind_of(path: Path) -> str:
    """The suffix of the file name without `.gz`, in small letters: `.csv`, also of Table.CSV.gz. A pipe without a
    suffix (`/dev/stdin`, `/dev/fd/63`) is `.jsonl` where it begins with an object."""
    suffix = Path(plain_name(path)).suffix.lower()
    return ".jsonl" if not suffix and not path.is_file() and head(path).lstrip().startswith("{") else suffix

