"""`interlingua compare`: is run A better than run B?"""

from __future__ import annotations

import argparse
from typing import Any

NAMES = ("compare",)


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("compare", help="test two TREC runs against each other, query by query", parents=[common])
    parser.add_argument("run_a", help="a TREC run file")
    parser.add_argument("run_b", help="another")
    parser.add_argument("--qrels", required=True, help="a TREC qrels file")
    parser.add_argument("--measure", default="RR@100")
    parser.add_argument("--test", choices=["t", "permutation"], default="t")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Compare."""
    from interlingua.data.collections.rows import read_qrels
    from interlingua.errors import InterlinguaError
    from interlingua.evaluation.measures import evaluate
    from interlingua.evaluation.significance import compare
    from interlingua.retrieval.run import Run

    qrels = read_qrels(arguments.qrels)
    a, b = Run.read_trec(arguments.run_a), Run.read_trec(arguments.run_b)
    runs = ((arguments.run_a, a), (arguments.run_b, b))
    for name, one in runs:
        if not qrels.keys() & one.keys():
            raise InterlinguaError(f"{name}: has results for no query of {arguments.qrels}. "
                                   "The run and the qrels must be of one test set.")
    for name, one in runs:
        print(f"{name}: {arguments.measure} {evaluate(one, qrels, [arguments.measure])[arguments.measure]:.4f}")
    print(compare(a, b, qrels, arguments.measure, test=arguments.test, correction=None))
