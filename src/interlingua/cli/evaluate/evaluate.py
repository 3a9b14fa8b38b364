"""`interlingua evaluate`: a table per language."""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlingua.cli.evaluate.retrieval import (
    check_ids,
    check_run_files,
    collection_options,
    index_systems,
    model_systems,
    parse_pipelines,
    pipeline_options,
    pipeline_systems,
    print_matrices,
    print_systems,
    print_xor,
    read_xor,
    slug,
    translations,
    xor_options,
)
from interlingua.cli.evaluate.sentences import print_bucc, print_translations, read_translations, sentence_options
from interlingua.cli.options import given, precision_option
from interlingua.errors import BadInput

NAMES = ("evaluate",)

DESCRIPTION = """\
Measure models, a row each, on test collections, a column per language; or on translations.

  interlingua evaluate runs/a/model runs/b/model --on encyclopedia:fi encyclopedia:sw
  interlingua evaluate runs/a/model --pipeline "bm25 % 100 >> runs/a/model" --on COLLECTION
  interlingua evaluate --index idx --on COLLECTION
  interlingua evaluate runs/a/model --tatoeba ara-eng.tsv.gz
"""
if TYPE_CHECKING:
    from interlingua.evaluation.protocol import Result
    from interlingua.models.late_interaction import Model
    from interlingua.models.protocols import AnyEncoder

