"""Phonetic keys: what words that sound alike have in common, whatever their alphabet, so that Лютер finds Luther.

A key is the row of a word's consonants, each as one of eight classes, as in Soundex (Russell 1918). Vowels, h and y are
left out, and a class that comes twice in a row counts once:

    P: b p f v w    T: t d    K: k g q c    S: s z j and the like    L    R    M    N

    Luther, Лютер, लूथर, لوثر → LTR        Norman, Норман, Νόρμαν, नॉर्मन, نورمان → NRMN

The consonant of a letter is what its name in Unicode begins with (DEVANAGARI LETTER KA, GEORGIAN LETTER BAN, HANGUL
SYLLABLE GANG), unless `LETTERS` says otherwise. A word with fewer than three classes has no key, nor has one of more
than `LONGEST` letters, or in a script without spaces between words. No language is known, and nothing is learned.
"""

from __future__ import annotations

import re
from functools import lru_cache
from unicodedata import name, normalize

import regex

from interlingua.text.analyzers.segment import INVISIBLE, UNSPACED, term_nfkc
from interlingua.text.languages import languages

VERSION = "2"
"""Raised whenever a key changes."""
MARK = " "
"""Begins every key. No term of any analyzer has white space."""
LEAST = 3
"""Classes of the shortest key."""
LONGEST = 64
"""Letters and marks of the longest word that has a key."""
HELD = 1 << 17  # words whose keys are remembered
WORD = regex.compile(rf"[[\p{{L}}\p{{M}}]--[\p{{Lm}}\p{{Tibetan}}{UNSPACED}]]+", regex.V1)
WITHOUT = frozenset(code for code, entry in languages().items() if not entry.spaced)
"""Languages whose words have no keys, as no spaces are between them."""
LATIN = regex.compile(r"\p{Latin}")
CLASSES = {
    letter: key
    for letters, key in (("bpfvw", "P"), ("td", "T"), ("kgqc", "K"), ("szj", "S"), *zip("lrmn", "LRMN", strict=True))
    for letter in letters
}
"""The class of each consonant of the Latin alphabet."""
LATIN_CLASSES = str.maketrans(CLASSES | dict.fromkeys("aeiouhy", ""))
TWICE = re.compile(r"(.)\1+")
SPELLINGS = str.maketrans(
    {"ß": "ss", "ø": "o", "đ": "d", "ð": "d", "þ": "t", "ł": "l", "ŋ": "n", "ɓ": "b", "ɗ": "d", "ƙ": "k", "ŧ": "t"}
    | dict.fromkeys("əǝɛæœ", "e")
)
SOUNDS = (
    *(("sch", "s"), ("tch", "s"), ("sh", "s"), ("zh", "s"), ("dge", "se"), ("dgi", "si"), ("dgy", "si")),
    *(("ph", "f"), ("ght", "t"), ("h", ""), ("ts", "s"), ("tz", "s"), ("ce", "se"), ("ci", "si"), ("cy", "si")),
    ("x", "ks"),
)
"""Sounds that the Latin alphabet writes with several letters, one after another."""
OTHER_SOUNDS = (("дж", "ж"), ("μπ", "π"), ("ντ", "τ"), ("γκ", "κ"), ("τζ", "σ"), ("τσ", "σ"), ("تش", "ش"))
ARTICLE = regex.compile("^(?:[وفبك]?ال|لل)(?=..)")
"""The Arabic article, which is written with its word."""
LETTERS = {
    letter: key
    for letters, key in (
        *(("фв", "P"), ("х", "K"), ("жцчшщсҫћђџ", "S"), ("лљ", "L"), ("р", "R"), ("м", "M"), ("нңњ", "N")),
        *(("йыьъјәһӏ", ""), ("χ", "K"), ("ξ", "KS"), ("ψ", "PS"), ("ςո", "")),  # ς ends the nominative
        *(("پڤ", "P"), ("ثذظضط", "T"), ("خغقكگک", "K"), ("جشصچژ", "S"), ("عحهةويىیأءاآإئؤ", "")),
        *(("חכך", "K"), ("צץשז", "S"), ("עאהוי", "")),
    )
    for letter in letters
}
"""Letters whose names do not begin with what they sound like."""
NAMED = regex.compile(
    "(?:LETTER|SYLLABLE) (?:SMALL |FINAL )?(?P<onset>[BCDFGJKLMNPQRSTVWXZ][^AEIOU ]*)[A-Z]*(?: WITH .*)?$"
)
NASAL = regex.compile("SIGN (?:ANUSVARA|CANDRABINDU|BINDI|ADAK BINDI)$|GURMUKHI TIPPI$")


def phonetic_keys(text: str) -> list[str]:
    """The keys of the words of a text, in order, each after `MARK`."""
    if not text.isascii():
        text = term_nfkc(INVISIBLE.sub("", text))
    return [key for word in WORD.findall(text) if len(word) <= LONGEST and (key := _key(word))]


def is_phonetic(term: str) -> bool:
    """Whether a term is a phonetic key."""
    return term.startswith(MARK)


@lru_cache(maxsize=HELD)
def _key(word: str) -> str:
    """The key of a word after `MARK`; "" for a word without one."""
    plain = word.lower()
    if not plain.isascii():
        letters = normalize("NFD", plain.translate(SPELLINGS))
        plain = normalize("NFC", "".join(letter for letter in letters if not "\u0300" <= letter <= "\u036f"))
    if plain.isascii() or LATIN.match(plain):
        classes = _latin(plain)
    else:
        for written, sound in OTHER_SOUNDS:
            plain = plain.replace(written, sound)
        classes = "".join(map(_classes, ARTICLE.sub("", plain)))
    key = TWICE.sub(r"\1", classes)
    return MARK + key if len(key) >= LEAST else ""


def _latin(word: str) -> str:
    """The classes of a word in the Latin alphabet."""
    for written, sound in SOUNDS:
        word = word.replace(written, sound)
    return word.encode("ascii", "ignore").decode().translate(LATIN_CLASSES)


@lru_cache(maxsize=1 << 14)
def _classes(letter: str) -> str:
    """The classes of a letter, of a syllable of Hangul, or of the sign of a nasal."""
    if letter in LETTERS:
        return LETTERS[letter]
    called = name(letter, "")
    if called.startswith("HANGUL SYLLABLE "):
        return _latin(called.rpartition(" ")[2].lower())
    if NASAL.search(called):
        return "N"
    found = NAMED.search(called)
    # in names C is the sound of church, X that of loch
    return _latin(found["onset"].lower().replace("c", "s").replace("x", "k")) if found else ""
