"""What every layout of a test collection shares: finding files, unique ids, passages, questions, judgements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from interlingua.data.readers.bad_rows import BadRow, json_object, lang_of, string
from interlingua.data.readers.source import filled_lines, head
from interlingua.data.records import Passage, Qrels, Query
from interlingua.errors import InterlinguaError
from interlingua.files import is_input, read_lines

Item = TypeVar("Item", bound=Passage | Query)


def find(folder: Path, *names: str) -> Path | None:
    """The file of one of these names in `folder`, gzipped or not."""
    for name in names:
        for candidate in (folder / name, folder / f"{name}.gz"):
            if is_input(candidate):
                return candidate
    return None


def needed(folder: Path, *names: str) -> Path:
    """`find`, or an error that says which file of the collection is missing."""
    found = find(folder, *names)
    if found is None:
        raise InterlinguaError(f"{folder}: no {' or '.join(names)} (or .gz) in the folder. "
                               "A collection needs its passages, its queries and its qrels.")
    return found


def parsed(path: Path, rows: Iterator[tuple[int, str]], parse: Callable[[str], Item], what: str,
           seen: set[str] | None = None) -> Iterator[Item]:
    """The items on the rows. Raises InterlinguaError for a bad row, an id that occurs twice, an empty file."""
    head(path)
    seen = set() if seen is None else seen

    def unique(row: str) -> Item:
        item = parse(row)
        if item.id in seen:
            raise BadRow(f"the {what} id '{item.id}' occurs twice")
        seen.add(item.id)
        return item

    for place, row in rows:
        try:
            yield unique(row)
        except BadRow as bad:
            raise InterlinguaError(f"{path}, line {place}: {bad}. Mend the collection: a test collection is read "
                                   "whole or not at all.") from bad


def language_in(row: dict[str, Any], default: str) -> str:
    """The language of a row, else the collection's; '' where neither is known."""
    return lang_of(row, default) if row.get("lang") or default else ""


def jsonl_passages(path: Path, lang: str, *, id_keys: tuple[str, ...] = ("id", "_id", "docid"),
                   seen: set[str] | None = None) -> Iterator[Passage]:
    """Passages `{id, title, text[, lang]}`, or `{id, contents}` in Anserini's way: title, blank line, text."""

    def parse(line: str) -> Passage:
        row = json_object(line)
        number = string(row, next((key for key in id_keys if key in row), id_keys[0]))
        if "text" not in row and "contents" in row:
            title, text = split_contents(string(row, "contents", ""))
        elif "text" in row:
            title, text = string(row, "title", ""), string(row, "text", "")
        else:
            raise BadRow(f"no 'text' and no 'contents' (there is: {', '.join(row)})")
        return Passage(number, text, title, language_in(row, lang))

    return parsed(path, filled_lines(path), parse, "passage", seen)


def split_contents(contents: str) -> tuple[str, str]:
    """(title, text) of `title, blank line, text`, parted at the first blank line: the text may have more."""
    title, gap, text = contents.partition("\n\n")
    return (title.strip(), text) if gap else ("", contents)


def tsv_queries(path: Path, lang: str) -> Iterator[Query]:
    """Questions `id <tab> text[ <tab> language]`."""

    def parse(line: str) -> Query:
        cells = line.split("\t")
        if len(cells) not in (2, 3):
            raise BadRow(f"{len(cells)} column(s), 2 or 3 are needed: id, text, language")
        row = dict(zip(("id", "text", "lang"), cells, strict=False))
        return Query(string(row, "id"), string(row, "text"), language_in(row, lang))

    return parsed(path, filled_lines(path), parse, "query")


def read_qrels(path: Path) -> Qrels:
    """Judgements: TREC's four columns `query 0 passage grade`, or BEIR's three `query passage grade` with a header.

    Raises InterlinguaError for a wrong number of columns, a grade that is no integer, or two grades for one passage.
    """
    head(path)
    qrels: Qrels = {}
    for number, line in read_lines(path):
        cells = line.split("\t") if "\t" in line else line.split()
        if not line.strip() or (number == 1 and len(cells) == 3 and not _integer(cells[2])):
            continue
        if len(cells) not in (3, 4) or not _integer(cells[-1]):
            raise InterlinguaError(f"{path}, line {number}: '{line[:80]}' is no judgement. Needed are the columns "
                                   "query, 0, passage, grade (TREC), or query, passage, grade (BEIR).")
        query, passage, grade = cells[0].strip(), cells[-2].strip(), int(cells[-1])
        if qrels.setdefault(query, {}).setdefault(passage, grade) != grade:
            raise InterlinguaError(f"{path}, line {number}: passage '{passage}' has two grades for query '{query}'. "
                                   "Keep one.")
    return qrels


def _integer(cell: str) -> bool:
    return cell.strip().removeprefix("-").isdecimal()
