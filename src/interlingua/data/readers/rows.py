"""Rows: one policy for rows that cannot be used, and the passage inside a training row."""

from __future__ import annotations

import csv
import heapq
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from interlingua.data.records import Passage
from interlingua.errors import BadInput, suggestion
from interlingua.files import LONGEST_LINE
from interlingua.text.languages import is_unicode, text_hash

logger = logging.getLogger(__name__)

Row = TypeVar("Row")
Record = TypeVar("Record")
Place = TypeVar("Place", int, str, int | str)
LISTED = 10


class BadRow(Exception):
    """Raised by a parser: the reason why this row is no record."""


ADVICE = (
    "Mend the row, or have such rows counted, listed and left out: `on_bad_row: skip` in the recipe's data entry, "
    "--on-bad-row skip on the command line."
)


class BadRows:
    """The policy `on_bad_row`: "error" stops at the first bad row, "skip" counts and lists them at the end.

    Rows that are sound but not wanted (a fuzzy PO entry, a score under the threshold) are `passed_over`:
    counted and reported under either policy, never an error. `advice` is the end of an error: what to do.
    """

    def __init__(self, policy: str = "error", advice: str = ADVICE) -> None:
        if policy not in ("error", "skip"):
            raise BadInput(f"on_bad_row='{policy}' is unknown.{suggestion(policy, ('error', 'skip'))}")
        self.policy, self.advice = policy, advice
        self.total = 0
        self.listed: list[str] = []
        self.notes: Counter[tuple[Path, str]] = Counter()

    def reject(self, path: Path, place: int | str | None, reason: str) -> None:
        """Raise BadInput (file, place, reason, what to do), or count the row; without a `place`, the file."""
        where = f"{path}, line {place}" if isinstance(place, int) else f"{path}, {place}" if place else str(path)
        if self.policy == "error":
            raise BadInput(f"{where}: {reason}{'' if reason.endswith('?') else '.'} {self.advice}")
        self.total += 1
        if len(self.listed) < LISTED:
            self.listed.append(f"{where}: {reason}")

    def passed_over(self, path: Path, reason: str, count: int = 1) -> None:
        self.notes[path, reason] += count

    def parsed(
        self, path: Path, rows: Iterable[tuple[int | str, Row]], parse: Callable[[Row], Record]
    ) -> Iterator[Record]:
        """`parse(row)` of every row; a BadRow raised by it goes to `reject`."""
        return (record for _, record in self.placed(path, rows, parse))

    def placed(
        self, path: Path, rows: Iterable[tuple[Place, Row]], parse: Callable[[Row], Record]
    ) -> Iterator[tuple[Place, Record]]:
        """(place, `parse(row)`) of every row, as `parsed`."""
        for place, row in rows:
            try:
                record = parse(row)
            except BadRow as bad:
                self.reject(path, place, str(bad))
            else:
                yield place, record

    def report(self) -> None:
        """Report what was left out, if anything was: bad rows as one warning."""
        for (path, reason), count in self.notes.items():
            logger.info(f"{path}: {count:,} {reason}")
        if self.total:
            rows = "rows" if self.total > 1 else "row"
            logger.warning("\n".join([f"{self.total:,} bad {rows} left out:", *self.examples()]))

    def examples(self) -> list[str]:
        """The first rows that were left out, and how many more, a line each."""
        remaining = self.total - len(self.listed)
        return [f"  {line}" for line in self.listed] + ([f"  … and {remaining:,} more"] if remaining else [])


def delimited(lines: Iterable[str], delimiter: str) -> Any:
    """A reader of csv or tsv, which raises csv.Error for a stray quote. Cells are as long as their line may be: the
    limit of the csv module, which counts for the whole process, is 128 KiB else."""
    csv.field_size_limit(max(LONGEST_LINE, csv.field_size_limit()))
    return csv.reader(lines, delimiter=delimiter, strict=True)


HALF = "half a surrogate pair (\\ud800 to \\udfff alone), which is no text"


