"""Raw sentences: plain text, one a line, or jsonl of texts or documents."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from interlingua.data.readers import documents
from interlingua.data.readers.bad_rows import BadRow, BadRows
from interlingua.data.readers.pairing import language_suffix
from interlingua.data.readers.source import columns, plain_name
from interlingua.data.records import Sentence
from interlingua.errors import InterlinguaError
from interlingua.files import read_lines
from interlingua.text.languages import find_code, normalise_code


def matches_text(path: Path, start: str) -> bool:
    return not start.lstrip().startswith(("{", "[{", "<")) and columns(start) == {1}


def read_text(path: Path, bad: BadRows, *, lang: str | None = None) -> Iterator[Sentence]:
    """One record a line that is not blank (blank ones are counted); the language is given, or the name's ending
    (`news.ar`, `news.ar.gz`), or the whole name (`ar.txt`)."""
    code = lang or language_suffix(path) or find_code(plain_name(path).split(".")[0])
    if not code:
        raise InterlinguaError(f"{path}: the file name tells no language (like ar.txt). Give lang.")
    code = normalise_code(code)

    def parse(line: str) -> Sentence:
        if "\t" in line:
            raise BadRow("a tab: this looks like a table. Of a parallel file say which side (side='source')")
        return Sentence(line, code)

    def filled() -> Iterator[tuple[int, str]]:
        for number, line in read_lines(path):
            if line.strip():
                yield number, line
            else:
                bad.passed_over(path, "blank lines")

    return bad.parsed(path, filled(), parse)


def read_jsonl(path: Path, bad: BadRows, *, lang: str | None = None) -> Iterator[Sentence]:
    """Every sentence of every document; a `text` that nobody split is split first."""
    for document in documents.read(path, bad, lang=lang):
        for sentence in document.sentences:
            yield Sentence(sentence, document.lang)
