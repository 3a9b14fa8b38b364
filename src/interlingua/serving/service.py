"""The service behind the endpoints: settings, the index, batches of searches and embeddings, writes."""

from __future__ import annotations

import base64
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from fastapi import FastAPI
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from pydantic import ConfigDict, Field, ValidationError, model_validator

from interlingua.data.records import Passage, Query
from interlingua.errors import BadInput, Busy, Damaged, InterlinguaError, Stale
from interlingua.index.index import Hit, Index
from interlingua.index.metadata import Budget, OutOfTime, Question
from interlingua.models.protocols import AnyEncoder
from interlingua.retrieval.rerank import model_retriever
from interlingua.retrieval.retriever import TextEncoder
from interlingua.serving.batching import Batcher
from interlingua.serving.schemas import MAX_TEXT, ApiError
from interlingua.settings import Settings, explain
from interlingua.text.languages import detect_language, nfkc

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ServeSettings(Settings):
    """The options of the server. Raises BadInput for numbers out of range and tokens that a header cannot carry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_batch: int = Field(
        64, ge=1, description="texts that go through the model at once, and passages of writes that are synced together"
    )
    delay: float = Field(0.002, ge=0, allow_inf_nan=False, description="seconds for which such a batch is gathered")
    queue: int = Field(128, ge=1, description="requests that may wait; more get 503")
    timeout: Seconds = Field(30.0, description="seconds until a request is given up with 504")
    budget: Seconds = Field(
        10.0, description="seconds of work on one question, the reranker's left out; beyond it is 422"
    )
    max_body: int = Field(4 << 20, ge=1, description="maximum bytes of a body")
    token: str = Field("", repr=False, description="the token for writing and reading; without one nobody may write")
    read_token: str = Field("", repr=False, description="a token without which nobody may read")
    log_queries: bool = Field(False, description="put the text of questions into the log")
    rerank_model: str = Field("", description="the name of the reranker in answers")
    aliases: tuple[str, ...] = Field((), description="more names by which requests may call the model")
    names: tuple[str, ...] = Field((), description="hosts that requests may name; any where there are none")

    def __init__(self, **options: Any) -> None:
        try:
            super().__init__(**options)
        except ValidationError as error:
            raise BadInput(f"serving: {explain(error, type(self))}") from None

    @model_validator(mode="after")
    def _tokens(self) -> Self:
        for token in (self.token, self.read_token):
            if token and (not token.isascii() or not token.isprintable() or " " in token):
                raise ValueError(
                    "a token is of printable ASCII characters without spaces. A good one: "
                    "python -c 'import secrets; print(secrets.token_urlsafe())'."
                )
        if self.read_token and not self.token:
            raise ValueError("a read token needs a write token beside it; the write token reads too.")
        return self


SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Requests by path and status, their times, the sizes of batches, the queue, and the size of the index."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "path")
        self.requests = Counter(
            "interlingua_requests", "Requests answered.", (*labels, "status"), registry=self.registry
        )
        self.seconds = Histogram(
            "interlingua_request_seconds",
            "Time from a request to its answer.",
            labels,
            buckets=SECONDS,
            registry=self.registry,
        )
        self.batches = Histogram(
            "interlingua_batch_texts",
            "Texts that went through the model together.",
            buckets=TEXTS,
            registry=self.registry,
        )
        self.waiting = Gauge("interlingua_waiting_requests", "Requests in the queue.", registry=self.registry)
        self.passages = Gauge("interlingua_passages", "Passages in the index.", registry=self.registry)
        ProcessCollector(registry=self.registry)

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request. `path` is that of a route, not what a client wrote."""
        self.requests.labels(method, path, str(status)).inc()
        self.seconds.labels(method, path).observe(seconds)

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return bytes(generate_latest(self.registry))


HIGHLIGHTED = 100
"""Hits of an answer that get highlights: they cost some milliseconds each, and all clients wait meanwhile."""


class Answer(NamedTuple):
    """Hits, and notices about parts of the question or of the answer that were left out."""

    hits: list[dict[str, Any]]
    notices: list[str]


