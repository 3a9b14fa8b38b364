"""How processes of ours are set up."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

ARENAS = """
import ctypes, sys, threading
from interlingua.subprocesses import use_memory_sparingly

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.fopen.restype = ctypes.c_void_p, ctypes.c_void_p
use_memory_sparingly()
all_there = threading.Barrier(6)

def allocate():
    libc.malloc(ctypes.c_size_t(10_000))
    all_there.wait()

threads = [threading.Thread(target=allocate) for _ in range(6)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="arenas are glibc's")
@pytest.mark.parametrize(("asked", "most"), [(None, 2), ("4", 4)])
def test_many_threads_share_two_arenas_unless_the_environment_says_otherwise(tmp_path, asked, most):
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    if asked:
        environment["MALLOC_ARENA_MAX"] = asked
    info = tmp_path / "info.xml"
    subprocess.run([sys.executable, "-c", ARENAS, str(info)], env=environment, check=True)
    assert info.read_text().count("<heap nr=") == most


@pytest.mark.parametrize(("asked", "held"), [(None, 32 << 20), ("1000000", 1_000_000)])
def test_lance_reads_little_ahead_unless_the_environment_says_otherwise(asked, held):
    name = "LANCE_DEFAULT_IO_BUFFER_SIZE"
    environment = {key: value for key, value in os.environ.items() if key != name} | ({name: asked} if asked else {})
    script = f"import os; from interlingua.subprocesses import *; use_memory_sparingly(); print(os.environ[{name!r}])"
    done = subprocess.run([sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True)
    assert int(done.stdout) == held


@pytest.mark.parametrize(("asked", "level"), [(None, "error"), ("info", "info")])
def test_lance_warns_of_its_own_working_only_where_the_environment_says_so(tmp_path, asked, level):
    pytest.importorskip("lancedb")
    name = "LANCEDB_LOG"
    environment = {key: value for key, value in os.environ.items() if key != name} | ({name: asked} if asked else {})
    script = (
        "import os, sys; from pathlib import Path; from interlingua.index.local.table import PassageTable; "
        f"PassageTable.create(Path(sys.argv[1]), 2, 0); print(os.environ[{name!r}])"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == level
