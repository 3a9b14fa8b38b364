"""`Index.sync` reads what changed: a file that is as it was is not read, and one that changed is never missed."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from interlingua.data.files import Scope, SourceNames, whole
from interlingua.data.files.reader import FileReader
from interlingua.data.files.unchanged import Held, Stamp
from interlingua.data.passages import read_sources
from interlingua.data.records import Passage
from interlingua.errors import BadInput
from interlingua.index import Index
from interlingua.index.local import seals

sys.path.append(str(Path(__file__).parent))
from letter_encoder import Letters, content, write

FILES = {
    "folder/a.txt": "A first text.",
    "folder/sub/b.md": "# One\n\nA second text.\n\n# Two\n\nA third text.\n",
    "folder/c.csv": "id,text\n1,Blue star\n2,Red light\n",
}


@pytest.fixture
def opened(monkeypatch):
    """The names of the files that are read."""
    names = []
    source = FileReader._source

    def noted(self, file, suffix):
        names.append(file.name)
        return source(self, file, suffix)

    monkeypatch.setattr(FileReader, "_source", noted)
    return names


def make(folder, files):
    """Write files, as if some time ago."""
    write(folder, files)
    for name in files:
        settle(folder / name)


def settle(path):
    os.utime(path, (1_000_000_000, 1_000_000_000))


def sync(index, *paths, **options):
    reader = {name: options.pop(name) for name in ("chunk_chars", "columns", "url_base", "lang") if name in options}
    scope, names = Scope(), SourceNames()
    read = read_sources(paths, names=names, scope=scope, **{"lang": "en", "on_bad_row": "skip", **reader})
    return index.sync(read, scope, names, **options)


@pytest.fixture
def index(tmp_path, monkeypatch, opened):
    """An index that was synced once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Stamp, "is_settled", lambda stamp, now: stamp.modified < 1_500_000_000 * 10**9)
    make(tmp_path, FILES)
    names = SourceNames()
    Index.build(Letters(), read_sources(["folder"], lang="en", names=names), "idx", names=names)
    index = Index.open("idx", Letters())
    assert not sync(index, "folder")
    opened.clear()
    return index


def test_a_build_remembers_what_it_read(index, opened):
    names = SourceNames()
    read = read_sources(["folder"], lang="en", names=names)
    Index.build(Letters(), read, "idx", names=names, overwrite=True)
    opened.clear()
    again = Index.open("idx", Letters())
    assert str(sync(again, "folder")) == "0 added, 0 replaced, 0 deleted, 5 unchanged"
    assert opened == []


def test_files_that_did_not_change_are_not_read(tmp_path, index, opened):
    assert str(sync(index, "folder")) == "0 added, 0 replaced, 0 deleted, 5 unchanged"
    assert opened == []
    make(tmp_path, {"folder/a.txt": "A newer text."})
    (tmp_path / "folder/sub/b.md").unlink()
    assert sync(index, "folder").by_source() == ["folder/a.txt: 1 replaced", "folder/sub/b.md: 2 deleted"]
    assert opened == ["folder/a.txt"]
    assert not sync(Index.open("idx", Letters()), "folder")
    assert opened == ["folder/a.txt"]
    assert not sync(index, "folder", read_all=True)
    assert len(opened) == 3


@pytest.mark.parametrize("how", ["in place", "replaced", "the times set back"])
def test_a_change_that_keeps_size_and_time_is_seen(tmp_path, index, how):
    path = tmp_path / "folder/a.txt"
    before = path.stat()
    if how == "replaced":
        (tmp_path / "new").write_text("A third text.")
        os.replace(tmp_path / "new", path)
    else:
        with open(path, "r+") as file:
            file.write("A third text.")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert sync(index, "folder").replaced == {"folder/a.txt": 1}


def test_a_file_that_may_have_changed_within_a_tick_is_read_again(tmp_path, index, opened):
    write(tmp_path, {"folder/a.txt": "Written just now."})
    assert sync(index, "folder").replaced == {"folder/a.txt": 1}
    opened.clear()
    assert not sync(index, "folder")
    assert opened == ["folder/a.txt"]


def test_a_stamp_is_settled_two_seconds_later():
    stamp = Stamp(1, 10 * 10**9, 12 * 10**9, 1, 1)
    assert not stamp.is_settled(13.9)
    assert stamp.is_settled(14.1)


@pytest.mark.parametrize(
    "change",
    [
        lambda index: index.replace([Passage("folder/a.txt#1", "Another.", metadata={"source": "folder/a.txt"})]),
        lambda index: index.delete(["folder/a.txt#1"]),
        lambda index: index.add([Passage("more", "Another.", metadata={"source": "folder/a.txt"})]),
    ],
)
def test_passages_that_were_changed_otherwise_are_mended(index, opened, change):
    before = content(index)
    change(index)
    assert content(index) != before
    assert sync(index, "folder")
    assert content(index) == before
    assert opened == ["folder/a.txt"]
    assert not sync(index, "folder")


def test_compaction_keeps_what_is_remembered(index, opened):
    index.compact()
    assert not sync(index, "folder")
    assert opened == []


@pytest.mark.parametrize("options", [{"chunk_chars": 12}, {"url_base": "https://x.org/"}, {"lang": "de"}])
def test_files_are_read_again_in_another_way(index, opened, options):
    sync(index, "folder", **options)
    assert len(opened) == 3


