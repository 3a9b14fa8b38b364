"""What an evaluation leaves: one result for each collection, and the table of several systems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from interlingua.data.records import Collection
from interlingua.errors import InterlinguaError
from interlingua.evaluation.intervals import Interval, bootstrap_interval, stratified_interval
from interlingua.evaluation.measures import Scores
from interlingua.evaluation.table import Row, Table
from interlingua.retrieval.run import Run


@dataclass(frozen=True)
class Result:
    """A system on a collection. `lang` is the language of the questions, "mul" when there are several."""

    collection: str
    lang: str
    run: Run
    scores: Scores


def result(collection: Collection, run: Run, scores: Scores) -> Result:
    """The result of `run` on `collection`."""
    langs = collection.query_langs
    return Result(collection.name, langs[0] if len(langs) == 1 else "mul", run, scores)


def results_table(
    systems: Mapping[str, Sequence[Result]], measure: str, *, intervals: bool = True,
    expected: Mapping[str, Mapping[str, float]] | None = None,
) -> Table:
    """Systems × collections in `measure`, with averages, numbers of queries and 95% bootstrap intervals.

    A column is named by its language where no two collections share one, else by its collection.
    `expected`: system → column → the paper's number, shown under ours. Raises InterlinguaError when the same
    collection has different numbers of queries for two systems: they are not comparable.
    """
    known: dict[str, Result] = {}
    for results in systems.values():
        for found in results:
            known.setdefault(found.collection, found)
    unique = max(Counter(found.lang for found in known.values()).values(), default=0) == 1
    label = {name: found.lang if unique and found.lang else name for name, found in known.items()}
    counts = {label[name]: found.scores.queries for name, found in known.items()}
    table = Table(measure, list(label.values()), counts=counts,
                  languages={label[name]: found.lang for name, found in known.items()})
    for system, results in systems.items():
        per_query = {label[found.collection]: found.scores.per_query[measure] for found in results}
        for column, queries in per_query.items():
            if len(queries) != counts[column]:
                raise InterlinguaError(f"'{column}': {len(queries)} queries for {system} but {counts[column]} for "
                                       "another system. Evaluate both on the same qrels.")
        values = {column: sum(queries.values()) / len(queries) for column, queries in per_query.items()}
        table.add(Row(system, values, intervals=_intervals(table, per_query) if intervals else {},
                      expected=(expected or {}).get(system, {})))
    return table


def _intervals(table: Table, per_query: Mapping[str, Mapping[str, float]]) -> dict[str, Interval]:
    found = {column: bootstrap_interval(values) for column, values in per_query.items()}
    for name, columns in table.averages.items():
        if all(column in per_query for column in columns):
            found[name] = stratified_interval({column: per_query[column] for column in columns})
    return found
