from __future__ import annotations

import json

import numpy as np
import pytest

from interlingua.data.readers.bitext import Comparable
from interlingua.errors import InterlinguaError
from interlingua.evaluation.bitext import BuccScore, bucc, bucc_f1, bucc_table, mined_pairs

GOLD = {("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")}


def pairs(*rows):
    return [(x, y, score) for x, y, score in rows]


def test_the_threshold_is_the_middle_between_the_best_cut_and_the_next_score():
    mined = pairs(("a", "1", 1.5), ("x", "9", 1.25), ("b", "2", 1.125), ("y", "8", 1.0), ("z", "7", 0.5))
    # after one: 2/5; after three: 4/7, the best; after five: 4/9
    assert bucc_f1(mined, GOLD) == BuccScore(pytest.approx(400 / 7), pytest.approx(200 / 3), 50.0, 1.0625, 3, 2, 4)
    assert bucc_f1(reversed(mined), GOLD).threshold == 1.0625


def test_by_brute_force():
    rng = np.random.default_rng(0)
    for _ in range(50):
        count = int(rng.integers(1, 12))
        scores = rng.integers(0, 6, count) / 4  # many ties
        mined = [(f"x{i}", f"y{i}", float(score)) for i, score in enumerate(scores)]
        gold = {(f"x{i}", f"y{i}") for i in rng.permutation(15)[:5]}
        values = {}
        for threshold in sorted({*scores.tolist()}):
            kept = [pair[:2] for pair in mined if pair[2] >= threshold]
            values[threshold] = 200 * len(gold & set(kept)) / (len(kept) + len(gold))
        found = bucc_f1(mined, gold)
        assert found.f1 == pytest.approx(max(values.values()))
        assert found.f1 == bucc_f1(mined, gold, found.threshold).f1


def test_the_last_pair_has_no_next_score():
    assert bucc_f1(pairs(("a", "1", 1.5), ("b", "2", 1.25)), GOLD).threshold == 1.25
    assert bucc_f1(pairs(("a", "1", 1.5)), GOLD) == BuccScore(40.0, 100.0, 25.0, 1.5, 1, 1, 4)
    assert bucc_f1([], GOLD) == BuccScore(0.0, 0.0, 0.0, float("inf"), 0, 0, 4)
    assert bucc_f1(pairs(("a", "2", 1.5)), GOLD).mined == 0
    with pytest.raises(InterlinguaError, match="no gold pairs"):
        bucc_f1([], set())


def test_no_threshold_parts_equal_scores():
    mined = pairs(("a", "1", 1.5), ("b", "2", 1.0), ("x", "9", 1.0), ("y", "8", 1.0), ("z", "7", 0.25))
    assert bucc_f1(mined, GOLD) == bucc_f1([mined[0], *mined[:0:-1]], GOLD)
    assert (bucc_f1(mined, GOLD).threshold, bucc_f1(mined, GOLD).mined) == (0.625, 4)  # 4/8; after the first, 2/5


def test_a_given_threshold_is_not_tuned():
    mined = pairs(("a", "1", 1.5), ("x", "9", 1.25), ("b", "2", 1.125))
    assert bucc_f1(mined, GOLD, 1.25) == BuccScore(pytest.approx(100 / 3), 50.0, 25.0, 1.25, 2, 1, 4)


class WordVectors:
    """A random vector for each text, but the same one, nearly, for texts that begin with the same number."""

    similarity = "cosine"

    def __init__(self):
        self.told = []

    def encode_document(self, sentences, **options):
        self.told.append((list(sentences), options))
        return np.array([self.vector(text) for text in sentences])

    encode_query = None  # nothing is asked in the role of questions

    def vector(self, text):
        number, _, word = text.partition(" ")
        near = np.random.default_rng(int(number)).standard_normal(24)
        return near + 0.05 * np.random.default_rng(sum(map(ord, word))).standard_normal(24)


