"""Commands whose standard output or error is closed, full, without a reader, or of few characters."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from interlingua.cli.streams import lasting_streams
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
@pytest.mark.parametrize("buffered", ["", "1"])
def test_a_full_disk_behind_standard_output_is_said_once(index, monkeypatch, buffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", buffered)
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "search", index, "Braille"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("interlingua: standard output: No space left on device. Make room")
    assert done.stderr.count("\n") == 1
    with open("/dev/full", "w") as full:
        for options, code in ((["--help"], 2), (["search", index, "Braille"], 2), (["search", index], 2)):
            assert subprocess.run([*COMMAND, *options], stdout=full, stderr=full).returncode == code
        out = index.parent / f"full{buffered}"
        assert subprocess.run([*COMMAND, "index", index.parent / "w.txt", "--out", out], stderr=full).returncode == 0
    assert len(Index.open(out)) == 1


@pytest.mark.slow
def test_an_error_after_output_that_nobody_read_is_that_error(index, unread, tmp_path):
    program = (
        "import sys\nfrom interlingua.cli import info, main\nfrom interlingua.errors import BadInput\n"
        "def run(arguments):\n    print('x')\n    raise BadInput('this is wrong.')\n"
        "info.run = run\nsys.exit(main(['info', 'default']))\n"
    )
    for errors in ("strict", "surrogateescape"):
        environment = {**os.environ, "PYTHONUNBUFFERED": "", "PYTHONIOENCODING": f"utf-8:{errors}"}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, stdout=unread, stderr=subprocess.PIPE, env=environment, text=True)
        assert (done.returncode, done.stderr) == (2, "interlingua: this is wrong.\n")


@pytest.mark.slow
def test_work_goes_on_when_its_terminal_is_closed(index):
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    os.close(ours)
    out = index.parent / "hung-up"
    command = [*COMMAND, "index", index.parent / "w.txt", "--out", out]
    assert subprocess.run(command, stdout=theirs, stderr=theirs, start_new_session=True).returncode == 0
    assert subprocess.run([*COMMAND, "search", index, "Braille"], stdout=theirs, stderr=theirs).returncode == 0
    os.close(theirs)
    assert len(Index.open(out)) == 1


def test_a_stream_may_have_become_a_pipe(tmp_path, monkeypatch):
    """A process that a server of forks made has a pipe where its standard output was a file."""
    with open(tmp_path / "out", "w", encoding="ascii") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        reader, writer = os.pipe()
        os.dup2(writer, stream.fileno())
        os.close(writer)
        with lasting_streams():
            print("a –", flush=True)
        assert os.read(reader, 99) == b"a \\u2013\n"
        assert stream.errors == "strict"
    os.close(reader)


def test_streams_are_left_as_they_were(monkeypatch, tmp_path):
    class Plain:
        def write(self, text):
            """Only what print needs."""

        def flush(self):
            """Nothing is held."""

    with open(tmp_path / "out", "w", encoding="ascii") as stream:
        for one in (stream, Plain(), None):
            monkeypatch.setattr(sys, "stdout", one)
            with lasting_streams():
                with lasting_streams():  # a command that runs a command
                    print("a –")
                print("b \udc80")
            assert sys.stdout is one
        assert stream.errors == "strict"
    assert (tmp_path / "out").read_text() == "a \\u2013\nb \\udc80\n"


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
        command = shlex.join([*COMMAND, *map(str, options)])
        assert subprocess.run(["sh", "-c", f"{command} {streams}"], capture_output=True).returncode == 0
    assert len(Index.open(tmp_path / "idx")) == 1
