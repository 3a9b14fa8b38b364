"""Evaluate encoders and pipelines on test collections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from interlingua.data.layouts import StoredPassages
from interlingua.data.records import Collection, Qrels, Query
from interlingua.errors import BadInput
from interlingua.evaluation.measures import DEFAULT_MEASURES, Scores, canonical, check_depth, evaluate, unanswered
from interlingua.evaluation.significance import Interval, bootstrap_interval, stratified_interval
from interlingua.evaluation.table import Row, Table
from interlingua.models.protocols import Encoder
from interlingua.retrieval.dense.exact import search
from interlingua.retrieval.dense.sharded import Shards
from interlingua.retrieval.fusion import check_weights, normalised, summed
from interlingua.retrieval.pipeline.grammar import Lexical, Model, Pipeline, RunFile, leaves
from interlingua.retrieval.pipeline.run import (
    Load,
    RetrieverPool,
    encoder_loader,
    language_of,
    read_translations,
    translated_queries,
)
from interlingua.retrieval.retriever import embed_passages, embed_queries, passages_digest
from interlingua.retrieval.run import Run


def evaluate_on(
    encoder: Encoder,
    collections: Iterable[Collection],
    measures: Sequence[str] = DEFAULT_MEASURES,
    depth: int = 100,
    *,
    shards: Shards | None = None,
    **encode_options: Any,
) -> list[Result]:
    """Retrieve `depth` passages for each question of each collection, and measure.

    Collections with the same passages are searched one after another so that the passages are encoded once,
    and only one set of vectors is in memory. With `shards` the vectors of a large collection, or with several
    processes of any, go to its folder instead. Results come in the order of `collections`, in every process all of
    them. `encode_options` go to the encoder. Raises BadInput for two collections with one name, a collection without
    queries, passages or qrels, or a measure that looks deeper than `depth`.
    """
    test_collections, measures = list(collections), [measures] if isinstance(measures, str) else list(measures)
    check_collections(test_collections, measures, depth)
    results: dict[str, Result] = {}
    for group in by_passages(test_collections):
        passages, retrieve = group[0].passages, None
        if shards is not None and shards.wanted(len(passages)):
            retrieve = shards.of(encoder, passages, group[0].name, **encode_options).search
        else:
            vectors = embed_passages(encoder, passages, **encode_options)
            passage_ids = [passage.id for passage in passages]
        for collection in group:
            if retrieve is not None:
                run = retrieve(collection.queries, depth)
            else:
                queries = embed_queries(encoder, collection.queries, **encode_options)
                run = search(queries, [query.id for query in collection.queries], vectors, passage_ids, depth)
            results[collection.name] = result(collection, run, evaluate(run, collection.qrels, measures))
    return [results[collection.name] for collection in test_collections]


def check_collections(collections: Sequence[Collection], measures: Sequence[str], depth: int) -> None:
    """Raise BadInput for what cannot be evaluated: two collections with one name, one without queries,
    passages or qrels, a measure that looks deeper than `depth`."""
    for name in measures:
        check_depth(name, depth)
    for collection in collections:
        if sum(other.name == collection.name for other in collections) > 1:
            raise BadInput(f"two collections are named '{collection.name}'. Give each its own name.")
        for what in ("queries", "passages", "qrels"):
            if not getattr(collection, what):
                raise BadInput(f"collection '{collection.name}': has no {what}.")


def by_passages(collections: Sequence[Collection]) -> list[list[Collection]]:
    """The collections in groups with the same passages."""
    groups: dict[object, list[Collection]] = {}
    for collection in collections:
        passages = collection.passages
        key = passages.source if isinstance(passages, StoredPassages) else passages_digest(passages)
        groups.setdefault(key, []).append(collection)
    return list(groups.values())


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
    systems: Mapping[str, Sequence[Result]],
    measure: str,
    *,
    intervals: bool = True,
    expected: Mapping[str, Mapping[str, float]] | None = None,
) -> Table:
    """Systems × collections in `measure`, with averages, numbers of queries and 95% bootstrap intervals.

    A column is named by its language where no two collections share one, else by its collection.
    `expected`: system → column → the paper's number, shown under ours. Raises BadInput when the same
    collection has different numbers of queries for two systems: they are not comparable.
    """
    by_name: dict[str, Result] = {}
    for results in systems.values():
        for entry in results:
            by_name.setdefault(entry.collection, entry)
    unique = max(Counter(entry.lang for entry in by_name.values()).values(), default=0) == 1
    label = {name: entry.lang if unique and entry.lang else name for name, entry in by_name.items()}
    counts = {label[name]: entry.scores.queries for name, entry in by_name.items()}
    table = Table(
        measure,
        list(label.values()),
        counts=counts,
        languages={label[name]: entry.lang for name, entry in by_name.items()},
    )
    for system, results in systems.items():
        per_query = {label[entry.collection]: entry.scores.per_query[measure] for entry in results}
        for column, queries in per_query.items():
            if len(queries) != counts[column]:
                raise BadInput(
                    f"'{column}': {len(queries)} queries for {system} but {counts[column]} for "
                    "another system. Evaluate both on the same qrels."
                )
        values = {column: sum(queries.values()) / len(queries) for column, queries in per_query.items()}
        table.add(
            Row(
                system,
                values,
                intervals=_intervals(table, per_query) if intervals else {},
                expected=(expected or {}).get(system, {}),
            )
        )
    return table


def _intervals(table: Table, per_query: Mapping[str, Mapping[str, float]]) -> dict[str, Interval]:
    intervals = {column: bootstrap_interval(values) for column, values in per_query.items()}
    for name, columns in table.averages.items():
        if all(column in per_query for column in columns):
            intervals[name] = stratified_interval({column: per_query[column] for column in columns})
    return intervals


ALPHAS = tuple(round(step / 20, 2) for step in range(41))
"""0, 0.05, … 2: the weights that Mr.TyDi's authors chose lie between 0.56 and 1."""


