"""`interlingua sync --watch`, as a process of its own: what changes is in the index, and nothing is lost by mistake."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import sys
import threading
from importlib.util import find_spec
from types import SimpleNamespace
from urllib.request import Request, urlopen

import pytest

from interlingua.cli import main
from interlingua.data.files import SourceNames
from interlingua.data.files.walk import Report
from interlingua.data.files.watch import Batch, Watcher
from interlingua.data.passages import read_sources
from interlingua.errors import BadInput, Damaged, NotFound
from interlingua.index import Index
from interlingua.index import watching as index_watching
from interlingua.index.local.table import lock, newest_version
from interlingua.index.sync import Changes
from interlingua.models.late_interaction import load_any

needs_watchfiles = pytest.mark.skipif(find_spec("watchfiles") is None, reason="pip install 'interlingua[watch]'")
PATIENCE = 120.0
FILES = {"hb/a.md": "# One\n\nA first text.\n", "hb/sub/b.txt": "A second text.", "faq.csv": "id,text\n1,Blue star\n"}


def write(folder, files):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)


class Watching:
    """The process, and the lines that it has said."""

    def __init__(self, process):
        self.process, self.lines = process, queue.Queue()
        threading.Thread(target=lambda: [self.lines.put(line) for line in process.stderr], daemon=True).start()

    def line(self, pattern):
        """The next line that has `pattern`; those before it are passed over."""
        seen = []
        while True:
            try:
                seen.append(self.lines.get(timeout=PATIENCE))
            except queue.Empty:
                raise AssertionError(f"no line has {pattern}: {seen}") from None
            if re.search(pattern, seen[-1]):
                return seen[-1]

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.process.join(PATIENCE)
        return self.process.returncode


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, FILES)
    names = SourceNames()
    Index.build(
        load_any("default"),
        read_sources(["hb", "faq.csv"], lang="en", names=names),
        "idx",
        names=names,
        model_path="default",
    )
    return tmp_path


@pytest.fixture
def watching(place, python):
    """`watching(*paths)`: a process that has synced once and waits for changes."""
    started = []

    def start(*paths):
        process = python("-m", "interlingua", "sync", "idx", *paths, "--lang", "en", "--watch")
        started.append(process)
        return Watching(process)

    yield start
    for process in started:
        process.kill()


def texts(place):
    index = Index.open(place / "idx", load_any("default"))
    return {passage.text for part, _ in index.vectors() for passage in part}


@needs_watchfiles
@pytest.mark.slow
def test_what_changes_is_synced_in_batches(place, watching):
    process = watching("hb", "faq.csv")
    process.line("idx: watching hb, faq.csv")
    before = newest_version(place / "idx")
    write(place, {f"hb/new/{number}.txt": f"Text {number}." for number in range(300)})
    added = 0
    while added < 300:
        added += int(re.search(r"([\d,]+) added", process.line(r"changed: [\d,]+ added"))[1])
    assert newest_version(place / "idx") - before <= 3  # versions: a burst is one write, two where the machine is slow
    (place / "hb/new/7.txt").unlink()
    assert "0 added, 0 replaced, 1 deleted" in process.line("deleted")
    write(place, {"hb/.hidden.txt": "No.", "hb/a.md": "# One\n\nA newer text.\n", "hb/picture.png": "x"})
    assert "0 added, 1 replaced, 0 deleted" in process.line("replaced")
    write(place, {"new.csv": "id,text\n1,Blue star\n2,Red light\n"})
    os.replace(place / "new.csv", place / "faq.csv")
    assert "1 added, 0 replaced, 0 deleted, 1 unchanged" in process.line("added")
    assert {"A newer text.", "Red light", "Text 299."} <= texts(place)
    assert not {"A first text.", "Text 7.", "No."} & texts(place)
    assert process.stop() == 0
    assert "idx: stopped; 303 passages" in process.line("stopped")


@needs_watchfiles
@pytest.mark.slow
def test_a_folder_that_is_renamed_away_loses_nothing(place, watching):
    process = watching("hb")
    process.line("watching")
    before = texts(place)
    (place / "hb").rename(place / "elsewhere")
    assert "nothing is written" in process.line("hb: does not exist, but idx has 2 passages from it")
    assert texts(place) == before
    write(place, {"elsewhere/c.txt": "A third text."})
    (place / "elsewhere").rename(place / "hb")
    process.line("1 added, 0 replaced, 0 deleted")
    write(place, {"hb/d.txt": "A fourth text."})  # the folder is watched again
    process.line("1 added, 0 replaced, 0 deleted")
    (place / "hb/sub").rename(place / "sub")
    process.line("0 added, 0 replaced, 1 deleted")
    for file in (place / "hb").iterdir():
        file.unlink()
    process.line("hb: holds nothing to read, but idx has")
    assert process.stop(signal.SIGINT) == 0
    process.line("stopped")


@needs_watchfiles
@pytest.mark.slow
def test_another_writer_is_waited_for(place, watching):
    process = watching("hb")
    process.line("watching")
    with lock(place / "idx"):
        write(place, {"hb/c.txt": "A third text."})
        process.line("another process writes to it. Waiting until it is done")
        write(place, {"hb/c.txt": "A newer third text."})
    process.line("1 added, 0 replaced, 0 deleted")
    assert "A newer third text." in texts(place)
    with lock(place / "idx"):
        write(place, {"hb/d.txt": "A fourth text."})
        process.line("Waiting")
        assert process.stop() == 0
    assert "A fourth text." not in texts(place)


@needs_watchfiles
@pytest.mark.slow
def test_bad_files_are_named_and_the_rest_goes_on(place, watching):
    process = watching("hb")
    process.line("watching")
    (place / "hb/loop").symlink_to(place / "hb")
    write(place, {"hb/c.txt": "A third text.", "hb/t.csv": "nothing,of,this\n1,2,3\n", "hb/empty.txt": ""})
    process.line("1 added, 0 replaced, 0 deleted")
    process.line("t.csv: no column of text")
    assert process.stop() == 0


@needs_watchfiles
@pytest.mark.slow
def test_an_index_that_is_served_answers_with_what_changed(place, watching, running):
    process = watching("hb")
    process.line("watching")
    with running("-m", "interlingua", "serve", "idx", "--port", "0") as (_, port):
        write(place, {"hb/c.txt": "The lighthouse keeper is gone."})
        process.line("1 added")
        asked = json.dumps({"query": "lighthouse keeper", "k": 1}).encode()
        request = Request(f"http://127.0.0.1:{port}/search", asked, {"Content-Type": "application/json"})
        assert json.load(urlopen(request))["hits"][0]["source"] == "hb/c.txt"
    assert process.stop() == 0


def test_all_is_synced_after_a_failure_and_after_an_hour(monkeypatch):
    hour, asked = iter([0, 1, 2, 3, 4, 5, 6, 4_000, 4_001, 4_002]), []
    monkeypatch.setattr(index_watching.time, "monotonic", lambda: next(hour))
    quiet, a, b = Batch(), Batch(["a"]), Batch(["b"])
    fails = [BadInput("x."), None, Damaged("the disk is full"), None, None, None]

    class Faked(index_watching.Watching):
        def _reported(self, batch, what):
            asked.append(batch)
            return super()._reported(batch, what)

        def _synced(self, batch):
            if error := fails.pop(0):
                raise error
            return Changes(), Report()

    watcher = SimpleNamespace(paths=["a", "b"], stop=threading.Event())
    watcher.batches = lambda: iter([quiet, a, a, b, quiet, b])
    Faked(SizedPath("idx"), watcher, None).run()
    # at first; after it failed; a batch, which fails; so all; after an hour without a change; a batch
    assert asked == [None, None, a, None, None, b]
    assert not fails


class SizedPath(SimpleNamespace):
    def __init__(self, path):
        super().__init__(path=path)

    def __len__(self):
        return 0


def test_without_watchfiles_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with pytest.raises(NotFound, match=r"--watch needs watchfiles: pip install 'interlingua\[watch\]'"):
        Watcher([tmp_path], threading.Event())


@pytest.mark.parametrize("option", ["--dry-run", "--read-all"])
def test_options_that_do_not_fit_are_refused(tmp_path, capfd, option):
    assert main(["sync", str(tmp_path / "idx"), str(tmp_path), "--watch", option]) == 2
    assert f"--watch and {option} do not go together" in capfd.readouterr().err


def test_a_pattern_is_not_watched(tmp_path, capfd):
    (tmp_path / "a.md").write_text("A text.")
    assert main(["sync", str(tmp_path / "idx"), str(tmp_path / "*.md"), "--watch"]) == 2
    assert "is a pattern, of which no change is seen" in capfd.readouterr().err
