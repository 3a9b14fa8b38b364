"""The passage inside a training row."""

from __future__ import annotations

from typing import Any

from interlingua.data.readers.bad_rows import BadRow, lang_of, string
from interlingua.data.records import Passage
from interlingua.text.normalise import text_hash

LARGEST = 1e300


def passage(row: dict[str, Any], lang: str, *, id_keys: tuple[str, ...] = (), text_key: str = "text") -> Passage:
    """The passage in a JSON object, in its own `lang` or the one given. Without an id under any of `id_keys` it gets
    one made from its words, so that one passage has one id wherever it occurs."""
    text, title = string(row, text_key), string(row, "title", "")
    lang = lang_of(row, lang) if row.get("lang") else lang
    given = next((string(row, key) for key in id_keys if row.get(key) not in (None, "")), None)
    return Passage(given or content_id(title, text), text, title, lang)


def content_id(title: str, text: str) -> str:
    """16 hex digits that are equal for passages with equal words (see `text_key`)."""
    return f"{text_hash(title, text):016x}"


def scores(row: dict[str, Any], count: int) -> tuple[float, ...]:
    """A row's `scores`, `count` finite numbers, or () when it has none."""
    given = row.get("scores")
    if given is None or given == []:
        return ()
    if not isinstance(given, list) or not all(type(one) in (int, float) and abs(one) < LARGEST for one in given):
        raise BadRow("'scores' must be a list of finite numbers")
    if len(given) != count:
        raise BadRow(f"{len(given)} scores, {count} are needed: of the first positive and of each negative")
    return tuple(map(float, given))
