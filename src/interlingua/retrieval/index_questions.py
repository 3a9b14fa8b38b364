"""What is asked of an index, checked, before anything is searched: the same for every store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Collection as Names
from contextlib import contextmanager
from itertools import chain, islice, zip_longest
from math import inf
from time import perf_counter
from typing import NamedTuple

from interlingua.data.records import Query
from interlingua.errors import InterlinguaError, suggestion
from interlingua.text.analyzers import analyzer
from interlingua.text.analyzers.characters import nfkc
from interlingua.text.detect import detect_language
from interlingua.text.languages import find_code

MODES = ("hybrid", "dense", "lexical")
LONGEST = 10_000
"""Characters that a question may have, as it is written and in NFKC."""
READ, ELSEWHERE = 4_000, 500
"""Terms of a question that the analyzer of its language finds, and that of each other language, the first of them; what
comes again is found once."""
TERMS = 2_000
"""Distinct terms of a question that are compared with passages, the first that the analyzers find."""


class OutOfTime(InterlinguaError):
    """A question took more time than it was given."""


class Question:
    """A question, normalised once (NFKC), whose terms are found once for each language.

    `text` is as it was written, which is what encoders read; `lang` is its language, "" where it is not sure. Pass one
    object to an index and to `Highlights`, so that both use the same terms. Raises InterlinguaError for a text of more
    than `LONGEST` characters.
    """

    def __init__(self, text: str, lang: str | None = None) -> None:
        """`lang` None: it is detected."""
        self.text, self.normal = text, normal_question(text)
        self.lang = detect_language(text) if lang is None else lang
        self.is_cut = False
        """Whether terms beyond `READ`, `ELSEWHERE` or `TERMS` were left out so far."""
        self._counts: dict[str, Counter[str]] = {}

    def counts(self, lang: str) -> Counter[str]:
        """The terms that the analyzer of a language finds, the first of them, and how often each occurs."""
        code = find_code(lang) or ""
        if code not in self._counts:
            most = READ if code == (find_code(self.lang) or "") else ELSEWHERE
            self._counts[code], whole = analyzer(code).counts(self.normal, most)
            self.is_cut |= not whole
        return self._counts[code]

    def terms(self, languages: Iterable[str]) -> Counter[str]:
        """The terms to look for in passages in `languages`, at most `TERMS`: by the analyzer of the question's language
        where there are passages in it, else by all analyzers of the passages, each term as often as the one that finds
        it most often says."""
        codes = sorted({find_code(name) or "" for name in languages})
        code = find_code(self.lang) or ""
        found = [self.counts(chosen) for chosen in ([code] if code and code in codes else codes)]
        terms: Counter[str] = Counter()
        for counts in found:
            terms |= counts
        if len(terms) > TERMS:
            self.is_cut = True
            in_turn = dict.fromkeys(term for term in chain.from_iterable(zip_longest(*found)) if term is not None)
            kept = set(islice(in_turn, TERMS))
            terms = Counter({term: times for term, times in terms.items() if term in kept})
        return terms


class Questions(NamedTuple):
    """Questions, also as queries for encoders, and the languages to search in, with the passages of each."""

    asked: list[Question]
    queries: list[Query]
    searched: dict[str, int]


def questions(texts: Sequence[str | Question], lang: str | Sequence[str | None] | None, mode: str,
              langs: Names[str] | None, languages: Mapping[str, int], place: object) -> Questions:
    """`texts` as questions in `lang` (one for all or one for each; detected where None), for a search of `mode` among
    the passages in `langs` (None: all) of the index at `place`, which has `languages`. A `Question` stays as it is.

    Raises InterlinguaError for an unknown mode, another number of languages than of questions, a language in which
    there is no passage, and a text that is too long.
    """
    if mode not in MODES:
        raise InterlinguaError(f"mode '{mode}' is unknown.{suggestion(mode, MODES)}")
    given = [lang] * len(texts) if lang is None or isinstance(lang, str) else list(lang)
    if len(given) != len(texts):
        raise InterlinguaError(f"{len(given)} languages for {len(texts)} questions: give one for each.")
    for name in langs or ():
        if name not in languages:
            unknown = f" Of {languages['']:,} passages the language is unknown." if languages.get("") else ""
            raise InterlinguaError(f"{place}: has no passage in language '{name}'."
                                   f"{suggestion(name, languages)}{unknown}")
    asked = [text if isinstance(text, Question) else Question(text, known or None)
             for text, known in zip(texts, given, strict=True)]
    queries = [Query(f"question {number}", one.text, one.lang) for number, one in enumerate(asked, 1)]
    searched = {name: count for name, count in languages.items() if langs is None or name in langs}
    return Questions(asked, queries, searched)


def normal_question(text: str) -> str:
    """`text` in NFKC. Raises InterlinguaError where it has more than `LONGEST` characters, before or after."""
    if len(text) > LONGEST:
        raise InterlinguaError(f"a question has at most {LONGEST:,} characters, this one has {len(text):,}. Shorten "
                               "it.")
    normal = nfkc(text)
    if len(normal) > LONGEST:
        raise InterlinguaError(f"a question has at most {LONGEST:,} characters in Unicode's form NFKC, in which this "
                               f"one of {len(text):,} has {len(normal):,}. Shorten it.")
    return normal


class Budget:
    """The seconds of work that each question of a search may take. Work for several is shared among them evenly.

    `stage` measures; `clock` gives the time in seconds.
    """

    def __init__(self, seconds: float = inf, clock: Callable[[], float] = perf_counter) -> None:
        self.seconds, self._clock = seconds, clock
        self._spent: dict[Question, float] = {}

    @contextmanager
    def stage(self, work: str, *asked: Question) -> Iterator[None]:
        """Work for these questions. Raises OutOfTime after it where one of them has spent more than it may."""
        start = self._clock()
        yield
        for question in asked:
            self._spent[question] = self._spent.get(question, 0.0) + (self._clock() - start) / len(asked)
            if self._spent[question] > self.seconds:
                raise OutOfTime(f"the question was given up during {work}: it took more than {self.seconds:g} seconds. "
                                "Ask a shorter question, or ask again when there is less to do.")
