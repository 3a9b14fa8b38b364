"""The parts of `interlingua evaluate` that are pipelines: their rows, and the questions that BM25 is to read."""

from __future__ import annotations

import argparse
from typing import Any


def parse_pipelines(arguments: argparse.Namespace) -> dict[str, Any]:
    """The pipelines of --pipeline by what was written. Raises InterlinguaError for one given twice, for rows that
    --runs would write to one file, and for translations that no stage reads."""
    from interlingua.cli.tables import run_file
    from interlingua.errors import InterlinguaError
    from interlingua.retrieval.pipeline_notation import parse_pipeline
    from interlingua.retrieval.pipeline_tree import Lexical, leaves

    pipelines: dict[str, Any] = {}
    for text in arguments.pipeline:
        name = " ".join(text.split())
        pipelines[name] = parse_pipeline(name)
    if len({*pipelines, *arguments.models}) < len(arguments.pipeline) + len({*arguments.models}):
        raise InterlinguaError("--pipeline: one of them is given twice, or is a MODEL as well.")
    if arguments.runs:
        files: dict[str, str] = {}
        for name in (*arguments.models, *pipelines):
            if (other := files.setdefault(run_file(name), name)) != name:
                raise InterlinguaError(f"--runs would write '{other}' and '{name}' to files of one name. Give two "
                                       "commands, and two folders.")
    unread = not any(isinstance(leaf, Lexical) and leaf.queries is None
                     for pipeline in pipelines.values() for leaf in leaves(pipeline))
    for option in ("translated", "translate"):
        if getattr(arguments, option) and unread:
            raise InterlinguaError(f"--{option}: no stage of the pipelines reads it. It is for bm25 without queries=….")
    return pipelines


def translations(arguments: argparse.Namespace, collections: list[Any]) -> dict[str, Any]:
    """Name of a collection → its questions as --translated or --translate has them."""
    import shlex

    from interlingua.errors import InterlinguaError
    from interlingua.retrieval.translation import (
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
            raise InterlinguaError(f"--translate {arguments.translate}: {error}.") from error
        translate = command(argv)
        return {one.name: translate_queries(one.queries, translate, language_of(one.passages)) for one in collections}
    if not arguments.translated:
        return {}
    files = arguments.translated if len(arguments.translated) > 1 else arguments.translated * len(collections)
    if len(files) != len(collections):
        raise InterlinguaError(f"--translated: {len(files)} files for {len(collections)} collections. Give one for "
                               "each in the order of --on, or one for all.")
    return {one.name: translated_queries(one.queries, read_translations(file), language_of(one.passages), file)
            for one, file in zip(collections, files, strict=True)}


def print_pipelines(arguments: argparse.Namespace, models: dict[str, Any], pipelines: dict[str, Any],
                    collections: list[Any], translated: dict[str, Any]) -> None:
    """A row for each model and each pipeline, the models read in pipelines among them loaded once."""
    from interlingua.cli.tables import print_systems
    from interlingua.evaluation.measures import DEFAULT_MEASURES
    from interlingua.evaluation.pipelines import evaluate_pipelines
    from interlingua.models.loading import load_any
    from interlingua.retrieval.pipeline_tree import Model

    rows = {name: Model(name) for name in models} | pipelines
    systems = evaluate_pipelines(rows, collections, arguments.measures or DEFAULT_MEASURES, arguments.depth,
                                 load=lambda name: models[name] if name in models else load_any(name),
                                 translated=translated)
    print_systems(arguments, systems, collections)
