from __future__ import annotations

import pytest

from interlingua.data import Collection, ParallelPair, Passage, Query, QuestionPassage, encyclopedia
from interlingua.data.summary import summarise, summarise_collection, summarise_topics


def test_pairs_by_language() -> None:
    arabic, finnish, everything = summarise(
        [
            ParallelPair("abcd", "ab", "ar", "en"),
            ParallelPair("ABCD", "ab ", "ar", "en"),
            ParallelPair("ab", "abcdef", "fi", "en"),
        ]
    )
    assert (arabic["lang"], arabic["records"], arabic["duplicates"]) == ("ar", 2, 0.5)
    assert (finnish["source mean"], finnish["target mean"]) == (2, 6)
    assert (everything["lang"], everything["records"]) == ("all", 3)
    assert everything["source mean"] == pytest.approx(10 / 3)
    assert everything["source median"] == 4
    assert "without title" not in arabic


def test_questions_and_collections() -> None:
    passages = [Passage("a", "abc", "T", "en"), Passage("b", "abcde", "", "en")]
    (row,) = summarise(QuestionPassage("why?", (passage,), (), "en") for passage in passages)
    assert (row["without title"], row["question mean"], row["passage p95"]) == (0.5, 4, pytest.approx(4.9))
    rows = summarise_collection(Collection("c", passages, [Query("q", "why?", "fi")], {"q": {"a": 1, "b": 2}}))
    assert [(row["of"], row["lang"], row["records"]) for row in rows] == [("passages", "en", 2), ("queries", "fi", 1)]
    assert rows[1]["relevant per query"] == 2
    assert list(summarise([])) == []


def test_topics() -> None:
    train, test = summarise_topics()
    assert train["topics"] == len(encyclopedia.topics("train"))
    assert train["questions"] == 14 * len(encyclopedia.topics("train"))
    assert test["questions"] == 11 * len(encyclopedia.topics("test"))
    assert train["pairs"] == len(list(encyclopedia.parallel("train")))
