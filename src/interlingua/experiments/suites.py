"""Measure an encoder on a table's suites; every query's value is kept."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial

from interlingua.data.collections import cross, load_collection, question_translations
from interlingua.data.irds import read_answered
from interlingua.data.passages import read_passages
from interlingua.data.readers import read_parallel
from interlingua.data.records import Collection, ParallelPair, Passage, Query
from interlingua.errors import BadInput
from interlingua.evaluation.bitext import bucc, bucc_f1, mined_pairs, planted
from interlingua.evaluation.languages import TOP, language_matrix, language_projection
from interlingua.evaluation.protocol import evaluate_on
from interlingua.evaluation.tatoeba import pivot_pairs, tatoeba_pairs
from interlingua.evaluation.xor import run_texts, xor_results
from interlingua.experiments.spec import Ranking, Scored, Suite, fill
from interlingua.models.protocols import AnyEncoder, Encoder, has_token_vectors
from interlingua.retrieval.dense.exact import retrieve
from interlingua.retrieval.dense.sharded import Shards
from interlingua.retrieval.pipeline.run import language_of, read_translations, translated_queries

logger = logging.getLogger(__name__)

DEPTH = 100
"""Passages retrieved for each question."""
Columns = dict[str, dict[str, float]]
"""column → query id → value; a column with one value for all has it under "mean"."""
Fill = Callable[[str], str]
"""Puts the data folder into a path."""


def tatoeba_suite(model: Encoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """The mean accuracy of the two directions; of two files, on the pairs that they share English with."""
    found: Columns = {}
    for column in columns:
        files = suite.tatoeba[column]
        if isinstance(files, str):
            pairs = _of_origins(fill(files), suite)
        else:
            first, second = (_of_origins(fill(path), suite) for path in files)
            joined = pivot_pairs(first, second)
            pairs = joined.pairs
            logger.info(
                f"{column}: {len(pairs):,} pairs through English, {joined.repeated:,} left out as repeated, "
                f"{joined.over:,} over the limit"
            )
        found[column] = {"mean": tatoeba_pairs(model, pairs[: suite.most], column).mean}
    return {"accuracy": found}


def planted_suite(model: Encoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """F1 with the threshold tuned on the task itself."""
    found: Columns = {}
    for column in columns:
        task = planted(_of_origins(fill(suite.planted[column]), suite))
        found[column] = {"mean": bucc_f1(mined_pairs(model, task)[0], task.gold).f1 / 100}
    return {"F1": found}


def bucc_suite(model: Encoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """F1 by both protocols; `{"de": ".../de-en"}` names the folder of each language pair."""
    results = {column: bucc(model, fill(suite.bucc[column]), f"{column}-en", "xtreme") for column in columns}
    return {
        label: {column: {"mean": result.scores[protocol].f1 / 100} for column, result in results.items()}
        for label, protocol in (("F1", "train_self"), ("F1, threshold of the sample", "xtreme"))
    }


def projection_suite(model: Encoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """The numbers beside CCP's figure 1 (the picture itself is drawn of all rows together)."""
    found = {column: language_projection({"": model}, drawn_pairs(suite, column, fill))[""] for column in columns}
    return {
        "distance of the languages": {column: {"mean": one.distance} for column, one in found.items()},
        "accuracy": {column: {"mean": one.accuracy.mean} for column, one in found.items()},
    }


def drawn_pairs(suite: Suite, column: str, fill: Fill) -> list[ParallelPair]:
    """The translations of a picture: the first 1,000, as the paper draws."""
    return _of_origins(fill(suite.projection[column]), suite)[:1000]


def pool_suite(model: Encoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """Average precision over the pool of all languages, where every translation of the passage is right, and how much
    of the top is in the question's own language (LAReQA, Roy et al. 2020)."""
    matrix = language_matrix(model, {column: load_collection(fill(suite.pool[column])) for column in columns})
    return {
        label: {lang: {"mean": value} for lang, value in found.items()}
        for label, found in (("AP", matrix.pool_map), (f"same language @{TOP}", matrix.same_language_rate))
    }


class ReadAgain:
    """What `read` gives, read anew each time: passages that are never in memory together."""

    def __init__(self, read: Callable[[], Iterable[Passage]]) -> None:
        self.read = read

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.read())


