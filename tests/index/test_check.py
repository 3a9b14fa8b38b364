"""Damage is found: by the check whatever was changed, by a search in each file that it reads."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from interlingua import checksums
from interlingua.data.files.walk import SourceNames
from interlingua.data.records import Passage
from interlingua.errors import BadInput, Damaged, NotFound
from interlingua.index import Index, check_index
from interlingua.index.local.check import check_folder
from interlingua.index.local.table import PassageTable
from interlingua.index.metadata import read_metadata, read_sources

QUESTIONS = ("stars of the southern sky", "бурю", "يكتب حارس")


@pytest.fixture(scope="module")
def encoder(tiny_static):
    return tiny_static()


@pytest.fixture(scope="module")
def built(encoder, sentences, tmp_path_factory):
    """An index with a write that its cache does not hold yet, and token vectors."""
    place = tmp_path_factory.mktemp("built") / "idx"
    given = [
        Passage(f"p{n}", text, title="T" * (n % 3), metadata={"source": "s.tsv"}) for n, text in enumerate(sentences)
    ]
    index = Index.build(encoder, given, place, names=SourceNames({"s.tsv": "/where/it/was/s.tsv"}))
    index.add([Passage("later", "A later passage about the sky.", lang="en")])
    return place


@pytest.fixture
def place(built, tmp_path, monkeypatch):
    """A copy, on a machine that has not seen it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(built, tmp_path / "idx")
    return tmp_path / "idx"


def answers(place, encoder):
    index = Index.open(place, encoder)
    return [
        [(hit.passage, hit.score) for hit in index.search(question, 20, mode=mode)]
        for question in QUESTIONS
        for mode in ("dense", "lexical", "hybrid")
    ]


def flip(file: Path, seed: int, whole: int = 1) -> None:
    """Change `whole` bytes of a file to others, its time and size as before."""
    about, content = file.stat(), bytearray(file.read_bytes())
    start = int(np.random.default_rng(seed).integers(max(1, len(content) - whole)))
    for place in range(start, min(start + whole, len(content))):
        content[place] ^= 0x10
    with open(file, "r+b") as stream:
        stream.write(content)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))


def files_of(place: Path) -> list[str]:
    known = [file.relative_to(place).as_posix() for file in sorted(place.rglob("*")) if file.is_file()]
    known = [name for name in known if not name.endswith("_hint.json")]
    return [name for name in known if name not in ("writer.lock", "synced.json", checksums.WrittenOnce.NAME)]


def texts(found):
    return [[passage for passage, _ in hits] for hits in found]


def wrong(place: Path) -> list[str]:
    return [finding.part for finding in check_folder(place) if finding.advice]


def test_a_whole_index_is_whole(place):
    found = check_index(place)
    assert not [finding for finding in found if finding.advice]
    said = "\n".join(f"{finding.part}: {finding.said}" for finding in found)
    assert "14 passages, each with its own number and name" in said
    assert "its 13 passages are those of the table" in said


@pytest.mark.slow
def test_a_search_on_another_machine_is_not_misled_by_a_damaged_cache(place, encoder, tmp_path, caplog):
    right = answers(place, encoder)
    names = [name for name in files_of(place) if name.startswith("caches/")]
    for seed, name in enumerate(names):
        shutil.copytree(place, other := tmp_path / f"{seed}")
        flip(other / name, seed)
        caplog.clear()
        with caplog.at_level(logging.INFO):
            found = answers(other, encoder)
        assert texts(found) == texts(right), name
        assert "is not used, since it is damaged" in caplog.text, name
        assert "its cache is made again from its passages" in caplog.text
        assert not wrong(other)


