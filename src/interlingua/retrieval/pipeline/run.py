"""Run a pipeline on a test collection, with translated queries where they are wanted."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from interlingua.data.irds import PREFIX, queries
from interlingua.data.readers.rows import BadRow, BadRows, json_object, lang_of, string
from interlingua.data.readers.source import filled_lines, head
from interlingua.data.records import Collection, Passage, Query
from interlingua.errors import BadInput, NotFound, suggestion
from interlingua.models.protocols import AnyEncoder, has_token_vectors
from interlingua.retrieval.fusion import rrf, weighted_sum
from interlingua.retrieval.pipeline.grammar import (
    NAMED,
    Cut,
    Lexical,
    Model,
    Pipeline,
    ReciprocalRank,
    Rerank,
    RunFile,
    WeightedSum,
    parse_pipeline,
)
from interlingua.retrieval.rerank import DEPTH, MaxP, model_retriever, rerank, subword_windows
from interlingua.retrieval.retriever import Candidates, OnDemand, Retriever, chosen_queries
from interlingua.retrieval.run import Run

if TYPE_CHECKING:
    from interlingua.retrieval.bm25.bm25 import BM25
    from interlingua.retrieval.dense.sharded import PassageShards, Shards

logger = logging.getLogger(__name__)


Translate = Callable[[list[str]], Sequence[str]]
"""texts in, as many translations out, in order"""


def read_translations(path: str | Path) -> dict[str, Query]:
    """Query id → its translation, from lines `id <tab> text[ <tab> language]` or objects `{id, text[, lang]}`, gzipped
    or not; or from translated topics, `ir_datasets:hc4/zh/test#mt_title`. `lang` is '' where a row has none.

    Raises BadInput naming file and line for a bad row, a text that is empty, or an id that occurs twice.
    """
    if str(path).startswith(PREFIX):
        return {query.id: query for query in queries(str(path).removeprefix(PREFIX))}
    path = Path(path)
    jsonl = head(path).lstrip().startswith("{")
    translations: dict[str, Query] = {}

    def parse(line: str) -> Query:
        query = _parse(line, jsonl)
        if query.id in translations:
            raise BadRow(f"the query id '{query.id}' occurs twice")
        return query

    advice = 'Needed are the columns id, text (and language), or an object {"id": …, "text": …}.'
    for query in BadRows(advice=advice).parsed(path, filled_lines(path), parse):
        translations[query.id] = query
    return translations


def _parse(line: str, jsonl: bool) -> Query:
    if jsonl:
        row = json_object(line)
    else:
        cells = line.split("\t")
        if len(cells) not in (2, 3):
            raise BadRow(f"{len(cells)} column(s), 2 or 3 are needed")
        row = dict(zip(("id", "text", "lang"), cells, strict=False))
    return Query(string(row, "id"), string(row, "text"), lang_of(row, None) if row.get("lang") else "")


def translated_queries(
    queries: Sequence[Query], translations: Mapping[str, Query], passages_lang: str, where: str = "the translations"
) -> list[Query]:
    """`queries` with their translated texts. The language is the row's own, else `passages_lang`.

    Raises BadInput for queries without a translation, saying how many, and where the language is unknown.
    """
    missing = [query.id for query in queries if query.id not in translations]
    if missing:
        raise BadInput(
            f"{where}: no translation of {len(missing):,} of {len(queries):,} queries, the first is "
            f"'{missing[0]}'. Give each query's id and text."
        )
    result = [
        Query(query.id, translations[query.id].text, translations[query.id].lang or passages_lang) for query in queries
    ]
    nameless = next((query.id for query in result if not query.lang), None)
    if nameless is not None:
        raise BadInput(
            f"{where}: the language of '{nameless}' is unknown, as the passages are of several. "
            "Give it as a third column, or as a field lang."
        )
    return result


def translate_queries(queries: Sequence[Query], translate: Translate, passages_lang: str) -> list[Query]:
    """`queries` through `translate`, each as one line of text. Raises BadInput for another number of
    translations than queries, or an empty one."""
    lines = [" ".join(query.text.split()) for query in queries]
    texts = list(translate(lines))
    if len(texts) != len(lines):
        raise BadInput(
            f"the translation has {len(texts):,} lines for {len(lines):,} queries. It must give one line for each line."
        )
    empty = [query.id for query, text in zip(queries, texts, strict=True) if not text.strip()]
    if empty:
        raise BadInput(f"the translation of {len(empty):,} queries is empty, the first is '{empty[0]}'.")
    translations = {query.id: Query(query.id, text.strip()) for query, text in zip(queries, texts, strict=True)}
    return translated_queries(queries, translations, passages_lang)


def command(argv: Sequence[str]) -> Translate:
    """A `translate` that runs a program: one text a line on its standard input, one translation a line on its standard
    output, UTF-8. `argv` is the program and its arguments; no shell reads them.

    Raises BadInput when it is given nothing to run; the `translate` does when the program is not there, fails,
    or writes what is not UTF-8.
    """
    if not argv:
        raise BadInput("the command that translates is empty. Give a program and its arguments.")
    program = [*argv]

    def translate(lines: list[str]) -> list[str]:
        if not lines:
            return []
        try:
            process = subprocess.run(
                program, input="".join(f"{line}\n" for line in lines).encode("utf-8"), capture_output=True, check=False
            )
        except OSError as error:
            raise BadInput(f"{program[0]}: cannot be run ({error.strerror or error}).") from error
        if process.returncode:
            messages = process.stderr.decode("utf-8", "replace").strip().splitlines()
            raise BadInput(
                f"{program[0]}: failed with exit code {process.returncode}{f' ({messages[-1]})' if messages else ''}."
            )
        try:
            return process.stdout.decode("utf-8").removesuffix("\n").split("\n")
        except UnicodeDecodeError as error:
            raise BadInput(f"{program[0]}: its output is not UTF-8 ({error.reason}).") from error

    return translate


def language_of(passages: Sequence[Passage]) -> str:
    """The language of the passages; '' where they have several."""
    langs = getattr(passages, "langs", None) or {passage.lang for passage in passages}
    return next(iter(langs)) if len(langs) == 1 else ""


Load = Callable[[str], AnyEncoder]
"""the name in a pipeline → the encoder it means"""


def run_pipeline(
    pipeline: Pipeline | str,
    collection: Collection,
    depth: int,
    load: Load | None = None,
    *,
    translated: Sequence[Query] | None = None,
) -> Run:
    """Run `pipeline` on the queries of `collection`: at most `depth` passages each, every query in the run.

    A stage inside another, what is fused or reranked, is searched `max(depth, 1000)` deep unless it is cut (`% 100`); a
    run file is taken whole. `load` gives the encoder of a name (`interlingua.models.late_interaction.load_any`);
    each is loaded once. `translated`: the queries as `bm25` reads them, where it names no file of its own.
    Raises BadInput for what cannot be loaded, found or scored, naming the stage.
    """
    return RetrieverPool(collection.passages, load).run(pipeline, collection.queries, depth, translated=translated)


def encoder_loader(load: Load | None = None, precision: str | None = None) -> Load:
    """`load`, or that of every kind of model folder in a number format, which loads each name once."""

    def any_kind(name: str) -> AnyEncoder:
        from interlingua.models.late_interaction import load_any

        try:
            return load_any(name, precision=precision)
        except NotFound as error:
            hint = "" if "/" in name else suggestion(name, NAMED)
            raise NotFound(f"{error}{hint if '?' in hint else ''}") from error

    return cache(any_kind if load is None else load)


class RetrieverPool:
    """The retrievers of one list of passages, made when they are first needed: pipelines that are run here one after
    another share them. A model reads each passage once, an analyzer too."""

    def __init__(self, passages: Sequence[Passage], load: Load | None = None) -> None:
        self.passages, self.load = passages, encoder_loader(load)
        self._of_model = cache(self._model)
        self._indexed: dict[str | None, BM25] = {}

    @cached_property
    def lang(self) -> str:
        """The language of the passages, '' for several."""
        return language_of(self.passages)

    def run(
        self,
        pipeline: Pipeline | str,
        queries: Sequence[Query],
        depth: int,
        *,
        translated: Sequence[Query] | None = None,
    ) -> Run:
        """The first `depth` results of `pipeline` for each of `queries`, as `run_pipeline` describes it."""
        return PipelineRun(self, queries, translated).run(pipeline, depth)

    def retriever(self, stage: Lexical | Model) -> Retriever:
        """The retriever of a stage, for any queries."""
        if isinstance(stage, Lexical):
            return self._lexical(stage)
        return self._of_model(replace(stage, queries=None))

    def _lexical(self, stage: Lexical) -> Retriever:
        from interlingua.retrieval.bm25.bm25 import BM25

        if stage.analyzer not in self._indexed:
            self._indexed[stage.analyzer] = BM25.build(self.passages, k1=stage.k1, b=stage.b, analyzer=stage.analyzer)
        bm25 = self._indexed[stage.analyzer]
        # weights are quickly made anew, and a grid of k1 and b would fill the memory with them
        return bm25 if (bm25.k1, bm25.b) == (stage.k1, stage.b) else bm25.weighted(stage.k1, stage.b)

    def _model(self, stage: Model) -> Retriever:
        encoder = self.load(stage.name)
        if stage.maxp is not None:
            split, build = subword_windows(encoder, *stage.maxp), partial(model_retriever, encoder)
            return OnDemand(lambda passages: MaxP(build, passages, split), self.passages)
        return model_retriever(encoder, self.passages)


class PipelineRun:
    """Queries that one pipeline after another searches for. The results of models are kept: a grid over the weights of
    a sum searches with each model once."""

    def __init__(
        self, stages: RetrieverPool, queries: Sequence[Query], translated: Sequence[Query] | None = None
    ) -> None:
        self.stages, self.queries, self.translated, self.inner = stages, queries, translated, DEPTH
        self._found: dict[tuple[Model, int], Run] = {}

    def run(self, pipeline: Pipeline | str, depth: int) -> Run:
        """The first `depth` results of `pipeline` for each of the queries, as `run_pipeline` describes it."""
        if depth < 1:
            raise BadInput(f"depth {depth}: must be at least 1.")
        tree = parse_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
        self.inner = max(depth, DEPTH)  # how deep a stage inside another is searched
        return self.search(tree, depth).truncate(depth)

    def search(self, pipeline: Pipeline, depth: int) -> Run:
        """The results of a pipeline, `depth` deep where it retrieves; what is fused or read from a file is whole."""
        inner = max(depth, self.inner)
        match pipeline:
            case RunFile(path):
                return self.from_file(path)
            case Cut(stage, kept):
                return self.search(stage, kept).truncate(kept)
            case WeightedSum(terms):
                return weighted_sum([self.search(stage, inner) for _, stage in terms], [w for w, _ in terms])
            case ReciprocalRank(fused, k):
                return rrf([self.search(stage, inner) for stage in fused], k)
            case Rerank(first, second):
                kept = first.depth if isinstance(first, Cut) else inner
                return rerank(self.search(first, kept), self.queries, _Second(self, second), kept)
        if isinstance(pipeline, Lexical):  # quickly asked again, and a grid of k1 and b has many
            return self.stages.retriever(pipeline).search(self.asked_by(pipeline), depth)
        if (pipeline, depth) not in self._found:
            self._found[pipeline, depth] = self.stages.retriever(pipeline).search(self.asked_by(pipeline), depth)
        return self._found[pipeline, depth]

    def search_ahead(self, pipelines: Iterable[Pipeline | str], depth: int, shards: Shards, name: str) -> None:
        """Find now what models with one vector a text find in these pipelines, with the vectors of the passages on the
        disk, in `shards` under `name`. Of several processes every one must call it; each does its part."""
        passage_shards: dict[str, PassageShards] = {}
        for pipeline in pipelines:
            tree = parse_pipeline(pipeline) if isinstance(pipeline, str) else pipeline
            for stage, stage_depth in searching_models(tree, depth, max(depth, DEPTH)):
                if (stage, stage_depth) in self._found or stage.maxp is not None:
                    continue
                encoder = self.stages.load(stage.name)
                if has_token_vectors(encoder):
                    continue
                if stage.name not in passage_shards:
                    passage_shards[stage.name] = shards.of(encoder, self.stages.passages, f"{name} {stage.name}")
                self._found[stage, stage_depth] = passage_shards[stage.name].search(self.asked_by(stage), stage_depth)

    def score(self, pipeline: Pipeline, candidates: Candidates) -> Run:
        """The scores of exactly these candidates."""
        match pipeline:
            case RunFile(path):
                return self.scores_in_file(path, candidates)
            case Cut():
                raise BadInput(
                    f"'{pipeline}' is to rerank, and would lose what it cuts. Cut before it, "
                    "A % 100 >> B, or after it, (A >> B) % 10."
                )
            case WeightedSum(terms):
                return weighted_sum([self.score(stage, candidates) for _, stage in terms], [w for w, _ in terms])
            case ReciprocalRank(fused, k):
                return rrf([self.score(stage, candidates) for stage in fused], k)
            case Rerank(_, second):  # nothing is cut: the last order is all that is left
                return self.score(second, candidates)
        candidate_queries = chosen_queries(self.asked_by(pipeline), candidates)
        return self.stages.retriever(pipeline).score(candidate_queries, candidates)

    def asked_by(self, stage: Lexical | Model) -> Sequence[Query]:
        """The queries as a stage reads them: translated by its own file, or those for all lexical stages."""
        if stage.queries is not None:
            return translated_queries(self.queries, read_translations(stage.queries), self.stages.lang, stage.queries)
        if isinstance(stage, Lexical) and self.translated is not None:
            return translated_queries(self.queries, {query.id: query for query in self.translated}, self.stages.lang)
        return self.queries

    def from_file(self, path: str) -> Run:
        """The results in a run file for these queries; a query that the file lacks has an empty list."""
        run = Run.read_trec(path)
        common = {query.id for query in self.queries} & run.keys()
        if not common:
            raise BadInput(f"{path}: has results for no query of the collection. Both must be of one test set.")
        if len(common) < len(run):
            logger.warning(f"{path}: {len(run) - len(common):,} queries are none of the collection's and are left out")
        if not hasattr(self.stages.passages, "by_id"):  # those that stay on the disk would be read one by one
            ids, known = [id for query in common for id, _ in run[query]], {one.id for one in self.stages.passages}
            if unknown := [id for id in ids if id not in known]:
                logger.warning(
                    f"{path}: {len(unknown):,} of {len(ids):,} results are no passages of the collection, the first is "
                    f"'{unknown[0]}'"
                )
        return Run.from_scores({query.id: dict(run[query.id]) if query.id in common else {} for query in self.queries})

    def scores_in_file(self, path: str, candidates: Candidates) -> Run:
        run = self.from_file(path)
        scores = {query_id: dict(run[query_id]) for query_id in candidates}
        missing = [name for query_id, ids in candidates.items() for name in ids if name not in scores[query_id]]
        if missing:
            raise BadInput(
                f"{path}: has no score for {len(missing):,} of the results to rerank, the first is "
                f"'{missing[0]}'. Fuse with it (A + B, rrf(A, B)), or use it as the first stage."
            )
        return Run.from_scores(
            {query_id: {name: scores[query_id][name] for name in ids} for query_id, ids in candidates.items()}
        )


def searching_models(pipeline: Pipeline, depth: int, inner: int) -> Iterator[tuple[Model, int]]:
    """The stages in which a model searches all passages, and how deep; not those that only rerank. `inner` is how deep
    a stage inside another is searched at least."""
    within = max(depth, inner)
    match pipeline:
        case Cut(stage, kept):
            yield from searching_models(stage, kept, inner)
        case WeightedSum(terms):
            for _, stage in terms:
                yield from searching_models(stage, within, inner)
        case ReciprocalRank(fused):
            for stage in fused:
                yield from searching_models(stage, within, inner)
        case Rerank(first, _):
            yield from searching_models(first, first.depth if isinstance(first, Cut) else within, inner)
        case Model():
            yield pipeline, depth


class _Second:
    """A pipeline as the scorer that `rerank` asks."""

    def __init__(self, asked: PipelineRun, pipeline: Pipeline) -> None:
        self._asked, self._pipeline = asked, pipeline

    def score(self, queries: Sequence[Query], candidates: Candidates) -> Run:
        return self._asked.score(self._pipeline, candidates)