def xor_suite(model: Encoder, suite: Suite, fill: Fill, shards: Shards | None = None) -> dict[str, Columns]:
    """R@2kt and R@5kt: each question 1 or 0. With `shards`, the passages and their vectors stay on the disk."""
    if suite.xor is None:
        raise BadInput("the suite has no XOR-Retrieve questions.")
    questions = read_answered(fill(suite.xor.questions))
    passages: Iterable[Passage] = ReadAgain(partial(read_passages, fill(suite.xor.passages)))
    if shards is not None:
        run = shards.of(model, passages, "XOR-Retrieve").search(questions, DEPTH)
    else:
        passages = list(passages)
        run = retrieve(model, Collection("XOR-Retrieve", passages, list(questions)), depth=DEPTH)
    found: dict[str, Columns] = {}
    for result in xor_results(run_texts(run, passages), questions):
        for measure, values in result.scores.per_query.items():
            found.setdefault(measure, {})[result.lang] = {query: value / 100 for query, value in values.items()}
    return found


def _of_origins(path: str, suite: Suite) -> list[ParallelPair]:
    return [pair for pair in read_parallel(path) if suite.origins is None or pair.origin in suite.origins]


SUITES: Mapping[str, Callable[[Encoder, Suite, Iterable[str], Fill], dict[str, Columns]]] = {
    "tatoeba": tatoeba_suite,
    "planted": planted_suite,
    "bucc": bucc_suite,
    "projection": projection_suite,
    "pool": pool_suite,
}


Values = dict[str, dict[str, dict[str, dict[str, float]]]]
"""suite → measure → column → query id → value."""


def measure(
    model: AnyEncoder | None,
    suites: Mapping[str, Suite],
    measures: Sequence[str],
    data: str | None,
    columns: Sequence[str] | None = None,
    ranking: Ranking | None = None,
    shards: Shards | None = None,
) -> Values:
    """Every suite's values; `measures` are those of collections, the other kinds have their own. `model` may be None
    where the pipeline of `ranking` has none. With `ranking`, and with a model of late interaction, the collections
    are ranked by a pipeline, and the kinds that are not searched are left out.

    With `shards`, the passages of large collections are on the disk; of several processes each encodes and searches its
    part of them. What is not divided the first process does alone, and it alone has all values.
    """
    found: Values = {}
    first = shards is None or shards.processes.first
    for name, suite in suites.items():
        chosen = [column for column in suite.collections if columns is None or column in columns]
        if ranking is not None or model is None or has_token_vectors(model):
            if not first:
                continue
            by_column = {
                column: _ranked(ranking or Ranking(), model, suite, column, measures, data) for column in chosen
            }
            if by_column:
                found[name] = {m: {column: dict(values[m]) for column, values in by_column.items()} for m in measures}
            continue
        # passages shared by all columns are encoded once; others are held one collection at a time
        groups = [chosen] if suite.passages is not None else [[column] for column in chosen]
        results = []
        for group in filter(None, groups):
            held_now = [held(suite, column, data)[0] for column in group]
            results += evaluate_on(model, held_now, measures, DEPTH, shards=shards)
        if results:
            found[name] = {m: {r.collection: dict(r.scores.per_query[m]) for r in results} for m in measures}
        for kind, run in SUITES.items():
            wanted = [column for column in getattr(suite, kind) if columns is None or column in columns]
            if wanted and first:
                found[name] = run(model, suite, wanted, partial(fill, data=data))
        if suite.xor is not None:
            found[name] = xor_suite(model, suite, partial(fill, data=data), shards)
    return found


def _ranked(
    ranking: Ranking, model: AnyEncoder | None, suite: Suite, column: str, measures: Sequence[str], data: str | None
) -> Scored:
    collection, theirs = held(suite, column, data)
    translated: Mapping[str, Query] | None = theirs if suite.translations == "columns" else None
    if isinstance(suite.translations, dict) and column in suite.translations:
        path = fill(suite.translations[column], data)
        translated = (
            {query.id: query for query in load(path).queries}
            if path.startswith("ir_datasets:")
            else read_translations(path)
        )
        translated = {
            query.id: query
            for query in translated_queries(collection.queries, translated, language_of(collection.passages), path)
        }
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
            logger.warning(
                f"{column}: {left:,} of {len(asked.queries):,} questions have no counterpart and are left out"
            )
        collection = Collection(
            column,
            asked.passages,
            [q for q in asked.queries if q.id in translated],
            {name: grades for name, grades in asked.qrels.items() if name in translated},
        )
    return Collection(column, collection.passages, collection.queries, collection.qrels), translated


@lru_cache(maxsize=2)
def load(path: str) -> Collection:
    """A collection; the last two stay in memory."""
    return load_collection(path)
