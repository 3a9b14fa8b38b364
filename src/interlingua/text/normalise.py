"""Normal forms of a text: NFKC, and what must be equal for two texts to count as duplicates."""

from __future__ import annotations

import hashlib
from itertools import chain, groupby
from unicodedata import combining, normalize

import regex

STACKED = regex.compile(r"[\p{M}\uff9e\uff9f]{31,}")
"""More marks on one letter than any language writes (UAX 15 allows for 30)."""
FULL_WIDTH = str.maketrans("\uff9e\uff9f", "\u3099\u309a")  # as NFKC writes these two marks


def nfkc(text: str) -> str:
    """`text` in NFKC, in time that grows with its length. Python sorts the marks of a letter by insertion, and 100,000
    of them for nine seconds; so many are put into their order before."""
    return normalize("NFKC", STACKED.sub(lambda found: _ordered(found[0]), text))


def text_key(text: str) -> str:
    """NFKC, casefolded, outer white space stripped, inner white space collapsed to one space."""
    # NFKC is applied again because casefolding can undo it (Unicode standard, section 3.13, D146).
    folded = nfkc(nfkc(text).casefold())
    return " ".join(folded.split())


def text_hash(*texts: str) -> int:
    """64 bits that are equal for texts with equal keys, in every process and release (BLAKE2b)."""
    digest = hashlib.blake2b(digest_size=8)
    for text in texts:
        digest.update(text_key(text).encode("utf-8", "surrogatepass"))
        digest.update(b"\x00")  # a control character that text_key leaves only inside a text: ("ab", "c") ≠ ("a", "bc")
    return int.from_bytes(digest.digest(), "big")


def _ordered(marks: str) -> str:
    """Canonically equivalent `marks`, between two of class 0 by their combining class."""
    parts = groupby(marks.translate(FULL_WIDTH), key=lambda mark: combining(mark) > 0)
    return "".join(chain.from_iterable(sorted(part, key=combining) for _, part in parts))
