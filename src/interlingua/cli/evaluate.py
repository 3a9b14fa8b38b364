"""`interlingua evaluate`: a table per language."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

NAMES = ("evaluate",)


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("evaluate", parents=[common],
                              help="measure models on test collections, a column per language")
    parser.add_argument("models", nargs="+", metavar="MODEL", help="model folders or names; each is a row")
    parser.add_argument("--on", nargs="+", default=[], metavar="COLLECTION",
                        help="folders, encyclopedia:LANG, or ir_datasets:ID")
    parser.add_argument("--tatoeba", nargs="+", default=[], metavar="FILE",
                        help="files of translations such as ara-eng.tsv.gz: how often the nearest sentence is the "
                             "translation")
    parser.add_argument("--passages", metavar="COLLECTION",
                        help="search this collection's passages with the others' questions "
                             "(XQuAD-like: ids correspond)")
    parser.add_argument("--matrix", metavar="MEASURE", nargs="?", const="RR@100",
                        help="question language × passage language over the collections, and the merged pool")
    parser.add_argument("--measures", nargs="+", metavar="M", help="RR@100 R@100 nDCG@10, unless you name others")
    parser.add_argument("--depth", type=int, default=100, help="passages retrieved per question (100)")
    parser.add_argument("--runs", metavar="DIR", help="write TREC run and qrels files here")
    parser.add_argument("--format", default="text", choices=["text", "markdown", "tsv", "json"])
    parser.add_argument("--no-intervals", action="store_true", help="leave the 95%% intervals out")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate every model on every collection and Tatoeba file."""
    from interlingua.data.collection import cross, load_collection
    from interlingua.data.readers import read_parallel
    from interlingua.models.dual import DualEncoder

    check_options(arguments)
    for file in arguments.tatoeba:
        read_parallel(file)  # opens it: what is not there or not read here is said before hours pass
    collections = [load_collection(name) for name in arguments.on]
    if arguments.passages:
        pool = load_collection(arguments.passages)
        collections = [cross(collection, pool) for collection in collections]
    models = {name: DualEncoder.load(name) for name in arguments.models}
    if arguments.matrix:
        print_matrices(arguments, models, collections)
    elif collections:
        print_tables(arguments, models, collections)
    if arguments.tatoeba:
        from interlingua.evaluation.tatoeba import tatoeba_file, tatoeba_table

        print(tatoeba_table({name: {file: tatoeba_file(model, file) for file in arguments.tatoeba}
                             for name, model in models.items()}, arguments.format))


def check_options(arguments: argparse.Namespace) -> None:
    """Raise InterlinguaError for options that ask for nothing, or for what would not be done."""
    from interlingua.errors import InterlinguaError

    given = [option for option in ("passages", "matrix", "runs", "measures") if getattr(arguments, option)]
    if not arguments.on and not arguments.tatoeba:
        raise InterlinguaError("say what to measure on: --on COLLECTION …, or --tatoeba FILE …")
    if not arguments.on and given:
        raise InterlinguaError(f"--{given[0]} is for collections. Say which with --on COLLECTION …")
    for option in ("measures", "runs"):
        if arguments.matrix and option in given:
            raise InterlinguaError(f"--matrix has no use for --{option}: it has one measure, written after it "
                                   "(--matrix nDCG@10), and no run files. Give two commands.")


def print_matrices(arguments: argparse.Namespace, models: dict[str, Any], collections: list[Any]) -> None:
    """Question language × passage language, a matrix for each model."""
    from interlingua.evaluation.languages import language_matrix

    by_language = one_a_language(collections)
    for name, model in models.items():
        matrix = language_matrix(model, by_language, arguments.matrix, arguments.depth)
        print(f"{name}\n{matrix.render(arguments.format)}\n")


def print_tables(arguments: argparse.Namespace, models: dict[str, Any], collections: list[Any]) -> None:
    """Models × collections, a table for each measure; run files where asked for."""
    from interlingua.evaluation.measures import DEFAULT_MEASURES
    from interlingua.evaluation.protocol import evaluate_on
    from interlingua.evaluation.results import results_table

    measures = arguments.measures or DEFAULT_MEASURES
    systems = {name: evaluate_on(model, collections, measures, arguments.depth) for name, model in models.items()}
    if arguments.runs:
        write_runs(Path(arguments.runs), systems, collections)
    for measure in measures:
        table = results_table(systems, measure, intervals=not arguments.no_intervals)
        print(table.render(arguments.format, intervals=not arguments.no_intervals) + "\n")


def one_a_language(collections: list[Any]) -> dict[str, Any]:
    """Language → collection. Raises InterlinguaError where two have one language: a matrix has one row for each."""
    from interlingua.errors import InterlinguaError

    found: dict[str, Any] = {}
    for collection in collections:
        lang = ",".join(collection.query_langs)
        if lang in found:
            raise InterlinguaError(f"{found[lang].name} and {collection.name} both ask in '{lang}'. "
                                   "--matrix needs one collection for each language.")
        found[lang] = collection
    return found


def write_runs(folder: Path, systems: dict[str, Any], collections: list[Any]) -> None:
    """`<collection>.qrels` and `<model>.<collection>.run`, as trec_eval reads them."""
    from interlingua.files import atomic_write

    for collection in collections:
        with atomic_write(folder / f"{slug(collection.name)}.qrels") as stream:
            for query, judged in collection.qrels.items():
                stream.writelines(f"{query} 0 {passage} {grade}\n" for passage, grade in judged.items())
    for name, results in systems.items():
        for result in results:
            result.run.write_trec(folder / f"{slug(name)}.{slug(result.collection)}.run", tag=slug(name))


def slug(name: str) -> str:
    """A file name for a path or id."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name).strip("-") or "model"