def test_another_column_of_text_is_seen(tmp_path, index):
    make(tmp_path, {"folder/c.csv": "id,text,more\n1,Blue star,Green\n2,Red light,Grey\n"})
    sync(index, "folder")
    assert sync(index, "folder", columns={"c.csv": {"text": "more"}}).replaced == {"folder/c.csv": 2}


def test_a_damaged_note_is_not_used(tmp_path, index, opened):
    note = tmp_path / "idx/files.json"
    note.write_text(note.read_text().replace("folder/a.txt", "folder/b.txt"))
    assert not sync(index, "folder")
    assert len(opened) == 3


def test_what_is_not_synced_to_the_disk_is_not_remembered(tmp_path, index, opened):
    quick = Index.open("idx", Letters(), durability="process")
    make(tmp_path, {"folder/a.txt": "A newer text."})
    sync(quick, "folder")
    opened.clear()
    assert not sync(quick, "folder")
    assert opened == ["folder/a.txt"]


def test_a_dry_run_remembers_nothing(tmp_path, index, opened):
    make(tmp_path, {"folder/a.txt": "A newer text."})
    for _ in range(2):
        assert sync(index, "folder", dry_run=True).replaced == {"folder/a.txt": 1}
    assert opened == ["folder/a.txt", "folder/a.txt"]


def test_files_with_bad_rows_and_rows_of_other_sources_are_always_read(tmp_path, index, opened):
    make(
        tmp_path, {"folder/c.csv": "id,text\n1,Blue star\n2\n", "folder/d.csv": "id,text,source\n1,One,folder/a.txt\n"}
    )
    for _ in range(2):
        opened.clear()
        sync(index, "folder")
    assert opened == ["folder/a.txt", "folder/c.csv", "folder/d.csv"]
    make(tmp_path, {"folder/d.csv": "id,text,source\n2,Two,folder/a.txt\n"})
    done = sync(index, "folder")
    assert (done.added, done.deleted) == ({"folder/a.txt": 1}, {"folder/a.txt": 1})


def test_an_unchanged_folder_that_is_gone_is_still_an_error(tmp_path, index):
    shutil.move(tmp_path / "folder", tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="does not exist, but idx has 5 passages from it"):
        sync(index, "folder")


@pytest.mark.parametrize("size", [1, 1 << 20], ids=["on the disk", "in memory"])
@pytest.mark.parametrize("change", ["grows", "is replaced", "goes"])
def test_nothing_is_taken_of_a_file_that_changes_while_it_is_read(tmp_path, index, monkeypatch, change, size, caplog):
    monkeypatch.setattr(whole, "IN_MEMORY", size)
    path = tmp_path / "folder/sub/b.md"
    make(tmp_path, {"folder/sub/b.md": "# One\n\nA newer text.\n\n# Two\n\nA newest text.\n", "folder/z.txt": "Last."})
    before = [one for one in content(index) if one[0] == "folder/sub/b.md"]
    chunks = FileReader._chunks

    def changing(self, blocks, name, *rest):
        for number, passage in enumerate(chunks(self, blocks, name, *rest)):
            yield passage
            if name.endswith("b.md") and number == 0:
                if change == "grows":
                    path.write_text(path.read_text() + "\n\nMore.")
                elif change == "goes":
                    path.unlink()
                else:
                    write(tmp_path, {"new": "# Three\n"})
                    os.replace(tmp_path / "new", path)

    monkeypatch.setattr(FileReader, "_chunks", changing)
    done = sync(index, "folder")
    assert (done.added, done.replaced, done.deleted) == ({"folder/z.txt": 1}, {}, {})
    assert [one for one in content(index) if one[0] == "folder/sub/b.md"] == before
    assert "b.md: changed while it was read, so nothing of it is taken" in caplog.text
    write(tmp_path, {"f/b.md": "# One\n\nA newer text.\n\n# Two\n\nA newest text.\n"})
    path = tmp_path / "f/b.md"
    with pytest.raises(BadInput, match=r"f/b\.md: changed while it was read"):
        list(read_sources(["f"], lang="en"))


def test_a_file_that_changes_between_the_look_ahead_and_its_reading(tmp_path, index, monkeypatch):
    read = FileReader.read

    def late(self, file, ready=None):
        if file.name == "folder/sub/b.md":
            assert self.ahead(file) is None  # the same: no other process reads it
            make(tmp_path, {file.name: "# One\n\nA second text.\n"})
        return read(self, file, ready)

    monkeypatch.setattr(FileReader, "read", late)
    assert str(sync(index, "folder")) == "0 added, 0 replaced, 1 deleted, 4 unchanged"
    monkeypatch.setattr(FileReader, "read", read)
    assert str(sync(index, "folder")) == "0 added, 0 replaced, 0 deleted, 4 unchanged"


def test_rows_of_one_source_are_told_by_number_and_sum(index, monkeypatch):
    held = index.store.view.held()
    assert {name: one.passages for name, one in held.items()} == {
        "folder/a.txt": 1,
        "folder/sub/b.md": 2,
        "folder/c.csv": 2,
    }
    assert len({one.digest for one in held.values()}) == 3
    index.replace([Passage("folder/a.txt#1", "Another.", metadata={"source": "folder/a.txt"})])
    index.delete(["folder/sub/b.md#1"])
    after = index.store.view.held()
    assert after["folder/c.csv"] == held["folder/c.csv"]
    assert after["folder/a.txt"].digest != held["folder/a.txt"].digest
    assert after["folder/sub/b.md"] == Held(1, after["folder/sub/b.md"].digest)
    monkeypatch.setattr(seals, "AT_ONCE", 2)
    assert index.store.view.held() == after
