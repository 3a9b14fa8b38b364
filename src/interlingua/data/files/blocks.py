"""Paragraphs under their headings: what a document is before it is cut into passages."""

from __future__ import annotations

from dataclasses import dataclass

from interlingua.data.files.cut import cut, cut_after_sentence

LONGEST = 1 << 18
"""Characters of a paragraph that are held at once: a longer one is handed on in parts."""
HEADING = 200
BETWEEN = " > "


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph, or a passage cut from several, the headings that it stands under, and its language ("": unknown)."""

    text: str
    title: str = ""
    lang: str = ""


class Blocks:
    """Gathers the blocks of a document while it is read.

    `title` is the title of the whole document, `lang` the language that it declares. The title of a block is the path
    of its headings, below the title of the document unless there is a heading of level 1. A heading with nothing below
    it is a block itself.
    """

    def __init__(self) -> None:
        self.title, self.lang = "", ""
        self._headings: dict[int, str] = {}
        self._parts: list[str] = []
        self._size = 0
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
        if text:
            self._headings[level] = text[: cut(text, HEADING)]
            self._bare = True

    def finish(self) -> None:
        """The document ends here."""
        self.end()
        self._keep_bare_heading()

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

    def _finish(self, text: str) -> None:
        if text.strip():
            path = list(self._headings.values())
            if self.title and 1 not in self._headings:
                path.insert(0, self.title)
            self._done.append(Block(text.strip(), BETWEEN.join(path), self.lang))
            self._bare = False
