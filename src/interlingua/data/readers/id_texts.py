"""Texts under their ids: MS MARCO's `collection.tsv` and `queries.tsv`, BEIR's `corpus.jsonl` and `queries.jsonl`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from interlingua.data.readers.bad_rows import BadRow, BadRows, json_object, lang_of, string
from interlingua.data.readers.source import filled_lines, head
from interlingua.data.records import Passage, Query

ID_KEYS = ("_id", "id", "docid", "query_id")


def id_passages(path: Path, bad: BadRows, lang: str) -> Iterator[Passage]:
    """The passages of a TSV `id <tab> text` or `id <tab> title <tab> text`, or of jsonl `{_id | id | docid, title,
    text}`; a row's own `lang` wins over the one given. A passage needs a text or a title."""
    return bad.parsed(path, filled_lines(path), _parser(path, lang))


def id_queries(path: Path, bad: BadRows, lang: str) -> Iterator[Query]:
    """The queries of a TSV `id <tab> text`, or of jsonl `{_id | id | query_id, text}`, all in one language."""
    of = _parser(path, lang)

    def parse(line: str) -> Query:
        row = of(line)
        if row.title:
            raise BadRow("a query has an id and a text, and nothing between them")
        if row.lang != lang:
            raise BadRow(f"a query in '{row.lang}' among those in '{lang}': all must be in one language (lang=…)")
        return Query(row.id, row.text, row.lang)

    return bad.parsed(path, filled_lines(path), parse)


def _parser(path: Path, lang: str) -> Callable[[str], Passage]:
    """How the lines of the file are read: by the first of them it is jsonl or TSV."""
    return _object(lang) if head(path).lstrip().startswith("{") else _cells(lang)


def _object(default: str) -> Callable[[str], Passage]:
    def parse(line: str) -> Passage:
        row = json_object(line)
        key = next((key for key in ID_KEYS if key in row), ID_KEYS[0])
        return _filled(Passage(string(row, key), string(row, "text", ""), string(row, "title", ""),
                               lang_of(row, default)))

    return parse


def _cells(lang: str) -> Callable[[str], Passage]:
    def parse(line: str) -> Passage:
        cells = line.split("\t")
        if len(cells) not in (2, 3) or not cells[0].strip():
            raise BadRow(f"{len(cells)} column(s), needed are an id and a text, perhaps a title between them")
        return _filled(Passage(cells[0].strip(), cells[-1], cells[1] if len(cells) == 3 else "", lang))

    return parse


def _filled(passage: Passage) -> Passage:
    if not passage.text.strip() and not passage.title.strip():
        raise BadRow(f"'{passage.id}' has no text")
    return passage
