"""The time of the worst questions against that of an ordinary one: hybrid search, with highlights.

    python benchmarks/worst_questions.py

The bundled encyclopedia in eleven languages is one index, with the bundled model. Each round puts every kind of
question, and an ordinary one in each language. No question is put twice, as analyzers remember words. Prints the median
of the rounds' ratios to the median ordinary question of the same round, and the largest.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter

from common import options
from interlingua.data import encyclopedia
from interlingua.data.collections import load_collection
from interlingua.errors import InterlinguaError
from interlingua.index.index import Index
from interlingua.index.metadata import LONGEST, Question
from interlingua.models.late_interaction import load_any
from interlingua.serving.service import Searches

LETTERS = "abcdefghijklmnopqrstuvwxyz"
ARABIC, VOWELS = "ابتثجحخدذرزسشصضطظعغفقكلمنهوي", "\u064b\u064c\u064d\u064e\u064f\u0650\u0651\u0652"
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
MARKS = [chr(code) for code in range(0x300, 0x340)]


def of(first: int, last: int) -> Callable[[random.Random], str]:
    """A question of random characters in this range."""
    return lambda dice: "".join(chr(dice.randint(first, last)) for _ in range(LONGEST))


def drawn(pieces: Callable[[random.Random], str]) -> Callable[[random.Random], str]:
    """A question of random pieces, as many as there is room for."""

    def question(dice: random.Random) -> str:
        text = ""
        while len(text) < LONGEST:
            text += pieces(dice)
        return text[:LONGEST]

    return question


def word(dice: random.Random) -> str:
    """Letters that are no word."""
    return "".join(dice.choices(LETTERS, k=dice.randint(2, 9)))


KINDS: dict[str, Callable[[random.Random], str]] = {
    "10,000 × U+FDFA (refused)": lambda dice: "\ufdfa" * LONGEST,
    "U+FDFA, 10,000 after NFKC": lambda dice: "\ufdfa" * 549 + word(dice),
    "Chinese characters": of(0x4E00, 0x9FA5),
    "Hangul, no spaces": of(0xAC00, 0xD7A3),
    "Thai, no spaces": of(0xE01, 0xE2E),
    "Khmer, no spaces": of(0x1780, 0x17A2),
    "one word": drawn(lambda dice: dice.choice(LETTERS)),
    "different words": drawn(lambda dice: word(dice) + " "),
    "words of three letters": drawn(lambda dice: "".join(dice.choices(LETTERS, k=3)) + " "),
    "zero-width joiners": drawn(lambda dice: "\u200d" * 99 + dice.choice(LETTERS)),
    "marks on one letter": lambda dice: "a" + "".join(dice.choices(MARKS, k=LONGEST - 1)),
    "Arabic, a vowel on each letter": drawn(lambda dice: dice.choice(ARABIC) + dice.choice(VOWELS)),
    "joined emoji": drawn(lambda dice: FAMILY + dice.choice(LETTERS)),
    "letters between full stops": drawn(lambda dice: dice.choice(LETTERS) + "."),
    "digits between commas": drawn(lambda dice: str(dice.randint(0, 999)) + ","),
}


def main() -> None:
    """Measure."""
    given = options(__doc__, repeat=5).parse_args()
    import torch

    torch.set_num_threads(given.threads)
    langs = encyclopedia.languages()
    collections = {lang: load_collection(f"encyclopedia:{lang}") for lang in langs}
    passages = [replace(one, id=f"{lang}/{one.id}") for lang in langs for one in collections[lang].passages]
    normal = iter(
        [
            query.text
            for queries in zip(*(collections[lang].queries for lang in langs), strict=False)
            for query in queries
        ]
    )
    dice = random.Random(0)
    ratios: dict[str, list[float]] = {name: [] for name in KINDS}
    base: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        index = Index.build(load_any("default"), passages, Path(folder, "index"))
        searches = Searches(index, None, 10, "hybrid", None, False, None, True)

        def seconds(text: str) -> float:
            start = perf_counter()
            with suppress(InterlinguaError):  # one kind is refused
                searches([Question(text)])
            return perf_counter() - start

        for text in islice(normal, 2 * len(langs)):  # in every language, so that nothing is loaded while it is timed
            seconds(text)
        for _ in range(given.repeat):
            held = [seconds(text) for text in islice(normal, len(langs))]
            base.append(median(held))
            for name, kind in KINDS.items():
                ratios[name].append(seconds(kind(dice)) / base[-1])
    print(
        f"{len(passages):,} passages in {len(langs)} languages, {given.threads} threads, {given.repeat} rounds; "
        f"an ordinary question takes {1e3 * median(base):.0f} ms"
    )
    for name, found in ratios.items():
        print(f"{name:31} {median(found):5.1f} times, at most {max(found):.1f}")


if __name__ == "__main__":
    main()
