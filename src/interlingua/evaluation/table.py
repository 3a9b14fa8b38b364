"""Tables of results: systems × languages, with averages that say whether English is in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite

from tabulate import tabulate

from interlingua.errors import BadInput, suggestion
from interlingua.evaluation.significance import Interval

WITH_ENGLISH, WITHOUT_ENGLISH = "avg", "avg w/o en"
FORMATS = ("text", "markdown", "tsv", "json")
MACHINES = ("tsv", "json")
"""The formats for machines: records, at full precision."""
Record = Mapping[str, str | float | int | None]


@dataclass
class Row:
    """One system: its values by column, their intervals, marks such as "*", and a paper's numbers if known."""

    system: str
    values: Mapping[str, float]
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    marks: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, float] = field(default_factory=dict)
    source: str = "paper"


class Table:
    """One measure of several systems on several languages or collections.

    `columns` in order; `languages` gives the language of a column where its name is not the language code; "mul",
    several languages, counts as English, which may be among them.
    Two macro averages (each column counts the same) are added: "avg" with English, "avg w/o en" without;
    only the one that exists when all or none of the columns are English, unless `columns` names the other, for
    the averages that a paper printed. An average is computed only for a system that has a value in every one
    of its columns. Values keep full precision; display rounds them.
    """

    def __init__(
        self,
        measure: str,
        columns: Sequence[str],
        *,
        counts: Mapping[str, int] | None = None,
        languages: Mapping[str, str] | None = None,
    ) -> None:
        if not columns or len(set(columns)) != len(columns):
            raise BadInput(f"table columns {list(columns)}: at least one is needed, each once.")
        self.measure, self.counts = measure, dict(counts or {})
        self.columns = [column for column in columns if column not in (WITH_ENGLISH, WITHOUT_ENGLISH)]
        self._printed = [column for column in columns if column not in self.columns]
        self.languages = {column: (languages or {}).get(column, column) for column in columns}
        self.rows_: list[Row] = []

    def add(self, row: Row) -> None:
        """Add a system. Raises BadInput for a value in a column that the table does not have."""
        for mapping in (row.values, row.intervals, row.marks, row.expected):
            for column in mapping:
                if column not in (*self.columns, WITH_ENGLISH, WITHOUT_ENGLISH):
                    raise BadInput(
                        f"row '{row.system}': no column '{column}' in this table.{suggestion(column, self.columns)}"
                    )
        self.rows_.append(row)

    @property
    def averages(self) -> dict[str, list[str]]:
        """Name of each average → the columns it is over; none for one that is only printed, not computed."""
        foreign = [column for column in self.columns if self.languages[column] not in ("en", "mul")]
        kinds: dict[str, list[str]] = {}
        if len(foreign) < len(self.columns):
            kinds[WITH_ENGLISH] = self.columns
        if foreign:
            kinds[WITHOUT_ENGLISH] = foreign
        return kinds | {name: [] for name in self._printed if name not in kinds}

    def filled(self, values: Mapping[str, float]) -> dict[str, float]:
        """`values` with the averages they allow. A printed average (a paper's) is kept as it was printed."""
        full = dict(values)
        for name, columns in self.averages.items():
            if name not in full and columns and all(column in values for column in columns):
                full[name] = sum(values[column] for column in columns) / len(columns)
        return full

    def records(self) -> list[dict[str, str | float | int | None]]:
        """One record for each system and column, at full precision: the table for machines."""
        records: list[dict[str, str | float | int | None]] = []
        for row in self.rows_:
            values, expected = self.filled(row.values), self.filled(row.expected)
            for column in [*self.columns, *self.averages]:
                if column not in values and column not in expected:
                    continue
                interval = row.intervals.get(column)
                records.append(
                    {
                        "system": row.system,
                        "measure": self.measure,
                        "column": column,
                        "value": values.get(column),
                        "low": interval.low if interval else None,
                        "high": interval.high if interval else None,
                        "interval": interval.method if interval else None,
                        "mark": row.marks.get(column),
                        "expected": expected.get(column),
                        "queries": self.counts.get(column),
                    }
                )
        return records

    def render(self, form: str = "text", *, digits: int = 3, intervals: bool = False) -> str:
        """The table as "text" (terminal), "markdown", "tsv" or "json" (the last two: `records`, full precision)."""
        if form not in ("text", "markdown"):
            return render_records(self.records(), form)
        headers = [self.measure, *self.columns, *self.averages]
        body = []
        for row in self.rows_:
            body.append([row.system, *(self._cell(row, column, digits, intervals) for column in headers[1:])])
            if row.expected:
                expected = self.filled(row.expected)
                body.append([f"↳ {row.source}", *(_number(expected.get(column), digits) for column in headers[1:])])
        if self.counts:
            totals = {name: sum(self.counts.get(c, 0) for c in columns) for name, columns in self.averages.items()}
            body.append(
                [
                    "queries",
                    *(
                        f"{n:,}" if n else "–"
                        for n in ({**self.counts, **totals}.get(column) for column in headers[1:])
                    ),
                ]
            )
        align = ["left", *["right"] * (len(headers) - 1)]
        lines: str = tabulate(
            body, headers, tablefmt="github" if form == "markdown" else "simple", disable_numparse=True, colalign=align
        )
        methods = sorted({i.method for row in self.rows_ for i in row.intervals.values()}) if intervals else []
        return lines + "".join(f"\n{'' if form == 'text' else chr(10)}[95%: {method}]" for method in methods)

    def _cell(self, row: Row, column: str, digits: int, intervals: bool) -> str:
        text = _number(self.filled(row.values).get(column), digits) + row.marks.get(column, "")
        if intervals and (interval := row.intervals.get(column)):
            text += f" [{_number(interval.low, digits)}, {_number(interval.high, digits)}]"
        return text


def render_tables(tables: Sequence[Table], form: str = "text", *, digits: int = 3, intervals: bool = False) -> str:
    """Several tables: with a blank line after each, or as "tsv" and "json" the records of all of them together."""
    if form in MACHINES:
        return render_records([record for table in tables for record in table.records()], form)
    return "\n".join(table.render(form, digits=digits, intervals=intervals) + "\n" for table in tables)


def render_records(records: Sequence[Record], form: str) -> str:
    """Records as "tsv" (a header, then a line each) or "json", nothing rounded."""
    if form == "json":
        finite = [  # JSON has no infinity: the threshold of BUCC's pairs of which nothing was found
            {key: None if isinstance(cell, float) and not isfinite(cell) else cell for key, cell in record.items()}
            for record in records
        ]
        return json.dumps(finite, ensure_ascii=False, indent=1)
    if form != "tsv":
        raise BadInput(f"unknown table format '{form}'.{suggestion(form, FORMATS)}")
    lines = [list(records[0])] if records else []
    lines += [["" if cell is None else str(cell) for cell in record.values()] for record in records]
    return "\n".join("\t".join(line) for line in lines)


def records_table(records: Sequence[Record], form: str, heading: str, note: str) -> str:
    """Records as "text" or "markdown", `heading` above the first field and `note` below; "tsv" or "json" with all
    digits."""
    if form not in ("text", "markdown"):
        return render_records(records, form)
    text = tabulate(
        [["" if cell is None else cell for cell in record.values()] for record in records],
        [heading, *list(records[0])[1:]],
        tablefmt="github" if form == "markdown" else "simple",
        floatfmt=".3f",
        intfmt=",",
    )
    return f"{text}\n\n{note}"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"
