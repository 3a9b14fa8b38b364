"""`interlingua evaluate`: a table per language."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput, NotFound


def print_systems(arguments: argparse.Namespace, systems: dict[str, Any], collections: list[Any]) -> None:
    """Systems × collections, a table for each measure; run files where asked for."""
    from interlingua.evaluation.measures import DEFAULT_MEASURES
    from interlingua.evaluation.protocol import results_table

    if arguments.runs:
        write_runs(Path(arguments.runs), systems, collections)
    for measure in arguments.measures or DEFAULT_MEASURES:
        table = results_table(systems, measure, intervals=not arguments.no_intervals)
        print(table.render(arguments.format, intervals=not arguments.no_intervals) + "\n")


def write_runs(folder: Path, systems: dict[str, Any], collections: list[Any]) -> None:
    """`<collection>.qrels` and `<system>.<collection>.run`, as trec_eval reads them."""
    from interlingua.files import atomic_write

    for collection in collections:
        with atomic_write(folder / f"{slug(collection.name)}.qrels") as stream:
            for query, judged in collection.qrels.items():
                stream.writelines(f"{query} 0 {passage} {grade}\n" for passage, grade in judged.items())
    for name, results in systems.items():
        for result in results:
            result.run.write_trec(folder / f"{run_file(name)}.{slug(result.collection)}.run", tag=run_file(name))


def run_file(name: str) -> str:
    """The stem of the run files of a system: what is left of its name in a file name, and no longer than one may be."""
    from hashlib import blake2b

    stem = slug(name).encode()
    if len(stem) <= 100:
        return stem.decode()
    return f"{stem[:90].decode(errors='ignore')}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


def parse_pipelines(arguments: argparse.Namespace) -> dict[str, Any]:
    """The pipelines of --pipeline by what was written. Raises BadInput for one given twice, for rows that
    --runs would write to one file, and for translations that no stage reads."""
    from interlingua.retrieval.pipeline.grammar import Lexical, leaves, parse_pipeline

    pipelines: dict[str, Any] = {}
    for text in arguments.pipeline:
        name = " ".join(text.split())
        pipelines[name] = parse_pipeline(name)
    if len({*pipelines, *arguments.models}) < len(arguments.pipeline) + len({*arguments.models}):
        raise BadInput("--pipeline: one of them is given twice, or is a MODEL as well.")
    if arguments.runs:
        files: dict[str, str] = {}
        for name in (*arguments.models, *pipelines):
            if (other := files.setdefault(run_file(name), name)) != name:
                raise BadInput(
                    f"--runs would write '{other}' and '{name}' to files of one name. Give two "
                    "commands, and two folders."
                )
    unread = not any(
        isinstance(leaf, Lexical) and leaf.queries is None
        for pipeline in pipelines.values()
        for leaf in leaves(pipeline)
    )
    for option in ("translated", "translate"):
        if getattr(arguments, option) and unread:
            raise BadInput(f"--{option}: no stage of the pipelines reads it. It is for bm25 without queries=….")
    return pipelines


def translations(arguments: argparse.Namespace, collections: list[Any]) -> dict[str, Any]:
    """Name of a collection → its questions as --translated or --translate has them."""
    import shlex

    from interlingua.retrieval.pipeline.run import (
        command,
        language_of,
        read_translations,
        translate_queries,
        translated_queries,
    )

    if arguments.translate:
        try:
            argv = shlex.split(arguments.translate)
        except ValueError as error:
            raise BadInput(f"--translate {arguments.translate}: {error}.") from error
        translate = command(argv)
        return {one.name: translate_queries(one.queries, translate, language_of(one.passages)) for one in collections}
    if not arguments.translated:
        return {}
    files = arguments.translated if len(arguments.translated) > 1 else arguments.translated * len(collections)
    if len(files) != len(collections):
        raise BadInput(
            f"--translated: {len(files)} files for {len(collections)} collections. Give one for "
            "each in the order of --on, or one for all."
        )
    return {
        one.name: translated_queries(one.queries, read_translations(file), language_of(one.passages), file)
        for one, file in zip(collections, files, strict=True)
    }


def print_pipelines(
    arguments: argparse.Namespace,
    models: dict[str, Any],
    pipelines: dict[str, Any],
    collections: list[Any],
    translated: dict[str, Any],
) -> None:
    """A row for each model and each pipeline, the models read in pipelines among them loaded once."""
    from interlingua.evaluation.measures import DEFAULT_MEASURES
    from interlingua.evaluation.protocol import evaluate_pipelines
    from interlingua.models.late_interaction import load_any
    from interlingua.retrieval.pipeline.grammar import Model

    rows = {name: Model(name) for name in models} | pipelines
    systems = evaluate_pipelines(
        rows,
        collections,
        arguments.measures or DEFAULT_MEASURES,
        arguments.depth,
        load=lambda name: models[name] if name in models else load_any(name),
        translated=translated,
    )
    print_systems(arguments, systems, collections)


def read_translations(arguments: argparse.Namespace) -> dict[str, Any]:
    """Name → pairs: the files of --tatoeba as they are, or what they give for --pairs."""
    from interlingua.evaluation.tatoeba import check_languages, pairs_between, read_sets

    sets = read_sets(arguments.tatoeba)
    if arguments.pairs:
        found = [pairs_between(codes, sets) for codes in arguments.pairs]
        if len({frozenset((pairs[0].source_lang, pairs[0].target_lang)) for _, pairs in found}) < len(found):
            raise BadInput(
                "--pairs: two of them are the same languages. Both directions are measured anyway: give each pair once."
            )
        sets = dict(found)
    for name, pairs in sets.items():
        check_languages(pairs, name, arguments.tatoeba_protocol)
    if arguments.picture and len(sets) != 1:
        raise BadInput(
            f"--picture shows one pair of languages, these are {len(sets)}. Give --tatoeba one "
            "file, or --pairs one pair."
        )
    return sets


def print_translations(arguments: argparse.Namespace, models: dict[str, Any], sets: dict[str, Any]) -> None:
    """Tatoeba accuracies; with --picture also the figure and its numbers."""
    from interlingua.evaluation.tatoeba import tatoeba_pairs, tatoeba_table

    if arguments.picture:
        from interlingua.evaluation.languages import language_projection, projection_table
        from interlingua.evaluation.plots import plot_projections

        ((name, pairs),) = sets.items()
        shown = language_projection(models, pairs)
        results = {model: {name: projection.accuracy} for model, projection in shown.items()}
        print(projection_table(shown, arguments.format) + "\n")
        plot_projections(shown, arguments.picture)
    else:
        results = {
            model: {name: tatoeba_pairs(encoder, pairs, name) for name, pairs in sets.items()}
            for model, encoder in models.items()
        }
    print(tatoeba_table(results, arguments.format, arguments.tatoeba_protocol))


def read_xor(arguments: argparse.Namespace) -> tuple[Any, ...]:
    """Questions, the English passages if any, and file of --predictions → question → texts retrieved."""
    from dataclasses import replace

    from interlingua.data.irds import is_prediction, read_answered, read_predictions
    from interlingua.data.passages import read_passages
    from interlingua.evaluation.xor import nltk_tokenizer, run_texts
    from interlingua.retrieval.run import Run

    questions = read_answered(arguments.xor)
    runs = {file: Run.read_trec(file) for file in arguments.predictions if not is_prediction(file)}
    texts = {file: read_predictions(file) for file in arguments.predictions if file not in runs}
    if runs and not arguments.passages:
        raise BadInput(f"{next(iter(runs))}: a TREC run names passages. Give their texts with --passages.")
    nltk_tokenizer()  # what it lacks is said before the passages are encoded
    passages = [
        passage if passage.lang else replace(passage, lang="en")
        for passage in (read_passages(arguments.passages) if arguments.passages else ())
    ]
    return questions, passages, texts | {file: run_texts(run, passages) for file, run in runs.items()}


def print_xor(
    arguments: argparse.Namespace, models: dict[str, Any], questions: Any, passages: Any, predicted: dict[str, Any]
) -> None:
    """XOR-Retrieve, a table for each number of tokens and each way to read the answers; run files where asked for."""
    from interlingua.data.records import Collection
    from interlingua.evaluation.protocol import results_table
    from interlingua.evaluation.xor import run_texts, xor_results
    from interlingua.retrieval.dense.exact import retrieve

    for name, model in models.items():
        run = retrieve(model, Collection("xor-retrieve", passages, questions), depth=arguments.depth)
        if arguments.runs:
            run.write_trec(Path(arguments.runs) / f"{slug(name)}.xor-retrieve.run", tag=slug(name))
        predicted = {**predicted, name: run_texts(run, passages)}
    systems = {name: xor_results(predicted[name], questions) for name in [*models, *arguments.predictions]}
    for measure in next(iter(systems.values()))[0].scores:
        table = results_table(systems, measure, intervals=not arguments.no_intervals)
        print(table.render(arguments.format, digits=1, intervals=not arguments.no_intervals) + "\n")


def print_bucc(arguments: argparse.Namespace, models: dict[str, Any]) -> None:
    """F1 on every language pair that the folder has, by the protocols that its files allow."""
    from interlingua.data.readers.bitext import bucc_pairs
    from interlingua.evaluation.bitext import bucc, bucc_table

    pairs = bucc_pairs(arguments.bucc, "training")
    if not pairs:
        raise NotFound(f"{arguments.bucc}: holds no BUCC files such as fr-en.training.fr, .en and .gold.")
    print(
        bucc_table(
            {
                name: {pair: bucc(model, arguments.bucc, pair, arguments.bucc_protocol) for pair in pairs}
                for name, model in models.items()
            },
            arguments.format,
        )
    )


def slug(name: str) -> str:
    """A file name for a path or id."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name).strip("-") or "model"


