"""What `interlingua evaluate` prints and writes for systems on collections."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def print_systems(arguments: argparse.Namespace, systems: dict[str, Any], collections: list[Any]) -> None:
    """Systems × collections, a table for each measure; run files where asked for."""
    from interlingua.evaluation.measures import DEFAULT_MEASURES
    from interlingua.evaluation.results import results_table

    if arguments.runs:
        write_runs(Path(arguments.runs), systems, collections)
    for measure in arguments.measures or DEFAULT_MEASURES:
        table = results_table(systems, measure, intervals=not arguments.no_intervals)
        print(table.render(arguments.format, intervals=not arguments.no_intervals) + "\n")


def write_runs(folder: Path, systems: dict[str, Any], collections: list[Any]) -> None:
    """`<collection>.qrels` and `<system>.<collection>.run`, as trec_eval reads them."""
    from interlingua.cli.sentence_tasks import slug
    from interlingua.files import atomic_write

    for collection in collections:
        with atomic_write(folder / f"{slug(collection.name)}.qrels") as stream:
            for query, judged in collection.qrels.items():
                stream.writelines(f"{query} 0 {passage} {grade}\n" for passage, grade in judged.items())
    for name, results in systems.items():
        for result in results:
            result.run.write_trec(folder / f"{run_file(name)}.{slug(result.collection)}.run", tag=run_file(name))


def run_file(name: str) -> str:
    """The stem of the run files of a system: what is left of its name in a file name, and no longer than one may be."""
    from hashlib import blake2b

    from interlingua.cli.sentence_tasks import slug

    stem = slug(name).encode()
    if len(stem) <= 100:
        return stem.decode()
    return f"{stem[:90].decode(errors='ignore')}-{blake2b(name.encode(), digest_size=4).hexdigest()}"
