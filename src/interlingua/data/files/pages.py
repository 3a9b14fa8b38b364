"""HTML as paragraphs under headings."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html.parser import HTMLParser

from interlingua.data.files.chunks import Block, Blocks
from interlingua.data.files.walk import BadFile, Source
from interlingua.text.languages import find_code

UNSEEN = frozenset(
    (
        "script style template noscript svg object iframe canvas audio video select textarea datalist meter progress "
        "noembed noframes rp rt rtc annotation annotation-xml"
    ).split()
)
"""Elements of which a browser shows no text, or only where it cannot show them; the reading of a word; the last two
hold a formula again."""
BREAKS = frozenset(
    (
        "address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure "
        "footer form head header hgroup hr html legend li main menu nav ol option p pre search section summary table "
        "tbody tfoot thead tr ul"
    ).split()
)
VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
"""Tags without an end."""
ENDED_BY = {
    "p": BREAKS | {*(f"h{level}" for level in range(1, 7))},
    "li": {"li"},
    "dt": {"dt", "dd"},
    "dd": {"dt", "dd"},
    "td": {"td", "th", "tr", "tbody", "tfoot"},
    "th": {"td", "th", "tr", "tbody", "tfoot"},
    "tr": {"tr", "tbody", "tfoot"},
    "thead": {"tbody", "tfoot"},
    "tbody": {"tbody", "tfoot"},
    "rp": {"rb", "rt", "rtc", "rp"},
    "rt": {"rb", "rt", "rtc", "rp"},
}
"""Elements whose end may be left out, and the tags with which the next one begins."""
TABLE = frozenset("table tbody thead tfoot tr td th caption".split())
SEALED = frozenset("template object select svg".split())
"""Elements that no tag of what holds them ends."""
NOT_DISPLAYED = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
APART = BREAKS | {"br", "td", "th", *(f"h{level}" for level in range(1, 7))}
"""Tags between words."""
HEADINGS = {f"h{level}": level for level in range(1, 7)}
HOLDING = SEALED | BREAKS | TABLE | HEADINGS.keys()
"""Elements that say what ends within them."""
SPACE = re.compile(r"[ \t\r\n\f]+")
PART = 1 << 18
LONGEST_TAG = 1 << 23
"""Characters of one tag, comment or script: the parser holds it, and looks through it again with every part."""
UNCLOSED = 1 << 16
"""Characters of a tag, comment or script that nobody closed: no text to show, and slow (quadratic) to look through."""


def read_html(source: Source) -> Iterator[Block]:
    """The visible paragraphs of a page under its headings, in the language that `<html lang>` names."""
    with io.TextIOWrapper(source.open(), encoding=source.encoding) as stream:
        yield from html_blocks(iter(lambda: stream.read(PART), ""))


def html_blocks(parts: Iterable[str]) -> Iterator[Block]:
    """The paragraphs of a page that comes in parts. Raises BadFile for a tag, comment or script of more than 8 Mi
    characters, and for what the parser gives up on."""
    page = _Page()
    try:
        for part in parts:
            page.feed(part)
            yield from page.blocks.take()
            if len(page.rawdata) > LONGEST_TAG:
                limit = f"{LONGEST_TAG >> 20} Mi characters"
                raise BadFile(f"a tag, comment or script of more than {limit}", page.getpos()[0])
        if len(page.rawdata) < UNCLOSED:
            page.close()
    except AssertionError as error:  # what html.parser raises for <![unknown
        raise BadFile(f"not HTML ({error})", page.getpos()[0]) from error
    page.end()
    page.blocks.finish()
    yield from page.blocks.take()


def _hidden(tag: str, attributes: Mapping[str, str | None]) -> bool:
    """Whether a browser shows nothing of an element until a script asks for it: not what `hidden=until-found` hides,
    which a search in the page shows, nor a whole page, which its own script always shows."""
    if tag in ("html", "body"):
        return False
    if tag == "dialog" and "open" not in attributes:
        return True
    hidden = "hidden" in attributes and (attributes["hidden"] or "").lower() != "until-found"
    return hidden or bool(NOT_DISPLAYED.search(attributes.get("style") or ""))


class _Page(HTMLParser):
    """`unseen` are the open elements from the one on whose text is not shown, `open` how many of each tag, `around` how
    many of each tag are open before them; `heading` the level of an open one."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = Blocks()
        self.unseen: list[str] = []
        self.open: Counter[str] = Counter()
        self.around: Counter[str] = Counter()
        self.heading = self.preformatted = 0
        self.title = False
        self.after_space = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        while self.unseen and tag in ENDED_BY.get(self.unseen[-1], ()):
            self._close(self.unseen[-1])
        if self.unseen or tag in UNSEEN or (tag not in VOID and _hidden(tag, attributes)):
            if not self.unseen and tag in BREAKS:
                self.end()
            if tag not in VOID:
                self.unseen.append(tag)
                self.open[tag] += 1
            return
        self.around[tag] += 1
        if tag == "title" and not self.blocks.title:
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
            self.blocks.lang = find_code(attributes.get("lang") or attributes.get("xml:lang") or "") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:  # of <br/>
            return
        if self.open[tag]:
            self._close(tag)
            return
        if self.unseen and self._ends_around(tag):
            self.unseen.clear()
            self.open.clear()
        if self.unseen:
            return
        self.around[tag] = max(0, self.around[tag] - 1)
        if tag == "title" and self.title:
            self.blocks.title, self.title = " ".join(self.blocks.cut_off().split()), False
        elif tag in BREAKS or tag in HEADINGS:
            self.end()
            self.heading = 0 if tag in HEADINGS else self.heading
            self.preformatted = max(0, self.preformatted - (tag == "pre"))

    def _ends_around(self, tag: str) -> bool:
        """Whether an element that holds the one that is not shown ends, and with it all that nobody closed in it, by
        HTML's rules for end tags."""
        if tag == "form" or not (self.around[tag] or self.unseen[0] in ENDED_BY):
            return False
        inside = {name for name in HOLDING if self.open[name]}
        if inside & SEALED:
            return False
        if tag in TABLE:
            return "table" not in inside
        if tag == "p" or not (tag in BREAKS or tag in HEADINGS):
            return not inside & (BREAKS | TABLE | HEADINGS.keys())
        return not inside & TABLE and not (tag == "li" and inside & {"ul", "ol"})

    def _close(self, tag: str) -> None:
        """The last open element `tag` that is not shown ends, and those in it."""
        while (last := self.unseen.pop()) != tag:
            self.open[last] -= 1
        self.open[tag] -= 1

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
