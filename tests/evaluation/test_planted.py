from __future__ import annotations

import numpy as np
import pytest

from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError
from interlingua.evaluation.bitext import planted, planted_f1


def rows(count, lang="fi"):
    return [ParallelPair(f"{i} talo", f"{i} house", lang, "en") for i in range(count)]


def number(text):
    return int(text.split()[0])


def test_only_the_gold_pairs_have_their_translation_on_the_other_side():
    made = planted(rows(1000), share=0.1, seed=3)
    assert len(made.gold) == 52  # 1000 · 0.1 / 1.9
    assert len(made.x) == len(made.y) == 520
    x, y = ({key: number(text) for key, text in side} for side in (made.x, made.y))
    assert len(x) == len(y) == 520
    assert {(one, other) for one, i in x.items() for other, j in y.items() if i == j} == made.gold
    assert all(text.endswith("talo") for _, text in made.x)
    assert all(text.endswith("house") for _, text in made.y)
    # neither the order nor the ids give a pair away
    assert [key for key, _ in made.x] != sorted(key for key, _ in made.x)
    assert made.pair == "fi-en"


def test_seed_share_and_size():
    assert planted(rows(300), share=0.1) == planted(rows(300), share=0.1)
    assert planted(rows(300), share=0.1) != planted(rows(300), share=0.1, seed=1)
    small = planted(rows(1000), share=0.1, most=100)
    assert (len(small.x), len(small.gold)) == (100, 10)
    full = planted(rows(30), share=1.0)
    assert (len(full.x), len(full.gold)) == (30, 30)


def test_duplicates_and_untranslated_rows_are_left_out_and_counted(capsys):
    odd = [
        ParallelPair("1 TALO", "another", "fi", "en"),
        ParallelPair("sama", "Same", "fi", "en"),
        ParallelPair("other", "same ", "fi", "en"),
        ParallelPair("Nokia", "NOKIA", "fi", "en"),
        ParallelPair("5 house", "five", "fi", "en"),
    ]
    made = planted([*rows(400), *odd], share=0.5)
    assert "7 of 405 rows left out" in capsys.readouterr().err  # the five, and rows 1 and 5
    texts = {text for side in (made.x, made.y) for _, text in side}
    assert not texts & {"1 TALO", "1 talo", "1 house", "sama", "Same", "same ", "Nokia", "NOKIA", "5 house", "5 talo"}


def test_what_cannot_be_planted():
    with pytest.raises(InterlinguaError, match="this holds fi-en, sw-en"):
        planted([*rows(3), *rows(3, "sw")])
    with pytest.raises(InterlinguaError, match="10 rows without duplicates, of 10, are too few"):
        planted(rows(10))
    with pytest.raises(InterlinguaError, match="share 0"):
        planted(rows(10), share=0)
    with pytest.raises(InterlinguaError, match="this holds no pairs"):
        planted([])


class Numbers:
    """The vector of a text is that of the number it begins with, and a little of its own."""

    similarity = "cosine"

    def encode_document(self, sentences, **options):
        return np.array(
            [
                np.random.default_rng(number(text)).standard_normal(48)
                + 0.05 * np.random.default_rng(len(text)).standard_normal(48)
                for text in sentences
            ]
        )


def test_a_planted_bitext_is_mined_by_the_code_of_bucc(tmp_path):
    path = tmp_path / "fi-en.tsv"
    path.write_text("".join(f"{row.source}\t{row.target}\n" for row in rows(600)), encoding="utf-8")
    found = planted_f1(Numbers(), path, share=0.1, most=200, seed=1)
    assert (found.pair, found.protocol, found.x_sentences, found.y_sentences) == ("fi-en", "train_self", 200, 200)
    assert (found.score.f1, found.score.gold) == (100.0, 20)
