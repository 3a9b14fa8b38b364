"""What stands before or after an apostrophe and is no part of the word that is looked for."""

from __future__ import annotations

ELIDED = {
    "ca": frozenset("d l m n s t".split()),
    "fr": frozenset("c d j jusqu l lorsqu m n puisqu qu quoiqu s t".split()),
    "ga": frozenset("b d m".split()),
    "it": frozenset("agl all c coll d dagl dall degl dell gl l m negl nell pell quell s sugl sull t un v".split()),
}
"""Articles, pronouns and particles that lose their vowel before another (Catalan, French, Irish, Italian)."""


def without_elided(word: str, elided: frozenset[str]) -> str:
    """`word` without an elided word before it: l'eau → eau."""
    first, apostrophe, rest = word.partition("'")
    return rest if apostrophe and rest and first in elided else word


def without_possessive(word: str) -> str:
    """`word` without an English possessive: turing's → turing."""
    return word.removesuffix("'s")


def before_apostrophe(word: str) -> str:
    """`word` up to its apostrophe, after which Turkish writes the endings of names: istanbul'da → istanbul."""
    return word.partition("'")[0]
