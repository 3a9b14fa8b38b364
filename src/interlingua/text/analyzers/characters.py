"""Characters in one form, whatever the language: NFKC, no case, ASCII digits, nothing invisible."""

from __future__ import annotations

from unicodedata import decimal

import regex

from interlingua.text import normalise

DIGITS = regex.compile(r"[\p{Nd}--0-9]", regex.V1)
INVISIBLE = regex.compile(r"[\p{Default_Ignorable_Code_Point}--\u200b]+", regex.V1)
"""Without the zero-width space, with which Khmer and others may mark the end of a word."""
SIGNS = str.maketrans({"٫": ".", "٬": ",", "’": "'", "‘": "'", "ʼ": "'"})
"""Arabic decimal and thousands separators, apostrophes."""
TURKISH = str.maketrans({"I": "ı", "İ": "i"})
DOTTED = "i\u0307"  # what İ becomes without case


def nfkc(text: str) -> str:
    """`text` in NFKC, but for the Thai and Lao vowel AM: NFKC splits it, dictionaries write it as one letter."""
    if text.isascii():
        return text
    return normalise.nfkc(text).replace("\u0e4d\u0e32", "\u0e33").replace("\u0ecd\u0eb2", "\u0eb3")


def folded(text: str, *, turkish: bool = False) -> str:
    """`text` (NFKC) without case, digits of every script as ASCII digits, apostrophes straight, invisible characters
    (soft hyphen, joiners, variation selectors) gone.

    `turkish`: I is the capital of dotless ı. Elsewhere İ and I are both the capital of i.
    """
    if turkish:
        text = text.translate(TURKISH)
    if text.isascii():
        return text.lower()
    visible: str = INVISIBLE.sub("", text.casefold().replace(DOTTED, "i"))
    counted: str = DIGITS.sub(lambda found: str(decimal(found[0])), nfkc(visible))
    return counted.translate(SIGNS)
