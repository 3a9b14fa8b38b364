"""Hybrid search with one weight against weights that are fitted to a dozen features of the candidates.

    python benchmarks/fusion.py --data DATA --questions 300
    python benchmarks/fusion.py --data DATA --questions 60 --model multilingual-e5-small --precision int8

A score is the sum of features of a candidate, each times its weight; every feature has two, one for passages in the
question's language and one for others, mixed by their share as an index mixes the weight of vectors. The weights are
those with which a softmax over the candidates gives the passages that answer most probability (L-BFGS, a little weight
decay), and no label is needed at search time. They are fitted on texts that are no test: titles and descriptions of
GNOME's help pages and the pages, translated into 16 languages (in one language, to English, from English), and English
questions on medicine and COVID-19 with their passages.

Measured is RR@100 on XQuAD and the collections of native questions, over languages that choices are made on and over
those that none is made on ("held", common.py). "fitted on the tests" is fitted on the former languages of the tests
themselves: about what such weights could give at best. Intervals are 95%, of the difference from today's ranking, by a
bootstrap of the questions. Time is that of the features and the sum, beside today's fusion, for one question.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tabulate import tabulate

from common import HELD
from hybrid import LANGS, tests
from interlingua.data.records import Collection, Passage, Query
from interlingua.index import search
from interlingua.index.index import Index
from interlingua.index.local.store import LocalView
from interlingua.models.late_interaction import load_any

Floats = NDArray[np.float64]
HELP = "pt de ru hu id fr sv pl es zh fa fi ta uk cs ca".split()
ENGLISH = ("covidqa_deepset", "medquad_rest")
POOL = 3000  # questions whose passages are one collection
NAMES = (
    *("lexical share, squared", "lexical share", "lexical over the best", "lexical, 1 / rank"),
    *("vectors, min-max", "vectors, z", "vectors, 1 / rank"),
    *("subwords, min-max", "subwords, z", "subwords, 1 / rank"),
    *("length, z", "lexical times vectors"),
)
LENGTH = NAMES.index("length, z")
SUMS = {"its three parts": (0, 4, 7), "all but the length": tuple(i for i in range(12) if i != LENGTH)}
SUMS["all twelve"] = tuple(range(len(NAMES)))
DECAY = 1e-4


class Asked(NamedTuple):
    """The candidates of a question: today's scores, features [candidates, features], which of them answer."""

    group: str
    lang: str
    share: float
    scores: Floats
    features: Floats
    answers: NDArray[np.bool_]


def features(lexical: Floats, dense: Floats, tokens: Floats, lengths: Floats) -> Floats:
    """The features of candidates, as `NAMES` lists them; `tokens` are NaN where subwords were not matched."""
    best = max(lexical.max(initial=0.0), np.finfo(np.float32).tiny)
    matched = ~np.isnan(tokens)
    words = np.where(matched, tokens, tokens[matched].min() if matched.any() else 0.0)
    level = np.where(matched, tokens, tokens[matched].mean() if matched.any() else 0.0)
    parts = (lexical**2 / best, lexical, lexical / best, _ranks(lexical) * (lexical > 0))
    vectors = (_spread(dense), _standard(dense), _ranks(dense))
    subwords = (_spread(words), _standard(level), _ranks(words))
    return np.stack((*parts, *vectors, *subwords, _standard(np.log(lengths)), lexical / best * _spread(dense)), axis=1)


def _spread(values: Floats) -> Floats:
    width = np.ptp(values) if len(values) else 0.0
    return (values - values.min()) / width if width else np.full(len(values), 0.5)


def _standard(values: Floats) -> Floats:
    return (values - values.mean()) / (values.std() + 1e-9)


def _ranks(values: Floats) -> Floats:
    ranks = np.empty(len(values))
    ranks[np.argsort(-values, kind="stable")] = np.arange(1, len(values) + 1)
    return 1 / ranks


