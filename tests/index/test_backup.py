"""A backup holds one version, whatever is written meanwhile, and comes back as it was or not at all."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from interlingua.data.records import Passage
from interlingua.errors import BadInput, Busy, Damaged
from interlingua.index import Index, check_index
from interlingua.index.local import backup as module
from interlingua.index.local.backup import backup, restore
from interlingua.index.local.table import lock

QUESTION = "stars of the southern sky"


@pytest.fixture(scope="module")
def encoder(tiny_static):
    return tiny_static()


@pytest.fixture
def place(encoder, sentences, tmp_path):
    index = Index.build(encoder, [Passage(f"p{n}", text) for n, text in enumerate(sentences)], tmp_path / "idx")
    index.add([Passage("later", "A later passage about the sky.")])
    index.delete(["p3"])
    return tmp_path / "idx"


def answers(place, encoder):
    index = Index.open(place, encoder)
    return [
        [(hit.passage, hit.score) for hit in index.search(QUESTION, 20, mode=mode)] for mode in ("dense", "lexical")
    ]


@pytest.mark.parametrize("name", ["idx.tar", "idx.tar.gz"])
def test_what_comes_back_is_what_was_there(place, encoder, tmp_path, name):
    before = answers(place, encoder)
    assert backup(place, tmp_path / name) == 13
    (tmp_path / name).rename(tmp_path / "moved")
    assert restore(tmp_path / "moved", tmp_path / "again") == 13
    assert answers(tmp_path / "again", encoder) == before
    assert not [finding for finding in check_index(tmp_path / "again") if finding.advice]
    again = Index.open(tmp_path / "again", encoder)
    again.add([Passage("new", "It is written as any other.")])
    assert len(again) == 14
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "idx", "moved"]  # nothing else is left


def test_writers_go_on_while_the_archive_is_written(place, encoder, tmp_path, monkeypatch):
    before = answers(place, encoder)
    index, real, written = Index.open(place, encoder), tarfile.TarFile.add, []

    def add(self, path, **options):
        if not written:
            index.replace([Passage("p0", "Another text.")])
            index.add([Passage("during", "It came while the archive was written.")])
            index.compact()  # which removes the files of the version that is backed up
            written.append(path)
        real(self, path, **options)

    monkeypatch.setattr(tarfile.TarFile, "add", add)
    assert backup(place, tmp_path / "idx.tar") == 13
    monkeypatch.undo()
    assert written
    restore(tmp_path / "idx.tar", tmp_path / "again")
    assert answers(tmp_path / "again", encoder) == before
    assert len(Index.open(place, encoder)) == 14


def test_what_a_killed_backup_left_is_removed_by_the_next_and_a_stopped_build_is_not(place, tmp_path):
    for name in (".idx.backup.a1b2c3d4.part", ".idx.building.part", ".other.backup.a1b2c3d4.part"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "half").touch()
    backup(place, tmp_path / "idx.tar")
    left = [".idx.building.part", ".other.backup.a1b2c3d4.part", "idx", "idx.tar"]
    assert sorted(path.name for path in tmp_path.iterdir()) == left


def test_a_file_system_without_hard_links(place, encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "link", lambda *paths: (_ for _ in ()).throw(OSError(1, "not permitted")))
    backup(place, tmp_path / "idx.tar")
    restore(tmp_path / "idx.tar", tmp_path / "again")
    assert answers(tmp_path / "again", encoder) == answers(place, encoder)


def test_not_while_another_process_writes(place, tmp_path):
    with lock(place), pytest.raises(Busy, match="being written by another process"):
        backup(place, tmp_path / "idx.tar")
    assert not (tmp_path / "idx.tar").exists()


def test_nothing_is_replaced_unasked(place, encoder, tmp_path):
    backup(place, tmp_path / "idx.tar")
    with pytest.raises(BadInput, match="already exists"):
        restore(tmp_path / "idx.tar", place)
    Index.open(place, encoder).delete(["p0"])
    assert restore(tmp_path / "idx.tar", place, overwrite=True) == 13
    assert len(Index.open(place, encoder)) == 13
    (tmp_path / "other").mkdir()
    (tmp_path / "other/letter.txt").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(BadInput, match=r"already exists|not an earlier save"):
            restore(tmp_path / "idx.tar", tmp_path / "other", overwrite=overwrite)
    assert (tmp_path / "other/letter.txt").read_text() == "mine"
    with pytest.raises(BadInput, match="lies within the index itself"):
        backup(place, place / "idx.tar")


def archive(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w") as made:
        for member in members:
            made.addfile(member, io.BytesIO(b"x" * member.size))
    return path


def member(name: str, **facts) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size = 1
    for key, value in facts.items():
        setattr(made, key, value)
    return made


@pytest.mark.parametrize(
    "made",
    [
        member("index/../../out"),
        member("/index/index.json"),
        member("elsewhere/index.json"),
        member("index/link", type=tarfile.SYMTYPE, linkname="/etc/passwd", size=0),
        member("index/hard", type=tarfile.LNKTYPE, linkname="index/index.json", size=0),
        member("index/device", type=tarfile.CHRTYPE, size=0),
        member("index/passages.lance/x"),
    ],
    ids=lambda made: made.name,
)
def test_an_archive_of_something_else_is_refused(tmp_path, made):
    before = sorted(tmp_path.parent.rglob("out"))
    with pytest.raises(BadInput, match="is no backup of an index"):
        restore(archive(tmp_path / "bad.tar", made), tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert sorted(tmp_path.parent.rglob("out")) == before
    assert [path.name for path in tmp_path.iterdir()] == ["bad.tar"]


def test_a_damaged_archive_changes_nothing(place, encoder, tmp_path):
    before = answers(place, encoder)
    backup(place, file := tmp_path / "idx.tar")
    whole = file.read_bytes()
    where = whole.index(b"LANC") - 40  # in a file of the table
    letter = whole.rindex(b"lighthouse keeper")  # of a passage in the table, which can be read as before
    for content in (
        b"",
        b"no archive",
        whole[: len(whole) // 2],
        whole[:where] + b"\0" * 30 + whole[where + 30 :],
        whole[:letter] + b"L" + whole[letter + 1 :],
    ):
        file.write_bytes(content)
        with pytest.raises((BadInput, Damaged)) as error:
            restore(file, place, overwrite=True)
        assert "\n" not in str(error.value)
        assert answers(place, encoder) == before


def test_a_damaged_packed_archive_is_called_so(place, tmp_path):
    backup(place, file := tmp_path / "idx.tar.gz")
    whole = file.read_bytes()
    for start in range(200, len(whole) - 200, max(1, len(whole) // 40)):
        file.write_bytes(whole[:start] + bytes(100) + whole[start + 100 :])
        with pytest.raises((BadInput, Damaged)):
            restore(file, tmp_path / "other")
        assert not (tmp_path / "other").exists()


def test_a_damaged_index_takes_no_good_backup_away(place, tmp_path):
    backup(place, file := tmp_path / "idx.tar")
    before = file.read_bytes()
    table = max((place / "passages.lance/data").iterdir(), key=lambda file: file.stat().st_size)
    table.write_bytes(table.read_bytes().replace(b"lighthouse", b"LIGHTHOUSE"))
    with pytest.raises(Damaged, match=f"{table.name} is damaged .*does not hold what was written.*restore a backup"):
        backup(place, file)
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["idx", "idx.tar"]


def test_a_damaged_cache_is_left_out_of_a_backup_and_of_what_is_restored(place, encoder, tmp_path, caplog):
    right = answers(place, encoder)
    backup(place, whole := tmp_path / "whole.tar")
    cache = next((place / "caches").glob("*/vectors.npy"))
    content = cache.read_bytes()
    changed = bytes([content[-1] ^ 1])
    cache.write_bytes(content[:-1] + changed)
    backup(place, left_out := tmp_path / "left-out.tar")
    assert f"{place}: caches/{cache.parent.name} is damaged, and left out" in caplog.text
    with tarfile.open(left_out) as tar:
        assert not [name for name in tar.getnames() if "caches" in name]
    caplog.clear()
    end = whole.read_bytes().index(content) + len(content)
    whole.write_bytes(whole.read_bytes()[: end - 1] + changed + whole.read_bytes()[end:])
    for number, file in enumerate((whole, left_out)):
        assert restore(file, again := tmp_path / f"again{number}") == 13
        assert answers(again, encoder) == right
        assert not [finding for finding in check_index(again) if finding.advice]
    assert caplog.text.count(f"in it caches/{cache.parent.name} is damaged, and left out") == 1


def test_a_file_that_is_no_backup_is_not_replaced_and_a_changed_one_is_called_so(place, tmp_path):
    (notes := tmp_path / "notes.txt").write_text("My notes.")
    with tarfile.open(other := tmp_path / "other.tar", "w") as tar:
        tar.add(notes)
    for file in (notes, other):
        before = file.read_bytes()
        with pytest.raises(BadInput, match="is there already, and is no backup of an index"):
            backup(place, file)
        assert file.read_bytes() == before
    (empty := tmp_path / "empty.tar").touch()
    for _ in range(2):
        backup(place, empty)
    content = bytearray(empty.read_bytes())
    with tarfile.open(empty) as tar:
        second = next(one for one in tar.getmembers() if one.isfile())
    content[second.offset + 150] ^= 1  # the checksum of a header: tarfile ends there
    empty.write_bytes(content)
    with pytest.raises(BadInput, match="is no backup of an index, or was cut or changed"):
        restore(empty, tmp_path / "again")


@pytest.mark.slow
def test_the_verbs(place, tmp_path):
    def run(*words, code=0):
        done = subprocess.run(
            [sys.executable, "-m", "interlingua", *words], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "idx.tar.gz: 13 passages of idx" in run("backup", "idx", "idx.tar.gz")
    assert "again: 13 passages of idx.tar.gz" in run("restore", "idx.tar.gz", "again")
    assert "--overwrite" in run("restore", "idx.tar.gz", "again", code=2)
    assert "no such index folder" in run("backup", "nothing", "x.tar", code=2)
    assert "milvus-backup" in run("backup", "milvus://host/name", "x.tar", code=2)
    assert module.TOP == "index"
