"""Character n-grams: overlapping pieces of a word. They need no dictionary, and forgive endings and compounds."""

from __future__ import annotations

import regex

SOUTH_EAST = regex.compile(r"(\p{Line_Break=SA}+)")
CLUSTER = regex.compile(r"(?s).[\p{M}\u0e33\u0eb3]*")
HANGUL = regex.compile(r"(\p{Hangul}+)")
CLUSTERS = 3


def grams(word: str, size: int) -> list[str]:
    """The overlapping pieces of `size` characters of `word`; the word itself where it is not longer."""
    if len(word) <= size:
        return [word]
    return [word[start : start + size] for start in range(len(word) - size + 1)]


def script_grams(run: str) -> list[str]:
    """What stands for the words in a run of a script that does not put spaces between them.

    Chinese and Japanese (and Korean, see `hangul_grams`): every character and every two neighbours. Thai, Lao, Khmer,
    Myanmar: every three neighbouring clusters (a letter with the vowels and tones above, below and after it); all of
    them where there are fewer.
    """
    found: list[str] = []
    for piece in SOUTH_EAST.split(run):
        if SOUTH_EAST.match(piece):
            clusters = CLUSTER.findall(piece)
            count = max(1, len(clusters) - CLUSTERS + 1)
            found += ["".join(clusters[start : start + CLUSTERS]) for start in range(count)]
        elif piece:
            found += piece
            found += grams(piece, 2) if len(piece) > 1 else ()
    return found


def hangul_grams(word: str) -> list[str]:
    """A word with its Hangul cut as Chinese is, since Korean writes endings and particles together with their word.
    What is not Hangul (2020 in 2020년) stays whole."""
    found: list[str] = []
    for piece in HANGUL.split(word):
        found += script_grams(piece) if HANGUL.match(piece) else [piece] if piece else ()
    return found
