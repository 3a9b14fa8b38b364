"""`interlingua mine`: translations in two files of sentences, or hard negatives for questions."""

from __future__ import annotations

import argparse
import logging
import os
from typing import TYPE_CHECKING, Any

from interlingua.cli.options import bad_rows_option, fill_in, given, number, precision_option
from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

if TYPE_CHECKING:
    from interlingua.retrieval.hard_negatives import Choice
    from interlingua.retrieval.pipeline.grammar import Lexical, Model

logger = logging.getLogger(__name__)

ONLY = (
    "retriever",
    "passages",
    "negatives_per_question",
    "depth",
    "skip_top",
    "positive_margin",
    "sampling",
    "seed",
    "scores",
    "lang",
    "format",
    "on_bad_row",
)
OF_BITEXT = {"k": 4, "margin": "ratio", "retrieval": "max", "half": False, "role": "passage"} | dict.fromkeys(
    ("lang_a", "lang_b", "threshold", "gold")
)
"""The options that go without --negatives, and their defaults."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options that go with --negatives."""
    group = parser.add_argument_group("with --negatives (A is then a file of questions)")
    group.add_argument("--negatives", action="store_true", help="find passages that look like answers and are none")
    group.add_argument(
        "--retriever",
        metavar="bm25|MODEL",
        help="what finds them: bm25, bm25(analyzer=char4), a model's folder or name",
    )
    group.add_argument(
        "--passages",
        action=Repeated,
        metavar="PASSAGES",
        help="what is searched: jsonl, TSV or collections; without it the passages of the questions",
    )
    group.add_argument("--negatives-per-question", type=int, metavar="N", help="how many to write (8)")
    group.add_argument("--depth", type=int, metavar="N", help="how many results to look at (100)")
    group.add_argument("--skip-top", type=int, metavar="N", help="leave out the first N after known positives (0)")
    group.add_argument(
        "--positive-margin",
        metavar="X|none",
        help="leave out what scores above X times the positive: 0.95 for a model, none for bm25",
    )
    group.add_argument("--sampling", choices=["random", "top"], help="draw from what is left (random), or take the top")
    group.add_argument("--seed", type=int, help="of the draw (0)")
    group.add_argument(
        "--scores", action="store_true", default=None, help="write the retriever's scores, too, to distil from"
    )
    group.add_argument("--lang", help="the language of questions and passages that do not name theirs")
    group.add_argument("--format", metavar="NAME", help="the questions' format, where the content does not tell it")
    bad_rows_option(group)


def run_negatives(arguments: argparse.Namespace) -> None:
    """Mine and write."""
    import json

    from interlingua.data.passages import read_passages
    from interlingua.data.readers import read_questions
    from interlingua.data.readers.questions import as_row
    from interlingua.files import atomic_write
    from interlingua.progress import track
    from interlingua.retrieval.hard_negatives import MiningReport, Pool, mine_hard_negatives
    from interlingua.retrieval.pipeline.run import RetrieverPool, encoder_loader

    if not arguments.retriever:
        raise BadInput("--negatives: say with --retriever what finds them: bm25, or a model's folder or name.")
    stage, choice = stage_of(arguments.retriever), choice_of(arguments)
    options = {key: value for key in ("lang", "format", "on_bad_row") if (value := getattr(arguments, key)) is not None}
    questions = list(read_questions(arguments.a, **options))
    if not questions:
        raise BadInput(f"{arguments.a}: no questions. Check the file.")
    lang, on_bad_row = arguments.lang or "", arguments.on_bad_row or "error"
    sources = arguments.passages or ()
    pool = Pool(questions, (passage for source in sources for passage in read_passages(source, lang, on_bad_row)))
    own = f"{pool.added:,} passages of their own are searched"
    if arguments.passages:
        own = f"{pool.given:,} passages, and {pool.added:,} of the questions' own that are not among them, are searched"
    logger.info(f"{arguments.a}: {len(questions):,} questions; {own}")
    if pool.renamed:
        logger.warning(
            f"note: {pool.renamed:,} passages of the questions have the id of a passage with another text and are "
            "taken for it. If they are no translations, the ids belong to another collection."
        )
    report = MiningReport()
    load = encoder_loader(precision=arguments.precision)
    retriever = RetrieverPool(pool.passages, load).retriever(stage)
    records = mine_hard_negatives(questions, pool, retriever, choice, report, scores=bool(arguments.scores))
    with atomic_write(arguments.out) as stream:
        for record in track(records, "mine", total=len(questions)):
            stream.write(json.dumps(as_row(record), ensure_ascii=False) + "\n")
    logger.info(
        f"{arguments.out}: {report.questions:,} questions with {report.negatives:,} mined negatives"
        + (f", and {report.kept:,} that they had" if report.kept else "")
    )
    if report.short or report.without:
        ways = ["a greater --depth"] * (choice.depth < len(pool.passages))
        ways += ["a greater --positive-margin"] * (choice.margin is not None)
        logger.warning(
            f"{report.short:,} questions got fewer than {choice.per_question}, {report.without:,} none: "
            f"{' or '.join([*ways, 'more --passages'])} may find more"
        )
    reasons = [f"{count:,} {reason}" for reason, count in report.left_out.items() if count]
    logger.info(f"left out of the {choice.depth} found for each: {', '.join(reasons) or 'nothing'}")
    count = sum(bool(question.scores) for question in questions)
    if count and not arguments.scores:
        logger.warning(f"{count:,} questions had a teacher's scores, which do not fit other negatives and are left out")


