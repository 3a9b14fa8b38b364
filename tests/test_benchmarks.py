"""The page of benchmarks and the command that writes it."""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bench(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("bench", ROOT / "benchmarks/bench.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
    return module


def run(bench, monkeypatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.py", *options])
    bench.main()


def test_each_part_of_the_page_names_a_script_that_is_there(bench):
    page = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    commands = [match["command"] for match in bench.PART.finditer(page)]
    assert len(commands) == page.count("<!-- run:") == page.count("<!-- end -->") > 10
    for command in commands:
        assert (ROOT / "benchmarks" / shlex.split(command)[0]).is_file(), command


def test_what_a_command_prints_takes_the_place_of_what_it_printed_before(bench, monkeypatch, tmp_path):
    (tmp_path / "one.txt").write_text("1")
    bench.PAGE.write_text(
        'before\n<!-- run: a.py DATA/*.txt "DATA/*.txt" -->\nold\n<!-- end -->\nbetween\n'
        "<!-- run: b.py -->\n<!-- end -->\nafter\n"
    )
    asked = []

    def ran(words, **_):
        asked.append([Path(words[1]).name, *words[2:]])
        return subprocess.CompletedProcess(words, 0, stdout=f"{tmp_path}/one.txt took 3 ms\n")

    monkeypatch.setattr(bench.subprocess, "run", ran)
    run(bench, monkeypatch, "--data", str(tmp_path), "--threads", "2")
    assert asked == [["a.py", f"{tmp_path}/one.txt", f"{tmp_path}/*.txt"], ["b.py"]]
    page = bench.PAGE.read_text()
    assert "old" not in page
    assert "$ OMP_NUM_THREADS=2 python benchmarks/b.py " in page
    assert "DATA/one.txt took 3 ms" in page
    assert str(tmp_path) not in page
    run(bench, monkeypatch, "--data", str(tmp_path), "--only", "b")
    assert asked[2:] == [["b.py"]]
    assert bench.PAGE.read_text().count("took 3 ms") == 2


def test_a_part_that_cannot_be_measured_stays_as_it_was_and_is_named(bench, monkeypatch, capsys):
    page = '<!-- run: a.py "DATA/x" -->\nold\n<!-- end -->\n<!-- run: no_such.py -->\nolder\n<!-- end -->\n'
    bench.PAGE.write_text(page)
    with pytest.raises(SystemExit) as left:
        run(bench, monkeypatch, "--data", "")
    assert left.value.code == 1
    assert bench.PAGE.read_text() == page
    said = capsys.readouterr().err
    assert 'a.py "DATA/x": needs --data' in said
    assert "no_such.py" in said