SUBJECTS = {
    "on": "collections. Say which with --on COLLECTION …",
    "tatoeba": "translations. Say which with --tatoeba FILE …",
    "bucc": "BUCC. Give its folder with --bucc FOLDER",
    "xor": "XOR-Retrieve. Give its questions with --xor QUESTIONS.jsonl",
    "pipeline": "the bm25 stages of --pipeline. Give one, such as --pipeline bm25",
}
"""The subjects that can be measured, and how an error names each."""
GOES_WITH = {
    "matrix": ("on",),
    "index": ("on",),
    "measures": ("on",),
    "runs": ("on", "xor"),
    "passages": ("on", "xor"),
    "pairs": ("tatoeba",),
    "tatoeba-protocol": ("tatoeba",),
    "picture": ("tatoeba",),
    "role": ("tatoeba", "bucc"),
    "predictions": ("xor",),
    "bucc-protocol": ("bucc",),
    "pipeline": ("on",),
    "translated": ("pipeline",),
    "translate": ("pipeline",),
    "lang": ("on",),
    "split": ("on",),
    "vectors": ("on",),
}
"""Option → the subjects of which one must be there, too."""
APART: dict[tuple[str, ...], str] = {
    ("on", "xor", "passages"): "--passages would be for both --on and --xor. Give two commands.",
    ("translated", "translate"): "--translated and --translate say the same in two ways. Give one of them.",
    **{
        (option, "vectors"): f"--vectors is for tables of MODELs; --{option} searches in memory. Leave --vectors out."
        for option in ("matrix", "pipeline", "index")
    },
    **{
        ("matrix", option): f"--matrix has no use for --{option}: it has one measure, written after it "
        "(--matrix nDCG@10), a matrix for each MODEL, and no run files. Give two commands."
        for option in ("measures", "runs", "pipeline", "index")
    },
    ("matrix", "passages"): "--matrix searches the passages of each collection of --on, not those of --passages. Give "
    "two commands.",
    ("index", "passages"): "--index searches all passages of the index, not those of --passages. Give two commands.",
    **{
        ("pipeline", option): f"--{option} is for MODELs, and the models of a --pipeline are read as they are. Leave "
        "--pipeline out, or give two commands."
        for option in ("layer", "pooling")
    },
}
"""Options that cannot all be given, and why."""


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "evaluate", help="measure models on test collections, a column per language", description=DESCRIPTION
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="model folders or names; each is a row")
    parser.add_argument(
        "--layer",
        type=int,
        metavar="K",
        help="pool hidden state K (0 = embeddings) in place of the last, as CCP does on Tatoeba",
    )
    parser.add_argument("--pooling", choices=["cls", "mean"], help="how token states become a vector")
    precision_option(parser)
    parser.add_argument("--format", default="text", choices=["text", "markdown", "tsv", "json"])
    parser.add_argument("--no-intervals", action="store_true", help="leave the 95%% intervals out")
    collection_options(parser)
    pipeline_options(parser)
    sentence_options(parser)
    xor_options(parser)
    parser.without = ("--pipeline", "--predictions", "--index")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate every model on every collection, Tatoeba file, BUCC pair and XOR question. Raises BadInput, when all is
    printed, for files of results that lack some of the questions."""
    from interlingua.data.collections import cross, load_collection
    from interlingua.evaluation.protocol import incomplete_runs
    from interlingua.files import make_folder
    from interlingua.models.protocols import has_token_vectors

    check_options(arguments)
    pipelines = parse_pipelines(arguments)
    # all data before the models: what is not there or not read here is said before hours pass
    sentences = read_translations(arguments) if arguments.tatoeba else {}
    xor = read_xor(arguments) if arguments.xor else None
    split = arguments.split or "test"
    collections = [load_collection(name, lang=arguments.lang or None, split=split) for name in arguments.on]
    if arguments.passages and collections:
        pool = load_collection(arguments.passages, split=split)
        collections = [cross(collection, pool) for collection in collections]
    if arguments.runs:
        make_folder(Path(arguments.runs))  # where it cannot be made, nobody waits for the results first
        check_run_files([collection.name for collection in collections], slug, "the collections ")
        check_ids(collections)
    translated = translations(arguments, collections)
    of_indexes = index_systems(arguments, collections)  # first: ids that do not fit are said before hours pass
    models: dict[str, AnyEncoder] = dict(load_models(arguments))
    single = {name: model for name, model in models.items() if not has_token_vectors(model)}
    lacking: list[str] = []
    systems: dict[str, list[Result]] = {}
    if arguments.matrix:
        print_matrices(arguments, single, collections)
    elif pipelines or len(single) < len(models):
        systems = pipeline_systems(arguments, models, pipelines, collections, translated)
        lacking += incomplete_runs(pipelines.values(), collections)
    elif collections:
        systems = model_systems(arguments, single, collections)
        if single and not systems:  # of several processes the first reports, and does what is not divided
            return
    if systems := systems | of_indexes:
        print_systems(arguments, systems, collections)
    if sentences:
        print_translations(arguments, single, sentences)
    if arguments.bucc:
        print_bucc(arguments, single)
    if xor:
        lacking += print_xor(arguments, single, *xor)
    if lacking:
        raise BadInput(f"the tables are printed, and are not complete: {'; '.join(lacking)}")


def check_options(arguments: argparse.Namespace) -> None:
    """Raise BadInput for options that ask for nothing, or for what would not be done."""
    names = {*SUBJECTS, *GOES_WITH, *chain.from_iterable(APART)}
    options = {option for option in names if getattr(arguments, option.replace("-", "_")) not in (None, [], "")}
    if not options & {"on", "tatoeba", "bucc", "xor"}:
        raise BadInput(
            "say what to measure on: --on COLLECTION …, --tatoeba FILE …, --bucc FOLDER, or --xor QUESTIONS.jsonl"
        )
    of_models = (
        options & {"tatoeba", "bucc", "matrix"}
        or ("on" in options and not options & {"pipeline", "index"})
        or ("xor" in options and "predictions" not in options)
    )
    if not arguments.models and (of_models or not options & {"predictions", "pipeline", "index"}):
        raise BadInput("say which MODEL to measure. See `interlingua evaluate --help`.")
    for option, subjects in GOES_WITH.items():
        if option in options and not options & {*subjects}:
            raise BadInput(f"--{option} is for {SUBJECTS[subjects[0]]}")
    for conflict, message in APART.items():
        if options.issuperset(conflict):
            raise BadInput(message)
    if arguments.xor and arguments.models and not arguments.passages:
        raise BadInput("--xor needs the English passages to search. Give them with --passages.")
    if not arguments.models and (unused := given(arguments, ("layer", "pooling"))):
        raise BadInput(f"{unused[0]} is for MODELs, and none is named. Leave it out.")


def load_models(arguments: argparse.Namespace) -> dict[str, Model]:
    """Name → model. With --layer or --pooling the name says so, and both encoders of the model are read that way.

    Raises BadInput where a late-interaction model is asked for what takes one vector a text.
    """
    from interlingua.models.dual import DualEncoder
    from interlingua.models.encoder import Encoder
    from interlingua.models.late_interaction import load_any
    from interlingua.models.protocols import has_token_vectors

    device = None
    if arguments.vectors:
        from interlingua.training.processes import Processes

        device = str(Processes.join().device)
    models = {name: load_any(name, device=device, precision=arguments.precision) for name in arguments.models}
    for name, model in models.items():
        for option in ("matrix", "tatoeba", "bucc", "xor", "layer", "pooling", "vectors"):
            if has_token_vectors(model) and getattr(arguments, option) not in (None, []):
                raise BadInput(
                    f"{name}: is a late-interaction model, which gives a vector for each token; "
                    f"--{option} takes models of one vector a text. Measure it with --on."
                )
    if arguments.layer is None and arguments.pooling is None:
        return models
    layer = None if arguments.layer is None else f"layer {arguments.layer}"
    label = ", ".join(filter(None, (layer, arguments.pooling)))

    def changed(encoder: Encoder) -> Encoder:
        return Encoder.of(encoder.parts(), layer=arguments.layer, pooling=arguments.pooling)

    return {
        f"{name} ({label})": DualEncoder(changed(model.query), None if model.tied else changed(model.passage))
        for name, model in models.items()
        if isinstance(model, DualEncoder)
    }