NAMES = ("evaluate",)


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare the verb."""
    parser = verbs.add_parser(
        "evaluate", parents=[common], help="measure models on test collections, a column per language"
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="model folders or names; each is a row")
    parser.add_argument(
        "--pipeline",
        action=Repeated,
        default=[],
        metavar="P",
        help='rows beside the models, in one line each: "bm25 %% 1000 >> runs/m" (rerank), "bm25 + '
        '0.8 * runs/m" (hybrid), "rrf(bm25, runs/m)", "runs/m(maxp=180/90)", "run(a.run)"',
    )
    parser.add_argument(
        "--translated",
        action=Repeated,
        default=[],
        metavar="FILE",
        help="the questions as bm25 is to read them, id ⇥ text: one file for all collections, or one "
        "for each in the order of --on",
    )
    parser.add_argument(
        "--translate", metavar="COMMAND", help="a program that translates them: lines in, as many lines out"
    )
    parser.add_argument(
        "--layer",
        type=int,
        metavar="K",
        help="pool hidden state K (0 = embeddings) in place of the last, as CCP does on Tatoeba",
    )
    parser.add_argument("--pooling", choices=["cls", "mean"], help="how token states become a vector")
    parser.add_argument(
        "--on",
        action=Repeated,
        default=[],
        metavar="COLLECTION",
        help="folders, encyclopedia:LANG, or ir_datasets:ID (ID#FIELD: a field of the topics)",
    )
    parser.add_argument(
        "--lang",
        default="",
        help="language of collections of --on that do not name theirs (else the "
        "name of the folder says it, or it is detected)",
    )
    parser.add_argument(
        "--tatoeba",
        action=Repeated,
        default=[],
        metavar="FILE",
        help="files of translations such as ara-eng.tsv.gz, or a folder of them: how often the nearest "
        "sentence is the translation",
    )
    parser.add_argument(
        "--pairs",
        action=Repeated,
        default=[],
        metavar="X-Y",
        help="measure --tatoeba on these pairs of languages, such as de-fr, joined through English "
        "where no file holds both",
    )
    parser.add_argument(
        "--tatoeba-protocol",
        choices=["both", "xtreme"],
        default="both",
        help="both directions and their mean (CCP, LASER), or XTREME's one",
    )
    parser.add_argument(
        "--picture",
        metavar="FILE.svg",
        help="draw the translations of --tatoeba in two dimensions, a panel for each model",
    )
    parser.add_argument(
        "--bucc",
        metavar="FOLDER",
        help="BUCC 2018's files: F1 of the mined translations of every pair of languages there",
    )
    parser.add_argument(
        "--bucc-protocol",
        choices=["train_self", "xtreme"],
        default="train_self",
        help="the threshold is the best one for what is scored, or learnt on the sample split (both "
        "are printed where the sample is there)",
    )
    parser.add_argument(
        "--xor",
        metavar="QUESTIONS.jsonl",
        help="XOR-Retrieve: how often the first 2,000 and 5,000 tokens retrieved hold the answer",
    )
    parser.add_argument(
        "--predictions",
        action=Repeated,
        default=[],
        metavar="FILE",
        help="score these with --xor: TREC runs, or XOR-Retrieve's own JSON",
    )
    parser.add_argument(
        "--passages",
        metavar="COLLECTION",
        help="search this collection's passages with the others' questions "
        "(XQuAD-like: ids correspond); with --xor the English passages, jsonl or DPR's TSV",
    )
    parser.add_argument(
        "--matrix",
        metavar="MEASURE",
        nargs="?",
        const="RR@100",
        help="question language × passage language over the collections, and the merged pool",
    )
    parser.add_argument("--measures", action=Repeated, metavar="M", help="RR@100 R@100 nDCG@10, unless you name others")
    parser.add_argument("--depth", type=int, default=100, help="passages retrieved per question (100)")
    parser.add_argument("--runs", metavar="DIR", help="write TREC run and qrels files here")
    parser.add_argument("--format", default="text", choices=["text", "markdown", "tsv", "json"])
    parser.add_argument("--no-intervals", action="store_true", help="leave the 95%% intervals out")
    parser.without = ("--pipeline", "--predictions")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Evaluate every model on every collection, Tatoeba file, BUCC pair and XOR question."""
    from interlingua.data.collections import cross, load_collection

    check_options(arguments)
    pipelines = parse_pipelines(arguments)
    # all data before the models: what is not there or not read here is said before hours pass
    sentences = read_translations(arguments) if arguments.tatoeba else {}
    scored = read_xor(arguments) if arguments.xor else None
    collections = [load_collection(name, lang=arguments.lang or None) for name in arguments.on]
    if arguments.passages and collections:
        pool = load_collection(arguments.passages)
        collections = [cross(collection, pool) for collection in collections]
    translated = translations(arguments, collections)
    models = load_models(arguments)
    if arguments.matrix:
        print_matrices(arguments, models, collections)
    elif pipelines or any(model.similarity == "maxsim" for model in models.values()):
        print_pipelines(arguments, models, pipelines, collections, translated)
    elif collections:
        print_tables(arguments, models, collections)
    if sentences:
        print_translations(arguments, models, sentences)
    if arguments.bucc:
        print_bucc(arguments, models)
    if scored:
        print_xor(arguments, models, *scored)


