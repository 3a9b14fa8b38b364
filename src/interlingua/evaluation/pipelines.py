"""Evaluation of pipelines on test collections: first stages, fusion, reranking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from interlingua.data.records import Collection, Query
from interlingua.errors import InterlinguaError
from interlingua.evaluation.measures import DEFAULT_MEASURES, evaluate
from interlingua.evaluation.protocol import by_passages, check_collections
from interlingua.evaluation.results import Result, result
from interlingua.retrieval.pipeline import Load, Stages, encoder_loader
from interlingua.retrieval.pipeline_tree import Lexical, Model, Pipeline, RunFile, leaves
from interlingua.retrieval.run import Run
from interlingua.retrieval.translation import language_of, read_translations, translated_queries


def evaluate_pipelines(
    pipelines: Mapping[str, Pipeline], collections: Iterable[Collection], measures: Sequence[str] = DEFAULT_MEASURES,
    depth: int = 100, *, load: Load | None = None, translated: Mapping[str, Sequence[Query]] | None = None,
) -> dict[str, list[Result]]:
    """Name of each pipeline → its results, in the order of `collections`, `depth` passages for each question.

    Every model is loaded once (`load`: as `interlingua.retrieval.pipeline.run_pipeline` has it), and collections with
    the same passages are searched one after another, so that a model encodes them once for all pipelines.
    `translated`: name of a collection → its questions as the `bm25` stages read them. Models, run files and
    translations are read before anything is searched. Raises InterlinguaError as `run_pipeline` and `evaluate_on` do.
    """
    given = list(collections)
    check_collections(given, measures, depth)
    load = encoder_loader(load)
    check_stages(pipelines.values(), given, load)
    found: dict[tuple[str, str], Result] = {}
    for group in by_passages(given):
        stages = Stages(group[0].passages, load)
        for collection in group:
            for name, pipeline in pipelines.items():
                run = stages.run(pipeline, collection.queries, depth,
                                 translated=(translated or {}).get(collection.name))
                found[name, collection.name] = result(collection, run, evaluate(run, collection.qrels, measures))
    return {name: [found[name, collection.name] for collection in given] for name in pipelines}


def check_stages(pipelines: Iterable[Pipeline], collections: Sequence[Collection], load: Load) -> None:
    """Load what the pipelines name, so that what is missing is said before hours pass.

    Raises InterlinguaError for a model that cannot be loaded, a run file without a question of one of the
    collections, and translations that lack a question.
    """
    named = dict.fromkeys(leaf for pipeline in pipelines for leaf in leaves(pipeline))
    for path in dict.fromkeys(leaf.path for leaf in named if isinstance(leaf, RunFile)):
        run = Run.read_trec(path)
        for collection in collections:
            if not any(query.id in run for query in collection.queries):
                raise InterlinguaError(f"{path}: has results for no query of {collection.name}. The run and the "
                                       "collection must be of one test set.")
    for path in dict.fromkeys(leaf.queries for leaf in named if isinstance(leaf, Lexical | Model) and leaf.queries):
        translations = read_translations(path)
        for collection in collections:
            translated_queries(collection.queries, translations, language_of(collection.passages), path)
    for name in dict.fromkeys(leaf.name for leaf in named if isinstance(leaf, Model)):
        load(name)
