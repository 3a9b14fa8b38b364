"""Readers of training triples by id, and of the texts behind the ids."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from interlingua.data.readers.questions import COLUMNS, is_triples, read_tsv_passages
from interlingua.data.readers.rows import BadRow, BadRows, json_object, judgement, lang_of, string
from interlingua.data.readers.source import (
    Format,
    NoOptions,
    PathLike,
    expand,
    filled_lines,
    first_lines,
    head,
    recognise,
)
from interlingua.data.records import Passage, Query
from interlingua.settings import Settings

ID_KEYS = ("_id", "id", "docid", "query_id")


def id_passages(path: Path, bad: BadRows, lang: str) -> Iterator[Passage]:
    """The passages of a TSV `id <tab> text` or `id <tab> title <tab> text`, or of jsonl `{_id | id | docid, title,
    text}`; a row's own `lang` wins over the one given. A passage needs a text or a title."""
    if head(path).partition("\n")[0].rstrip("\r") == "\t".join(COLUMNS):  # DPR's: in another order, quoted as csv
        return read_tsv_passages(path, bad, lang)
    return bad.parsed(path, filled_lines(path), _parser(path, lang))


def id_queries(path: Path, bad: BadRows, lang: str) -> Iterator[Query]:
    """The queries of a TSV `id <tab> text`, or of jsonl `{_id | id | query_id, text}`, all in one language."""
    parser = _parser(path, lang)

    def parse(line: str) -> Query:
        row = parser(line)
        if row.title:
            raise BadRow("a query has an id and a text, and nothing between them")
        if row.lang != lang:
            raise BadRow(f"a query in '{row.lang}' among those in '{lang}': all must be in one language (lang=…)")
        return Query(row.id, row.text, row.lang)

    return bad.parsed(path, filled_lines(path), parse)


def _parser(path: Path, lang: str) -> Callable[[str], Passage]:
    """Choose the parser of a file by its first line: jsonl or TSV."""
    parse = _of_object if head(path).lstrip().startswith("{") else _of_columns

    def filled(line: str) -> Passage:
        passage = parse(line, lang)
        if not passage.text.strip() and not passage.title.strip():
            raise BadRow(f"'{passage.id}' has no text")
        return passage

    return filled


def _of_object(line: str, default: str) -> Passage:
    row = json_object(line)
    key = next((key for key in ID_KEYS if key in row), ID_KEYS[0])
    return Passage(string(row, key), string(row, "text", ""), string(row, "title", ""), lang_of(row, default))


def _of_columns(line: str, lang: str) -> Passage:
    cells = line.split("\t")
    if len(cells) not in (2, 3) or not cells[0].strip():
        raise BadRow(f"{len(cells)} column(s), needed are an id and a text, perhaps a title between them")
    return Passage(cells[0].strip(), cells[-1], cells[1] if len(cells) == 3 else "", lang)


@dataclass(frozen=True, slots=True)
class IdTriple:
    """A query's id, the ids of its positive and then of its negatives (any number, also none), and a teacher's scores
    of these passages or none. `line` of `path` holds it."""

    query: str
    passages: tuple[str, ...]
    scores: tuple[float, ...]
    path: Path
    line: int


def read_id_triples(
    path: PathLike | Iterable[PathLike], bad: BadRows, *, format: str | None = None, scores: bool = False
) -> Iterator[IdTriple]:
    """The triples of files, gzipped or not; their rows are read as they are needed. Formats: `TRIPLES`. `scores` says
    that a TSV has them."""
    chosen = []
    for file in expand(path):
        head(file)
        reader = recognise(file, TRIPLES, format)
        chosen.append((file, reader, reader.checked({"scores": True} if scores else {})))
    return (triple for file, reader, options in chosen for triple in reader.read(file, bad, options))


def _matches_json(path: Path, start: str) -> bool:
    return start.lstrip().startswith("[")


Parts = tuple[str, tuple[str, ...], tuple[float, ...]]
"""Query, passages and scores of an `IdTriple`."""


