"""Function words that are not searched for: the short lists of `stopwords.tsv` beside this file."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def stopwords() -> dict[str, tuple[str, ...]]:
    """Language code → its function words, as they are written (lower case, with their diacritics)."""
    rows = files("interlingua.text.analyzers").joinpath("stopwords.tsv").read_text("utf-8").splitlines()[1:]
    return {lang: tuple(words.split()) for langs, words in (row.split("\t") for row in rows) for lang in langs.split()}
