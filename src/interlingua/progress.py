"""Messages to the person while work goes on, through `logging`, and the progress of the work.

Each module of the package reports to the logger of its name, below "interlingua": news at INFO, what a person should
act on at WARNING. Who uses the package as a library sees warnings, unless logging is set up; the command line shows
messages with `shown`.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
PACKAGE = "interlingua"
logger = logging.getLogger(__name__)


class StandardError(logging.Handler):
    """Writes the bare message on what is standard error at that moment: standard output is for results."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message."""
        print(harmless(self.format(record)), file=sys.stderr, flush=True)


CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


def harmless(text: str) -> str:
    """`text` with its control characters written out: in the name of a file they would be commands to the terminal."""
    return text.translate(CONTROLS)


class _Shown:
    """The blocks of `shown` that are open, in any thread, and how the package's logger was before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.levels: list[list[int]] = []  # each in a list of its own, which tells equal levels apart
        self.before: tuple[list[logging.Handler], bool, int] = ([], True, logging.NOTSET)

    def open(self, level: int) -> list[int]:
        """Show messages of `level`; `close` takes what this returns."""
        package, block = logging.getLogger(PACKAGE), [level]
        with self.lock:
            if not self.levels:
                self.before = package.handlers, package.propagate, package.level
                package.handlers, package.propagate = [StandardError()], False
            self.levels.append(block)
            package.setLevel(level)
        return block

    def close(self, block: list[int]) -> None:
        """Go back to the block opened last of those still open, or to how it was before all."""
        package = logging.getLogger(PACKAGE)
        with self.lock:
            self.levels = [other for other in self.levels if other is not block]
            if self.levels:
                package.setLevel(self.levels[-1][0])
            else:
                package.handlers, package.propagate, level = self.before
                package.setLevel(level)


_shown = _Shown()


@contextmanager
def shown(level: int = logging.INFO) -> Iterator[None]:
    """Within the block the package's messages of `level` and above go to standard error, and nowhere else. Blocks of
    several threads may end in any order."""
    block = _shown.open(level)
    try:
        yield
    finally:
        _shown.close(block)


class Progress:
    """The progress of work, shown where messages of level INFO are: a bar on a terminal, else a message each `every`
    seconds. `total` is None where it is not known. With `always` the bar is also there where no messages are."""

    def __init__(self, what: str, total: int | None = None, *, every: float = 15.0, always: bool = False) -> None:
        self.what, self.total, self.every = what, total, every
        self.done = 0
        self._start = self._last = time.monotonic()
        self._bar: Any = None
        if sys.stderr.isatty() and (always or logger.isEnabledFor(logging.INFO)):
            from tqdm import tqdm

            self._bar = tqdm(desc=what, total=total, file=sys.stderr, leave=False, dynamic_ncols=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, count: int = 1) -> None:
        """So many more are done."""
        self.done += count
        if self._bar is not None:
            self._bar.update(count)
            return
        now = time.monotonic()
        if now - self._last >= self.every:
            self._last = now
            total = f" of {self.total:,}" if self.total else ""
            logger.info(f"{self.what}: {self.done:,}{total} ({self._pace(now - self._start)})")

    def _pace(self, seconds: float) -> str:
        """The seconds so far, how much is done in one, and how long the rest takes at that rate."""
        text = f"{seconds:.0f} s"
        if self.done and seconds > 0:
            rate = self.done / seconds
            text += f", {rate:,.{0 if rate >= 10 else 1}f} a second"
            if self.total and self.total >= self.done:
                remaining = (self.total - self.done) / rate
                text += f", {remaining:.0f} s left" if remaining < 100 else f", {remaining / 60:,.0f} min left"
        return text


def track(
    items: Iterable[T], what: str, total: int | None = None, *, every: float = 15.0, always: bool = False
) -> Iterator[T]:
    """Yield `items` and show the `Progress`."""
    if total is None and hasattr(items, "__len__"):
        total = len(items)  # type: ignore[arg-type]
    with Progress(what, total, every=every, always=always) as progress:
        for item in items:
            yield item
            progress.advance()
