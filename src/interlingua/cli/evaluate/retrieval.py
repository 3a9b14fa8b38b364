"""The retrieval part of `interlingua evaluate`: models and pipelines on test collections and XOR-Retrieve."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

if TYPE_CHECKING:
    from interlingua.data.irds import AnsweredQuery
    from interlingua.data.records import Collection, Passage, Query
    from interlingua.evaluation.protocol import Result
    from interlingua.evaluation.xor import Texts
    from interlingua.index import Index
    from interlingua.models.protocols import AnyEncoder, Encoder
    from interlingua.retrieval.dense.sharded import Shards
    from interlingua.retrieval.pipeline.grammar import Pipeline
    from interlingua.retrieval.run import Run

BATCH = 64
"""Questions that an index is asked at once."""
SAMPLE = 1_000
"""Judged ids that are looked for in an index, to tell whether its passages or its documents are judged."""
PARTS = 8
"""Passages that are looked at for each document of a ranking."""


def collection_options(parser: argparse.ArgumentParser) -> None:
    """--on, and what goes with it."""
    group = parser.add_argument_group("test collections")
    group.add_argument(
        "--on",
        action=Repeated,
        default=[],
        metavar="COLLECTION",
        help="folders, encyclopedia:LANG, or ir_datasets:ID (ID#FIELD: a field of the topics)",
    )
    group.add_argument(
        "--lang",
        default="",
        help="language of collections of --on that do not name theirs (else the "
        "name of the folder says it, or it is detected)",
    )
    group.add_argument(
        "--split", metavar="NAME", help="of collections of --on and --passages that have several, such as dev (test)"
    )
    group.add_argument(
        "--passages",
        metavar="COLLECTION",
        help="search this collection's passages with the others' questions "
        "(XQuAD-like: ids correspond); with --xor the English passages, jsonl or DPR's TSV",
    )
    group.add_argument(
        "--matrix",
        metavar="MEASURE",
        nargs="?",
        const="RR@100",
        help="question language × passage language over the collections, and the merged pool",
    )
    group.add_argument(
        "--index",
        action=Repeated,
        default=[],
        metavar="IDX",
        help="a row for each way to search this index (hybrid, dense, lexical): what `search` finds in it",
    )
    group.add_argument("--measures", action=Repeated, metavar="M", help="RR@100 R@100 nDCG@10, unless you name others")
    group.add_argument("--depth", type=int, default=100, help="passages retrieved per question (100)")
    group.add_argument("--runs", metavar="DIR", help="write TREC run and qrels files here")
    group.add_argument(
        "--vectors",
        metavar="DIR",
        help="keep the passages' vectors in DIR, on the disk, instead of in memory; the same command goes on after an "
        "interruption, and torchrun divides the work",
    )


def pipeline_options(parser: argparse.ArgumentParser) -> None:
    """--pipeline, and what goes with it."""
    group = parser.add_argument_group("pipelines: rows beside the models")
    group.add_argument(
        "--pipeline",
        action=Repeated,
        default=[],
        metavar="P",
        help='in one line each: "bm25 %% 1000 >> runs/m" (rerank), "bm25 + 0.8 * runs/m" (hybrid), '
        '"rrf(bm25, runs/m)", "runs/m(maxp=180/90)", "run(a.run)"',
    )
    group.add_argument(
        "--translated",
        action=Repeated,
        default=[],
        metavar="FILE",
        help="the questions as bm25 is to read them, id ⇥ text: one file for all collections, or one "
        "for each in the order of --on",
    )
    group.add_argument(
        "--translate", metavar="COMMAND", help="a program that translates them: lines in, as many lines out"
    )


def xor_options(parser: argparse.ArgumentParser) -> None:
    """--xor, and what goes with it."""
    group = parser.add_argument_group("XOR-Retrieve")
    group.add_argument(
        "--xor", metavar="QUESTIONS.jsonl", help="how often the first 2,000 and 5,000 tokens retrieved hold the answer"
    )
    group.add_argument(
        "--predictions",
        action=Repeated,
        default=[],
        metavar="FILE",
        help="score these with --xor: TREC runs, or XOR-Retrieve's own JSON",
    )


def model_systems(
    arguments: argparse.Namespace, models: Mapping[str, Encoder], collections: Sequence[Collection]
) -> dict[str, list[Result]]:
    """The results of each model on each collection; none in a process that is not to report them, under torchrun."""
    from interlingua.evaluation.measures import DEFAULT_MEASURES
    from interlingua.evaluation.protocol import evaluate_on

    measures = arguments.measures or DEFAULT_MEASURES
    folders = {name: vector_folder(arguments, name) for name in models}
    systems = {
        name: evaluate_on(model, collections, measures, arguments.depth, shards=folders[name])
        for name, model in models.items()
    }
    return systems if all(shards is None or shards.processes.first for shards in folders.values()) else {}


def index_systems(arguments: argparse.Namespace, collections: Sequence[Collection]) -> dict[str, list[Result]]:
    """The results of each index of --index for the questions of each collection, by each mode of its search."""
    from interlingua.cli.options import opened
    from interlingua.evaluation.measures import DEFAULT_MEASURES, evaluate
    from interlingua.evaluation.protocol import check_collections, result
    from interlingua.index.metadata import MODES

    measures = arguments.measures or DEFAULT_MEASURES
    if arguments.index:
        check_collections(collections, measures, arguments.depth)
    systems: dict[str, list[Result]] = {}
    for path in arguments.index:
        found: dict[str, list[Result]] = {f"{path} ({mode})": [] for mode in MODES}
        with closing(opened(argparse.Namespace(index=path, model=None, precision=arguments.precision))) as index:
            for collection in collections:
                of_documents = are_documents(index, collection)
                for mode, results in zip(MODES, found.values(), strict=True):
                    run = index_run(index, collection, mode, arguments.depth, of_documents)
                    results.append(result(collection, run, evaluate(run, collection.qrels, measures)))
        systems |= found
    return systems


def are_documents(index: Index, collection: Collection) -> bool:
    """Whether a collection judges documents and rows of an index, not the passages that were cut from them: some of its
    ids are no passage, and none is a part."""
    from interlingua.index.documents import cut_from

    judged = list(dict.fromkeys(chain.from_iterable(collection.qrels.values())))[:SAMPLE]
    passages = index.found(judged)
    parts = (cut_from(passage)[1] is not None for versions in passages.values() for passage in versions)
    return len(passages) < len(judged) and not any(parts)


def index_run(index: Index, collection: Collection, mode: str, depth: int, of_documents: bool) -> Run:
    """Search an index with the questions of a collection: passages, or documents and rows, each as good as its best
    passage. Raises BadInput where nothing that it finds is judged: the ids are others."""
    from interlingua.index.documents import cut_from
    from interlingua.index.metadata import Question
    from interlingua.progress import track
    from interlingua.retrieval.run import Run

    queries, scores = collection.queries, dict[str, dict[str, float]]()
    for start in track(range(0, len(queries), BATCH), f"{index.path} {mode} {collection.name}"):
        batch = queries[start : start + BATCH]
        questions = [Question(query.text, query.lang or None) for query in batch]
        rankings = index.search_many(questions, depth * PARTS if of_documents else depth, mode=mode)
        for query, hits in zip(batch, rankings, strict=True):
            best: dict[str, float] = {}
            for hit in hits:  # two sources may share an id: the best counts
                best.setdefault(cut_from(hit.passage)[0] if of_documents else hit.passage.id, hit.score)
            scores[query.id] = dict(islice(best.items(), depth))
    judged = set(chain.from_iterable(collection.qrels.values()))
    if of_documents and not any(judged & found.keys() for found in scores.values()):
        raise BadInput(
            f"{index.path}: what it finds has none of the ids that {collection.name} judges, such as "
            f"'{min(judged)}'. Index the passages of the collection, or judge by the ids that the index has."
        )
    return Run.from_scores(scores)


def vector_folder(arguments: argparse.Namespace, name: str) -> Shards | None:
    """The folder of a model's vectors with --vectors, of every collection, whatever its size; without it None."""
    from interlingua.retrieval.dense.sharded import Shards
    from interlingua.training.processes import Processes

    if not arguments.vectors:
        return None
    return Shards(Path(arguments.vectors) / run_file(name), least=0, processes=Processes.join())


