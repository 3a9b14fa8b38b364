"""Read and write files: inputs opened once, gzipped or not; atomic, durable writes."""

from __future__ import annotations

import errno
import glob
import gzip
import io
import json
import logging
import os
import re
import select
import shutil
import stat
import tempfile
import threading
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, TextIO, cast, get_args

from interlingua.errors import BadInput, NotFound, suggestion

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

logger = logging.getLogger(__name__)


Durability = Literal["full", "process"]
"""What a write survives once its call has returned: "full" a power cut, "process" only the end of the process."""
UNREADABLE = (EOFError, OSError, zlib.error)
"""What reading a broken file raises: one that is gzipped and cut short or damaged, a disk that fails."""
STDIN = Path("/dev/stdin")
OPEN_FILE = re.compile(r"/dev/stdin|(?:/dev/fd|/proc/self/fd)/(\d+)")
PATIENCE = 5.0
"""Seconds that a named pipe may be without a writer before it is given up."""
PART = 1 << 20
LONGEST_LINE = 64 << 20
"""Bytes of a line of text. A longer one is an error: a small gzip file can hold a line that fills the memory."""


def existing(path: str | Path, what: str = "file") -> Path:
    """`path`, or an error that names it and the nearest folder that does exist. `-` is /dev/stdin."""
    path = STDIN if str(path) == "-" else restore(path)
    if path.exists():
        return path
    parent = next((p for p in path.parents if p.exists()), Path("."))
    raise NotFound(f"{path}: no such {what} (the nearest folder that exists is {parent.resolve()}).")


def is_input(path: str | Path) -> bool:
    """Whether something that is no folder can be read at `path`: a file, a pipe, or `-`, standard input."""
    return str(path) == "-" or ("\0" not in str(path) and os.path.exists(path) and not os.path.isdir(path))


def open_input(path: str | Path) -> IO[bytes]:
    """The bytes of a file, a pipe or `-` from the first on, gunzipped where they are gzipped. Opened as `open_raw`
    does; reading raises one of `UNREADABLE` where a gzipped file is broken."""
    raw = open_raw(path)
    if raw.peek(2)[:2] != b"\x1f\x8b":
        return raw
    packed = gzip.GzipFile(fileobj=raw, mode="rb")
    packed.myfileobj = raw  # type: ignore[assignment]  # closed with it
    return cast("IO[bytes]", packed)


def open_raw(path: str | Path) -> io.BufferedReader:
    """The bytes of a file, a pipe or `-` as they are, from the first on; seekable, and any number of times.

    A pipe, a device or a socket gives its bytes once. The first who opens it copies all of them to a temporary file
    without a name, and whoever opens it in this process gets the copy (until `forget_pipes`). Raises BadInput
    for a path that does not exist, a folder, and a named pipe to which nobody writes for `PATIENCE` seconds; OSError
    where the file system refuses.
    """
    path = existing(path)
    if path.is_dir():
        raise BadInput(f"{path}: is a folder, a file is needed.")
    facts, number = os.stat(path), _number(path)
    key = facts.st_dev, facts.st_ino
    if stat.S_ISREG(facts.st_mode):
        # of `{ read -r first; interlingua …; } < file` the rest is meant, which only the open file knows
        begun = number is not None and (key in _copies or os.lseek(number, 0, os.SEEK_CUR) > 0)
        if not begun:
            return open(path, "rb")
    copy = _copies.setdefault(key, _Copy())
    copy.fill(path, number)
    return io.BufferedReader(_CopyReader(copy))


def forget_pipes() -> None:
    """Drop the copies of pipes: whatever is opened from now on is read anew."""
    _copies.clear()


def _number(path: Path) -> int | None:
    """The number of the open file that `path` stands for (0 of /dev/stdin), None for any other path."""
    found = OPEN_FILE.fullmatch(str(path))
    return int(found[1] or 0) if found else None


