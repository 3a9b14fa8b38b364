"""Our own plain jsonl for sentence pairs: the fields of `ParallelPair`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from interlingua.data.readers.bad_rows import BadRow, BadRows, json_object, lang_of, string
from interlingua.data.readers.pairing import languages_in_name
from interlingua.data.readers.source import filled_lines, first_keys
from interlingua.data.records import ParallelPair


def matches(path: Path, start: str) -> bool:
    return {"source", "target"} <= first_keys(start)


def read(path: Path, bad: BadRows, *, source_lang: str | None = None, target_lang: str | None = None,
         ) -> Iterator[ParallelPair]:
    """One record a line: `source, target` and, optional, `source_lang, target_lang, score, group, origin`. The row's
    languages win over those given, which win over those in the file name."""
    named = languages_in_name(path) or (None, None)

    def parse(line: str) -> ParallelPair:
        row = json_object(line)
        score = row.get("score")
        if score is not None and (isinstance(score, bool) or not isinstance(score, (int, float))):
            raise BadRow("'score' must be a number")
        return ParallelPair(string(row, "source"), string(row, "target"),
                            lang_of(row, source_lang or named[0], "source_lang"),
                            lang_of(row, target_lang or named[1], "target_lang"),
                            None if score is None else float(score),
                            string(row, "group", ""), string(row, "origin", ""))

    return bad.parsed(path, filled_lines(path), parse)