def print_matrices(
    arguments: argparse.Namespace, models: Mapping[str, Encoder], collections: Sequence[Collection]
) -> None:
    """Question language × passage language, a matrix for each model."""
    from interlingua.evaluation.languages import language_matrix
    from interlingua.evaluation.table import MACHINES, render_records

    by_language, records = one_a_language(collections), list[dict[str, Any]]()
    for name, model in models.items():
        matrix = language_matrix(model, by_language, arguments.matrix, arguments.depth)
        if arguments.format in MACHINES:
            records += [{"system": name, **record} for record in matrix.records()]
        else:
            print(f"{name}\n{matrix.render(arguments.format)}\n")
    if records:
        print(render_records(records, arguments.format))


def one_a_language(collections: Sequence[Collection], what: str = "--matrix") -> dict[str, Collection]:
    """Language → collection. Raises BadInput where two have one language: `what` has one row for each."""
    by_language: dict[str, Collection] = {}
    for collection in collections:
        lang = ",".join(collection.query_langs)
        if lang in by_language:
            raise BadInput(
                f"{by_language[lang].name} and {collection.name} both ask in '{lang}'. "
                f"{what} needs one collection for each language."
            )
        by_language[lang] = collection
    return by_language


def parse_pipelines(arguments: argparse.Namespace) -> dict[str, Pipeline]:
    """The pipelines of --pipeline by what was written. Raises BadInput for one given twice, for rows that
    --runs would write to one file, and for translations that no stage reads."""
    from interlingua.retrieval.pipeline.grammar import Lexical, leaves, parse_pipeline

    pipelines: dict[str, Pipeline] = {}
    for text in arguments.pipeline:
        name = " ".join(text.split())
        pipelines[name] = parse_pipeline(name)
    if len({*pipelines, *arguments.models}) < len(arguments.pipeline) + len({*arguments.models}):
        raise BadInput("--pipeline: one of them is given twice, or is a MODEL as well.")
    if arguments.runs:
        check_run_files((*arguments.models, *pipelines, *arguments.index), run_file)
    unread = not any(
        isinstance(leaf, Lexical) and leaf.queries is None
        for pipeline in pipelines.values()
        for leaf in leaves(pipeline)
    )
    for option in ("translated", "translate"):
        if getattr(arguments, option) and unread:
            raise BadInput(f"--{option}: no stage of the pipelines reads it. It is for bm25 without queries=….")
    return pipelines


