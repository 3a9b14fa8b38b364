"""Telugu spellings that vary for one word, and the endings of nouns: light rules of our own."""

from __future__ import annotations

import regex

from interlingua.text.analyzers.endings import ending_stripper

DROPPED = regex.compile("[ః\u200c\u200d]")
LETTERS = str.maketrans("ఁఀఆఈఊఏఓీూేో", "ంంఅఇఉఎఒిుెొ")
ENDINGS = "లు లను లకు లలో ల్లో లతో లని లపై ల ను ని కు కి లో తో పై గా న చే యొక్క నుండి నుంచి డు ము వు".split()


def telugu_letters(text: str) -> str:
    """`text` (NFKC) with long vowels short, one nasal sign, no visarga and no joiners."""
    kept: str = DROPPED.sub("", text)
    return kept.translate(LETTERS)


telugu_stem = ending_stripper(telugu_letters(ending) for ending in ENDINGS)
"""A word in these letters without its endings of number and case."""
