"""Chunking: paragraphs into passages of whole sentences that overlap."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from typing import Literal, NamedTuple, get_args

import regex  # type: ignore[import-untyped]

from interlingua.text.detection import READ, detect_in_bulk
from interlingua.text.languages import language
from interlingua.text.sentences import PARAGRAPH, split_sentences

LONGEST = 1 << 18
"""Characters of a paragraph that are held at once: a longer one is handed on in parts."""
HEADING = 200
BETWEEN = " > "


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, or a passage cut from several, the headings that it stands under, and its language ("": unknown).
    `section` tells apart what stands under two headings of the same words."""

    text: str
    title: str = ""
    lang: str = ""
    section: int = field(default=0, compare=False)


class Blocks:
    """Gathers the blocks of a document while it is read.

    `title` is the title of the whole document, `lang` the language that it declares. The title of a block is the path
    of its headings, below the title of the document unless there is a heading of level 1: as a rule that says the title
    again. Where it may not (`own_title`), only a heading of the same words takes its place. A heading with nothing
    below it is a block itself.
    """

    def __init__(self) -> None:
        self.title, self.lang, self.own_title = "", "", False
        self._headings: dict[int, str] = {}
        self._parts: list[str] = []
        self._size = self._section = 0
        self._done: list[Block] = []
        self._bare = False  # whether nothing stands below the last heading yet

    def add(self, text: str) -> None:
        """Go on with the paragraph."""
        self._parts.append(text)
        self._size += len(text)
        while self._size > LONGEST:
            paragraph = self.pending()
            place = cut_after_sentence(paragraph, LONGEST)
            self._finish(paragraph[:place])
            self._parts, self._size = [paragraph[place:]], len(paragraph) - place

    def pending(self) -> str:
        """The paragraph so far."""
        return "".join(self._parts)

    def cut_off(self) -> str:
        """The paragraph so far; a new one begins."""
        text = self.pending()
        self._parts, self._size = [], 0
        return text

    def end(self) -> None:
        """The paragraph ends here."""
        self._finish(self.cut_off())

    def end_heading(self, level: int) -> None:
        """The paragraph was a heading: what follows stands under it, up to the next heading of its level or above."""
        text = " ".join(self.cut_off().split())
        if level <= max(self._headings, default=0):
            self._keep_bare_heading()
        self._headings = {above: title for above, title in self._headings.items() if above < level}
        self._section += 1
        if text:
            self._headings[level] = text[: cut(text, HEADING)]
            self._bare = True

    def finish(self) -> None:
        """The document ends here."""
        self.end()
        self._keep_bare_heading()

    def put(self, block: Block) -> None:
        """Take in a paragraph that was read elsewhere, below the title of this document."""
        inner = block.title
        if inner == self.title or inner.startswith(self.title + BETWEEN):  # a page of a book is called as the book
            inner = inner[len(self.title + BETWEEN) :]
        path = [self.title, inner] if inner and self.title else [inner or self.title]
        self._done.append(Block(block.text, BETWEEN.join(path), self.lang or block.lang, block.section))

    def take(self) -> list[Block]:
        """The blocks that became whole since the last call."""
        done, self._done = self._done, []
        return done

    def _keep_bare_heading(self) -> None:
        """A heading with nothing below it is text, lest it be lost."""
        if self._bare and self._headings:
            _, text = self._headings.popitem()
            self._finish(text)
        self._bare = False

    def _says_title(self, heading: str) -> bool:
        return heading.casefold() == self.title[: cut(self.title, HEADING)].casefold()

    def _finish(self, text: str) -> None:
        if text.strip():
            path = list(self._headings.values())
            first = self._headings.get(1)
            if self.title and (first is None or (self.own_title and not self._says_title(first))):
                path.insert(0, self.title)
            self._done.append(Block(text.strip(), BETWEEN.join(path), self.lang, self._section))
            self._bare = False


ALONE = r"(?![\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}])"
"""No mark follows, which would belong to what is before it."""
SENTENCE_END = regex.compile(rf"(?:[.!?…][\"'”’»)\]]*\s|[。！？｡।॥؟۔።។]|\n){ALONE}")
LINE_END = regex.compile(rf"(?<!\r)\r?\n{ALONE}")
SPACE = regex.compile(rf"(?<!\r)[^\S\u00a0\u2007\u202f]{ALONE}")
CLUSTER = regex.compile(r"\X")
"""One character to the eye: a letter with its marks, an emoji of several parts (Unicode annex 29)."""
NEAR = 1_000
"""Characters around a place in which clusters are looked for."""