def json_object(line: str) -> dict[str, Any]:
    """The JSON object on a line, or BadRow."""
    import json

    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"not JSON ({error})") from error
    if "\\ud" in line or "\\uD" in line:
        try:
            json.dumps(row, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadRow(HALF) from error
    if not isinstance(row, dict):
        raise BadRow(f"a JSON object is needed, this is {type(row).__name__}")
    return row


def string(row: dict[str, Any], key: str, default: str | None = None) -> str:
    """The text under `key`. Without a `default` it must be there and not be blank. Whole numbers count as text (ids),
    also 1.0, which a table with gaps makes of 1; NaN is such a gap."""
    value = row.get(key)
    if value is None or value != value:
        value = default
    if (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer()):
        value = str(int(value))
    if value is None:
        raise BadRow(f"no '{key}' (there is: {', '.join(map(str, row)) or 'nothing'})")
    if not isinstance(value, str):
        raise BadRow(f"'{key}' must be text, it is {type(value).__name__}")
    if default is None and not value.strip():
        raise BadRow(f"'{key}' is empty")
    if not is_unicode(value):
        raise BadRow(HALF)
    return value


def objects(row: dict[str, Any], key: str, *, optional: bool = False) -> list[dict[str, Any]]:
    """The list of JSON objects under `key`."""
    value = row.get(key)
    if value is None and optional:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise BadRow(f"'{key}' must be a list of objects")
    return value


def lang_of(row: dict[str, Any], default: str | None, key: str = "lang") -> str:
    """The language code of a row, or `default`; BadRow when there is neither or the tag is unknown."""
    from interlingua.text.languages import normalise_code

    tag = row.get(key) or default
    if not tag:
        raise BadRow(f"no '{key}', and no language was given for the file ({key}=…)")
    if not isinstance(tag, str):
        raise BadRow(f"'{key}' must be text, it is {type(tag).__name__}")
    try:
        return normalise_code(tag)
    except BadInput as error:
        raise BadRow(str(error).rstrip(".")) from error


LARGEST = 1e300


def passage(row: dict[str, Any], lang: str, *, id_keys: tuple[str, ...] = (), text_key: str = "text") -> Passage:
    """The passage in a JSON object, in its own `lang` or the one given. Beside a title its text may be empty. Without
    an id under any of `id_keys` it gets one made from its words, so that one passage has one id wherever it occurs."""
    title = string(row, "title", "")
    text = string(row, text_key, "" if text_key in row and title.strip() else None)
    lang = lang_of(row, lang) if row.get("lang") else lang
    passage_id = next((string(row, key) for key in id_keys if row.get(key) not in (None, "")), None)
    return Passage(passage_id or content_id(title, text), text, title, lang)


def highest(
    rows: Iterable[tuple[int, Record]],
    limit: int | None,
    value: Callable[[int, Record], float],
    pass_over: Callable[[], None],
) -> Iterator[Record]:
    """The `limit` records (None: all) with the highest `value(row number, record)`, of equal ones the first, in the
    order of their rows. `pass_over` is called for each of the others. Holds `limit` records."""
    if limit is None:
        yield from (record for _, record in rows)
        return
    heap: list[tuple[float, int, Record]] = []  # the row number breaks ties; records are never compared
    for number, record in rows:
        entry = (value(number, record), -number, record)
        if len(heap) < limit:
            heapq.heappush(heap, entry)
        else:
            if limit:
                heapq.heappushpop(heap, entry)
            pass_over()
    for _, _, record in sorted(heap, key=lambda entry: -entry[1]):
        yield record


def judgement(line: str) -> list[str]:
    """The cells of a line of qrels. BEIR's three columns are written as csv: an id that holds a quote is quoted."""
    cells = line.split("\t") if "\t" in line else line.split()
    if len(cells) == 3 and "\t" in line and '"' in line:
        unquoted = next(csv.reader([line], delimiter="\t"))
        cells = unquoted if len(unquoted) == 3 else cells  # a quote may be a sign like others
    return [cell.strip() for cell in cells]


def content_id(title: str, text: str) -> str:
    """16 hex digits that are equal for passages with equal words (see `text_key`)."""
    return f"{text_hash(title, text):016x}"


def scores(row: dict[str, Any], count: int) -> tuple[float, ...]:
    """A row's `scores`, `count` finite numbers, or () when it has none."""
    values = row.get("scores")
    if values is None or values == []:
        return ()
    if not isinstance(values, list) or not all(type(one) in (int, float) and abs(one) < LARGEST for one in values):
        raise BadRow("'scores' must be a list of finite numbers")
    if len(values) != count:
        raise BadRow(f"{len(values)} scores, {count} are needed: of the first positive and of each negative")
    return tuple(map(float, values))
