"""Analyzers: the terms by which a text of each language is found."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import ClassVar
from weakref import WeakSet

import regex

from interlingua.errors import BadInput, suggestion
from interlingua.text.analyzers.rules import Rewrite, Rules, rules_of, snowball, snowball_version, stopwords
from interlingua.text.analyzers.segment import (
    FIRST_HANGUL,
    HANGUL,
    LETTER_OR_DIGIT,
    SEGMENTERS,
    folded,
    grams,
    hangul_grams,
    runs,
    script_grams,
    segmenters_of,
    term_nfkc,
    words,
)
from interlingua.text.languages import find_code

Cut = Callable[[str], list[str]]
HELD = 1 << 16
"""Pieces of text whose terms all analyzers together remember. As many older ones are kept beside them."""
LONGEST = 40  # characters of a piece that is worth remembering
PIECE = 250
"""Characters that `Analyzer.counts` reads at a time, of a text without white space."""
PIECES = regex.compile(rf"(?s).{{1,{PIECE}}}(?<=[\p{{P}}\p{{S}}\s])|.{{1,{PIECE}}}(?!\p{{M}})|.{{1,{PIECE}}}")
"""The longest that ends with punctuation, else before a letter and not before its mark."""


class Analyzer:
    """Cuts texts into terms, always in the same way: equal `name` and `version` mean equal terms.

    `steps` says in words what it does, in order. `by_space`: white space always ends a term, so that a text is cut
    at it first and what stands between is analysed once, however often it comes again.
    """

    _all: ClassVar[WeakSet[Analyzer]] = WeakSet()
    _held: ClassVar[int] = 0

    def __init__(self, name: str, version: str, steps: tuple[str, ...], cut: Cut, *, by_space: bool = True) -> None:
        self.name, self.version, self.steps = name, version, steps
        self._cut, self._by_space = cut, by_space
        self._known: dict[str, list[str]] = {}
        self._older: dict[str, list[str]] = {}
        self._once: dict[str, str] = {}
        Analyzer._all.add(self)

    def __call__(self, text: str) -> list[str]:
        """The terms of `text`, in order; none for a text without a letter or digit."""
        if not self._by_space:
            return self._cut(text)
        memo, all_terms = self._known, []
        for piece in text.split():
            terms = memo.get(piece)
            if terms is None:
                terms = self._older.get(piece)
                if terms is None:
                    terms = self._cut(piece)
                if len(piece) <= LONGEST:
                    if Analyzer._held >= HELD:
                        _forget()
                        memo = self._known
                    Analyzer._held += 1
                    # equal terms of different pieces are kept once
                    memo[piece] = terms = [self._once.setdefault(term, term) for term in terms]
            all_terms += terms
        return all_terms

    def counts(self, text: str, most: int) -> tuple[Counter[str], bool]:
        """Count each term of `text`, and tell whether all of it was read: reading ends at `most` terms.

        What stands between white space is read once, however often it comes again. Of more than `PIECE` characters
        without white space, some are read at a time, so that an n-gram across the border between them is not found.
        """
        counts: Counter[str] = Counter()
        total = 0
        for piece, times in Counter(_pieces(text)).items():
            if total >= most:
                return counts, False
            terms = self(piece)
            total += max(1, len(terms))
            for term in terms:
                counts[term] += times
        return counts, True

    def __repr__(self) -> str:
        return f"<Analyzer {self.name} ({self.version}): {', '.join(self.steps)}>"


def _pieces(text: str) -> Iterator[str]:
    """Yield the pieces of a text between white space; a long piece comes in parts."""
    for piece in text.split():
        if len(piece) <= PIECE:
            yield piece
        else:
            yield from PIECES.findall(piece)


def _forget() -> None:
    """Make room: the older half of what all analyzers remember goes."""
    Analyzer._held = 0
    for instance in list(Analyzer._all):
        instance._known, instance._older, instance._once = {}, instance._known, {}


VERSION = "1"
"""The version of the rules in this package: raised whenever one of them changes a term."""
VERSIONS = {
    "fr": "2",
    "he": "4",
    "hi": "2",
    "lo": "2",
    "mr": "2",
    "ne": "2",
    "th": "2",
    "tr": "2",
    "uz": "2",
    "yi": "4",
}
"""That of languages whose own rules changed since."""
KINDS = ("language", "mixed", "ngram", "words", "char4", "whitespace")
CHARACTERS = re.compile(r"char([1-9])")
MIXED_SIZE = 4
TURKIC = ("az", "tr")


def analyzer(lang: str, kind: str | None = None) -> Analyzer:
    """The analyzer of a language: of its default kind (None or "default"), or of the one named.

    "language": the language's letters, words after UAX 29, stopwords, stems, n-grams where the script has no spaces.
    "char4" (char1 to char9): character n-grams inside words. "mixed": both. "ngram": "language" without stopwords
    and stems. "words": UAX 29 alone. "whitespace": what stands between white space, as it is. "jieba", "sudachi",
    "newmm", "kiwi": a dictionary segmenter, for Chinese, Japanese, Thai or Korean.

    `lang` is a language tag in any spelling; what is no language, '' too, is cut by "ngram" unless a kind is named.
    Raises BadInput for an unknown kind, a segmenter of another language, or a package that is not installed.
    """
    code = find_code(lang) or ""
    name = rules_of(code).default if kind in (None, "default") else str(kind)
    if name in SEGMENTERS and SEGMENTERS[name].lang != code:
        raise BadInput(f"analyzer '{name}': is for '{SEGMENTERS[name].lang}', not for '{lang}'.")
    if name not in (*KINDS, *SEGMENTERS) and not CHARACTERS.fullmatch(name):
        raise BadInput(f"unknown analyzer '{name}'.{suggestion(name, (*KINDS, *segmenters_of(code)))}")
    return _made(code, name)


@cache
def _made(code: str, kind: str) -> Analyzer:
    """One analyzer for each language and kind: what it remembers serves all that use it."""
    rules, name = rules_of(code), f"{code or 'und'}/{kind}"
    version = VERSION if kind in ("words", "whitespace") else VERSIONS.get(code, VERSION)
    if kind == "whitespace":
        return Analyzer(name, version, ("cut at white space",), str.split, by_space=False)
    if kind in SEGMENTERS:
        packages = SEGMENTERS[kind].version
        steps = ("NFKC", f"cut by {packages}", "no case, ASCII digits")
        segment = SEGMENTERS[kind].load()

        def cut(text: str) -> list[str]:
            return [folded(word) for word in segment(term_nfkc(text)) if LETTER_OR_DIGIT.search(word)]

        return Analyzer(name, f"{version}, {packages}", steps, cut, by_space=False)
    turkic = code in TURKIC
    letters = None if kind == "words" else rules.letters

    def prepare(text: str) -> str:
        text = term_nfkc(text)
        return folded(letters(text) if letters else text, turkish=turkic)

    first_steps = (
        "NFKC, no case, ASCII digits",
        *(["dotless i"] if turkic else []),
        *(["letters of the language"] if letters else []),
        "words (UAX 29)",
    )
    if kind == "words":
        return Analyzer(name, version, first_steps, lambda piece: words(prepare(piece)))
    if match := CHARACTERS.fullmatch(kind):
        size = int(match[1])
        return Analyzer(
            name,
            version,
            (*first_steps, f"character {size}-grams"),
            lambda piece: [gram for word, _ in runs(prepare(piece)) for gram in grams(word, size)],
        )
    return _terms(code, kind, version, rules, prepare, first_steps)


def _terms(
    code: str, kind: str, version: str, rules: Rules, prepare: Rewrite, first_steps: tuple[str, ...]
) -> Analyzer:
    """ "language", "mixed" and "ngram"."""
    stems = kind != "ngram"
    size = MIXED_SIZE if kind == "mixed" else 0
    apostrophe, after = rules.apostrophe, rules.after if stems else None
    stem = snowball(rules.snowball) if stems and rules.snowball else rules.stem if stems else None
    if stems and rules.snowball:
        version += f", Snowball {snowball_version()}"

    def split(text: str) -> list[tuple[str, bool]]:
        tokens = runs(prepare(text))
        if apostrophe is None:
            return tokens
        return [(part, unspaced) for word, unspaced in tokens if (part := apostrophe(word))]

    stoplist = frozenset(word for entry in (stopwords().get(code, ()) if stems else ()) for word, _ in split(entry))

    def cut(piece: str) -> list[str]:
        terms: list[str] = []
        for word, unspaced in split(piece):
            if word in stoplist:
                continue
            if unspaced:
                terms += script_grams(word)
            elif max(word) >= FIRST_HANGUL and HANGUL.search(word):
                terms += hangul_grams(word)
            else:
                stemmed = stem(word) if stem else word
                terms.append(after(stemmed) if after else stemmed)
                if size:
                    terms += grams(word, size)
        return terms

    steps = [*first_steps, "apostrophes"] if apostrophe else [*first_steps]
    steps += ["n-grams in scripts without spaces"]
    steps += [f"{len(stoplist)} stopwords"] if stoplist else []
    steps += [f"Snowball {rules.snowball}" if rules.snowball else "light endings"] if stem else []
    steps += ["spellings of a stem"] if after else []
    steps += [f"and character {size}-grams of the words"] if size else []
    return Analyzer(f"{code or 'und'}/{kind}", version, tuple(steps), cut)
