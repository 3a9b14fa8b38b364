"""Light stemming: endings off a word, from a list. For languages without a Snowball stemmer."""

from __future__ import annotations

from collections.abc import Callable, Iterable

AT_MOST = 2  # endings: one of case after one of number
KEPT = 3  # characters that must be left


def ending_stripper(endings: Iterable[str]) -> Callable[[str], str]:
    """A function that takes the longest of `endings` off a word, twice at most, and leaves three characters or more."""
    longest_first = sorted(set(endings), key=lambda ending: (-len(ending), ending))

    def strip(word: str) -> str:
        for _ in range(AT_MOST):
            for ending in longest_first:
                if word.endswith(ending) and len(word) >= len(ending) + KEPT:
                    word = word[: -len(ending)]
                    break
        return word

    return strip
