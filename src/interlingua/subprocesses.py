"""Other processes of ours, which work for the one that starts them: how many, how one is started, how it begins."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

MOST = 8
"""Processes at the most, unless another number is given: each holds 100 to 250 MB."""
M_ARENA_MAX = -8
"""The number that glibc's `mallopt` has for the most arenas."""
READ_AHEAD = 32 << 20
"""Bytes that Lance reads before it needs them, in each of its tasks. It may be 2 GB else."""


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """The threads that may compute, and the processes: as many as $OMP_NUM_THREADS says, else one a processor."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    return int(value) if value.isdecimal() and int(value) else processors()


def default_count() -> int:
    """As many processes as there are processors for this one and threads that may compute, up to `MOST`; none where
    there is one."""
    count = min(processors(), threads())
    return min(count, MOST) if count > 1 else 0


def use_memory_sparingly() -> None:
    """Set up a process of ours, before it has threads.

    It looks for objects that only refer to one another after 200,000 new ones, not after 700: passages and terms are
    many and do not do so, and the search took a tenth of the time that an index takes. Glibc gets two arenas for
    all threads, not eight a processor: each keeps what Lance's threads free, hundreds of megabytes together. And Lance
    reads little ahead, which is most of the memory that joining its files takes. What the environment says of the two
    last wins.
    """
    gc.set_threshold(200_000, 20, 100)
    os.environ.setdefault("LANCE_DEFAULT_IO_BUFFER_SIZE", str(READ_AHEAD))
    if "MALLOC_ARENA_MAX" not in os.environ:
        _glibc("mallopt", M_ARENA_MAX, 2)


def return_memory() -> None:
    """Give memory that was freed back to the system, which glibc keeps else."""
    _glibc("malloc_trim", 0)


def _glibc(function: str, *numbers: int) -> None:
    with suppress(OSError, AttributeError, TypeError):  # another C library
        getattr(ctypes.CDLL(None), function)(*numbers)


def start(
    module: str, *arguments: str, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.DEVNULL, pipesize: int = -1
) -> subprocess.Popen[bytes]:
    """Start `python -m module`, which computes in one thread and whose errors nobody sees. Raises OSError where no
    process can be started."""
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.DEVNULL,
        pipesize=pipesize,
        cwd=Path(__file__).parents[1],  # from where the package is found
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        process_group=0,  # Ctrl-C is for the first process
    )
