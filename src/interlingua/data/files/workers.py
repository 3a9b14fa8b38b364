"""Read documents in other processes, ahead of the one that indexes them.

A worker is `python -m interlingua.data.files.workers`. It gets a line of JSON with the options, then a line for some
files at a time, and answers each with a line: the passages of every file, or null for one that cannot be read so. Those
the first process reads itself, so all errors are found, named and counted in one place. A worker ends when its input
does, also when the process that started it was killed.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from interlingua.data.files.chunks import Way
from interlingua.data.files.reader import DOCUMENTS, FileReader, Ready
from interlingua.data.files.tables import NamedColumns
from interlingua.data.files.unchanged import FileMemory, Stamp
from interlingua.data.files.walk import File, Report, Scope
from interlingua.data.files.whole import IN_MEMORY, FilesDone
from interlingua.data.readers.source import kind_of
from interlingua.data.records import Passage, batched
from interlingua.subprocesses import default_count, start, use_memory_sparingly

logger = logging.getLogger(__name__)

MODULE = "interlingua.data.files.workers"
WORTH = 4_000_000
"""Bytes of documents, `EACH` more for every one, after which workers are started: that takes half a second."""
EACH = 2_000
TOGETHER = 16
"""Files that are asked for at a time."""
AHEAD = 256
"""Questions that wait for each worker, at the most: as many as it answers while a batch of passages is encoded."""
PIPE = 1 << 20
"""Bytes of answers, or of questions, that wait in a pipe, where the system can be asked for so large a one."""


class Workers:
    """The processes that read ahead for `reader`, which cuts documents as `cut` says (characters, overlap, way). They
    are started when there is much to read, and ended with the `with` block."""

    def __init__(self, reader: FileReader, cut: tuple[int, int, Way], count: int | None = None) -> None:
        self.reader = reader
        self.options = {"lang": reader.lang, "cut": cut}
        self.count = default_count() if count is None else count
        self.running: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self.running:
            worker.end()

    def files(self, found: Iterable[File]) -> Iterator[tuple[File, Ready | None]]:
        """Each file, in order, and what a worker has read of it; None for one to be read by the caller, which is done
        before the next file is asked for."""
        found, work = iter(found), 0
        while work <= WORTH or not self.count:
            file = next(found, None)
            if file is None:
                return
            before = self.reader.report.files
            yield file, None
            if self.reader.report.files > before and kind_of(file.path) in DOCUMENTS:
                stamp = Stamp.of(file.path)
                work += EACH + (stamp.size if stamp else 0)
        with suppress(OSError):  # no process can be started
            self.running += (_Worker(self.options) for _ in range(self.count))
        requests: deque[_Asked] = deque()
        for number, batch in enumerate(batched(found, TOGETHER)):
            began = time.time()
            stamps = {at: stamp for at, file in enumerate(batch) if (stamp := self.reader.ahead(file)) is not None}
            files = [batch[at] for at in stamps]
            question = line([(os.path.abspath(file.path), file.name, self.reader.link(file.name)) for file in files])
            worker = self.running[number % len(self.running)] if stamps and self.running else None
            while worker in self.running and not worker.takes(question):
                yield from self._answers(requests.popleft())
            if worker in self.running:
                worker.ask(question)
            requests.append(_Asked(batch, stamps, began, worker))
            while len(requests) > AHEAD * len(self.running):
                yield from self._answers(requests.popleft())
        for request in requests:
            yield from self._answers(request)

    def _answers(self, request: _Asked) -> Iterator[tuple[File, Ready | None]]:
        answers: Iterable[Any] = ()
        if request.worker in self.running:
            try:
                answers = request.worker.answer()
            except (OSError, ValueError):
                self.running.remove(request.worker)
                code = request.worker.end()
                logger.warning(f"a process that reads files ahead has ended ({code}); its files are read in this one.")
        by_place = dict(zip(request.stamps, answers, strict=False))
        for at, file in enumerate(request.batch):
            ready = None
            if answer := by_place.get(at):
                rows, guessed, left_out = answer
                ready = Ready(request.stamps[at], request.began, [Passage(*row) for row in rows], guessed, left_out)
            yield file, ready


class _Asked(NamedTuple):
    """A batch of files, of which a worker was asked for those that have `stamps` (by their place in it)."""

    batch: list[File]
    stamps: dict[int, Stamp]
    began: float
    worker: _Worker | None


class _Worker:
    """One process."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.process = start(MODULE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pipesize=PIPE)
        self.waiting: deque[int] = deque()  # bytes of each question that has no answer yet
        self.ask(line(options))
        self.waiting.clear()

    def takes(self, question: bytes) -> bool:
        """Whether its pipe has room for a question. A worker that waits for its answer to be read reads none: to wait
        for it then would be for ever."""
        assert self.process.stdin is not None
        return not self.waiting or sum(self.waiting) + len(question) <= capacity(self.process.stdin.fileno()) // 2

    def ask(self, question: bytes) -> None:
        """Send a line. A process that is gone is noticed when its answer is read."""
        assert self.process.stdin is not None
        self.waiting.append(len(question))
        with suppress(OSError):
            self.process.stdin.write(question)
            self.process.stdin.flush()

    def answer(self) -> list[Any]:
        """Read a line. Raises ValueError where there is none."""
        assert self.process.stdout is not None
        answer: list[Any] = json.loads(self.process.stdout.readline())
        self.waiting.popleft()
        return answer

    def end(self) -> int:
        """Kill the process; its exit code."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
        return self.process.wait()


def line(content: Any) -> bytes:
    """A message to a worker, or from one, as a line of JSON."""
    return json.dumps(content).encode() + b"\n"


def capacity(pipe: int) -> int:
    """Bytes that a pipe holds; what all systems give where it does not say."""
    try:
        return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    except (AttributeError, OSError):
        return 16_384


Rows = list[tuple[str, str, str, str, dict[str, str]]]


def read_document(file: File, link: str, lang: str, cut: tuple[int, int, Way]) -> tuple[Rows, str, list[str]] | None:
    """The passages of one document, as rows, the encoding that was guessed and the names of what cannot be metadata;
    None for one that has an error, no text, or too much to be held."""
    report, size = Report(), 0
    reader = FileReader(lang, cut, NamedColumns({}), report, Scope())
    reader.done, reader.memory = FilesDone(), FileMemory()
    reader.link = lambda name: link
    rows: Rows = []
    try:
        for passage in reader.read(file):
            size += len(passage.text)
            if size > IN_MEMORY:
                return None
            rows.append((passage.id, passage.text, passage.title, passage.lang, dict(passage.metadata)))
    except Exception:  # what it is, the first process finds out
        return None
    if report.bad or not rows:
        return None
    return rows, next(iter(report.guessed), ""), [column for _, column in report.left_out]


def main() -> None:
    """Answer the lines of standard input until it ends."""
    use_memory_sparingly()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    options = json.loads(sys.stdin.buffer.readline())
    with suppress(BrokenPipeError):
        for question in sys.stdin.buffer:
            results = [
                read_document(File(Path(path), name, True), link, options["lang"], tuple(options["cut"]))
                for path, name, link in json.loads(question)
            ]
            answers.write(line(results))
            answers.flush()


if __name__ == "__main__":
    main()
