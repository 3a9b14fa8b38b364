"""Pipes, devices and sockets as files: their bytes, which they give once, are copied so that all can read them."""

from __future__ import annotations

import io
import logging
import os
import re
import select
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from interlingua.errors import BadInput

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

logger = logging.getLogger(__name__)

OPEN_FILE = re.compile(r"/dev/stdin|(?:/dev/fd|/proc/self/fd)/(\d+)")
PATIENCE = 5.0
"""Seconds that a named pipe may be without a writer before it is given up."""
PART = 1 << 20


def is_plain(path: str | Path) -> bool:
    """Whether `path` is a file that gives its bytes as often as it is opened. Standard input that was begun is none: of
    `{ read -r first; interlingua …; } < file` the rest is meant, which only the open file knows."""
    facts, number = os.stat(path), _number(path)
    if number is None or not stat.S_ISREG(facts.st_mode):
        return stat.S_ISREG(facts.st_mode)
    return _key(facts) not in _copies and os.lseek(number, 0, os.SEEK_CUR) == 0


def open_copy(path: Path) -> io.BufferedReader:
    """The bytes of what is not plain, from the first on; seekable, and any number of times until `forget_pipes`. The
    first call copies them. Raises BadInput for a named pipe to which nobody writes for `PATIENCE` seconds."""
    copy = _copies.setdefault(_key(os.stat(path)), _Copy())
    copy.fill(path, _number(path))
    return io.BufferedReader(_CopyReader(copy))


def _key(facts: os.stat_result) -> tuple[int, int]:
    return facts.st_dev, facts.st_ino


def forget_pipes() -> None:
    """Drop the copies of pipes: whatever is opened from now on is read anew."""
    _copies.clear()


def _number(path: str | Path) -> int | None:
    """The number of the open file that `path` stands for (0 of /dev/stdin), None for any other path."""
    match = OPEN_FILE.fullmatch(str(path))
    return int(match[1] or 0) if match else None


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
    """Read `source` until its writers have closed it. A `named` pipe is opened without waiting for a writer, and
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
