"""Measure an encoder on a table's suites; every query's value is kept."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TypeVar

import numpy as np

from interlingua.alignment import Calibration
from interlingua.data.collections import cross, load_collection, question_translations
from interlingua.data.datasets import DataSpec, read
from interlingua.data.irds import read_answered
from interlingua.data.passages import read_passages
from interlingua.data.readers import read_parallel
from interlingua.data.readers.tatoeba import FEW, laser_sets, read_dump
from interlingua.data.records import Collection, ParallelPair, Passage, Query
from interlingua.errors import BadInput, InterlinguaError, NotFound
from interlingua.evaluation.bitext import bucc, bucc_f1, mined_pairs, planted
from interlingua.evaluation.languages import DEEP, TOP, LanguageMatrix, language_matrix
from interlingua.evaluation.projection import language_projection
from interlingua.evaluation.protocol import Result, evaluate_on
from interlingua.evaluation.tatoeba import StoredVectors, pivot_pairs, tatoeba_pairs
from interlingua.evaluation.xor import run_texts, xor_results
from interlingua.experiments.spec import DEPTH, CalibrationSpec, Ranking, Reading, Scored, Suite, fill
from interlingua.experiments.values import Values, join
from interlingua.models.dual import DualEncoder
from interlingua.models.encode import on_processor
from interlingua.models.encoder import Encoder as SingleEncoder
from interlingua.models.late_interaction import Model, load_any
from interlingua.models.protocols import AnyEncoder, Encoder, has_token_vectors
from interlingua.retrieval.dense.exact import retrieve
from interlingua.retrieval.dense.sharded import Shards
from interlingua.retrieval.pipeline.run import language_of, read_translations, translated_queries

logger = logging.getLogger(__name__)

OF_XOR = 100
"""Passages retrieved for each question of XOR-Retrieve."""
Columns = dict[str, dict[str, float]]
"""column → query id → value; a column with one value for all has it under "mean"."""
Fill = Callable[[str], str]
"""Puts the data folder into a path."""
M = TypeVar("M")
AnyModel = Encoder | StoredVectors
"""A model to measure on sentences, or vectors of theirs that were made elsewhere."""


def read_model(folder: str | Path, how: Reading, device: str | None) -> Model:
    """The model in `folder`, on a processor in the precision that is asked for; with a layer or a pooling, its one
    encoder cut to that layer and pooled so."""
    precision = on_processor(how.precision, device)
    if how.layer is None and how.pooling is None:
        return load_any(folder, device=device, precision=precision)
    return DualEncoder(
        SingleEncoder.load(folder, layer=how.layer, pooling=how.pooling, device=device, precision=precision)
    )


def calibrated(model: DualEncoder, spec: CalibrationSpec, source: DataSpec, folder: Path) -> tuple[DualEncoder, str]:
    """The same model with maps fitted on raw text: of each language a random `source.limit` of its sentences. And what
    each step did, as a table of the languages. Meanwhile the vectors are in a file a language under `folder`: 75,000
    sentences in each of 108 languages, 1,024 numbers each, are 31 GiB."""
    texts: dict[str, list[str]] = defaultdict(list)
    total: Counter[str] = Counter()
    random = Random(0)
    for sentence in read("calibrate_on", source):
        sample = texts[sentence.lang]
        total[sentence.lang] += 1
        if source.limit is None or len(sample) < source.limit:
            sample.append(sentence.text)
        elif (place := random.randrange(total[sentence.lang])) < source.limit:  # Vitter's reservoir: all equally likely
            sample[place] = sentence.text
    reports = []
    for role in ("passage",) if model.tied else ("query", "passage"):
        encoder = model.encoder(role)
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="calibration-", dir=folder) as temporary:
            vectors = {}
            for index, (lang, sentences) in enumerate(texts.items()):
                file = Path(temporary) / f"{index}.npy"
                np.save(file, encoder.encode(sentences, role=role))
                vectors[lang] = np.load(file, mmap_mode="r")
            calibration = Calibration.fit(
                vectors,
                pivot=spec.pivot,
                shift=spec.shift,
                scale=spec.scale,
                rotate=spec.rotate,
                gate=spec.gate,
                adversarial=spec.adversarial,
                remove=spec.remove,
            )
            vectors.clear()
        encoder.language_maps = calibration.maps
        reports.append(calibration.table())
    return model, "\n\n".join(reports)


def tatoeba_suite(model: AnyModel, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """The mean accuracy of the two directions; of two files, on the pairs that they share English with."""
    accuracies: Columns = {}
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
            if len(pairs) < FEW:
                raise BadInput(
                    f"{column}: {len(pairs):,} pairs through English; {FEW} at least are needed, an accuracy over "
                    "fewer says nothing. Take a file of direct pairs, or tatoeba_dump."
                )
        add_accuracy(accuracies, model, column, pairs[: suite.most])
    return {"accuracy": accuracies}


def tatoeba_dump_suite(model: AnyModel, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """The mean accuracy of the two directions on pairs that the dump of Tatoeba links directly."""
    accuracies: Columns = {}
    columns = list(columns)
    for folder in dict.fromkeys(suite.tatoeba_dump[column] for column in columns):
        names = tuple(column for column in columns if suite.tatoeba_dump[column] == folder)
        for column, pairs in _dump(fill(folder), names).items():
            add_accuracy(accuracies, model, column, pairs)
    return {"accuracy": accuracies}


@lru_cache(maxsize=1)
def _dump(folder: str, pairs: tuple[str, ...]) -> dict[str, list[ParallelPair]]:
    """The pairs of the dump; the last ones stay in memory, as every row asks for them."""
    return read_dump(folder, pairs)


def tatoeba_all_suite(model: Encoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """The same for every language that LASER's folder has (CCP's AVG_all): a value a language."""
    accuracies: Columns = {}
    for column in columns:
        sets = laser_sets(fill(suite.tatoeba_all[column]))
        if suite.languages is not None and len(sets) != suite.languages:
            raise BadInput(
                f"{fill(suite.tatoeba_all[column])}: {len(sets):,} languages, {suite.languages:,} are needed for the "
                "average over all of them. Fetch LASER's folder again."
            )
        accuracies[column] = {
            lang: tatoeba_pairs(model, list(read_parallel(files)), lang).mean for lang, files in sets.items()
        }
    return {"accuracy": accuracies}


def add_accuracy(found: Columns, model: AnyModel, column: str, pairs: Sequence[ParallelPair]) -> None:
    """Add a column's accuracy; none where the model is vectors made elsewhere that do not have it."""
    if not isinstance(model, StoredVectors):
        found[column] = {"mean": tatoeba_pairs(model, pairs, column).mean}
    elif (result := model.accuracy(column, pairs)) is not None:
        found[column] = {"mean": result.mean}


