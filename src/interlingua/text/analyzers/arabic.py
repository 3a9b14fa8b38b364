"""Letters of the Arabic script that are written in several ways and read as one."""

from __future__ import annotations

import regex

MARKS = regex.compile(r"[\u064b-\u0655\u0670\u0640]+")
"""Short vowels, doubling, hamza and madda as marks, the superscript alef, and the tatweel that stretches a word."""
ALEFS = {"آ": "ا", "أ": "ا", "إ": "ا", "ٱ": "ا"}
ARABIC = str.maketrans(ALEFS | {"ى": "ي"})
PERSIAN = str.maketrans(ALEFS | dict.fromkeys("يىېے", "ی") | dict.fromkeys("ۀہۂۃة", "ه") | {"ك": "ک", "\u200c": " "})


def arabic_letters(text: str) -> str:
    """`text` (NFKC) without vowel marks and tatweel; every alef bare, final ya with dots."""
    bare: str = MARKS.sub("", text)
    return bare.translate(ARABIC)


def ta_marbuta(stem: str) -> str:
    """`stem` with ha for ta marbuta: done after stemming, since the stemmer knows endings in ta marbuta."""
    return stem.replace("ة", "ه")


def persian_letters(text: str) -> str:
    """`text` (NFKC, Persian or Urdu) with one ya, one kaf and one ha for the Persian, Arabic and Urdu forms, every alef
    bare, no marks. The zero-width non-joiner, which joins prefixes and endings to a word, becomes a space."""
    bare: str = MARKS.sub("", text)
    return bare.translate(PERSIAN)