@dataclass(frozen=True, slots=True)
class TunedAlpha:
    """The best weight, its score, and the score of every weight that was tried."""

    alpha: float
    measure: str
    score: float
    tried: dict[float, float]


def tune_alpha(
    sparse: Run,
    dense: Run,
    qrels: Qrels,
    measure: str = "RR@100",
    alphas: Sequence[float] = ALPHAS,
    depth: int | None = None,
) -> TunedAlpha:
    """The `alpha` for which `interpolate(sparse, dense, alpha)` has the highest `measure`; the smallest of equals.

    The runs and `qrels` are those of a development set: a weight chosen on the questions it is then measured on is no
    result. `depth` cuts the fused list, as the run that is reported will be cut. Raises BadInput for no weights
    to try, one that is no number of 0 or more, an unknown measure, or runs without a query of `qrels`.
    """
    alphas = list(alphas)
    if not alphas:
        raise BadInput("no weights to try: give at least one.")
    check_weights(alphas, len(alphas))
    if not qrels.keys() & (sparse.keys() | dense.keys()):
        raise BadInput("the runs have results for no query of the qrels. They must be of one development set.")
    lists = list(normalised([sparse, dense]))
    scores: dict[float, float] = {}
    for alpha in sorted(set(alphas)):
        run = summed(lists, [1.0, alpha])
        scores[alpha] = evaluate(run if depth is None else run.truncate(depth), qrels, [measure])[measure]
    best = max(scores, key=lambda alpha: (scores[alpha], -alpha))
    return TunedAlpha(best, canonical(measure), scores[best], scores)


def evaluate_pipelines(
    pipelines: Mapping[str, Pipeline],
    collections: Iterable[Collection],
    measures: Sequence[str] = DEFAULT_MEASURES,
    depth: int = 100,
    *,
    load: Load | None = None,
    translated: Mapping[str, Sequence[Query]] | None = None,
) -> dict[str, list[Result]]:
    """Name of each pipeline → its results, in the order of `collections`, `depth` passages for each question.

    Every model is loaded once (`load`: as `interlingua.retrieval.pipeline.run.run_pipeline` has it), and collections
    with the same passages are searched one after another, so that a model encodes them once for all pipelines.
    `translated`: name of a collection → its questions as the `bm25` stages read them. Models, run files and
    translations are read before anything is searched. Raises BadInput as `run_pipeline` and `evaluate_on` do.
    """
    test_collections, measures = list(collections), [measures] if isinstance(measures, str) else list(measures)
    check_collections(test_collections, measures, depth)
    load = encoder_loader(load)
    check_stages(pipelines.values(), test_collections, load)
    results: dict[tuple[str, str], Result] = {}
    for group in by_passages(test_collections):
        stages = RetrieverPool(group[0].passages, load)
        for collection in group:
            for name, pipeline in pipelines.items():
                run = stages.run(
                    pipeline, collection.queries, depth, translated=(translated or {}).get(collection.name)
                )
                results[name, collection.name] = result(collection, run, evaluate(run, collection.qrels, measures))
    return {name: [results[name, collection.name] for collection in test_collections] for name in pipelines}


def check_stages(pipelines: Iterable[Pipeline], collections: Sequence[Collection], load: Load) -> None:
    """Load what the pipelines name, so that what is missing is said before hours pass.

    Raises BadInput for a model that cannot be loaded, a run file without a question of one of the
    collections, and translations that lack a question.
    """
    stages = dict.fromkeys(leaf for pipeline in pipelines for leaf in leaves(pipeline))
    for path in dict.fromkeys(leaf.path for leaf in stages if isinstance(leaf, RunFile)):
        run = Run.read_trec(path)
        for collection in collections:
            if not any(query.id in run for query in collection.queries):
                raise BadInput(
                    f"{path}: has results for no query of {collection.name}. The run and the "
                    "collection must be of one test set."
                )
    for path in dict.fromkeys(leaf.queries for leaf in stages if isinstance(leaf, Lexical | Model) and leaf.queries):
        translations = read_translations(path)
        for collection in collections:
            translated_queries(collection.queries, translations, language_of(collection.passages), path)
    for name in dict.fromkeys(leaf.name for leaf in stages if isinstance(leaf, Model)):
        load(name)


def incomplete_runs(pipelines: Iterable[Pipeline], collections: Sequence[Collection]) -> list[str]:
    """Warnings of run files in the pipelines that have no results for some of a collection's judged queries, one for
    each file and collection."""
    paths = dict.fromkeys(leaf.path for pipeline in pipelines for leaf in leaves(pipeline) if isinstance(leaf, RunFile))
    runs = {path: Run.read_trec(path) for path in paths}
    warnings = [unanswered(path, run, one.qrels, one.name) for path, run in runs.items() for one in collections]
    return [warning for warning in warnings if warning is not None]
