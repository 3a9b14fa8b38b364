"""The sentence part of `interlingua evaluate`: sentences and their translations in Tatoeba and BUCC."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput, NotFound

if TYPE_CHECKING:
    from interlingua.data.records import ParallelPair
    from interlingua.models.protocols import Encoder, Role


def sentence_options(parser: argparse.ArgumentParser) -> None:
    """--tatoeba and --bucc, and what goes with them."""
    tatoeba = parser.add_argument_group("translations: how often the nearest sentence is the translation")
    tatoeba.add_argument(
        "--tatoeba",
        action=Repeated,
        default=[],
        metavar="FILE",
        help="files of translations such as ara-eng.tsv.gz, or a folder of them",
    )
    tatoeba.add_argument(
        "--pairs",
        action=Repeated,
        default=[],
        metavar="X-Y",
        help="measure --tatoeba on these pairs of languages, such as de-fr, joined through English "
        "where no file holds both",
    )
    tatoeba.add_argument(
        "--tatoeba-protocol",
        choices=["both", "xtreme"],
        help="both directions and their mean, as CCP and LASER have it (both), or XTREME's one",
    )
    tatoeba.add_argument(
        "--picture",
        metavar="FILE.svg",
        help="draw the translations of --tatoeba in two dimensions, a panel for each model",
    )
    tatoeba.add_argument(
        "--role",
        choices=["query", "passage"],
        help="how --tatoeba and --bucc read sentences: with which prompt, and by which of two encoders (passage)",
    )
    bucc = parser.add_argument_group("bitext mining")
    bucc.add_argument(
        "--bucc",
        metavar="FOLDER",
        help="BUCC 2018's files: F1 of the mined translations of every pair of languages there",
    )
    bucc.add_argument(
        "--bucc-protocol",
        choices=["train_self", "xtreme"],
        help="the threshold is the best one for what is scored (train_self), or learnt on the sample split; both "
        "are printed where the sample is there",
    )


def read_translations(arguments: argparse.Namespace) -> dict[str, list[ParallelPair]]:
    """Name → pairs: the files of --tatoeba as they are, or what they give for --pairs."""
    from interlingua.evaluation.plots import check_figure
    from interlingua.evaluation.tatoeba import check_languages, pairs_between, read_sets

    if arguments.picture:
        check_figure(arguments.picture)
    sets = read_sets(arguments.tatoeba)
    if arguments.pairs:
        pair_sets = [pairs_between(codes, sets) for codes in arguments.pairs]
        if len({frozenset((pairs[0].source_lang, pairs[0].target_lang)) for _, pairs in pair_sets}) < len(pair_sets):
            raise BadInput(
                "--pairs: two of them are the same languages. Both directions are measured anyway: give each pair once."
            )
        names = [name for name, _ in pair_sets]  # two joins may have files of one name, in two folders
        sets = {
            name if names.count(name) == 1 else f"{name} ({codes})": pairs
            for codes, (name, pairs) in zip(arguments.pairs, pair_sets, strict=True)
        }
    for name, pairs in sets.items():
        check_languages(pairs, name, arguments.tatoeba_protocol or "both")
    if arguments.picture and len(sets) != 1:
        raise BadInput(
            f"--picture shows one pair of languages, these are {len(sets)}. Give --tatoeba one "
            "file, or --pairs one pair."
        )
    return sets


def print_translations(
    arguments: argparse.Namespace, models: Mapping[str, Encoder], sets: Mapping[str, list[ParallelPair]]
) -> None:
    """Tatoeba accuracies; with --picture also the figure and its numbers: a second table, or columns where a program
    reads them."""
    from interlingua.evaluation.table import MACHINES, render_records
    from interlingua.evaluation.tatoeba import tatoeba_pairs, tatoeba_records, tatoeba_table

    protocol: str = arguments.tatoeba_protocol or "both"
    role: Role = arguments.role or "passage"
    if not arguments.picture:
        results = {
            model: {name: tatoeba_pairs(encoder, pairs, name, role) for name, pairs in sets.items()}
            for model, encoder in models.items()
        }
        print(tatoeba_table(results, arguments.format, protocol))
        return
    from interlingua.evaluation.plots import plot_projections
    from interlingua.evaluation.projection import language_projection, projection_table

    ((name, pairs),) = sets.items()
    projections = language_projection(models, pairs, role)
    results = {model: {name: projection.accuracy} for model, projection in projections.items()}
    if arguments.format in MACHINES:
        records = tatoeba_records(results, protocol)
        for record in records:  # the row of means has no file, and no picture
            picture = projections[str(record["system"])]
            record["distance"] = picture.distance if record["file"] else None
            record["explained"] = sum(picture.explained) if record["file"] else None
        print(render_records(records, arguments.format))
    else:
        print(projection_table(projections, arguments.format) + "\n")
        print(tatoeba_table(results, arguments.format, protocol))
    plot_projections(projections, arguments.picture)


def print_bucc(arguments: argparse.Namespace, models: Mapping[str, Encoder]) -> None:
    """F1 on every language pair that the folder has, by the protocols that its files allow."""
    from interlingua.data.readers.bitext import bucc_pairs
    from interlingua.evaluation.bitext import bucc, bucc_table

    pairs = bucc_pairs(arguments.bucc, "training")
    if not pairs:
        raise NotFound(f"{arguments.bucc}: holds no BUCC files such as fr-en.training.fr, .en and .gold.")
    protocol: str = arguments.bucc_protocol or "train_self"
    role: Role = arguments.role or "passage"
    results = {
        name: {pair: bucc(model, arguments.bucc, pair, protocol, role=role) for pair in pairs}
        for name, model in models.items()
    }
    print(bucc_table(results, arguments.format))
