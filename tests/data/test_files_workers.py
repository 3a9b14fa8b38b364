"""Documents that other processes read ahead: the same passages, in the same order, with the same report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from interlingua import subprocesses
from interlingua.data.files import Report, Scope, read_files, unchanged, workers
from interlingua.data.files.unchanged import FileMemory, Held
from interlingua.data.records import Passage
from interlingua.errors import BadInput

sys.path.append(str(Path(__file__).parent))
from office_files import pdf, word

FOLDERS, EACH = 5, 12


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are started before the first document."""
    monkeypatch.setattr(workers, "WORTH", -1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "handbook"
    for number in range(FOLDERS * EACH):
        path = root / f"{number // EACH}" / f"{number:02}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"The {number}th machine is cleaned with water. Then it is dried.", encoding="utf-8")
    (root / "0" / "latin.txt").write_bytes("Die Tür wird täglich geölt, der Schlüssel hängt hier.".encode("latin-1"))
    (root / "1" / "front.md").write_text("---\ntitle: Doors\nparts: {a: 1}\n---\nA door has a lock.", encoding="utf-8")
    (root / "1" / "blank.txt").write_text(" \n", encoding="utf-8")
    (root / "2" / "none.docx").write_bytes(b"this is no archive")
    (root / "2" / "real.docx").write_bytes(word())
    (root / "2" / "real.pdf").write_bytes(pdf(["Pumps are closed at night."]))
    (root / "3" / "rows.csv").write_text("question,answer\nWhere is the key?,In the kitchen.\n", encoding="utf-8")
    (root / "3" / "notes.unknown").write_text("x", encoding="utf-8")
    return root


def read(root: Path, count: int, **options: object) -> tuple[list[Passage], Report, Scope]:
    report, scope = Report(), Scope()
    found = list(read_files(root, report=report, scope=scope, workers=count, on_bad_row="skip", **options))
    return found, report, scope


def noted(report: Report) -> tuple[object, ...]:
    return (
        report.files,
        report.bad,
        report.unchanged,
        report.reasons(),
        dict(report.languages),
        list(report.guessed),
        list(report.left_out),
    )


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lang": "en", "chunk": "headings", "url_base": "https://example.org/"},
        {"chunk": "characters", "chunk_chars": 20, "overlap": 0},
    ],
    ids=["detected", "headings", "characters"],
)
def test_the_same_passages_and_the_same_report(folder: Path, at_once: None, options: dict[str, object]) -> None:
    alone, report, scope = read(folder, 0, **options)
    helped, report_of_both, scope_of_both = read(folder, 2, **options)
    assert helped == alone
    assert len({passage.metadata["source"] for passage in alone}) == FOLDERS * EACH + 5
    assert noted(report_of_both) == noted(report)
    assert report.bad == 1
    assert (scope_of_both.read, scope_of_both.unread) == (scope.read, scope.unread)


