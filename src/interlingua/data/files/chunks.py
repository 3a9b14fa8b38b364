"""Chunking: blocks of text into passages of whole sentences that overlap."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from interlingua.data.files.blocks import Block
from interlingua.data.files.cut import cut
from interlingua.text.languages import language
from interlingua.text.sentences import PARAGRAPH, split_sentences

CHUNK_CHARS = 800
"""Characters of English in a chunk, of Chinese a third (`character_weight`). In 14 languages the mean chunk has 217 to
300 subwords of a vocabulary of 32,000 (`benchmarks/chunks.py`); encoders read 256 to 512."""
OVERLAP = 1


class Piece(NamedTuple):
    """A sentence (`whole`) or a part of one that is too long, and the white space before it."""

    gap: str
    text: str
    whole: bool


def chunk_limit(size: int, lang: str) -> int:
    """Characters of `lang` that stand for `size` characters of English."""
    return max(1, round(size / (language(lang).character_weight if lang else 1.0)))


def chunk(blocks: Iterable[Block], size: int = CHUNK_CHARS, overlap: int = OVERLAP, lang: str = "") -> Iterator[Block]:
    """Passages of whole sentences of `blocks`, as many as fit into `size` characters of English (`chunk_limit`).

    A passage has one title, and one language: that of its blocks that name one, else "". It begins with the last
    `overlap` sentences of the one before under the same title, as many of them as leave room for a new one. Only a
    sentence that alone is too long is cut (see `cut`). Paragraphs are put together with a blank line; white space
    between sentences becomes one space or line break, and nothing else is changed. `lang` is taken for the language of
    blocks that name none where sentences are split. Holds one block and one passage.
    """
    held: list[Piece] = []
    title = code = ""
    fresh = False  # whether something in `held` is in no passage yet
    for block in blocks:
        if block.title != title or (block.lang and code and block.lang != code):
            if fresh:
                yield Block(_join(held), title, code)
            held, fresh, title, code = [], False, block.title, ""
        code = code or block.lang
        limit = chunk_limit(size, code or lang)
        for piece in _pieces(block.text, code or lang, limit):
            if fresh and _length([*held, piece]) > limit:
                yield Block(_join(held), title, code)
                held, fresh = [one for one in held[max(0, len(held) - overlap):] if one.whole], False
            while held and not fresh and _length([*held, piece]) > limit:
                held.pop(0)
            held.append(piece)
            fresh = True
    if fresh:
        yield Block(_join(held), title, code)


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


def _after_space(text: str, start: int, end: int) -> int:
    while start < end and text[start].isspace():
        start += 1
    return start


def _gap(space: str) -> str:
    return "\n" if "\n" in space else " "[: len(space)]


def _join(pieces: list[Piece]) -> str:
    return "".join(piece.gap + piece.text if at else piece.text for at, piece in enumerate(pieces))


def _length(pieces: list[Piece]) -> int:
    return sum(len(piece.gap) + len(piece.text) for piece in pieces) - len(pieces[0].gap)
