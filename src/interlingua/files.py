"""Files: reading text that may be gzipped; writing files and folders so that a kill leaves the old one or the new."""

from __future__ import annotations

import errno
import glob
import gzip
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TextIO

from interlingua.errors import InterlinguaError


def existing(path: str | Path, what: str = "file") -> Path:
    """`path`, or an error that names it and the nearest folder that does exist."""
    path = restore(path)
    if path.exists():
        return path
    parent = next((p for p in path.parents if p.exists()), Path("."))
    raise InterlinguaError(f"{path}: no such {what} (the nearest folder that exists is {parent.resolve()}).")


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """`(line number from 1, line without its end)` of a UTF-8 text file, gzipped or not.

    Lines end at \\n only (not at the Unicode separators that occur inside real text); a BOM is dropped.
    Raises InterlinguaError naming file and line for bytes that are not UTF-8 or a broken gzip file.
    """
    path = existing(path)
    if path.is_dir():
        raise InterlinguaError(f"{path}: is a folder, a file is needed.")
    with open(path, "rb") as probe:
        opener: Any = gzip.open if probe.read(2) == b"\x1f\x8b" else open
    number = 0
    try:
        with opener(path, "rb") as stream:
            for number, raw in enumerate(stream, 1):
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InterlinguaError(f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start} of the line). "
                               "Convert the file with `iconv -t UTF-8`.") from error
    except (EOFError, gzip.BadGzipFile, OSError) as error:
        raise InterlinguaError(f"{path}: cannot be read after line {number} ({error}).") from error


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` and move it into place when the block ends without an error.

    A name ending in .gz is compressed. An exception or a kill leaves what was at `path` as it was.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    stream: Any = None
    try:
        os.fchmod(handle, 0o644)
        binary = "b" in mode
        if path.suffix == ".gz":
            with os.fdopen(handle, "wb") as raw:
                with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed:
                    stream = packed if binary else _text(packed)
                    yield stream
                    if not binary:
                        stream.detach()
                _sync(raw)
        else:
            with os.fdopen(handle, mode, encoding=None if binary else "utf-8", newline=None if binary else "\n") as raw:
                yield raw
                _sync(raw)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def atomic_folder(path: str | Path, marker: str) -> Iterator[Path]:
    """A temporary folder beside `path`, moved into its place when the block ends without an error: whole or not at all.

    A folder that is there already is replaced only if it holds the file `marker` (it is an older save) or is empty;
    else InterlinguaError, so that nobody's other files are lost. It is renamed aside, the new one is renamed in, and
    only then is it deleted. A kill between the two renames leaves nothing at `path`; `restore`, which `existing`
    calls, then brings the older one back.
    """
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    check_replaceable(path, marker)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        yield temporary
        move_into_place(temporary, path, marker)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        restore(path)
        raise


def move_into_place(new: Path, path: Path, marker: str) -> None:
    """The end of `atomic_folder`, for a folder that was filled elsewhere: `new`, which must lie beside `path` and be
    called `.{name of path}.{8 characters}.part`, takes its place. Where that fails, both are as they were."""
    for folder, _, names in os.walk(new):
        Path(folder).chmod(0o755)
        for name in names:
            Path(folder, name).chmod(0o644)  # safetensors makes files for their owner alone
            _sync_path(Path(folder, name))
        _sync_path(Path(folder))
    try:
        _swap(new, path, marker)
    except BaseException:
        restore(path)
        raise
    _sync_path(path.parent)
    for old in _left_aside(path):
        shutil.rmtree(old, ignore_errors=True)


def restore(path: str | Path) -> Path:
    """`path`. Where nothing is there because a writer of `atomic_folder` was killed while it replaced the folder, the
    older folder is put back first."""
    place = Path(os.path.realpath(path))
    if not place.exists() and (left := _left_aside(place)):
        with suppress(OSError):  # not ours to write: the caller finds nothing, as before
            os.rename(left[-1], place)
    return Path(path)


def _left_aside(path: Path) -> list[Path]:
    """Folders that writers of `path` moved aside, the newest last."""
    found = path.parent.glob(f".{glob.escape(path.name)}.{'?' * 8}.old")
    return sorted((old for old in found if old.is_dir()), key=lambda old: old.stat().st_mtime)


def check_replaceable(path: Path, marker: str) -> None:
    """Raise InterlinguaError for what `atomic_folder` would not replace: anything but an empty folder or an older save,
    which holds the file `marker`."""
    if path.exists() and not (path / marker).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise InterlinguaError(f"{path}: exists and is not an earlier save (no {marker} in it). Choose another folder.")


def _swap(new: Path, path: Path, marker: str) -> None:
    while True:
        try:
            os.rename(new, path)  # also in place of an empty folder
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        # Looked at again: the block may have taken hours. And in a loop: a reader may `restore` in the gap.
        check_replaceable(path, marker)
        os.rename(path, new.with_suffix(".old"))


def _sync_path(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        if not path.is_dir():  # some file systems cannot sync a folder
            raise
    finally:
        os.close(handle)


def _sync(stream: IO[Any]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _text(binary: Any) -> TextIO:
    import io

    return io.TextIOWrapper(binary, encoding="utf-8", newline="\n", write_through=True)
