"""`interlingua mine`: the translations in two files of sentences, or hard negatives for questions."""

from __future__ import annotations

import argparse
from typing import Any

from interlingua.cli import hard_negatives

NAMES = ("mine",)


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("mine", parents=[common],
                              help="find the sentences of two files that translate each other, or hard negatives")
    parser.add_argument("a", metavar="A", help="a file of one sentence a line, of id<tab>sentence, or jsonl (texts or "
                                               "documents); .gz too")
    parser.add_argument("b", metavar="B", nargs="?", help="the other language; the numbers of lines may differ")
    parser.add_argument("--model", help="a model folder or name")
    parser.add_argument("--out", required=True, metavar="FILE", help="where the pairs go: score, sentence of A, "
                                                                     "sentence of B, the best first; or the questions")
    parser.add_argument("--lang-a", metavar="LANG",
                        help="language of A: whose calibration to apply, and which rows of a jsonl to take")
    parser.add_argument("--lang-b", metavar="LANG", help="the same of B")
    parser.add_argument("-k", "--k", type=int, default=4, help="neighbours of a sentence that make its margin (4)")
    parser.add_argument("--margin", default="ratio", choices=["ratio", "distance", "absolute"],
                        help="a cosine against those of the neighbours: divided (ratio), less, or as it is")
    parser.add_argument("--retrieval", default="max", choices=["max", "intersection", "forward"],
                        help="max: one to one, the best first; intersection: what both sides choose; forward: what A "
                             "chooses")
    bound = parser.add_mutually_exclusive_group()
    bound.add_argument("--threshold", type=float, metavar="X", help="keep the pairs with this score or a better one")
    bound.add_argument("--gold", metavar="FILE", help="learn the threshold from all true pairs of A and B, id<tab>id; "
                                                      "the id of a line without one is its number")
    parser.add_argument("--half", action="store_true", help="keep vectors in float16: half the disk")
    hard_negatives.add_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Mine and write."""
    from interlingua.errors import InterlinguaError

    if arguments.negatives:
        if arguments.b or arguments.model:
            raise InterlinguaError("--negatives takes one file of questions and --with instead of --model.")
        return hard_negatives.run(arguments)
    if not arguments.b or not arguments.model:
        raise InterlinguaError("mine needs two files and --model; or a file of questions and --negatives.")
    if given := [name for name in hard_negatives.ONLY if getattr(arguments, name) is not None]:
        raise InterlinguaError(f"--{given[0].strip('_').replace('_', '-')} goes with --negatives only.")
    bitext(arguments)


def bitext(arguments: argparse.Namespace) -> None:
    """The pairs of two files."""
    from interlingua.alignment.corpus_side import CorpusSide
    from interlingua.alignment.mining import mine_sentences
    from interlingua.data.readers.bucc import read_gold
    from interlingua.errors import InterlinguaError
    from interlingua.evaluation.bucc import bucc_f1, pairs_of_ids
    from interlingua.files import atomic_write
    from interlingua.models.dual import DualEncoder
    from interlingua.progress import say

    gold = read_gold(arguments.gold) if arguments.gold else None
    a, b = (CorpusSide.read(path, lang) for path, lang in
            ((arguments.a, arguments.lang_a), (arguments.b, arguments.lang_b)))
    found = mine_sentences(a, b, DualEncoder.load(arguments.model).encode_document, half=arguments.half,
                           langs=(arguments.lang_a, arguments.lang_b), k=arguments.k, threshold=arguments.threshold,
                           kind=arguments.margin, retrieval=arguments.retrieval)
    say(a.said())
    say(b.said())
    least = -float("inf")
    if gold is not None:
        learnt = bucc_f1(pairs_of_ids(found, a, b), gold)
        if not learnt.correct:
            raise InterlinguaError(f"{arguments.gold}: none of its {learnt.gold:,} pairs was mined, so there is no "
                                   "threshold to learn. Its ids are those in A and B, or else numbers of lines from 1.")
        least = learnt.threshold
        say(f"threshold {least:.6g}, learnt: F1 {learnt.f1:.1f}, precision {learnt.precision:.1f}, recall "
            f"{learnt.recall:.1f} ({learnt.correct:,} of {learnt.gold:,} gold pairs)")
    kept = [(i, j, score) for i, j, score in found if score >= least]
    with atomic_write(arguments.out) as stream:
        stream.writelines(f"{score:.6f}\t{one_line(a.texts[i])}\t{one_line(b.texts[j])}\n" for i, j, score in kept)
    say(f"{arguments.out}: {len(kept):,} pairs{spread([score for *_, score in kept])}")
    if arguments.threshold is None and gold is None and kept:
        say("No threshold: the last of them are hardly translations. Read some, and cut with --threshold.")


def one_line(text: str) -> str:
    """The text as a cell: white space inside, such as a tab, becomes a space."""
    return " ".join(text.split())


def spread(scores: list[float]) -> str:
    """Quartiles of scores that fall, in words."""
    if not scores:
        return ""
    low, *quartiles, high = (scores[round((len(scores) - 1) * part)] for part in (1, 0.75, 0.5, 0.25, 0))
    return f"; scores {low:.3f} to {high:.3f}, quartiles {', '.join(f'{score:.3f}' for score in quartiles)}"
