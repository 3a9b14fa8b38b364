"""Read and write files: inputs opened once, gzipped or not; atomic, durable writes."""

from __future__ import annotations

import codecs
import errno
import fcntl
import glob
import gzip
import io
import json
import logging
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, TextIO, cast, get_args

from interlingua.errors import BadInput, Busy, NotFound, suggestion
from interlingua.pipes import is_plain, open_copy

logger = logging.getLogger(__name__)


Durability = Literal["full", "process"]
"""The failure that a returned write survives: "full" a power cut, "process" only the end of the process."""
DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk that takes no more: it is full, or a limit is reached."""
UNREADABLE = (EOFError, OSError, zlib.error)
"""The exceptions of reading a broken file: one that is gzipped and cut short or damaged, a disk that fails."""
STDIN = Path("/dev/stdin")
PACKED = re.compile(rb"(?P<xz>\xfd7zXZ\0)|(?P<bzip2>BZh[1-9]1AY&SY)|(?P<zstd>\x28\xb5\x2f\xfd)")
"""The first bytes of what other programs than gzip compressed; a group is called after its program."""
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""The first bytes of a text in UTF-16."""
LONGEST_LINE = 64 << 20
"""Bytes of a line of text. A longer one is an error: a small gzip file can hold a line that fills the memory."""


