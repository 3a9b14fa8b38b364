"""`interlingua calibrate`: bring the languages of a trained encoder together, with raw text alone."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlingua.cli.options import bad_rows_option, fill_in, given, precision_option
from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

if TYPE_CHECKING:
    from interlingua.alignment.calibration import Calibration
    from interlingua.models.encoder import Encoder
    from interlingua.models.protocols import Vectors

logger = logging.getLogger(__name__)

NAMES = ("calibrate",)
OF_FITTING = {
    "pivot": "en",
    "shift": True,
    "scale": None,
    "remove": 0,
    "rotate": "none",
    "epochs": 5,
    "epoch_size": 1_000_000,
    "limit": 10_000,
    "role": "passage",
    "seed": 0,
    "precision": None,
    "on_bad_row": None,
}
"""The options that go with --on, and their defaults."""


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("calibrate", help="shift, scale and rotate each language's vectors onto a pivot's")
    parser.add_argument("model", help="a model folder or name, of one encoder")
    parser.add_argument(
        "--on",
        action=Repeated,
        default=[],
        metavar="[LANG=]FILE",
        help="raw sentences, no test data: fr=texts.txt.gz, or files that tell their languages "
        "(fr.txt, jsonl with lang, fr-en.tsv.gz: both sides)",
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder of the calibrated model")
    parser.add_argument("--pivot", metavar="LANG", help="the language all others are mapped onto (en)")
    parser.add_argument("--shift", action=argparse.BooleanOptionalAction, help="subtract each language's mean (yes)")
    parser.add_argument(
        "--scale",
        choices=["std", "variance", "none"],
        help="divide by each language's spread in each dimension (std; none with --remove)",
    )
    parser.add_argument(
        "--remove",
        type=int,
        metavar="N",
        help="take out the first N components of each language, with --no-shift language information removal (LIR); "
        "goes without --scale and --rotate (0)",
    )
    rotation_options(parser)
    parser.add_argument("--limit", type=int, metavar="N", help="texts per language, a seeded sample (10000)")
    parser.add_argument(
        "--role", choices=["query", "passage"], help="which prompt and length limit the texts take (passage)"
    )
    parser.add_argument(
        "--fold",
        metavar="LANG",
        help="write a plain model for texts in this language alone, the calibration built in as a "
        "layer; without --on, of a model that is calibrated already",
    )
    precision_option(parser)
    bad_rows_option(parser)
    parser.add_argument("--seed", type=int, help="of the sample and the rotation (0)")
    parser.moved = {"--as": "--role"}
    parser.set_defaults(run=run)


def rotation_options(parser: argparse.ArgumentParser) -> None:
    """--rotate, and what goes with it."""
    group = parser.add_argument_group("rotation")
    group.add_argument(
        "--rotate",
        choices=["refine", "adversarial", "supervised", "none"],
        help="rotate each language onto the pivot; refine and adversarial do it without translations (none)",
    )
    group.add_argument(
        "--pairs",
        action=Repeated,
        default=[],
        metavar="FILE",
        help="translations into the pivot, for --rotate supervised",
    )
    group.add_argument("--epochs", type=int, help="of --rotate adversarial (5)")
    group.add_argument("--epoch-size", type=int, metavar="N", help="vectors an epoch of --rotate adversarial (1000000)")


def run(arguments: argparse.Namespace) -> None:
    """Fit, print the steps, write the model."""
    from interlingua.models.card import card_of, write_card
    from interlingua.models.dual import DualEncoder
    from interlingua.models.folder import model_folder

    check_options(arguments)
    model = DualEncoder.load(arguments.model)
    if not model.tied:
        raise BadInput(
            f"{arguments.model}: holds two encoders, one for queries and one for passages. "
            "A calibration is for the sentences of one encoder."
        )
    encoder = model.query
    if arguments.on:
        how = arguments.precision  # of the vectors; what is written are the weights as they are
        calibration = fit(arguments, DualEncoder.load(arguments.model, precision=how).query if how else encoder)
        encoder.language_maps = calibration.maps
    if arguments.fold:
        encoder = encoder.folded(arguments.fold)
    card = card_of(model_folder(arguments.model))  # saving may replace its folder
    encoder.save(arguments.out)
    changed = f"Calibrated for texts in '{arguments.fold}'" if arguments.fold else "Calibrated"
    write_card(Path(arguments.out), card, f"{changed} by `interlingua calibrate`.")
    if arguments.on:
        print(calibration.table())
    if arguments.fold:
        logger.info(f"{arguments.out}: a model for texts in '{arguments.fold}'")
    else:
        logger.info(f"{arguments.out}: saved. encode(texts, lang=…) applies the calibration")


def check_options(arguments: argparse.Namespace) -> None:
    """Raise BadInput for options that ask for nothing or contradict each other, before the work begins."""
    from interlingua.files import check_replaceable

    if not arguments.on and not arguments.fold:
        raise BadInput("say what to fit on: --on fr=texts.txt.gz en=…, or files that tell their languages.")
    if not arguments.on and (options := given(arguments, OF_FITTING)):
        raise BadInput(f"{', '.join(options)}: a calibration is fitted on texts. Say on which with --on.")
    if arguments.rotate != "adversarial" and (options := given(arguments, ("epochs", "epoch_size"))):
        raise BadInput(f"{options[0]} goes with --rotate adversarial only.")
    fill_in(arguments, OF_FITTING)
    if bool(arguments.pairs) != (arguments.rotate == "supervised"):
        raise BadInput("--rotate supervised and --pairs FILE … belong together: give both or neither.")
    check_replaceable(Path(arguments.out), "modules.json")


def fit(arguments: argparse.Namespace, encoder: Encoder) -> Calibration:
    """The calibration of the encoder on the files of --on."""
    from interlingua.alignment.calibration import MIN_TEXTS, Calibration, CalibrationFitter, check_pivot
    from interlingua.alignment.rotation import Adversarial
    from interlingua.alignment.texts import sample_texts, translations
    from interlingua.text.languages import normalise_code

    pivot, on_bad_row = normalise_code(arguments.pivot), arguments.on_bad_row or "error"
    texts = sample_texts(arguments.on, arguments.limit, arguments.seed, on_bad_row)
    for lang in [pivot, *([normalise_code(arguments.fold)] if arguments.fold else [])]:
        if lang not in texts:
            raise BadInput(f"--on has no text in '{lang}' (it has: {', '.join(texts) or 'none'}).")
    check_pivot(pivot, len(texts[pivot]))  # before hours of encoding
    if len(texts) == 1:
        logger.warning(f"--on has text in '{pivot}' alone: no other language is brought to it.")
    pairs = translations(arguments.pairs, pivot, arguments.limit, on_bad_row)
    for lang in sorted(pairs.keys() - texts.keys()):
        logger.warning(f"the {len(pairs.pop(lang)[0]):,} pairs of '{lang}' left out: --on has no text in it")
    scale = arguments.scale or ("none" if arguments.remove else "std")
    adversarial = Adversarial(n_epochs=arguments.epochs, epoch_size=arguments.epoch_size)
    # what contradicts is said before hours of encoding, too
    CalibrationFitter(arguments.shift, scale, arguments.rotate, arguments.seed, adversarial, remove=arguments.remove)
    for lang, sentences in texts.items() if arguments.rotate == "supervised" else ():
        if lang != pivot and lang not in pairs and len(sentences) >= MIN_TEXTS:
            raise BadInput(f"--pairs has no translations of '{lang}' into '{pivot}', and --on has texts in it.")
    encoder.language_maps = None  # an earlier calibration is replaced, not built upon

    def encode(sentences: list[str]) -> Vectors:
        return encoder.encode(sentences, role=arguments.role, show_progress_bar=not arguments.quiet)

    return Calibration.fit(
        {lang: encode(sentences) for lang, sentences in texts.items()},
        pivot,
        shift=arguments.shift,
        scale=scale,
        rotate=arguments.rotate,
        seed=arguments.seed,
        pairs={lang: (encode(source), encode(target)) for lang, (source, target) in pairs.items()},
        adversarial=adversarial,
        remove=arguments.remove,
    )
