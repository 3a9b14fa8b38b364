"""Readers of translation memories and localisation files: TMX, XLIFF, PO."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from gettext import GNUTranslations
from pathlib import Path
from typing import Literal, NamedTuple
from xml.parsers import expat

import polib

from interlingua.data.readers.rows import BadRow, BadRows, lang_of
from interlingua.data.readers.source import PairOptions, head, plain_name
from interlingua.data.records import ParallelPair
from interlingua.errors import BadInput
from interlingua.files import UNREADABLE, open_input, read_lines
from interlingua.text.languages import code_of_name, find_code, normalise_code

CHUNK = 1 << 16
ENCODING = re.compile(r"""<\?xml[^>]*?\sencoding\s*=\s*["']([\w.:-]+)""", re.ASCII)
OF_EXPAT = ("utf-8", "utf-16", "utf8", "utf16", "iso-8859-1", "us-ascii")


class Event(NamedTuple):
    """`name` is the element's name without its prefix, or the text; `line` counts from 1."""

    kind: Literal["start", "end", "text"]
    name: str
    attributes: dict[str, str]
    line: int


def xml_events(path: Path) -> Iterator[Event]:
    """The elements and texts of an XML file in document order, 64 KiB in memory at a time.

    A DOCTYPE is allowed (TMX has one) and its DTD is not read. Raises BadInput with the line for XML that is
    not well formed, for a declared entity (a bomb has one) and for a reference to an undeclared one; and for an
    encoding that Python does not know.
    """
    declared = ENCODING.match(head(path))
    encoding = declared[1].lower() if declared else ""
    is_known = not encoding or encoding in OF_EXPAT
    parser = expat.ParserCreate(None if is_known else "utf-8")
    parser.buffer_text = True
    events: list[Event] = []

    def add(kind: Literal["start", "end", "text"], name: str, attributes: dict[str, str] | None = None) -> None:
        events.append(Event(kind, name, attributes or {}, parser.CurrentLineNumber))

    def refuse(name: str, *_: object) -> None:
        raise BadInput(
            f"{path}, line {parser.CurrentLineNumber}: the entity '{name}' is not read, as files "
            "with entities can harm. Write the characters themselves."
        )

    parser.StartElementHandler = lambda tag, attributes: add("start", _local(tag), attributes)
    parser.EndElementHandler = lambda tag: add("end", _local(tag))
    parser.CharacterDataHandler = lambda text: add("text", text)
    parser.EntityDeclHandler = refuse
    parser.SkippedEntityHandler = refuse
    try:
        with open_input(path) as stream:
            # expat knows few encodings
            text = None if is_known else io.TextIOWrapper(stream, encoding)
            while chunk := stream.read(CHUNK) if text is None else text.read(CHUNK).encode():
                parser.Parse(chunk, False)
                yield from events
                events.clear()
            parser.Parse(b"", True)
            yield from events
    except expat.ExpatError as error:
        raise BadInput(
            f"{path}, line {error.lineno}: not well-formed XML "
            f"({expat.errors.messages[error.code]}). Export the file again."
        ) from error
    except (LookupError, UnicodeError) as error:
        fault = "is not in" if isinstance(error, UnicodeError) else "cannot be read, as nobody here knows"
        raise BadInput(
            f"{path}: {fault} the encoding '{encoding or 'that it says'}'. Convert the file to UTF-8."
        ) from error
    except UNREADABLE as error:
        raise BadInput(f"{path}: cannot be read ({error}).") from error


def _local(tag: str) -> str:
    return tag.rpartition(":")[2]


class TextOf:
    """Collects the text of one element, without the formatting codes of other programs inside it."""

    CODES = frozenset({"bpt", "ept", "ph", "it", "ut", "sub"})
    BREAKS = frozenset({"lb", "br", "x-br", "x-html-br"})
    """Types of a code that stands for a line break."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.inside = 0

    def feed(self, event: Event) -> None:
        if event.kind == "text":
            if not self.inside:
                self.parts.append(event.name)
            return
        types = {event.attributes.get(key, "").rpartition(":")[2] for key in ("ctype", "type", "subType")}
        if event.kind == "start" and types & self.BREAKS:
            self.parts.append(" ")
        if event.name in self.CODES:
            self.inside += 1 if event.kind == "start" else -1

    @property
    def text(self) -> str:
        """With white space collapsed: line breaks inside a segment are the file's layout."""
        return " ".join("".join(self.parts).split())


class Unit(NamedTuple):
    """A translation unit: its number in the file from 1, its line, and its variants as (language tag, text)."""

    number: int
    line: int
    variants: list[tuple[str, str]]


def is_tmx(path: Path, start: str) -> bool:
    return "<tmx" in start


