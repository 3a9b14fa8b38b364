"""Our own plain jsonl for questions: `question, passage` and, optional, `title, lang, id, passage_id`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from interlingua.data.readers.bad_rows import BadRows, json_object, lang_of, string
from interlingua.data.readers.passages import passage
from interlingua.data.readers.source import filled_lines, first_keys
from interlingua.data.records import QuestionPassage


def matches(path: Path, start: str) -> bool:
    return {"question", "passage"} <= first_keys(start)


def read(path: Path, bad: BadRows, *, lang: str) -> Iterator[QuestionPassage]:
    """One record a line. `lang` of the row wins over the `lang` given. Further fields (answers) are not used."""
    return bad.parsed(path, filled_lines(path), lambda line: _record(line, lang))


def _record(line: str, default: str) -> QuestionPassage:
    row = json_object(line)
    lang = lang_of(row, default)
    positive = passage(row, lang, id_keys=("passage_id",), text_key="passage")
    return QuestionPassage(string(row, "question"), (positive,), (), lang, string(row, "id", ""))
