"""csv and tsv with a line that names the columns."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from interlingua.data.files.check import LONGEST_LINE
from interlingua.data.files.report import BadFile, Report
from interlingua.data.files.rows import USUAL, Row, choose_columns, to_row
from interlingua.data.readers.bad_rows import BadRow
from interlingua.data.readers.source import plain_name
from interlingua.files import read_lines

SEPARATORS = ",;\t|"


def read_separated(path: Path, columns: Mapping[str, str], report: Report, left_out: set[str]
                   ) -> Iterator[tuple[int, Row]]:
    """(line, row) of every row below the header; a cell in double quotes may hold separators and line breaks.

    A tsv has tabs between the cells; a csv commas, or what its header has: semicolons, tabs or bars. Raises BadFile for
    a header without text, and where quotes do not match.
    """
    rows = _rows(path)
    _, header = next(rows)
    names = [name.strip() or f"column {number}" for number, name in enumerate(header, 1)]
    chosen = choose_columns(names, columns)

    def parse(cells: list[str]) -> Row:
        if len(cells) != len(names):
            raise BadRow(f"{len(cells)} column(s), the header has {len(names)}")
        return to_row(dict(zip(names, cells, strict=True)), chosen, left_out)

    return report.parsed(path, rows, parse)


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, cells) of each row, blank lines left out."""
    csv.field_size_limit(max(LONGEST_LINE, csv.field_size_limit()))  # of the process; its own default is 128 KiB
    lines = (f"{line}\n" for _, line in read_lines(path))
    separator = "\t" if plain_name(path).lower().endswith(".tsv") else _separator(path)
    table = csv.reader(lines, delimiter=separator, strict=True)
    line = 1
    try:
        for row in table:
            if row:
                yield line, row
            line = table.line_num + 1
    except csv.Error as error:
        raise BadFile(f"{error}. A cell that begins with a double quote must end with one, and have those inside it "
                      "doubled", line) from error


def _separator(path: Path) -> str:
    """What parts the header into the usual names, or else into the most."""
    header = next((line for _, line in read_lines(path) if line.strip()), "")

    def fits(separator: str) -> tuple[int, int]:
        try:
            names = next(csv.reader([header], delimiter=separator), [])
        except csv.Error:
            return 0, 0
        usual = {word for words in USUAL.values() for word in words}
        return len({name.strip().casefold() for name in names} & usual), len(names)

    return max(SEPARATORS, key=fits)
