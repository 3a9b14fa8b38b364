"""Find files in sorted order, know them by name, and report what was left out."""

from __future__ import annotations

import glob
import io
import logging
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from interlingua.data.files.unchanged import FileMemory
from interlingua.data.readers.rows import BadRows
from interlingua.data.readers.source import expand
from interlingua.errors import BadInput
from interlingua.files import open_input

logger = logging.getLogger(__name__)

ADVICE = (
    "Mend it, or leave out what cannot be used with --on-bad-row skip (in Python: on_bad_row='skip'): it is counted "
    "and listed."
)


class BadFile(Exception):
    """Raised by a reader: the reason why a file, or the rest of it, gives no passages; `line` is where."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.line = line


class MissingExtra(Exception):
    """Raised by a reader: a `library` is not installed, which an `extra` of the package brings."""

    def __init__(self, library: str, extra: str, why: str = "") -> None:
        super().__init__(f"{why}which needs {library}: pip install 'interlingua[{extra}]'")


class Report:
    """Counts of one call of `read_files`, to be read when it is done.

    `languages`: passages of each language ("" where it is unknown). `skipped`: files of a folder that are none of its
    passages (hidden, empty, of another kind), by reason. `bad_rows`: rows and files that could not be used. `left_out`:
    columns that are neither read nor metadata. `guessed`: files in an encoding that nothing names, by encoding.
    `unchanged`: files that were not read again.
    """

    def __init__(self) -> None:
        self.bad_rows = BadRows(advice=ADVICE)
        self.files = self.unchanged = 0
        self.languages: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()
        self.guessed: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self.left_out: dict[tuple[str, str], None] = {}

    def skip(self, name: str, reason: str) -> None:
        """Count a file of a folder that is not read."""
        self.skipped[reason] += 1
        self.examples.setdefault(reason, name)

    def guess(self, name: str, encoding: str) -> None:
        """Count a file whose encoding was guessed."""
        self.guessed[encoding] += 1
        self.examples.setdefault(encoding, name)

    @property
    def bad(self) -> int:
        """The number of rows and files that could not be used."""
        return self.bad_rows.total

    @property
    def passages(self) -> int:
        """The number of passages that were read."""
        return sum(self.languages.values())

    def __str__(self) -> str:
        counts = ", ".join(f"{lang or 'unknown'} {count:,}" for lang, count in self.languages.most_common())
        lines = [f"{self.files:,} file{'s'[: self.files != 1]}, {self.passages:,} passages: {counts}"]
        if self.unchanged:
            lines = [*lines[: self.files], f"not read again: {self.unchanged:,} files that are as they were"]
        lines += self.reasons()
        lines += [
            f"read as {encoding}, as it seems ({count:,}{':' if count == 1 else ', such as'} {self.examples[encoding]})"
            for encoding, count in self.guessed.most_common()
        ]
        lines += [
            f"{name}: column '{column}' is left out: it holds lists, objects or bytes, which are no metadata"
            for name, column in self.left_out
        ]
        return "\n".join(lines)

    def reasons(self) -> list[str]:
        """The reasons why something was not read, a line each."""
        lines = [
            f"not read: {reason} ({count:,}{':' if count == 1 else ', such as'} {self.examples[reason]})"
            for reason, count in self.skipped.most_common()
        ]
        if self.bad:
            plural = "s"[: self.bad != 1]
            lines.append(f"{self.bad:,} bad row{plural} or file{plural} left out:")
            lines += self.bad_rows.examples()
        return lines

    def log(self) -> None:
        """Report it: a warning where something was left out."""
        logger.log(logging.WARNING if self.bad else logging.INFO, str(self))


@dataclass(frozen=True, slots=True)
class Source:
    """A file for its reader: its `encoding`, the `columns` that were named for a table, all its `content` where that
    was read already; and what the reader notes: `about`, metadata of all that is in it, and `left_out`, the names of
    what cannot be metadata."""

    path: Path
    report: Report
    encoding: str = "utf-8-sig"
    columns: Mapping[str, str] = field(default_factory=dict)
    about: dict[str, str] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    content: bytes | None = None

    def open(self) -> IO[bytes]:
        """Its bytes, gunzipped where they are gzipped."""
        return open_input(self.path) if self.content is None else io.BytesIO(self.content)


@dataclass(frozen=True, slots=True)
class File:
    """`name` begins the ids of its passages; `given`: the path itself was given, not a folder above it."""

    path: Path
    name: str
    given: bool


class SourceNames:
    """The names of the files and folders that passages come from: each is called as itself, whatever else is read.

    `known` is name → absolute path. An index keeps it, so that a file has one name in all calls: what lies in a folder
    that is known is called after the path from there (`handbook/guide.md`, also when only that file is given). A second
    folder with the name of one that still exists is called by the shortest end of its path that is free
    (`old/handbook`). Where the folder that is known does not exist any more, since it or the index was moved, one with
    its name is the same. `memory` takes in the files that are read, for the index that is built of them.
    """

    def __init__(self, known: Mapping[str, str] | None = None) -> None:
        self.known: dict[str, str] = {}
        self.memory = FileMemory()
        self._name_at: dict[str, str] = {}
        self._below: dict[str, list[str]] = {}  # folder in a name → the names that begin with it
        self.learn(known or {})

    def learn(self, known: Mapping[str, str]) -> None:
        """Take over the names that an index knows."""
        for name, place in known.items():
            self._take(name, place)

    def name(self, path: str | Path) -> str:
        """The name of a file or folder, new or known."""
        place = place_of(path)
        if (known_name := self.at(place)) is not None:
            return known_name
        parts = tuple(map(_text, Path(place).parts[1:])) or ("",)
        if (moved := self._moved(parts)) is not None:
            name, depth = moved
            old, new = self.known[name], _text(str(Path(place).parents[depth - 1]) if depth else place)
            for below, child in self.inside(old).items():  # what lies in it and has a name of its own has moved with it
                self._take(child, new + below[len(old) :])
            self._take(name, new)
            return "/".join((name, *parts[len(parts) - depth :]))
        ends = ["/".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        name = next((end for end in ends if self._free(end, place)), _text(place))
        self._take(name, place)
        return name

    def below(self, name: str) -> str:
        """The part of a name below the folder that is known: `sub/guide.md` of `handbook/sub/guide.md`; of what is
        known itself its last part."""
        ends = [end for end, sign in enumerate(name) if sign == "/" and name[:end] in self.known]
        return name[ends[0] + 1 :] if ends else name.rpartition("/")[2]

    def inside(self, folder: str) -> dict[str, str]:
        """The names of known files and folders in `folder` (as `place_of` gives it), by their paths."""
        prefix = _text(folder).rstrip("/") + "/"
        return {place: name for place, name in self._name_at.items() if place.startswith(prefix)}

    def at(self, place: str) -> str | None:
        """The name of a path without links (`place_of`) by the nearest folder above that is known; of a known place its
        own."""
        place = above = _text(place)
        while (name := self._name_at.get(above)) is None:
            below, above = above, os.path.dirname(above)
            if above == below:
                return None
        rest = place[len(above) :].lstrip(os.sep)
        return "/".join((name, *rest.split(os.sep))) if rest else name

    def _moved(self, parts: tuple[str, ...]) -> tuple[str, int] | None:
        """The known name, of a place that is gone, in which a path ends, or one of the nearest folders above it; and
        how many folders above. Of several the longest, which tells most."""
        for depth in range(len(parts)):
            upper = parts[: len(parts) - depth]
            for start in range(len(upper)):
                name = "/".join(upper[start:])
                if name in self.known and not os.path.lexists(self.known[name]):
                    return name, depth
        return None

    def _free(self, name: str, place: str) -> bool:
        """Whether no file of another place has `name`, or a name that begins with it, or could get one."""
        if name in self.known or any(name[:end] in self.known for end, sign in enumerate(name) if sign == "/"):
            return False
        return all(self.known[child] == _text(place) + child[len(name) :] for child in self._below.get(name, ()))

    def _take(self, name: str, place: str) -> None:
        place = _text(place)
        if (old_place := self.known.get(name)) is not None:
            self._name_at.pop(old_place, None)
        else:
            for end, sign in enumerate(name):
                if sign == "/":
                    self._below.setdefault(name[:end], []).append(name)
        self.known[name] = place
        self._name_at[place] = name


class Scope:
    """The sources that one call reads, for `Index.sync`: complete when all passages have been read.

    `names` are those of the files, collections and folders that were given, and the path by which each was, or for
    names given to Python again the name: one that ends in "/" means all names that begin with it. `files` are those of
    them that were given by themselves. `read` are the files that passages came from; of those in `unread` something
    could not be read. `memory` has those that need not be read, and takes in what was read. `only` are the real paths
    that are looked at within folders; None for all that is there.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = {name: name for name in names}
        self.paths: set[str] = set()
        self.files = {name for name in self.names if not name.endswith("/")}
        self.read: set[str] = set()
        self.unread: set[str] = set()
        self.memory = FileMemory()
        self.only: frozenset[str] | None = None

    def add(self, path: str | Path, name: str, names: SourceNames) -> None:
        """Take in a file, a folder, or a path at which there is nothing any more, whose name is `name`."""
        self.paths.add(str(path))
        if not os.path.isfile(path):
            children = names.inside(place_of(path)).values()  # given by themselves once, they have names of their own
            self.names |= dict.fromkeys((*children, *(f"{one}/" for one in (name, *children))), str(path))
        if not os.path.isdir(path):
            self.add_file(path, name)

    def add_part(self, path: str | Path, names: SourceNames) -> None:
        """Take in, of a folder that was given, what is or was at the real paths `only`: files, or folders."""
        root = Path(os.path.realpath(path))
        for place in self.only or ():
            if Path(place) == root:
                self.add(path, names.name(path), names)
            elif Path(place).is_relative_to(root):
                name = names.at(place)  # of a link itself, not of what it leads to
                if name is None:
                    continue
                children = names.inside(place).values()
                self.names |= dict.fromkeys((name, *children, *(f"{one}/" for one in (name, *children))), str(path))

    def add_file(self, path: str | Path, name: str) -> None:
        """Take in a file, or a collection."""
        self.names[name] = str(path)
        self.files.add(name)

    def given(self, source: str) -> str | None:
        """The path that was given in which a source lies; None for a source that is none of these."""
        return next((self.names[name] for name in _and_above(source) if name in self.names), None)

    def __contains__(self, source: str) -> bool:
        return self.given(source) is not None

    def known(self, names: Collection[str]) -> set[str]:
        """The paths that were given whose names are among `names`, or lie in a folder whose name is."""
        pairs = ((path, [one.rstrip("/") for one in _and_above(name)]) for name, path in self.names.items())
        return {path for path, ancestors in pairs if any(one in names for one in ancestors)}

    def is_unread(self, source: str) -> bool:
        """Whether something of the source, or a folder above it, could not be read."""
        return any(name in self.unread for name in _and_above(source))


