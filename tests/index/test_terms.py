"""Postings that several processes make are those of one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interlingua import subprocesses
from interlingua.array_folder import ArrayFolder, Layout
from interlingua.data.records import Passage
from interlingua.index.local import terms
from interlingua.index.local.rows import BATCH, arrow, text_schema, to_rows
from interlingua.index.metadata import terms_of
from interlingua.retrieval.bm25.postings import Postings

LAYOUT = Layout("postings", 1, "postings")
LANGS = ("en", "fi", "zh", "th")
PASSAGES = [
    Passage(str(number), f"the stations of line {number % 97} 东京 {number}", "", LANGS[number % 4], {"source": "a"})
    for number in range(3 * BATCH + 5)
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "passages.arrow"
    pa = arrow()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, text_schema()) as stream:
        for start in range(0, len(PASSAGES), BATCH):
            stream.write_batch(to_rows(PASSAGES[start : start + BATCH]))
    return path


def written(file: Path, place: Path) -> dict[str, list[int]]:
    with ArrayFolder.write(place, LAYOUT) as folder:
        terms.write_terms(file, folder)
    assert {path.suffix for path in place.iterdir()} == {".npy", ".json"}
    with ArrayFolder.open(place, LAYOUT) as folder:
        return {name: array.tolist() for name, array in vars(Postings.read(folder, len(PASSAGES))).items()}


@pytest.fixture
def wanted() -> dict[str, list[int]]:
    return {name: array.tolist() for name, array in vars(Postings.of(list(map(terms_of, PASSAGES)))).items()}


def test_one_process(file, tmp_path, wanted, monkeypatch):
    monkeypatch.setattr(terms, "start", lambda *told: pytest.fail("a process was started for few passages"))
    assert written(file, tmp_path / "p") == wanted


def test_several_processes(file, tmp_path, wanted, monkeypatch):
    monkeypatch.setattr(terms, "WORTH", 0)
    monkeypatch.setattr(terms, "default_count", lambda: 3)
    started, done = [], []

    def start(*told: str):
        started.append(subprocesses.start(*told))
        return started[-1]

    def write(rows, place, size, run):
        done.append(run)
        _write(rows, place, size, run)

    _write = terms._write_run
    monkeypatch.setattr(terms, "start", start)
    monkeypatch.setattr(terms, "_write_run", write)
    monkeypatch.chdir(file.parent)
    assert written(Path(file.name), Path(os.path.relpath(tmp_path / "p"))) == wanted
    assert [process.returncode for process in started] == [0, 0]
    assert done == [0, 3]  # the others are theirs


def test_what_a_process_leaves_undone_is_done(file, tmp_path, wanted, monkeypatch, capsys):
    """One writes part of a run and ends; no other can be started."""
    monkeypatch.setattr(terms, "WORTH", 0)
    monkeypatch.setattr(terms, "default_count", lambda: 3)

    def start(module: str, *told: str):
        if told[3] == "2":
            raise OSError("no more processes")
        Path(told[1], ".1").mkdir()
        Path(told[1], ".1", "0").mkdir()
        return subprocesses.start(module, "no such file", *told[1:])

    monkeypatch.setattr(terms, "start", start)
    assert written(file, tmp_path / "p") == wanted
    assert "a process that analyses passages has ended (1)" in capsys.readouterr().err


def test_a_process_ends_with_the_one_that_started_it(file, tmp_path):
    told = (str(file), str(tmp_path), "1", "0", "1")
    terms.main(*told, str(os.getpid()))  # not its parent
    assert [path.name for path in tmp_path.iterdir()] == ["0"]
    terms.main(str(file), str(tmp_path), "1", "1", "1", str(os.getppid()))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3"]