def check_options(arguments: argparse.Namespace) -> None:
    """Raise BadInput for options that ask for nothing, or for what would not be done."""

    given = {
        option
        for option in (
            "on",
            "tatoeba",
            "pairs",
            "picture",
            "bucc",
            "xor",
            "predictions",
            "passages",
            "matrix",
            "runs",
            "measures",
            "pipeline",
            "translated",
            "translate",
            "lang",
        )
        if getattr(arguments, option)
    }
    if arguments.tatoeba_protocol != "both":
        given.add("tatoeba-protocol")
    if arguments.bucc_protocol != "train_self":
        given.add("bucc-protocol")
    if not given & {"on", "tatoeba", "bucc", "xor"}:
        raise BadInput(
            "say what to measure on: --on COLLECTION …, --tatoeba FILE …, --bucc FOLDER, or --xor QUESTIONS.jsonl"
        )
    of_models = given & {"tatoeba", "bucc", "matrix"} or ("on" in given and not arguments.pipeline)
    if not arguments.models and (of_models or not (arguments.predictions or arguments.pipeline)):
        raise BadInput("say which MODEL to measure. See `interlingua evaluate --help`.")
    needs = {
        "matrix": ["on"],
        "measures": ["on"],
        "runs": ["on", "xor"],
        "passages": ["on", "xor"],
        "pairs": ["tatoeba"],
        "tatoeba-protocol": ["tatoeba"],
        "picture": ["tatoeba"],
        "predictions": ["xor"],
        "bucc-protocol": ["bucc"],
        "pipeline": ["on"],
        "translated": ["pipeline"],
        "translate": ["pipeline"],
        "lang": ["on"],
    }
    names = {
        "on": "collections. Say which with --on COLLECTION …",
        "tatoeba": "translations. Say which with --tatoeba FILE …",
        "bucc": "BUCC. Give its folder with --bucc FOLDER",
        "xor": "XOR-Retrieve. Give its questions with --xor QUESTIONS.jsonl",
        "pipeline": "the bm25 stages of --pipeline. Give one, such as --pipeline bm25",
    }
    for option, of in needs.items():
        if option in given and not given & {*of}:
            raise BadInput(f"--{option} is for {names[of[0]]}")
    if {"on", "xor", "passages"} <= given:
        raise BadInput("--passages would be for both --on and --xor. Give two commands.")
    if {"translated", "translate"} <= given:
        raise BadInput("--translated and --translate say the same in two ways. Give one of them.")
    if arguments.xor and arguments.models and not arguments.passages:
        raise BadInput("--xor needs the English passages to search. Give them with --passages.")
    for option in ("measures", "runs", "pipeline"):
        if arguments.matrix and option in given:
            raise BadInput(
                f"--matrix has no use for --{option}: it has one measure, written after it "
                "(--matrix nDCG@10), a matrix for each MODEL, and no run files. Give two commands."
            )


