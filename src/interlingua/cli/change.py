"""`interlingua add`, `replace`, `delete`, `compact` and `tokens`: what changes an index that is there."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import Any

from interlingua.cli.options import (
    counted,
    durability_option,
    index_argument,
    model_option,
    opened,
    passage_options,
    precision_option,
    read_passages,
)

logger = logging.getLogger(__name__)

NAMES = ("add", "replace", "delete", "compact", "tokens")

ADD = """\
Add passages to an index. A passage whose id is there already is an error.

  interlingua add idx news.jsonl
  interlingua add idx faq.csv --columns text=answer id=number
"""
REPLACE = """\
Put passages in place of those with their ids, and add new ones. What did not change is not encoded again.

  interlingua replace idx handbook/
  interlingua replace idx handbook/guide.md          one file of that folder
"""
DELETE = """\
Delete passages by their ids. An id means all passages that have it, SOURCE:ID one of them.

  interlingua delete idx handbook/guide.md#3
  interlingua delete idx faq.csv:7 faq.csv:8
"""
COMPACT = """\
Tidy up after many changes: make the caches again, join files, remove what only old versions need.

  interlingua compact idx
  interlingua compact idx --approximate              for millions of passages: index the vectors
"""
TOKENS = """\
Keep the token vectors of late-interaction models, so that `--rerank MODEL` need not encode passages. What is kept
already stays: give the command again after many changes.

  interlingua tokens idx runs/late/model
"""


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare the verbs."""

    def verb(name: str, help: str, description: str, run: Callable[[argparse.Namespace], None]) -> Any:
        parser = verbs.add_parser(name, help=help, parents=[common], description=description)
        index_argument(parser)
        parser.set_defaults(run=run)
        return parser

    for name, help, description in (
        ("add", "add passages to an index", ADD),
        ("replace", "replace passages of an index, and add new ones", REPLACE),
    ):
        parser = verb(name, help, description, write)
        parser.add_argument("files", nargs="+", metavar="FILE", help="files, folders and collections of passages")
        model_option(parser)
        precision_option(parser)
        durability_option(parser)
        passage_options(parser)
    parser = verb("delete", "delete passages of an index", DELETE, delete)
    parser.add_argument("ids", nargs="+", metavar="ID", help="ids, or SOURCE:ID")
    durability_option(parser)
    parser = verb("compact", "tidy up an index after many changes", COMPACT, compact)
    dense = parser.add_mutually_exclusive_group()
    dense.add_argument(
        "--approximate",
        action="store_true",
        default=None,
        help="index the vectors for approximate search (done by itself for millions)",
    )
    dense.add_argument(
        "--exact",
        dest="approximate",
        action="store_false",
        help="search exactly; to be said each time where there are millions",
    )
    parser = verb("tokens", "keep the token vectors of rerankers in an index", TOKENS, tokens)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="late-interaction models, folders or names")


def write(arguments: argparse.Namespace) -> None:
    """Add or replace."""
    from interlingua.data.files import SourceNames

    index, names = opened(arguments, durability=arguments.durability), SourceNames()
    written = getattr(index, arguments.verb)(read_passages(arguments, arguments.files, names), names)
    what = "added" if arguments.verb == "add" else "added or changed"
    logger.info(f"{arguments.index}: {written:,} passages {what}; {counted(index)}")


def delete(arguments: argparse.Namespace) -> None:
    """Delete by ids."""

    index = opened(arguments, durability=arguments.durability)
    logger.info(f"{arguments.index}: {index.delete(arguments.ids):,} passages deleted; {counted(index)}")


def compact(arguments: argparse.Namespace) -> None:
    """Make the caches again."""

    index = opened(arguments)
    index.compact(arguments.approximate)
    logger.info(f"{arguments.index}: is compact; {counted(index)}")


def tokens(arguments: argparse.Namespace) -> None:
    """Keep token vectors for rerankers."""
    from interlingua.models.late_interaction import load_any

    index = opened(arguments)
    for model in arguments.models:
        logger.info(
            f"{arguments.index}: {index.keep_tokens(load_any(model)):,} passages encoded by {model}. "
            f'Try: interlingua search {arguments.index} --rerank {model} "your question"'
        )
