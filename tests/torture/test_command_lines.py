"""Command lines that nobody meant: each ends with 0 or with 2 and one line, never with a traceback."""

from __future__ import annotations

import contextlib
import io
import random
from pathlib import Path

import pytest

from interlingua.cli import main, names
from interlingua.data.files.watch import Watcher

pytestmark = pytest.mark.slow
WITHOUT = {"serve", "demo", "reproduce", "train"}
"""Verbs that run for long where a command is right by chance."""
VALUES = (
    "",
    "-",
    "--",
    "0",
    "-1",
    "nan",
    "inf",
    "1e400",
    "99999999999999999999",
    "half",
    "\0",
    "\udcff",  # a byte that is no UTF-8
    "a=b=c",
    "=",
    "[[",
    "{}",
    "{" * 3_000,
    "../../..",
    "/",
    "/dev/null",
    "/proc/self/mem",
    "milvus://nowhere",
    "milvus:",
    "encyclopedia",
    "encyclopedia:xx",
    "default",
    "meta",
    "x" * 5_000,
    "texts.txt",
    "idx",
    "bad.jsonl",
    "bytes",
)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with an index and some files, the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("texts.txt").write_text("A storm at sea.\nTwo rivers meet.\n")
    Path("bad.jsonl").write_text('{"id": 1\n[]\n{"text": null}\n')
    Path("bytes").write_bytes(bytes(range(256)) * 4)
    assert main(["index", "texts.txt", "--out", "idx", "--quiet"]) == 0


def options(verb: str) -> list[str]:
    """The options of a verb."""
    with contextlib.redirect_stdout(io.StringIO()) as help, contextlib.suppress(SystemExit):
        main([verb, "--help"])
    words = {word.strip("[],.") for word in help.getvalue().split() if word.startswith(("--", "[--"))}
    return sorted(words - {"--debug"})  # which asks for the traceback


def command(verb: str, known: list[str], drawn: random.Random) -> list[str]:
    words = [verb]
    for _ in range(drawn.randrange(5)):
        words += [drawn.choice(known)] if known and drawn.random() < 0.5 else []
        words += [drawn.choice(VALUES)] if drawn.random() < 0.8 else []
    return words


def test_a_command_line_that_nobody_meant_is_told_in_one_line(here, drawn, trials, monkeypatch):
    monkeypatch.setattr(Watcher, "batches", lambda watcher: iter(()))  # `sync --watch` is right, and waits for changes
    verbs = [verb for verb in names() if verb not in WITHOUT]
    known = {verb: options(verb) for verb in verbs}
    for _ in trials("hostile command lines", 60):
        words = command(verb := drawn.choice(verbs), known[verb], drawn)
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                code = main(words)
            except SystemExit as end:
                code = int(end.code or 0)
        assert code in (0, 2), (words, said.getvalue()[-2_000:])
        assert "Traceback" not in said.getvalue(), (words, said.getvalue()[-2_000:])
