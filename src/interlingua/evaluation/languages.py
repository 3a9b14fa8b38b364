"""Question language × passage language: the same questions against translations of the same passages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from interlingua.data.collection import cross
from interlingua.data.records import Collection
from interlingua.errors import InterlinguaError
from interlingua.evaluation.measures import Scores, canonical, check_depth, evaluate
from interlingua.evaluation.table import render_records
from interlingua.retrieval.dense import search, search_exact, tie_ranks
from interlingua.retrieval.ranks import average_precision, gold_ranks
from interlingua.retrieval.vectors import TextEncoder, Vectors, embed_passages, embed_queries

TOP = 10
Relevant = dict[str, dict[str, list[str]]]
"""question language → query id → `language:passage` of every language's version of what is relevant"""


@dataclass(frozen=True)
class LanguageMatrix:
    """`scores[question language, passage language]` on one language's passages at a time, and three numbers by
    question language on the merged pool of all languages.

    `pool_map`: mean average precision over the whole pool, where the gold passage is relevant in every
    language (LAReQA). `same_language_rate`: share of the top 10 that is in the question's language; with no
    preference it is `same_language_share`, that language's share of the pool.
    """

    measure: str
    langs: list[str]
    scores: dict[tuple[str, str], Scores]
    pool_map: dict[str, float]
    same_language_rate: dict[str, float]
    same_language_share: dict[str, float]

    @property
    def values(self) -> NDArray[np.float64]:
        """[question languages, passage languages]: means of `measure`, in the order of `langs`."""
        return np.array([[self.scores[asked, held][self.measure] for held in self.langs] for asked in self.langs])

    @property
    def monolingual(self) -> float:
        """Mean over the cells whose two languages are the same (English included)."""
        return float(np.diag(self.values).mean())

    @property
    def crosslingual(self) -> float:
        """Mean over the cells whose two languages differ (English included)."""
        return float(self.values[~np.eye(len(self.langs), dtype=bool)].mean())

    def records(self) -> list[dict[str, str | float | int]]:
        """One record for each cell and for each number of the pool, at full precision: the matrix for machines."""
        cells = [(self.measure, asked, held, self.scores[asked, held][self.measure], self.scores[asked, held].queries)
                 for asked in self.langs for held in self.langs]
        asked_by = {lang: self.scores[lang, lang].queries for lang in self.langs}
        for name, pool in (("AP", self.pool_map), (f"same-language rate @{TOP}", self.same_language_rate)):
            cells += [(name, asked, "all", value, asked_by[asked]) for asked, value in pool.items()]
        fields = ("measure", "questions", "passages", "value", "queries")
        return [dict(zip(fields, cell, strict=True)) for cell in cells]

    def render(self, form: str = "text", *, digits: int = 3) -> str:
        """As "text" or "markdown": a row for each question language, then its numbers on the pool; "tsv" or "json":
        `records`, at full precision."""
        if form not in ("text", "markdown"):
            return render_records(self.records(), form)
        headers = [f"{self.measure}: q \\ p", *self.langs, "mean", "pool mAP", f"same lang @{TOP}"]
        pools = (self.pool_map, self.same_language_rate)
        body = [[lang, *row, row.mean(), *(pool[lang] for pool in pools)]
                for lang, row in zip(self.langs, self.values, strict=True)]
        body.append(["mean", *self.values.mean(axis=0), self.values.mean(),
                     *(sum(pool.values()) / len(pool) for pool in pools)])
        text = tabulate(body, headers, tablefmt="github" if form == "markdown" else "simple", floatfmt=f".{digits}f")
        return (f"{text}\n\nsame language: {self.monolingual:.{digits}f}, other languages: "
                f"{self.crosslingual:.{digits}f} (means over cells, English included)")


def language_matrix(
    encoder: TextEncoder, collections: Mapping[str, Collection], measure: str = "RR@100", depth: int = 100,
    **encode_options: Any,
) -> LanguageMatrix:
    """Search every language's passages with every language's questions, then all passages at once.

    `collections`: language → collection; ids correspond across languages, as in XQuAD. Questions and passages
    of each language are encoded once. `depth` passages are retrieved for a cell; the merged pool is ranked whole.
    Raises InterlinguaError for fewer than two languages, a measure that looks deeper than `depth`, or ids that do not
    correspond (`interlingua.data.collection.cross`).
    """
    check_depth(measure, depth)
    if len(collections) < 2:
        raise InterlinguaError(f"{len(collections)} languages: a matrix needs two.")
    langs = list(collections)
    queries = {lang: embed_queries(encoder, c.queries, **encode_options) for lang, c in collections.items()}
    passages = {lang: embed_passages(encoder, c.passages, **encode_options) for lang, c in collections.items()}
    scores: dict[tuple[str, str], Scores] = {}
    relevant: Relevant = {lang: {} for lang in langs}
    for asked in langs:
        row_of = {query.id: row for row, query in enumerate(collections[asked].queries)}
        for held in langs:
            pair = collections[asked] if asked == held else cross(collections[asked], collections[held])
            place_of = {passage.id: row for row, passage in enumerate(collections[held].passages)}
            query_ids, passage_ids = [query.id for query in pair.queries], [passage.id for passage in pair.passages]
            run = search(queries[asked][[row_of[name] for name in query_ids]], query_ids,
                         passages[held][[place_of[name] for name in passage_ids]], passage_ids, depth)
            scores[asked, held] = evaluate(run, pair.qrels, [measure])
            for query_id, grades in pair.qrels.items():
                golds = [f"{held}:{name}" for name, grade in grades.items() if grade > 0]
                relevant[asked].setdefault(query_id, []).extend(golds)
    return LanguageMatrix(canonical(measure), langs, scores, *_pool(collections, queries, passages, relevant))


def _pool(
    collections: Mapping[str, Collection], queries: Mapping[str, Vectors], passages: Mapping[str, Vectors],
    relevant: Relevant,
) -> tuple[dict[str, float], dict[str, float], dict[str, float]]:
    """mAP, same-language rate in the top, and share of the pool, for each question language."""
    ids = [f"{lang}:{passage.id}" for lang, collection in collections.items() for passage in collection.passages]
    place_of = {name: place for place, name in enumerate(ids)}
    spoken = np.repeat(list(collections), [len(collection.passages) for collection in collections.values()])
    pool = np.concatenate([passages[lang] for lang in collections])
    ties = tie_ranks(ids)
    mean_ap, rate, share = {}, {}, {}
    for lang, collection in collections.items():
        kept = [row for row, query in enumerate(collection.queries) if query.id in relevant[lang]]
        asked = queries[lang][kept]
        golds = [np.array([place_of[name] for name in relevant[lang][collection.queries[row].id]], dtype=np.int64)
                 for row in kept]
        ranks = gold_ranks(asked, pool, golds, ties)
        mean_ap[lang] = sum(map(average_precision, ranks)) / len(relevant[lang])
        rate[lang] = float((spoken[search_exact(asked, pool, TOP, tie_order=ties)[0]] == lang).mean())
        share[lang] = float((spoken == lang).mean())
    return mean_ap, rate, share
