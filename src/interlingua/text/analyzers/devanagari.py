"""Devanagari spellings that vary for one word (Hindi, Marathi, Nepali)."""

from __future__ import annotations

import regex

DROPPED = regex.compile("[\u093c\u200c\u200d]")
NASAL = regex.compile("न्(?=[क-ह])|ँ")
LETTERS = str.maketrans("ऍऎऑऒऄॲॅॆॉॊ", "एएओओअअेेोो")
VOWELS = str.maketrans("आईऊॠॡऐऔीूॄॣैौ", "अइउऋऌएओिुृॢेो", "्")


def devanagari_letters(text: str) -> str:
    """`text` (NFKC) without nukta (the dot of borrowed sounds) and joiners, every nasal before a consonant as anusvara,
    the vowels of borrowed words as the usual ones."""
    kept: str = NASAL.sub("ं", DROPPED.sub("", text))
    return kept.translate(LETTERS)


def short_vowels(stem: str) -> str:
    """`stem` with long vowels short and without virama: what differs between common spellings of one word. Done after
    stemming, since the stemmer knows endings as they are written."""
    return stem.translate(VOWELS)
