"""Measure an encoder on a table's suites; what is kept is every query's value, so that any interval can follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial

from interlingua.data.collection import cross, load_collection
from interlingua.data.records import Collection
from interlingua.evaluation.protocol import evaluate_on
from interlingua.experiments.sentence_suites import SUITES, xor_suite
from interlingua.experiments.table_spec import Suite, fill
from interlingua.models.dual import DualEncoder

Values = dict[str, dict[str, dict[str, dict[str, float]]]]
"""suite → measure → column → query id → value."""


def measure(model: DualEncoder, suites: Mapping[str, Suite], measures: Sequence[str], data: str | None,
            columns: Sequence[str] | None = None) -> Values:
    """Every suite's values; `measures` are those of collections, the other kinds have their own."""
    found: Values = {}
    for name, suite in suites.items():
        chosen = [column for column in suite.collections if columns is None or column in columns]
        # passages shared by all columns are encoded once; others are held one collection at a time
        groups = [chosen] if suite.passages is not None else [[column] for column in chosen]
        results = []
        for group in filter(None, groups):
            held = [named(load(fill(suite.collections[column], data)), column, suite, data) for column in group]
            results += evaluate_on(model, held, measures)
        if results:
            found[name] = {m: {r.collection: dict(r.scores.per_query[m]) for r in results} for m in measures}
        for kind, run in SUITES.items():
            wanted = [column for column in getattr(suite, kind) if columns is None or column in columns]
            if wanted:
                found[name] = run(model, suite, wanted, partial(fill, data=data))
        if suite.xor is not None:
            found[name] = xor_suite(model, suite, partial(fill, data=data))
    return found


def named(collection: Collection, column: str, suite: Suite, data: str | None) -> Collection:
    """The collection under its column's name, with the suite's passages if it has its own."""
    if suite.passages is not None:
        collection = cross(collection, load(fill(suite.passages, data)))
    return Collection(column, collection.passages, collection.queries, collection.qrels)


@lru_cache(maxsize=2)
def load(path: str) -> Collection:
    """A collection; the last two stay in memory."""
    return load_collection(path)
