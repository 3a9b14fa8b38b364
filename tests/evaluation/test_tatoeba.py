from __future__ import annotations

import numpy as np
import pytest

from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError
from interlingua.evaluation import TatoebaResult, tatoeba_accuracy, tatoeba_file, tatoeba_pairs
from interlingua.evaluation.tatoeba import read_sets, tatoeba_table


def test_both_directions_by_brute_force():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 6))
    y = x + rng.normal(size=(60, 6))
    unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (x, y)]
    cosines = unit[0] @ unit[1].T
    forward, backward = ((cosines.argmax(axis=axis) == np.arange(60)).mean() for axis in (1, 0))
    found = tatoeba_accuracy(x * rng.uniform(0.1, 9, (60, 1)), y)
    assert found == pytest.approx({"forward": forward, "backward": backward, "mean": (forward + backward) / 2})
    assert 0 < forward < 1
    assert forward != backward
    # XTREME: English (y) asks and x is searched
    assert tatoeba_accuracy(x, y, protocol="xtreme") == pytest.approx({"xtreme": backward})


def test_textual_forgives_a_sentence_that_occurs_twice():
    x = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0]])
    assert tatoeba_accuracy(x, x) == {"forward": 2 / 3, "backward": 2 / 3, "mean": 2 / 3}
    texts = (["ja", "ja", "nein"], ["yes", "yeah", "no"])
    assert tatoeba_accuracy(x, x, textual=texts) == pytest.approx({"forward": 2 / 3, "backward": 1, "mean": 5 / 6})


class PassagesOnly:
    """Vectors by text; nothing is asked in the role of questions. Remembers which language it was told."""

    similarity = "cosine"

    def __init__(self):
        self.told = {}

    def encode_document(self, texts, *, lang, **options):
        self.told |= dict.fromkeys(texts, lang)
        vectors = {"talo": [1, 0], "kissa": [0.9, 0.1], "house": [1, 0], "cat": [0.7, 0.7]}
        return np.array([vectors[text] for text in texts])


@pytest.mark.parametrize(
    ("name", "rows"), [("fin-eng.tsv", "talo\thouse\nkissa\tcat\n"), ("eng-fin.tsv", "house\ttalo\ncat\tkissa\n")]
)
def test_a_file_is_read_by_the_passage_encoder_and_forward_asks_with_the_foreign_side(tmp_path, name, rows):
    (tmp_path / name).write_text(rows, encoding="utf-8")
    # kissa is nearer to house than to cat, but no other word is nearer to cat
    encoder = PassagesOnly()
    assert tatoeba_file(encoder, tmp_path / name) == TatoebaResult("fi", 2, 0.5, 1.0, 0.75)
    assert encoder.told == {"talo": "fi", "kissa": "fi", "house": "en", "cat": "en"}


def test_a_file_is_read_as_questions_where_asked_for(tmp_path):
    class QuestionsOnly(PassagesOnly):
        encode_query = PassagesOnly.encode_document
        encode_document = None

    (tmp_path / "fin-eng.tsv").write_text("talo\thouse\nkissa\tcat\n", encoding="utf-8")
    found = tatoeba_file(QuestionsOnly(), tmp_path / "fin-eng.tsv", "query")
    assert found == tatoeba_file(PassagesOnly(), tmp_path / "fin-eng.tsv")


def test_pairs_may_change_sides_and_need_no_english():
    pairs = [ParallelPair("talo", "house", "fi", "en"), ParallelPair("cat", "kissa", "en", "fi")]
    assert tatoeba_pairs(PassagesOnly(), pairs) == TatoebaResult("fi", 2, 0.5, 1.0, 0.75)
    foreign = [ParallelPair("talo", "house", "fi", "de"), ParallelPair("kissa", "cat", "fi", "de")]
    encoder = PassagesOnly()
    assert tatoeba_pairs(encoder, foreign) == TatoebaResult("fi-de", 2, 0.5, 1.0, 0.75)
    assert encoder.told["house"] == "de"


def test_the_two_protocols_have_tables_of_their_own():
    result = TatoebaResult("fi", 2, 0.5, 1.0, 0.75)
    both = tatoeba_table({"m": {"f": result}})
    assert both.split("\n")[0].split() == ["Tatoeba", "file", "language", "forward", "backward", "mean", "pairs"]
    xtreme = tatoeba_table({"m": {"f": result}}, protocol="xtreme")
    assert xtreme.split("\n")[0].split() == ["Tatoeba", "file", "language", "xtreme", "pairs"]
    assert [line.split()[-2] for line in xtreme.split("\n")[2:4]] == ["1.000", "1.000"]
    assert "one direction only" in xtreme
    with pytest.raises(InterlinguaError, match="neither side is"):
        tatoeba_table({"m": {"f": TatoebaResult("de-fr", 2, 0.5, 1.0, 0.75)}}, protocol="xtreme")
    with pytest.raises(InterlinguaError, match=r"'xtrem' is unknown\. Did you mean 'xtreme'"):
        tatoeba_accuracy(np.eye(2), np.eye(2), protocol="xtrem")


def test_a_folder_is_a_set_for_each_file(tmp_path):
    (tmp_path / "fin-eng.tsv").write_text("talo\thouse\n", encoding="utf-8")
    for side, text in (("swh", "paka"), ("eng", "cat")):  # two files, as LASER has them
        (tmp_path / f"tatoeba.swh-eng.{side}").write_text(f"{text}\n", encoding="utf-8")
    sets = read_sets([tmp_path])
    assert {name.rpartition("/")[2]: [(p.source, p.target, p.lang) for p in pairs] for name, pairs in sets.items()} == {
        "fin-eng.tsv": [("talo", "house", "fi")],
        "tatoeba.swh-eng.swh": [("paka", "cat", "sw")],
    }


def test_several_languages_in_one_place_are_refused(tmp_path):
    for name in ("fin-eng.tsv", "swh-eng.tsv"):
        (tmp_path / name).write_text("a\tb\n", encoding="utf-8")
    with pytest.raises(InterlinguaError, match=r"holds fi, sw\. Give one file for each"):
        tatoeba_file(PassagesOnly(), tmp_path)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InterlinguaError, match="both must be the same"):
        tatoeba_accuracy(np.ones((2, 3)), np.ones((3, 3)))
    with pytest.raises(InterlinguaError, match="zero"):
        tatoeba_accuracy(np.zeros((2, 3)), np.ones((2, 3)))
    with pytest.raises(InterlinguaError, match="numbers must agree"):
        tatoeba_accuracy(np.ones((2, 3)), np.ones((2, 3)), textual=(["a"], ["b"]))
