from __future__ import annotations

import gzip

import numpy as np
import pytest

from interlingua.alignment import mining as corpus_side
from interlingua.alignment.mining import CorpusSide, mine_sentences
from interlingua.errors import InterlinguaError


@pytest.mark.parametrize(
    ("name", "content", "ids"),
    [
        ("plain.txt", "the cat\n\na dog\nthe cat \n \n", ["1", "3"]),
        ("bucc.fr", "fr-1\tthe cat\nfr-2\t\nfr-3\ta dog\nfr-4\tthe cat\nfr-5\t \n", ["fr-1", "fr-3"]),
        (
            "rows.jsonl",
            '{"text": "the cat"}\n\n{"text": "a dog", "id": "d"}\n{"text": "the cat"}\n{"text": ""}\n',
            ["1", "d"],
        ),
    ],
)
def test_three_formats_give_distinct_sentences_and_counts(tmp_path, name, content, ids):
    (tmp_path / name).write_text(content, encoding="utf-8")
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content.encode()))
    for path in (tmp_path / name, tmp_path / f"{name}.gz"):
        side = CorpusSide.read(path)
        assert (side.texts, side.ids, side.repeated) == (["the cat", "a dog"], ids, [True, False])
        assert side.said() == f"{path}: 5 lines, 2 distinct sentences, 1 came again, 2 blank"


def test_documents_in_several_languages_are_read_one_language_at_a_time(tmp_path):
    path = tmp_path / "docs.jsonl"
    path.write_text(
        '{"lang": "fi", "sentences": ["kissa", "koira"]}\n{"lang": "eng", "sentences": ["a cat"]}\n'
        '{"lang": "fi", "sentences": ["kissa"], "id": "d"}\n',
        encoding="utf-8",
    )
    finnish = CorpusSide.read(path, "fi")
    assert (finnish.texts, finnish.ids, finnish.repeated) == (["kissa", "koira"], ["1.1", "1.2"], [True, False])
    assert CorpusSide.read(path, "en").texts == ["a cat"]
    assert len(CorpusSide.read(path).texts) == 3
    with pytest.raises(InterlinguaError, match="holds no sentence"):
        CorpusSide.read(path, "sw")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"lang": "fi", "sentences": "kissa"}\n', "must be a list of texts"),
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("one\n" * 30 + "two\tcells\n", "line 31: a tab"),
        ("a cat\tun chat\n", "line 1: the id holds a space"),
        ("1\tone\n2\ttwo\n1\tthree\n", "line 3: the id '1' comes twice"),
        ('{"text": "a"}\n{"txt": "b"}\n', "line 2: no 'text'"),
        ('{"text": "a"}\nb\n', "line 2: not JSON"),
        ("a\tb\tc\n", "line 1: a tab"),
    ],
)
def test_files_that_are_not_sentences(tmp_path, content, message):
    (tmp_path / "x").write_text(content, encoding="utf-8")
    with pytest.raises(InterlinguaError, match=message):
        CorpusSide.read(tmp_path / "x")


def letters(texts):
    """How often each of four letters comes: a sentence of others is a zero vector."""
    return np.array([[text.count(letter) for letter in "abcd"] for text in texts], dtype=np.float32)


@pytest.mark.parametrize("half", [False, True])
def test_vectors_are_streamed_to_disk_and_zero_ones_left_out_and_counted(tmp_path, monkeypatch, half):
    monkeypatch.setattr(corpus_side, "WINDOW", 2)
    side = CorpusSide.of(zip("12345", ["ab", "xyz", "cc", "ab", "bbd"], strict=True), "side")
    asked = []
    vectors = side.encode(
        lambda texts, **options: asked.append((list(texts), options)) or letters(texts),
        tmp_path / "v.npy",
        lang="fi",
        half=half,
    )
    assert [len(texts) for texts, _ in asked] == [2, 2]
    assert all(options == {"lang": "fi"} for _, options in asked)
    assert isinstance(vectors, np.memmap)
    assert vectors.dtype == (np.float16 if half else np.float32)
    assert vectors.tolist() == [[1, 1, 0, 0], [0, 0, 2, 0], [0, 2, 0, 1]]
    assert (side.texts, side.ids, side.repeated) == (["ab", "cc", "bbd"], ["1", "3", "5"], [True, False, False])
    assert side.said() == "side: 5 lines, 3 distinct sentences, 1 came again, 1 with a zero vector"


def test_an_encoder_is_not_told_a_language_that_was_not_given(tmp_path):
    side = CorpusSide.of([("1", "ab")], "side")
    assert side.encode(lambda texts: letters(texts), tmp_path / "v.npy").shape == (1, 4)


def test_a_side_of_which_nothing_is_known(tmp_path):
    with pytest.raises(InterlinguaError, match="side: the encoder knows no token"):
        CorpusSide.of([("1", "xyz")], "side").encode(letters, tmp_path / "v.npy")


def test_sentences_are_mined_through_files_that_are_gone_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    x = CorpusSide.of(enumerate(["abc", "aab", "ccd", "abc"]), "x")
    y = CorpusSide.of(enumerate(["dcc", "xyz", "baa"]), "y")
    found = mine_sentences(x, y, letters, k=1, half=True)
    assert {(x.texts[i], y.texts[j]) for i, j, _ in found} == {("aab", "baa"), ("ccd", "dcc")}
    assert not list(tmp_path.iterdir())
