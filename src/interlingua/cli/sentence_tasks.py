"""The parts of `interlingua evaluate` that are no test collections: Tatoeba, BUCC, XOR-Retrieve."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def read_translations(arguments: argparse.Namespace) -> dict[str, Any]:
    """Name → pairs: the files of --tatoeba as they are, or what they give for --pairs."""
    from interlingua.errors import InterlinguaError
    from interlingua.evaluation.pivot import pairs_between
    from interlingua.evaluation.tatoeba import check_languages, read_sets

    sets = read_sets(arguments.tatoeba)
    if arguments.pairs:
        found = [pairs_between(codes, sets) for codes in arguments.pairs]
        if len({frozenset((pairs[0].source_lang, pairs[0].target_lang)) for _, pairs in found}) < len(found):
            raise InterlinguaError("--pairs: two of them are the same languages. Both directions are measured anyway: "
                                   "give each pair once.")
        sets = dict(found)
    for name, pairs in sets.items():
        check_languages(pairs, name, arguments.tatoeba_protocol)
    if arguments.picture and len(sets) != 1:
        raise InterlinguaError(f"--picture shows one pair of languages, these are {len(sets)}. Give --tatoeba one "
                               "file, or --pairs one pair.")
    return sets


def print_translations(arguments: argparse.Namespace, models: dict[str, Any], sets: dict[str, Any]) -> None:
    """Tatoeba accuracies; with --picture also the figure and its numbers."""
    from interlingua.evaluation.tatoeba import tatoeba_pairs, tatoeba_table

    if arguments.picture:
        from interlingua.evaluation.plots import plot_projections
        from interlingua.evaluation.projection import language_projection, projection_table

        ((name, pairs),) = sets.items()
        shown = language_projection(models, pairs)
        results = {model: {name: projection.accuracy} for model, projection in shown.items()}
        print(projection_table(shown, arguments.format) + "\n")
        plot_projections(shown, arguments.picture)
    else:
        results = {model: {name: tatoeba_pairs(encoder, pairs, name) for name, pairs in sets.items()}
                   for model, encoder in models.items()}
    print(tatoeba_table(results, arguments.format, arguments.tatoeba_protocol))


def read_xor(arguments: argparse.Namespace) -> tuple[Any, ...]:
    """Questions, the English passages if any, and file of --predictions → question → texts retrieved."""
    from dataclasses import replace

    from interlingua.data.collections.xor_tydi import is_prediction, read_answered, read_predictions
    from interlingua.data.passages import read_passages
    from interlingua.errors import InterlinguaError
    from interlingua.evaluation.xor_retrieve import nltk_tokenizer, run_texts
    from interlingua.retrieval.run import Run

    questions = read_answered(arguments.xor)
    runs = {file: Run.read_trec(file) for file in arguments.predictions if not is_prediction(file)}
    texts = {file: read_predictions(file) for file in arguments.predictions if file not in runs}
    if runs and not arguments.passages:
        raise InterlinguaError(f"{next(iter(runs))}: a TREC run names passages. Give their texts with --passages.")
    nltk_tokenizer()  # what it lacks is said before the passages are encoded
    passages = [passage if passage.lang else replace(passage, lang="en")
                for passage in (read_passages(arguments.passages) if arguments.passages else ())]
    return questions, passages, texts | {file: run_texts(run, passages) for file, run in runs.items()}


def print_xor(arguments: argparse.Namespace, models: dict[str, Any], questions: Any, passages: Any,
              predicted: dict[str, Any]) -> None:
    """XOR-Retrieve, a table for each number of tokens and each way to read the answers; run files where asked for."""
    from interlingua.data.records import Collection
    from interlingua.evaluation.results import results_table
    from interlingua.evaluation.xor_retrieve import run_texts, xor_results
    from interlingua.retrieval.dense import retrieve

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
    from interlingua.data.readers.bucc import bucc_pairs
    from interlingua.errors import InterlinguaError
    from interlingua.evaluation.bucc import bucc, bucc_table

    pairs = bucc_pairs(arguments.bucc, "training")
    if not pairs:
        raise InterlinguaError(f"{arguments.bucc}: holds no BUCC files such as fr-en.training.fr, .en and .gold.")
    print(bucc_table({name: {pair: bucc(model, arguments.bucc, pair, arguments.bucc_protocol) for pair in pairs}
                      for name, model in models.items()}, arguments.format))


def slug(name: str) -> str:
    """A file name for a path or id."""
    return "".join(c if c.isalnum() or c in "-_" else "-" for c in name).strip("-") or "model"
