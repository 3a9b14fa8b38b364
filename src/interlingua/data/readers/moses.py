"""Moses' two files, line k of one translating line k of the other; Tatoeba (LASER) comes so, too."""

from __future__ import annotations

from collections.abc import Iterator

from interlingua.data.readers.bad_rows import BadRow, BadRows
from interlingua.data.readers.pairing import TwoFiles, language_suffix
from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError
from interlingua.files import read_lines
from interlingua.text.languages import normalise_code


def read(path: TwoFiles, bad: BadRows, *, source_lang: str | None = None, target_lang: str | None = None,
         ) -> Iterator[ParallelPair]:
    """One record a line; the languages are the names' endings unless given.

    Raises InterlinguaError when the files have different numbers of lines, before the first record: from the line
    that is missing on, every pair would be a wrong translation.
    """
    first, second = path
    source = normalise_code(source_lang or language_suffix(first) or _unknown(path))
    target = normalise_code(target_lang or language_suffix(second) or _unknown(path))
    counts = [sum(1 for _ in read_lines(file)) for file in path]
    if counts[0] != counts[1]:
        raise InterlinguaError(f"{first} has {counts[0]:,} lines, {second} has {counts[1]:,}. "
                               "They must translate each other line by line: fetch both again.")

    def parse(texts: tuple[str, str]) -> ParallelPair:
        if not texts[0].strip() or not texts[1].strip():
            raise BadRow("an empty side")
        return ParallelPair(*texts, source, target)

    lines = zip(read_lines(first), read_lines(second), strict=True)
    return bad.parsed(first, ((number, (text, other)) for (number, text), (_, other) in lines), parse)


def _unknown(path: TwoFiles) -> str:
    raise InterlinguaError(f"{path[0]}, {path[1]}: the names end in no language. Give source_lang and target_lang.")
