"""`interlingua delete`: delete passages of an index."""

from __future__ import annotations

import argparse
import logging
from typing import Any

from interlingua.cli.options import (
    counted,
    dry_run_option,
    durability_option,
    filter_of,
    filter_option,
    index_argument,
    opened,
)
from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput, suggestion

logger = logging.getLogger(__name__)

NAMES = ("delete",)
MANY = 10_000  # sources that a name is compared with

DESCRIPTION = """\
Delete passages by their ids, or by sources and metadata. An id means all passages that have it, SOURCE:ID one of them.

  interlingua delete idx handbook/guide.md#3
  interlingua delete idx faq.csv:7 faq.csv:8
  interlingua delete idx --source faq.csv            all of a file
  interlingua delete idx --source handbook/ --filter topic=storm --dry-run
"""


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("delete", help="delete passages of an index", description=DESCRIPTION)
    index_argument(parser)
    parser.add_argument("ids", nargs="*", metavar="ID", help="ids, or SOURCE:ID")
    parser.add_argument(
        "--source",
        action=Repeated,
        default=[],
        metavar="SOURCE",
        help="all passages of a source, as results name it; handbook/ means all whose names begin so",
    )
    filter_option(parser, "all passages with these metadata; with --source those of the source")
    dry_run_option(parser)
    durability_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Delete by ids, or by sources and metadata."""
    if not (arguments.ids or arguments.source or arguments.filter):
        raise BadInput("say what to delete: ids, --source or --filter. See `interlingua delete --help`.")
    where = filter_of(arguments)
    index = opened(arguments, durability=arguments.durability)
    missed: list[str] = []
    if unknown := sorted(set(arguments.ids) - index.found(arguments.ids).keys()):
        examples = ", ".join([*(f"'{id}'" for id in unknown[:3]), *["…"][: len(unknown) > 3]])
        missed.append(f"{len(unknown):,} of the ids are of no passage: {examples}")
    empty = [name for name in arguments.source if not index.delete(sources=[name], where=where, dry_run=True)]
    if empty:
        known = list(index.facets(["source"], most=MANY)["source"]) if "source" in index.fields else []
        known += {f"{source.rpartition('/')[0]}/" for source in known if "/" in source}
        for name in empty:
            near = " None of it fits the filter." if name in known else suggestion(name, known, listing=False)
            missed.append(f"no passage to delete is from '{name}'.{near}")
    count = index.delete(arguments.ids, sources=arguments.source, where=where, dry_run=arguments.dry_run)
    for what in missed:
        logger.warning(f"{arguments.index}: {what}")
    would = "would be " * arguments.dry_run
    logger.info(f"{arguments.index}: {count:,} passages {would}deleted; {counted(index)}")
