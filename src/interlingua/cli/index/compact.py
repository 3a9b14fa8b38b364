"""`interlingua compact`: tidy up an index after many changes."""

from __future__ import annotations

import argparse
import logging
from typing import Any

from interlingua.cli.options import counted, index_argument, opened

logger = logging.getLogger(__name__)

NAMES = ("compact",)

DESCRIPTION = """\
Tidy up after many changes: make the caches again, join files, remove what only old versions need.

  interlingua compact idx
  interlingua compact idx --approximate              for millions of passages: index the vectors
"""


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("compact", help="tidy up an index after many changes", description=DESCRIPTION)
    index_argument(parser)
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
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Make the caches again."""
    index = opened(arguments)
    index.compact(arguments.approximate)
    logger.info(f"{arguments.index}: is compact; {counted(index)}")
