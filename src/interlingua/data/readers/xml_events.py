"""XML as a stream of events, from untrusted files: no entity is declared, no external file is ever read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple
from xml.parsers import expat

from interlingua.errors import InterlinguaError
from interlingua.files import UNREADABLE, open_input

CHUNK = 1 << 16


class Event(NamedTuple):
    """`name` is the element's name without its prefix, or the text; `line` counts from 1."""

    kind: Literal["start", "end", "text"]
    name: str
    attributes: dict[str, str]
    line: int


def xml_events(path: Path) -> Iterator[Event]:
    """The elements and texts of an XML file in document order, 64 KiB in memory at a time.

    A DOCTYPE is allowed (TMX has one) and its DTD is not read. Raises InterlinguaError with the line for XML that is
    not well formed, for a declared entity (a bomb has one) and for a reference to an undeclared one.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    events: list[Event] = []

    def add(kind: Literal["start", "end", "text"], name: str, attributes: dict[str, str] | None = None) -> None:
        events.append(Event(kind, name, attributes or {}, parser.CurrentLineNumber))

    def refuse(name: str, *_: object) -> None:
        raise InterlinguaError(f"{path}, line {parser.CurrentLineNumber}: the entity '{name}' is not read, as files "
                               "with entities can harm. Write the characters themselves.")

    parser.StartElementHandler = lambda tag, attributes: add("start", _local(tag), attributes)
    parser.EndElementHandler = lambda tag: add("end", _local(tag))
    parser.CharacterDataHandler = lambda text: add("text", text)
    parser.EntityDeclHandler = refuse
    parser.SkippedEntityHandler = refuse
    try:
        with open_input(path) as stream:
            while chunk := stream.read(CHUNK):
                parser.Parse(chunk, False)
                yield from events
                events.clear()
            parser.Parse(b"", True)
            yield from events
    except expat.ExpatError as error:
        raise InterlinguaError(f"{path}, line {error.lineno}: not well-formed XML "
                               f"({expat.errors.messages[error.code]}). Export the file again.") from error
    except UNREADABLE as error:
        raise InterlinguaError(f"{path}: cannot be read ({error}).") from error


def _local(tag: str) -> str:
    return tag.rpartition(":")[2]


class TextOf:
    """Collects the text of one element, without the formatting codes of other programs inside it."""

    CODES = frozenset({"bpt", "ept", "ph", "it", "ut", "sub"})

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.inside = 0

    def feed(self, event: Event) -> None:
        if event.kind == "text":
            if not self.inside:
                self.parts.append(event.name)
        elif event.name in self.CODES:
            self.inside += 1 if event.kind == "start" else -1

    @property
    def text(self) -> str:
        """With white space collapsed: line breaks inside a segment are the file's layout."""
        return " ".join("".join(self.parts).split())
