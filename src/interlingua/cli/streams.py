"""Standard output and error as a command needs them: nothing that happens to their reader stops its work."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ESCAPE = "interlingua.escape"
NAMES = {"stdout": "standard output", "stderr": "standard error"}


def _escaped(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


class _Lasting:
    """A text stream whose reader may go away, after which what is written goes nowhere. Another error, such as
    a full disk, is raised once and names the stream."""

    def __init__(self, stream: io.TextIOWrapper, name: str) -> None:
        self._stream, self._name = stream, name

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._close(error)
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._close(error)

    def _close(self, error: OSError) -> None:
        # what is in its buffer is written again when Python ends: from now on that goes nowhere, too
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        if not isinstance(error, BrokenPipeError):
            raise OSError(error.errno, error.strerror, self._name) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def lasting_streams() -> Iterator[None]:
    """Within the block standard output and error may be closed, or lose their reader; and a character that their
    encoding lacks is written as JSON escapes it (`\\u2013`)."""
    codecs.register_error(ESCAPE, _escaped)
    before = {name: getattr(sys, name) for name in NAMES}
    errors = {name: stream.errors for name, stream in before.items() if isinstance(stream, io.TextIOWrapper)}
    try:
        for name, stream in before.items():
            if stream is None:
                setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
            elif name in errors:
                if stream.errors == "strict":
                    stream.reconfigure(errors=ESCAPE)
                if _is_file(stream):
                    setattr(sys, name, _Lasting(stream, NAMES[name]))
        yield
    finally:
        for name, stream in before.items():
            if stream is None:
                getattr(sys, name).close()
            elif stream.errors == ESCAPE:
                stream.reconfigure(errors=errors[name])
            setattr(sys, name, stream)


def _is_file(stream: io.TextIOWrapper) -> bool:
    """Whether it writes on a file, pipe or terminal of the system."""
    try:
        return stream.fileno() >= 0
    except (OSError, ValueError):
        return False
