"""BUCC 2018 and planted bitext: F1 of mined pairs.

Two protocols, whose numbers are not comparable. `train_self`: the threshold is the best one for the very pairs it is
scored on (Reimers & Gurevych, LaBSE), which is optimistic. `xtreme`: the threshold is tuned on `sample` and scored on
`training` (XTREME).

A small share of the sentences of both sides translate each other; the others lost their translation to make a
distractor. Scored by the code of BUCC.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from interlingua.alignment.mining import CorpusSide, mine_sentences
from interlingua.data.readers import read_parallel
from interlingua.data.readers.bitext import Comparable, bucc_pairs, read_bucc
from interlingua.data.records import ParallelPair
from interlingua.errors import BadInput, suggestion
from interlingua.evaluation.table import render_records
from interlingua.models.protocols import Encoder, Role, encode_as
from interlingua.text.languages import text_key

logger = logging.getLogger(__name__)

PROTOCOLS = ("train_self", "xtreme")
NOTE = (
    "F1 × 100 of mined sentence pairs. train_self: threshold tuned on the pairs it is scored on (optimistic); "
    "xtreme: tuned on the sample split. The two are not comparable"
)
MinedPair = tuple[str, str, float]


@dataclass(frozen=True)
class BuccScore:
    """Percentages at `threshold`, and the counts behind them: pairs `mined` with that score or a better one, `correct`
    among them, and pairs in the `gold`."""

    f1: float
    precision: float
    recall: float
    threshold: float
    mined: int
    correct: int
    gold: int


@dataclass(frozen=True)
class BuccResult:
    """A language pair: its score by `protocol`, and by each protocol that could be had; distinct sentences mined."""

    pair: str
    protocol: str
    scores: Mapping[str, BuccScore]
    x_sentences: int
    y_sentences: int

    @property
    def score(self) -> BuccScore:
        return self.scores[self.protocol]


def bucc_f1(pairs: Iterable[MinedPair], gold: Collection[tuple[str, str]], threshold: float | None = None) -> BuccScore:
    """F1 of mined `pairs`, (id, id, score), against the `gold` pairs of ids, at `threshold`, or at the best one.

    The best: go down the pairs by score, and take the cut with the largest F1 (of equal ones the first). The threshold
    is the middle between the scores on both sides of the cut; below the last pair, its own score. No cut is made
    between equal scores, since no threshold is there. A threshold keeps what reaches it.

    Raises BadInput for an empty gold.
    """
    if not gold:
        raise BadInput("no gold pairs: F1 needs the pairs that are to be found.")
    gold = gold if isinstance(gold, (set, frozenset)) else set(gold)
    ranked = sorted(pairs, key=lambda pair: -pair[2])
    if threshold is None:
        threshold = _best_threshold(ranked, gold)
    mined = [(x, y) for x, y, score in ranked if score >= threshold]
    correct = sum(pair in gold for pair in mined)
    precision, recall = correct / len(mined) if mined else 0.0, correct / len(gold)
    return BuccScore(
        200 * correct / (len(mined) + len(gold)),
        100 * precision,
        100 * recall,
        threshold,
        len(mined),
        correct,
        len(gold),
    )


def _best_threshold(ranked: Sequence[MinedPair], gold: Collection[tuple[str, str]]) -> float:
    """Infinity where no pair is correct: then nothing is best kept."""
    best, threshold, correct = 0.0, float("inf"), 0
    next_scores = [score for _, _, score in ranked[1:]]
    for count, (x, y, score) in enumerate(ranked, 1):
        correct += (x, y) in gold
        last = count == len(ranked)
        f1 = 2 * correct / (count + len(gold))
        if f1 > best and (last or next_scores[count - 1] < score):
            best, threshold = f1, score if last else (score + next_scores[count - 1]) / 2
    return threshold


def mined_pairs(
    encoder: Encoder,
    task: Comparable,
    *,
    k: int = 4,
    kind: str = "ratio",
    retrieval: str = "max",
    role: Role = "passage",
) -> tuple[list[MinedPair], int, int]:
    """Mine a task: pairs of ids with scores, and the numbers of distinct sentences of both sides.

    Sentences are deduplicated before they are encoded in `role`; pairs with a sentence that came more than
    once are dropped afterwards, since its id is not known (so such gold pairs count as missed). The encoder is told the
    language of each side, which a calibrated one needs. Vectors are kept in temporary files.
    """
    x, y = CorpusSide.of(task.x, task.x_lang), CorpusSide.of(task.y, task.y_lang)
    rows = mine_sentences(
        x, y, encode_as(encoder, role), langs=(task.x_lang, task.y_lang), k=k, kind=kind, retrieval=retrieval
    )
    pairs = pairs_of_ids(rows, x, y)
    logger.info(
        f"{task.pair}: {x.said()}; {y.said()}; {len(rows):,} pairs mined, "
        f"{len(rows) - len(pairs):,} of them dropped because a sentence came more than once"
    )
    return pairs, len(x.texts), len(y.texts)


def pairs_of_ids(found: Iterable[tuple[int, int, float]], x: CorpusSide, y: CorpusSide) -> list[MinedPair]:
    """The ids of mined rows of two sides, without those of sentences that came more than once."""
    return [(x.ids[i], y.ids[j], score) for i, j, score in found if not x.repeated[i] and not y.repeated[j]]


def bucc(
    encoder: Encoder,
    folder: str | Path,
    pair: str,
    protocol: str = "train_self",
    *,
    k: int = 4,
    kind: str = "ratio",
    retrieval: str = "max",
    role: Role = "passage",
) -> BuccResult:
    """F1 on BUCC's `training` split of `pair` ("fr-en"), whose files lie in `folder`, by both protocols where `sample`
    lies there too. Raises BadInput for missing files and for an unknown protocol."""
    if protocol not in PROTOCOLS:
        raise BadInput(f"protocol '{protocol}' is unknown.{suggestion(protocol, PROTOCOLS)}")
    options: dict[str, Any] = {"k": k, "kind": kind, "retrieval": retrieval, "role": role}
    threshold = None
    if protocol == "xtreme" or pair in bucc_pairs(folder, "sample"):
        sample = read_bucc(folder, pair, "sample")
        threshold = bucc_f1(mined_pairs(encoder, sample, **options)[0], sample.gold).threshold
    task = read_bucc(folder, pair, "training")
    pairs, *counts = mined_pairs(encoder, task, **options)
    scores = {"train_self": bucc_f1(pairs, task.gold)}
    if threshold is not None:
        scores["xtreme"] = bucc_f1(pairs, task.gold, threshold)
    return BuccResult(pair, protocol, scores, *counts)


def bucc_table(systems: Mapping[str, Mapping[str, BuccResult]], form: str = "text") -> str:
    """system → pair → result as "text" or "markdown", F1 by both protocols; "tsv" or "json" with precision, recall,
    threshold and counts at full precision."""
    if form not in ("text", "markdown"):
        return render_records(
            [
                {
                    "system": system,
                    "pair": pair,
                    "protocol": protocol,
                    "f1": score.f1,
                    "precision": score.precision,
                    "recall": score.recall,
                    "threshold": score.threshold,
                    "mined": score.mined,
                    "correct": score.correct,
                    "gold": score.gold,
                    "x": result.x_sentences,
                    "y": result.y_sentences,
                }
                for system, results in systems.items()
                for pair, result in results.items()
                for protocol, score in result.scores.items()
            ],
            form,
        )
    body = [
        [
            system,
            pair,
            *(f"{result.scores[name].f1:.1f}" if name in result.scores else "–" for name in PROTOCOLS),
            result.score.precision,
            result.score.recall,
            f"{result.score.threshold:.4f}",
            result.score.gold,
        ]
        for system, results in systems.items()
        for pair, result in results.items()
    ]
    for system, results in systems.items():
        means = [
            f"{sum(result.scores[name].f1 for result in results.values()) / len(results):.1f}"
            if results and all(name in result.scores for result in results.values())
            else "–"
            for name in PROTOCOLS
        ]
        body.append([system, "avg", *means, "", "", "", ""])
    text = tabulate(
        body,
        ["BUCC", "pair", *PROTOCOLS, "precision", "recall", "threshold", "gold"],
        floatfmt=".1f",
        tablefmt="github" if form == "markdown" else "simple",
        intfmt=",",
        disable_numparse=[6],
    )
    return f"{text}\n\n{NOTE}"


def planted(
    pairs: Iterable[ParallelPair], *, share: float = 0.02, most: int | None = None, seed: int = 0
) -> Comparable:
    """A task made of translations in one pair of languages.

    `share` of the sentences on each side have a translation on the other side: the gold. For each of the others the
    translation is held out: from one row comes a source sentence, or a target sentence, never both. `most` bounds the
    sentences on a side. Rows are left out, and counted, in which a sentence (as `text_key` sees it) is in another row
    too or on both sides, so that no pair is a translation by accident. The same rows and seed give the same task.

    Raises BadInput for several languages, a share that is not between 0 and 1, and too few rows for one pair.
    """
    if not 0 < share <= 1:
        raise BadInput(f"share {share}: must be above 0 and at most 1.")
    rows = list(pairs)
    langs = {(row.source_lang, row.target_lang) for row in rows}
    if len(langs) != 1:
        names = ", ".join(sorted("-".join(pair) for pair in langs)) or "no pairs"
        raise BadInput(f"a planted bitext has one pair of languages, this holds {names}.")
    keys = [(text_key(row.source), text_key(row.target)) for row in rows]
    counts = Counter(key for pair in keys for key in pair)
    unique = [row for row, (x, y) in zip(rows, keys, strict=True) if counts[x] == counts[y] == 1]
    draw = random.Random(seed)
    draw.shuffle(unique)
    # a side has gold / share sentences, of which all but the gold take a row that serves the other side nothing
    gold = int(len(unique) * share / (2 - share))
    if most is not None:
        gold = min(gold, int(most * share))
    if not gold:
        raise BadInput(
            f"{len(unique):,} rows without duplicates, of {len(rows):,}, are too few for a share of "
            f"{share:g}: not one pair can be planted. Give more rows or a larger share."
        )
    others = round(gold / share) - gold
    gold_rows, only_x, only_y = (
        unique[start : start + count] for start, count in ((0, gold), (gold, others), (gold + others, others))
    )
    ((x_lang, y_lang),) = langs
    x = [*((f"{x_lang}-{i}", row.source) for i, row in enumerate([*gold_rows, *only_x]))]
    y = [*((f"{y_lang}-{i}", row.target) for i, row in enumerate([*gold_rows, *only_y]))]
    logger.info(
        f"{x_lang}-{y_lang}: {len(rows) - len(unique):,} of {len(rows):,} rows left out as duplicates; {gold:,} pairs "
        f"planted among {len(x):,} and {len(y):,} sentences"
    )
    draw.shuffle(x)
    draw.shuffle(y)
    return Comparable(x, y, frozenset((f"{x_lang}-{i}", f"{y_lang}-{i}") for i in range(gold)), x_lang, y_lang)


def planted_f1(
    encoder: Encoder,
    path: str | Path,
    *,
    share: float = 0.02,
    most: int | None = None,
    seed: int = 0,
    k: int = 4,
    kind: str = "ratio",
    retrieval: str = "max",
    role: Role = "passage",
) -> BuccResult:
    """Plant a task in the parallel file at `path` (`fi-en.tsv.gz`) and mine it; the threshold is tuned on the task
    itself (`train_self`). Arguments are those of `planted` and of `bucc`."""
    task = planted(read_parallel(path), share=share, most=most, seed=seed)
    pairs, *counts = mined_pairs(encoder, task, k=k, kind=kind, retrieval=retrieval, role=role)
    return BuccResult(task.pair, "train_self", {"train_self": bucc_f1(pairs, task.gold)}, *counts)
