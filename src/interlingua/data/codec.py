"""Records as lines of JSON and back."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, TypeVar, cast

from interlingua.data.records import Document, LinkedDocuments, ParallelPair, Passage, QuestionPassage, Sentence

TrainingRecord = QuestionPassage | ParallelPair | Sentence | Document | LinkedDocuments
Record = TypeVar("Record", QuestionPassage, ParallelPair, Sentence, Document, LinkedDocuments)

_NAMES = {kind: tuple(one.name for one in fields(kind))
          for kind in (QuestionPassage, ParallelPair, Sentence, Document, LinkedDocuments, Passage)}


def encode(record: TrainingRecord) -> str:
    """The record as one line of JSON. Fields of records inside it become objects."""
    return json.dumps(_plain(record), ensure_ascii=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    names = _NAMES.get(type(value))
    if names:
        return {name: _plain(getattr(value, name)) for name in names}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def decode(kind: type[Record], line: str | bytes) -> Record:
    """The record of `kind` on a line that `encode` wrote."""
    return cast(Record, _record(kind, json.loads(line)))


def _record(kind: type[TrainingRecord], row: dict[str, Any]) -> TrainingRecord:
    if kind is QuestionPassage:
        for key in ("positives", "negatives"):
            row[key] = tuple(Passage(**passage) for passage in row[key])
    elif kind is Document:
        row["sentences"] = tuple(row["sentences"])
    elif kind is LinkedDocuments:
        row = {side: _record(Document, document) for side, document in row.items()}
    return kind(**row)


def language_of(record: TrainingRecord) -> str:
    """The language that streams balance over: the one that is not English where there are two."""
    if isinstance(record, LinkedDocuments):
        return ParallelPair("", "", record.source.lang, record.target.lang).lang
    return record.lang
