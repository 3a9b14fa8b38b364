"""Sentence pairs in columns: `source <tab> target [<tab> origin]`; Tatoeba's `ara-eng.tsv` is one such file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from interlingua.data.readers.bad_rows import BadRow, BadRows
from interlingua.data.readers.pairing import languages_of
from interlingua.data.readers.source import columns
from interlingua.data.records import ParallelPair
from interlingua.files import read_lines


def matches(path: Path, start: str) -> bool:
    return not start.lstrip().startswith(("{", "[", "<")) and 2 <= min(columns(start)) <= 3


def read(path: Path, bad: BadRows, *, source_lang: str | None = None, target_lang: str | None = None,
         ) -> Iterator[ParallelPair]:
    """One record a line; the languages of the columns are those in the file name unless given."""
    source, target = languages_of(path, source_lang, target_lang)

    def parse(line: str) -> ParallelPair:
        cells = line.split("\t")
        if len(cells) not in (2, 3):
            raise BadRow(f"{len(cells)} column(s), 2 or 3 are needed: source, target, origin")
        if not cells[0].strip() or not cells[1].strip():
            raise BadRow("an empty side")
        return ParallelPair(cells[0], cells[1], source, target, origin=cells[2] if len(cells) == 3 else "")

    return bad.parsed(path, read_lines(path), parse)
