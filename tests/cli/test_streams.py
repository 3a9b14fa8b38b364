"""Commands whose standard output or error is closed, full, without a reader, or of few characters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from interlingua.index import Index

COMMAND = [sys.executable, "-m", "interlingua"]
TEXT = "Louis Braille made an alphabet – of raised dots.\n"


@pytest.fixture(scope="module")
def index(tmp_path_factory) -> Path:
    """An index of one passage."""
    folder = tmp_path_factory.mktemp("streams")
    (folder / "w.txt").write_text(TEXT, encoding="utf-8")
    subprocess.run([*COMMAND, "index", folder / "w.txt", "--out", folder / "idx"], check=True, capture_output=True)
    return folder / "idx"


@pytest.fixture
def unread():
    """A pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    yield writer
    os.close(writer)


@pytest.mark.slow
@pytest.mark.parametrize("buffered", ["", "1"])
def test_work_goes_on_when_nobody_reads_what_it_says(index, unread, tmp_path, buffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": buffered}
    texts = [f"{lang}={tmp_path / lang}.txt" for lang in ("en", "fi")]
    for lang, text in (("en", "The lake is deep {}.\n"), ("fi", "Järvi on syvä {}.\n")):
        (tmp_path / f"{lang}.txt").write_text("".join(map(text.format, range(60))), encoding="utf-8")
    options = ["calibrate", "default", "--on", *texts, "--out", tmp_path / "model"]
    done = subprocess.run([*COMMAND, *options], stdout=unread, stderr=unread, env=environment)
    assert done.returncode == 0
    assert (tmp_path / "model" / "modules.json").exists()
    files = [index.parent / "w.txt", "--out", tmp_path / "idx"]
    done = subprocess.run([*COMMAND, "index", *files], stdout=unread, stderr=unread, env=environment)
    assert done.returncode == 0
    assert len(Index.open(tmp_path / "idx")) == 1
    done = subprocess.run(
        [*COMMAND, "search", index, "Braille"], stdout=unread, stderr=subprocess.PIPE, env=environment, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no /dev/full")
def test_a_full_disk_behind_standard_output_is_said_once(index):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "search", index, "Braille"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("interlingua: standard output: No space left on device. Make room")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_characters_that_the_output_lacks_are_escaped(index):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    command = [*COMMAND, "search", index, "Braille"]
    done = subprocess.run([*command, "--json"], capture_output=True, env=environment, check=True)
    assert json.loads(done.stdout)["text"] == TEXT.strip()
    done = subprocess.run(command, capture_output=True, env=environment, check=True)
    assert rb"an alphabet \u2013 of raised dots" in done.stdout


@pytest.mark.slow
def test_closed_streams_are_no_error(index, tmp_path):
    for streams, options in (
        ("2>&-", ["index", index.parent / "w.txt", "--out", tmp_path / "idx"]),
        (">&-", ["search", index, "Braille"]),
    ):
        command = subprocess.list2cmdline([*COMMAND, *map(str, options)])
        assert subprocess.run(["sh", "-c", f"{command} {streams}"], capture_output=True).returncode == 0
    assert len(Index.open(tmp_path / "idx")) == 1
