from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from interlingua.data.readers.bitext import Comparable, bucc_pairs, read_bucc, read_gold
from interlingua.errors import InterlinguaError

FILES = {
    "fr-en.training.fr": "fr-000000001\tLe lac est profond.\nfr-000000002\tLe ciel.\nfr-000000003\tIl pleut.\n",
    "fr-en.training.en": "en-000000001\tIt rains.\nen-000000002\tThe lake is deep.\n",
    "fr-en.training.gold": "fr-000000001\ten-000000002\nfr-000000003\ten-000000001\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bucc2018/fr-en").mkdir(parents=True)
    for name, content in FILES.items():
        (tmp_path / "bucc2018/fr-en" / name).write_text(content, encoding="utf-8")
    return tmp_path


def test_the_published_files_are_read_wherever_they_lie_below_the_folder(folder: Path) -> None:
    expected = Comparable(
        [("fr-000000001", "Le lac est profond."), ("fr-000000002", "Le ciel."), ("fr-000000003", "Il pleut.")],
        [("en-000000001", "It rains."), ("en-000000002", "The lake is deep.")],
        frozenset({("fr-000000001", "en-000000002"), ("fr-000000003", "en-000000001")}),
        "fr",
        "en",
    )
    for path in (folder, folder / "bucc2018/fr-en", str(folder)):
        assert read_bucc(path, "fr-en") == expected
        assert bucc_pairs(path) == ["fr-en"]
        assert bucc_pairs(path, "sample") == []
    assert expected.pair == "fr-en"
    for name in FILES:
        file = folder / "bucc2018/fr-en" / name
        file.with_name(f"{name}.gz").write_bytes(gzip.compress(file.read_bytes() + b"\n \n"))  # no rows
        file.unlink()
    assert read_bucc(folder, "fr-en") == expected
    assert bucc_pairs(folder) == ["fr-en"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "fr-en.training.en",
            "en-000000001\tIt rains.\nThe lake is deep.\n",
            r"training\.en, line 2: id <tab> sentence",
        ),
        ("fr-en.training.en", "en-1\tIt rains.\nen-1\tDeep.\n", r"training\.en, line 2: the id 'en-1' comes twice"),
        ("fr-en.training.en", "It rains.\tIl pleut.\n", "line 1: the id holds a space: this looks like a table"),
        ("fr-en.training.gold", "fr-000000001\n", r"training\.gold, line 1: id <tab> id"),
        ("fr-en.training.gold", "", "holds no pair"),
        (
            "fr-en.training.gold",
            "fr-000000001\ten-000000009\n",
            r"gold: 1 ids are not in .*training\.en \(en-000000009",
        ),
    ],
)
def test_a_broken_file_is_named_with_its_line(folder: Path, name: str, content: str, message: str) -> None:
    (folder / "bucc2018/fr-en" / name).write_text(content, encoding="utf-8")
    with pytest.raises(InterlinguaError, match=message):
        read_bucc(folder, "fr-en")


def test_what_is_not_there_is_said(folder: Path) -> None:
    with pytest.raises(InterlinguaError, match=r"no de-en\.training\.de \(or \.gz\)"):
        read_bucc(folder, "de-en")
    with pytest.raises(InterlinguaError, match=r"no fr-en\.sample\.fr"):
        read_bucc(folder, "fr-en", "sample")
    with pytest.raises(InterlinguaError, match="'fren': two codes"):
        read_bucc(folder, "fren")
    with pytest.raises(InterlinguaError, match="no such folder"):
        read_bucc(folder / "elsewhere", "fr-en")
    (folder / "copy").mkdir()
    (folder / "copy/fr-en.training.fr").write_text("", encoding="utf-8")
    with pytest.raises(InterlinguaError, match=r"fr-en\.training\.fr 2 times"):
        read_bucc(folder, "fr-en")


def test_gold_pairs_are_a_set(tmp_path: Path) -> None:
    (tmp_path / "gold").write_text("1\t2\n1\t2\n3\t1\n")
    assert read_gold(tmp_path / "gold") == {("1", "2"), ("3", "1")}
