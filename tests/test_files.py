from __future__ import annotations

import bz2
import gzip
import lzma
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from interlingua import files
from interlingua.cli import main
from interlingua.data.readers import read_questions
from interlingua.data.readers.source import head
from interlingua.errors import InterlinguaError
from interlingua.files import (
    atomic_folder,
    atomic_write,
    existing,
    read_lines,
    remove_folder,
    remove_leftovers,
    restore,
)


def save(path: Path, text: str, marker: str = "marker") -> None:
    with atomic_folder(path, marker) as folder:
        (folder / marker).write_text(text)
        (folder / "deep").mkdir()
        (folder / "deep" / "weights").write_text(text)


def failing(path: Path, error: type[BaseException]) -> None:
    with atomic_folder(path, "marker") as folder:
        (folder / "marker").write_text("two")
        raise error


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_appears_whole_and_replaces_the_older_one(tmp_path):
    path = tmp_path / "far" / "model"
    for text in ("one", "two"):
        with atomic_folder(path, "marker") as folder:
            (folder / "marker").write_text(text)
            (folder / text).touch(mode=0o600)
            assert folder.parent == path.parent
            assert not (path / text).exists()
        assert names(path) == ["marker", text]
        assert (path / "marker").read_text() == text
        assert path.stat().st_mode & 0o777 == 0o755
        assert (path / text).stat().st_mode & 0o777 == 0o644
    assert names(path.parent) == ["model"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_what_was_there(tmp_path, error):
    save(tmp_path / "model", "one")
    for name in ("model", "other"):
        with pytest.raises(error):
            failing(tmp_path / name, error)
    assert names(tmp_path) == ["model"]
    assert (tmp_path / "model" / "marker").read_text() == "one"


@pytest.fixture
def small_disk():
    """Files of 64 KiB at most: writing on is the error of a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_an_error_with_the_place(tmp_path, small_disk):
    def weights(path):
        with atomic_folder(path, "marker") as folder:
            save_file({"rows": np.zeros(1 << 16, np.float32)}, folder / "model.safetensors")

    def text(path):
        with atomic_write(path) as stream:
            stream.write("x" * (1 << 18))

    for write in (weights, text):
        with pytest.raises(OSError, match="File too large") as raised:
            write(tmp_path / "model")
        assert raised.value.filename == str(tmp_path / "model")
    assert names(tmp_path) == []


def test_a_full_disk_is_no_defect(tmp_path, small_disk, capsys):
    (tmp_path / "some.txt").write_text("\n\n".join(f"{'one two three ' * 10}{n}." for n in range(200)))
    assert main(["encode", "default", str(tmp_path / "some.txt"), "--out", str(tmp_path / "vectors.npy")]) == 2
    assert capsys.readouterr().err.endswith(
        "File too large. Make room (or raise the limit), and give the same command again.\n"
    )
    assert names(tmp_path) == ["some.txt"]


def test_a_rename_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    save(tmp_path / "model", "one")
    rename = os.rename

    def refusing(source, target):
        if str(source).endswith(".part") and not (tmp_path / "model").exists():
            raise PermissionError(13, "Permission denied")
        rename(source, target)

    monkeypatch.setattr(files.os, "rename", refusing)
    with pytest.raises(PermissionError):
        save(tmp_path / "model", "two")
    assert names(tmp_path) == ["model"]
    assert (tmp_path / "model" / "marker").read_text() == "one"


def test_a_link_goes_on_pointing_to_the_folder(tmp_path):
    save(tmp_path / "model", "one")
    (tmp_path / "link").symlink_to(tmp_path / "model")
    save(tmp_path / "link", "two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "model" / "marker").read_text() == "two"


def test_a_link_goes_on_pointing_to_the_file(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "a.tsv.gz").symlink_to(tmp_path / "disk/b")
    for text in ("one", "two"):
        with atomic_write(tmp_path / "a.tsv.gz") as stream:
            stream.write(text)
        assert gzip.decompress((tmp_path / "disk/b").read_bytes()).decode() == text
    assert (tmp_path / "a.tsv.gz").is_symlink()


def test_what_a_call_left_that_was_stopped_while_it_removed_the_older_folder_is_no_hindrance(tmp_path):
    for text in ("one", "two"):
        save(tmp_path / "model", text)
        for name in ("building.old", "0a1b2c3d.old"):
            (tmp_path / f".model.{name}/deep").mkdir(parents=True)
        (tmp_path / ".model.building.part").mkdir(exist_ok=True)  # a stopped build, which goes on with it
    save(tmp_path / "model", "three")
    assert names(tmp_path) == [".model.building.part", "model"]


def test_what_a_killed_save_left_is_removed_by_the_next(tmp_path):
    (tmp_path / ".model.0a1b2c3d.part/deep").mkdir(parents=True)
    save(tmp_path / "model", "one")
    assert names(tmp_path) == ["model"]


def test_only_an_older_save_or_an_empty_folder_is_replaced(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "holiday").touch()
    for name in ("file", "photos"):
        with pytest.raises(InterlinguaError, match=f"{name}: exists and is not an earlier save"):
            save(tmp_path / name, "one")
    with pytest.raises(InterlinguaError, match=r"no index\.json in it"):
        save(tmp_path / "photos", "one", "index.json")
    (tmp_path / "empty").mkdir()
    save(tmp_path / "empty", "one")
    assert names(tmp_path) == ["empty", "file", "photos"]


def test_a_folder_of_something_else_that_appears_meanwhile_is_kept(tmp_path):
    block = atomic_folder(tmp_path / "a", "marker")
    (block.__enter__() / "marker").touch()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "holiday").touch()
    with pytest.raises(InterlinguaError, match="not an earlier save"):
        block.__exit__(None, None, None)
    assert names(tmp_path) == ["a"]
    assert names(tmp_path / "a") == ["holiday"]


KILLED = """
import os, sys
from interlingua.files import atomic_folder
path, at = sys.argv[1], int(sys.argv[2])
count, rename = 0, os.rename
def dying(*arguments):
    global count
    count += 1
    if count > at:
        os._exit(9)
    rename(*arguments)
os.rename = dying
with atomic_folder(path, "marker") as folder:
    (folder / "marker").write_text("two")
"""


@pytest.fixture
def gap(tmp_path):
    """A writer was killed after it had renamed the older folder aside."""
    save(tmp_path / "model", "one")
    # the first rename is refused, since the older folder is there; the second moves it aside
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "model"), "2"], check=False).returncode == 9
    assert not (tmp_path / "model").exists()
    return tmp_path / "model"


def test_after_a_kill_between_the_renames_a_reader_finds_the_older_folder(gap, tmp_path):
    (tmp_path / "link").symlink_to(gap)
    assert (existing(tmp_path / "link") / "marker").read_text() == "one"
    assert names(gap) == ["deep", "marker"]
    assert restore(gap) == gap
    assert restore(tmp_path / "nothing") == tmp_path / "nothing"
    assert not (tmp_path / "nothing").exists()


def test_after_a_kill_between_the_renames_a_writer_fails_or_replaces(gap):
    with pytest.raises(ValueError):
        failing(gap, ValueError)
    assert (gap / "marker").read_text() == "one"
    save(gap, "three")
    assert (gap / "marker").read_text() == "three"
    assert not [name for name in names(gap.parent) if name.endswith(".old")]


def test_a_reader_that_restores_in_the_gap_does_not_stop_the_writer(tmp_path, monkeypatch):
    save(tmp_path / "model", "one")
    rename, readers = os.rename, []

    def reading(source, target):
        rename(source, target)
        if str(target).endswith(".old") and not readers:
            readers.append(existing(tmp_path / "model"))

    monkeypatch.setattr(files.os, "rename", reading)
    save(tmp_path / "model", "two")
    assert readers
    assert (tmp_path / "model" / "marker").read_text() == "two"
    assert names(tmp_path) == ["model"]


def test_names_that_only_look_alike_are_left_alone(tmp_path):
    (tmp_path / ".model.b.12345678.old").mkdir()
    (tmp_path / ".model.old").mkdir()
    (tmp_path / ".model.12345678.old").mkdir()
    assert not restore(tmp_path / "m*l").exists()
    save(tmp_path / "m*l", "one")
    assert len(names(tmp_path)) == 4


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads open files from /proc: run it on Linux")
def test_files_and_folders_reach_the_disk_before_they_take_the_name(tmp_path, monkeypatch):
    done: list[str] = []
    fsync, rename = os.fsync, os.rename

    def syncing(handle):
        done.append(Path(os.readlink(f"/proc/self/fd/{handle}")).name)
        fsync(handle)

    def renaming(source, target):
        rename(source, target)
        done.append("renamed")

    monkeypatch.setattr(files.os, "fsync", syncing)
    monkeypatch.setattr(files.os, "rename", renaming)
    save(tmp_path / "model", "one")
    before, after = done[: done.index("renamed")], done[done.index("renamed") + 1 :]
    assert {"marker", "weights", "deep"} < set(before)
    assert after == [tmp_path.name]


WRITER = """
import sys
from pathlib import Path
from interlingua.files import atomic_folder, atomic_write
path = Path(sys.argv[1])
with atomic_folder(path / "kept", "marker") as folder, atomic_write(path / "note.txt") as stream:
    (folder / "half").write_text("x")
    stream.write("half")
    print("ready", flush=True)
    sys.stdin.readline()
    (folder / "marker").touch()
"""


@pytest.mark.slow
def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path):
    def start():
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, tmp_path], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout.readline() == "ready\n"
        return process

    killed, living = start(), start()
    theirs = tmp_path / ".letter.txt"
    theirs.write_text("somebody's")
    assert len(list(tmp_path.glob(".*.part"))) == 4
    killed.kill()
    killed.wait()
    remove_leftovers(tmp_path)
    assert len(list(tmp_path.glob(".*.part"))) == 2
    living.communicate("\n")
    assert living.returncode == 0
    assert {path.name for path in tmp_path.iterdir()} == {"kept", "note.txt", theirs.name}


def test_what_is_removed_before_it_is_locked_is_made_again(tmp_path, monkeypatch):
    real, made = tempfile.mkdtemp, []

    def slow(**options):
        made.append(real(**options))
        if len(made) == 1:
            remove_leftovers(tmp_path)
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", slow)
    with atomic_folder(tmp_path / "kept", "marker") as folder:
        (folder / "marker").touch()
    assert len(made) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_device_or_a_pipe_is_written_to_and_never_replaced(tmp_path):
    before = os.stat("/dev/null").st_ino
    for mode, content in (("w", "a"), ("wb", b"a")):
        with atomic_write("/dev/null", mode) as stream:
            stream.write(content)
    assert os.stat("/dev/null").st_ino == before
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
    with atomic_write(pipe) as stream:
        stream.write("through\n")
    assert reader.communicate()[0] == "through\n"
    assert pipe.is_fifo()


def test_of_a_linked_folder_the_link_alone_is_removed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("stays")
    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "own").mkdir()
    for name in ("linked", "own", "missing"):
        remove_folder(tmp_path / name)
    assert names(tmp_path) == ["elsewhere"]
    assert (tmp_path / "elsewhere" / "file").read_text() == "stays"


PACKED = {"xz": lzma.compress, "bzip2": bz2.compress, "zstd": lambda text: b"\x28\xb5\x2f\xfd" + text}


@pytest.mark.parametrize("program", PACKED)
@pytest.mark.parametrize("read", [head, lambda path: list(read_lines(path))], ids=["head", "lines"])
def test_a_file_that_another_program_than_gzip_compressed_says_so(tmp_path, program, read):
    (tmp_path / "de-en.tsv").write_bytes(PACKED[program](b"Ein See\tA lake\n" * 9))
    with pytest.raises(InterlinguaError, match=rf"de-en\.tsv: is compressed with {program}\..*`{program} -d`.*gzip"):
        read(tmp_path / "de-en.tsv")


def test_a_text_that_begins_like_a_packed_file_is_read(tmp_path):
    (tmp_path / "a.txt").write_text("BZh9 is no magic word\n")
    assert list(read_lines(tmp_path / "a.txt")) == [(1, "BZh9 is no magic word")]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "latin-1"])
def test_the_way_to_utf8_is_said_for_the_encoding(tmp_path, encoding):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    text = '[{"question": "Wo läge er?", "positive_ctxs": [{"text": "Hier.", "title": ""}]}]\n'
    (tmp_path / "q.json").write_bytes((mark + text).encode(encoding))
    advice = "iconv -f ENCODING -t UTF-8" if encoding == "latin-1" else "iconv -f UTF-16 -t UTF-8"
    for read in (read_lines, read_questions):
        with pytest.raises(InterlinguaError, match=rf"q\.json.*: not UTF-8 .*`{advice}`"):
            list(read(tmp_path / "q.json"))
