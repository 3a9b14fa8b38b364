"""Bengali letters that sound alike, and the endings of nouns: light rules of our own."""

from __future__ import annotations

import regex

from interlingua.text.analyzers.endings import ending_stripper

DROPPED = regex.compile("[ঁঃ\u09bc\u200c\u200d]")
LETTERS = str.maketrans("ঈঊীূণশষৎঙ", "ইউিুনসসতং")
ENDINGS = ("গুলো গুলোর গুলোতে গুলোকে গুলি গুলির গুলিতে গুলিকে দের দেরকে দিগের দিগকে রা েরা েদের টি টির টিতে টিকে টা টার টাতে টাকে "
           "খানা খানি ে ের র তে কে য় য়ে য়ের").split()


def bengali_letters(text: str) -> str:
    """`text` (NFKC) without chandrabindu, visarga, nukta and joiners; long i and u short; the letters for one n, one s,
    one t, one ng as one."""
    kept: str = DROPPED.sub("", text)
    return kept.translate(LETTERS)


bengali_stem = ending_stripper(bengali_letters(ending) for ending in ENDINGS)
"""A word in these letters without its endings of number, definiteness and case."""