def ask(model: Any, group: str, collection: Collection, count: int) -> tuple[list[Asked], list[tuple[float, float]]]:
    """The candidates of up to `count` questions; and for each the seconds of today's fusion and of the features."""
    chosen = [query for query in collection.queries if any(collection.qrels[query.id].values())]
    chosen = random.Random(0).sample(chosen, min(count, len(chosen)))
    seen: list[tuple[Any, ...]] = []
    fuse = search.hybrid

    docid_order, candidates = LocalView.docid_order, list[str]()

    def named(view: LocalView, rows: Sequence[Any]) -> Any:
        candidates[:] = view.ids(rows)
        return docid_order(view, rows)

    def watched(
        text: str, docids: Any, langs: Any, lexical: Floats, dense: Floats, weight: float, share: float, *rest: Any
    ) -> Any:
        names = list(candidates)
        lengths = np.ones(len(names))
        *before, subwords = rest

        def counted(places: Sequence[int]) -> Any:
            found = subwords(places)
            for place, ids in zip(places, found, strict=False):
                lengths[place] = max(1, len(ids))
            return found

        start = time.perf_counter()
        ranked = fuse(text, docids, langs, lexical, dense, weight, share, *before, counted)
        middle = time.perf_counter()
        tokens, scores = np.full(len(names), np.nan), np.empty(len(names))
        tokens[list(ranked.tokens)] = list(ranked.tokens.values())
        scores[ranked.order] = ranked.scores
        made = features(lexical, dense, tokens, lengths)
        made @ np.ones(len(NAMES))
        seen.append((names, scores, share, made, (middle - start, time.perf_counter() - middle)))
        return ranked

    search.hybrid, LocalView.docid_order = watched, named  # type: ignore[method-assign]
    try:
        with TemporaryDirectory() as folder:
            index = Index.build(model, collection.passages, Path(folder) / "index")
            index.search_many([query.text for query in chosen], 100, mode="hybrid")
    finally:
        search.hybrid, LocalView.docid_order = fuse, docid_order  # type: ignore[method-assign]
    lang, asked = (chosen[0].lang if group != "from English" else collection.passage_langs[0]), []
    for query, (names, scores, share, made, _) in zip(chosen, seen, strict=True):
        answers = np.array([collection.qrels[query.id].get(name, 0) > 0 for name in names])
        asked.append(Asked(group, lang, share, scores, made, answers))
    return asked, [seconds for *_, seconds in seen]


def fitting(data: Path) -> Iterable[tuple[str, Collection]]:
    """What weights are fitted on: a group and a collection of it."""
    pages: dict[str, dict[str, Any]] = defaultdict(dict)
    for row in _rows(data / "gnome_help_pages.jsonl.gz"):
        pages[row["lang"]][row["group"]] = row

    def help_pages(asked: str, read: str) -> Collection:
        both = [name for name in pages[asked] if name in pages[read]]
        passages = [Passage(name, row["passage"], lang=read) for name, row in pages[read].items()]
        queries = [Query(name, pages[asked][name]["question"], asked) for name in both]
        return Collection(f"{asked}-{read}", passages, queries, {name: {name: 1} for name in both})

    for lang in HELP:
        yield "same language", help_pages(lang, lang)
        yield "to English", help_pages(lang, "en")
        yield "from English", help_pages("en", lang)
    for name in ENGLISH:
        rows = list(_rows(data / f"{name}.jsonl.gz"))
        rows = random.Random(0).sample(rows, min(POOL, len(rows)))
        ids = {text: f"p{at}" for at, text in enumerate(dict.fromkeys(row["passage"] for row in rows))}
        passages = [Passage(id, text, lang="en") for text, id in ids.items()]
        queries = [Query(row["id"], row["question"], "en") for row in rows]
        yield "same language", Collection(name, passages, queries, {r["id"]: {ids[r["passage"]]: 1} for r in rows})