def stage_of(text: str) -> Lexical | Model:
    """The one retriever that --retriever names. Raises BadInput for a pipeline of several."""
    from interlingua.retrieval.pipeline.grammar import Lexical, Model, parse_pipeline

    stage = parse_pipeline(text)
    if not isinstance(stage, Lexical | Model) or stage.queries is not None:
        raise BadInput(f"--retriever {text}: one retriever is needed, bm25, bm25(analyzer=char4) or a model.")
    return stage


def choice_of(arguments: argparse.Namespace) -> Choice:
    """The options that choose negatives among the passages found. A score of BM25 says little about whether a passage
    answers, so its default has no limit."""
    from interlingua.retrieval.hard_negatives import Choice
    from interlingua.retrieval.pipeline.grammar import Lexical

    options: dict[str, Any] = {
        "per_question": arguments.negatives_per_question,
        "depth": arguments.depth,
        "skip_top": arguments.skip_top,
        "sampling": arguments.sampling,
        "seed": arguments.seed,
    }
    margin: float | None = None if isinstance(stage_of(arguments.retriever), Lexical) else Choice().margin
    if arguments.positive_margin is not None:
        try:
            margin = None if arguments.positive_margin == "none" else float(arguments.positive_margin)
        except ValueError as error:
            raise BadInput(
                f"--positive-margin {arguments.positive_margin}: a number such as 0.95 is needed, or none."
            ) from error
    return Choice(**{key: value for key, value in options.items() if value is not None}, margin=margin)


