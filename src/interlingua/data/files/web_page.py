"""HTML: the text that a browser would show."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from interlingua.data.files.blocks import Block, Blocks
from interlingua.data.files.report import BadFile
from interlingua.files import open_input
from interlingua.text.languages import find_code

UNSEEN = frozenset("script style template noscript svg math object iframe canvas select textarea".split())
BREAKS = frozenset((
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure "
    "footer form head header hr html legend li main menu nav ol p pre section summary table tbody tfoot thead tr ul"
).split())
HEADINGS = {f"h{level}": level for level in range(1, 7)}
SPACE = re.compile(r"[ \t\r\n\f]+")
PART = 1 << 18
LONGEST_TAG = 1 << 23
"""Characters of one tag, comment or script: the parser holds it, and looks through it again with every part."""
UNCLOSED = 1 << 16
"""Characters of a tag, comment or script that nobody closed: no text to show, and slow (quadratic) to look through."""


def read_html(path: Path) -> Iterator[Block]:
    """The visible paragraphs of a page under its headings, in the language that `<html lang>` names.

    Raises BadFile for a tag, comment or script of more than 8 Mi characters, and for what the parser gives up on.
    """
    page = _Page()
    try:
        with io.TextIOWrapper(open_input(path), encoding="utf-8-sig") as stream:
            while part := stream.read(PART):
                page.feed(part)
                yield from page.blocks.take()
                if len(page.rawdata) > LONGEST_TAG:
                    most = f"{LONGEST_TAG >> 20} Mi characters"
                    raise BadFile(f"a tag, comment or script of more than {most}", page.getpos()[0])
        if len(page.rawdata) < UNCLOSED:
            page.close()
    except AssertionError as error:  # what html.parser raises for <![unknown
        raise BadFile(f"not HTML ({error})", page.getpos()[0]) from error
    page.end()
    page.blocks.finish()
    yield from page.blocks.take()


class _Page(HTMLParser):
    """`unseen` is the tag whose text is not shown, `depth` how often it is open; `heading` the level of an open one."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = Blocks()
        self.unseen, self.depth = "", 0
        self.heading = self.preformatted = 0
        self.title = False
        self.after_space = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self.unseen:
            self.depth += tag == self.unseen
        elif tag in UNSEEN:
            self.unseen, self.depth = tag, 1
        elif tag == "title" and not self.blocks.title:
            self.end()
            self.title = True
        elif tag in ("br", "td", "th"):
            self._add("\n" if tag == "br" else " ")
        elif tag in BREAKS or tag in HEADINGS:
            begun = bool(self.blocks.pending().strip())  # a heading that nobody closed ends here
            self.end()
            self.heading = HEADINGS.get(tag, 0 if begun else self.heading)
            self.preformatted += tag == "pre"
        if tag == "html":
            named = dict(attrs)
            self.blocks.lang = find_code(named.get("lang") or named.get("xml:lang") or "") or ""

    def handle_endtag(self, tag: str) -> None:
        if self.unseen:
            self.depth -= tag == self.unseen
            self.unseen = self.unseen if self.depth else ""
        elif tag == "title" and self.title:
            self.blocks.title, self.title = " ".join(self.blocks.cut_off().split()), False
        elif tag in BREAKS or tag in HEADINGS:
            self.end()
            self.heading = 0 if tag in HEADINGS else self.heading
            self.preformatted = max(0, self.preformatted - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if not self.unseen:
            self._add(data if self.preformatted else SPACE.sub(" ", data))

    def end(self) -> None:
        """The paragraph or heading ends here."""
        if self.heading and self.blocks.pending().strip():
            self.blocks.end_heading(self.heading)
        else:
            self.blocks.end()
        self.after_space = True

    def _add(self, text: str) -> None:
        if self.after_space and not self.preformatted:
            text = text.lstrip(" ")
        if text:
            self.blocks.add(text)
            self.after_space = text[-1].isspace()
