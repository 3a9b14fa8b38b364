"""XLIFF 1.2 and 2.0, the exchange format of translation programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from interlingua.data.readers.bad_rows import BadRow, BadRows, lang_of
from interlingua.data.readers.xml_events import TextOf, xml_events
from interlingua.data.records import ParallelPair

UNITS = frozenset({"trans-unit", "segment"})  # 1.2, 2.0


def matches(path: Path, start: str) -> bool:
    return "<xliff" in start


def read(path: Path, bad: BadRows, *, source_lang: str | None = None, target_lang: str | None = None,
         ) -> Iterator[ParallelPair]:
    """One record a trans-unit (1.2) or segment (2.0), streamed; languages from the file unless given. Units without
    a translation are counted, suggestions (alt-trans) are not read."""
    langs = {"source": source_lang, "target": target_lang}
    for line, texts, named in _units(path):
        try:
            codes = {side: lang_of({"language": named.get(side)}, langs[side], "language") if not langs[side]
                     else lang_of({}, langs[side]) for side in langs}
            if not texts.get("source"):
                raise BadRow("a unit without a source text")
        except BadRow as reason:
            bad.reject(path, line, str(reason))
            continue
        if texts.get("target"):
            yield ParallelPair(texts["source"], texts["target"], codes["source"], codes["target"])
        else:
            bad.passed_over(path, "untranslated units not read")


def _units(path: Path) -> Iterator[tuple[int, dict[str, str], dict[str, str]]]:
    named: dict[str, str] = {}
    texts: dict[str, str] = {}
    text: TextOf | None = None
    suggestions, line = 0, 0
    for event in xml_events(path):
        if event.kind == "start" and event.name in ("xliff", "file"):
            for side, keys in (("source", ("source-language", "srcLang")), ("target", ("target-language", "trgLang"))):
                for key in keys:
                    named[side] = event.attributes.get(key) or named.get(side, "")
        elif event.name == "alt-trans":
            suggestions += 1 if event.kind == "start" else -1
        elif suggestions:
            continue
        elif event.kind == "start" and event.name in UNITS:
            texts, line = {}, event.line
        elif event.kind == "end" and event.name in UNITS:
            yield line, texts, named
        elif event.kind == "start" and event.name in ("source", "target"):
            text = TextOf()
        elif event.kind == "end" and event.name in ("source", "target") and text:
            texts[event.name] = text.text
            text = None
        elif text:
            text.feed(event)
