"""Words that say the same are found by their vectors, in spaced and unspaced scripts."""

from __future__ import annotations

import copy
from unicodedata import normalize

import pytest
import torch

from interlingua.data.records import Passage
from interlingua.index import highlights as highlights_module
from interlingua.index.highlights import NEAR_WORD as NEAR
from interlingua.index.highlights import Highlights, highlight_encoder, highlights
from interlingua.models.dual import DualEncoder
from interlingua.models.encoder import Encoder
from interlingua.models.layout import Parts
from interlingua.models.static.embedding import StaticEmbedding
from interlingua.training.backbones import unigram_tokenizer

MEANINGS = [
    ["▁river", "▁joki", "河", normalize("NFKC", "แม่น้ำ")],
    ["▁bridge", "▁silta", "桥"],
    ["▁old", "▁van", "ha"],
    ["▁1937", "▁1938", "▁year"],
    ["▁the", "▁in"],
    ["▁"],
]
"""Subwords with the same vector, and the mark of a beginning; "vanha" has two."""


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    pieces = [(piece, -float(number + 1)) for number, held in enumerate(MEANINGS) for piece in held]
    tokenizer = unigram_tokenizer(pieces, lowercase=True)
    rows = torch.zeros(len(tokenizer), len(MEANINGS))
    for number, held in enumerate(MEANINGS):
        for piece in held:
            rows[tokenizer.convert_tokens_to_ids(piece), number] = 1.0 + number
    return Encoder(Parts(StaticEmbedding(tokenizer, rows), None))


def marked(question: str, text: str, asked: str, told: str, encoder: object) -> list[str]:
    return [text[start:end] for start, end in highlights(question, Passage("1", text, lang=told), asked, encoder)]


@pytest.mark.parametrize(
    ("question", "text", "asked", "told", "expected"),
    [
        ("the old bridge", "Joki ja vanha silta.", "en", "fi", ["vanha", "silta"]),
        ("bridge", "河上有桥。", "en", "zh", ["桥"]),
        ("river", "ข้ามแม่น้ำไป", "en", "th", ["แม่น้ำ"]),
        ("桥", "Vanha, silta!", "zh", "fi", ["silta"]),
        ("river", "Silta, silta.", "en", "fi", []),
        ("in", "the", "en", "en", []),
        ("in", "the", "fi", "en", []),
        ("in", "the", "en", "fi", []),
        ("in", "the", "fi", "fi", ["the"]),
        ("1937", "The 1938 year.", "en", "en", []),
        ("1937", "The year.", "en", "en", ["year"]),
        ("", "Silta.", "en", "fi", []),
        ("bridge", "…", "en", "fi", []),
        ("桥", "河", "zh", "ja", []),
    ],
)
def test_the_nearest_word_is_marked(question, text, asked, told, expected, encoder):
    assert marked(question, text, asked, told, encoder) == expected
    assert marked(question, text, asked, told, DualEncoder(encoder)) == expected


def test_the_first_of_equally_near_words_is_marked(encoder):
    spans = Highlights("bridge, river", "en", encoder)
    assert spans(Passage("1", "joki silta, silta", lang="fi")) == [(0, 4), (5, 10)]
    assert spans(Passage("2", "silta", lang="fi")) == [(0, 5)]


def test_the_terms_of_a_question_are_those_of_each_passages_language(encoder):
    spans = Highlights("the old rivers", "en")
    assert spans(Passage("1", "the river", lang="en")) == [(4, 9)]
    assert spans(Passage("2", "the rivers", lang="fi")) == [(0, 3), (4, 10)]  # Finnish has no such stopword


def test_so_many_words_are_looked_at(encoder, monkeypatch):
    text = "old old old bridge bridge river"
    for name, asked, told in (("QUESTION_WORDS", text, "silta joki"), ("TEXT_WORDS", "silta joki", text)):
        monkeypatch.setattr(highlights_module, name, 2)
        assert len(marked(asked, told, "en", "fi", encoder)) == 1
        monkeypatch.undo()
        assert len(marked(asked, told, "en", "fi", encoder)) == 2


@pytest.mark.parametrize(("cosine", "expected"), [(NEAR + 0.01, ["joki"]), (NEAR - 0.01, [])])
def test_a_word_must_be_near_enough(encoder, cosine, expected):
    other = copy.deepcopy(encoder)
    row = other.backbone.embedding.weight.data[other.backbone.tokenizer.convert_tokens_to_ids("▁joki")]
    row.zero_()
    row[0], row[-1] = cosine, (1 - cosine**2) ** 0.5
    assert marked("river", "joki", "en", "fi", other) == expected


def test_other_encoders_mark_nothing_more(tiny_encoder):
    assert marked("river", "joki", "en", "fi", tiny_encoder()) == marked("river", "joki", "en", "fi", None) == []


def test_an_index_is_not_asked_for_its_encoder_where_words_alone_were_searched():
    class Index:
        encoder = "static"
        token_states = None

    assert (highlight_encoder(None, Index(), "hybrid"), highlight_encoder(None, Index(), "lexical")) == ("static", None)
