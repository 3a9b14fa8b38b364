"""`interlingua inspect`: what is in a data source?"""

from __future__ import annotations

import argparse
from typing import Any

from interlingua.cli.options import bad_rows_option
from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

NAMES = ("inspect",)


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("inspect", help="statistics of a data source or collection")
    parser.add_argument(
        "source",
        nargs="?",
        default="encyclopedia",
        help="a path, ir_datasets:ID, or encyclopedia (bundled; the default)",
    )
    parser.add_argument(
        "--kind",
        choices=["questions", "parallel", "sentences", "documents", "collection"],
        help="what it holds; a collection by default",
    )
    parser.add_argument("--format", metavar="NAME", help="the format, where the content does not tell it")
    parser.add_argument("--lang", help="the language of rows that do not name theirs")
    parser.add_argument(
        "--side", choices=["source", "target", "foreign", "both"], help="sentences: read this side of parallel files"
    )
    bad_rows_option(parser)
    parser.add_argument(
        "--option",
        action=Repeated,
        form=".+=",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the reader, e.g. threshold=1.04",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print the statistics."""
    from tabulate import tabulate

    from interlingua.data import readers, summary
    from interlingua.data.collections import load_collection
    from interlingua.data.datasets import READERS

    def show(title: str, rows: list[summary.Row]) -> None:
        print(f"{title}\n{tabulate(rows, headers='keys', floatfmt=',.2f', intfmt=',')}\n")

    options = options_of(arguments)
    if arguments.kind in (None, "collection"):
        if unknown := sorted(options.keys() - {"lang", "split"}):
            raise BadInput(
                f"'{unknown[0]}' is an option of other kinds. Say with --kind what "
                f"{arguments.source} holds: questions, parallel, sentences or documents."
            )
        if arguments.source == "encyclopedia" and arguments.kind is None:
            show("topics", summary.summarise_topics())
            show("sentences", summary.summarise(readers.read_sentences("encyclopedia")))
        collection = load_collection(arguments.source, **options)
        show(f"collection {arguments.source}", summary.summarise_collection(collection))
        return
    items = READERS[arguments.kind](arguments.source, **options)
    show(f"{arguments.kind} {arguments.source}", summary.summarise(items))


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options given for the reader. Raises BadInput for an --option that is none."""
    import yaml

    from interlingua.plain_yaml import parse_yaml

    values = {
        "format": arguments.format,
        "lang": arguments.lang,
        "side": arguments.side,
        "on_bad_row": arguments.on_bad_row,
    }
    options = {key: value for key, value in values.items() if value is not None}
    for option in arguments.option:
        key, equals, value = option.partition("=")
        if not equals or not key.strip().isidentifier() or key.strip() == "path":
            raise BadInput(f"--option '{option}': write key=value, such as threshold=1.04.")
        try:
            options[key.strip()] = parse_yaml(value)
        except yaml.YAMLError as error:
            raise BadInput(
                f"--option '{option}': the value is not valid YAML: {' '.join(str(error).split())}"
            ) from error
    return options
