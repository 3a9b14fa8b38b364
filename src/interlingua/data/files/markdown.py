"""Markdown: headings become titles, text stays as it reads, code is text."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from interlingua.data.files.blocks import Block, Blocks
from interlingua.data.files.plain_text import lines
from interlingua.text.languages import find_code

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t\n]|$)")
UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
RULE = re.compile(r"(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
KEY = re.compile(r"(\w[\w-]*)[ \t]*:[ \t]*(.*)")
DEFINITION = re.compile(r" {0,3}\[[^\[\]]+\]:[ \t]*\S+")
LINK = re.compile(r"!?\[([^\[\]]*)\](?:\((?:[^()\s]|\([^()\s]*\))*(?:[ \t]+(?:\"[^\"]*\"|'[^']*'))?\)|\[[^\[\]]*\])")
TAG = re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?/?>")
COMMENT = re.compile(r"<!--.*?(?:-->|$)")
FRONT_MATTER = 100
"""Lines that front matter may have: where no end is found among them, it is text."""

Line = tuple[str, bool]


def read_markdown(path: Path) -> Iterator[Block]:
    """The paragraphs of a file under their headings; a list, a table or a code block is a paragraph as well.

    Marks of headings, links, bold text, code and HTML are taken off, as are comments and the targets of links. Front
    matter gives title and language.
    """
    reader = _Reader()
    for line, first in _after_front_matter(lines(path), reader.blocks):
        reader.line(line, first)
        yield from reader.blocks.take()
    reader.blocks.finish()
    yield from reader.blocks.take()


def _after_front_matter(rows: Iterator[Line], blocks: Blocks) -> Iterator[Line]:
    """The lines after front matter, whose title and language go to `blocks`; all lines where there is none."""
    start = list(islice(rows, 1))
    if start and start[0][0].strip() == "---":
        for row in islice(rows, FRONT_MATTER):
            start.append(row)
            if row[0].strip() in ("---", "..."):
                break
    inside = [row[0].strip() for row in start[1:-1]]
    if inside and start[-1][0].strip() in ("---", "...") and KEY.match(inside[0]):
        about = {key[1].lower(): key[2].strip("\"' \t") for key in map(KEY.match, inside) if key}
        blocks.title = about.get("title", "")
        blocks.lang = find_code(about.get("lang") or about.get("language") or "") or ""
        start = []
    return chain(start, rows)


class _Reader:
    """The state between two lines: what they are inside of."""

    def __init__(self) -> None:
        self.blocks = Blocks()
        self.fence = ""
        self.comment = False

    def line(self, line: str, first: bool) -> None:
        """Take in a line, or (`first` is False) a later part of a very long one."""
        text = line.strip()
        if self.fence:
            self._code(line, first)
        elif self.comment:
            _, end, line = line.partition("-->")
            self.comment = not end
            self.blocks.add(_plain(line))
        elif not first:
            self.blocks.add(_plain(line))
        elif self._underlines(line):
            self.blocks.end_heading(1 if "=" in line else 2)
        elif not text or RULE.match(text):
            self.blocks.end()
        elif fence := FENCE.match(line):
            self.blocks.end()
            self.fence = fence[1]
        elif heading := HEADING.match(line):
            self.blocks.end()
            self.blocks.add(_plain(_without_closing(line[heading.end():].strip())))
            self.blocks.end_heading(len(heading[1]))
        elif not DEFINITION.match(line):
            self.comment = line.rfind("<!--") > line.rfind("-->")
            self.blocks.add(_plain(line))

    def _underlines(self, line: str) -> bool:
        """Whether the line makes a heading of the one line before it."""
        before = self.blocks.pending().strip() if UNDERLINE.match(line) else ""
        return bool(before) and "\n" not in before

    def _code(self, line: str, first: bool) -> None:
        close = FENCE.match(line) if first else None
        if close and close[1].startswith(self.fence) and not line[close.end():].strip():
            self.fence = ""
            self.blocks.end()
        else:
            self.blocks.add(line)


def _without_closing(heading: str) -> str:
    """`## Heading ##` may end in a mark too."""
    bare = heading.rstrip("#")
    return bare.rstrip() if bare[-1:] in ("", " ", "\t") else heading


def _plain(line: str) -> str:
    """The text of a line without the marks."""
    line = COMMENT.sub("", line)
    for _ in range(2):  # a linked image is a link in a link
        line = LINK.sub(r"\1", line)
    return html.unescape(TAG.sub("", line)).replace("**", "").replace("`", "")
