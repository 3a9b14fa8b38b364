"""Pipes as a shell makes them: `<(…)`, `… |`, `< file`, a FIFO."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

COMMANDS = {
    "encode": "interlingua encode default <(cat lines.txt) --out v.npy",
    "the rest": "{ read -r first; interlingua inspect - --kind sentences --lang en; } < lines.txt",
    "compare": "interlingua compare <(cat a.run) <(gzip -c b.run) --qrels <(cat qrels) --measure RR@10",
    "nobody": "interlingua inspect fifo",
}


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, subprocess.CompletedProcess[str]]]:
    """The folder, and what each command said: they run beside each other."""
    place = tmp_path_factory.mktemp("pipes")
    (place / "lines.txt").write_text("".join(f"sentence number {number} about the sea\n" for number in range(2000)))
    for name, order in (("a.run", "abcdef"), ("b.run", "fedcba")):
        (place / name).write_text(
            "".join(
                f"q{query} Q0 {passage} {rank} {9 - rank} t\n"
                for query in range(2000)
                for rank, passage in enumerate(order, 1)
            )
        )
    (place / "qrels").write_text("".join(f"q{query} 0 b 1\n" for query in range(2000)))
    os.mkfifo(place / "fifo")
    typed = f'interlingua() {{ "{sys.executable}" -m interlingua "$@"; }}; '
    running = {
        key: subprocess.Popen(
            ["bash", "-c", typed + command],
            cwd=place,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for key, command in COMMANDS.items()
    }
    said = {key: process.communicate(timeout=300) for key, process in running.items()}
    return place, {
        key: subprocess.CompletedProcess(COMMANDS[key], process.returncode, *said[key])
        for key, process in running.items()
    }


@pytest.mark.slow
def test_no_line_of_a_pipe_is_lost(done):
    place, said = done
    assert said["encode"].returncode == 0, said["encode"].stderr
    assert np.load(place / "v.npy").shape[0] == 2000


def test_what_the_shell_has_read_of_a_file_is_not_read_again(done):
    _, said = done
    assert "1,999" in said["the rest"].stdout


def test_runs_and_qrels_through_pipes(done):
    _, said = done
    assert "RR@10 0.5000 vs 0.2000, difference +0.3000 over 2,000 queries" in said["compare"].stdout


def test_a_pipe_without_a_writer_does_not_hang(done):
    _, said = done
    assert said["nobody"].returncode == 2
    assert said["nobody"].stderr == (
        "interlingua: fifo: nothing writes to this pipe. Start the program that fills it first.\n"
    )