def check_run_files(names: Iterable[str], file: Callable[[str], str], what: str = "") -> None:
    """Raise BadInput where --runs would write two of `names` to files of one name."""
    files: dict[str, str] = {}
    for name in names:
        if (other := files.setdefault(file(name), name)) != name:
            raise BadInput(
                f"--runs would write {what}'{other}' and '{name}' to files of one name. Give two commands, and two "
                "folders."
            )


def translations(arguments: argparse.Namespace, collections: Sequence[Collection]) -> dict[str, list[Query]]:
    """Name of a collection → its questions as --translated or --translate has them."""
    import shlex

    from interlingua.retrieval.pipeline.run import (
        command,
        language_of,
        read_translations,
        translate_queries,
        translated_queries,
    )

    if arguments.translate:
        try:
            argv = shlex.split(arguments.translate)
        except ValueError as error:
            raise BadInput(f"--translate {arguments.translate}: {error}.") from error
        translate = command(argv)
        return {one.name: translate_queries(one.queries, translate, language_of(one.passages)) for one in collections}
    if not arguments.translated:
        return {}
    files = arguments.translated if len(arguments.translated) > 1 else arguments.translated * len(collections)
    if len(files) != len(collections):
        raise BadInput(
            f"--translated: {len(files)} files for {len(collections)} collections. Give one for "
            "each in the order of --on, or one for all."
        )
    return {
        one.name: translated_queries(one.queries, read_translations(file), language_of(one.passages), file)
        for one, file in zip(collections, files, strict=True)
    }


def pipeline_systems(
    arguments: argparse.Namespace,
    models: Mapping[str, AnyEncoder],
    pipelines: Mapping[str, Pipeline],
    collections: Sequence[Collection],
    translated: Mapping[str, Sequence[Query]],
) -> dict[str, list[Result]]:
    """The results of each model and each pipeline, the models read in pipelines among them loaded once."""
    from interlingua.evaluation.measures import DEFAULT_MEASURES
    from interlingua.evaluation.protocol import evaluate_pipelines
    from interlingua.retrieval.pipeline.grammar import Model
    from interlingua.retrieval.pipeline.run import encoder_loader

    load = encoder_loader(precision=arguments.precision)
    rows: dict[str, Pipeline] = {name: Model(name) for name in models} | dict(pipelines)
    return evaluate_pipelines(
        rows,
        collections,
        arguments.measures or DEFAULT_MEASURES,
        arguments.depth,
        load=lambda name: models[name] if name in models else load(name),
        translated=translated,
    )


def read_xor(arguments: argparse.Namespace) -> tuple[list[AnsweredQuery], list[Passage], dict[str, Texts]]:
    """Questions, the English passages if any, and file of --predictions → question → texts retrieved."""
    from dataclasses import replace

    from interlingua.data.irds import is_prediction, read_answered, read_predictions
    from interlingua.data.passages import read_passages
    from interlingua.evaluation.xor import nltk_tokenizer, run_texts
    from interlingua.retrieval.run import Run

    questions = read_answered(arguments.xor)
    runs = {file: Run.read_trec(file) for file in arguments.predictions if not is_prediction(file)}
    texts = {file: read_predictions(file) for file in arguments.predictions if file not in runs}
    if runs and not arguments.passages:
        raise BadInput(f"{next(iter(runs))}: a TREC run names passages. Give their texts with --passages.")
    nltk_tokenizer()  # what it lacks is said before the passages are encoded
    passages = [
        passage if passage.lang else replace(passage, lang="en")
        for passage in (read_passages(arguments.passages) if arguments.passages else ())
    ]
    return questions, passages, {**texts, **{file: run_texts(run, passages) for file, run in runs.items()}}


