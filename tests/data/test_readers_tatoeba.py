"""Tatoeba's two shapes: LASER's files by their published names, and the dump of sentences and links."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from interlingua.data.readers import read_parallel
from interlingua.data.readers.tatoeba import laser_sets, read_dump
from interlingua.errors import InterlinguaError

LANGS = {"deu": 1, "ell": 2, "eng": 3, "nob": 4, "rus": 5}


def write(folder: Path, shuffle: int = 0, pairs: int = 130) -> Path:
    """A dump in which sentence 10·i + l is sentence i in language l. German and Greek are linked for every i, German
    and Norwegian only through English, and Russian with German for twenty."""
    folder.mkdir(parents=True, exist_ok=True)
    sentences = [f"{10 * i + place}\t{lang}\t{lang} {i}" for i in range(pairs) for lang, place in LANGS.items()]
    sentences.append("9999\t\\N\tof no language")
    links = []
    for i in range(pairs):
        linked = [("deu", "ell"), ("ell", "deu"), ("deu", "eng"), ("eng", "deu"), ("eng", "nob"), ("nob", "eng")]
        linked += [("rus", "deu")] if i < 20 else []
        links += [f"{10 * i + LANGS[a]}\t{10 * i + LANGS[b]}" for a, b in linked]
    links += ["1\t12", "12\t1", "1\t77777777"]  # a second Greek sentence of the first German one; one that is gone
    order = random.Random(shuffle)
    for name, rows in (("sentences.csv", sentences), ("links.csv", links)):
        order.shuffle(rows)
        (folder / name).write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    return folder


def test_pairs_of_the_dump_are_direct_and_use_each_sentence_once(tmp_path: Path) -> None:
    found = read_dump(write(tmp_path / "dump"), ["de-el"])["de-el"]
    assert 129 <= len(found) <= 130
    assert {pair.source_lang for pair in found} == {"de"}
    assert {pair.target_lang for pair in found} == {"el"}
    assert all(pair.source.startswith("deu ") and pair.target.startswith("ell ") for pair in found)
    assert sum(pair.source.split()[1] != pair.target.split()[1] for pair in found) <= 1
    for side in ("source", "target"):
        assert len({getattr(pair, side) for pair in found}) == len(found)


def test_the_sample_depends_on_the_seed_and_not_on_the_order_of_the_files(tmp_path: Path) -> None:
    first, second = (read_dump(write(tmp_path / str(n), n), ["el-de"], limit=110)["el-de"] for n in (1, 2))
    assert first == second
    assert len(first) == 110
    assert first[0].source_lang == "el"
    assert read_dump(tmp_path / "1", ["el-de"], limit=110, seed=1)["el-de"] != first


def test_few_pairs_are_an_error_not_an_accuracy(tmp_path: Path) -> None:
    """German and Norwegian meet only through English, so the dump has no direct pair of them."""
    folder = write(tmp_path / "dump")
    with pytest.raises(InterlinguaError, match=r"linked for de-ru \(20\), de-no \(0\); 100 pairs at least"):
        read_dump(folder, ["de-el", "de-ru", "de-no"])
    assert len(read_dump(folder, ["de-ru"], least=20)["de-ru"]) == 20  # linked one way only, and that the other
    assert len(read_dump(folder, ["en-no"])["en-no"]) == 130  # Bokmål


def test_zipped_files_and_what_is_wrong_with_files(tmp_path: Path) -> None:
    folder = write(tmp_path / "dump")
    rows = (folder / "sentences.csv").read_bytes()
    (folder / "sentences.csv").unlink()
    with pytest.raises(InterlinguaError, match=r"sentences\.csv: no such file of the Tatoeba dump"):
        read_dump(folder, ["de-el"])
    (folder / "sentences.csv.gz").write_bytes(gzip.compress(rows + b"\n"))  # a blank line is no row
    assert len(read_dump(folder, ["de-el"])["de-el"]) >= 129
    with pytest.raises(InterlinguaError, match="'de-de' is not a pair of two languages"):
        read_dump(folder, ["de-de"])
    (folder / "links.csv").write_text("1\t2\n3\n", encoding="utf-8")
    with pytest.raises(InterlinguaError, match=r"links\.csv, line 2: id <tab> id is needed"):
        read_dump(folder, ["de-el"])


def test_lasers_files_are_read_by_their_names_and_found_in_their_folder(tmp_path: Path) -> None:
    for code, texts in (("fra", "Le lac.\nIl pleut.\n"), ("cmn", "湖。\n下雨。\n"), ("max", "a\nb\n")):
        (tmp_path / f"tatoeba.{code}-eng.{code}").write_text(texts, encoding="utf-8")
        (tmp_path / f"tatoeba.{code}-eng.eng").write_text("The lake.\nIt rains.\n", encoding="utf-8")
    french = list(read_parallel(tmp_path / "tatoeba.fra-eng"))
    assert [(pair.source, pair.target, pair.source_lang, pair.target_lang) for pair in french] == [
        ("Le lac.", "The lake.", "fr", "en"),
        ("Il pleut.", "It rains.", "fr", "en"),
    ]
    sets = laser_sets(tmp_path)
    assert sorted(sets) == ["cmn", "fra", "max"]
    assert [pair.source for pair in read_parallel(sets["cmn"])] == ["湖。", "下雨。"]
    (tmp_path / "fra-eng.tsv").write_text("a\tb\n", encoding="utf-8")
    with pytest.raises(InterlinguaError, match="several sets of files of fra and English"):
        laser_sets(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "notes.txt").write_text("no test set")
    with pytest.raises(InterlinguaError, match="no file of Tatoeba"):
        laser_sets(empty)