def load_models(arguments: argparse.Namespace) -> dict[str, Any]:
    """Name → model. With --layer or --pooling the name says so, and both encoders of the model are read that way.

    Raises BadInput where a late-interaction model is asked for what takes one vector a text.
    """
    from interlingua.models.dual import DualEncoder
    from interlingua.models.encoder import Encoder
    from interlingua.models.late_interaction import load_any

    models: dict[str, Any] = {name: load_any(name) for name in arguments.models}
    for name, model in models.items():
        for option in ("matrix", "tatoeba", "bucc", "xor", "layer", "pooling"):
            if model.similarity == "maxsim" and getattr(arguments, option) not in (None, []):
                raise BadInput(
                    f"{name}: is a late-interaction model, which gives a vector for each token; "
                    f"--{option} takes models of one vector a text. Measure it with --on."
                )
    if arguments.layer is None and arguments.pooling is None:
        return models
    layer = None if arguments.layer is None else f"layer {arguments.layer}"
    what = ", ".join(filter(None, (layer, arguments.pooling)))

    def changed(encoder: Encoder) -> Encoder:
        return Encoder.of(encoder.parts(), layer=arguments.layer, pooling=arguments.pooling)

    return {
        f"{name} ({what})": DualEncoder(changed(model.query), None if model.tied else changed(model.passage))
        for name, model in models.items()
    }


