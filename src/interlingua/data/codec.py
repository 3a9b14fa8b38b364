"""Records as lines of JSON and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar, cast

from interlingua.data.records import Document, LinkedDocuments, ParallelPair, Passage, Query, QuestionPassage, Sentence

TrainingRecord = QuestionPassage | ParallelPair | Sentence | Document | LinkedDocuments
StoredRecord = TrainingRecord | Passage | Query
Record = TypeVar("Record", QuestionPassage, ParallelPair, Sentence, Document, LinkedDocuments, Passage, Query)

_NAMES = {kind: tuple(one.name for one in fields(kind))
          for kind in (QuestionPassage, ParallelPair, Sentence, Document, LinkedDocuments, Passage, Query)}


def encode(record: StoredRecord) -> str:
    """The record as one line of JSON. Fields of records inside it become objects; empty metadata are left out."""
    return json.dumps(_plain(record), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    names = _NAMES.get(type(value))
    if names:
        return {name: _plain(getattr(value, name)) for name in names if name != "metadata" or value.metadata}
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def decode(kind: type[Record], line: str | bytes) -> Record:
    """The record of `kind` on a line that `encode` wrote."""
    return cast(Record, _record(kind, json.loads(line)))


def _record(kind: type[StoredRecord], row: dict[str, Any]) -> StoredRecord:
    if kind is QuestionPassage:
        for key in ("positives", "negatives"):
            row[key] = tuple(Passage(**passage) for passage in row[key])
        row["scores"] = tuple(row.get("scores", ()))  # stores written before there were scores have none
    elif kind is Document:
        row["sentences"] = tuple(row["sentences"])
    elif kind is LinkedDocuments:
        row = {side: _record(Document, document) for side, document in row.items()}
    return kind(**row)


def language_of(record: StoredRecord) -> str:
    """The language that streams balance over: the one that is not English where there are two."""
    if isinstance(record, LinkedDocuments):
        return ParallelPair("", "", record.source.lang, record.target.lang).lang
    return record.lang
