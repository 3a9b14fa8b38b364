"""One contract for every kind of array folder: whole or not at all, and whatever changed since is noticed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from interlingua import checksums
from interlingua.array_folder import ArrayFolder, Layout
from interlingua.errors import BadInput, Damaged, InterlinguaError, NotFound

PLAIN = Layout("numbers", 3, "numbers")
SAME_SIZE = {"int8": "uint8", "int32": "float32", "float32": "int32", "int64": "uint64", "uint64": "int64"}


class Kind(NamedTuple):
    """How to `build` and `open` a folder of a kind."""

    layout: Layout
    build: Callable[[Path], Any]
    open: Callable[[Path], Any]


def write_numbers(path: Path, stop: Callable[[], object] = lambda: None) -> None:
    with ArrayFolder.write(path, PLAIN) as folder:
        for start in range(0, 12, 5):
            folder.add("some", np.arange(start, min(start + 5, 12), dtype=np.int32)[:, None])
            stop()
        folder.add("none", np.empty((0, 4), dtype=np.float32))
        (folder.path / "words.txt").write_text("ü\n", "utf-8")
        folder.facts |= {"name": "é\ud800", "rows": 12}


def read_numbers(path: Path) -> tuple[Any, Any, dict[str, Any]]:
    with ArrayFolder.open(path, PLAIN) as folder:
        return folder.array("some", "int32", (None, 1)), folder.array("none", "float32", (0, 4)), folder.facts


def numbers(scratch: Path) -> Kind:
    return Kind(PLAIN, write_numbers, read_numbers)


def int8(scratch: Path) -> Kind:
    from interlingua.retrieval.dense.int8 import LAYOUT, Int8Matrix

    vectors = np.random.default_rng(1).normal(size=(40, 6)).astype(np.float32)
    return Kind(LAYOUT, lambda path: Int8Matrix.build(vectors, path), Int8Matrix.load)


def tokens(scratch: Path) -> Kind:
    import torch

    from interlingua.models.encode import TokenVectors
    from interlingua.retrieval.late_interaction.token_store import LAYOUT, TokenStore

    chunks = [(["a", "é\u2028"], TokenVectors(torch.eye(3), [3, 0])), (["c"], TokenVectors(torch.ones(1, 3), [1]))]
    return Kind(LAYOUT, lambda path: TokenStore.build(chunks, dtype="int8", path=path), TokenStore.open)


def records(scratch: Path) -> Kind:
    from interlingua.data.records import Sentence
    from interlingua.data.store import RECORDS, RecordStore

    texts = [Sentence("a", "en"), Sentence("ü", "de"), Sentence("b", "en")]
    return Kind(RECORDS, lambda path: RecordStore.build(path, texts), RecordStore.open)


def triples(scratch: Path) -> Kind:
    from interlingua.data.datasets import TRIPLES, TripleStore

    (scratch / "queries.tsv").write_text("1\tq\n")
    (scratch / "passages.tsv").write_text("1\ta\n2\tb\n")
    (scratch / "triples.jsonl").write_text("[1, [1, 0.5], [2, 0.25]]\n")
    texts = {"queries": scratch / "queries.tsv", "passages": scratch / "passages.tsv"}
    return Kind(TRIPLES, lambda path: TripleStore.build(path, scratch / "triples.jsonl", **texts), TripleStore)


def keys(scratch: Path) -> Kind:
    from interlingua.data.records import Query
    from interlingua.data.store import KEYS, KeyedStore

    queries = [Query("2", "b"), Query("1", "a")]
    return Kind(KEYS, lambda path: KeyedStore.build(path, queries, Query, "here"), KeyedStore)


def bm25(scratch: Path) -> Kind:
    from interlingua.data.records import Passage
    from interlingua.retrieval.bm25.bm25 import BM25, LAYOUT

    passages = [Passage("1", "a b", lang="en"), Passage("ü", "b c c", lang="de")]
    return Kind(LAYOUT, BM25.build(passages, analyzer="whitespace").save, BM25.load)


KINDS: dict[str, Callable[[Path], Kind]] = {
    kind.__name__: kind for kind in (numbers, int8, tokens, records, triples, keys, bm25)
}


@pytest.fixture(scope="module", params=KINDS)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Kind, Path]:
    folder = tmp_path_factory.mktemp("built")
    kind, path = KINDS[request.param](folder), folder / "folder"
    kind.build(path)
    return kind, path


@pytest.fixture
def copy(built: tuple[Kind, Path], tmp_path: Path) -> tuple[Kind, Path]:
    kind, path = built
    shutil.copytree(path, tmp_path / "folder")
    return kind, tmp_path / "folder"


def test_what_was_written_is_whole_and_opens(copy: tuple[Kind, Path]) -> None:
    kind, path = copy
    kind.open(path)
    about = json.loads((path / kind.layout.file).read_text("utf-8"))
    assert (about["format"], about["version"]) == (kind.layout.name, kind.layout.version)
    described = {file.name for file in path.iterdir() if file.is_file()} - {kind.layout.file}
    assert set(about["files"]) == described
    for name, entry in about["files"].items():
        entry["later"] = "a key of a later version"
        if name.endswith(".npy"):
            array = np.load(path / name, mmap_mode="r" if 0 not in entry["shape"] else None)
            assert (array.dtype.name, list(array.shape)) == (entry["dtype"], entry["shape"])
    about.pop("xxh3")
    (path / kind.layout.file).write_text(json.dumps(checksums.signed(about)), "utf-8")
    kind.open(path)


def test_a_changed_bit_is_damage_once_and_for_all(copy: tuple[Kind, Path]) -> None:
    kind, path = copy
    for file in sorted(file for file in path.iterdir() if file.is_file() and file.stat().st_size):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        for _ in range(2):
            with pytest.raises(Damaged, match=rf"{path}: is damaged .*Build it again"):
                kind.open(path)
        file.write_bytes(whole)
        kind.open(path)
    with ArrayFolder.open(path, kind.layout) as folder:
        file = path / max(folder.sums)
    about, content = file.stat(), file.read_bytes()
    with open(file, "r+b") as stream:  # as a failing disk does, which changes no time
        stream.write(bytes([content[0] ^ 1]))
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    with pytest.raises(Damaged, match=rf"{file.name} does not hold what was written"):
        ArrayFolder.check(path, kind.layout)


def test_a_file_that_is_cut_or_missing_is_damage(copy: tuple[Kind, Path]) -> None:
    kind, path = copy
    for file in sorted(file for file in path.iterdir() if file.is_file() and file.name != kind.layout.file):
        whole = file.read_bytes()
        for content in (None, b"", whole[:-1], whole + b"x"):
            file.unlink()
            if content is not None:
                file.write_bytes(content)
            with pytest.raises(Damaged, match=rf"{path}: is damaged .*{file.name}.*Build it again") as error:
                kind.open(path)
            assert "\n" not in str(error.value)
            file.write_bytes(whole)


def test_an_array_of_another_dtype_or_shape_is_damage(
    copy: tuple[Kind, Path], without_checksums: Callable[[Path], Path]
) -> None:
    kind, path = copy
    text = (without_checksums(path) / kind.layout.file).read_text("utf-8")
    for file in path.glob("*.npy"):
        whole, array = file.read_bytes(), np.load(file)
        np.save(file, array.view(SAME_SIZE[array.dtype.name]))
        with pytest.raises(Damaged, match=rf"{path}: is damaged .*{file.name} is .*Build it again"):
            kind.open(path)
        file.write_bytes(whole)
        for key, value in (("dtype", "float64"), ("shape", [*array.shape, 1]), ("shape", None), ("bytes", None)):
            about = json.loads(text)
            about["files"][file.name][key] = value
            (path / kind.layout.file).write_text(json.dumps(about), "utf-8")
            with pytest.raises(Damaged, match=rf"{path}: is damaged"):
                kind.open(path)
        (path / kind.layout.file).write_text(text, "utf-8")
    kind.open(path)


def test_another_format_is_refused(copy: tuple[Kind, Path]) -> None:
    kind, path = copy
    file = path / kind.layout.file
    about, known = json.loads(file.read_text("utf-8")), f"{kind.layout.name} {kind.layout.version}"
    for change, named in (({"version": 99}, rf"{kind.layout.name} 99"), ({"format": "x"}, r"x \d+")):
        file.write_text(json.dumps(about | change), "utf-8")
        with pytest.raises(Damaged, match=rf"{path}: has format {named}, {known} is known\. Build it again"):
            kind.open(path)
    for text, named in (('{"format": 1}', "1"), ('{"version": 2}', "2"), ("{}", "none"), ("[]", "none")):
        file.write_text(text, "utf-8")
        with pytest.raises(Damaged, match=rf"{path}: has format {named}, {known} is known"):
            kind.open(path)
    for text in ("", "{", "3", json.dumps({**about, "files": {}}), json.dumps({**about, "facts": 3})):
        file.write_text(text, "utf-8")
        with pytest.raises(Damaged, match=rf"{path}: is damaged"):
            kind.open(path)


def test_a_foreign_folder_is_not_found_and_never_replaced(built: tuple[Kind, Path], tmp_path: Path) -> None:
    kind, _ = built
    with pytest.raises(NotFound, match=f"{tmp_path}/nowhere: no such"):
        kind.open(tmp_path / "nowhere")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(NotFound, match=rf"{tmp_path}/mine: holds no .*no {kind.layout.file}"):
        kind.open(tmp_path / "mine")
    with pytest.raises(BadInput, match=f"{tmp_path}/mine: exists and is not an earlier save"):
        kind.build(tmp_path / "mine")
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["letter.txt"]


KILL = """
import os, sys
import test_array_folder as tests
from interlingua import checksums
from interlingua.array_folder import ArrayWriter
ArrayWriter.described = lambda writer: os._exit(9)
scratch = tests.Path(sys.argv[2])
tests.KINDS[sys.argv[1]](scratch).build(scratch / "folder")
"""


@pytest.mark.slow
def test_a_writer_that_was_killed_leaves_nothing_half(built: tuple[Kind, Path], tmp_path: Path, request: Any) -> None:
    kind, _ = built
    name = next(name for name in KINDS if name in request.node.callspec.id.split("-"))
    done = subprocess.run(
        [sys.executable, "-c", KILL, name, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 9, done.stderr
    [left] = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert left.startswith(".folder.")
    assert left.endswith(".part")
    with pytest.raises(NotFound):
        kind.open(tmp_path / "folder")
    kind.build(tmp_path / "folder")
    kind.open(tmp_path / "folder")


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    write_numbers(tmp_path / "a")
    some, none, facts = read_numbers(tmp_path / "a")
    assert some[:, 0].tolist() == list(range(12))
    assert isinstance(some.base, np.memmap)
    assert not some.flags.writeable
    assert none.shape == (0, 4)
    assert facts == {"name": "é\ud800", "rows": 12}
    with ArrayFolder.open(tmp_path / "a", PLAIN) as folder:
        assert not isinstance(folder.array("some", "int32", mapped=False).base, np.memmap)


def test_what_does_not_fit_together_is_damage(tmp_path: Path) -> None:
    write_numbers(tmp_path / "a")
    mistyped = r"a: is damaged \(some\.npy is int32 \[12, 1\].* float32 \['any', 1\] was"
    with pytest.raises(Damaged, match=mistyped), ArrayFolder.open(tmp_path / "a", PLAIN) as folder:
        folder.array("some", "float32", (None, 1))
    missing = r"a: is damaged \(no 'columns'\)"
    with pytest.raises(Damaged, match=missing), ArrayFolder.open(tmp_path / "a", PLAIN) as folder:
        folder.facts["columns"]
    with pytest.raises(BadInput, match="as the owner says"), ArrayFolder.open(tmp_path / "a", PLAIN):
        raise BadInput("as the owner says")


@pytest.mark.parametrize("kind", InterlinguaError.__subclasses__())
def test_an_error_of_the_tree_keeps_its_class(tmp_path: Path, kind: type[InterlinguaError]) -> None:
    write_numbers(tmp_path / "numbers")
    with pytest.raises(kind, match="another writer") as found, ArrayFolder.open(tmp_path / "numbers", PLAIN):
        raise kind("another writer is at work")
    assert type(found.value) is kind


def test_a_failed_write_leaves_the_older_folder(tmp_path: Path) -> None:
    def fail() -> None:
        raise KeyboardInterrupt

    write_numbers(tmp_path / "a")
    with pytest.raises(KeyboardInterrupt):
        write_numbers(tmp_path / "a", fail)
    assert len(read_numbers(tmp_path / "a")[0]) == 12
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_rows_are_written_as_they_come_and_can_be_read_meanwhile(tmp_path: Path) -> None:
    with ArrayFolder.write(tmp_path / "a", PLAIN) as folder:
        folder.add("some", np.arange(3, dtype=np.int32))
        assert folder.added("some").tolist() == [0, 1, 2]
        assert (folder.path / "some.npy").stat().st_size == 128 + 12
        folder.add("some", np.arange(10**6, dtype=np.int32))
        assert len(folder.added("some")) == 10**6 + 3
        with pytest.raises(BadInput, match="array some: rows of int64 "):
            folder.add("some", np.arange(3))
        with pytest.raises(BadInput, match=r"rows of int32 \[2\]"):
            folder.add("some", np.zeros((1, 2), dtype=np.int32))
    with ArrayFolder.open(tmp_path / "a", PLAIN) as folder:
        assert folder.array("some", "int32", (10**6 + 3,))[[0, 2, 3, -1]].tolist() == [0, 2, 0, 10**6 - 1]