@dataclass(frozen=True)
class Searches:
    """The options that searches of one batch share. An item is a question, which may take `seconds` of work.

    `same` says that `langs` is the language of the questions, of which the index may have no passage.
    """

    index: Index
    reranker: AnyEncoder | None
    k: int
    mode: str
    langs: tuple[str, ...] | None
    same: bool
    where: tuple[tuple[str, str], ...]
    highlight: bool
    seconds: float = math.inf
    min_score: float | None = None

    def __call__(self, items: Sequence[Question]) -> list[Answer]:
        if self.same:
            self.index.refresh()  # another process may have written the first passage in this language
            if not set(self.langs or ()) & set(self.index.languages):
                return [Answer([], []) for _ in items]
        budget = Budget(self.seconds)
        found = self.index.search_many(
            items,
            k=self.k,
            langs=self.langs,
            mode=self.mode,
            where=dict(self.where) or None,
            reranker=self.reranker,
            min_score=self.min_score,
            budget=budget,
        )
        return [self._answer(hits, question, budget) for question, hits in zip(items, found, strict=True)]

    def _answer(self, hits: Sequence[Hit], question: Question, budget: Budget) -> Answer:
        wanted = hits[:HIGHLIGHTED] if self.highlight else []
        marked, notices = self._marked(wanted, question, budget), []
        if question.is_cut:
            notices.append(
                "the question is long: its first words were compared with those of the passages, the rest "
                "only by the model."
            )
        if len(marked) < len(wanted):
            notices.append(
                f"highlights were left out from result {len(marked) + 1} on: the question took more than "
                f"{self.seconds:g} seconds."
            )
        return Answer(
            [
                {
                    **hit.passage.as_json(),
                    "rank": rank,
                    "score": finite(hit.score),
                    "parts": {name: finite(score) for name, score in hit.parts.items()},
                    "highlights": marked[rank - 1] if rank <= len(marked) else [],
                }
                for rank, hit in enumerate(hits, 1)
            ],
            notices,
        )

    def _marked(self, hits: Sequence[Hit], question: Question, budget: Budget) -> list[list[tuple[int, int]]]:
        """The highlights of the hits, of as many as there is time for."""
        from interlingua.index.highlights import Highlights, highlight_encoder

        marked: list[list[tuple[int, int]]] = []
        try:
            if hits:
                with budget.stage("highlighting", question):
                    spans = Highlights(question, encoder=highlight_encoder(self.reranker, self.index, self.mode))
            for hit in hits:
                with budget.stage("highlighting", question):
                    marked.append(spans(hit.passage))
        except OutOfTime:
            pass
        return marked


def finite(score: float) -> float | None:
    """The score, or None where JSON has no number for it (a passage without tokens has −∞ under MaxSim)."""
    return float(score) if math.isfinite(score) else None


@dataclass(frozen=True)
class Versions:
    """Look up ids; the result, the passages that each means."""

    index: Index

    def __call__(self, items: Sequence[str]) -> list[list[dict[str, Any]]]:
        return [[passage.as_json() for passage in self.index.versions(id)] for id in items]


MAX_TEXTS = 4 << 20
"""Characters that all texts of a request may have in NFKC: as many as a body has bytes."""


class Embedded(NamedTuple):
    """Vectors of one request, as JSON has them, and how many tokens were read."""

    vectors: list[Any]
    tokens: int


@dataclass(frozen=True)
class Embeddings:
    """The options that requests of one batch share. An item is texts of one request. A calibrated model needs their
    languages, which are recognised."""

    index: Index
    role: str
    dimensions: int | None
    base64: bool

    def __call__(self, items: Sequence[Part]) -> list[Embedded]:
        for item in items:
            check_lengths(item)
        texts = [text for item in items for text in item.texts]
        encoder = self.index.encoder
        encode = encoder.encode_query if self.role == "query" else encoder.encode_document
        vectors = cut(encode(texts, lang=[detect_language(text) or None for text in texts]), self.dimensions)
        tokens = count_tokens(encoder, texts, self.role)
        ends = np.cumsum([len(item.texts) for item in items]).tolist()
        return [
            Embedded(self._rows(vectors[end - len(item.texts) : end]), sum(tokens[end - len(item.texts) : end]))
            for item, end in zip(items, ends, strict=True)
        ]

    def _rows(self, vectors: NDArray[np.float32]) -> list[Any]:
        if self.base64:
            return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
        rows: list[Any] = vectors.tolist()
        return rows


