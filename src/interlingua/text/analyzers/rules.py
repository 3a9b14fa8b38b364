"""What is known of each language's words: its letters, apostrophes, stemmer, and the analyzer that served it best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from interlingua.text.analyzers.apostrophes import ELIDED, before_apostrophe, without_elided, without_possessive
from interlingua.text.analyzers.arabic import arabic_letters, persian_letters, ta_marbuta
from interlingua.text.analyzers.bengali import bengali_letters, bengali_stem
from interlingua.text.analyzers.devanagari import devanagari_letters, short_vowels
from interlingua.text.analyzers.telugu import telugu_letters, telugu_stem
from interlingua.text.languages import languages

Rewrite = Callable[[str], str]


@dataclass(frozen=True)
class Rules:
    """`default` is the kind of analyzer taken when none is named. The rest makes the kind "language": `letters`
    rewrites a text, `apostrophe` a word, `snowball` or `stem` finds its stem, `after` rewrites the stem."""

    default: str
    snowball: str = ""
    letters: Rewrite | None = None
    apostrophe: Rewrite | None = None
    stem: Rewrite | None = None
    after: Rewrite | None = None


def _elision(lang: str) -> Rewrite:
    return partial(without_elided, elided=ELIDED[lang])


ROMANIAN = str.maketrans("şţŞŢ", "șțȘȚ")
RUSSIAN = str.maketrans("ёЁ", "еЕ")


def romanian_letters(text: str) -> str:
    """`text` with the comma that Romanian writes below s and t, for the cedilla of older character sets."""
    return text.translate(ROMANIAN)


def russian_letters(text: str) -> str:
    """`text` with е for ё, which is written only sometimes."""
    return text.translate(RUSSIAN)


RULES = {
    "ar": Rules("mixed", "arabic", arabic_letters, after=ta_marbuta),
    "bn": Rules("char4", letters=bengali_letters, stem=bengali_stem),
    "ca": Rules("mixed", "catalan", apostrophe=_elision("ca")),
    "cs": Rules("mixed", "czech"),
    "da": Rules("mixed", "danish"),
    "de": Rules("mixed", "german"),
    "el": Rules("mixed", "greek"),
    "en": Rules("language", "porter", apostrophe=without_possessive),
    "es": Rules("language", "spanish"),
    "et": Rules("mixed", "estonian"),
    "eu": Rules("mixed", "basque"),
    "fa": Rules("mixed", "persian", persian_letters),
    "fi": Rules("char4", "finnish"),
    "fr": Rules("mixed", "french", apostrophe=_elision("fr")),
    "ga": Rules("mixed", "irish", apostrophe=_elision("ga")),
    "hi": Rules("language", "hindi", devanagari_letters, after=short_vowels),
    "hu": Rules("mixed", "hungarian"),
    "hy": Rules("mixed", "armenian"),
    "id": Rules("language", "indonesian"),
    "it": Rules("mixed", "italian", apostrophe=_elision("it")),
    "lt": Rules("mixed", "lithuanian"),
    "mr": Rules("mixed", letters=devanagari_letters, after=short_vowels),
    "nb": Rules("mixed", "norwegian"),
    "ne": Rules("mixed", "nepali", devanagari_letters, after=short_vowels),
    "nl": Rules("mixed", "dutch"),
    "nn": Rules("mixed", "norwegian"),
    "no": Rules("mixed", "norwegian"),
    "pl": Rules("mixed", "polish"),
    "pt": Rules("mixed", "portuguese"),
    "ro": Rules("language", "romanian", romanian_letters),
    "ru": Rules("language", "russian", russian_letters),
    "sr": Rules("mixed", "serbian"),
    "sv": Rules("mixed", "swedish"),
    "ta": Rules("mixed", "tamil"),
    "te": Rules("language", letters=telugu_letters, stem=telugu_stem),
    "tr": Rules("mixed", "turkish", apostrophe=before_apostrophe),
    "ur": Rules("mixed", letters=persian_letters),
    "vi": Rules("char4"),
}


def rules_of(lang: str) -> Rules:
    """The rules of a language code. Where there are none, words and their n-grams serve best ("mixed"); where the
    script has no spaces, or the language is not known, "ngram"."""
    known = languages().get(lang)
    return RULES.get(lang) or Rules("mixed" if known and known.spaced and known.script != "Kore" else "ngram")
