"""`interlingua search`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from typing import Any

from interlingua.cli.options import (
    filter_of,
    filter_option,
    index_argument,
    model_option,
    number,
    opened,
    precision_option,
)
from interlingua.errors import BadInput

logger = logging.getLogger(__name__)

NAMES = ("search",)
BOLD, PLAIN = "\033[1m", "\033[0m"
SHAPING = "\u00ad\u200c\u200d\u200e\u200f"  # what text in many scripts needs: soft hyphen, joiners, direction marks


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("search", help="ask an index in any language")
    index_argument(parser)
    parser.add_argument("question", nargs="+")
    parser.add_argument("-k", type=int, default=5, help="how many results (5)")
    parser.add_argument(
        "--mode",
        choices=["hybrid", "dense", "lexical"],
        default="hybrid",
        help="by embeddings (dense), by words (lexical), or both (hybrid)",
    )
    parser.add_argument(
        "--min-score", type=number, metavar="X", help="only results with this score or more, as this mode gives them"
    )
    parser.add_argument("--lang", default="", help="language of the question (else detected)")
    parser.add_argument(
        "--lang-of-results",
        default="any",
        metavar="any|same|xx,yy",
        help="only passages in the language of the question, or in these",
    )
    parser.add_argument(
        "--group-by",
        metavar="KEY",
        help="only the best result of each value of this key; document: of each document or row, source: of each file",
    )
    parser.add_argument(
        "--duplicates", action="store_true", help="show passages that say the same each by itself, not once"
    )
    filter_option(parser, "only passages with these metadata, such as source=faq.csv")
    parser.add_argument(
        "--rerank",
        metavar="MODEL",
        help="a model, best of late interaction, that puts the first 100 into its own order",
    )
    model_option(parser)
    precision_option(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a result")
    parser.moved = {"--where": "--filter"}
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Search and print."""
    from interlingua.index.documents import called
    from interlingua.index.highlights import Highlights, highlight_encoder
    from interlingua.index.metadata import Question, load_to_encode
    from interlingua.index.search import finite
    from interlingua.text.languages import normalise_code

    question = Question(" ".join(arguments.question), normalise_code(arguments.lang) if arguments.lang else None)
    langs = wanted(arguments.lang_of_results, question.lang)
    where = filter_of(arguments)
    index = opened(arguments)
    reranker = load_to_encode(arguments.rerank) if arguments.rerank else None
    hits = index.search(
        question,
        arguments.k,
        langs,
        mode=arguments.mode,
        where=where,
        reranker=reranker,
        min_score=arguments.min_score,
        group_by=arguments.group_by,
        distinct=not arguments.duplicates,
    )
    if question.is_cut:
        logger.warning(
            "the question is long: its first words were compared with those of the passages, the rest only by the "
            "model."
        )
    bold = hits and not arguments.json and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    spans = Highlights(question, encoder=highlight_encoder(reranker, index, arguments.mode)) if bold else None
    for rank, hit in enumerate(hits, 1):
        passage = hit.passage
        if arguments.json:
            parts = {name: finite(score) for name, score in hit.parts.items()}
            result = {"rank": rank, "score": finite(hit.score), "parts": parts, **passage.as_json()}
            group = {"group": hit.group, "more": hit.more} if arguments.group_by else {}
            same = {"same": [called(other) for other in hit.same], "repeated": hit.repeated} if hit.same else {}
            print(json.dumps(result | group | same, ensure_ascii=False))
            continue
        source, text = passage.source, printable(passage.text)
        place = f"  ({printable(source)})" if source else ""
        more_hits = f"  +{hit.more:,} more" if hit.more else ""
        print(
            f"{rank:2}. {hit.score:.3f} [{printable(passage.lang) or '??'}] {printable(passage.title or passage.id)}"
            f"{place}{more_hits}\n    {in_bold(text, spans(passage) if spans else [])}"
        )
        if hit.same:
            rest = f" and {hit.repeated - len(hit.same):,} more" if hit.repeated > len(hit.same) else ""
            print(f"    the same: {', '.join(printable(called(other)) for other in hit.same)}{rest}")
    if not hits and not arguments.json:
        print("nothing found.")


def wanted(asked: str, lang: str) -> list[str] | None:
    """The languages of --lang-of-results, None for any."""
    if asked == "any":
        return None
    if asked == "same":
        if not lang:
            raise BadInput("--lang-of-results same: the language of the question is not sure. Say it with --lang.")
        return [lang]
    langs = [code.strip() for code in asked.split(",")]
    if not all(langs):
        raise BadInput(
            f"--lang-of-results '{asked}': a code is missing. Give codes with commas between them, any or same."
        )
    return langs


def printable(text: str) -> str:
    """`text` on one line, without control characters, which would be commands to the terminal; as long as before."""
    return "".join(char if char.isprintable() or char in SHAPING else " " for char in text)


def in_bold(text: str, spans: list[tuple[int, int]]) -> str:
    """`text` with these spans in bold."""
    for start, end in reversed(spans):
        text = f"{text[:start]}{BOLD}{text[start:end]}{PLAIN}{text[end:]}"
    return text