class Part(NamedTuple):
    """Texts of one request: those from number `first` (from 1) on, of `total`."""

    texts: Sequence[str]
    first: int
    total: int


def parts(texts: Sequence[str], most: int) -> list[Part]:
    """`texts` in parts of at most `most`. Between two parts of a large request the model answers others."""
    return [Part(texts[start : start + most], start + 1, len(texts)) for start in range(0, len(texts), most)]


def check_lengths(part: Part) -> None:
    """Raise ApiError 422 for texts that grow too long in NFKC, which a model reads: one character may become 18."""
    whole = 0
    for number, text in enumerate(part.texts, part.first):
        length = len(text) if text.isascii() else len(nfkc(text))
        whole += length
        if length > MAX_TEXT or whole > MAX_TEXTS:
            raise ApiError(
                422,
                "invalid_request",
                f"text {number} of {part.total}: {length:,} characters after NFKC normalisation "
                f"({whole:,} with the texts before it). The limits are {MAX_TEXT:,} for one text and "
                f"{MAX_TEXTS:,} for all together.",
            )


def cut(vectors: Any, dimensions: int | None) -> NDArray[np.float32]:
    """The first `dimensions` of each vector, brought to unit length again; all of them as they are without it.

    Raises BadInput when the vectors have fewer.
    """
    array: NDArray[np.float32] = np.asarray(vectors, dtype=np.float32)
    if dimensions is None or dimensions == array.shape[1]:
        return array
    if dimensions > array.shape[1]:
        raise BadInput(f"dimensions: {dimensions}, but the vectors of this model have only {array.shape[1]}.")
    array = array[:, :dimensions]
    lengths = np.linalg.norm(array, axis=1, keepdims=True)
    shorter: NDArray[np.float32] = np.divide(array, lengths, out=np.zeros_like(array), where=lengths > 0)
    return shorter


def count_tokens(encoder: TextEncoder, texts: Sequence[str], role: str) -> list[int]:
    """Tokens of each text as the model reads it, cut to its length; 0 for a model that is not one of ours."""
    if not hasattr(encoder, "encoder"):
        return [0] * len(texts)
    return [len(ids) for ids in encoder.encoder(role).tokenize(texts, role)]


@dataclass(frozen=True)
class Reranks:
    """An item is a question and its documents; the result, each document's score: MaxSim of a late-interaction model,
    else the similarity of the vectors."""

    encoder: AnyEncoder

    def __call__(self, items: Sequence[tuple[str, Part]]) -> list[list[float | None]]:
        for _, documents in items:
            check_lengths(documents)
        queries = [Query(str(number), query) for number, (query, _) in enumerate(items)]
        names = {
            str(number): [f"{number}:{place}" for place in range(len(documents.texts))]
            for number, (_, documents) in enumerate(items)
        }
        passages = [
            Passage(name, text)
            for number, (_, documents) in enumerate(items)
            for name, text in zip(names[str(number)], documents.texts, strict=True)
        ]
        run = model_retriever(self.encoder, passages).score(queries, names)
        found = {query: dict(run[query]) for query in names}
        return [[finite(found[query][name]) for name in ids] for query, ids in names.items()]


