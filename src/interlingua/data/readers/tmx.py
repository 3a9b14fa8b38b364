"""TMX 1.4 translation memories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from interlingua.data.readers.bad_rows import BadRow, BadRows, lang_of
from interlingua.data.readers.xml_events import TextOf, xml_events
from interlingua.data.records import ParallelPair


class Unit(NamedTuple):
    """A translation unit: its number in the file from 1, its line, and its variants as (language tag, text)."""

    number: int
    line: int
    variants: list[tuple[str, str]]


def matches(path: Path, start: str) -> bool:
    return "<tmx" in start


def read(path: Path, bad: BadRows, *, source_lang: str | None = None, target_lang: str | None = None,
         ) -> Iterator[ParallelPair]:
    """The pairs of every unit, streamed. `source_lang` and `target_lang` choose among more than two languages;
    without both, every other language is paired with English (with the unit's first language where there is no
    English), source first. Pairs of one unit with several languages share a `group`. Units without the language
    asked for are counted."""
    for unit in _units(path):
        try:
            texts = _texts(unit)
        except BadRow as reason:
            bad.reject(path, unit.line, str(reason))
            continue
        pairs = _pairs(texts, source_lang, target_lang)
        if not pairs:
            bad.passed_over(path, "units without a translation in the languages asked for")
        group = f"{path.name}#{unit.number}" if len(pairs) > 1 else ""
        for source, target in pairs:
            yield ParallelPair(texts[source], texts[target], source, target, group=group)


def _units(path: Path) -> Iterator[Unit]:
    unit, text, lang, number = Unit(0, 0, []), None, "", 0
    for event in xml_events(path):
        if event.kind == "start" and event.name == "tu":
            number += 1
            unit = Unit(number, event.line, [])
        elif event.kind == "start" and event.name == "tuv":
            lang = event.attributes.get("xml:lang") or event.attributes.get("lang", "")
        elif event.kind == "start" and event.name == "seg":
            text = TextOf()
        elif event.kind == "end" and event.name == "seg" and text:
            unit.variants.append((lang, text.text))
            text = None
        elif event.kind == "end" and event.name == "tu":
            yield unit
        elif text:
            text.feed(event)


def _texts(unit: Unit) -> dict[str, str]:
    texts: dict[str, str] = {}
    for tag, text in unit.variants:
        code = lang_of({"xml:lang": tag}, None, "xml:lang")
        if not text:
            raise BadRow(f"the segment in '{tag}' is empty")
        texts.setdefault(code, text)  # of en-GB and en-US, the first
    if not texts:
        raise BadRow("a unit without a segment")
    return texts


def _pairs(texts: dict[str, str], source: str | None, target: str | None) -> list[tuple[str, str]]:
    source, target = (lang_of({}, tag) if tag else None for tag in (source, target))
    if source and target:
        return [(source, target)] if source in texts and target in texts else []
    if source:
        return [(source, code) for code in texts if code != source] if source in texts else []
    pivot = target or ("en" if "en" in texts else None)
    if pivot:
        return [(code, pivot) for code in texts if code != pivot] if pivot in texts else []
    first = next(iter(texts))
    return [(first, code) for code in texts if code != first]