def print_xor(
    arguments: argparse.Namespace,
    models: Mapping[str, Encoder],
    questions: list[AnsweredQuery],
    passages: list[Passage],
    predicted: Mapping[str, Texts],
) -> list[str]:
    """XOR-Retrieve, a table for each number of tokens and each way to read the answers; run files where asked for.
    Returns what is to be told of predictions that lack some of the questions."""
    from interlingua.data.records import Collection
    from interlingua.evaluation.measures import unanswered
    from interlingua.evaluation.protocol import results_table
    from interlingua.evaluation.table import render_tables
    from interlingua.evaluation.xor import run_texts, xor_results
    from interlingua.retrieval.dense.exact import retrieve

    collection = Collection("xor-retrieve", passages, list(questions))
    runs = {name: retrieve(model, collection, depth=arguments.depth) for name, model in models.items()}
    predicted = {**predicted, **{name: run_texts(run, passages) for name, run in runs.items()}}
    systems = {name: xor_results(predicted[name], questions) for name in [*models, *arguments.predictions]}
    intervals = not arguments.no_intervals
    scores = next(iter(systems.values()))[0].scores
    tables = [results_table(systems, measure, intervals=intervals) for measure in scores]
    print(render_tables(tables, arguments.format, digits=1, intervals=intervals))
    for name, run in runs.items() if arguments.runs else ():
        run.write_trec(Path(arguments.runs) / f"{run_file(name)}.xor-retrieve.run", tag=run_file(name))
    results = next(iter(systems.values()))
    queries = [query for result in results for query in next(iter(result.scores.per_query.values()))]
    messages = [unanswered(file, predicted[file], queries, arguments.xor) for file in arguments.predictions]
    return [message for message in messages if message is not None]


def print_systems(
    arguments: argparse.Namespace, systems: Mapping[str, Sequence[Result]], collections: Sequence[Collection]
) -> None:
    """Systems × collections, a table for each measure; run files where asked for."""
    from interlingua.evaluation.measures import DEFAULT_MEASURES
    from interlingua.evaluation.protocol import results_table
    from interlingua.evaluation.table import render_tables

    intervals = not arguments.no_intervals
    measures = arguments.measures or DEFAULT_MEASURES
    tables = [results_table(systems, measure, intervals=intervals) for measure in measures]
    print(render_tables(tables, arguments.format, intervals=intervals))
    if arguments.runs:  # after the tables: an error in writing must not take them away
        write_runs(Path(arguments.runs), systems, collections)


def write_runs(folder: Path, systems: Mapping[str, Sequence[Result]], collections: Sequence[Collection]) -> None:
    """`<collection>.qrels` and `<system>.<collection>.run`, as trec_eval reads them."""
    from interlingua.files import atomic_write

    for collection in collections:
        with atomic_write(folder / f"{slug(collection.name)}.qrels") as stream:
            for query, grades in collection.qrels.items():
                stream.writelines(f"{query} 0 {passage} {grade}\n" for passage, grade in grades.items())
    for name, results in systems.items():
        for result in results:
            result.run.write_trec(folder / f"{run_file(name)}.{slug(result.collection)}.run", tag=run_file(name))


def check_ids(collections: Sequence[Collection]) -> None:
    """Raise BadInput for an id that no run file can hold, before anything is searched; of passages that stay on
    the disk only judged ones are looked at."""
    from interlingua.retrieval.run import check_word

    for collection in collections:
        in_memory = () if hasattr(collection.passages, "by_id") else collection.passages
        for what, ids in (
            ("query id", (query.id for query in collection.queries)),
            ("passage id", (passage.id for passage in in_memory)),
            ("passage id", (id for grades in collection.qrels.values() for id in grades)),
        ):
            for id in ids:
                check_word(id, f"{collection.name}: {what}")


def run_file(name: str) -> str:
    """The stem of the run files of a system: what is left of its name in a file name, and no longer than one may be."""
    from hashlib import blake2b

    stem = slug(name).encode()
    if len(stem) <= 100:
        return stem.decode()
    return f"{stem[:90].decode(errors='ignore')}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


def slug(name: str) -> str:
    """A file name for a path or id."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name).strip("-") or "model"
