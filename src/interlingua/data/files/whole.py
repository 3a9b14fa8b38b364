"""Files as wholes: none of a file counts until it has been read to its end, and how far along all of them are."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from interlingua.data.files.unchanged import Stamp
from interlingua.data.files.walk import BadFile
from interlingua.data.records import Passage
from interlingua.progress import Progress

logger = logging.getLogger(__name__)

IN_MEMORY = 1 << 20
"""Characters of a file's passages that are held until it has been read; those of a larger one wait on the disk."""
KB = 1000


def whole(passages: Iterator[Passage], check: Callable[[], None], name: str) -> Iterator[tuple[Passage, float]]:
    """`passages` of the file `name`, the first one when the last one has been read, so that no part of a file counts
    that cannot be read to its end; and with each the share of them that has been given. `check` is called between the
    two and may raise. Those of a large file are kept in a temporary file meanwhile."""
    buffer: list[Passage] = []
    size = 0
    for passage in passages:
        buffer.append(passage)
        size += len(passage.text)
        if size > IN_MEMORY:
            break
    else:
        check()
        for number, passage in enumerate(buffer, 1):
            yield passage, number / len(buffer)
        return
    count = len(buffer)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        with Progress(f"read {name}, passages") as progress:
            for passage in passages:
                parts = (passage.id, passage.text, passage.title, passage.lang, dict(passage.metadata))
                file.write(json.dumps(parts) + "\n")
                count += 1
                progress.advance()
        check()
        file.seek(0)
        for number, passage in enumerate(buffer, 1):
            yield passage, number / count
        start = len(buffer) + 1
        buffer.clear()
        for number, line in enumerate(file, start):
            yield Passage(*json.loads(line)), number / count


def check_same(path: Path, before: Stamp | None) -> None:
    """Raise BadFile for a file that has changed since `before`."""
    if before is not None and Stamp.of(path) != before:
        raise BadFile("changed while it was read, so nothing of it is taken. Read it again when it is complete")


class FilesDone(Progress):
    """A progress bar in kilobytes of the files at some paths that are done; hidden files do not count."""

    def __init__(self, paths: Iterable[str | Path] = ()) -> None:
        total = sum(map(_size, paths)) if logger.isEnabledFor(logging.INFO) else 0
        super().__init__("done, in kB of files", total // KB or None)
        self._before = self._size = 0

    def begin(self, size: int) -> None:
        """All files before this one are done."""
        self._before, self._size = self._before + self._size, size
        self.of_file(0)

    def of_file(self, share: float) -> None:
        """This share of the file that was begun last is done."""
        self.advance(max(0, int((self._before + share * self._size) // KB) - self.done))


def _size(path: str | Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    if not os.path.isdir(path):
        stamp = Stamp.of(path)
        return stamp.size if stamp else 0
    size, folders = 0, [os.fspath(path)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    size += entry.stat(follow_symlinks=False).st_size
    return size
