"""Progress that suits its reader: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def say(message: str = "") -> None:
    """A line for the person, on standard error: standard output is for results."""
    print(message, file=sys.stderr, flush=True)


def track(items: Iterable[T], what: str, total: int | None = None, every: float = 15.0) -> Iterator[T]:
    """Yield `items`, showing how far along they are. In a log: one line each `every` seconds."""
    if total is None and hasattr(items, "__len__"):
        total = len(items)  # type: ignore[arg-type]
    if sys.stderr.isatty():
        from tqdm import tqdm

        yield from tqdm(items, desc=what, total=total, file=sys.stderr, leave=False, dynamic_ncols=True)
        return
    start = last = time.monotonic()
    for count, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if now - last >= every:
            last = now
            of = f" of {total:,}" if total else ""
            say(f"{what}: {count:,}{of} ({now - start:.0f} s)")
