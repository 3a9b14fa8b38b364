"""A text to the terms it is found by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar
from weakref import WeakSet

import regex

Cut = Callable[[str], list[str]]
HELD = 1 << 16  # pieces of text whose terms are remembered, by all analyzers together
LONGEST = 40  # characters of a piece that is worth remembering
PIECE = 250
"""Characters that `Analyzer.counts` reads at a time, of a text without white space."""
PIECES = regex.compile(rf"(?s).{{1,{PIECE}}}(?<=[\p{{P}}\p{{S}}\s])|.{{1,{PIECE}}}(?!\p{{M}})|.{{1,{PIECE}}}")
"""The longest that ends with punctuation, else before a letter and not before its mark."""


class Analyzer:
    """Cuts texts into terms, always in the same way: equal `name` and `version` mean equal terms.

    `steps` says in words what it does, in order. `by_space`: white space always ends a term, so that a text is cut
    at it first and what stands between is analysed once, however often it comes again.
    """

    _all: ClassVar[WeakSet[Analyzer]] = WeakSet()
    _held: ClassVar[int] = 0

    def __init__(self, name: str, version: str, steps: tuple[str, ...], cut: Cut, *, by_space: bool = True) -> None:
        self.name, self.version, self.steps = name, version, steps
        self._cut, self._by_space = cut, by_space
        self._known: dict[str, list[str]] = {}
        self._once: dict[str, str] = {}
        Analyzer._all.add(self)

    def __call__(self, text: str) -> list[str]:
        """The terms of `text`, in order; none for a text without a letter or digit."""
        if not self._by_space:
            return self._cut(text)
        known, found = self._known, []
        for piece in text.split():
            terms = known.get(piece)
            if terms is None:
                terms = self._cut(piece)
                if len(piece) <= LONGEST:
                    if Analyzer._held >= HELD:
                        _forget()
                    Analyzer._held += 1
                    # equal terms of different pieces are kept once
                    known[piece] = terms = [self._once.setdefault(term, term) for term in terms]
            found += terms
        return found

    def counts(self, text: str, most: int) -> tuple[Counter[str], bool]:
        """How often `text` has each term, and whether all of it was read: nothing more is read from `most` terms on.

        What stands between white space is read once, however often it comes again. Of more than `PIECE` characters
        without white space, some are read at a time, so that an n-gram across the border between them is not found.
        """
        found: Counter[str] = Counter()
        read = 0
        for piece, times in Counter(_pieces(text)).items():
            if read >= most:
                return found, False
            terms = self(piece)
            read += max(1, len(terms))
            for term in terms:
                found[term] += times
        return found, True

    def many(self, texts: Iterable[str]) -> list[list[str]]:
        """The terms of each text."""
        return [self(text) for text in texts]

    def __repr__(self) -> str:
        return f"<Analyzer {self.name} ({self.version}): {', '.join(self.steps)}>"


def _pieces(text: str) -> Iterator[str]:
    """What stands between white space, some of it at a time where it is long."""
    for piece in text.split():
        if len(piece) <= PIECE:
            yield piece
        else:
            yield from PIECES.findall(piece)


def _forget() -> None:
    """Make room: what all analyzers remember goes."""
    Analyzer._held = 0
    for one in list(Analyzer._all):
        one._known.clear()
        one._once.clear()
