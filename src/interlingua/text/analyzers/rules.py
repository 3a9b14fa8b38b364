"""Language rules of the analyzers: letters, apostrophes, endings, stemmers, stopwords."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from operator import methodcaller
from typing import Any, cast

import regex

from interlingua.errors import NotFound
from interlingua.text.languages import languages

Rewrite = Callable[[str], str]


def rewriting(letters: str, by: str, dropped: str = "") -> Rewrite:
    """A function that puts other letters in place of some, one by one, and leaves out those that are `dropped`."""
    return methodcaller("translate", str.maketrans(letters, by, dropped))


MARKS = "".join(map(chr, (*range(0x064B, 0x0656), 0x0670, 0x0640)))
"""Short vowels, doubling, hamza and madda as marks, the superscript alef, and the tatweel that stretches a word."""
ALEFS = "آأإٱ"

arabic_letters = rewriting(ALEFS + "ى", "ا" * 4 + "ي", MARKS)
"""Arabic (NFKC) without vowel marks and tatweel; every alef bare, final ya with dots."""
persian_letters = rewriting(ALEFS + "يىېے" + "ۀہۂۃة" + "ك" + "\u200c", "ا" * 4 + "ی" * 4 + "ه" * 5 + "ک" + " ", MARKS)
"""Persian or Urdu (NFKC) with one ya, one kaf and one ha for the Persian, Arabic and Urdu forms, every alef bare, no
marks. The zero-width non-joiner, which joins prefixes and endings to a word, becomes a space."""
ta_marbuta = rewriting("ة", "ه")
"""A stem with ha for ta marbuta: done after stemming, since the stemmer knows endings in ta marbuta."""

french_letters: Rewrite = methodcaller("translate", str.maketrans({"œ": "oe", "Œ": "OE"}))
"""French with two letters for œ, as keyboards have them."""

POINTS = regex.compile(r"[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7]+")
HEBREW = str.maketrans({"׳": "'", "װ": "וו", "ױ": "וי", "ײ": "יי"})
GERSHAYIM = regex.compile(r"(?<=\p{Hebrew})[״“”„](?=\p{Hebrew})")


def hebrew_letters(text: str) -> str:
    """`text` (NFKC, Hebrew or Yiddish) without vowel points and accents, as it is mostly written; the marks of
    abbreviations and of foreign sounds are the straight quotes that keyboards have (צה״ל is צה"ל); two letters for a
    ligature of Yiddish."""
    return cast(str, GERSHAYIM.sub('"', POINTS.sub("", text))).translate(HEBREW)


AT_MOST = 2  # endings: one of case after one of number
KEPT = 3  # characters that must be left


def ending_stripper(endings: Iterable[str]) -> Rewrite:
    """A function that takes the longest of `endings` off a word, twice at most, and leaves three characters or more."""
    longest_first = sorted(set(endings), key=lambda ending: (-len(ending), ending))

    def strip(word: str) -> str:
        for _ in range(AT_MOST):
            for ending in longest_first:
                if word.endswith(ending) and len(word) >= len(ending) + KEPT:
                    word = word[: -len(ending)]
                    break
        return word

    return strip


BENGALI_ENDINGS = (
    "গুলো গুলোর গুলোতে গুলোকে গুলি গুলির গুলিতে গুলিকে দের দেরকে দিগের দিগকে রা েরা েদের টি টির টিতে টিকে টা টার "
    "টাতে টাকে "
    "খানা খানি ে ের র তে কে য় য়ে য়ের"
).split()


bengali_letters = rewriting("ঈঊীূণশষৎঙ", "ইউিুনসসতং", "ঁঃ\u09bc\u200c\u200d")
"""Bengali (NFKC) without chandrabindu, visarga, nukta and joiners; long i and u short; the letters for one n, one s,
one t, one ng as one."""
bengali_stem = ending_stripper(bengali_letters(ending) for ending in BENGALI_ENDINGS)
"""A word in these letters without its endings of number, definiteness and case."""

DEVANAGARI = rewriting("ऍऎऑऒऄॲॅॆॉॊ\u0929\u0931\u0934", "एएओओअअेेोो\u0928\u0930\u0933", "\u093c\u200c\u200d")
NASAL = regex.compile("न्(?=[क-ह])|ँ")
short_vowels = rewriting("आईऊॠॡऐऔीूॄॣैौ", "अइउऋऌएओिुृॢेो", "्")
"""A stem with long vowels short and without virama: what differs between common spellings of one word. Done after
stemming, since the stemmer knows endings as they are written."""


def devanagari_letters(text: str) -> str:
    """`text` (NFKC) without nukta (the dot of borrowed sounds) and joiners, every nasal before a consonant as anusvara,
    the vowels of borrowed words as the usual ones."""
    return cast(str, NASAL.sub("ं", DEVANAGARI(text)))


TELUGU_ENDINGS = "లు లను లకు లలో ల్లో లతో లని లపై ల ను ని కు కి లో తో పై గా న చే యొక్క నుండి నుంచి డు ము వు".split()
telugu_letters = rewriting("ఁఀఆఈఊఏఓీూేో", "ంంఅఇఉఎఒిుెొ", "ః\u200c\u200d")
"""Telugu (NFKC) with long vowels short, one nasal sign, no visarga and no joiners."""
telugu_stem = ending_stripper(telugu_letters(ending) for ending in TELUGU_ENDINGS)
"""A word in these letters without its endings of number and case."""


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


WITHIN = ("kur'an", "san'at", "mes'ul", "mel'un", "cür'et")
"""Turkish words with an apostrophe of their own, folded, which most write without it."""


def without_possessive(word: str) -> str:
    """`word` without an English possessive: turing's → turing."""
    return word.removesuffix("'s")


def before_apostrophe(word: str) -> str:
    """`word` up to its apostrophe, after which Turkish writes the endings of names: istanbul'da → istanbul. One that is
    part of the word stays out of it: o'neill'in → oneill, kur'an'ın → kuran."""
    name, apostrophe, rest = word.partition("'")
    if apostrophe and (len(name) == 1 or word.startswith(WITHIN)):
        return name + rest.partition("'")[0]
    return name


def snowball(algorithm: str) -> Callable[[str], str]:
    """The stemmer of that name ("porter", "german", …): one word, folded, to its stem.

    Raises NotFound where PyStemmer is not installed or too old for it.
    """
    stemmer = _module()
    if algorithm not in stemmer.algorithms():
        raise NotFound(
            f"the Snowball stemmer '{algorithm}' is not in PyStemmer {stemmer.version()}. "
            "Get a newer one: pip install -U PyStemmer"
        )
    return cast("Callable[[str], str]", stemmer.Stemmer(algorithm).stemWord)


def snowball_version() -> str:
    """PyStemmer's version, which stands for the rules of its stemmers."""
    return str(_module().version())


def _module() -> Any:
    try:
        import Stemmer
    except ImportError:
        raise NotFound(
            "stemming needs PyStemmer: pip install 'interlingua[index]'. Or take the analyzer 'char4'."
        ) from None
    return Stemmer


@cache
def stopwords() -> dict[str, tuple[str, ...]]:
    """Language code → its function words, as they are written (lower case, with their diacritics)."""
    rows = files("interlingua.text.analyzers").joinpath("stopwords.tsv").read_text("utf-8").splitlines()[1:]
    return {lang: tuple(words.split()) for langs, words in (row.split("\t") for row in rows) for lang in langs.split()}


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


romanian_letters = rewriting("şţŞŢ", "șțȘȚ")
"""Romanian with the comma that it writes below s and t, for the cedilla of older character sets."""
russian_letters = rewriting("ёЁ", "еЕ")
"""Russian with е for ё, which is written only sometimes."""
uzbek_letters = rewriting("ʻ`", "''")
"""Uzbek with an apostrophe for the turned comma of oʻ and gʻ, or a grave accent in its place."""

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
    "fr": Rules("mixed", "french", french_letters, apostrophe=_elision("fr")),
    "ga": Rules("mixed", "irish", apostrophe=_elision("ga")),
    "he": Rules("mixed", letters=hebrew_letters),
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
    "uz": Rules("mixed", letters=uzbek_letters),
    "vi": Rules("char4"),
    "yi": Rules("mixed", letters=hebrew_letters),
}


def rules_of(lang: str) -> Rules:
    """The rules of a language code. Where there are none, words and their n-grams serve best ("mixed"); where the
    script has no spaces, or the language is not known, "ngram"."""
    language = languages().get(lang)
    return RULES.get(lang) or Rules("mixed" if language and language.spaced and language.script != "Kore" else "ngram")
