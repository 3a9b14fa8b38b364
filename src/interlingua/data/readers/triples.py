"""MS MARCO's training triples as texts: `query <tab> positive <tab> negative [<tab> negative …]`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from interlingua.data.readers.bad_rows import BadRow, BadRows
from interlingua.data.readers.passages import content_id
from interlingua.data.readers.source import columns
from interlingua.data.records import Passage, QuestionPassage
from interlingua.files import read_lines


def matches(path: Path, start: str) -> bool:
    return not start.lstrip().startswith(("{", "[", "<")) and min(columns(start)) >= 3


def read(path: Path, bad: BadRows, *, lang: str) -> Iterator[QuestionPassage]:
    """One record a line, one or more negatives. Lines of three numbers (qidpidtriples) are bad rows: ids, no texts."""
    return bad.parsed(path, read_lines(path), lambda line: _record(line, lang))


def _record(line: str, lang: str) -> QuestionPassage:
    cells = line.split("\t")
    if len(cells) < 3:
        raise BadRow(f"{len(cells)} column(s), at least 3 are needed: query, positive, negative")
    if not all(cell.strip() for cell in cells):
        raise BadRow("an empty column")
    if all(cell.isdecimal() for cell in cells):
        raise BadRow("numbers only: these are ids, the texts are needed")
    question, positive, *negatives = cells
    texts = [Passage(content_id("", text), text, "", lang) for text in (positive, *negatives)]
    return QuestionPassage(question, (texts[0],), tuple(texts[1:]), lang)