def read_tmx(path: Path, bad: BadRows, options: PairOptions) -> Iterator[ParallelPair]:
    """The pairs of every unit, streamed. `source_lang` and `target_lang` choose among more than two languages;
    without both, every other language is paired with English (with the unit's first language where there is no
    English), source first. Pairs of one unit with several languages share a `group`. Units without the language
    asked for are counted, as are variants without text and in what is no language."""
    source_lang, target_lang = (tag and normalise_code(tag) for tag in (options.source_lang, options.target_lang))
    units = ((unit.line, unit) for unit in _tmx_units(path))
    for unit, texts in bad.parsed(path, units, lambda unit: (unit, _tmx_texts(unit, path, bad))):
        pairs = _pairs(texts, source_lang, target_lang)
        if not pairs:
            bad.passed_over(path, "units without a translation in the languages asked for")
        group = f"{path.name}#{unit.number}" if len(pairs) > 1 else ""
        for source, target in pairs:
            yield ParallelPair(texts[source], texts[target], source, target, group=group)


def _tmx_units(path: Path) -> Iterator[Unit]:
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


def _tmx_texts(unit: Unit, path: Path, bad: BadRows) -> dict[str, str]:
    texts: dict[str, str] = {}
    for tag, text in unit.variants:
        if not tag:
            raise BadRow("a variant without xml:lang")
        code = find_code(tag)
        if text and code:
            texts.setdefault(code, text)  # of en-GB and en-US, the first
        else:
            bad.passed_over(path, "empty variants not read" if code else f"variants in '{tag}', which is no language")
    if not texts:
        raise BadRow("a unit without a segment")
    return texts


def _pairs(texts: dict[str, str], source: str | None, target: str | None) -> list[tuple[str, str]]:
    if source and target:
        return [(source, target)] if source in texts and target in texts else []
    if source:
        return [(source, code) for code in texts if code != source] if source in texts else []
    pivot = target or ("en" if "en" in texts else None)
    if pivot:
        return [(code, pivot) for code in texts if code != pivot] if pivot in texts else []
    first = next(iter(texts))
    return [(first, code) for code in texts if code != first]


UNITS = frozenset({"trans-unit", "segment"})  # 1.2, 2.0


XLIFF = re.compile(r"<(?:[\w.-]+:)?xliff[\s>]")
DRAFTS = frozenset("new needs-translation needs-adaptation needs-l10n initial".split())
"""States of a target that nobody has finished; so are those that begin with `needs-review`."""


def is_xliff(path: Path, start: str) -> bool:
    return XLIFF.search(start) is not None


def read_xliff(path: Path, bad: BadRows, options: PairOptions) -> Iterator[ParallelPair]:
    """One record a trans-unit (1.2) or segment (2.0), streamed; languages from the file unless given. Units without
    a translation are counted, as are those that are not to be translated, not approved, or that a state calls
    unfinished; suggestions (alt-trans) are not read."""
    langs = {"source": options.source_lang, "target": options.target_lang}

    def parse(unit: Segment) -> tuple[ParallelPair, bool]:
        codes = []
        for side, lang in langs.items():
            if not (tag := lang or unit.tags.get(side)):
                raise BadRow(f"nothing tells the {side} language. Give {side}_lang")
            codes.append(lang_of({}, tag))
        if not unit.texts.get("source"):
            raise BadRow("a unit without a source text")
        source, target = codes
        return ParallelPair(unit.texts["source"], unit.texts.get("target", ""), source, target), unit.draft

    for pair, draft in bad.parsed(path, _xliff_units(path), parse):
        if pair.target and not draft:
            yield pair
        else:
            bad.passed_over(path, "unfinished units not read" if pair.target else "untranslated units not read")


class Segment(NamedTuple):
    """The texts of a unit by side, "source" and "target", their language tags, and whether it is unfinished."""

    texts: dict[str, str]
    tags: dict[str, str]
    draft: bool


def _xliff_units(path: Path) -> Iterator[tuple[int, Segment]]:
    document: dict[str, str] = {}
    tags: dict[str, str] = {}
    own: dict[str, str] = {}
    texts: dict[str, str] = {}
    text: TextOf | None = None
    suggestions, line, draft, held = 0, 0, False, False
    for event in xml_events(path):
        if event.kind == "start" and event.name == "xliff":
            document = tags = _language_tags(event)
        elif event.kind == "start" and event.name == "file":
            tags = document | _language_tags(event)
        elif event.name == "alt-trans":
            suggestions += 1 if event.kind == "start" else -1
        elif suggestions:
            continue
        elif event.kind == "start" and event.name == "unit":  # of 2.0, which says here what 1.2 says of a trans-unit
            held = _is_draft(event)
        elif event.kind == "start" and event.name in UNITS:
            texts, own, line, draft = {}, {}, event.line, held or _is_draft(event)
        elif event.kind == "end" and event.name in UNITS:
            yield line, Segment(texts, own | tags, draft)
        elif event.kind == "start" and event.name in ("source", "target"):
            text = TextOf()
            draft = draft or _is_draft(event)
            if tag := event.attributes.get("xml:lang"):
                own[event.name] = tag
        elif event.kind == "end" and event.name in ("source", "target") and text:
            texts[event.name] = text.text
            text = None
        elif text:
            text.feed(event)