def _triples(path: Path, bad: BadRows, parse: Callable[[str], Parts]) -> Iterator[IdTriple]:
    return (IdTriple(*parts, path, line) for line, parts in bad.placed(path, filled_lines(path), parse))


def _read_json(path: Path, bad: BadRows, options: NoOptions) -> Iterator[IdTriple]:
    """ColBERT's: `[query, positive, negative, …]` a line, or `[query, [positive, score], [negative, score], …]`."""
    return _triples(path, bad, _of_json)


def _of_json(text: str) -> Parts:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"not JSON ({error})") from error
    if not isinstance(row, list) or len(row) < 2:
        raise BadRow("a JSON list is needed: query, positive, negatives")
    query, *candidates = row
    scores: list[float] = []
    if isinstance(candidates[0], list):
        if not all(isinstance(one, list) and len(one) == 2 for one in candidates):
            raise BadRow("every passage must be [id, score], or none")
        candidates, scores = [one[0] for one in candidates], [_number(one[1]) for one in candidates]
    return _id(query), tuple(map(_id, candidates)), tuple(scores)


def _matches_qrels(path: Path, start: str) -> bool:
    rows = [line.split() for line in first_lines(start)]
    header = len(rows[0]) == 3 and rows[0][-1] == "score"
    return header or all(
        len(cells) == 4 and cells[1] in ("0", "Q0") and cells[3].lstrip("-").isdecimal() for cells in rows
    )


def _read_qrels(path: Path, bad: BadRows, options: NoOptions) -> Iterator[IdTriple]:
    """Judgements, TREC's or BEIR's: each passage of grade 1 or above is a positive, and no negative beside it."""

    def parse(line: str) -> tuple[str, str, float]:
        cells = judgement(line)
        if len(cells) not in (3, 4):
            raise BadRow(f"{len(cells)} columns, needed are query, 0, passage, grade, or query, passage, grade")
        return cells[0], cells[-2], _number(cells[-1])

    lines = (row for row in filled_lines(path) if row[0] > 1 or row[1].split()[-1] != "score")
    for number, (query, passage, grade) in bad.placed(path, lines, parse):
        if grade >= 1:
            yield IdTriple(query, (passage,), (), path, number)
        else:
            bad.passed_over(path, "judgements of grade 0 are no positives")


class TsvOptions(Settings):
    """Options that describe the columns."""

    scores: bool = Field(False, description="a teacher's scores stand in two columns before the ids")


def _read_tsv(path: Path, bad: BadRows, options: TsvOptions) -> Iterator[IdTriple]:
    """`query <tab> positive <tab> negative [<tab> negative …]`; with `scores` `score of the positive <tab> score of the
    negative <tab> query <tab> positive <tab> negative`, as the scores of MS MARCO's cross-encoders are published
    (Hofstätter et al. 2020)."""
    return _triples(path, bad, lambda line: _of_cells(line, options.scores))


def _of_cells(text: str, scored: bool) -> Parts:
    cells = text.split("\t")
    if scored and len(cells) != 5:
        raise BadRow(f"{len(cells)} column(s), 5 are needed: score, score, query, positive, negative")
    scores, ids = (cells[:2], cells[2:]) if scored else ([], cells)
    if len(ids) < 3:
        raise BadRow(f"{len(ids)} column(s), at least 3 are needed: query, positive, negative")
    query, *passages = map(_id, ids)
    return query, tuple(passages), tuple(map(_number, scores))


def _id(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise BadRow(f"{value!r} is no id")
    if " " in value.strip():
        raise BadRow(f"'{value[:40]}' is no id: triples of texts are read as questions (kind: questions)")
    return value.strip()


def _number(value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = float("nan")
    if number - number != 0:  # NaN, infinity
        raise BadRow(f"{value!r} is no score")
    return number


TRIPLES: tuple[Format[IdTriple], ...] = (
    Format("jsonl", "jsonl of [query, positive, negatives …] by id, perhaps with scores", _read_json, _matches_json),
    Format("qrels", "judgements of TREC or BEIR", _read_qrels, _matches_qrels),
    Format("tsv", "TSV of query, positive, negative by id", _read_tsv, is_triples, TsvOptions),
)
