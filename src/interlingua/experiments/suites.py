"""Measure an encoder on a table's suites; what is kept is every query's value, so that any interval can follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from interlingua.data.collection import cross, load_collection
from interlingua.data.combine import question_translations
from interlingua.data.records import Collection, Query
from interlingua.evaluation.protocol import evaluate_on
from interlingua.experiments.ranking import Ranking, Scored
from interlingua.experiments.sentence_suites import SUITES, xor_suite
from interlingua.experiments.table_spec import Suite, fill
from interlingua.models.dual import DualEncoder
from interlingua.progress import say
from interlingua.retrieval.translation import language_of, read_translations, translated_queries

Values = dict[str, dict[str, dict[str, dict[str, float]]]]
"""suite → measure → column → query id → value."""


def measure(model: Any, suites: Mapping[str, Suite], measures: Sequence[str], data: str | None,
            columns: Sequence[str] | None = None, ranking: Ranking | None = None) -> Values:
    """Every suite's values; `measures` are those of collections, the other kinds have their own. With `ranking` the
    collections are ranked by its pipeline, and the kinds that are not searched are left out."""
    found: Values = {}
    if ranking is None and not isinstance(model, DualEncoder):
        ranking = Ranking()  # several vectors a text: searched by MaxSim
    for name, suite in suites.items():
        chosen = [column for column in suite.collections if columns is None or column in columns]
        if ranking is not None:
            by_column = {column: _ranked(ranking, model, suite, column, measures, data) for column in chosen}
            if by_column:
                found[name] = {m: {column: dict(values[m]) for column, values in by_column.items()} for m in measures}
            continue
        # passages shared by all columns are encoded once; others are held one collection at a time
        groups = [chosen] if suite.passages is not None else [[column] for column in chosen]
        results = []
        for group in filter(None, groups):
            results += evaluate_on(model, [held(suite, column, data)[0] for column in group], measures)
        if results:
            found[name] = {m: {r.collection: dict(r.scores.per_query[m]) for r in results} for m in measures}
        for kind, run in SUITES.items():
            wanted = [column for column in getattr(suite, kind) if columns is None or column in columns]
            if wanted:
                found[name] = run(model, suite, wanted, partial(fill, data=data))
        if suite.xor is not None:
            found[name] = xor_suite(model, suite, partial(fill, data=data))
    return found


def _ranked(ranking: Ranking, model: Any, suite: Suite, column: str, measures: Sequence[str], data: str | None,
            ) -> Scored:
    collection, theirs = held(suite, column, data)
    translated: Mapping[str, Query] | None = theirs if suite.translations == "columns" else None
    if isinstance(suite.translations, dict) and column in suite.translations:
        path = fill(suite.translations[column], data)
        translated = ({query.id: query for query in load(path).queries} if path.startswith("ir_datasets:") else
                      read_translations(path))
        translated = {query.id: query for query in translated_queries(
            collection.queries, translated, language_of(collection.passages), path)}
    dev = load(fill(suite.dev[column], data)) if ranking.grid and column in suite.dev else None
    return ranking.scores(model, collection, measures, translated, dev)


def held(suite: Suite, column: str, data: str | None) -> tuple[Collection, dict[str, Query]]:
    """The collection of a column under its name, with the suite's passages or questions if it has its own; and, with
    questions of its own, the same questions in the column's language. A question without one is left out."""
    collection = load(fill(suite.collections[column], data))
    translated: dict[str, Query] = {}
    if suite.passages is not None:
        collection = cross(collection, load(fill(suite.passages, data)))
    if suite.questions is not None:
        asked = cross(load(fill(suite.questions, data)), collection)
        translated = question_translations(asked, collection)
        if left := len(asked.queries) - len(translated):
            say(f"{column}: {left:,} of {len(asked.queries):,} questions have no counterpart and are left out")
        collection = Collection(column, asked.passages, [q for q in asked.queries if q.id in translated],
                                {name: grades for name, grades in asked.qrels.items() if name in translated})
    return Collection(column, collection.passages, collection.queries, collection.qrels), translated


@lru_cache(maxsize=2)
def load(path: str) -> Collection:
    """A collection; the last two stay in memory."""
    return load_collection(path)