def cache_folder() -> Path:
    """The user's cache folder: `interlingua` in $XDG_CACHE_HOME, else in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "interlingua"


def existing(path: str | Path, what: str = "file") -> Path:
    """`path`, or an error that names it and the nearest folder that does exist. `-` is /dev/stdin."""
    path = STDIN if str(path) == "-" else restore(path)
    if path.exists():
        return path
    parent = next((p for p in path.parents if p.exists()), Path("."))
    raise NotFound(f"{path}: no such {what} (the nearest folder that exists is {parent.resolve()}).")


def is_input(path: str | Path) -> bool:
    """Whether something that is no folder can be read at `path`: a file, a pipe, or `-`, standard input."""
    return str(path) == "-" or (_is_name(str(path)) and os.path.exists(path) and not os.path.isdir(path))


def open_input(path: str | Path) -> IO[bytes]:
    """The bytes of a file, a pipe or `-` from the first on, gunzipped where they are gzipped. Opened as `open_raw`
    does; reading raises one of `UNREADABLE` where a gzipped file is broken."""
    raw = open_raw(path)
    if raw.peek(2)[:2] != b"\x1f\x8b":
        return raw
    gzip_file = gzip.GzipFile(fileobj=raw, mode="rb")
    gzip_file.myfileobj = raw  # type: ignore[assignment]  # closed with it
    return cast("IO[bytes]", gzip_file)


def open_raw(path: str | Path) -> io.BufferedReader:
    """The bytes of a file, a pipe or `-` as they are, from the first on; seekable, and any number of times.

    A pipe, a device or a socket gives its bytes once. The first who opens it copies all of them to a temporary file
    without a name, and whoever opens it in this process gets the copy (until `forget_pipes`). Raises BadInput
    for a path that does not exist, a folder, and a named pipe to which nobody writes for `PATIENCE` seconds; OSError
    where the file system refuses.
    """
    if str(path) != "-":
        with suppress(OSError, ValueError):  # said below
            if is_plain(path):
                return open(path, "rb")
    path = existing(path)
    if path.is_dir():
        raise BadInput(f"{path}: is a folder, a file is needed.")
    return open(path, "rb") if is_plain(path) else open_copy(path)


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """`(line number from 1, line without its end)` of a UTF-8 text file or pipe (`open_input`), gzipped or not.

    Lines end at \\n only (not at the Unicode separators that occur inside real text); a BOM is dropped.
    Raises BadInput naming file and line for bytes that are not UTF-8, a broken gzip file, one that something else
    than gzip compressed, and a line of more than `LONGEST_LINE` bytes.
    """
    path = existing(path)
    source, number = open_input(path), 0
    try:
        with source as stream:
            for number, raw in enumerate(iter(partial(stream.readline, LONGEST_LINE + 1), b""), 1):
                if number == 1:
                    check_packing(path, raw)
                if len(raw) > LONGEST_LINE:
                    raise BadInput(
                        f"{path}, line {number}: has more than {LONGEST_LINE >> 20} MiB. Is this a text file?"
                    )
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start} of the line). "
            f"{reencode(raw if number == 1 else b'')}"
        ) from error
    except UNREADABLE as error:
        raise BadInput(f"{path}: cannot be read after line {number} ({error}).") from error


def check_packing(path: str | Path, start: bytes) -> None:
    """Raise BadInput where the first bytes of a file are those of a compression that is not read."""
    if packed := PACKED.match(start):
        program = packed.lastgroup
        raise BadInput(
            f"{path}: is compressed with {program}. Decompress it first (`{program} -d`); of compressed files only "
            "those of gzip are read."
        )


def reencode(start: bytes) -> str:
    """Advice for a file that is not UTF-8, of which these are the first bytes."""
    if start.startswith(UTF16):
        return "Convert the file with `iconv -f UTF-16 -t UTF-8`."
    return "Convert the file with `iconv -f ENCODING -t UTF-8`, where ENCODING is the one it is in."


def read_json(path: Path, default: Any = None) -> Any:
    """The JSON in `path`, or `default` where there is no such file. Raises BadInput for broken JSON."""
    if not path.is_file():
        return default
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: cannot be read as JSON ({error}).") from error


JSON_KINDS = {
    dict: "an object",
    list: "a list",
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}


def read_object(path: Path, **kinds: type | tuple[type, ...]) -> dict[str, Any]:
    """The JSON object in `path`, empty where there is no such file. Raises BadInput for broken JSON, for something else
    than an object, and for a value of another type than `kinds` says for its key. Null goes, as do other keys."""
    content = read_json(path, {})
    if not isinstance(content, dict):
        raise BadInput(f"{path}: holds {json_kind(content)}; {JSON_KINDS[dict]} is expected.")
    for name, kind in kinds.items():
        types = kind if isinstance(kind, tuple) else (kind,)
        value = content.get(name)
        fits = isinstance(value, types) or (float in types and type(value) is int)
        if value is not None and (not fits or (isinstance(value, bool) and bool not in types)):
            expected = " or ".join(JSON_KINDS[one] for one in types)
            raise BadInput(f"{path}: {name} is {json_kind(value)}; {expected} is expected.")
    return content


def json_kind(value: object) -> str:
    """The kind of a JSON value, in words."""
    return JSON_KINDS.get(type(value), "null")


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` and move it into place when the block ends without an error.

    A name ending in .gz is compressed. An exception or a kill leaves what was at `path` as it was. After the block the
    file and its name are on the disk. Of a link the file that it leads to is written. What is no file, such as
    /dev/null or a pipe, is written to as it is.
    """
    path = Path(path)
    if not _is_replaceable(path):
        with open(path, mode, encoding=None if "b" in mode else "utf-8", newline=None if "b" in mode else "\n") as raw:
            yield raw
        return
    packed, path = path.suffix == ".gz", Path(os.path.realpath(path)) if path.is_symlink() else path
    make_folder(path.parent)
    handle, temporary = _claimed(path, _new_file)
    stream: Any = None
    try:
        os.fchmod(handle, 0o644)
        binary = "b" in mode
        if packed:
            with os.fdopen(handle, "wb") as raw:
                with gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as gzip_file:
                    stream = gzip_file if binary else _text(gzip_file)
                    yield stream
                    if not binary:
                        stream.detach()
                _sync(raw)
        else:
            with os.fdopen(handle, mode, encoding=None if binary else "utf-8", newline=None if binary else "\n") as raw:
                yield raw
                _sync(raw)
        os.replace(temporary, path)
        sync_path(path.parent)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        _raise_for_disk(error, path)
        raise


def _is_replaceable(path: Path) -> bool:
    """Whether a file is at `path` or could be: not a device, a pipe, or one that is open, as /dev/stdout is."""
    place = os.path.abspath(path)
    if place.startswith(("/dev/", "/proc/")) and not place.startswith("/dev/shm/"):
        return False
    return not _is_name(place) or not path.exists() or path.is_file() or path.is_dir()


