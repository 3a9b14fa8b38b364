"""Documents as jsonl: `sentences` (a list) or `text`, which is split, and `lang, id, title, group`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from interlingua.data.readers.bad_rows import BadRow, BadRows, json_object, lang_of, string
from interlingua.data.readers.source import filled_lines, first_keys
from interlingua.data.records import Document
from interlingua.text.sentences import split_sentences


def matches(path: Path, start: str) -> bool:
    return bool({"sentences", "text"} & first_keys(start))


def read(path: Path, bad: BadRows, *, lang: str | None = None) -> Iterator[Document]:
    """One record a line. A `text` without `sentences` is split by `split_sentences`. The row's `lang` wins over the one
    given."""
    return bad.parsed(path, filled_lines(path), lambda line: parse(line, lang))


def parse(line: str, default: str | None) -> Document:
    """The document on a line; BadRow for a field that is missing or empty."""
    row = json_object(line)
    sentences = row.get("sentences")
    if sentences is None:
        sentences = split_sentences(string(row, "text"), lang_of(row, default))
    if not isinstance(sentences, list) or not sentences:
        raise BadRow("'sentences' must be a list with at least one sentence")
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str) or not sentence.strip():
            raise BadRow(f"sentences[{number}] is empty or no text")
    return Document(tuple(sentences), lang_of(row, default), string(row, "id", ""), string(row, "title", ""),
                    string(row, "group", ""))
