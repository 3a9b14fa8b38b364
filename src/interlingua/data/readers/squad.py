"""SQuAD's JSON (also XQuAD, ARCD, KorQuAD, DRCD …): every paragraph is a passage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlingua.data.readers.bad_rows import BadRow, BadRows, objects, string
from interlingua.data.readers.passages import content_id
from interlingua.data.readers.source import whole_json
from interlingua.data.records import Passage, QuestionPassage
from interlingua.errors import InterlinguaError


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One paragraph of the file: `number` counts over the whole file from 0; `row` is its JSON object."""

    number: int
    place: str
    title: str
    row: dict[str, Any]


def matches(path: Path, start: str) -> bool:
    return start.lstrip().startswith("{") and '"data"' in start and '"paragraphs"' in start and '"context"' in start


def paragraphs(path: Path) -> Iterator[Paragraph]:
    """Every paragraph in order. Raises InterlinguaError when the file is not laid out as SQuAD."""
    data = whole_json(path)
    number = 0
    try:
        for a, article in enumerate(objects(data if isinstance(data, dict) else {}, "data")):
            for p, row in enumerate(objects(article, "paragraphs")):
                yield Paragraph(number, f"data[{a}].paragraphs[{p}]", string(article, "title", ""), row)
                number += 1
    except BadRow as bad:
        raise InterlinguaError(f"{path}: not in SQuAD's layout: {bad}.") from bad


def read(path: Path, bad: BadRows, *, lang: str) -> Iterator[QuestionPassage]:
    """One record a question. Questions marked `is_impossible` (SQuAD 2.0) have no positive: counted, not read."""
    for paragraph in paragraphs(path):
        rows = ((f"{paragraph.place}.qas[{q}]", row) for q, row in enumerate(_questions(paragraph, path, bad)))
        yield from bad.parsed(path, rows, lambda row, paragraph=paragraph: _record(row, paragraph, lang))  # type: ignore[misc]


def _questions(paragraph: Paragraph, path: Path, bad: BadRows) -> list[dict[str, Any]]:
    try:
        string(paragraph.row, "context")
        rows = objects(paragraph.row, "qas")
    except BadRow as reason:
        bad.reject(path, paragraph.place, str(reason))
        return []
    answerable = [row for row in rows if not row.get("is_impossible")]
    if len(answerable) < len(rows):
        bad.passed_over(path, "questions without an answer (is_impossible) not read", len(rows) - len(answerable))
    return answerable


def _record(row: dict[str, Any], paragraph: Paragraph, lang: str) -> QuestionPassage:
    text = paragraph.row["context"]
    found = Passage(content_id(paragraph.title, text), text, paragraph.title, lang)
    return QuestionPassage(string(row, "question"), (found,), (), lang, string(row, "id", ""))
