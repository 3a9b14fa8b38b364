"""`interlingua trim`: a model with the subwords that given texts or languages need."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

logger = logging.getLogger(__name__)

NAMES = ("trim",)

DESCRIPTION = """\
Keep the subwords that texts or languages need. The vectors of such texts stay the same; the model gets smaller.

  interlingua trim multilingual-e5-small --texts corpus.txt.gz --texts questions.txt --out small
  interlingua trim multilingual-e5-small --langs de --langs el --out small
"""


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "trim",
        help="make a model smaller: keep the subwords that texts or languages need",
        parents=[common],
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", help="a model folder or name; one encoder with a Unigram tokenizer, such as XLM-R's")
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder of the smaller model")
    parser.add_argument(
        "--texts",
        action=Repeated,
        default=[],
        metavar="FILE",
        help="text files, one text a line, .gz too: keep the subwords that occur in them",
    )
    parser.add_argument(
        "--langs",
        action=Repeated,
        default=[],
        metavar="CODE",
        help="keep all subwords in the scripts of these languages",
    )
    parser.set_defaults(run=trim)


def trim(arguments: argparse.Namespace) -> None:
    """Trim and save."""
    from interlingua.files import read_lines
    from interlingua.models.card import copy_card
    from interlingua.models.encoder import Encoder
    from interlingua.models.folder import model_folder
    from interlingua.models.trim import trim_vocabulary
    from interlingua.progress import track

    if not arguments.texts and not arguments.langs:
        raise BadInput("say what to keep: --texts FILE …, --langs CODE …, or both.")
    source = model_folder(arguments.model)
    encoder = Encoder.load(source)

    def lines() -> Iterator[str]:
        for file in arguments.texts:
            for _, line in read_lines(file):
                yield line

    kept, before = trim_vocabulary(encoder, track(lines(), "read texts"), arguments.langs)
    encoder.save(arguments.out)
    what = f"Trimmed by `interlingua trim` to {kept:,} of its {before:,} subwords."
    copy_card(source, Path(arguments.out), what)
    logger.info(f"{arguments.out}: {kept:,} of {before:,} subwords")
