"""Files: reading text that may be gzipped, and writing so that a kill leaves the old file or the new one."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TextIO

from interlingua.errors import InterlinguaError


def existing(path: str | Path, what: str = "file") -> Path:
    """`path`, or an error that names it and the nearest folder that does exist."""
    path = Path(path)
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


def _sync(stream: IO[Any]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _text(binary: Any) -> TextIO:
    import io

    return io.TextIOWrapper(binary, encoding="utf-8", newline="\n", write_through=True)