@contextmanager
def atomic_folder(path: str | Path, marker: str) -> Iterator[Path]:
    """A temporary folder beside `path`, moved into its place when the block ends without an error: whole or not at all.

    A folder that is there already is replaced only if it holds the file `marker` (it is an older save) or is empty;
    else BadInput, so that nobody's other files are lost. It is renamed aside, the new one is renamed in, and
    only then is it deleted. A kill between the two renames leaves nothing at `path`; `restore`, which `existing`
    calls, then brings the older one back. After the block the folder and all in it are on the disk.
    """
    _check_name(path)
    path = Path(os.path.realpath(path))
    make_folder(path.parent)
    check_replaceable(path, marker)
    remove_leftovers(path.parent, path.name)  # of calls that were killed
    handle, temporary = _claimed(path, _new_folder)
    try:
        yield temporary
        move_into_place(temporary, path, marker)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        restore(path)
        _raise_for_disk(error, path)
        raise
    finally:
        os.close(handle)


def _raise_for_disk(error: BaseException, path: Path) -> None:
    """Raise the OSError of a disk that takes no more, with the `path` that could not be written. The error of a stream
    has no path, and safetensors has errors of its own."""
    told = re.search(r"\(os error (\d+)\)", str(error)) if type(error).__name__ == "SafetensorError" else None
    number = int(told[1]) if told else error.errno if isinstance(error, OSError) else None
    if number in DISK_FULL:
        raise OSError(number, os.strerror(number), str(path)) from error


def move_into_place(new: Path, path: Path, marker: str) -> None:
    """The end of `atomic_folder`, for a folder that was filled elsewhere: `new`, which must lie beside `path` and be
    called `.{name of path}.{8 characters}.part`, takes its place. Where that fails, both are as they were."""
    for folder, _, names in os.walk(new):
        Path(folder).chmod(0o755)
        for name in names:
            Path(folder, name).chmod(0o644)  # safetensors makes files for their owner alone
        for entry in (*(Path(folder, name) for name in names), Path(folder)):
            sync_path(entry)
    try:
        _swap(new, path, marker)
    except BaseException:
        restore(path)
        raise
    sync_path(path.parent)
    for old in _left_aside(path):
        shutil.rmtree(old, ignore_errors=True)


def restore(path: str | Path) -> Path:
    """`path`. Where nothing is there because a writer of `atomic_folder` was killed while it replaced the folder, the
    older folder is put back first."""
    _check_name(path)
    if not os.path.exists(path):
        place = Path(os.path.realpath(path))
        if folders := _left_aside(place):
            with suppress(OSError):  # not ours to write: the caller finds nothing, as before
                os.rename(folders[-1], place)
    return Path(path)


def _check_name(path: str | Path) -> None:
    if not _is_name(str(path)):
        raise BadInput(f"{str(path)!a}: holds a character that no name of a file may hold.")


def _is_name(text: str) -> bool:
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # half a surrogate pair
        return False


def _left_aside(path: Path) -> list[Path]:
    """Folders that writers of `path` moved aside, the newest last."""
    paths = path.parent.glob(f".{glob.escape(path.name)}.{'?' * 8}.old")
    return sorted((folder for folder in paths if folder.is_dir()), key=lambda folder: folder.stat().st_mtime)


