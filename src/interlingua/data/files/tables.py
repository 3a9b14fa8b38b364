"""Tables and jsonl: which column is what, and what becomes metadata."""

from __future__ import annotations

import csv
import json
import logging
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from interlingua.data.files.encoding import text_lines
from interlingua.data.files.walk import BadFile, MissingExtra, Source
from interlingua.data.readers.rows import BadRow, delimited, json_object, lang_of, string
from interlingua.data.readers.source import plain_name
from interlingua.errors import BadInput, suggestion
from interlingua.files import open_raw

logger = logging.getLogger(__name__)

USUAL = {
    "text": ("text", "content", "contents", "body", "passage", "paragraph", "document", "answer", "answers"),
    "title": ("title", "heading", "headline", "subject", "question"),
    "id": ("id", "_id", "docid", "doc_id", "passage_id", "uid"),
    "lang": ("lang", "language", "lang_code", "locale"),
    "url": ("url", "link", "href", "permalink"),
}
"""The usual names of the columns, in capitals or not; the first that a table has is taken."""


@dataclass(frozen=True, slots=True)
class Row:
    """A passage as it stands in a table; "" is what it does not say."""

    text: str
    title: str
    id: str
    lang: str
    metadata: Mapping[str, str]


Columns = Mapping[str, str | Mapping[str, str]]
"""text, title, id, lang or url → the name of its column; or a file's name or pattern → such a mapping for it alone."""


class NamedColumns:
    """The columns that were named for all tables and for some. Raises BadInput for what no column can be."""

    def __init__(self, columns: Columns) -> None:
        self.every = {role: name for role, name in columns.items() if isinstance(name, str)}
        self.of_file = {file: dict(names) for file, names in columns.items() if not isinstance(names, str)}
        self._unused = set(self.of_file)
        for role in (*self.every, *(role for names in self.of_file.values() for role in names)):
            if role not in USUAL:
                raise BadInput(f"columns: '{role}' is nothing that a column can be.{suggestion(role, USUAL)}")

    def of(self, name: str) -> dict[str, str]:
        """The columns of the table that is called so."""
        columns = dict(self.every)
        for pattern, names in self.of_file.items():
            if fnmatchcase(name, pattern) or fnmatchcase(name, f"*/{pattern}"):
                self._unused.discard(pattern)
                columns |= names
        return columns

    def warn_of_unused(self) -> None:
        """Say which files were named that no table is called."""
        if self._unused:
            logger.warning(f"columns: no table that was read is called {' or '.join(sorted(self._unused))}")


def usual_columns(names: Iterable[str]) -> dict[str, str]:
    """text, title, … → that of the `names` which is usually called so. Where the text is an answer, its title is the
    question."""
    folded = {name.strip().casefold(): name for name in reversed(list(names))}
    usual = {role: folded[word] for role, words in USUAL.items() for word in reversed(words) if word in folded}
    if "question" in folded and usual.get("text", "").strip().casefold() in ("answer", "answers"):
        usual["title"] = folded["question"]
    return usual