def print_matrices(arguments: argparse.Namespace, models: dict[str, Any], collections: list[Any]) -> None:
    """Question language × passage language, a matrix for each model."""
    from interlingua.evaluation.languages import language_matrix

    by_language = one_a_language(collections)
    for name, model in models.items():
        matrix = language_matrix(model, by_language, arguments.matrix, arguments.depth)
        print(f"{name}\n{matrix.render(arguments.format)}\n")


def print_tables(arguments: argparse.Namespace, models: dict[str, Any], collections: list[Any]) -> None:
    """Models × collections, a table for each measure; run files where asked for."""
    from interlingua.evaluation.measures import DEFAULT_MEASURES
    from interlingua.evaluation.protocol import evaluate_on

    measures = arguments.measures or DEFAULT_MEASURES
    systems = {name: evaluate_on(model, collections, measures, arguments.depth) for name, model in models.items()}
    print_systems(arguments, systems, collections)


def one_a_language(collections: list[Any], what: str = "--matrix") -> dict[str, Any]:
    """Language → collection. Raises BadInput where two have one language: `what` has one row for each."""

    found: dict[str, Any] = {}
    for collection in collections:
        lang = ",".join(collection.query_langs)
        if lang in found:
            raise BadInput(
                f"{found[lang].name} and {collection.name} both ask in '{lang}'. "
                f"{what} needs one collection for each language."
            )
        found[lang] = collection
    return found
