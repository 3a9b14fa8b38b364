"""Other processes of ours, which work for the one that starts them: how many, and how one is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MOST = 8
"""Processes at the most, unless another number is given: each holds 100 to 250 MB."""


def processors() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_count() -> int:
    """As many processes as there are processors for this one, up to `MOST`; none where there is one."""
    allowed = processors()
    return min(allowed, MOST) if allowed > 1 else 0


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
