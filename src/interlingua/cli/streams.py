"""Standard output and error as a command needs them: nothing that happens to their reader stops its work."""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

GONE = (errno.EPIPE, errno.EIO)
"""Errors of a pipe that nobody reads, and of a terminal that was closed."""
ESCAPES = {"strict": "interlingua.escape", "surrogateescape": "interlingua.escape-or-byte"}
"""How a stream treats a character that its encoding lacks → how it treats one instead."""


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start])[1:-1], error.start + 1


def _escaped_or_byte(error: UnicodeError) -> tuple[str | bytes, int]:
    """As `_escaped`; but a byte of a file name that is no text stays that byte."""
    if isinstance(error, UnicodeEncodeError) and "\udc80" <= (character := error.object[error.start]) <= "\udcff":
        return character.encode("ascii", "surrogateescape"), error.start + 1
    return _escaped(error)


class _Lasting:
    """A text stream whose reader may go away, after which what is written goes nowhere.

    Any other error, such as a full disk, is raised on standard output by the write, and once more by the next flush
    (argparse drops the first); it names the stream. On standard error, which holds no results, it is none.
    """

    def __init__(self, stream: io.TextIOWrapper, name: str) -> None:
        self._stream, self._name = stream, name
        self._error: OSError | None = None

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError as error:
            self._give_up(error)
            if self._error is not None:
                raise self._error from None
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._give_up(error)
        pending, self._error = self._error, None
        if pending is not None:
            raise pending from None

    def _give_up(self, error: OSError) -> None:
        # what is in its buffer is written again when Python ends: from now on that goes nowhere, too
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        if self._name == "stdout" and error.errno not in GONE:
            self._error = OSError(error.errno, error.strerror, "standard output")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def lasting_streams() -> Iterator[None]:
    """Within the block standard output and error may be closed, or lose their reader; and a character that their
    encoding lacks is written as JSON escapes it (`\\u2013`). What is no file of the system stays as it is."""
    codecs.register_error(ESCAPES["strict"], _escaped)
    codecs.register_error(ESCAPES["surrogateescape"], _escaped_or_byte)
    put: list[tuple[str, Any, Any]] = []  # name, what stood there, and what was put there
    changed: list[tuple[io.TextIOWrapper, str]] = []
    try:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            instead: Any = None
            if stream is None:
                instead = open(os.devnull, "w", encoding="utf-8", errors="replace")  # noqa: SIM115
            elif isinstance(stream, io.TextIOWrapper):
                if stream.errors in ESCAPES:
                    changed.append((stream, stream.errors))
                    _escape_by(stream, ESCAPES[stream.errors])
                instead = _Lasting(stream, name) if _is_file(stream) else None
            if instead is not None:
                put.append((name, stream, instead))
                setattr(sys, name, instead)
        yield
    finally:
        for name, stream, instead in put:
            with suppress(OSError):
                instead.flush()
            if getattr(sys, name) is instead:
                setattr(sys, name, stream)
        for stream, errors in changed:
            _escape_by(stream, errors)


def _escape_by(stream: io.TextIOWrapper, errors: str) -> None:
    with suppress(OSError):  # it asks where a file is that has become a pipe, when all is done
        stream.reconfigure(errors=errors)


def _is_file(stream: io.TextIOWrapper) -> bool:
    try:
        return stream.fileno() >= 0
    except (OSError, ValueError):
        return False
