"""`interlingua demo`: the main street in a minute or two, offline."""

from __future__ import annotations

import argparse
from typing import Any

NAMES = ("demo",)


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("demo", help="train, evaluate and search on the bundled encyclopedia")
    parser.add_argument("--out", default="runs/demo", metavar="DIR", help="where the models go (runs/demo)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the demonstration."""
    from interlingua.experiments.demo import demo

    demo(arguments.out)
