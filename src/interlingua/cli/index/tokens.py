"""`interlingua tokens`: keep the token vectors of rerankers in an index."""

from __future__ import annotations

import argparse
import logging
from shlex import quote
from typing import Any

from interlingua.cli.options import index_argument, opened

logger = logging.getLogger(__name__)

NAMES = ("tokens",)

DESCRIPTION = """\
Keep the token vectors of late-interaction models, so that `--rerank MODEL` need not encode passages; without a model
the token states of the index's own transformer, which hybrid search then compares too. What is kept already stays: give
the command again after many changes.

  interlingua tokens idx runs/late/model
  interlingua tokens idx
"""


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("tokens", help="keep the token vectors of rerankers in an index", description=DESCRIPTION)
    index_argument(parser)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="late-interaction models, folders or names")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Keep token vectors for rerankers, or for hybrid search."""
    from interlingua.models.late_interaction import load_any

    index = opened(arguments)
    if not arguments.models:
        logger.info(f"{arguments.index}: {index.keep_tokens():,} passages encoded for hybrid search by token states.")
    for model in arguments.models:
        logger.info(
            f"{arguments.index}: {index.keep_tokens(load_any(model)):,} passages encoded by {model}. "
            f'Try: interlingua search {quote(arguments.index)} --rerank {quote(model)} "your question"'
        )
