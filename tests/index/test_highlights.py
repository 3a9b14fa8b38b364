from __future__ import annotations

import unicodedata
from itertools import pairwise

import pytest

from interlingua.data.records import Passage
from interlingua.index.highlights import _whole, highlights
from interlingua.index.metadata import Question
from interlingua.models.late_interaction import LateInteractionEncoder


def marked(question, text, lang, asked="", encoder=None):
    spans = highlights(question, Passage("1", text, lang=lang), asked, encoder)
    assert all(a < b < c for (a, b), (c, _) in pairwise(spans))
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("question", "text", "lang", "expected"),
    [
        ("Who keeps lighthouses?", "The keeper kept the Lighthouse, near a house.", "en", ["Lighthouse"]),
        ("¿Quién escribió los libros?", "El libro rojo.", "es", ["libro"]),
        ("книги о буре", "Буря сломала книгу.", "ru", ["Буря", "книгу"]),
        ("Häuser am Fluss", "Das Haus steht am Fluss.", "de", ["Haus", "Fluss"]),
        ("灯塔在哪里", "海边有一座灯塔。", "zh", ["灯塔"]),
        ("การศึกษาคืออะไร", "ระบบการศึกษาไทย", "th", ["การศึกษา"]),
        ("がいこく", unicodedata.normalize("NFD", "がくせい"), "ja", []),
        ("Alan Turing alizaliwa wapi?", "Turing was born in 1912.", "en", ["Turing"]),
        ("the of and", "the of and", "en", []),
        ("", "a text", "en", []),
        ("question", "", "en", []),
    ],
)
def test_words_with_the_terms_of_the_question_are_marked(question, text, lang, expected):
    assert marked(question, text, lang) == expected


def test_marks_stay_with_their_letters():
    text = "ရန်ကုန်မြို့"
    assert [text[slice(*_whole(text, span))] for span in ((0, 2), (7, 8))] == ["ရန်", "မြို့"]
    khmer = "នៃព្រះ"
    assert khmer[slice(*_whole(khmer, (2, 3)))] == "ព្រះ"
    assert _whole("a hill", (2, 3)) == (2, 3)


def test_words_near_the_tokens_of_the_question_are_marked(tiny_encoder, monkeypatch):
    encoder = LateInteractionEncoder.start(tiny_encoder(), query_length=16, document_length=48)
    text = "Two rivers meet below the old town, and a bridge crosses both."
    assert marked("rivers", text, "en") == ["rivers"]
    # a token's nearest token is itself, if both are read alike: layers that look at other tokens are left out
    monkeypatch.setattr(
        encoder.backbone,
        "token_states",
        lambda ids: (
            encoder.input_embeddings(__import__("torch").tensor([id for one in ids for id in one])),
            None,
            None,
        ),
    )
    monkeypatch.setattr(encoder, "_expanded_states", lambda ids: encoder.backbone.token_states(ids)[0])
    for skip in (False, True):
        encoder.change(query_length=16, document_length=48, query_expansion=True, skip_punctuation=skip)
        assert marked("bridge old", text, "fi", "sw", encoder) == ["old", "bridge"], skip
    encoder.change(query_length=16, document_length=8, query_expansion=True, skip_punctuation=False)
    assert "both" not in marked("both", text, "sw", "fi", encoder)[1:]


class Blind:
    """An encoder that is neither static nor of late interaction."""

    similarity = "cosine"


@pytest.mark.parametrize(
    ("lang", "encoder", "marked"), [("ru", Blind(), ["Luther", "Norman's"]), ("ru", None, []), ("en", Blind(), [])]
)
def test_words_of_another_language_that_sound_like_those_of_the_question(lang, encoder, marked):
    passage = Passage("1", "In Rome Luther heard Norman's mass.", lang="en")
    spans = highlights("Лютер и Нормана", passage, lang, encoder)
    assert [passage.text[start:end] for start, end in spans] == marked


def test_keys_that_are_not_looked_for_cut_no_question():
    letters = "bdglmnrs"
    question = Question(
        " ".join(f"{a}a{b}a{c}a{d}" for a in letters for b in letters for c in letters for d in "bd"), "en"
    )
    highlights(question, Passage("1", "In Rome", lang="en"), encoder=Blind())
    assert not question.is_cut
    highlights(question, Passage("1", "In Rome", lang="ru"), encoder=Blind())
    assert question.is_cut
