"""`interlingua shrink` and `interlingua trim`: a smaller model of a transformer."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlingua.cli.options import given
from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

if TYPE_CHECKING:
    from interlingua.data.records import Collection

logger = logging.getLogger(__name__)

NAMES = ("shrink", "trim")

SHRINK = """\
Make an encoder smaller and faster: keep some of its layers and subwords, and have the whole encoder teach the rest on
raw text in the languages that it will read. The same command goes on after an interruption. With --on, a table of both
models at the end.

  interlingua shrink multilingual-e5-small --texts corpus.jsonl.gz --layers 6 --vocabulary 64000 --out runs/small
  interlingua shrink MODEL --texts fr.txt --texts de.txt.gz --layers 4 --on COLLECTION --precision int8 --out runs/small
"""

TRIM = """\
Keep the subwords that texts or languages need. The vectors of such texts stay the same; the model gets smaller. With
--most, only the most frequent subwords stay, and other texts fall into more of them.

  interlingua trim multilingual-e5-small --texts corpus.txt.gz --texts questions.txt --out small
  interlingua trim multilingual-e5-small --langs de --langs el --out small
"""

MEASURED, DEPTH = 200, 100
"""Passages of the collections that the speed of a model is measured on, and those found for a question."""


def add(verbs: Any) -> None:
    """Declare the verbs."""
    for name, help_, description, run in (
        ("shrink", "make a model smaller and faster, taught by itself on raw text", SHRINK, shrink),
        ("trim", "make a model smaller: keep the subwords that texts or languages need", TRIM, trim),
    ):
        parser = verbs.add_parser(name, help=help_, description=description)
        parser.add_argument(
            "model",
            help="a model folder or name of one encoder; subwords are chosen from a Unigram tokenizer, as XLM-R's",
        )
        (_shrink_options if name == "shrink" else _trim_options)(parser)
        parser.add_argument(
            "--langs",
            action=Repeated,
            default=[],
            metavar="CODE",
            help="keep all subwords in the scripts of these languages",
        )
        parser.set_defaults(run=run)


def _shrink_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="DIR", help="the run folder; the model is DIR/model")
    parser.add_argument(
        "--texts",
        action=Repeated,
        required=True,
        metavar="FILE",
        help="raw text: fr=texts.txt, or files that tell their languages (fr.txt, jsonl with lang, fr-en.tsv.gz)",
    )
    parser.add_argument(
        "--layers", type=layers, metavar="N", help="how many to keep, evenly spread, or which: 6, or 0,2,5 from 0 (all)"
    )
    parser.add_argument(
        "--vocabulary",
        type=vocabulary,
        default="texts",
        metavar="N",
        help="subwords to keep: the N most frequent of the texts, 'texts' for all of theirs, or 'all' (texts)",
    )
    parser.add_argument(
        "--limit", type=int, default=20_000, metavar="N", help="texts of each language, a seeded sample (20000)"
    )
    parser.add_argument("--steps", type=int, default=4_000, metavar="N", help="training steps (4000)")
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="texts a step (32)")
    parser.add_argument("--lr", type=float, default=5e-4, metavar="X", help="learning rate (0.0005)")
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers (1)")
    parser.add_argument(
        "--on", action=Repeated, default=[], metavar="COLLECTION", help="compare both models on test collections"
    )
    parser.add_argument("--measure", help="for --on (RR@100)")
    parser.add_argument("--device", help="cpu, cuda, cuda:1 … (default: a GPU if there is one)")
    parser.add_argument(
        "--precision",
        choices=["float32", "bfloat16", "int8", "auto"],
        help="number format of both models in the comparison, on a processor (float32)",
    )


def _trim_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder of the smaller model")
    parser.add_argument(
        "--texts",
        action=Repeated,
        default=[],
        metavar="FILE",
        help="text files, one text a line, .gz too: keep the subwords that occur in them",
    )
    parser.add_argument(
        "--most", type=int, metavar="N", help="of the subwords of the texts, keep the N most frequent (all)"
    )


def layers(text: str) -> int | list[int]:
    """The value of --layers."""
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}': write a number, such as 6, or layers from 0: 0,2,5") from None
    return numbers if "," in text else numbers[0]


def vocabulary(text: str) -> int | str:
    """The value of --vocabulary."""
    if text in ("texts", "all"):
        return text
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"'{text}': write a number of subwords, 'texts' or 'all'")
    return int(text)


def shrink(arguments: argparse.Namespace) -> None:
    """Shrink, and compare."""
    from interlingua.data.collections import load_collection
    from interlingua.evaluation.protocol import check_collections
    from interlingua.experiments.shrink import ShrinkSpec
    from interlingua.experiments.shrink import shrink as shrink_model
    from interlingua.models.encode import default_device
    from interlingua.models.inference.precision import chosen

    options = {name: getattr(arguments, name) for name in ShrinkSpec.model_fields if name != "precision"}
    spec = ShrinkSpec.checked(options, "shrink")
    collections = [load_collection(path) for path in arguments.on]
    measure, precision = arguments.measure or "RR@100", arguments.precision or "float32"
    if collections:  # what is wrong with them is told before hours pass
        check_collections(collections, [measure], DEPTH)
        chosen(precision, default_device(None))
    elif unused := given(arguments, ("measure", "precision")):
        raise BadInput(f"{unused[0]} is for the comparison of both models: give collections with --on.")
    shrink_model(arguments.model, arguments.out, spec, arguments.device)
    folder = Path(arguments.out, "model")
    if collections:
        print(compared([arguments.model, str(folder)], collections, measure, precision))
    logger.info(f"{folder}: saved")


def compared(models: Sequence[str], collections: Sequence[Collection], measure: str, precision: str) -> str:
    """A table of the models in one number format: the measure on each collection, the size of their files, and
    passages a second of processor time (on a GPU that says little)."""
    from statistics import fmean

    from tabulate import tabulate

    from interlingua.evaluation.protocol import evaluate_on
    from interlingua.index.metadata import load_to_encode
    from interlingua.models.folder import model_folder

    per_collection = -(-MEASURED // len(collections))
    passages = [passage.text for collection in collections for passage in collection.passages[:per_collection]]
    rows = []
    for name in models:
        folder = model_folder(name)
        model: Any = load_to_encode(folder, precision)
        values = [result.scores[measure] for result in evaluate_on(model, collections, [measure], DEPTH)]
        start = time.process_time()  # what is compiled at the first call is not measured
        model.encode_document(passages)
        speed = len(passages) / (time.process_time() - start)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        rows.append(
            [name, *(f"{value:.3f}" for value in (*values, fmean(values))), f"{size / 1e6:,.0f}", f"{speed:,.0f}"]
        )
    headers = [f"model, {measure}", *(collection.name for collection in collections), "mean", "MB", "passages/s"]
    table: str = tabulate(rows, headers, tablefmt="github", disable_numparse=True)
    return table


def trim(arguments: argparse.Namespace) -> None:
    """Trim and save."""
    from interlingua.files import read_lines
    from interlingua.models.card import card_of, write_card
    from interlingua.models.encoder import Encoder
    from interlingua.models.folder import model_folder
    from interlingua.models.trim import trim_vocabulary
    from interlingua.progress import track

    if not arguments.texts and not arguments.langs:
        raise BadInput("say what to keep: --texts FILE …, --langs CODE …, or both.")
    source = model_folder(arguments.model)
    encoder, card = Encoder.load(source), card_of(source)  # saving may replace its folder

    def lines() -> Iterator[str]:
        for file in arguments.texts:
            for _, line in read_lines(file):
                yield line

    size, original_size = trim_vocabulary(encoder, track(lines(), "read texts"), arguments.langs, arguments.most)
    encoder.save(arguments.out)
    description = f"Trimmed by `interlingua trim` to {size:,} of its {original_size:,} subwords."
    write_card(Path(arguments.out), card, description)
    logger.info(f"{arguments.out}: {size:,} of {original_size:,} subwords")