def _is_draft(event: Event) -> bool:
    """Whether a unit or its target says that it is not to be translated, not approved, or unfinished."""
    state = event.attributes.get("state", "")
    refused = "no" in (event.attributes.get("translate"), event.attributes.get("approved"))
    return refused or state in DRAFTS or state.startswith("needs-review")


def _language_tags(event: Event) -> dict[str, str]:
    """The languages of the sides that an element says: a file in 1.2, the document in 2.0."""
    keys = {"source": ("source-language", "srcLang"), "target": ("target-language", "trgLang")}
    return {side: tag for side, names in keys.items() for name in names if (tag := event.attributes.get(name))}


def is_po(path: Path, start: str) -> bool:
    return plain_name(path).endswith((".po", ".pot")) or ("\nmsgid " in f"\n{start}" and "\nmsgstr" in start)


def read_po(path: Path, bad: BadRows, options: PairOptions) -> Iterator[ParallelPair]:
    """One record a translated entry, `msgid` as the source (English unless given). The target language is the
    header's `Language`, else the file name (`fr.po`), unless given. Fuzzy, obsolete and untranslated entries are
    counted. Of an entry with plurals the plural is paired with the form for `MANY`, as the header's `Plural-Forms`
    says, else with the last one."""
    content = "\n".join(line for _, line in read_lines(path)) + "\n"
    try:
        catalogue = polib.pofile(content.translate(HIDDEN))
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: not a PO file ({error}). Check it with msgfmt -c.") from error
    source = normalise_code(options.source_lang or "en")
    tag = options.target_lang or catalogue.metadata.get("Language") or code_of_name(plain_name(path).split(".")[0])
    if not tag:
        raise BadInput(
            f"{path}: neither the header (Language:) nor the file name tells the language. Give target_lang."
        )
    target, form = normalise_code(tag), _form_of_many(catalogue.metadata.get("Plural-Forms", ""))

    def parse(entry: polib.POEntry) -> ParallelPair:
        texts = (entry.msgid, entry.msgstr)
        if entry.msgid_plural:
            forms = entry.msgstr_plural
            if not forms:
                raise BadRow("an entry with a plural has no msgstr[0]")
            texts = (entry.msgid_plural, forms[form if form in forms else max(forms)])
        if not all(text.strip() for text in texts):
            raise BadRow("an empty side")
        original, translation = (text.translate(SHOWN) for text in texts)
        return ParallelPair(original, translation, source, target)

    return bad.parsed(path, _entries(path, catalogue, bad), parse)


MANY = 1_000_025
"""A number with the general form of the plural: it ends in nothing that has one of its own (1, 2, 3, 11, 1,000,000)."""
LINE_ENDS = "\v\f\x1c\x1d\x1e\x85\u2028\u2029"
"""Characters at which polib cuts lines, and PO files do not."""
HIDDEN = {ord(end): chr(0xF8F0 + place) for place, end in enumerate(LINE_ENDS)}
SHOWN = {ord(hidden): chr(end) for end, hidden in HIDDEN.items()}


def _form_of_many(rule: str) -> int | None:
    """The number of the plural form for `MANY`, by a header's rule; None where that is none."""
    probe = polib.POFile()
    probe.metadata = {"Content-Type": "text/plain; charset=utf-8", "Plural-Forms": rule}
    probe.append(polib.POEntry(msgid="1", msgid_plural="2", msgstr_plural={form: str(form) for form in range(9)}))
    try:
        return int(GNUTranslations(io.BytesIO(probe.to_binary())).ngettext("1", "2", MANY))
    except (ValueError, LookupError, ArithmeticError, RecursionError):
        return None


def _entries(path: Path, catalogue: polib.POFile, bad: BadRows) -> Iterator[tuple[int, polib.POEntry]]:
    for entry in catalogue:
        if entry.obsolete:
            bad.passed_over(path, "obsolete entries not read")
        elif entry.fuzzy:
            bad.passed_over(path, "fuzzy entries not read")
        elif not entry.translated():
            bad.passed_over(path, "untranslated entries not read")
        else:
            yield entry.linenum, entry
