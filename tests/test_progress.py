"""Who sees what: a library user warnings, the command line news as well, and how far along work is."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from interlingua import progress
from interlingua.cli import main
from interlingua.data.files import read_files
from interlingua.progress import Progress, shown, track


@pytest.fixture
def table(tmp_path):
    """A file with a good row and a bad one."""
    file = tmp_path / "faq.jsonl"
    file.write_text('{"id": "a", "text": "A refund.", "lang": "en"}\nnonsense\n')
    return file


def test_a_library_reports_news_and_warnings_to_the_loggers_of_its_modules(table, caplog):
    caplog.set_level(logging.INFO)
    list(read_files(table, on_bad_row="skip"))
    (record,) = caplog.records
    assert (record.levelname, record.name) == ("WARNING", "interlingua.data.files.walk")
    assert "1 bad row or file left out:\n" in record.getMessage()
    caplog.clear()
    table.write_text(table.read_text().splitlines()[0])
    list(read_files(table))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "1 file, 1 passages: en 1")
    ]


def test_a_library_user_sees_warnings_alone(table, python):
    code = (
        "import sys; from interlingua.data.files import read_files; "
        "list(read_files(sys.argv[1])); list(read_files(*sys.argv[1:2], on_bad_row='skip'))"
    )
    good = table.with_name("good.jsonl")
    good.write_text(table.read_text().splitlines()[0])
    assert python("-c", code, str(good)).communicate() == ("", "")
    code = code.replace("list(read_files(sys.argv[1])); ", "")
    assert "1 bad row" in python("-c", code, str(table)).communicate()[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "shows", "hides"),
    [
        ([], ["1 bad row", "idx: 1 passages: en 1. Try:"], []),
        (["--quiet"], ["1 bad row"], ["Try:"]),
        (["--debug"], ["Try:", "a detail"], []),
    ],
)
def test_the_command_line_decides_what_is_shown(table, tmp_path, capfd, monkeypatch, options, shows, hides):
    monkeypatch.chdir(tmp_path)
    from interlingua.cli.index import build as index

    def detailed(built, counted=index.counted):
        index.logger.debug("a detail")
        return counted(built)

    monkeypatch.setattr(index, "counted", detailed)
    for command in (["index", *options], [*options, "index"]):
        argv = [*command, table.name, "--out", "idx", "--on-bad-row", "skip", "--overwrite"]
        assert main(argv) == 0
        err = capfd.readouterr().err
        assert all(text in err for text in shows)
        assert not any(text in err for text in [*hides, *([] if options == ["--debug"] else ["a detail"])])
    package = logging.getLogger("interlingua")
    assert (package.handlers, package.propagate, package.level) == ([], True, logging.NOTSET)


def test_an_error_has_its_traceback_with_debug_alone(capfd):
    assert main(["info"]) == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert main(["info", "--debug"]) == 2
    assert "Traceback" in capfd.readouterr().err
    assert main(["info", "--quiet"]) == 2
    assert capfd.readouterr().err.startswith("interlingua: give an index")


def test_messages_go_to_the_standard_error_of_the_moment_and_once(monkeypatch):
    logger = logging.getLogger("interlingua.somewhere")
    first, second = io.StringIO(), io.StringIO()
    with shown(), shown(logging.WARNING):
        monkeypatch.setattr(sys, "stderr", first)
        logger.warning("100% 'as it is'")
        monkeypatch.setattr(sys, "stderr", second)
        logger.info("not shown")
        logger.warning("two\nlines")
        logger.warning("\x1b[31mred\x1b[0m\r.txt\x9b")
    assert first.getvalue() == "100% 'as it is'\n"
    assert second.getvalue() == "two\nlines\n\\x1b[31mred\\x1b[0m\\x0d.txt\\x9b\n"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by ten seconds each time it is read."""
    times = iter(range(0, 10_000, 10))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(times)))


@pytest.mark.usefixtures("clock")
def test_a_log_gets_a_line_now_and_then(caplog):
    caplog.set_level(logging.INFO)
    assert list(track(range(5), "read", every=20)) == [*range(5)]
    assert caplog.messages == [
        "read: 2 of 5 (20 s, 0.1 a second, 30 s left)",
        "read: 4 of 5 (40 s, 0.1 a second, 10 s left)",
    ]
    caplog.clear()
    with Progress("encode", every=1) as work:
        work.advance(1000)
    assert caplog.messages == ["encode: 1,000 (10 s, 100 a second)"]
    caplog.clear()
    with Progress("encode", 1_000_000, every=1) as work:
        work.advance(1000)
    assert caplog.messages == ["encode: 1,000 of 1,000,000 (10 s, 100 a second, 166 min left)"]


def test_a_terminal_gets_a_bar_where_messages_are_shown(monkeypatch):
    def drawn(level, **options):
        monkeypatch.setattr(sys, "stderr", Terminal())
        with shown(level):
            assert list(track(iter("abc"), "encode", 3, **options)) == ["a", "b", "c"]
        return sys.stderr.getvalue()

    assert "encode" in drawn(logging.INFO)
    assert drawn(logging.WARNING) == ""
    assert "encode" in drawn(logging.WARNING, always=True)


def test_blocks_that_overlap_leave_the_logger_as_it_was(capfd, caplog):
    package = logging.getLogger("interlingua")
    first, second = shown(logging.WARNING), shown()
    first.__enter__()
    second.__enter__()  # as of another thread, which ends after the first
    first.__exit__(None, None, None)
    package.info("still shown")
    second.__exit__(None, None, None)
    assert (package.handlers, package.propagate, package.level) == ([], True, logging.NOTSET)
    package.warning("for the log")
    assert capfd.readouterr().err == "still shown\n"
    assert [record.message for record in caplog.records] == ["for the log"]