def choose_columns(names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """text, title, id, lang → the name of its column: as `columns` says, else the usual one; text must be there.

    Raises BadFile for a table without a column of text, one without a column that `columns` names, or one with two of
    the same name.
    """
    listing = ", ".join(names[:20])
    duplicate = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if duplicate is not None:
        raise BadFile(f"two columns are called '{duplicate}'. Rename one")
    missing = [name for name in columns.values() if name not in names]
    if missing:
        raise BadFile(f"no column '{missing[0]}'; the columns are {listing}")
    chosen = {role: name for role, name in usual_columns(names).items() if name not in columns.values()} | dict(columns)
    if "text" not in chosen:
        raise BadFile(
            f"no column of text; the columns are {listing}. Call one of them 'text', or say which it is with "
            "--columns FILE:text=COLUMN (in Python: columns={'FILE': {'text': …}})"
        )
    return chosen


def to_row(cells: Mapping[str, Any], chosen: Mapping[str, str], left_out: set[str]) -> Row:
    """The row of `cells` (column → value). Other columns become metadata as strings; empty ones are left out, and those
    that hold lists, objects or bytes are noted in `left_out`. Raises BadRow where there is no text or no such language.
    """
    values = {role: cells.get(name) for role, name in chosen.items()}
    url = values.get("url")
    if not isinstance(url, str):  # what else is called `link` is metadata like any other
        chosen = {role: name for role, name in chosen.items() if role != "url"}
    text = string(values, "text", "")
    if not text.strip():
        raise BadRow(f"no '{chosen['text']}'")
    tag = values.get("lang")
    lang = lang_of(values, None) if tag == tag and str(tag or "").strip() else ""  # NaN is a gap
    metadata: dict[str, str] = {}
    for name, value in cells.items():
        if name == "metadata" and isinstance(value, dict) and name not in chosen.values():
            metadata |= strings(value, left_out)
        elif name not in chosen.values():
            metadata |= strings({name: value}, left_out)
    if isinstance(url, str) and url.strip():
        metadata["url"] = url.strip()
    row = Row(text, string(values, "title", ""), string(values, "id", ""), lang, metadata)
    if any("\0" in one for one in (row.text, row.title, row.id, *metadata, *metadata.values())):
        raise BadRow("a NUL character, which no text has")
    return row


def strings(cells: Mapping[str, Any], left_out: set[str]) -> dict[str, str]:
    """Return the `cells` that can be metadata, as text."""
    metadata = {}
    for name, value in cells.items():
        if isinstance(value, (list, tuple, dict, bytes)):
            left_out.add(name)
        elif value is not None and value != "" and value == value:  # NaN is a gap of a table
            metadata[name] = json.dumps(value) if isinstance(value, (bool, int, float)) else str(value)
    return metadata


SEPARATORS = ",;\t|"


def read_separated(source: Source) -> Iterator[tuple[int, Row]]:
    """(line, row) of every row below the header; a cell in double quotes may hold separators and line breaks.

    A tsv has tabs between the cells; a csv commas, or what its header has: semicolons, tabs or bars, or what a first
    line `sep=;` says, as spreadsheets write it. Raises BadFile for a header without text, and for a csv with a quote
    that never ends.
    """
    lines = (f"{line}\n" for _, line in text_lines(source))
    is_tsv = plain_name(source.path).lower().endswith(".tsv")
    rows = _tab_rows(lines) if is_tsv else _csv_rows(lines, *_separator(source))
    header = next((row for _, row in rows), [])
    if isinstance(header, csv.Error):
        raise BadFile(f"{header}. {QUOTES}", 1)
    names = [name.strip() or f"column {number}" for number, name in enumerate(header, 1)]
    chosen = choose_columns(names, source.columns)

    def parse(cells: list[str] | csv.Error) -> Row:
        if isinstance(cells, csv.Error):
            raise BadRow(f"{cells}. {QUOTES}")
        if len(cells) != len(names):
            raise BadRow(f"{len(cells)} column(s), the header has {len(names)}")
        return to_row(dict(zip(names, cells, strict=True)), chosen, source.left_out)

    return source.report.bad_rows.placed(source.path, rows, parse)


QUOTES = "A cell that begins with a double quote must end with one, and have those inside it doubled"
TALLEST = 10_000
"""Lines that a quoted cell of a tsv may have."""


def _csv_rows(lines: Iterator[str], separator: str, before: int) -> Iterator[tuple[int, list[str] | csv.Error]]:
    """(number of its first line, cells, or what is wrong with them) of each row, blank lines left out, and as many
    lines `before` all of them."""
    table = delimited(islice(lines, before, None), separator)
    line = before + 1
    while True:
        try:
            row: list[str] | csv.Error = next(table)
        except StopIteration:
            return
        except csv.Error as error:
            if "end of data" in str(error):
                raise BadFile(f"{error}, so the whole file is left out. {QUOTES}", line) from error
            row = error
        if isinstance(row, csv.Error) or (row and not (len(row) == 1 and row[0].isspace())):
            yield line, row
        line = before + table.line_num + 1


def _tab_rows(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, cells) of each row of a tsv, blank lines left out. A quote is a character like any
    other, as the format has it, but for a cell that is quoted as in csv; over several lines only where these are no
    rows themselves."""
    ahead: deque[str] = deque()
    number, columns = 1, 0
    while line := ahead.popleft() if ahead else next(lines, ""):
        cells, height = line.rstrip("\n").split("\t"), 1
        if any(cell.startswith('"') for cell in cells):
            cells, height = _quoted(line, ahead, lines, columns) or (cells, 1)
        columns = columns or len(cells)
        if line.strip():
            yield number, cells
        number += height


def _quoted(line: str, ahead: deque[str], lines: Iterator[str], columns: int) -> tuple[list[str], int] | None:
    """The cells of a row of a tsv with quoted ones, and how many lines it has, those after `line` taken out of `ahead`;
    None where nothing is quoted. What is read of `lines` is put into `ahead`."""
    rows: list[str] = []

    def pulled() -> Iterator[str]:
        while len(rows) < TALLEST:
            if len(rows) > len(ahead) and (following := next(lines, "")):
                ahead.append(following)
            if len(rows) > len(ahead):
                return
            rows.append(ahead[len(rows) - 1] if rows else line)
            yield rows[-1]

    try:
        cells = next(delimited(pulled(), "\t"))
    except csv.Error:
        return None
    if len(rows) > 1 and columns > 1 and all(row.count("\t") + 1 == columns for row in rows):
        return None
    for _ in rows[1:]:
        ahead.popleft()
    return cells, len(rows)


def _separator(source: Source) -> tuple[str, int]:
    """The separator, and how many lines come before the header: that of a line `sep=;`, which is one; else the one that
    cuts the header into the most usual names, or into the most names."""
    header = next((line for _, line in text_lines(source) if line.strip()), "")
    if named := re.fullmatch('"?sep=([^"\\w\\s]|\t)"?', header, re.IGNORECASE):
        return named[1], next(number for number, line in text_lines(source) if line == header)

    def fits(separator: str) -> tuple[int, int]:
        try:
            names = next(csv.reader([header], delimiter=separator), [])
        except csv.Error:
            return 0, 0
        usual = {word for words in USUAL.values() for word in words}
        return len({name.strip().casefold() for name in names} & usual), len(names)

    return max(SEPARATORS, key=fits), 0


def read_jsonl(source: Source) -> Iterator[tuple[int, Row]]:
    """(line, row) of every line `{text[, title, id, lang, metadata, …]}`; further fields are metadata too."""

    def parse(line: str) -> Row:
        cells = json_object(line)
        named = source.columns.values()  # a column that is given has no other role
        usual = {role: name for role, name in usual_columns(cells).items() if name not in named}
        return to_row(cells, {"text": "text"} | usual | dict(source.columns), source.left_out)

    lines = ((number, line) for number, line in text_lines(source) if line.strip())
    return source.report.bad_rows.placed(source.path, lines, parse)


BATCH = 1_000


def read_parquet(source: Source) -> Iterator[tuple[int, Row]]:
    """(number, row) of every row. Columns of lists, objects and bytes (vectors, images) are not even read, and of the
    others a batch at a time, also where the whole file is one row group.

    Raises BadFile for a file that is no Parquet or has no column of text, MissingExtra without pyarrow.
    """
    try:
        import pyarrow as arrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("pyarrow", "index") from error
    try:
        with (
            open_raw(source.path) as stream,
            parquet.ParquetFile(stream, pre_buffer=False, buffer_size=1 << 20) as table,
        ):
            schema = table.schema_arrow
            chosen = choose_columns(schema.names, source.columns)
            text = schema.field(chosen["text"]).type
            kind = text.value_type if arrow.types.is_dictionary(text) else text
            if not (
                arrow.types.is_string(kind) or arrow.types.is_large_string(kind) or arrow.types.is_string_view(kind)
            ):
                raise BadFile(f"column '{chosen['text']}' holds {text}, not text")
            flat = [field.name for field in schema if _is_flat(arrow, field.type)]
            source.left_out.update(set(schema.names) - set(flat))
            yield from source.report.bad_rows.placed(
                source.path, _table_rows(table, flat), lambda cells: to_row(cells, chosen, source.left_out)
            )
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise BadFile(f"cannot be read as Parquet ({str(error).splitlines()[0]})") from error


def _is_flat(arrow: Any, kind: Any) -> bool:
    return not (
        arrow.types.is_nested(kind)
        or arrow.types.is_binary(kind)
        or arrow.types.is_large_binary(kind)
        or arrow.types.is_fixed_size_binary(kind)
        or arrow.types.is_binary_view(kind)
    )


def _table_rows(table: Any, names: list[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    for batch in table.iter_batches(batch_size=BATCH, columns=names):
        for cells in batch.to_pylist():
            number += 1
            yield number, cells