def cut(text: str, limit: int, start: int = 0) -> int:
    """The place to cut at so that at most `limit` characters lie between `start` and it; the end, if no more are left.

    The last line break in the second half of them, else the last space there, else between two grapheme clusters. A
    first cluster that alone is longer than the limit stays whole.
    """
    end = start + limit
    if len(text) <= end:
        return len(text)
    for gap in (LINE_END, SPACE):
        # one character more, so that a mark after the gap is seen
        starts = [match.start() for match in gap.finditer(text, start + limit // 2, end + 2)]
        places: list[int] = [place for place in starts if start < place <= end]
        if places:
            return places[-1]
    return _cut_between_clusters(text, start, end)


def _cut_between_clusters(text: str, start: int, end: int) -> int:
    begin, reach = max(start, end - NEAR), NEAR
    while True:
        window = text[begin : end + reach]
        ends: list[int] = [begin + match.end() for match in CLUSTER.finditer(window)]
        places = [place for place in ends if place <= end]
        if places or ends[0] < begin + len(window) or end + reach >= len(text):
            return places[-1] if places else ends[0]
        reach *= 16  # nothing but marks so far


def cut_after_sentence(text: str, limit: int) -> int:
    """`cut`, but after what looks like the end of a sentence in the second half if there is one."""
    ends = [match.end() for match in SENTENCE_END.finditer(text, limit // 2, limit + 1)]
    places: list[int] = [place for place in ends if place <= limit]
    return places[-1] if places else cut(text, limit)


CHUNK_CHARS = 800
"""Characters of English in a chunk, of Chinese a third (`character_weight`). In 14 languages the mean chunk has 217 to
300 subwords of a vocabulary of 32,000 (`benchmarks/chunks.py`); encoders read 256 to 512."""
OVERLAP = 1
Way = Literal["sentences", "headings", "characters"]
WAYS: tuple[Way, ...] = get_args(Way)
SECTION = 10
"""The factor by which a passage that is a whole section may be longer than others."""


class Piece(NamedTuple):
    """A sentence (`whole`) or a part of one that is too long, and the white space before it."""

    gap: str
    text: str
    whole: bool


def chunk_limit(size: int, lang: str, way: Way = "sentences") -> int:
    """Characters of `lang` that stand for `size` characters of English, the most that a passage has."""
    size *= SECTION if way == "headings" else 1
    return max(1, round(size / (language(lang).character_weight if lang else 1.0)))


def chunk(
    blocks: Iterable[Block], size: int = CHUNK_CHARS, overlap: int = OVERLAP, lang: str = "", *, way: Way = "sentences"
) -> Iterator[Block]:
    """Passages of whole sentences of `blocks`, as many as fit into `size` characters of English (`chunk_limit`).

    `way` "headings" makes all that stands under one heading a passage, and cuts only what has more than ten times
    `size`; "characters" fills each passage up to `size` and cuts between two words, wherever sentences end; there is
    no overlap then.

    A passage has one title, and one language: that of its blocks that name one, else "". It begins with the last
    `overlap` sentences of the one before under the same title, as many of them as leave room for a new one. Only a
    sentence that alone is too long is cut (see `cut`). Paragraphs are put together with a blank line; white space
    between sentences becomes one space or line break, and nothing else is changed. `lang` is taken for the language of
    blocks that name none where sentences are split. Holds one block and one passage.
    """
    if way == "characters":
        yield from _filled(blocks, size, lang)
        return
    pieces: list[Piece] = []
    title = code = ""
    section = length = 0  # `length`: characters of `pieces`, put together
    fresh = False  # whether something in `pieces` is in no passage yet
    for block in blocks:
        apart = block.title != title or block.section != section
        if apart or (block.lang and code and block.lang != code):
            if fresh:
                yield Block(_join(pieces), title, code)
            pieces, length, fresh, title, section, code = [], 0, False, block.title, block.section, ""
        code = code or block.lang
        limit = chunk_limit(size, code or lang, way)
        for piece in _pieces(block.text, code or lang, limit):
            added = len(piece.gap) + len(piece.text)
            if fresh and length + added > limit:
                yield Block(_join(pieces), title, code)
                pieces, fresh = [one for one in pieces[max(0, len(pieces) - overlap) :] if one.whole], False
                length = len(_join(pieces))
            while pieces and not fresh and length + added > limit:
                pieces.pop(0)
                length = len(_join(pieces))
            length += added if pieces else len(piece.text)
            pieces.append(piece)
            fresh = True
    if fresh:
        yield Block(_join(pieces), title, code)


def _pieces(text: str, lang: str, limit: int) -> Iterator[Piece]:
    """The sentences of a text; those longer than `limit` in parts."""
    for paragraph in PARAGRAPH.split(text):
        place, gap = 0, "\n\n"
        for sentence in split_sentences(paragraph, lang):
            start = paragraph.index(sentence, place)
            if place:
                gap = _gap(paragraph[place:start])
            place, whole = start + len(sentence), len(sentence) <= limit
            while start < place:
                end = min(place, cut(paragraph, limit, start)) if place - start > limit else place
                yield Piece(gap, paragraph[start:end].rstrip(), whole)
                start, before = _after_space(paragraph, end, place), end
                gap = _gap(paragraph[before:start])


def _filled(blocks: Iterable[Block], size: int, lang: str) -> Iterator[Block]:
    """Passages of as many characters as fit, cut between two words. White space inside stays as it is."""
    pending = Block("")
    for block in blocks:
        apart = block.title != pending.title or block.section != pending.section
        if pending.text and (apart or (block.lang and pending.lang and block.lang != pending.lang)):
            yield pending
            pending = Block("")
        text = f"{pending.text}\n\n{block.text}" if pending.text else block.text
        code, start = pending.lang or block.lang, 0
        limit = chunk_limit(size, code or lang)
        while len(text) - start > limit:
            end = cut(text, limit, start)
            if part := text[start:end].strip():
                yield Block(part, block.title, code)
            start = _after_space(text, end, len(text))
        pending = Block(text[start:].rstrip(), block.title, code, block.section)
    if pending.text:
        yield pending


def _after_space(text: str, start: int, end: int) -> int:
    while start < end and text[start].isspace():
        start += 1
    return start


def _gap(space: str) -> str:
    return "\n" if "\n" in space else " "[: len(space)]


def _join(pieces: list[Piece]) -> str:
    return "".join(piece.gap + piece.text if index else piece.text for index, piece in enumerate(pieces))


ENOUGH = 80
"""Bytes by which the language of a text is told; a shorter one is in the language of its document. On Tatoeba, 97% of
the answers for 30 to 50 characters are right, 99% for 80 and more; for less than 20 it is 88%."""


def chunk_in_language(
    blocks: Iterable[Block], size: int, overlap: int, lang: str, way: Way = "sentences"
) -> Iterator[Block]:
    """`chunk`, where every passage gets a language: the one that its document declares, else `lang`, else the detected
    one; "" where that is not sure. A paragraph that is surely in another language than the one before begins a passage.
    """
    blocks, start = iter(blocks), []
    for block in blocks:
        start.append(block)
        if sum(len(one.text) for one in start) >= READ:
            break
    all_blocks = chain(start, blocks)
    known_lang = (start[0].lang if start else "") or lang
    if known_lang:
        yield from chunk((replace(block, lang=known_lang) for block in all_blocks), size, overlap, way=way)
        return
    detect = lru_cache(4)(detect_in_bulk)  # of many files document, paragraph and passage are one text
    document = detect("\n\n".join(block.text for block in start))
    marked = (replace(block, lang=detect(block.text) if _is_enough(block.text) else "") for block in all_blocks)
    for passage in chunk(marked, size, overlap, document, way=way):
        yield passage if passage.lang else replace(passage, lang=_of_passage(passage.text, document, detect))


def _of_passage(text: str, document: str, detect: Callable[[str], str]) -> str:
    return (detect(text) or document) if _is_enough(text) else (document or detect(text))


def _is_enough(text: str) -> bool:
    return len(text[:ENOUGH].encode()) >= ENOUGH
