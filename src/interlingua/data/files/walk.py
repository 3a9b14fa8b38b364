"""Finding the files: paths, globs and folders in sorted order, each file with a name that no other has."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from interlingua.data.readers.source import expand
from interlingua.errors import InterlinguaError


@dataclass(frozen=True, slots=True)
class File:
    """`name` begins the ids of its passages; `given`: the path itself was given, not a folder above it."""

    path: Path
    name: str
    given: bool


def find_files(paths: Sequence[str | Path], skip: Callable[[str, str], None]) -> Iterator[File]:
    """The files meant by `paths`, in the order given; of a folder its files by name, then those of its sub-folders.

    A file is called by its path from the folder given, with `/`; where several paths are given, after the shortest end
    of the path that tells it from the others (`docs/a.txt`, `more/a.txt`). `skip(name, reason)` hears of hidden files,
    of links (one to a hidden file of the folder is followed), and of what is no regular file. Raises InterlinguaError
    for a path that does not exist, and for a folder inside another one given.
    """
    roots = [root for path in paths for root in ([Path(path)] if Path(path).is_dir() else expand(path))]
    if not roots:
        raise InterlinguaError("no path of passages is given. Name files or folders.")
    for root, label in zip(roots, _labels(roots), strict=True):
        if root.is_dir():
            _alone(root, roots)
            yield from _walk(root, f"{label}/" if len(roots) > 1 else "", skip)
        elif root.is_file():
            yield File(root, label, True)
        else:
            raise InterlinguaError(f"{root}: is no regular file. Save what it gives to a file first.")


def _walk(root: Path, prefix: str, skip: Callable[[str, str], None]) -> Iterator[File]:
    inside = Path(os.path.realpath(root))
    waiting = [(root, prefix)]
    while waiting:
        folder, begin = waiting.pop()
        below = []
        for entry in sorted(_entries(folder), key=lambda entry: entry.name):
            name = begin + _text(entry.name)
            if entry.name.startswith("."):
                skip(name, "hidden")
            elif entry.is_symlink() and (reason := _not_followed(entry, inside)):
                skip(name, reason)
            elif entry.is_dir():
                below.append((Path(entry.path), f"{name}/"))
            elif entry.is_file():
                yield File(Path(entry.path), name, False)
            else:
                skip(name, "no regular file")
        waiting += reversed(below)


def _not_followed(link: os.DirEntry[str], root: Path) -> str:
    """Why a link is not followed; "" for one to a file of the same folder that is hidden, so not read otherwise."""
    target = Path(os.path.realpath(link.path))
    if not target.is_relative_to(root):
        return "link that leaves the folder"
    if link.is_dir():
        return "link to a folder"
    hidden = any(part.startswith(".") for part in target.relative_to(root).parts)
    return "" if hidden else "link to a file of the folder"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise InterlinguaError(f"{folder}: cannot be read ({error.strerror}).") from error


def _alone(folder: Path, roots: Iterable[Path]) -> None:
    """Raise InterlinguaError when another root lies in `folder`: its files would be read twice."""
    place = Path(os.path.realpath(folder))
    for other in roots:
        there = Path(os.path.realpath(other))
        if there != place and there.is_relative_to(place):
            raise InterlinguaError(f"{other}: lies in {folder}, which is given too, and would be read twice. "
                                   "Give one of them.")


def _labels(roots: Sequence[Path]) -> list[str]:
    """For each root the shortest end of its path that no other root has."""
    parts = [tuple(map(_text, Path(os.path.abspath(root)).parts[1:])) or ("",) for root in roots]
    ends = [1] * len(roots)
    while True:
        labels = [path[-end:] for path, end in zip(parts, ends, strict=True)]
        counts = Counter(labels)
        longer = [end + 1 if counts[label] > 1 and end < len(path) else end
                  for path, end, label in zip(parts, ends, labels, strict=True)]
        if longer == ends:
            return ["/".join(label) for label in labels]
        ends = longer


def _text(name: str) -> str:
    """A name from the file system as text that can be written."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
