"""What is asked of an index, checked, before anything is searched: the same for every store."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from interlingua.data.records import Query
from interlingua.errors import InterlinguaError, suggestion
from interlingua.text.detect import detect_language

MODES = ("hybrid", "dense", "lexical")


class Questions(NamedTuple):
    """Questions with their languages, and the languages to search in, with the passages of each."""

    queries: list[Query]
    searched: dict[str, int]


def questions(texts: Sequence[str], lang: str | Sequence[str | None] | None, mode: str, langs: Names[str] | None,
              languages: Mapping[str, int], place: object) -> Questions:
    """`texts` as questions in `lang` (one for all or one for each; detected where None), for a search of `mode` among
    the passages in `langs` (None: all) of the index at `place`, which has `languages`.

    Raises InterlinguaError for an unknown mode, another number of languages than of questions, and a language in
    which there is no passage.
    """
    if mode not in MODES:
        raise InterlinguaError(f"mode '{mode}' is unknown.{suggestion(mode, MODES)}")
    given = [lang] * len(texts) if lang is None or isinstance(lang, str) else list(lang)
    if len(given) != len(texts):
        raise InterlinguaError(f"{len(given)} languages for {len(texts)} questions: give one for each.")
    for name in langs or ():
        if name not in languages:
            unknown = f" Of {languages['']:,} passages the language is unknown." if languages.get("") else ""
            raise InterlinguaError(f"{place}: has no passage in language '{name}'."
                                   f"{suggestion(name, languages)}{unknown}")
    queries = [Query(f"question {number}", text, known or detect_language(text))
               for number, (text, known) in enumerate(zip(texts, given, strict=True), 1)]
    return Questions(queries, {name: count for name, count in languages.items() if langs is None or name in langs})
