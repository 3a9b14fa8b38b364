from __future__ import annotations

import sys

import numpy as np
import pytest
from py3langid import modelio

from interlingua.data.encyclopedia import languages, topics
from interlingua.errors import InterlinguaError
from interlingua.text import detection as detect
from interlingua.text.detection import detect_in_bulk, detect_language


def test_the_languages_of_the_encyclopedia() -> None:
    for lang in languages():
        found = [detect_language(topic.text(lang)) for topic in list(topics())[:20]]
        assert found == [lang] * 20


@pytest.mark.parametrize(
    "text", ["", " \n", "12345 67/89", "👍👍👍", "\u200b\u200b", "***", "https://example.com/?a=b"]
)
def test_what_is_in_no_language(text: str) -> None:
    assert detect_language(text) == ""


def test_small_languages_near_to_a_large_one_are_not_recognised() -> None:
    assert not detect.detectable() & {"an", "se", "vo", "wa", "vec", "gn", "ff", "ki", "kok"}
    assert len(detect.detectable()) == 112  # as many as before these had a code


def test_a_guess_is_not_an_answer() -> None:
    code, probability = detect.identifier().classify("ok")
    assert probability < detect.SURE
    assert code not in ("zxx", "")
    assert detect_language("ok") == ""


def test_dialects_count_as_their_language() -> None:
    # Wu Chinese and Egyptian Arabic: what is not told apart is still found under zh and ar.
    assert detect_language("侬好，今朝天气蛮好个，阿拉一道去白相相好伐？") == "zh"
    assert detect_language("ازيك عامل ايه النهارده، احنا رايحين فين دلوقتي يا صاحبي؟") == "ar"


def test_a_long_text_is_told_by_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    identifier = detect.identifier()

    class Listening:
        def classify(self, text: str) -> tuple[str, float]:
            read.append(len(text))
            return identifier.classify(text)

    monkeypatch.setattr(detect, "identifier", Listening)
    assert detect_language("This is a sentence in English. " * 10_000) == "en"
    assert read == [detect.READ]


def test_half_a_surrogate_pair_is_no_error() -> None:
    assert detect_language("This is an English sentence \ud800 with half a character.") == "en"


def test_many_texts_are_told_as_few_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled gives py3langid's answers, and leaves to it what is close."""
    known = [topic.text(lang) for lang in languages() for topic in list(topics())[:10]]
    short = [word for text in known for word in (*text.split()[:3], text[:20], text[:60])]
    texts = [
        *known,
        *short,
        *map(str.upper, known),
        "ok",
        "x1",
        "\ud800 half of a character",
        "e\u0301te\u0301 e\u0301te\u0301",
    ]
    expected = [detect_language(text) for text in texts]
    asked, classify = [], detect.identifier().classify

    class Listening:
        def classify(self, text: str) -> tuple[str, float]:
            asked.append(text)
            return classify(text)

    detect.compiled()  # with the real model
    monkeypatch.setattr(detect, "identifier", Listening)
    monkeypatch.setattr(detect, "MANY", 0)
    assert [detect_in_bulk(text) for text in texts] == expected
    if detect.compiled() is not None:
        assert len(asked) < len(texts) / 10
        assert set(asked) < set(short) | {"ok", "x1"}


def test_without_numba(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(detect.compiled.cache_clear)
    detect.compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(detect, "MANY", 0)
    assert detect_in_bulk("This is a sentence in English.") == "en"


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    detect.identifier.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid.langid", None)
    with pytest.raises(InterlinguaError, match=r"py3langid: pip install 'interlingua\[index\]'.*--lang"):
        detect_language("some text")


TEXTS = ["où est né Alan Turing ?", "Missä Alan Turing syntyi?", "アラン・チューリング", "12", "the"]


@pytest.mark.slow
def test_the_model_is_unpacked_once(tmp_path, monkeypatch, request):
    """And where what was kept is damaged, or cannot be kept, the answers are the same."""
    request.addfinalizer(detect.identifier.cache_clear)  # its files are not kept
    real, unpacked = modelio.load_model, []
    monkeypatch.setattr(modelio, "load_model", lambda file: unpacked.append(file) or real(file))

    def answers(place):
        monkeypatch.setenv("XDG_CACHE_HOME", str(place))
        detect.identifier.cache_clear()
        return [detect_language(text) for text in TEXTS]

    expected = answers(tmp_path)
    assert expected[:3] == ["fr", "fi", "ja"]
    assert answers(tmp_path) == expected
    assert len(unpacked) == 1
    [kept] = (tmp_path / "interlingua").glob("langid-*")
    for damage in (
        lambda file: file.unlink(),
        lambda file: file.write_bytes(file.read_bytes()[:-1]),
        lambda file: np.save(file, np.zeros(3, dtype=np.uint16)),
    ):
        before = len(unpacked)
        damage(kept / "rows.npy")
        assert answers(tmp_path) == answers(tmp_path) == expected
        assert len(unpacked) == before + 1
    (tmp_path / "file").touch()
    assert answers(tmp_path / "file") == expected