def test_what_this_machine_wrote_or_compared_is_not_read_again(built, encoder, sentences, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    read: list[Path] = []
    real = checksums.checksum
    monkeypatch.setattr(checksums, "checksum", lambda path, pace=None: (read.append(path), real(path, pace))[1])
    index = Index.build(encoder, [Passage("a", sentences[0])], tmp_path / "new")
    written = {path.name for path in read}
    assert {"vectors.npy", "passages.arrow"} <= written
    read.clear()
    for _ in range(2):
        Index.open(tmp_path / "new", encoder)
    assert not [path for path in read if "caches" in path.parts and ".part" not in str(path)] or len(read) <= len(
        written
    )
    read.clear()
    Index.open(tmp_path / "new", encoder)
    assert not read
    shutil.copytree(built, tmp_path / "idx")
    Index.open(tmp_path / "idx", encoder)
    assert {path.name for path in read} >= {"vectors.npy", "numbers.npy", "passages.arrow"}
    read.clear()
    Index.open(tmp_path / "idx", encoder)
    assert not read
    assert index


def test_a_check_reads_each_file_of_a_cache_once(place, monkeypatch):
    read: list[Path] = []
    real = checksums.checksum
    monkeypatch.setattr(checksums, "checksum", lambda path, pace=None: (read.append(path), real(path, pace))[1])
    check_index(place)
    caches = [path for path in read if "caches" in path.parts]
    assert len(caches) > 10
    assert len(caches) == len(set(caches))
    read.clear()
    check_index(place)
    assert [path for path in read if "caches" in path.parts] == caches  # whatever was compared before


def test_repair_makes_the_cache_again_and_only_that(place, encoder):
    cache = next((place / "caches").iterdir())
    flip(cache / "vectors.npy", 3)
    flip(next((place / "passages.lance/data").iterdir()), 4)
    found = {finding.part: finding for finding in check_index(place) if finding.advice}
    assert found.pop(f"caches/{cache.name}").derived
    assert found
    assert not any(finding.derived for finding in found.values())
    assert "restore a backup" in next(iter(found.values())).advice
    shutil.rmtree(place / "caches")
    assert [finding.said for finding in check_folder(place) if finding.derived] == ["there is none"]


def test_no_cache_is_made_again_of_a_damaged_table(place, encoder):
    right = answers(place, encoder)
    file = max((place / "passages.lance/data").iterdir(), key=lambda file: file.stat().st_size)
    content = file.read_bytes()
    file.write_bytes(content.replace(b"lighthouse keeper", b"lighthouse KEEPER"))
    assert file.read_bytes() != content
    for _ in range(2):
        found = [finding for finding in check_index(place, repair=True) if finding.advice]
        assert [finding.part for finding in found] == [f"passages.lance/data/{file.name}"]
        assert "restore a backup" in found[0].advice
        assert answers(place, encoder) == right  # from the cache, which is all that is left
    flip(next((place / "caches").iterdir()) / "vectors.npy", 3)
    found = check_index(place, repair=True)
    assert sum(bool(finding.advice) for finding in found) == 2
    with pytest.raises(Damaged, match=r"does not hold what was written: .*, so the cache is not made again"):
        Index.open(place, encoder).repair()


def test_a_repaired_cache_is_whole(place, encoder):
    right = answers(place, encoder)
    cache = next((place / "caches").iterdir())
    flip(cache / "vectors.npy", 3)
    assert wrong(place) == [f"caches/{cache.name}"]
    assert not [finding for finding in check_index(place, repair=True) if finding.advice]
    assert texts(answers(place, encoder)) == texts(right)


def test_any_byte_of_the_descriptions_that_is_another_is_noticed(place):
    for name, read in (("index.json", read_metadata), ("sources.json", read_sources)):
        whole = (place / name).read_bytes()
        for at in range(len(whole)):
            (place / name).write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            with pytest.raises((Damaged, BadInput), match=r"json: is damaged|has index format"):
                read(place)
        (place / name).write_bytes(whole)
    assert not wrong(place)


def test_names_of_sources_of_an_earlier_version_are_read(place):
    (place / "sources.json").write_text('{"a.tsv": "/there/a.tsv"}')
    assert read_sources(place) == {"a.tsv": "/there/a.tsv"}
    assert not wrong(place)


def test_rows_of_the_cache_must_be_those_of_the_table(place, encoder, monkeypatch):
    """A cache whose checksums fit and that was written from other rows."""
    from interlingua.index.local import caches

    real = caches.vectors_of
    monkeypatch.setattr(caches, "vectors_of", lambda batch, dim: real(batch, dim) + np.float32(1e-6))
    Index.open(place, encoder).compact()
    monkeypatch.undo()
    (found,) = [finding for finding in check_folder(place) if finding.advice]
    assert "is another one than in the table" in found.said
    assert found.derived


def test_a_cache_with_rows_of_a_table_that_was_emptied(place, encoder, sentences):
    Index.open(place, encoder).delete(["later", *(f"p{number}" for number in range(len(sentences)))])
    assert not wrong(place)


def test_a_changed_number_in_a_description_is_damage(place, encoder):
    cache = next((place / "caches").iterdir())
    for file, key, part in (
        (place / "index.json", '"k1": ', "index.json"),
        (cache / "cache.json", '"reach": ', cache.name),
    ):
        text = file.read_text("utf-8")
        file.write_text(text.replace(key, key + "1", 1), "utf-8")
        assert [found for found in wrong(place) if found.endswith(part)]
        file.write_text(text, "utf-8")
    assert not wrong(place)


def test_two_passages_of_one_name_are_told(place):
    table = PassageTable.open(place)
    rows = next(table.batches(tuple(table.schema.names), 1)).to_pylist()
    table.add([rows[0] | {"number": table.next_number()}])
    table.sync()
    assert any("two passages have one source and id" in finding.said for finding in check_folder(place))


def test_an_index_of_an_earlier_version_is_checked_by_what_it_has(place, encoder, without_checksums):
    (place / checksums.WrittenOnce.NAME).unlink()
    without_checksums(place / "caches")
    assert answers(place, encoder)
    found = check_index(place)
    assert not [finding for finding in found if finding.advice]
    assert any("have none, of an earlier version" in finding.said for finding in found)


@pytest.mark.slow
def test_the_verb_says_what_is_damaged_and_ends_with_2(place):
    command = [sys.executable, "-m", "interlingua", "check", str(place)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    flip(next((place / "caches").iterdir()) / "numbers.npy", 1)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "numbers.npy does not hold what was written" in done.stdout
    assert "1 of" in done.stderr
    assert "Traceback" not in done.stderr
    done = subprocess.run([*command, "--repair"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_server_looks_after_its_index(built, encoder, tmp_path, caplog, monkeypatch):
    """Damage that comes while it is served, with no file's time changed, is found and mended."""
    pytest.importorskip("fastapi", reason="needs the server: pip install 'interlingua[serve]'")
    from starlette.testclient import TestClient

    from interlingua.serving import watch
    from interlingua.serving.app import create_app
    from interlingua.serving.service import ServeSettings

    shutil.copytree(built, place := tmp_path / "idx")
    index = Index.open(place, encoder)
    before = index.search(QUESTIONS[0], 20, mode="dense")
    cache = next((place / "caches").iterdir())
    for name in ("vectors.npy", "int8/packed.npy"):
        flip(cache / name, 5, 64)
    looked = threading.Event()
    real = watch.Watch.look
    monkeypatch.setattr(watch.Watch, "look", lambda self: (real(self), looked.set()))
    with TestClient(create_app(index, ServeSettings(check_pace=1e12))) as client:
        assert looked.wait(60)
        assert client.get("/health").status_code == 200
    said = caplog.text
    assert f"caches/{cache.name} is damaged: " in said
    assert "It is made again from the passages." in said
    assert index.search(QUESTIONS[0], 20, mode="dense") == before
    assert not wrong(place)


def test_what_is_no_index_is_not_called_a_damaged_one(place, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "tea.md").write_text("Tea.")
    for name in ("folder", "tea.md"):
        with pytest.raises(NotFound, match=rf"{name}: is not an index"):
            check_index(tmp_path / name)
    assert (tmp_path / "tea.md").read_text() == "Tea."
    (place / "index.json").unlink()
    assert wrong(place) == ["index.json"]


def test_milvus_is_not_checked_here():
    with pytest.raises(BadInput, match="looked after by its own server"):
        check_index("milvus://somewhere:19530/handbook")


READER = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(message)s")
from interlingua.index import Index
index = Index.open(sys.argv[1])
print([hit.passage.id for hit in index.search("stars of the southern sky", 3, mode="lexical")])
"""


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["missing", "damaged"])
def test_a_reader_who_may_not_write_makes_the_cache_elsewhere(place, encoder, tmp_path, fault):
    command = [sys.executable, "-c", READER, str(place)]
    if os.geteuid() == 0:  # who may write everywhere
        command = ["setpriv", "--bounding-set=-dac_override", *command]
        if shutil.which("setpriv") is None:
            pytest.skip("the tests run as root, and setpriv is not there to give up what root may do")
    expected = [hit.passage.id for hit in Index.open(place, encoder).search(QUESTIONS[0], 3, mode="lexical")]
    cache = next((place / "caches").iterdir())
    if fault == "missing":
        shutil.rmtree(cache)
    else:
        (cache / "vectors.npy").write_bytes((cache / "vectors.npy").read_bytes()[:-1] + b"x")
    before = {file: file.stat().st_mtime_ns for file in place.rglob("*")}
    for folder in (place, *(file for file in place.rglob("*") if file.is_dir())):
        folder.chmod(0o555)
    said = []
    try:
        for _ in range(2):
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert done.stdout.strip() == str(expected)
            said.append(done.stderr)
    finally:
        for folder in (place, *(file for file in place.rglob("*") if file.is_dir())):
            folder.chmod(0o755)
    assert "is not ours to write. Its cache is made in" in said[0]
    assert "Its cache is made in" not in said[1]  # it is found again
    assert {file: file.stat().st_mtime_ns for file in place.rglob("*")} == before
    index = Index.open(place, encoder)
    assert [hit.passage.id for hit in index.search(QUESTIONS[0], 3, mode="lexical")] == expected
    index.compact()
    assert not list((tmp_path / "cache/interlingua/indexes").iterdir())
