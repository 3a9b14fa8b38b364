"""Plain text, Markdown and HTML as paragraphs under headings."""

from __future__ import annotations

import html
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html.parser import HTMLParser
from itertools import chain, islice

from yaml import YAMLError

from interlingua.data.files.chunks import Block, Blocks
from interlingua.data.files.tables import strings, usual_columns
from interlingua.data.files.walk import BadFile, Source
from interlingua.plain_yaml import parse_yaml
from interlingua.text.languages import find_code

LINE = 1 << 16
"""Characters of a line that are read at once."""


def read_text(source: Source) -> Iterator[Block]:
    """The paragraphs of a file. Lines inside a paragraph stay as they are."""
    blocks = Blocks()
    for line, first in lines(source):
        if first and not line.strip():
            blocks.end()
        else:
            blocks.add(line)
        yield from blocks.take()
    blocks.finish()
    yield from blocks.take()


def lines(source: Source) -> Iterator[tuple[str, bool]]:
    """(line with its end, True) of a text file; of a very long line parts, of which only the first has True. Lines end
    at \\n, \\r\\n or \\r."""
    first = True
    with io.TextIOWrapper(source.open(), encoding=source.encoding) as stream:
        while line := stream.readline(LINE):
            yield line, first
            first = line.endswith("\n")