def planted_suite(model: Encoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """F1 with the threshold tuned on the task itself."""
    scores: Columns = {}
    for column in columns:
        task = planted(_of_origins(fill(suite.planted[column]), suite))
        scores[column] = {"mean": bucc_f1(mined_pairs(model, task)[0], task.gold).f1 / 100}
    return {"F1": scores}


def bucc_suite(model: Encoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """F1 by both protocols; `{"de": ".../de-en"}` names the folder of each language pair."""
    results = {column: bucc(model, fill(suite.bucc[column]), f"{column}-en", "xtreme") for column in columns}
    return {
        label: {column: {"mean": result.scores[protocol].f1 / 100} for column, result in results.items()}
        for label, protocol in (("F1", "train_self"), ("F1, threshold of the sample", "xtreme"))
    }


def projection_suite(model: Encoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """The numbers beside CCP's figure 1 (the picture itself is drawn of all rows together)."""
    projections = {column: language_projection({"": model}, drawn_pairs(suite, column, fill))[""] for column in columns}
    return {
        "distance of the languages": {column: {"mean": result.distance} for column, result in projections.items()},
        "accuracy": {column: {"mean": result.accuracy.mean} for column, result in projections.items()},
    }


def drawn_pairs(suite: Suite, column: str, fill: Fill) -> list[ParallelPair]:
    """The translations of a picture: the first 1,000, as the paper draws."""
    return _of_origins(fill(suite.projection[column]), suite)[:1000]


def pool_suite(model: Encoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """Average precision over the pool of all languages, where every translation of the passage is right, and how much
    of the top is in the question's own language (LAReQA, Roy et al. 2020); and PEER (Yang et al. 2024)."""
    collections = {column: load_collection(fill(suite.pool[column])) for column in columns}
    matrix = language_matrix(model, collections, cells=())
    return _pooled(matrix)


def _pooled(matrix: LanguageMatrix) -> dict[str, Columns]:
    return {
        label: {lang: {"mean": value} for lang, value in values.items()}
        for label, values in (
            ("AP", matrix.pool_map),
            (f"same language @{TOP}", matrix.same_language_rate),
            (f"PEER @{DEEP}", matrix.pool_peer),
        )
    }


def matrix_suite(model: Encoder, suite: Suite, columns: Iterable[str], fill: Fill) -> dict[str, Columns]:
    """Retrieval in one language, from it to English passages, and from English to its passages, a value a question;
    and what `pool_suite` measures. All of one encoding."""
    columns = list(columns)
    others = [lang for lang in columns if lang != "en"] if "en" in columns else []
    kinds = {
        "same language": {lang: (lang, lang) for lang in columns},
        "to English": {lang: (lang, "en") for lang in others},
        "from English": {lang: ("en", lang) for lang in others},
    }
    collections = {column: load_collection(fill(suite.matrix[column])) for column in columns}
    matrix = language_matrix(model, collections, cells={cell for kind in kinds.values() for cell in kind.values()})
    results = _pooled(matrix)
    for kind, cells in kinds.items():
        values = {lang: dict(matrix.scores[cell].per_query[matrix.measure]) for lang, cell in cells.items()}
        if values:
            results[f"{matrix.measure}, {kind}"] = values
    return results


def xor_suite(model: Encoder, suite: Suite, fill: Fill, shards: Shards | None = None) -> dict[str, Columns]:
    """R@2kt and R@5kt: each question 1 or 0. With `shards`, the passages and their vectors stay on the disk."""
    if suite.xor is None:
        raise BadInput("the suite has no XOR-Retrieve questions.")
    questions, path = read_answered(fill(suite.xor.questions)), fill(suite.xor.passages)
    passages: Iterable[Passage] = read_passages(path)
    if shards is not None:
        run = shards.of(model, passages, "XOR-Retrieve").search(questions, OF_XOR)
        passages = read_passages(path)  # anew: they are never in memory together
    else:
        passages = list(passages)
        run = retrieve(model, Collection("XOR-Retrieve", passages, list(questions)), depth=OF_XOR)
    results: dict[str, Columns] = {}
    for result in xor_results(run_texts(run, passages), questions):
        for measure, values in result.scores.per_query.items():
            results.setdefault(measure, {})[result.lang] = {query: value / 100 for query, value in values.items()}
    return results


def _of_origins(path: str, suite: Suite) -> list[ParallelPair]:
    return [pair for pair in read_parallel(path) if suite.origins is None or pair.origin in suite.origins]


PAIRS: Mapping[str, Callable[[AnyModel, Suite, Iterable[str], Fill], dict[str, Columns]]] = {
    "tatoeba": tatoeba_suite,
    "tatoeba_dump": tatoeba_dump_suite,
}
SUITES: Mapping[str, Callable[[Encoder, Suite, Iterable[str], Fill], dict[str, Columns]]] = {
    **PAIRS,
    "tatoeba_all": tatoeba_all_suite,
    "planted": planted_suite,
    "bucc": bucc_suite,
    "projection": projection_suite,
    "pool": pool_suite,
    "matrix": matrix_suite,
}


def measured(kind: str, model: AnyEncoder | StoredVectors | None, ranking: Ranking | None) -> bool:
    """Whether a suite of this kind is measured of such a row: a pipeline ranks collections, vectors made elsewhere are
    of sentences."""
    if ranking is not None:
        return kind == "collections"
    return not isinstance(model, StoredVectors) or kind in ("tatoeba", "tatoeba_dump")


def measure(
    model: AnyEncoder | StoredVectors | None,
    suites: Mapping[str, Suite],
    measures: Sequence[str],
    data: str | None,
    ranking: Ranking | None = None,
    report: Callable[[str], None] = logger.warning,
    shards: Shards | None = None,
    lacking: Callable[[str], None] | None = None,
) -> Values:
    """Every suite's values; `measures` are those of collections, the other kinds have their own. `model` may be None
    where the pipeline of `ranking` has none. With `ranking`, and with a model of late interaction, the collections
    are ranked by a pipeline, and the kinds that are not searched are left out. `report` is told what is wrong with a
    number that is given all the same, and `lacking` (`report`, if not given) why a column has none; where nothing can
    be measured the first error is raised.

    With `shards`, the passages of large collections are on the disk; of several processes each encodes and searches its
    part of them. What is not divided the first process does alone, and it alone has all values.
    """
    values: Values = {}
    errors: list[InterlinguaError] = []
    first, lacking = shards is None or shards.processes.first, lacking or report
    fill_data = partial(fill, data=data)
    if isinstance(model, StoredVectors):
        for name, suite in suites.items():
            if first and measured(suite.kind, model, None):
                values |= _each(name, suite, model, PAIRS[suite.kind], fill_data, errors)
        return _or_raise(values, errors, lacking)
    for name, suite in suites.items():
        # several vectors a text: searched by MaxSim
        if ranking is not None or model is None or has_token_vectors(model):
            ranking = ranking or Ranking()
            if not measured(suite.kind, model, ranking) or not (first or ranking.searches):
                continue
            by_column: dict[str, Scored] = {}
            for column in suite.collections:
                with _left_out(errors, f"{name}, {column}"):
                    by_column[column] = _ranked(ranking, model, suite, column, measures, data, report, shards)
            if by_column and first:
                values[name] = {m: {column: dict(scored[m]) for column, scored in by_column.items()} for m in measures}
            continue
        # passages shared by all columns are encoded once; others are held one collection at a time
        columns = list(suite.collections)
        groups = [columns] if suite.passages is not None else [[column] for column in columns]
        results = []
        for group in filter(None, groups):
            collections: list[Collection] = []
            for column in group:
                with _left_out(errors, f"{name}, {column}"):
                    collections.append(held(suite, column, data)[0])
            results += _evaluated(model, collections, measures, shards, errors, name)
        if results:
            values[name] = {m: {r.collection: dict(r.scores.per_query[m]) for r in results} for m in measures}
        if first and suite.kind in SUITES:
            values |= _each(name, suite, model, SUITES[suite.kind], fill_data, errors)
        if suite.xor is not None:
            with _left_out(errors, name, alone=_is_alone(shards)):
                values[name] = xor_suite(model, suite, fill_data, shards)
    return _or_raise(values, errors, lacking)


def _evaluated(
    model: Encoder,
    group: Sequence[Collection],
    measures: Sequence[str],
    shards: Shards | None,
    errors: list[InterlinguaError],
    name: str,
) -> list[Result]:
    """The results of a group of collections; those that cannot be measured are left out."""
    if not group:
        return []
    try:
        return evaluate_on(model, group, measures, DEPTH, shards=shards)
    except (BadInput, NotFound):
        if not _is_alone(shards):
            raise
    results: list[Result] = []
    for collection in group:
        with _left_out(errors, f"{name}, {collection.name}"):
            results += evaluate_on(model, [collection], measures, DEPTH, shards=shards)
    return results


def _is_alone(shards: Shards | None) -> bool:
    """Whether no other process measures with this one, and would wait for what this one leaves out."""
    return shards is None or shards.processes.count == 1


def _each(
    name: str,
    suite: Suite,
    model: M,
    measured_by: Callable[[M, Suite, Iterable[str], Fill], dict[str, Columns]],
    fill_data: Fill,
    errors: list[InterlinguaError],
) -> Values:
    """The values of the columns of a suite; those that raise BadInput or NotFound are left out, and the errors
    added to `errors`."""
    columns = list(getattr(suite, suite.kind))
    try:
        return {name: measured_by(model, suite, columns, fill_data)}
    except (BadInput, NotFound) as error:
        if suite.merged:  # the pool of some languages is another pool
            errors.append(error)
            return {}
        if len(columns) > 1:
            logger.info(f"{name}: a column cannot be measured; each is tried by itself.")
    values: Values = {}
    for column in columns:
        try:
            join(values, {name: measured_by(model, suite, [column], fill_data)})
        except (BadInput, NotFound) as error:
            errors.append(error)
    return values


@contextmanager
def _left_out(errors: list[InterlinguaError], what: str, alone: bool = True) -> Iterator[None]:
    """Go on without what cannot be read or measured, and add the error to `errors`; raise it where other processes
    wait."""
    try:
        yield
    except (BadInput, NotFound) as error:
        if not alone:
            raise
        errors.append(type(error)(f"{what}: {error}"))


def _or_raise(values: Values, errors: Sequence[InterlinguaError], report: Callable[[str], None]) -> Values:
    """Return what was measured, and report the errors; where nothing was, raise the first one."""
    if errors and not values:
        raise errors[0]
    for error in errors:
        report(str(error))
    return values


def _ranked(
    ranking: Ranking,
    model: AnyEncoder | None,
    suite: Suite,
    column: str,
    measures: Sequence[str],
    data: str | None,
    report: Callable[[str], None],
    shards: Shards | None,
) -> Scored:
    collection, counterparts = held(suite, column, data)
    translated: Mapping[str, Query] | None = counterparts if isinstance(suite.translations, str) else None
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
    return ranking.scores(model, collection, measures, translated, dev, report, shards)


def held(suite: Suite, column: str, data: str | None) -> tuple[Collection, dict[str, Query]]:
    """The collection of a column under its name, with the suite's passages or questions if it has its own; and, where
    the questions are asked across languages, the same in the language of the passages, as far as they are wanted. A
    question without a counterpart is left out then."""
    collection = load(fill(suite.collections[column], data))
    if suite.passages is not None:
        passages = load(fill(suite.passages, data))
        collection = cross(collection, passages)
        if suite.translations == "passages":
            return _with_counterparts(column, collection, passages)
    if suite.questions is not None:
        return _with_counterparts(column, cross(load(fill(suite.questions, data)), collection), collection)
    return replace(collection, name=column), {}


def _with_counterparts(column: str, source: Collection, other: Collection) -> tuple[Collection, dict[str, Query]]:
    """`source` without the questions that have no counterpart in `other`, under the name of the column; and those
    counterparts by the ids of `source`."""
    translated = question_translations(source, other)
    if count := len(source.queries) - len(translated):
        logger.warning(f"{column}: {count:,} of {len(source.queries):,} questions have no counterpart and are left out")
    queries = [query for query in source.queries if query.id in translated]
    qrels = {name: grades for name, grades in source.qrels.items() if name in translated}
    return Collection(column, source.passages, queries, qrels), translated


@lru_cache(maxsize=2)
def load(path: str) -> Collection:
    """A collection; the last two stay in memory."""
    return load_collection(path)