def _rows(file: Path) -> Iterable[dict[str, Any]]:
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def fit(asked: Sequence[Asked], chosen: Sequence[int]) -> Floats:
    """The weights [2 · features], first those of the question's language, then of others; every group counts as much,
    and in it every question."""
    answered = [one for one in asked if one.answers.any()]
    groups = {one.group: sum(other.group == one.group for other in answered) for one in answered}
    most = max(len(one.scores) for one in answered)
    inputs = torch.zeros(len(answered), most, 2 * len(chosen))
    wanted, counted = torch.zeros(len(answered), most), torch.zeros(len(answered), most, dtype=torch.bool)
    for row, one in enumerate(answered):
        count = len(one.scores)
        inputs[row, :count] = torch.tensor(_doubled(one, chosen))
        counted[row, :count] = True
        wanted[row, :count] = torch.tensor(one.answers / one.answers.sum() / groups[one.group])
    weights = torch.zeros(2 * len(chosen), requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=1000, line_search_fn="strong_wolfe")

    def loss() -> Any:
        optimizer.zero_grad()
        scores = (inputs @ weights).masked_fill(~counted, -1e9)
        value = -(wanted * torch.log_softmax(scores, 1)).sum() + DECAY * (weights**2).sum()
        value.backward()
        return value

    optimizer.step(loss)
    return weights.detach().numpy().astype(np.float64)


def _doubled(one: Asked, chosen: Sequence[int]) -> Floats:
    own = one.features[:, chosen]
    return np.concatenate([own * one.share, own * (1 - one.share)], axis=1)


def reciprocal_rank(scores: Floats, answers: NDArray[np.bool_]) -> float:
    """RR@100 of the answer with the highest score, which comes after all others that are as high."""
    if not answers.any():
        return 0.0
    rank = 1 + int((scores[~answers] >= scores[answers].max()).sum())
    return 1 / rank if rank <= 100 else 0.0


Fitted = tuple[Floats, Sequence[int]] | None
"""Weights and the features that they are for; None for today's ranking."""


def compared(where: str, asked: Sequence[Asked], systems: Mapping[str, Fitted]) -> str:
    """A table of RR@100 by group: of the first system, and how far the others are from it."""
    rows: list[dict[str, str]] = []
    base: dict[str, Floats] = {}
    draw = np.random.default_rng(0)
    for system, fitted in systems.items():
        row = {where: system}
        for group in dict.fromkeys(one.group for one in asked):
            here = [one for one in asked if one.group == group]
            scores = (one.scores if fitted is None else _doubled(one, fitted[1]) @ fitted[0] for one in here)
            values = np.array([reciprocal_rank(of, one.answers) for of, one in zip(scores, here, strict=True)])
            if group not in base:
                base[group], row[group] = values, f"{values.mean():.3f}"
                continue
            gains = values - base[group]
            means = [gains[draw.integers(0, len(gains), len(gains))].mean() for _ in range(1000)]
            low, high = np.percentile(means, [2.5, 97.5])
            row[group] = f"{gains.mean():+.3f} [{low:+.3f}, {high:+.3f}]"
        rows.append(row)
    return tabulate(rows, headers="keys")


def main() -> None:
    """Ask, fit, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="default")
    parser.add_argument("--precision", help="of the model's weights; none: as it is trained")
    parser.add_argument("--data", type=Path, required=True, help="the folder with train/ and dev/")
    parser.add_argument("--questions", type=int, default=300, help="of each collection (300)")
    given = parser.parse_args()
    model = load_any(given.model, precision=given.precision)
    taken: list[tuple[float, float]] = []

    def every(collections: Iterable[tuple[str, Collection]]) -> list[Asked]:
        found: list[Asked] = []
        for group, collection in collections:
            asked, seconds = ask(model, group, collection, given.questions)
            found += asked
            taken.extend(seconds)
        return found

    taught = every(fitting(given.data / "train" / "qa_multilingual"))
    groups = tests(given.data / "dev", LANGS).items()
    tested = every((group, collection) for group, collections in groups for collection in collections)
    sets = {
        "chosen on": [one for one in tested if one.lang not in HELD],
        "held": [one for one in tested if one.lang in HELD],
    }
    systems: dict[str, Fitted] = {"today's": None}
    for where, on in (("", taught), (" on the tests", sets["chosen on"])):
        systems |= {f"fitted{where}, {name}": (fit(on, chosen), chosen) for name, chosen in SUMS.items()}
    for where, asked in sets.items():
        print(compared(where, asked, systems), end="\n\n")
    fused, more = (1000 * fmean(part) for part in zip(*taken, strict=True))
    print(f"{len(taught):,} questions to fit on, {len(tested):,} to measure")
    print(f"a question's fusion takes {fused:.2f} ms, features and sum {more:.2f} ms")


if __name__ == "__main__":
    main()