FENCE = re.compile(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})")
ITEM = re.compile(r"[ \t]*(?:[-+*]|\d{1,9}[.)])(?:[ \t]{1,4}(?=\S)|[ \t]|$)")
NUMBERED = re.compile(r" {0,3}\d{1,9}[.)][ \t]")
"""Above an underline it is a numbered heading, as in many a README, and no item of a list as CommonMark has it."""
HOLDER = re.compile(r"(?:!!!|\?\?\?\+?|===)[ \t]|\[\^[^\[\]]+\]:|:[ \t]")
"""What holds the paragraphs below it that are indented by four: a note or tab of MkDocs, a footnote, a definition."""
HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t\n]|$)")
UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
RULE = re.compile(r"(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
KEY = re.compile(r"(\w[\w-]*)[ \t]*:[ \t]*(.*)")
DEFINITION = re.compile(
    r" {0,3}\[(?!\^)[^\[\]]+\]:[ \t]*(?:<[^<>]*>|\S+)(?:[ \t]+(?:\"[^\"]*\"|'[^']*'|\([^)]*\)))?[ \t]*$"
)
LINK = re.compile(r"!?\[([^\[\]]*)\](?:\((?:[^()\s\0]|\([^()\s\0]*\))*(?:\s+(?:\"[^\"]*\"|'[^']*'))?\)|\[[^\[\]]*\])")
TAG = re.compile(
    r"</?([A-Za-z][\w-]*)"
    r"(?:[ \t][^<>\n\0]*|(?:\s+[\w:@.-]+(?:=(?:\"[^\"\0]*\"|'[^'\0]*'|[^\s\"'=<>\0]+))?)*\s*)/?>"
)
"""With anything on one line, and with attributes alone on several."""
TICKS = re.compile(r"`+")
SPECIAL = re.compile(r"\\.|`+|<!--")
"""What comes first decides: a comment in code is code, and code in a comment is gone."""
SPAN = re.compile(r"\0(\d+)\0")
FRONT_MATTER = 100
"""Lines that front matter may have: where no end is found among them, it is text."""

Line = tuple[str, bool]


def read_markdown(source: Source) -> Iterator[Block]:
    """The paragraphs of a file under their headings; a list, a table or a code block is a paragraph as well.

    Marks of headings, links, bold text, code and HTML are taken off, as are comments and the targets of links; code
    itself stays as it is. A comment that has no end is text. Front matter gives title, language and metadata.
    """
    reader = _Reader(source)
    for line, first in _after_front_matter(lines(source), reader.blocks, source):
        reader.line(line, first)
        yield from reader.blocks.take()
    reader.end()
    reader.blocks.finish()
    yield from reader.blocks.take()


def _after_front_matter(rows: Iterator[Line], blocks: Blocks, source: Source) -> Iterator[Line]:
    """The lines after front matter, whose title and language go to `blocks` and the rest to `source`; all lines where
    there is none."""
    start = list(islice(rows, 1))
    if start and start[0][0].strip() == "---":
        for row in islice(rows, FRONT_MATTER):
            start.append(row)
            if row[0].strip() in ("---", "..."):
                break
    matter = [row[0] for row in start[1:-1]]
    if matter and start[-1][0].strip() in ("---", "...") and KEY.match(matter[0]):
        fields = _front_matter(matter, source.left_out)
        roles = usual_columns(fields)
        blocks.title, blocks.own_title = " ".join(fields.pop(roles.get("title", ""), "").split()), True
        if code := find_code(fields.get(roles.get("lang", ""), "")):  # what is no language stays in the metadata
            blocks.lang = code
            del fields[roles["lang"]]
        if "url" in roles:
            fields["url"] = fields.pop(roles["url"])
        reserved = {name: f"{name} (front matter)" for name in ("source", "chunk")}  # these two tell passages apart
        source.about.update((reserved.get(name, name), value) for name, value in fields.items())
        start = []
    return chain(start, rows)


def _front_matter(matter: list[str], left_out: set[str]) -> dict[str, str]:
    """Keys and values; the items of a list with commas between them. What is no YAML is read line by line."""
    try:
        data = parse_yaml("".join(matter), unique=False)
    except (YAMLError, ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        keys = (KEY.match(line.strip()) for line in matter)
        return {key[1]: value for key in keys if key and (value := key[2].strip("\"' \t"))}
    flat = {
        str(name): ", ".join(map(str, value)) if isinstance(value, list) and not _has_parts(value) else value
        for name, value in data.items()
    }
    return strings(flat, left_out)


def _has_parts(values: list[object]) -> bool:
    return any(isinstance(value, (list, dict)) for value in values)


class _Reader:
    """The state between two lines: what they are inside of. `paragraph` is its text so far, or that of an item of a
    list, with the marks; `items` are the columns at which the text of each open item of a list begins; `last_end` is
    the number of the last line with the end of a comment, where it was looked for."""

    def __init__(self, source: Source) -> None:
        self.blocks = Blocks()
        self.source = source
        self.paragraph = self.fence = ""
        self.indent = 0  # of the fence
        self.items: list[int] = []
        self.comment = False
        self.number = 0
        self.last_end: int | None = None

    def line(self, line: str, first: bool) -> None:
        """Take in a line, or (`first` is False) a later part of a very long one."""
        self.number += 1
        if self.fence:
            self._code(line, first)
        elif self.comment:
            _, end, rest = line.partition("-->")
            self.comment = not end
            if rest.strip():
                self._begin(rest)
        elif first:
            self._begin(line)
        elif self.paragraph:
            self._text(line)
        else:
            self.blocks.add(line)

    def end(self) -> None:
        """The paragraph ends here."""
        self._flush()
        self.blocks.end()

    def _begin(self, line: str) -> None:
        text, indent = line.strip(), _width(line[: len(line) - len(line.lstrip(" \t"))])
        inside = [column for column in self.items if column <= indent]
        deep = indent - max(inside, default=0) > 3
        if not text:
            self.end()
        elif deep and not (self.items and FENCE.match(line)):
            if self.paragraph:
                self._text(line)
            else:
                self.blocks.add(line)  # indented code
        elif (inside == self.items or NUMBERED.match(self.paragraph)) and self._underlines(line):
            self._flush()
            self.items = inside
            self.blocks.end_heading(1 if "=" in line else 2)
        elif RULE.match(text):
            self.end()
            self.items = inside
        elif heading := HEADING.match(line):
            self.end()
            self.items = inside
            self.blocks.add(_plain(_without_closing(line[heading.end() :].strip())))
            self.blocks.end_heading(len(heading[1]))
        elif not DEFINITION.match(line):
            self._begin_text(line, text, indent, inside)

    def _begin_text(self, line: str, text: str, indent: int, inside: list[int]) -> None:
        """A line that is a paragraph, or begins one, or an item of a list, a fence or a comment."""
        item, rest = ITEM.match(line), line
        holder = HOLDER.match(text)
        if item or holder or not self.paragraph:
            self.items = inside
        if item:
            rest, indent = line[item.end() :], _width(item[0])
            self.items.append(indent)
        elif holder:
            self.items.append(indent + 4)
        if fence := FENCE.match(rest):
            self.end()
            self.fence, self.indent = fence[1], indent
        elif rest.lstrip().startswith("<!--") and "-->" not in rest and self._has_end():
            self.comment = True
        else:
            if not self.paragraph:
                self.blocks.end()  # indented code
            elif item or holder or text[0] == "|":
                self._flush()  # no code begins in one item or row and ends in another
            self._text(line)

    def _text(self, line: str) -> None:
        if len(self.paragraph) > PART:
            self._flush()
        self.paragraph += line

    def _flush(self) -> None:
        self.blocks.add(_plain(self.paragraph))
        self.paragraph = ""

    def _has_end(self) -> bool:
        """Whether a comment that begins on this line ends on a later one. The first such comment has the file looked
        through, so that none need be held."""
        if self.last_end is None:
            rows = enumerate(_after_front_matter(lines(self.source), Blocks(), self.source), 1)
            self.last_end = max((number for number, (line, _) in rows if "-->" in line), default=0)
        return self.last_end > self.number

    def _underlines(self, line: str) -> bool:
        """Whether the line makes a heading of the one line before it."""
        if not 0 < len(self.paragraph) < LONGEST_HEADING or not UNDERLINE.match(line):
            return False
        text = (self.blocks.pending() + _plain(self.paragraph)).strip()
        return bool(text) and "\n" not in text

    def _code(self, line: str, first: bool) -> None:
        close = FENCE.match(line) if first else None
        if close and close[1].startswith(self.fence) and not line[close.end() :].strip() and self._is_level(close):
            self.fence = ""
            self.blocks.end()
        else:
            self.blocks.add(line)

    def _is_level(self, close: re.Match[str]) -> bool:
        return _width(close[0]) - len(close[1]) < self.indent + 4


def _width(text: str) -> int:
    """The columns that a text takes."""
    return len(text.expandtabs(4))


def _without_closing(heading: str) -> str:
    """`## Heading ##` may end in a mark too."""
    bare = heading.rstrip("#")
    return bare.rstrip() if bare[-1:] in ("", " ", "\t") else heading


def _plain(text: str) -> str:
    """A paragraph without the marks, and without comments. Code stays as it is."""
    text, spans = _without_code(text)
    for _ in range(2):  # a linked image is a link in a link
        text = LINK.sub(r"\1", text)
    text = TAG.sub(lambda tag: " " if tag[1].lower() in APART else "", text)
    text = html.unescape(text).replace("**", "").replace("`", "")
    return SPAN.sub(lambda span: spans[int(span[1])], text)


def _without_code(text: str) -> tuple[str, list[str]]:
    """A paragraph without comments, with a number between two NULs in place of each code span; and the spans."""
    spans: list[str] = []
    parts: list[str] = []
    ticks: dict[str, list[int]] = {}
    for run in reversed([*TICKS.finditer(text)]):
        ticks.setdefault(run[0], []).append(run.start())  # the next one last
    last_end = text.rfind("-->")
    start = place = 0
    while mark := SPECIAL.search(text, place):
        place = mark.end()
        if mark[0] == "<!--" and mark.start() + 2 <= last_end:  # <!--> is a comment
            place = text.index("-->", mark.start() + 2) + 3
            parts += text[start : mark.start()], "\n" * ("\n" in text[mark.start() : place])
            start = place
        elif ends := ticks.get(mark[0]):
            while ends and ends[-1] < place:
                ends.pop()
            if ends:
                parts += text[start : mark.start()], f"\0{len(spans)}\0"
                spans.append(text[place : ends[-1]])
                start = place = ends[-1] + len(mark[0])
    return "".join([*parts, text[start:]]), spans


UNSEEN = frozenset("script style template noscript svg math object iframe canvas select textarea".split())
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
}
"""Elements whose end may be left out, and the tags with which the next one begins."""
NOT_DISPLAYED = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
APART = BREAKS | {"br", "td", "th", *(f"h{level}" for level in range(1, 7))}
"""Tags between words."""
HEADINGS = {f"h{level}": level for level in range(1, 7)}
SPACE = re.compile(r"[ \t\r\n\f]+")
LONGEST_HEADING = 4_000
"""Characters from which on a paragraph is no heading, whatever stands below it."""
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
    """`unseen` are the open elements from the one on whose text is not shown, `open` how many of each tag; `heading`
    the level of an open one."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = Blocks()
        self.unseen: list[str] = []
        self.open: Counter[str] = Counter()
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
            self.blocks.lang = find_code(attributes.get("lang") or attributes.get("xml:lang") or "") or ""

    def handle_endtag(self, tag: str) -> None:
        if self.open[tag]:
            self._close(tag)
            return
        if self.unseen and self.unseen[0] in ENDED_BY and tag in BREAKS:  # what holds the element ends
            self.unseen.clear()
            self.open.clear()
        if self.unseen:
            return
        if tag == "title" and self.title:
            self.blocks.title, self.title = " ".join(self.blocks.cut_off().split()), False
        elif tag in BREAKS or tag in HEADINGS:
            self.end()
            self.heading = 0 if tag in HEADINGS else self.heading
            self.preformatted = max(0, self.preformatted - (tag == "pre"))

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
