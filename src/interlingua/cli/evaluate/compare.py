"""`interlingua compare`: is run A better than run B?"""

from __future__ import annotations

import argparse
from typing import Any

from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

NAMES = ("compare",)


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("compare", help="test two systems against each other, query by query")
    parser.add_argument(
        "runs",
        nargs="+",
        metavar="RUN",
        help="TREC run files: that of A and that of B; on several collections all of A's, then all of "
        "B's, in one order",
    )
    parser.add_argument(
        "--qrels",
        action=Repeated,
        default=[],
        metavar="FILE",
        help="TREC qrels files, one for each pair of runs (or one for all)",
    )
    parser.add_argument(
        "--on",
        action=Repeated,
        default=[],
        metavar="COLLECTION",
        help="take the judgements of these collections in place of --qrels",
    )
    parser.add_argument("--measure", default="RR@100")
    parser.add_argument("--test", choices=["t", "permutation"], default="t")
    parser.add_argument(
        "--correction",
        choices=["holm", "bonferroni", "none"],
        default="holm",
        help="for several comparisons, which count as one family (holm)",
    )
    parser.add_argument(
        "--alpha", type=float, default=0.05, metavar="P", help="significant is a corrected p under this (0.05)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Compare."""
    from interlingua.evaluation.measures import unanswered
    from interlingua.evaluation.significance import compare_all
    from interlingua.retrieval.run import Run

    if not 0 < arguments.alpha < 1:
        raise BadInput(f"--alpha {arguments.alpha}: must lie between 0 and 1.")
    pairs = pairs_of(arguments)
    family: dict[str, Any] = {}
    lacking: list[str] = []
    for number, (file_a, file_b, name, qrels) in enumerate(pairs, 1):
        runs = {"A": Run.read_trec(file_a), "B": Run.read_trec(file_b)}
        for file, one in zip((file_a, file_b), runs.values(), strict=True):
            if not qrels.keys() & one.keys():
                raise BadInput(
                    f"{file}: has results for no query of {name}. The run and the qrels must be of one test set."
                )
            if (message := unanswered(file, one, qrels, name)) is not None:
                lacking.append(message)
        family["A vs B" if len(pairs) == 1 else f"{number}. {name}"] = (*runs.values(), qrels)
    correction = None if len(pairs) == 1 or arguments.correction == "none" else arguments.correction
    comparisons = compare_all(family, arguments.measure, arguments.test, correction, alpha=arguments.alpha)
    for (file_a, file_b, _, _), found in zip(pairs, comparisons, strict=True):
        for file, mean in ((file_a, found.mean_a), (file_b, found.mean_b)):
            print(f"{file}: {found.measure} {mean:.4f}")
    for comparison in comparisons:
        print(comparison)
    if lacking:
        raise BadInput(f"the comparison is printed, and is not complete: {'; '.join(dict.fromkeys(lacking))}")


def pairs_of(arguments: argparse.Namespace) -> list[tuple[str, str, str, Any]]:
    """(run of A, run of B, what is judged, qrels) of each comparison. Raises BadInput for files that do not
    pair up."""
    from interlingua.data.collections import load_collection
    from interlingua.data.layouts import read_qrels

    half, remainder = divmod(len(arguments.runs), 2)
    if remainder:
        raise BadInput(f"{len(arguments.runs)} run file(s) cannot be paired: give all of A's, then as many of B's.")
    if bool(arguments.qrels) == bool(arguments.on):
        raise BadInput(
            "say what is right: --qrels FILE …, or --on COLLECTION …"
            if not arguments.on
            else "--qrels and --on both say what is right. Give one of them."
        )
    names = arguments.qrels or arguments.on
    if len(names) not in (1, half):
        raise BadInput(
            f"{len(names)} sets of judgements for {half} pair(s) of runs: give one for each pair, or one for all."
        )
    qrels = {name: read_qrels(name) if arguments.qrels else load_collection(name).qrels for name in names}
    names = names if len(names) == half else names * half
    return [
        (a, b, name, qrels[name])
        for a, b, name in zip(arguments.runs[:half], arguments.runs[half:], names, strict=True)
    ]
