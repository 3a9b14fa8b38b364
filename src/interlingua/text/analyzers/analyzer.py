"""A text to the terms it is found by."""

from __future__ import annotations

from collections.abc import Callable, Iterable

Cut = Callable[[str], list[str]]
HELD = 1 << 18  # pieces of text whose terms are remembered
LONGEST = 40  # characters of a piece that is worth remembering


class Analyzer:
    """Cuts texts into terms, always in the same way: equal `name` and `version` mean equal terms.

    `steps` says in words what it does, in order. `by_space`: white space always ends a term, so that a text is cut
    at it first and what stands between is analysed once, however often it comes again.
    """

    def __init__(self, name: str, version: str, steps: tuple[str, ...], cut: Cut, *, by_space: bool = True) -> None:
        self.name, self.version, self.steps = name, version, steps
        self._cut, self._by_space = cut, by_space
        self._known: dict[str, list[str]] = {}
        self._once: dict[str, str] = {}

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
                    if len(known) >= HELD:
                        known.clear()
                        self._once.clear()
                    # equal terms of different pieces are kept once
                    known[piece] = terms = [self._once.setdefault(term, term) for term in terms]
            found += terms
        return found

    def many(self, texts: Iterable[str]) -> list[list[str]]:
        """The terms of each text."""
        return [self(text) for text in texts]

    def __repr__(self) -> str:
        return f"<Analyzer {self.name} ({self.version}): {', '.join(self.steps)}>"
