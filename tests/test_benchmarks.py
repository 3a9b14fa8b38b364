"""The page of benchmarks and the command that writes it."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def bench(monkeypatch, tmp_path):
    """benchmarks/bench.py with a page of its own; its commands do not run, but are noted in `asked`."""
    spec = importlib.util.spec_from_file_location("bench", ROOT / "benchmarks/bench.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.asked = []

    def ran(words):
        module.asked.append(words)
        if words[0] == "no_such.py":
            raise RuntimeError("exit code 2")
        return f"{tmp_path}/one.txt took 0.3 ms"

    monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(module, "ran", ran)
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
    folder = tmp_path / "my data [1]"
    folder.mkdir()
    (folder / "one.txt").write_text("1")
    bench.PAGE.write_text(
        'before\n<!-- run: a.py DATA/*.txt "DATA/*.txt" -->\nold\n<!-- end -->\nbetween\n'
        "<!-- run: b.py -->\n<!-- end -->\nafter\n"
    )
    run(bench, monkeypatch, "--data", f"{folder}/")
    assert bench.asked == [["a.py", f"{folder}/one.txt", f"{folder}/*.txt"], ["b.py"]]
    page = bench.PAGE.read_text()
    assert "old" not in page
    assert "$ OMP_NUM_THREADS=1 python benchmarks/b.py " in page
    assert page.count("took 0.3 ms") == 2
    monkeypatch.chdir(tmp_path)
    run(bench, monkeypatch, "--data", ".", "--only", "b")
    assert bench.asked[2:] == [["b.py"]]
    assert "\nDATA/one.txt took 0.3 ms\n" in bench.PAGE.read_text()
    with pytest.raises(SystemExit):
        run(bench, monkeypatch, "--only", "c")


def test_a_part_that_cannot_be_measured_stays_as_it_was(bench, monkeypatch, capsys):
    page = '<!-- run: a.py "DATA/x" -->\nold\n<!-- end -->\n'
    bench.PAGE.write_text(page)
    run(bench, monkeypatch, "--data", "")
    assert 'needs --data: a.py "DATA/x"' in capsys.readouterr().out
    page += "<!-- run: no_such.py -->\nolder\n<!-- end -->\n<!-- run: c.py DATA/*.none -->\nold\n<!-- end -->\n"
    bench.PAGE.write_text(page)
    with pytest.raises(SystemExit) as left:
        run(bench, monkeypatch, "--data", "nowhere", "--only", "no_such", "c")
    assert left.value.code == 1
    assert bench.PAGE.read_text() == page
    said = capsys.readouterr().err
    assert "no_such.py: exit code 2" in said
    assert "DATA/*.none: no such files" in said
