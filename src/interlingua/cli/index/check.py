"""`interlingua check`: whether an index still is what was written."""

from __future__ import annotations

import argparse
from typing import Any

from interlingua.cli.options import index_argument
from interlingua.errors import Damaged

NAMES = ("check",)

CHECK = """\
Check an index in a folder: every file against the checksum that was noted when it was written, the passages of the
table with themselves, the cache with the table. Nothing is written. The exit code is 2 where something is damaged.

  interlingua check idx
  interlingua check idx --repair                     make a damaged cache again from the passages
"""


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("check", help="check an index for damage", description=CHECK)
    index_argument(parser)
    parser.add_argument("--repair", action="store_true", help="make a damaged cache again from the passages")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print a line for each part; raise Damaged where one is not whole."""
    from interlingua.index import check_index

    findings = check_index(arguments.index, repair=arguments.repair)
    for finding in findings:
        print(
            f"{finding.part}: {finding.said.rstrip('.')}" + (f". Damaged: {finding.advice}" if finding.advice else "")
        )
    if damaged := sum(bool(finding.advice) for finding in findings):
        raise Damaged(f"{arguments.index}: {damaged:,} of {len(findings):,} findings are of damage.")
