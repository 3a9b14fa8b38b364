"""A planted bitext: parallel sentences turned into a BUCC-like task, for languages that BUCC has not.

A small share of the sentences of both sides translate each other; the others lost their translation to make a
distractor. Scored by the code of BUCC.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from interlingua.data.readers import read_parallel
from interlingua.data.readers.bucc import Comparable
from interlingua.data.records import ParallelPair
from interlingua.errors import InterlinguaError
from interlingua.evaluation.bucc import BuccResult, bucc_f1, mined_pairs
from interlingua.progress import say
from interlingua.retrieval.vectors import TextEncoder
from interlingua.text.normalise import text_key


def planted(
    pairs: Iterable[ParallelPair], *, share: float = 0.02, most: int | None = None, seed: int = 0,
) -> Comparable:
    """A task made of translations in one pair of languages.

    `share` of the sentences on each side have a translation on the other side: the gold. For each of the others the
    translation is held out: from one row comes a source sentence, or a target sentence, never both. `most` bounds the
    sentences on a side. Rows are left out, and counted, in which a sentence (as `text_key` sees it) is in another row
    too or on both sides, so that no pair is a translation by accident. The same rows and seed give the same task.

    Raises InterlinguaError for several languages, a share that is not between 0 and 1, and too few rows for one pair.
    """
    if not 0 < share <= 1:
        raise InterlinguaError(f"share {share}: must be above 0 and at most 1.")
    rows = list(pairs)
    langs = {(row.source_lang, row.target_lang) for row in rows}
    if len(langs) != 1:
        found = ", ".join(sorted("-".join(pair) for pair in langs)) or "no pairs"
        raise InterlinguaError(f"a planted bitext has one pair of languages, this holds {found}.")
    keys = [(text_key(row.source), text_key(row.target)) for row in rows]
    counts = Counter(key for both in keys for key in both)
    alone = [row for row, (x, y) in zip(rows, keys, strict=True) if counts[x] == counts[y] == 1]
    draw = random.Random(seed)
    draw.shuffle(alone)
    # a side has gold / share sentences, of which all but the gold take a row that serves the other side nothing
    gold = int(len(alone) * share / (2 - share))
    if most is not None:
        gold = min(gold, int(most * share))
    if not gold:
        raise InterlinguaError(f"{len(alone):,} rows without duplicates, of {len(rows):,}, are too few for a share of "
                               f"{share:g}: not one pair can be planted. Give more rows or a larger share.")
    others = round(gold / share) - gold
    kept, only_x, only_y = (alone[start : start + count] for start, count in
                            ((0, gold), (gold, others), (gold + others, others)))
    (x_lang, y_lang), = langs
    x = [*((f"{x_lang}-{i}", row.source) for i, row in enumerate([*kept, *only_x]))]
    y = [*((f"{y_lang}-{i}", row.target) for i, row in enumerate([*kept, *only_y]))]
    say(f"{x_lang}-{y_lang}: {len(rows) - len(alone):,} of {len(rows):,} rows left out as duplicates; {gold:,} pairs "
        f"planted among {len(x):,} and {len(y):,} sentences")
    draw.shuffle(x)
    draw.shuffle(y)
    return Comparable(x, y, frozenset((f"{x_lang}-{i}", f"{y_lang}-{i}") for i in range(gold)), x_lang, y_lang)


def planted_f1(encoder: TextEncoder, path: str | Path, *, share: float = 0.02, most: int | None = None, seed: int = 0,
               k: int = 4, kind: str = "ratio", retrieval: str = "max") -> BuccResult:
    """Plant a task in the parallel file at `path` (`fi-en.tsv.gz`) and mine it; the threshold is tuned on the task
    itself (`train_self`). Arguments are those of `planted` and of `bucc`."""
    task = planted(read_parallel(path), share=share, most=most, seed=seed)
    found, *counts = mined_pairs(encoder, task, k=k, kind=kind, retrieval=retrieval)
    return BuccResult(task.pair, "train_self", {"train_self": bucc_f1(found, task.gold)}, *counts)
