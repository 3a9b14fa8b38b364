"""XOR-TyDi's files: questions with their short answers, and predictions in the form its leaderboard takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from interlingua.data.collections.rows import parsed
from interlingua.data.readers.bad_rows import BadRow, json_object, lang_of, string
from interlingua.data.readers.json_array import json_array
from interlingua.data.readers.source import filled_lines, head
from interlingua.data.records import Query
from interlingua.errors import InterlinguaError


@dataclass(frozen=True, slots=True)
class AnsweredQuery(Query):
    """A test question whose right answers are known as text, not as judged passages."""

    answers: tuple[str, ...] = ()


def read_answered(path: str | Path) -> list[AnsweredQuery]:
    """Questions `{id, question, lang, answers: [text, …]}`, one a line (Asai et al. 2021), gzipped or not.

    Raises InterlinguaError naming file and line for a bad row, an id that occurs twice, an answer without text.
    """
    def parse(line: str) -> AnsweredQuery:
        row = json_object(line)
        return AnsweredQuery(string(row, "id"), string(row, "question"), lang_of(row, None), texts_in(row, "answers"))

    return list(parsed(Path(path), filled_lines(Path(path)), parse, "question"))


def is_prediction(path: str | Path) -> bool:
    """Whether the file begins as a JSON array; a TREC run does not."""
    return head(Path(path)).lstrip().startswith("[")


def read_predictions(path: str | Path) -> dict[str, tuple[str, ...]]:
    """Question id → passage texts in rank order, from `[{"id": …, "lang": …, "ctxs": [text, …]}, …]`.

    Raises InterlinguaError naming file and line for a bad row or an id that occurs twice.
    """
    found: dict[str, tuple[str, ...]] = {}
    for line, row in json_array(Path(path)):
        try:
            name = string(row, "id")
            if name in found:
                raise BadRow(f"the question id '{name}' occurs twice")
            found[name] = texts_in(row, "ctxs", blank=True)
        except BadRow as bad:
            raise InterlinguaError(f"{path}, line {line}: {bad}. Needed is a list of objects "
                                   '{"id": …, "lang": …, "ctxs": [text, …]}.') from bad
    return found


def texts_in(row: dict[str, object], key: str, *, blank: bool = False) -> tuple[str, ...]:
    """The list of texts under `key`. An answer must not be `blank`: it would be found in every passage."""
    texts = row.get(key)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadRow(f"'{key}' must be a list of texts")
    if not blank and not all(text.strip() for text in texts):
        raise BadRow(f"'{key}' holds a text that is empty")
    return tuple(texts)