def _and_above(source: str) -> Iterator[str]:
    """A name, and those of the folders above it, the nearest first: `a/b/c.md`, `a/b/`, `a/`."""
    yield source
    yield from (source[: index + 1] for index in range(len(source) - 1, -1, -1) if source[index] == "/")


def place_of(path: str | Path) -> str:
    """The absolute path of a folder, without links; of a file, without links in the folders above it."""
    if os.path.isdir(path):
        return os.path.realpath(path)
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name)


def find_files(
    paths: Sequence[str | Path],
    skip: Callable[[str, str], None],
    names: SourceNames | None = None,
    scope: Scope | None = None,
) -> Iterator[File]:
    """The files meant by `paths`, in the order given; of a folder its files by name, then those of its sub-folders.

    A file that is given is called by its name (`faq.csv`), one in a folder by its path from there, the name of the
    folder included (`handbook/sub/guide.md`), always with `/`, as far as `names` (`SourceNames`) knows no other name.
    `skip(name, reason)` hears of hidden files, of links (one to a hidden file of the folder is followed), of indexes,
    and of what in a folder is no regular file; a pipe is read where it is given itself. Raises BadInput for a path that
    does not exist, and for a folder inside another one given.

    A `scope` takes in all roots, or what is `only` to be looked at in them. A path that does not exist is then one
    whose passages are gone, a folder that cannot be read one that is noted there, and a pipe is an error: nothing tells
    whether it gave all.
    """
    roots = [root for path in paths for root in _roots(path, scope is not None)]
    if not roots:
        raise BadInput("no path of passages is given. Name files or folders.")
    names = names or SourceNames()
    named_roots = [(root, names.name(root)) for root in roots]
    if scope is not None:
        for root, name in named_roots:
            if root.exists() and not root.is_dir() and not root.is_file():
                raise BadInput(f"{root}: is a pipe, which may end before it gave all. Save what it gives to a file.")
            if scope.only is not None and root.is_dir():
                scope.add_part(root, names)
            else:
                scope.add(root, name, names)
    _check_apart(roots)
    for root, name in named_roots:
        if root.is_dir():
            yield from _walk(root, name, skip, names, scope)
        elif root.exists() or scope is None:
            yield File(root, name, True)