def task(seed, gold=20, x=100, y=140):
    """`gold` pairs that begin with the same number, among others."""
    rng = np.random.default_rng(seed)
    base = 10_000 * seed
    left = [(f"fr-{i}", f"{base + i} oui") for i in rng.permutation(x)]
    right = [(f"en-{i}", f"{base + (i if i < gold else i + 1000)} yes") for i in rng.permutation(y)]
    return Comparable(left, right, frozenset((f"fr-{i}", f"en-{i}") for i in range(gold)), "fr", "en")


def write(folder, split, made):
    for end, rows in (("fr", made.x), ("en", made.y), ("gold", sorted(made.gold))):
        text = "".join(f"{one}\t{other}\n" for one, other in rows)
        (folder / f"fr-en.{split}.{end}").write_text(text, encoding="utf-8")


def test_a_planted_bitext_is_recovered_by_both_protocols(tmp_path):
    write(tmp_path, "training", task(1))
    write(tmp_path, "sample", task(2, gold=5, x=40, y=30))
    found = bucc(WordVectors(), tmp_path, "fr-en")
    assert (found.protocol, found.x_sentences, found.y_sentences) == ("train_self", 100, 140)
    assert (found.score.f1, found.score.correct, found.score.gold) == (100.0, 20, 20)
    # the threshold of the other protocol comes from the other split
    sample, *_ = mined_pairs(WordVectors(), task(2, gold=5, x=40, y=30))
    assert found.scores["xtreme"].threshold == bucc_f1(sample, task(2, gold=5).gold).threshold
    assert 80 < found.scores["xtreme"].f1 < 100
    assert found.scores["xtreme"].precision == 100.0
    assert bucc(WordVectors(), tmp_path, "fr-en", "xtreme").score == found.scores["xtreme"]


def test_without_a_sample_only_one_protocol_can_be_had(tmp_path):
    write(tmp_path, "training", task(1))
    assert list(bucc(WordVectors(), tmp_path, "fr-en").scores) == ["train_self"]
    with pytest.raises(InterlinguaError, match=r"no fr-en\.sample\.fr"):
        bucc(WordVectors(), tmp_path, "fr-en", "xtreme")
    with pytest.raises(InterlinguaError, match="protocol 'self' is unknown"):
        bucc(WordVectors(), tmp_path, "fr-en", "self")


def test_a_sentence_that_comes_twice_is_encoded_once_and_its_pairs_are_dropped(capsys):
    made = task(1)
    text = dict(made.x)["fr-3"]
    made = Comparable([*made.x, ("fr-999", text)], made.y, made.gold, "fr", "en")
    encoder = WordVectors()
    mined, x, y = mined_pairs(encoder, made)
    assert (x, y) == (100, 140)
    assert [len(texts) for texts, _ in encoder.told] == [100, 140]
    assert not {"fr-3", "fr-999"} & {pair[0] for pair in mined}
    assert bucc_f1(mined, made.gold).recall == 95.0  # that gold pair counts as missed
    assert "1 of them dropped because a sentence came more than once" in capsys.readouterr().err


def test_encoders_are_told_the_language_of_each_side():
    encoder = WordVectors()
    mined_pairs(encoder, task(1))
    assert [options for _, options in encoder.told] == [{"lang": "fr"}, {"lang": "en"}]


def test_sentences_are_read_as_questions_where_asked_for(tmp_path):
    class QuestionsOnly(WordVectors):
        encode_query = WordVectors.encode_document
        encode_document = None

    write(tmp_path, "training", task(1))
    assert bucc(QuestionsOnly(), tmp_path, "fr-en", role="query") == bucc(WordVectors(), tmp_path, "fr-en")


def test_tables(tmp_path):
    write(tmp_path, "training", task(1))
    found = {"model": {"fr-en": bucc(WordVectors(), tmp_path, "fr-en")}}
    text = bucc_table(found)
    assert text.splitlines()[2].split() == [
        "model",
        "fr-en",
        "100.0",
        "–",
        "100.0",
        "100.0",
        f"{found['model']['fr-en'].score.threshold:.4f}",
        "20",
    ]
    assert "not comparable" in text
    assert bucc_table(found, "markdown").startswith("| BUCC")
    (record,) = json.loads(bucc_table(found, "json"))
    assert (record["protocol"], record["f1"], record["correct"]) == ("train_self", 100.0, 20)
