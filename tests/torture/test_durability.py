"""No power cut takes what was acknowledged: each file is synced, and an index recovers from what a cut leaves."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.index import Index
from interlingua.index import store as index_store
from interlingua.index.index import open_index
from interlingua.index.local import build as index_build
from interlingua.index.local import store as local_store
from interlingua.index.local import table as passage_store
from interlingua.index.local.caches import FOLDER as CACHES
from interlingua.index.local.caches import complete_caches
from interlingua.index.local.table import PassageTable, synced_version

sys.path.append(str(Path(__file__).parent))
from length_encoder import HERE, Lengths, passages

About = tuple[int, int, int]
"""What tells a file, or the names in a folder, from what was there before: number, size, time of the last change."""
CHANGES: dict[str, Callable[[Index], object]] = {
    "add": lambda index: index.add(passages(100, 103)),
    "replace": lambda index: index.replace(passages(5, 8, "better")),
    "delete": lambda index: index.delete(["p001", "p002"]),
    "compact": lambda index: index.compact(),
    "index of vectors": lambda index: index.compact(approximate=True),
    "new cache": lambda index: index.add(passages(200, 260)),
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("built") / "idx"
    Index.build(Lengths(), passages(0, 100), path)
    return path


@pytest.fixture
def place(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of an index, which makes its cache again when 50 rows are new."""
    monkeypatch.setattr(local_store, "FEW", 50)
    monkeypatch.setattr(local_store, "STALE", 0.0)
    return Path(shutil.copytree(built, tmp_path / "idx"))


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[About]:
    """What each file and folder was like when it was synced. Names are not looked at: they may change."""
    found: list[About] = []
    fsync = os.fsync

    def syncing(handle: int) -> None:
        found.append(about(os.fstat(handle)))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", syncing)
    return found


def about(stat: os.stat_result) -> About:
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def files(place: Path) -> dict[Path, About]:
    """All files and folders of an index. A folder's time is that of its last new or lost name."""
    return {path: about(path.stat()) for path in [place, *place.rglob("*")] if path.name != "writer.lock"}


def content(index: Index) -> dict[str, str]:
    return {hit.passage.id: hit.passage.text for hit in index.search("a", 10_000)}


def texts(chosen: list[Passage]) -> dict[str, str]:
    return {passage.id: passage.text for passage in chosen}


@pytest.mark.parametrize("change", CHANGES)
def test_all_that_a_change_made_is_synced_as_it_is_in_the_end(place, synced, change):
    index = Index.open(place, Lengths())
    before = files(place)
    CHANGES[change](index)
    after = files(place)
    new = {path for path in after if before.get(path) != after[path]}
    assert any(path.suffix == ".manifest" for path in new) or change == "compact"
    for path in new:
        if path.is_file():
            assert after[path] in synced, path
        elif new_names := {child for child in after.keys() - before.keys() if child.parent == path}:
            assert any(after[path][0] == number for number, _, _ in synced), new_names  # other names may be lost later
    assert synced_version(place) == index.info().version


def test_a_build_is_synced_with_the_folders_above_it(tmp_path, synced):
    Index.build(Lengths(), passages(0, 30), tmp_path / "new/deep/idx")
    built = files(tmp_path / "new/deep/idx")
    assert {path for path in built if path.is_file() and built[path] not in synced} == set()
    assert {path.stat().st_ino for path in (tmp_path, tmp_path / "new")} <= {number for number, _, _ in synced}
    assert about((tmp_path / "new/deep").stat()) in synced


def test_writes_together_are_synced_once_when_the_block_ends(place, synced):
    index = Index.open(place, Lengths())
    before, folder = synced_version(place), (place / "passages.lance/_versions").stat().st_ino
    with index.together():
        for number in range(100, 105):
            index.add(passages(number, number + 1))
        with pytest.raises(InterlinguaError, match="has a passage 'p001' already"):
            index.add(passages(1, 2))
        index.delete(["p000"])
        assert not synced
        assert synced_version(place) == before
        assert len(index) == 104  # they are seen at once
    assert [number for number, _, _ in synced].count(folder) == 1
    assert synced_version(place) == PassageTable.open(place).version == before + 6
    assert content(Index.open(place, Lengths())) == texts(passages(1, 105))


def test_changes_before_one_that_failed_are_synced_too(place, synced):
    index = Index.open(place, Lengths())

    def change() -> None:
        with index.together():
            index.add(passages(100, 101))
            index.add(passages(0, 1))

    with pytest.raises(InterlinguaError, match="has a passage"):
        change()
    assert synced_version(place) == PassageTable.open(place).version
    assert len(index) == 101


