"""Back an index up while it is searched and written, and restore it."""

from __future__ import annotations

import gzip
import logging
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

from interlingua.checksums import WrittenOnce
from interlingua.errors import BadInput, Damaged
from interlingua.files import (
    atomic_folder,
    atomic_write,
    check_replaceable,
    existing,
    open_input,
    remove_leftovers,
    scratch_folder,
)
from interlingua.index.local.caches import FOLDER, newest_files
from interlingua.index.local.check import check_folder
from interlingua.index.local.table import SYNCED, TABLE, PassageTable, lock
from interlingua.index.local.tokens import FOLDER as TOKENS
from interlingua.index.metadata import MARKER, SOURCES, read_metadata

logger = logging.getLogger(__name__)

TOP = "index"
"""The folder in the file that holds the index."""


def backup(index: Path, file: Path) -> int:
    """Write the index in a folder to `file`, a tar archive, compressed where its name ends in .gz; return the number of
    passages.

    It holds one version: what was acknowledged when the call began. The writers' lock is held only while the files of
    that version are linked to a folder beside the index (copied, on a file system without hard links); then writing and
    searching go on. `file` is there whole or not at all; a backup of that name is replaced. Raises Busy while another
    process writes, BadInput for another file of that name, and Damaged where the files do not fit their checksums: what
    is there already stays.
    """
    index = existing(index, "index folder").resolve()
    read_metadata(index)
    if file.resolve().is_relative_to(index):
        raise BadInput(f"{file}: lies within the index itself. Choose another place for the backup.")
    if file.is_file() and file.stat().st_size and not _is_backup(file):
        raise BadInput(f"{file}: is there already, and is no backup of an index. Choose another name.")
    with ExitStack() as stack:
        with lock(index):
            table = PassageTable.open(index)
            table.sync()
            count = len(table)
            remove_leftovers(index.parent, f"{index.name}.backup")
            scratch = stack.enter_context(scratch_folder(index.with_name(f"{index.name}.backup")))
            for path in _files(index):
                place = scratch / path.relative_to(index)
                place.parent.mkdir(parents=True, exist_ok=True)
                _link(path, place)
        _check(scratch, f"{index}: ", rows=False)
        stream = stack.enter_context(atomic_write(file, "wb"))
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(scratch.rglob("*")):
                archive.add(path, arcname=f"{TOP}/{path.relative_to(scratch).as_posix()}", recursive=False)
    return count


def restore(file: Path, index: Path, *, overwrite: bool = False) -> int:
    """Put the index that `backup` wrote to `file` into the folder `index`; return the number of its passages.

    It is checked as `check_folder` does before it takes its place, whole or not at all. Raises BadInput where something
    is there already, unless it is an index and `overwrite` is given, and for a file that is no backup; Damaged for one
    that is cut or was changed.
    """
    if index.exists() and not overwrite and any(index.iterdir() if index.is_dir() else [index]):
        raise BadInput(f"{index}: already exists. Choose another folder, or replace it with --overwrite.")
    check_replaceable(index, MARKER)
    with ExitStack() as stack:
        if (index / MARKER).exists():
            stack.enter_context(lock(index))  # what would be written to it now would be lost
        place = stack.enter_context(atomic_folder(index, MARKER))
        _extract(file, place)
        if not (place / MARKER).is_file():  # after a header that was changed tarfile reads no further, and is silent
            raise BadInput(f"{file}: is no backup of an index, or was cut or changed (it holds no {TOP}/{MARKER}).")
        _check(place, f"{file}: in it ", "take another backup", rows=True)
        count = len(PassageTable.open(place))
    return count


def _check(index: Path, place: str, advice: str = "", *, rows: bool) -> None:
    """Raise Damaged for a copy of an index that is not whole. Damaged caches are left out of it, which is said."""
    for finding in check_folder(index, rows=rows):
        if finding.advice and not finding.derived:
            raise Damaged(f"{place}{finding.part} is damaged ({finding.said}): {advice or finding.advice}.")
        if finding.advice and (index / FOLDER).exists():
            shutil.rmtree(index / FOLDER)
            logger.warning(f"{place}{finding.part} is damaged, and left out: it is made again when it is needed")


def _is_backup(file: Path) -> bool:
    try:
        with open_input(file) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            first = archive.next()
    except (tarfile.TarError, BadInput, OSError, EOFError):
        return False
    return first is not None and PurePosixPath(first.name).parts[:1] == (TOP,)


def _files(index: Path) -> Iterator[Path]:
    """The files of the newest version, of which no writer may make another one meanwhile."""
    yield from (path for name in (MARKER, SOURCES, SYNCED, WrittenOnce.NAME) if (path := index / name).is_file())
    folders = [index / f"{TABLE}.lance", *newest_files(index)]
    folders += [path for path in (index / TOKENS).glob("*/*") if path.name.isdecimal()]
    for folder in folders:
        yield from (path for path in folder.rglob("*") if path.is_file())


def _link(path: Path, place: Path) -> None:
    try:
        os.link(path, place)
    except OSError:
        shutil.copy2(path, place)


def _extract(file: Path, place: Path) -> None:
    """Unpack the folder `TOP` of an archive into `place`: regular files with plain names only."""
    try:
        with open_input(file) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                parts = PurePosixPath(member.name).parts
                plain = parts[:1] == (TOP,) and not {"..", "/"} & {*parts} and (member.isreg() or member.isdir())
                if not plain or member.name.startswith("/"):
                    raise BadInput(f"{file}: is no backup of an index (it holds {member.name!a}).")
                target = place.joinpath(*parts[1:])
                if member.isdir():
                    target.mkdir(parents=True, exist_ok=True)
                    continue
                content = archive.extractfile(member)
                assert content is not None  # of a regular file
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(target, "wb") as out:
                    shutil.copyfileobj(content, out, 1 << 20)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Damaged(f"{file}: cannot be read as a backup of an index ({error}).") from error
