"""Bytes that a failing disk changes, in any file: damage is found or does no harm; nothing ends in a traceback."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from interlingua.checksums import WrittenOnce
from interlingua.data.files.walk import SourceNames
from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.index import Index, check_index
from interlingua.models.encoder import Encoder

pytestmark = pytest.mark.slow
WITHOUT = {"writer.lock", "synced.json", "latest_version_hint.json", WrittenOnce.NAME}
"""Files of an index without a checksum: the lock, the version that was synced, hints, the notes."""


def damage(file: Path, drawn: random.Random) -> None:
    """Change a byte, or make up to 4 KB zeros, as a disk does: the time of the file stays."""
    about, content = file.stat(), bytearray(file.read_bytes())
    start, length = drawn.randrange(len(content)), drawn.choice((1, 4096))
    before = bytes(content)
    if length == 1:
        content[start] ^= 1 << drawn.randrange(8)
    else:
        content[start : start + length] = bytes(len(content[start : start + length]))
    if content == before:  # they were zeros
        content[start] ^= 1
    with open(file, "r+b") as stream:
        stream.write(content)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))


def files(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*")) if file.is_file() and file.stat().st_size]


@pytest.fixture(scope="module")
def built(tiny_static, sentences, tmp_path_factory):
    place = tmp_path_factory.mktemp("built") / "idx"
    names = SourceNames({"s.tsv": "/where/it/was/s.tsv"})
    index = Index.build(tiny_static(), [Passage(f"p{n}", text) for n, text in enumerate(sentences)], place, names=names)
    index.add([Passage("later", "A later passage about the sky.", lang="en")])
    return place


def test_damage_of_any_file_of_an_index_is_found(built, tmp_path, drawn, trials):
    names = [file.relative_to(built) for file in files(built) if file.name not in WITHOUT]
    for number in trials("damaged files of an index", 4):
        shutil.copytree(built, place := tmp_path / f"{number}")
        name = names[number % len(names)]
        damage(place / name, drawn)
        assert [finding for finding in check_index(place) if finding.advice], name
        shutil.rmtree(place)


def test_damage_of_a_cache_does_no_harm_on_another_machine(built, tiny_static, tmp_path, drawn, trials, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # a machine that has not seen it
    encoder = tiny_static()
    expected = [hit.passage for hit in Index.open(built, encoder).search("the southern sky", 20)]
    for number in trials("searches after damage"):
        shutil.copytree(built, place := tmp_path / f"{number}")
        damaged = drawn.choice([file for file in files(place) if "caches" in file.parts])
        damage(damaged, drawn)
        found = [hit.passage for hit in Index.open(place, encoder).search("the southern sky", 20)]
        assert found == expected, damaged.relative_to(place)


@pytest.mark.parametrize("kind", ["tiny_static", "tiny_encoder"])
def test_a_damaged_model_is_one_line_or_a_model(kind, request, tmp_path, drawn, trials):
    request.getfixturevalue(kind)().save(tmp_path / "whole")
    names = [file.relative_to(tmp_path / "whole") for file in files(tmp_path / "whole")]
    for number in trials("damaged files of a model"):
        shutil.copytree(tmp_path / "whole", place := tmp_path / f"{number}")
        damage(place / drawn.choice(names), drawn)
        with suppress(InterlinguaError):
            Encoder.load(place).encode_query(["a question"])
