"""jsonl: one object a line, which is one passage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from interlingua.data.files.report import Report
from interlingua.data.files.rows import USUAL, Row, to_row
from interlingua.data.readers.bad_rows import json_object
from interlingua.data.readers.source import filled_lines


def read_jsonl(path: Path, columns: Mapping[str, str], report: Report, left_out: set[str]) -> Iterator[tuple[int, Row]]:
    """(line, row) of every line `{text[, title, id, lang, metadata, …]}`; further fields are metadata too."""

    def parse(line: str) -> Row:
        cells = json_object(line)
        usual = {role: next((word for word in words if word in cells), words[0]) for role, words in USUAL.items()}
        return to_row(cells, usual | dict(columns), left_out)

    return report.parsed(path, filled_lines(path), parse)
