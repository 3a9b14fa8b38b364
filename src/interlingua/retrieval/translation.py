"""Queries in the language of the passages, translated beforehand or by a program: QT + BM25."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from interlingua.data.collections import irds
from interlingua.data.readers.bad_rows import BadRow, json_object, lang_of, string
from interlingua.data.readers.source import filled_lines, head
from interlingua.data.records import Passage, Query
from interlingua.errors import InterlinguaError

Translate = Callable[[list[str]], Sequence[str]]
"""texts in, as many translations out, in order"""


def read_translations(path: str | Path) -> dict[str, Query]:
    """Query id → its translation, from lines `id <tab> text[ <tab> language]` or objects `{id, text[, lang]}`, gzipped
    or not; or from translated topics, `ir_datasets:hc4/zh/test#mt_title`. `lang` is '' where a row has none.

    Raises InterlinguaError naming file and line for a bad row, a text that is empty, or an id that occurs twice.
    """
    if str(path).startswith(irds.PREFIX):
        return {query.id: query for query in irds.queries(str(path).removeprefix(irds.PREFIX))}
    path = Path(path)
    jsonl = head(path).lstrip().startswith("{")
    found: dict[str, Query] = {}
    for number, line in filled_lines(path):
        try:
            query = _parse(line, jsonl)
            if query.id in found:
                raise BadRow(f"the query id '{query.id}' occurs twice")
        except BadRow as bad:
            raise InterlinguaError(f"{path}, line {number}: {bad}. Needed are the columns id, text (and language), or "
                                   'an object {"id": …, "text": …}.') from bad
        found[query.id] = query
    return found


def _parse(line: str, jsonl: bool) -> Query:
    if jsonl:
        row = json_object(line)
    else:
        cells = line.split("\t")
        if len(cells) not in (2, 3):
            raise BadRow(f"{len(cells)} column(s), 2 or 3 are needed")
        row = dict(zip(("id", "text", "lang"), cells, strict=False))
    return Query(string(row, "id"), string(row, "text"), lang_of(row, None) if row.get("lang") else "")


def translated_queries(queries: Sequence[Query], translations: Mapping[str, Query], passages_lang: str,
                       where: str = "the translations") -> list[Query]:
    """`queries` with their translated texts. The language is the row's own, else `passages_lang`.

    Raises InterlinguaError for queries without a translation, saying how many, and where the language is unknown.
    """
    missing = [query.id for query in queries if query.id not in translations]
    if missing:
        raise InterlinguaError(f"{where}: no translation of {len(missing):,} of {len(queries):,} queries, the first is "
                               f"'{missing[0]}'. Give each query's id and text.")
    found = [Query(query.id, translations[query.id].text, translations[query.id].lang or passages_lang)
             for query in queries]
    nameless = next((query.id for query in found if not query.lang), None)
    if nameless is not None:
        raise InterlinguaError(f"{where}: the language of '{nameless}' is unknown, as the passages are of several. "
                               "Give it as a third column, or as a field lang.")
    return found


def translate_queries(queries: Sequence[Query], translate: Translate, passages_lang: str) -> list[Query]:
    """`queries` through `translate`, each as one line of text. Raises InterlinguaError for another number of
    translations than queries, or an empty one."""
    lines = [" ".join(query.text.split()) for query in queries]
    texts = list(translate(lines))
    if len(texts) != len(lines):
        raise InterlinguaError(f"the translation has {len(texts):,} lines for {len(lines):,} queries. It must give one "
                               "line for each line.")
    empty = [query.id for query, text in zip(queries, texts, strict=True) if not text.strip()]
    if empty:
        raise InterlinguaError(f"the translation of {len(empty):,} queries is empty, the first is '{empty[0]}'.")
    translations = {query.id: Query(query.id, text.strip()) for query, text in zip(queries, texts, strict=True)}
    return translated_queries(queries, translations, passages_lang)


def command(argv: Sequence[str]) -> Translate:
    """A `translate` that runs a program: one text a line on its standard input, one translation a line on its standard
    output, UTF-8. `argv` is the program and its arguments; no shell reads them.

    Raises InterlinguaError when it is given nothing to run; the `translate` does when the program is not there, fails,
    or writes what is not UTF-8.
    """
    if not argv:
        raise InterlinguaError("the command that translates is empty. Give a program and its arguments.")
    program = [*argv]

    def translate(lines: list[str]) -> list[str]:
        if not lines:
            return []
        try:
            done = subprocess.run(program, input="".join(f"{line}\n" for line in lines).encode("utf-8"),
                                  capture_output=True, check=False)
        except OSError as error:
            raise InterlinguaError(f"{program[0]}: cannot be run ({error.strerror or error}).") from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise InterlinguaError(f"{program[0]}: failed with exit code {done.returncode}"
                                   f"{f' ({said[-1]})' if said else ''}.")
        try:
            return done.stdout.decode("utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise InterlinguaError(f"{program[0]}: its output is not UTF-8 ({error.reason}).") from error

    return translate


def language_of(passages: Sequence[Passage]) -> str:
    """The language of the passages; '' where they have several."""
    langs = getattr(passages, "langs", None) or {passage.lang for passage in passages}
    return next(iter(langs)) if len(langs) == 1 else ""
