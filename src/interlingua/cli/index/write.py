"""`interlingua add` and `replace`: put passages into an index."""

from __future__ import annotations

import argparse
import logging
from typing import Any

from interlingua.cli.options import counted, opened, read_passages, sources_of_an_index

logger = logging.getLogger(__name__)

NAMES = ("add", "replace")

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


def add(verbs: Any) -> None:
    """Declare the verbs."""
    for name, help, description in (
        ("add", "add passages to an index", ADD),
        ("replace", "replace passages of an index, and add new ones", REPLACE),
    ):
        parser = verbs.add_parser(name, help=help, description=description)
        sources_of_an_index(parser)
        parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Add or replace."""
    from interlingua.data.files import SourceNames

    index, names = opened(arguments, durability=arguments.durability), SourceNames()
    count = getattr(index, arguments.verb)(read_passages(arguments, arguments.files, names), names)
    action = "added" if arguments.verb == "add" else "added or changed"
    logger.info(f"{arguments.index}: {count:,} passages {action}; {counted(index)}")