def test_what_the_disk_did_not_take_is_not_noted_as_synced(place, monkeypatch):
    index, before, sync, failed = Index.open(place, Lengths()), synced_version(place), passage_store.sync, []

    def once(paths):
        if not failed:  # after a failed fsync the next one may succeed, and the content is lost all the same
            failed.append(True)
            raise OSError(5, "Input/output error")
        sync(paths)

    monkeypatch.setattr(passage_store, "sync", once)
    with pytest.raises(InterlinguaError):
        index.add(passages(100, 101))
    assert synced_version(place) == before


@pytest.mark.parametrize(
    "write",
    [
        lambda index: index.add(passages(110, 111)),
        lambda index: index.replace(passages(100, 103)),  # nothing is new, but it answers for what is there
    ],
    ids=["new", "nothing new"],
)
def test_process_waits_for_no_disk_and_the_next_full_write_brings_all_there(place, synced, write):
    before = files(place)
    quick = Index.open(place, Lengths(), durability="process")
    quick.add(passages(100, 103))
    quick.delete(["p000"])
    assert not synced
    assert content(Index.open(place, Lengths())) == texts(passages(1, 103))
    write(Index.open(place, Lengths()))
    after = files(place)
    assert {
        path for path in after if path.is_file() and before.get(path) != after[path] and after[path] not in synced
    } == set()


def unsynced(place: Path, change: Callable[[Index], object]) -> list[Path]:
    """The files of a change that was never acknowledged."""
    before = files(place)
    change(Index.open(place, Lengths(), durability="process"))
    return [path for path, now in files(place).items() if path.is_file() and before.get(path) != now]


def cut(path: Path, kept: float | None) -> None:
    whole = path.read_bytes()
    path.unlink()
    if kept is not None:
        path.write_bytes(whole[: int(len(whole) * kept)])


@pytest.mark.slow
@pytest.mark.parametrize("kept", [None, 0, 0.5], ids=["missing", "empty", "half"])
@pytest.mark.parametrize("lost", ["data", "_deletions", "_versions", ""], ids=lambda lost: lost or "all")
def test_after_a_power_cut_all_that_was_acknowledged_is_there(place, capsys, lost, kept):
    index = Index.open(place, Lengths())
    index.add(passages(100, 110))
    index.delete(["p000"])
    whole, version = content(index), PassageTable.open(place).version
    hit = [
        path
        for path in unsynced(place, lambda index: index.replace(passages(90, 120, "other")))
        if lost in str(path.relative_to(place))
    ]
    assert hit
    for path in hit:
        cut(path, kept)
    capsys.readouterr()
    again = Index.open(place, Lengths())
    assert content(again) == whole
    said = capsys.readouterr().err
    if not (lost in ("_versions", "") and kept is None):  # no trace of the version is left then
        assert said.count("as a power cut leaves them") == 1
        assert f"from version {version}," in said
        assert PassageTable.open(place).version > version  # no number of the version that was lost is given again
    assert Index.open(place, Lengths()).add(passages(300, 301)) == 1
    again.compact()
    assert content(Index.open(place, Lengths())) == whole | texts(passages(300, 301))
    assert "power cut" not in capsys.readouterr().err


def test_versions_that_are_whole_are_kept_back_to_the_one_that_was_synced(place):
    quick = Index.open(place, Lengths(), durability="process")
    quick.add(passages(100, 110))
    lost = unsynced(place, lambda index: [index.add([one]) for one in passages(110, 113)])
    newest = PassageTable.open(place).version
    for path in lost:
        if path.suffix in (".manifest", ".lance"):
            cut(path, 0)
    assert content(Index.open(place, Lengths())) == texts(passages(0, 110))
    assert PassageTable.open(place).version >= newest  # the numbers of those that were lost are not given again


@pytest.mark.parametrize("lost", ["auxiliary.idx", "index.idx"])
def test_an_index_of_vectors_that_was_lost_is_done_without(place, lost):
    PassageTable.open(place).index_vectors(True)
    for path in place.rglob(lost):
        cut(path, 0)
    index = Index.open(place, Lengths())
    assert not PassageTable.open(place).approximate
    assert content(index) == texts(passages(0, 100))


@pytest.mark.parametrize("kept", [None, 0], ids=["missing", "empty"])
@pytest.mark.parametrize("lost", ["*.manifest", "*.lance"])
def test_what_was_acknowledged_is_never_given_up_for_an_older_version(place, lost, kept):
    before = files(place)
    Index.open(place, Lengths()).add(passages(100, 110))
    for path in (place / "passages.lance").rglob(lost):
        if path not in before:
            cut(path, kept)
    with pytest.raises(InterlinguaError, match="table of passages cannot be read"):
        Index.open(place, Lengths())