class _Copy:
    """The bytes that a pipe gave, in a temporary file that has no name and goes when the process ends, however it
    ends. `pin` keeps the number (inode) of a named pipe from being given to another one."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.file: IO[bytes] | None = None
        self.pin: int | None = None
        self.begun = False

    def fill(self, path: Path, number: int | None) -> None:
        """Read `path`, or the open file `number`, to its end, unless that was done."""
        with self.lock:
            if self.file is not None:
                return
            if self.begun:
                raise BadInput(
                    f"{path}: reading it was stopped half way, and a pipe gives its text only once. "
                    "Start the command again."
                )
            source = os.dup(number) if number is not None else os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            file = tempfile.TemporaryFile()  # noqa: SIM115
            try:
                if os.isatty(source):
                    logger.info(f"{path}: type text, a line each; Ctrl-D ends it")
                named = number is None and stat.S_ISFIFO(os.fstat(source).st_mode)
                for part in _parts(path, source, named):
                    self.begun = True
                    self._write(file, part, path)
                self._write(file, b"", path)
                if named and hasattr(os, "O_PATH"):
                    self.pin = os.open(path, os.O_PATH)
            except BaseException:
                file.close()
                raise
            finally:
                os.close(source)
            self.file = file

    def _write(self, file: IO[bytes], part: bytes, path: Path) -> None:
        try:
            file.write(part)
            if not part:
                file.flush()
        except OSError as error:
            raise BadInput(
                f"{path}: cannot be copied to {tempfile.gettempdir()} ({error.strerror}). Save what "
                "it gives to a file, or let TMPDIR name a folder on a disk with room."
            ) from error

    def __del__(self) -> None:
        if self.file is not None:
            self.file.close()
        if self.pin is not None:
            os.close(self.pin)


_copies: dict[tuple[int, int], _Copy] = {}


def _parts(path: Path, source: int, named: bool) -> Iterator[bytes]:
    """What `source` gives until its writers have closed it. A `named` pipe is opened without waiting for a writer, and
    at first looks as if it had ended: reading it is refused with EAGAIN, or gives bytes, once a writer is there."""
    poll = select.poll()
    poll.register(source, select.POLLIN)
    deadline = time.monotonic() + PATIENCE
    written = not named
    while True:
        try:
            part = os.read(source, PART)
        except BlockingIOError:
            written = True
            poll.poll()
            continue
        if part:
            written = True
            yield part
        elif written:
            return
        elif events := poll.poll(0):
            if not events[0][1] & select.POLLIN:  # a writer came and went without a word
                return
        elif time.monotonic() > deadline:
            raise BadInput(f"{path}: nothing writes to this pipe. Start the program that fills it first.")
        else:
            poll.poll(50)


class _CopyReader(io.RawIOBase):
    """A copy, read from the place where this reader is."""

    def __init__(self, copy: _Copy) -> None:
        assert copy.file is not None
        self.copy, self.handle, self.place = copy, copy.file.fileno(), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        count = os.preadv(self.handle, [buffer], self.place)
        self.place += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self.place, os.SEEK_END: os.fstat(self.handle).st_size}
        self.place = max(0, starts[whence] + offset)
        return self.place


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """`(line number from 1, line without its end)` of a UTF-8 text file or pipe (`open_input`), gzipped or not.

    Lines end at \\n only (not at the Unicode separators that occur inside real text); a BOM is dropped.
    Raises BadInput naming file and line for bytes that are not UTF-8, a broken gzip file, and a line of more than
    `LONGEST_LINE` bytes.
    """
    path = existing(path)
    source, number = open_input(path), 0
    try:
        with source as stream:
            for number, raw in enumerate(iter(partial(stream.readline, LONGEST_LINE + 1), b""), 1):
                if len(raw) > LONGEST_LINE:
                    raise BadInput(
                        f"{path}, line {number}: has more than {LONGEST_LINE >> 20} MiB. Is this a text file?"
                    )
                line = raw.decode("utf-8-sig" if number == 1 else "utf-8")
                yield number, line.rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path}, line {number}: not UTF-8 ({error.reason} at byte {error.start} of the line). "
            "Convert the file with `iconv -t UTF-8`."
        ) from error
    except UNREADABLE as error:
        raise BadInput(f"{path}: cannot be read after line {number} ({error}).") from error


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
    found = read_json(path, {})
    if not isinstance(found, dict):
        raise BadInput(f"{path}: holds {json_kind(found)}; {JSON_KINDS[dict]} is expected.")
    for name, kind in kinds.items():
        known = kind if isinstance(kind, tuple) else (kind,)
        value = found.get(name)
        fits = isinstance(value, known) or (float in known and type(value) is int)
        if value is not None and (not fits or (isinstance(value, bool) and bool not in known)):
            wanted = " or ".join(JSON_KINDS[one] for one in known)
            raise BadInput(f"{path}: {name} is {json_kind(value)}; {wanted} is expected.")
    return found


def json_kind(value: object) -> str:
    """What a value of JSON is, in words."""
    return JSON_KINDS.get(type(value), "null")


@contextmanager
def atomic_write(path: str | Path, mode: str = "w") -> Iterator[IO[Any]]:
    """Open a temporary file beside `path` and move it into place when the block ends without an error.

    A name ending in .gz is compressed. An exception or a kill leaves what was at `path` as it was. After the block the
    file and its name are on the disk.
    """
    path = Path(path)
    make_folder(path.parent)
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
        sync_path(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def atomic_folder(path: str | Path, marker: str) -> Iterator[Path]:
    """A temporary folder beside `path`, moved into its place when the block ends without an error: whole or not at all.

    A folder that is there already is replaced only if it holds the file `marker` (it is an older save) or is empty;
    else BadInput, so that nobody's other files are lost. It is renamed aside, the new one is renamed in, and
    only then is it deleted. A kill between the two renames leaves nothing at `path`; `restore`, which `existing`
    calls, then brings the older one back. After the block the folder and all in it are on the disk.
    """
    path = Path(os.path.realpath(path))
    make_folder(path.parent)
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
        for one in (*(Path(folder, name) for name in names), Path(folder)):
            sync_path(one)
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
    place = Path(os.path.realpath(path))
    if not place.exists() and (left := _left_aside(place)):
        with suppress(OSError):  # not ours to write: the caller finds nothing, as before
            os.rename(left[-1], place)
    return Path(path)


def _check_name(path: str | Path) -> None:
    if "\0" in str(path):
        raise BadInput(f"{str(path)!r}: holds the character NUL, which no name of a file may hold.")


def _left_aside(path: Path) -> list[Path]:
    """Folders that writers of `path` moved aside, the newest last."""
    found = path.parent.glob(f".{glob.escape(path.name)}.{'?' * 8}.old")
    return sorted((old for old in found if old.is_dir()), key=lambda old: old.stat().st_mtime)


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
        os.rename(path, new.with_suffix(".old"))


def make_folder(folder: Path) -> Path:
    """`folder`, made where it is not there, with those above it. The disk holds the names of those that were made."""
    _check_name(folder)
    new = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in reversed(new):
        sync_path(made.parent)
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
    for known in get_args(Durability):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise BadInput(
        f"durability '{name}': is 'full' (a write survives a power cut) or 'process' (it survives "
        f"the end of the process).{suggestion(name, get_args(Durability))}"
    )


def _sync(stream: IO[Any]) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _text(binary: Any) -> TextIO:
    return io.TextIOWrapper(binary, encoding="utf-8", newline="\n", write_through=True)
