"""Plain text and Markdown as paragraphs under headings."""

from __future__ import annotations

import html
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from unicodedata import category

from yaml import YAMLError

from interlingua.data.files.chunks import Block, Blocks
from interlingua.data.files.pages import APART, PART
from interlingua.data.files.tables import strings, usual_columns
from interlingua.data.files.walk import Source
from interlingua.plain_yaml import parse_yaml
from interlingua.text.languages import find_code, paired

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
"""The first line of a block whose paragraphs are indented by four: a note or tab of MkDocs, a footnote, a
definition."""
HEADING = re.compile(r" {0,3}(#{1,6})(?=[ \t\n]|$)")
UNDERLINE = re.compile(r" {0,3}(=+|-+)[ \t]*$")
RULE = re.compile(r"(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$")
KEY = re.compile(r"(\w[\w-]*)[ \t]*:(?:[ \t]+(.*)|$)")
DEFINITION = re.compile(
    r" {0,3}\[(?!\^)[^\[\]]+\]:[ \t]*(?:<[^<>]*>|\S+)(?:[ \t]+(?:\"[^\"]*\"|'[^']*'|\([^)]*\)))?[ \t]*$"
)
LABEL = re.compile(r"\s*(?:>\s*)*\[(?!\^)([^\[\]]+)\]:")
"""The beginning of a definition, wherever it stands."""
LINK = re.compile(
    r"!?\[((?:[^\[\]]|\[[^\[\]]*\])*)\]"
    r"(?:\((?:<[^<>\n\0]*>|(?:[^()\s\0]|\([^()\s\0]*\))*)(?:\s+(?:\"[^\"]*\"|'[^']*'))?\)|\[([^\[\]]*)\])"
)
TAG = re.compile(
    r"</?([A-Za-z][\w-]*)"
    r"(?:[ \t][^<>\n\0]*|(?:\s+[\w:@.-]+(?:=(?:\"[^\"\0]*\"|'[^'\0]*'|[^\s\"'=<>\0]+))?)*\s*)/?>"
)
"""With anything on one line, and with attributes alone on several."""
IMAGE = re.compile(r"(data:image/[\w.+-]+;base64,)[\w+/=%-]+")
"""An image in a text, as Google Docs and Jupyter save it: a line of it may be longer than what is held at once."""
COMMENT_END = re.compile("-->")
RAW = re.compile(r"[ \t]*<(?:script|style)(?:[ \t][^<>]*)?>", re.IGNORECASE)
RAW_END = re.compile(r"</(?:script|style)[ \t]*>", re.IGNORECASE)
ATTRIBUTES = re.compile(r"(?<=[ \t])\{:?[ \t]*[#.][^{}]*\}$")
"""Behind a heading: {#id .class}."""
TICKS = re.compile(r"`+")
PUNCTUATION = r"!-/:-@\[-`{-~"
SPECIAL = re.compile(rf"\\[{PUNCTUATION}\n]|\x01|`+|<!--")
"""The first one decides: a comment in code is code, and code in a comment is gone."""
SPAN = re.compile(r"[\x00\x01](\d+)[\x00\x01]")
"""In place of code and of an escaped character."""
STRONG = re.compile(r"\*{2,}|_{2,}")
EAST_ASIAN = re.compile(r"[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
"""Letters beside which bold text may end in punctuation: no space follows it."""
LONGEST_HEADING = 4_000
"""Characters from which on a paragraph is no heading, whatever stands below it."""
FRONT_MATTER = 100
"""Lines that front matter may have: where no end is found among them, it is text."""

Line = tuple[str, bool]


def read_markdown(source: Source) -> Iterator[Block]:
    """The paragraphs of a file under their headings; a list, a table or a code block is a paragraph as well.

    Marks of headings, links, bold text, code and HTML are taken off, as are comments and the targets of links; code
    itself stays as it is. A comment that has no end is text. Front matter gives title, language and metadata.
    """
    reader = _Reader(source)
    for line, first in _after_front_matter(_without_images(lines(source)), reader.blocks, source):
        reader.line(line, first)
        yield from reader.blocks.take()
    reader.end()
    reader.blocks.finish()
    yield from reader.blocks.take()


def _without_images(rows: Iterator[Line]) -> Iterator[Line]:
    """The rows without the bytes of images that are written into them."""
    held, held_first = "", True
    for line, first in rows:
        if held:
            line, first, held = held + line, held_first, ""
        line = IMAGE.sub(r"\1", line)
        if line.endswith(";base64,"):  # it goes on in the next part of the line
            held, held_first = line, first
        else:
            yield line, first
    if held:
        yield held, held_first


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
    ended = len(start) > 1 and start[-1][0].strip() in ("---", "...")
    if ended and (fields := _front_matter(matter, source.left_out)) is not None:
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


def _front_matter(matter: list[str], left_out: set[str]) -> dict[str, str] | None:
    """Keys and values; the items of a list with commas between them. What begins with a key and is no YAML is read line
    by line, and what does not is no front matter: None."""
    try:
        data = parse_yaml("".join(matter), unique=False)
    except (YAMLError, ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and len(data) == 1 and re.search(r"\w\s+\w", next(iter(map(str, data)))):
        return None  # "Note to self: …" between two rules is a heading
    if not isinstance(data, dict):
        keys = [KEY.match(line.strip()) for line in matter if line.strip() and line[0] != "#"]
        if not keys or not keys[0]:
            return None
        return {key[1]: value for key in keys if key and (value := (key[2] or "").strip("\"' \t"))}
    flat = {
        str(name): ", ".join(map(str, value)) if isinstance(value, list) and not _has_parts(value) else value
        for name, value in data.items()
    }
    return {paired(name): paired(value) for name, value in strings(flat, left_out).items()}


def _has_parts(values: list[object]) -> bool:
    return any(isinstance(value, (list, dict)) for value in values)


class _Reader:
    """The state between two lines: what they are inside of. `paragraph` is its text so far, or that of an item of a
    list, with the marks; `items` are the columns at which the text of each open item of a list begins; `ahead` is what
    the whole file says, where it was looked through: the number of the last line with the end of a comment, and the
    labels of link references."""

    def __init__(self, source: Source) -> None:
        self.blocks = Blocks()
        self.source = source
        self.paragraph = self.fence = ""
        self.indent = 0  # of the fence
        self.items: list[int] = []
        self.until: re.Pattern[str] | None = None  # the end of a comment, style or script
        self.number = 0
        self.ahead: tuple[int, int, set[str]] | None = None

    def line(self, line: str, first: bool) -> None:
        """Take in a line, or (`first` is False) a later part of a very long one."""
        self.number += 1
        if self.fence:
            self._code(line, first)
        elif self.until:
            if end := self.until.search(line):
                self.until = None
                if (rest := line[end.end() :]).strip():
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
            self.blocks.add(self._plain(_without_closing(line[heading.end() :].strip())))
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
            self.until = COMMENT_END
        elif RAW.match(rest) and (end := RAW_END.search(rest)):
            if (behind := rest[end.end() :]).strip():
                self._begin(behind)
        elif RAW.match(rest) and self._look_ahead()[1] > self.number:
            self.until = RAW_END
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
        self.blocks.add(self._plain(self.paragraph))
        self.paragraph = ""

    def _has_end(self) -> bool:
        """Whether a comment that begins on this line ends on a later one."""
        return self._look_ahead()[0] > self.number

    def _plain(self, text: str) -> str:
        """`text` without the marks, and without comments. Code stays as it is."""
        return _plain(text, lambda label: _label(label) in self._look_ahead()[2])

    def _look_ahead(self) -> tuple[int, int, set[str]]:
        """`ahead`. The first comment over several lines, or reference of a link, has the file looked through, so that
        none of its text need be held."""
        if self.ahead is None:
            last_end, last_raw, labels = 0, 0, set()
            for number, (line, _) in enumerate(
                _after_front_matter(_without_images(lines(self.source)), Blocks(), self.source), 1
            ):
                last_end = number if "-->" in line else last_end
                last_raw = number if RAW_END.search(line) else last_raw
                if definition := LABEL.match(line):
                    labels.add(_label(_bare(definition[1])))
            self.ahead = last_end, last_raw, labels
        return self.ahead

    def _underlines(self, line: str) -> bool:
        """Whether the line makes a heading of the one line before it."""
        if not 0 < len(self.paragraph) < LONGEST_HEADING or not UNDERLINE.match(line):
            return False
        text = (self.blocks.pending() + self._plain(self.paragraph)).strip()
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
    heading = ATTRIBUTES.sub("", heading).rstrip()
    bare = heading.rstrip("#")
    return bare.rstrip() if bare[-1:] in ("", " ", "\t") else heading


def _label(text: str) -> str:
    """The label of a link reference as it is compared."""
    return " ".join(text.casefold().split())


def _plain(text: str, is_label: Callable[[str], bool]) -> str:
    """A paragraph without the marks, and without comments. Code stays as it is; so does `[a][b]` where b is no label
    of a link reference."""

    def label(link: re.Match[str]) -> str:
        return link[1] if link[2] is None or is_label(_whole(link[2] or link[1], spans)) else link[0]

    text, spans = _without_code(text)
    text = _without_strong(text)
    for _ in range(2):  # a linked image is a link in a link
        text = LINK.sub(label, text)
    text = TAG.sub(lambda tag: " " if tag[1].lower() in APART else "", text)
    return _whole(html.unescape(text), spans)


def _whole(text: str, spans: Sequence[str]) -> str:
    """`text` with its code and escaped characters."""
    return SPAN.sub(lambda span: spans[int(span[1])], text)


def _bare(text: str) -> str:
    """`text` without the marks of code, escapes and bold text."""
    text, spans = _without_code(text)
    return _whole(_without_strong(text), spans)


def _without_strong(text: str) -> str:
    """`text` without the marks of bold text: pairs of `**` and `__`, by the rules of CommonMark but that of three."""
    openers: list[tuple[str, int, int]] = []  # mark, where it begins, how many are left of it
    open_marks: Counter[str] = Counter()
    gone: list[tuple[int, int]] = []
    for run in STRONG.finditer(text):
        mark, place, left = run[0][0], run.start(), len(run[0])
        opens, closes = _flanks(mark, text[place - 1 : place], text[run.end() : run.end() + 1])
        while closes and left > 1 and open_marks[mark]:
            other, start, size = openers.pop()
            open_marks[other] -= 1
            if other != mark:
                continue  # it begins inside of what ends here, and does not end
            count = min(left, size) // 2 * 2
            gone += (start + size - count, start + size), (place, place + count)
            place, left = place + count, left - count
            if size - count > 1:
                openers.append((mark, start, size - count))
                open_marks[mark] += 1
        if opens and left > 1:
            openers.append((mark, place, left))
            open_marks[mark] += 1
    parts, end = [], 0
    for start, stop in sorted(gone):
        parts.append(text[end:start])
        end = stop
    return "".join([*parts, text[end:]])


def _flanks(mark: str, before: str, after: str) -> tuple[bool, bool]:
    """Whether a run of a `mark` between two characters ("" at an end of the text) may open and may close bold text."""
    left = bool(after.strip()) and (not _is_mark(after) or not before.strip() or _is_beside(before))
    right = bool(before.strip()) and (not _is_mark(before) or not after.strip() or _is_beside(after))
    if mark == "*":
        return left, right
    return left and (not right or _is_mark(before)), right and (not left or _is_mark(after))


def _is_mark(character: str) -> bool:
    """Whether it is punctuation or a symbol, or stands for code or an escaped character."""
    return bool(character) and (category(character)[0] in "PS" or character in "\0\x01")


def _is_beside(character: str) -> bool:
    """Whether punctuation may stand on the other side of a mark."""
    return _is_mark(character) or bool(EAST_ASIAN.match(character))


def _without_code(text: str) -> tuple[str, list[str]]:
    """A paragraph without comments, with a number between two NULs in place of each code span, and between two other
    control characters in place of each escaped character; and the spans and characters."""
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
        elif mark[0][0] in "\\\x01":
            parts += text[start : mark.start()], "\n" if mark[0] == "\\\n" else f"\x01{len(spans)}\x01"
            spans.append(mark[0][-1])
            start = place
        elif ends := ticks.get(mark[0]):
            while ends and ends[-1] < place:
                ends.pop()
            if ends:
                parts += text[start : mark.start()], f"\0{len(spans)}\0"
                spans.append(text[place : ends[-1]])
                start = place = ends[-1] + len(mark[0])
    return "".join([*parts, text[start:]]), spans