class Service:
    """One index. Questions and texts go through the model in the thread of `batcher`; writes, which may take long and
    wait for other writers, in that of `writer`: one at a time, those that wait being synced together."""

    def __init__(self, index: Index, settings: ServeSettings, reranker: AnyEncoder | None = None) -> None:
        self.index, self.settings, self.reranker = index, settings, reranker
        self.metrics = Metrics()
        self.batcher = Batcher(
            max_batch=settings.max_batch,
            delay=settings.delay,
            queue=settings.queue,
            timeout=settings.timeout,
            on_batch=self.metrics.batches.observe,
        )
        self.writer = Batcher(max_batch=settings.max_batch, delay=0.0, queue=settings.queue, timeout=settings.timeout)
        self.metrics.waiting.set_function(lambda: self.batcher.waiting)
        self.ready = False
        self.model = ""
        self.started = int(time())

    @asynccontextmanager
    async def life(self, app: FastAPI) -> AsyncIterator[None]:
        """Start the threads, warm up with a question of our own, and at the end finish what waits."""
        self.batcher.start()
        self.writer.start()
        try:
            await self.batcher.submit(Warm(self.index), None, patient=True)
            self.model = (await self.facts(patient=True)).model
            self.ready = True
            yield
        finally:
            await self.writer.close()
            await self.batcher.close()

    async def facts(self, *, patient: bool = False) -> Facts:
        """The contents of the index now."""
        facts: Facts = await self.batcher.submit(Describe(self.index), None, patient=patient)
        self.metrics.passages.set(facts.passages)
        return facts

    @property
    def models(self) -> list[str]:
        """Every name by which a request may call a model of this server."""
        reranker = [self.settings.rerank_model] if self.reranker is not None else []
        return list(dict.fromkeys([self.model, *reranker, *self.settings.aliases]))

    def told(self, error: InterlinguaError) -> str:
        """The error without the place of the index, which is no business of a client."""
        return str(error).replace(str(self.index.path), "the index")

    @property
    def status(self) -> str:
        """ "ready", or why not."""
        if self.batcher.closing:
            return "stopping"
        if not self.ready:
            return "starting"
        return "stuck" if self.batcher.stuck else "ready"


class Facts(NamedTuple):
    """Facts of an index: its content, and the model it is made with (a name, not the place)."""

    passages: int
    languages: dict[str, int]
    model: str


class Changed(NamedTuple):
    """The number of passages that a call changed, and the number that there are now."""

    changed: int
    passages: int


@dataclass(frozen=True)
class Describe:
    """Describe the index; all items of a batch are alike."""

    index: Index

    def __call__(self, items: Sequence[None]) -> list[Facts]:
        self.index.refresh()
        model = Path(self.index.info().model).name or "unnamed"
        return [Facts(len(self.index), dict(self.index.languages), model)] * len(items)


@dataclass(frozen=True)
class Warm:
    """A first question, so that the first client does not wait for what is loaded late."""

    index: Index

    def __call__(self, items: Sequence[None]) -> list[None]:
        detect_language("interlingua")
        self.index.search_many(["interlingua"], k=1)
        return [None] * len(items)


@dataclass(frozen=True, eq=False)
class Write:
    """Add the passages, in place of those that have their ids; those that are there exactly so are left alone."""

    passages: Sequence[Passage]

    def __call__(self, index: Index) -> int:
        return index.replace(self.passages)


@dataclass(frozen=True, eq=False)
class Delete:
    """Delete the passage with this id."""

    id: str

    def __call__(self, index: Index) -> int:
        return index.delete([self.id])


@dataclass(frozen=True)
class Change:
    """Writes that waited together: done one by one, each whole or not at all, and synced together, before any is
    acknowledged. One result each: a write that failed has its own error, and where the sync
    fails, all have that."""

    index: Index

    def __call__(self, items: Sequence[Write | Delete]) -> list[Changed | Exception]:
        done: list[Changed | Exception] = []
        try:
            with self.index.together():
                for item in items:
                    try:
                        done.append(Changed(item(self.index), len(self.index)))
                    except Exception as error:
                        done.append(error)
        except (Busy, Damaged, Stale) as error:  # another process writes, or the disk does not take it
            return [one if isinstance(one, Exception) else error for one in done] or [error] * len(items)
        return done
