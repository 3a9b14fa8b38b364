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
    parser.add_argument("--on", nargs="+", required=True, metavar="COLLECTION",
                        help="folders, encyclopedia:LANG, or ir_datasets:ID")
    parser.add_argument("--passages", metavar="COLLECTION",
                        help="search this collection's passages with the others' questions "
                             "(XQuAD-like: ids correspond)")
    parser.add_argument("--matrix", metavar="MEASURE", nargs="?", const="RR@100",
                        help="question language × passage language over the collections, and the merged pool")
    parser.add_argument("--measures", nargs="+", default=["RR@100", "R@100", "nDCG@10"], metavar="M")
    parser.add_argument("--depth", type=int, default=100, help="passages retrieved per question (100)")
    parser.add_argument("--runs", metavar="DIR", help="write TREC run and qrels files here")
    parser.add_argument("--format", default="text", choices=["text", "markdown", "tsv", "json"])
    parser.add_argument("--no-intervals", action="store_true", help="leave the 95%% intervals out")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate every model on every collection."""
    from interlingua.data.collection import cross, load_collection
    from interlingua.evaluation.languages import language_matrix
    from interlingua.evaluation.protocol import evaluate_on
    from interlingua.evaluation.results import results_table
    from interlingua.models.dual import DualEncoder

    collections = [load_collection(name) for name in arguments.on]
    if arguments.passages:
        pool = load_collection(arguments.passages)
        collections = [cross(collection, pool) for collection in collections]
    models = {name: DualEncoder.load(name) for name in arguments.models}
    if arguments.matrix:
        by_language = one_a_language(collections)
        for name, model in models.items():
            print(f"{name}\n{language_matrix(model, by_language, arguments.matrix).render(arguments.format)}\n")
        return
    systems = {name: evaluate_on(model, collections, arguments.measures, arguments.depth)
               for name, model in models.items()}
    if arguments.runs:
        write_runs(Path(arguments.runs), systems, collections)
    for measure in arguments.measures:
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
