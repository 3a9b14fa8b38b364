"""The suites that are no plain collections: Tatoeba, BUCC, planted bitext, a pool of languages, XOR-Retrieve. Values
are fractions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from interlingua.data.collection import load_collection
from interlingua.data.collections.xor_tydi import read_answered
from interlingua.data.passages import read_passages
from interlingua.data.readers import read_parallel
from interlingua.data.records import Collection, ParallelPair
from interlingua.errors import InterlinguaError
from interlingua.evaluation.bucc import bucc, bucc_f1, mined_pairs
from interlingua.evaluation.languages import TOP, language_matrix
from interlingua.evaluation.pivot import pivot_pairs
from interlingua.evaluation.planted import planted
from interlingua.evaluation.projection import language_projection
from interlingua.evaluation.tatoeba import tatoeba_pairs
from interlingua.evaluation.xor_retrieve import run_texts, xor_results
from interlingua.experiments.table_spec import Suite
from interlingua.models.dual import DualEncoder
from interlingua.progress import say
from interlingua.retrieval.dense import retrieve

Columns = dict[str, dict[str, float]]
"""column → query id → value; a column with one value for all has it under "mean"."""
Fill = Callable[[str], str]
"""Puts the data folder into a path."""


def tatoeba_suite(model: DualEncoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
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
            say(f"{column}: {len(pairs):,} pairs through English, {joined.repeated:,} left out as repeated, "
                f"{joined.over:,} over the limit")
        found[column] = {"mean": tatoeba_pairs(model, pairs[:suite.most], column).mean}
    return {"accuracy": found}


def planted_suite(model: DualEncoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """F1 with the threshold tuned on the task itself."""
    found: Columns = {}
    for column in columns:
        task = planted(_of_origins(fill(suite.planted[column]), suite))
        found[column] = {"mean": bucc_f1(mined_pairs(model, task)[0], task.gold).f1 / 100}
    return {"F1": found}


def bucc_suite(model: DualEncoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """F1 by both protocols; `{"de": ".../de-en"}` names the folder of each language pair."""
    results = {column: bucc(model, fill(suite.bucc[column]), f"{column}-en", "xtreme") for column in columns}
    return {label: {column: {"mean": result.scores[protocol].f1 / 100} for column, result in results.items()}
            for label, protocol in (("F1", "train_self"), ("F1, threshold of the sample", "xtreme"))}


def projection_suite(model: DualEncoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """The numbers beside CCP's figure 1 (the picture itself is drawn of all rows together)."""
    found = {column: language_projection({"": model}, drawn_pairs(suite, column, fill))[""] for column in columns}
    return {"distance of the languages": {column: {"mean": one.distance} for column, one in found.items()},
            "accuracy": {column: {"mean": one.accuracy.mean} for column, one in found.items()}}


def drawn_pairs(suite: Suite, column: str, fill: Fill) -> list[ParallelPair]:
    """The translations of a picture: the first 1,000, as the paper draws."""
    return _of_origins(fill(suite.projection[column]), suite)[:1000]


def pool_suite(model: DualEncoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """Average precision over the pool of all languages, where every translation of the passage is right, and how much
    of the top is in the question's own language (LAReQA, Roy et al. 2020)."""
    matrix = language_matrix(model, {column: load_collection(fill(suite.pool[column])) for column in columns})
    return {label: {lang: {"mean": value} for lang, value in found.items()}
            for label, found in (("AP", matrix.pool_map), (f"same language @{TOP}", matrix.same_language_rate))}


def xor_suite(model: DualEncoder, suite: Suite, fill: Fill) -> dict[str, Columns]:
    """R@2kt and R@5kt: each question 1 or 0."""
    if suite.xor is None:
        raise InterlinguaError("the suite has no XOR-Retrieve questions.")
    questions = read_answered(fill(suite.xor.questions))
    passages = list(read_passages(fill(suite.xor.passages)))
    run = retrieve(model, Collection("XOR-Retrieve", passages, list(questions)))
    found: dict[str, Columns] = {}
    for result in xor_results(run_texts(run, passages), questions):
        for measure, values in result.scores.per_query.items():
            found.setdefault(measure, {})[result.lang] = {query: value / 100 for query, value in values.items()}
    return found


def _of_origins(path: str, suite: Suite) -> list[ParallelPair]:
    return [pair for pair in read_parallel(path) if suite.origins is None or pair.origin in suite.origins]


SUITES: Mapping[str, Callable[[DualEncoder, Suite, Iterable[str], Fill], dict[str, Columns]]] = {
    "tatoeba": tatoeba_suite, "planted": planted_suite, "bucc": bucc_suite, "projection": projection_suite,
    "pool": pool_suite}
