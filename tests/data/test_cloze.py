from __future__ import annotations

import pytest

from interlingua.data.contexts import cloze
from interlingua.data.records import Document
from interlingua.errors import InterlinguaError

ENGLISH = Document(tuple(f"Sentence number {i}." for i in range(10)), "en", "d", "Numbers", "g")
JAPANESE = Document(("一。", "二。", "三。"), "ja")


def test_question_and_passage_come_from_one_window() -> None:
    records = list(cloze([ENGLISH, JAPANESE], seed=1, max_sentences=4, keep=0.0))
    assert [record.lang for record in records] == ["en", "en", "en", "ja"]
    first = records[0]
    assert first.question in ENGLISH.sentences[:4]
    assert first.positives[0].text == " ".join(s for s in ENGLISH.sentences[:4] if s != first.question)
    assert (first.positives[0].title, first.id) == ("Numbers", "d#0")
    assert records[3].positives[0].text in ("一。二。", "一。三。", "二。三。")


def test_keep_leaves_the_question_in_the_passage() -> None:
    documents = [ENGLISH] * 400
    kept = [record.question in record.positives[0].text for record in cloze(documents, max_sentences=10, keep=0.1)]
    assert 0.05 < sum(kept) / len(kept) < 0.16
    assert all(record.question in record.positives[0].text for record in cloze(documents, keep=1.0))


def test_draws_depend_on_seed_and_document_alone() -> None:
    alone = list(cloze([ENGLISH], seed=5))
    assert list(cloze([ENGLISH, JAPANESE], seed=5))[: len(alone)] == alone
    assert list(cloze([ENGLISH] * 9, seed=5)) != list(cloze([ENGLISH] * 9, seed=6))


def test_windows_are_bounded_in_characters() -> None:
    for record in cloze([ENGLISH], max_chars=40):
        assert len(record.question) + len(record.positives[0].text) <= 2 * 18 + 18


def test_documents_of_one_sentence_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(cloze([Document(("Alone.",), "en")])) == []
    assert "1 of 1 documents have no two sentences together" in capsys.readouterr().err
    with pytest.raises(InterlinguaError, match="at least 2"):
        list(cloze([ENGLISH], max_sentences=1))
