"""The postings of the passages of an index, made by several processes.

Of n processes each takes every nth run of batches from the file of passages, cuts the passages into terms and writes
the postings of the run into a folder of its own; the first process joins them. A run that another process did not write
the first one writes. A process ends when the one that started it does.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from subprocess import Popen
from tempfile import TemporaryDirectory

from interlingua.array_folder import ArrayWriter
from interlingua.index.local.rows import BATCH, PassageRows, passages_of
from interlingua.index.metadata import terms_of
from interlingua.progress import Progress
from interlingua.retrieval.bm25.postings import join_blocks, write_blocks
from interlingua.subprocesses import default_count, start, use_memory_sparingly

logger = logging.getLogger(__name__)

MODULE = "interlingua.index.local.terms"
WORTH = 8
"""Batches from which on other processes help: to start one takes as long as two or three batches."""
RUN = 4
"""Batches of a run, at the most."""


def write_terms(file: Path, folder: ArrayWriter) -> None:
    """Add the `Postings` of the passages in `file`, which `PassageRows` reads, to a folder."""
    rows = PassageRows.open(file)
    batches = len(rows.batches)
    count = max(1, default_count()) if batches >= WORTH else 1
    size = max(1, min(RUN, batches // (4 * count)))
    runs = range(-(-batches // size))
    with (
        TemporaryDirectory(dir=folder.path, prefix="blocks") as name,
        Progress("analyse passages", len(rows)) as progress,
    ):
        place, helpers = Path(name), list[Popen[bytes]]()
        try:
            with suppress(OSError):  # no process can be started
                for number in range(1, count):
                    arguments = (file.absolute(), place.absolute(), size, number, count, os.getpid())
                    helpers.append(start(MODULE, *map(str, arguments)))
            for run in runs[::count]:
                _write_run(rows, place, size, run)
                progress.advance(BATCH * size * sum(1 for _ in place.glob("[0-9]*")) - progress.done)
            for helper in helpers:
                if code := helper.wait():
                    logger.warning(f"a process that analyses passages has ended ({code}); this one does its share.")
        finally:
            for helper in helpers:
                helper.kill()
                helper.wait()
        for run in runs:
            if not (place / str(run)).exists():
                _write_run(rows, place, size, run)
        join_blocks((place / str(run) for run in runs), folder)


def _write_run(rows: PassageRows, place: Path, size: int, run: int) -> None:
    """Write a run of `size` batches, whole or not at all."""
    batches = rows.batches[run * size : (run + 1) * size]
    partial = place / f".{run}"
    rmtree(partial, ignore_errors=True)  # of a process that was killed
    terms = (terms_of(passage) for batch in batches for passage in passages_of(batch))
    write_blocks(terms, run * size * BATCH, partial)
    partial.rename(place / str(run))


def main(file: str, place: str, size: str, number: str, count: str, parent: str) -> None:
    """Write one of `count` shares, that with this number, for the process `parent`."""
    use_memory_sparingly()
    rows = PassageRows.open(Path(file))
    for run in range(int(number), -(-len(rows.batches) // int(size)), int(count)):
        _write_run(rows, Path(place), int(size), run)
        if os.getppid() != int(parent):
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
