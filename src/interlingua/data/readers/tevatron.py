"""Tevatron's jsonl, in which Mr.TyDi and MIRACL publish their training data."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interlingua.data.readers.bad_rows import BadRow, BadRows, json_object, lang_of, objects, string
from interlingua.data.readers.passages import passage, scores
from interlingua.data.readers.source import filled_lines, first_keys
from interlingua.data.records import Passage, QuestionPassage


def matches(path: Path, start: str) -> bool:
    return {"query", "positive_passages"} <= first_keys(start)


def read(path: Path, bad: BadRows, *, lang: str) -> Iterator[QuestionPassage]:
    """One record a line: `query_id, query, positive_passages, negative_passages` of `docid, title, text[, lang]`, and
    perhaps `scores`, a teacher's, of the first positive and of each negative."""
    return bad.parsed(path, filled_lines(path), lambda line: _record(line, lang))


def as_row(record: QuestionPassage) -> dict[str, Any]:
    """The row that `read` reads as this record."""
    row = {"query_id": record.id, "query": record.question, "lang": record.lang,
           "positive_passages": [_passage_row(one) for one in record.positives],
           "negative_passages": [_passage_row(one) for one in record.negatives]}
    return {**row, "scores": list(record.scores)} if record.scores else row


def _passage_row(passage: Passage) -> dict[str, str]:
    row = {"docid": passage.id, "title": passage.title, "text": passage.text, "lang": passage.lang}
    return {key: value for key, value in row.items() if value}


def _record(line: str, default: str) -> QuestionPassage:
    row = json_object(line)
    lang = lang_of(row, default)
    question = string(row, "query")
    positives = objects(row, "positive_passages")
    if not positives:
        raise BadRow(f"the question '{question}' has no positive passage")
    negatives = objects(row, "negative_passages", optional=True)
    return QuestionPassage(question, tuple(passage(item, lang, id_keys=("docid",)) for item in positives),
                           tuple(passage(item, lang, id_keys=("docid",)) for item in negatives),
                           lang, string(row, "query_id", ""), scores(row, 1 + len(negatives)))