NAMES = ("mine",)


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "mine", help="find the sentences of two files that translate each other, or hard negatives"
    )
    parser.add_argument(
        "a",
        metavar="A",
        help="a file of one sentence a line, of id<tab>sentence, or jsonl (texts or documents); .gz too",
    )
    parser.add_argument("b", metavar="B", nargs="?", help="the other language; the numbers of lines may differ")
    parser.add_argument("--model", help="a model folder or name")
    precision_option(parser)
    parser.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="where the pairs go: score, sentence of A, sentence of B, the best first; or the questions",
    )
    parser.add_argument(
        "--lang-a", metavar="LANG", help="language of A: whose calibration to apply, and which rows of a jsonl to take"
    )
    parser.add_argument("--lang-b", metavar="LANG", help="the same of B")
    parser.add_argument("-k", "--k", type=int, help="neighbours of a sentence that make its margin (4)")
    parser.add_argument(
        "--margin",
        choices=["ratio", "distance", "absolute"],
        help="a cosine against those of the neighbours: divided (ratio), less, or as it is",
    )
    parser.add_argument(
        "--retrieval",
        choices=["max", "intersection", "forward"],
        help="max: one to one, the best first; intersection: what both sides choose; forward: what A chooses",
    )
    bound = parser.add_mutually_exclusive_group()
    bound.add_argument("--threshold", type=number, metavar="X", help="keep the pairs with this score or a better one")
    bound.add_argument(
        "--gold",
        metavar="FILE",
        help="learn the threshold from all true pairs of A and B, id<tab>id; "
        "the id of a line without one is its number",
    )
    parser.add_argument(
        "--role",
        choices=["query", "passage"],
        help="how sentences are read: with which prompt, and by which of two encoders (passage)",
    )
    parser.add_argument("--half", action="store_true", default=None, help="keep vectors in float16: half the disk")
    add_options(parser)
    parser.moved = {"--with": "--retriever"}
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Mine and write."""
    if os.path.isdir(arguments.out):
        raise BadInput(f"--out {arguments.out}: is a folder. Give the name of a file.")
    if arguments.negatives:
        if arguments.b or arguments.model:
            raise BadInput("--negatives takes one file of questions and --retriever instead of --model.")
        if options := given(arguments, OF_BITEXT):
            raise BadInput(f"{options[0]} does not go with --negatives.")
        return run_negatives(arguments)
    if not arguments.b or not arguments.model:
        raise BadInput("mine needs two files and --model; or a file of questions and --negatives.")
    if options := given(arguments, ONLY):
        raise BadInput(f"{options[0]} goes with --negatives only.")
    fill_in(arguments, OF_BITEXT)
    bitext(arguments)


def bitext(arguments: argparse.Namespace) -> None:
    """The pairs of two files."""
    from interlingua.alignment.mining import CorpusSide, mine_sentences
    from interlingua.data.readers.bitext import read_gold
    from interlingua.evaluation.bitext import bucc_f1, pairs_of_ids
    from interlingua.files import atomic_write
    from interlingua.models.dual import DualEncoder
    from interlingua.models.protocols import encode_as

    gold = read_gold(arguments.gold) if arguments.gold else None
    if not (arguments.lang_a or arguments.lang_b) and os.path.realpath(arguments.a) == os.path.realpath(arguments.b):
        raise BadInput(
            f"{arguments.a}: is both files, so every sentence is its own translation. Say which languages with "
            "--lang-a and --lang-b."
        )
    a, b = (
        CorpusSide.read(path, lang) for path, lang in ((arguments.a, arguments.lang_a), (arguments.b, arguments.lang_b))
    )
    candidates = mine_sentences(
        a,
        b,
        encode_as(DualEncoder.load(arguments.model, precision=arguments.precision), arguments.role),
        half=arguments.half,
        langs=(arguments.lang_a, arguments.lang_b),
        k=arguments.k,
        threshold=arguments.threshold,
        kind=arguments.margin,
        retrieval=arguments.retrieval,
    )
    logger.info(a.said())
    logger.info(b.said())
    threshold = -float("inf")
    if gold is not None:
        learnt = bucc_f1(pairs_of_ids(candidates, a, b), gold)
        if not learnt.correct:
            raise BadInput(
                f"{arguments.gold}: none of its {learnt.gold:,} pairs was mined, so there is no "
                "threshold to learn. Its ids are those in A and B, or else numbers of lines from 1."
            )
        threshold = learnt.threshold
        logger.info(
            f"threshold {threshold:.6g}, learnt: F1 {learnt.f1:.1f}, precision {learnt.precision:.1f}, recall "
            f"{learnt.recall:.1f} ({learnt.correct:,} of {learnt.gold:,} gold pairs)"
        )
    pairs = [(i, j, score) for i, j, score in candidates if score >= threshold]
    with atomic_write(arguments.out) as stream:
        stream.writelines(f"{score:.6f}\t{one_line(a.texts[i])}\t{one_line(b.texts[j])}\n" for i, j, score in pairs)
    logger.info(f"{arguments.out}: {len(pairs):,} pairs{spread([score for *_, score in pairs])}")
    if arguments.threshold is None and gold is None and pairs:
        logger.warning("No threshold: the last of them are hardly translations. Read some, and cut with --threshold.")
    if arguments.margin != "ratio" and pairs:
        kind = arguments.margin
        logger.info(
            f"Training takes pairs of a ratio of 1.04 or more; of --margin {kind}, say `options: {{threshold: X}}`."
        )


def one_line(text: str) -> str:
    """The text as a cell: white space inside, such as a tab, becomes a space."""
    return " ".join(text.split())


def spread(scores: list[float]) -> str:
    """Quartiles of scores, in words."""
    import numpy as np

    if not scores:
        return ""
    low, *quartiles, high = np.quantile(scores, (0, 0.25, 0.5, 0.75, 1)).tolist()
    return f"; scores {low:.3f} to {high:.3f}, quartiles {', '.join(f'{score:.3f}' for score in quartiles)}"