def test_more_waits_than_a_pipe_holds(tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(200):
        (tmp_path / f"{number:03}-{'long' * 20}.txt").write_text(f"{number} is a number. " * 200, encoding="utf-8")
    monkeypatch.setattr(workers, "PIPE", 4096)
    alone, _, _ = read(tmp_path, 0)
    helped, report, _ = read(tmp_path, 2)
    assert helped == alone
    assert report.files == 200


def test_workers_read_what_they_are_asked_for(folder: Path, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process opens only what a worker had no answer for."""
    opened = []
    real = workers.FileReader.read

    def noting(self: workers.FileReader, file: workers.File, ready: object = None) -> object:
        if ready is None:
            opened.append(file.path.name)
        return real(self, file, ready)

    monkeypatch.setattr(workers.FileReader, "read", noting)
    read(folder, 2)
    assert sorted(opened) == ["blank.txt", "none.docx", "notes.unknown", "rows.csv"]


def seals(memory: FileMemory, found: list[Passage]) -> tuple[dict[str, str], dict[str, Held]]:
    """What an index would remember of these files, and the rows that it holds."""
    counts = Counter(passage.metadata["source"] for passage in found)
    held = {name: Held(count, 0) for name, count in counts.items()}
    return memory.sealed(held, lambda name: True), held


def test_what_was_read_by_a_worker_is_remembered(folder: Path, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unchanged, "SETTLED", -1e6)  # as if all files were old
    found, _, scope = read(folder, 2)
    kept, held = seals(scope.memory, found)
    assert len(kept) == FOLDERS * EACH + 5
    report, again = Report(), Scope()
    again.memory = FileMemory(kept, held)
    rest = list(read_files(folder, report=report, scope=again, workers=2, on_bad_row="skip"))
    assert rest == []
    assert report.unchanged == FOLDERS * EACH + 5


def test_a_file_that_changes_after_a_worker_read_it(
    folder: Path, at_once: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is remembered as it was then: the next sync reads it."""
    monkeypatch.setattr(unchanged, "SETTLED", -1e6)
    scope = Scope()
    reading = read_files(folder, report=Report(), scope=scope, workers=2, on_bad_row="skip")
    found = [next(one for one in reading if one.metadata["source"].startswith("handbook/2/"))]
    (folder / "2" / "25.txt").write_text("Something else altogether.", encoding="utf-8")
    found += reading
    kept, held = seals(scope.memory, found)
    again = Scope()
    again.memory = FileMemory(kept, held | {"handbook/2/25.txt": Held(1, 0)})
    texts = [one.text for one in read_files(folder, report=Report(), scope=again, workers=0, on_bad_row="skip")]
    assert "Something else altogether." in texts


def children() -> list[int]:
    out = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(os.getpid())], capture_output=True, text=True)
    return [int(line.split()[0]) for line in out.stdout.splitlines() if workers.MODULE in line]


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers with ps")
def test_workers_that_are_killed_lose_nothing(folder: Path, at_once: None, caplog: pytest.LogCaptureFixture) -> None:
    alone, *_ = read(folder, 0)
    found = read_files(folder, report=Report(), scope=Scope(), workers=2, on_bad_row="skip")
    passages = [next(found)]
    running = children()
    assert len(running) == 2
    for process in running:
        os.kill(process, signal.SIGKILL)
    passages += found
    assert passages == alone
    assert "a process that reads files ahead has ended (-9)" in caplog.text
    assert children() == []


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers with ps")
def test_workers_end_with_the_reading(folder: Path, at_once: None) -> None:
    found = read_files(folder, report=Report(), scope=Scope(), workers=2, on_bad_row="skip")
    next(found)
    assert len(children()) == 2
    found.close()
    assert children() == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_end_when_their_parent_is_killed(folder: Path) -> None:
    code = (
        "import gc, sys\nfrom interlingua.data.files import read_files, workers\n"
        "workers.WORTH = -1\nfound = read_files(sys.argv[1], workers=2, on_bad_row='skip')\nnext(found)\n"
        "print(*(one.process.pid for one in gc.get_objects() if isinstance(one, workers._Worker)), flush=True)\n"
        "sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    running = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(running) == 2
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() and not ended(pid) for pid in running):
        assert time.monotonic() < deadline, "a worker outlives its parent"
        time.sleep(0.02)


def ended(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def test_no_process_can_be_started(folder: Path, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise OSError("Resource temporarily unavailable")

    alone, *_ = read(folder, 0)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    assert read(folder, 2)[0] == alone


def test_few_documents_start_no_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", lambda *args, **options: pytest.fail("a process was started"))
    assert read(folder, 2)[0]


def test_a_negative_number_is_refused(folder: Path) -> None:
    with pytest.raises(BadInput, match="workers=-1"):
        list(read_files(folder, workers=-1))


def test_without_processors_to_spare_there_are_no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert subprocesses.default_count() == 0
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert subprocesses.default_count() == subprocesses.MOST
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert subprocesses.default_count() == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert subprocesses.default_count() == 0
