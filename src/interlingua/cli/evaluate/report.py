"""`interlingua report`: the language mirror, one page for a person."""

from __future__ import annotations

import argparse
from typing import Any

from interlingua.cli.options import precision_option
from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

NAMES = ("report",)


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("report", help="the language mirror: does a model rank by meaning or by language?")
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="model folders or names, shown side by side: before and after a training or calibration",
    )
    parser.add_argument(
        "--on",
        action=Repeated,
        required=True,
        metavar="COLLECTION",
        help="the same questions and passages in several languages, as XQuAD has them: one collection "
        "a language, whose ids correspond; or encyclopedia:LANG",
    )
    parser.add_argument("--out", default="mirror.html", metavar="FILE.html", help="the page (mirror.html)")
    parser.add_argument("--title", default="Language mirror", help="its headline")
    precision_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Measure, print the numbers, write the page."""
    from tabulate import tabulate

    from interlingua.cli.evaluate.retrieval import one_a_language
    from interlingua.data.collections import load_collection
    from interlingua.evaluation.languages import language_bias
    from interlingua.evaluation.plots import bias_rows, mirror_page
    from interlingua.files import atomic_write
    from interlingua.models.dual import DualEncoder

    if not arguments.out.endswith((".html", ".htm")):
        raise BadInput(f"--out {arguments.out}: is a page, so its name must end in .html.")
    collections = one_a_language([load_collection(name) for name in arguments.on], "A mirror")
    # all models before the first is measured: one that is not there is said before minutes pass
    models = {name: DualEncoder.load(name, precision=arguments.precision) for name in arguments.models}
    biases = {name: language_bias(model, collections) for name, model in models.items()}
    with atomic_write(arguments.out) as file:
        file.write(mirror_page(biases, arguments.title))
    print(
        tabulate(
            [[name, fair, *values] for name, fair, values in bias_rows(biases)],
            ["", "without bias", *biases],
            floatfmt=".3f",
            disable_numparse=[1],
        )
    )
    print(f"\n{arguments.out}: the language mirror, with every language. Open it in a browser.")