OF_AN_INDEX = ("index.json", "passages.lance")
"""Files in the folder of an index, which is no source of passages."""


def _roots(path: str | Path, may_be_gone: bool) -> list[Path]:
    root = Path(path)
    gone = may_be_gone and str(path) != "-" and not root.exists()
    if gone and glob.has_magic(str(path)):  # a pattern, unless nothing fits it: a plain name may have such signs, too
        gone = not any(glob.iglob(str(path), recursive=True))
    return [root] if root.is_dir() or gone else expand(path)


def _walk(
    root: Path, name: str, skip: Callable[[str, str], None], names: SourceNames, scope: Scope | None
) -> Iterator[File]:
    real_root = Path(os.path.realpath(root))
    known_names = names.inside(str(real_root))
    only = scope.only if scope is not None else None
    ancestors = {str(parent) for path in only or () for parent in Path(path).parents}
    folders = [(root, str(real_root), name, only is None or str(real_root) in only)]
    while folders:
        folder, place, folder_name, all_included = folders.pop()
        subfolders = []
        try:
            entries = _entries(folder)
        except BadInput:
            if scope is None or folder == root:
                raise
            skip(folder_name, "folder that cannot be read")
            children = names.inside(place).values()  # given by themselves once, they have names of their own
            scope.unread |= {f"{folder_name}/", *children, *(f"{one}/" for one in children)}
            continue
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = os.path.join(place, entry.name)
            included = all_included or only is None or path in only
            if not included and path not in ancestors:
                continue
            name = (known_names and known_names.get(_text(path))) or f"{folder_name}/{_text(entry.name)}"
            if entry.name.startswith((".", "~$")):  # the second: what Office leaves beside an open file
                skip(name, "hidden")
            elif entry.is_symlink() and (reason := _not_followed(entry, real_root)):
                skip(name, reason)
            elif entry.is_dir() and all(os.path.exists(os.path.join(entry.path, part)) for part in OF_AN_INDEX):
                skip(name, "an index")
            elif entry.is_dir():
                subfolders.append((Path(entry.path), path, name, included))
            elif entry.is_file():
                yield File(Path(entry.path), name, False)
            else:
                skip(name, "no regular file")
        folders += reversed(subfolders)


def _not_followed(link: os.DirEntry[str], root: Path) -> str:
    """The reason not to follow a link; "" for a link to a hidden file of the same folder, which is followed."""
    target = Path(os.path.realpath(link.path))
    if not target.is_relative_to(root):
        return "link that leaves the folder"
    try:
        if link.is_dir():
            return "link to a folder"
    except OSError:
        return "link in a cycle"
    hidden = any(part.startswith(".") for part in target.relative_to(root).parts)
    return "" if hidden else "link to a file of the folder"


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise BadInput(f"{folder}: cannot be read ({error.strerror}).") from error


def _check_apart(roots: Sequence[Path]) -> None:
    """Raise BadInput when a root lies in another one: its files would be read twice."""
    folders = {os.path.realpath(root): root for root in roots if root.is_dir()}
    for root in roots if folders else ():
        for parent in Path(os.path.realpath(root)).parents:
            if (folder := folders.get(str(parent))) is not None:
                raise BadInput(
                    f"{root}: lies in {folder}, which is given too, and would be read twice. Give one of them."
                )


def _text(name: str) -> str:
    """A name from the file system as text that can be written."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