@contextmanager
def alone(lock: Path, busy: str, wait: bool = False) -> Iterator[None]:
    """Be the one process that holds a file as its lock. The system lets go of it when a process ends, however it ends.
    Where another one holds it, raises Busy at once with the message `busy`, or logs the message and waits."""
    from filelock import FileLock, Timeout

    file_lock = FileLock(lock)
    try:
        file_lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise Busy(busy) from None
        logger.info(busy)
        file_lock.acquire()
    try:
        yield
    finally:
        file_lock.release()


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path`, removed when the block ends. What a kill leaves is for `remove_leftovers`."""
    handle, temporary = _claimed(path, _new_folder)
    try:
        yield temporary
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
        os.close(handle)


def remove_leftovers(folder: Path, name: str = "*") -> None:
    """Remove from `folder` what writers of `atomic_write`, `atomic_folder` and `scratch_folder` left there that were
    killed: of all paths, or of those called `name`. The lock of a writer that lives tells that it does. On a file
    system without locks nothing is removed."""
    for leftover in folder.glob(f".{name if name == '*' else glob.escape(name)}.{'?' * 8}.part"):
        if leftover.name.endswith(".building.part"):  # of the build of an index, which goes on with it
            continue
        with suppress(OSError):  # it is being written, another process removes it too, or it is not ours
            handle = os.open(leftover, os.O_RDONLY)
            try:
                _claim(handle)
                if leftover.is_dir():
                    shutil.rmtree(leftover)
                else:
                    leftover.unlink()
            finally:
                os.close(handle)


def remove_folder(path: Path) -> None:
    """Remove a folder, so that nobody sees a half of it: it gets the name of a leftover first. One that is not ours to
    remove stays. Of a link only the link is removed."""
    leftover = path.with_name(f".{path.name}.outdated.part")
    with suppress(OSError):
        if path.is_symlink():
            path.unlink()
            return
        shutil.rmtree(leftover, ignore_errors=True)
        path.rename(leftover)
        shutil.rmtree(leftover, ignore_errors=True)
        sync([path.parent])


def _claimed(path: Path, make: Callable[[str, Path], tuple[int, Path]]) -> tuple[int, Path]:
    """A new temporary file or folder for `path`, open and locked: not what `remove_leftovers` removes."""
    while True:
        handle, temporary = make(f".{path.name}.", path.parent)
        with suppress(OSError):  # a file system without locks
            try:
                _claim(handle)
            except BlockingIOError:  # it is just being removed
                os.close(handle)
                continue
        if temporary.exists():
            return handle, temporary
        os.close(handle)  # it was removed before it was locked


def _new_file(prefix: str, folder: Path) -> tuple[int, Path]:
    handle, name = tempfile.mkstemp(prefix=prefix, suffix=".part", dir=folder)
    return handle, Path(name)


def _new_folder(prefix: str, folder: Path) -> tuple[int, Path]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, suffix=".part", dir=folder))
        with suppress(FileNotFoundError):  # it was removed before it was opened
            return os.open(path, os.O_RDONLY), path


def _claim(handle: int) -> None:
    """Lock an open file or folder until it is closed, also by the end of the process. Raises BlockingIOError where
    another process holds the lock, another OSError on a file system without locks."""
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def check_replaceable(path: Path, marker: str) -> None:
    """Raise BadInput for what `atomic_folder` would not replace: anything but an empty folder or an older save,
    which holds the file `marker`."""
    if path.exists() and not (path / marker).is_file() and (not path.is_dir() or any(path.iterdir())):
        raise BadInput(f"{path}: exists and is not an earlier save (no {marker} in it). Choose another folder.")


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
        for old in _left_aside(path):  # of a call that was stopped while it removed them: `path` is there
            shutil.rmtree(old, ignore_errors=True)
        os.rename(path, path.with_name(f".{path.name}.{os.urandom(4).hex()}.old"))


def make_folder(folder: Path) -> Path:
    """`folder`, made where it is not there, with those above it. The disk holds the names of those that were made."""
    _check_name(folder)
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync_path(path.parent)
    return folder


def sync(paths: Iterable[Path]) -> None:
    """Have the disk hold the content of these files and the names in these folders, in this order. One that is gone is
    passed over. Raises OSError where the disk does not take it."""
    for path in paths:
        with suppress(FileNotFoundError):
            sync_path(path)


def sync_path(path: Path) -> None:
    """Have the disk hold the content of a file, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError:
        if not path.is_dir():  # some file systems cannot sync a folder
            raise
    finally:
        os.close(handle)


def durability_of(name: str) -> Durability:
    """The durability with this name. Raises BadInput for any other."""
    for durability in get_args(Durability):
        if name == durability:
            return durability  # type: ignore[no-any-return]
    raise BadInput(
        f"durability '{name}': is 'full' (a write survives a power cut) or 'process' (it survives "
        f"the end of the process).{suggestion(name, get_args(Durability))}"
    )


def _sync(stream: IO[Any]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _text(binary: Any) -> TextIO:
    return io.TextIOWrapper(binary, encoding="utf-8", newline="\n", write_through=True)
