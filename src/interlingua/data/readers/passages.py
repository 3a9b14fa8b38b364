"""The passage inside a training row."""

from __future__ import annotations

from typing import Any

from interlingua.data.readers.bad_rows import string
from interlingua.data.records import Passage
from interlingua.text.normalise import text_hash


def passage(row: dict[str, Any], lang: str, *, id_keys: tuple[str, ...] = (), text_key: str = "text") -> Passage:
    """The passage in a JSON object. Without an id under any of `id_keys` it gets one made from its words, so that
    one passage has one id wherever it occurs."""
    text, title = string(row, text_key), string(row, "title", "")
    given = next((string(row, key) for key in id_keys if row.get(key) not in (None, "")), None)
    return Passage(given or content_id(title, text), text, title, lang)


def content_id(title: str, text: str) -> str:
    """16 hex digits that are equal for passages with equal words (see `text_key`)."""
    return f"{text_hash(title, text):016x}"
