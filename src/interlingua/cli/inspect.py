"""`interlingua inspect`: what is in a data source?"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

NAMES = ("inspect",)


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("inspect", help="statistics of a data source or collection", parents=[common])
    parser.add_argument("source", nargs="?", default="encyclopedia",
                        help="a path, ir_datasets:ID, or encyclopedia (bundled; the default)")
    parser.add_argument("--kind", choices=["questions", "parallel", "sentences", "documents", "collection"],
                        help="what it holds; a collection by default")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print the statistics."""
    from tabulate import tabulate

    from interlingua.data import readers, summary
    from interlingua.data.collection import load_collection

    def show(title: str, rows: list[summary.Row]) -> None:
        print(f"{title}\n{tabulate(rows, headers='keys', floatfmt=',.2f', intfmt=',')}\n")

    if arguments.source == "encyclopedia" and arguments.kind is None:
        show("topics", summary.summarise_topics())
        show("sentences", summary.summarise(readers.read_sentences("encyclopedia")))
    if arguments.kind in (None, "collection"):
        show(f"collection {arguments.source}", summary.summarise_collection(load_collection(arguments.source)))
        return
    read: dict[str, Callable[[str], Iterable[summary.Item]]] = {
        "questions": readers.read_questions, "parallel": readers.read_parallel,
        "sentences": readers.read_sentences, "documents": readers.read_documents}
    show(f"{arguments.kind} {arguments.source}", summary.summarise(read[arguments.kind](arguments.source)))