def test_a_compaction_removes_nothing_that_the_disk_may_need(place, monkeypatch):
    index = Index.open(place, Lengths())
    index.add(passages(100, 110))
    before = files(place)

    def failing(files: object) -> None:
        raise OSError("the disk does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(passage_store, "sync", failing)
        with pytest.raises(InterlinguaError, match="the disk does not answer"):
            index.compact()
    assert before.keys() <= files(place).keys()
    for path in files(place):
        if path.is_file() and path not in before:
            cut(path, 0)
    assert content(Index.open(place, Lengths())) == texts(passages(0, 110))


@pytest.mark.parametrize("kept", [None, 0], ids=["missing", "empty"])
def test_a_build_that_a_power_cut_stopped_goes_on_with_what_is_whole(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(index_store, "CHUNK", 10)
    monkeypatch.setattr(index_build, "SYNC_SECONDS", float("inf"))

    def stopping() -> Iterator[Passage]:
        yield from passages(0, 30)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Index.build(Lengths(), stopping(), tmp_path / "idx")
    part = tmp_path / ".idx.building.part"
    assert synced_version(part) == 2  # with the first chunk; the other two were not yet due
    for file in sorted((part / "passages.lance/data").iterdir(), key=lambda path: path.stat().st_mtime_ns)[1:]:
        cut(file, kept)
    fresh: list[str] = []
    real = index_build.encode_passages
    monkeypatch.setattr(
        index_build,
        "encode_passages",
        lambda encoder, chunk, **options: (fresh.extend(one.id for one in chunk), real(encoder, chunk, **options))[1],
    )
    assert content(Index.build(Lengths(), passages(0, 40), tmp_path / "idx")) == texts(passages(0, 40))
    assert fresh == [one.id for one in passages(10, 40)]


def test_a_cache_is_of_a_version_that_the_disk_holds(place):
    """Else a power cut could leave the cache and take its version, and another version would get its number."""
    Index.open(place, Lengths(), durability="process").add(passages(100, 160))
    assert max(complete_caches(place / CACHES))[-1] == synced_version(place) == PassageTable.open(place).version


def test_durability_is_full_or_process(place):
    for call in (
        lambda: Index.open(place, durability="fast"),
        lambda: open_index(place, durability="fast"),
        lambda: Index.build(Lengths(), passages(0, 1), place.parent / "new", durability="fast"),
        lambda: open_index("milvus:file.db/docs", durability="fast"),
    ):
        with pytest.raises(InterlinguaError, match="durability 'fast'"):
            call()
    with pytest.raises(InterlinguaError, match="Milvus server decides by itself"):
        open_index("milvus:file.db/docs", durability="process")


TRACED = (
    HERE
    + """
import os
from pathlib import Path
from types import SimpleNamespace
import torch
from interlingua import Encoder
from interlingua.index import Index
from interlingua.index.local import store as local_store
from interlingua.training.checkpoint import save_checkpoint
from length_encoder import Lengths, passages

place, model = Path(sys.argv[1]), Encoder.load(sys.argv[2])
optimizer = SimpleNamespace(state=lambda: ({"moment": torch.zeros(2)}, {"steps": 1}))
layers = {"model": torch.nn.Linear(2, 2)}
local_store.FEW, local_store.STALE = 50, 0.0
index = Index.build(Lengths(), passages(0, 100), place / "new/idx")
for name, call in {
        "build": lambda: None,
        "add": lambda: index.add(passages(100, 103)),
        "replace": lambda: index.replace(passages(5, 8, "better")),
        "delete": lambda: index.delete(["p001", "p002"]),
        "cache": lambda: index.add(passages(200, 260)),
        "compact": lambda: index.compact(approximate=True),
        "build over it": lambda: Index.build(Lengths(), passages(0, 9), place / "new/idx", overwrite=True),
        "model": lambda: model.save(place / "models/model"),
        "model over it": lambda: model.save(place / "models/model"),
        "checkpoint": lambda: save_checkpoint(place / "run", 1, layers, optimizer, {}, {}, 1),
        "checkpoint after it": lambda: save_checkpoint(place / "run", 2, layers, optimizer, {}, {}, 1),
        "process": lambda: Index.open(place / "new/idx", Lengths(), durability="process").add(passages(300, 303)),
}.items():
    call()
    os.write(1, f"done {name}\\n".encode())
"""
)
CALLS = (
    "openat,creat,write,writev,pwrite64,pwritev,ftruncate,copy_file_range,sendfile,rename,renameat,renameat2,"
    "link,linkat,unlink,unlinkat,rmdir,mkdir,mkdirat,fsync,fdatasync,sync_file_range"
)


class Disk:
    """What a disk must hold, by the calls that a process made: for each file when it was last written and synced, for
    each folder when it last got a name and was synced."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self.changed: dict[str, int] = {}
        self.synced: dict[str, int] = {}

    def take(self, number: int, call: str, arguments: str) -> None:
        paths = [self._path(*found) for found in re.findall(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"([^"]*)"', arguments)]
        handle = re.match(r"\d+<([^>]*)>", arguments)
        if call in ("fsync", "fdatasync") and handle:
            self.synced[handle[1]] = number
        elif call in ("openat", "creat"):
            if ("O_CREAT" in arguments or call == "creat") and paths[0] not in self.changed:
                self._new(paths[0], number)
        elif call in ("mkdir", "mkdirat"):
            self._new(paths[0], number)
        elif call in ("unlink", "unlinkat", "rmdir"):
            self._forget(paths[0])
        elif call.startswith(("rename", "link")):
            self._forget(paths[1])
            for held in (self.changed, self.synced):
                for path in [path for path in held if f"{path}/".startswith(f"{paths[0]}/")]:
                    number_then = held[path] if call.startswith("link") else held.pop(path)
                    held[paths[1] + path.removeprefix(paths[0])] = number_then
            self.changed[str(Path(paths[1]).parent)] = number
        elif handle:
            self.changed[handle[1]] = number

    def lacks(self) -> set[str]:
        """What a power cut would take now, but for locks and for files without a name."""
        return {
            path
            for path, number in self.changed.items()
            if f"{path}/".startswith(f"{self.root}/")
            and self.synced.get(path, -1) < number
            and not re.search(r"\.lock$|/#\d+$", path)
        }

    def _path(self, folder: str, name: str) -> str:
        return os.path.join(folder, name)

    def _new(self, path: str, number: int) -> None:
        self.changed[path] = number
        if not path.endswith(".lock"):
            self.changed[str(Path(path).parent)] = number

    def _forget(self, path: str) -> None:
        for held in (self.changed, self.synced):
            for one in [one for one in held if f"{one}/".startswith(f"{path}/")]:
                del held[one]


def traced(log: Path) -> Iterator[tuple[str, str]]:
    """Name and arguments of each call that succeeded, in the order in which they ended. A sync counts from its start:
    what is written while it runs may be missing."""
    began: dict[str, str] = {}
    for line in log.read_text(errors="replace").splitlines():
        process, _, rest = line.partition(" ")
        rest = rest.strip()
        if rest.endswith("<unfinished ...>"):
            began[process] = rest.removesuffix("<unfinished ...>")
            if rest.startswith(("fsync", "fdatasync")):
                yield rest.partition("(")[0], rest.partition("(")[2]
            continue
        if rest.startswith("<... "):
            start = began.pop(process)
            if start.startswith(("fsync", "fdatasync")):
                continue
            rest = start + rest.partition("resumed>")[2]
        found = re.match(r"(\w+)\((.*)\)\s+= (-?\d+)", rest)
        if found and int(found[3]) >= 0:
            yield found[1], found[2]


@pytest.mark.slow
def test_the_system_is_told_to_sync_each_file_before_a_call_returns(tmp_path, tiny_encoder):
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed")
    command = [strace, "-f", "--seccomp-bpf"]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("strace may not trace here")
    tiny_encoder().save(tmp_path / "tiny")
    place = tmp_path / "place"
    place.mkdir()
    done = subprocess.run(
        [
            *command,
            "-y",
            "-s",
            "64",
            "-e",
            f"trace={CALLS}",
            "-o",
            str(tmp_path / "calls"),
            sys.executable,
            "-c",
            TRACED,
            str(place),
            str(tmp_path / "tiny"),
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    disk, lacking = Disk(place), {}
    for number, (call, arguments) in enumerate(traced(tmp_path / "calls")):
        said = re.match(r'1<[^>]*>, "done ([^"\\]*)\\n"', arguments)
        if call == "write" and said:
            lacking[said[1]] = disk.lacks()
        else:
            disk.take(number, call, arguments)
    assert len(lacking) == 12
    assert any(path.endswith(".manifest") for path in lacking.pop("process"))  # it was looked at
    assert lacking == {name: set() for name in lacking}


def test_the_vectors_of_a_whole_table_are_those_that_were_written(place):
    """A table that went back is searched as one that never was further."""
    for path in unsynced(place, lambda index: index.add(passages(100, 120))):
        if path.suffix == ".lance":
            cut(path, 0)
    index = Index.open(place, Lengths())
    index.add(passages(100, 110))
    fresh = Index.build(Lengths(), passages(0, 110), place.parent / "fresh")
    question = "a passage aaa 10"
    for mode in ("dense", "lexical", "hybrid"):
        ours, theirs = (one.search(question, 20, mode=mode, lang="en") for one in (index, fresh))
        assert [hit.passage.id for hit in ours] == [hit.passage.id for hit in theirs]
        assert np.allclose([hit.score for hit in ours], [hit.score for hit in theirs])
