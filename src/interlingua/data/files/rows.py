"""Rows of a table or jsonl: which column is what, and what becomes metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interlingua.data.files.report import BadFile
from interlingua.data.readers.bad_rows import BadRow, lang_of, string
from interlingua.errors import InterlinguaError, suggestion

USUAL = {
    "text": ("text", "content", "contents", "body", "passage", "paragraph", "document"),
    "title": ("title", "heading", "headline", "subject"),
    "id": ("id", "_id", "docid", "doc_id", "passage_id", "uid"),
    "lang": ("lang", "language", "lang_code", "locale"),
}
"""What the columns are usually called, capitals or not; the first that a table has is taken."""


@dataclass(frozen=True, slots=True)
class Row:
    """A passage as it stands in a table; "" is what it does not say."""

    text: str
    title: str
    id: str
    lang: str
    metadata: Mapping[str, str]


def check_columns(columns: Mapping[str, str]) -> None:
    """Raise InterlinguaError unless `columns` names columns for text, title, id, lang only."""
    for role in columns:
        if role not in USUAL:
            raise InterlinguaError(f"columns: '{role}' is nothing that a column can be.{suggestion(role, USUAL)}")


def choose_columns(names: Sequence[str], columns: Mapping[str, str]) -> dict[str, str]:
    """text, title, id, lang → the name of its column: as `columns` says, else the usual one; text must be there.

    Raises BadFile for a table without a column of text, one without a column that `columns` names, or one with two of
    the same name.
    """
    listed = ", ".join(names[:20])
    twice = next((name for at, name in enumerate(names) if name in names[:at]), None)
    if twice is not None:
        raise BadFile(f"two columns are called '{twice}'. Rename one")
    absent = [name for name in columns.values() if name not in names]
    if absent:
        raise BadFile(f"no column '{absent[0]}'; the columns are {listed}")
    folded = {name.strip().casefold(): name for name in reversed(names)}
    usual = {role: folded[word] for role, words in USUAL.items() for word in reversed(words) if word in folded}
    chosen = {role: name for role, name in usual.items() if name not in columns.values()} | dict(columns)
    if "text" not in chosen:
        raise BadFile(f"no column of text; the columns are {listed}. Call one of them 'text', or say which it is with "
                      "--columns text=COLUMN (in Python: columns={'text': …})")
    return chosen


def to_row(cells: Mapping[str, Any], chosen: Mapping[str, str], left_out: set[str]) -> Row:
    """The row of `cells` (column → value). Other columns become metadata as strings; empty ones are left out, and those
    that hold lists, objects or bytes are noted in `left_out`. Raises BadRow where there is no text or no such language.
    """
    found = {role: cells.get(name) for role, name in chosen.items()}
    text = string(found, "text", "")
    if not text.strip():
        raise BadRow(f"no '{chosen['text']}'")
    lang = lang_of(found, None) if str(found.get("lang") or "").strip() else ""
    metadata: dict[str, str] = {}
    for name, value in cells.items():
        if name == "metadata" and isinstance(value, dict) and name not in chosen.values():
            metadata |= _strings(value, left_out)
        elif name not in chosen.values():
            metadata |= _strings({name: value}, left_out)
    row = Row(text, string(found, "title", ""), string(found, "id", ""), lang, metadata)
    if any("\0" in one for one in (row.text, row.title, row.id, *metadata, *metadata.values())):
        raise BadRow("a NUL character, which no text has")
    return row


def _strings(cells: Mapping[str, Any], left_out: set[str]) -> dict[str, str]:
    """What of `cells` can be metadata."""
    found = {}
    for name, value in cells.items():
        if isinstance(value, (list, tuple, dict, bytes)):
            left_out.add(name)
        elif value is not None and value != "":
            found[name] = json.dumps(value) if isinstance(value, (bool, int, float)) else str(value)
    return found
