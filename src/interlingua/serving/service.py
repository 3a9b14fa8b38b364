"""The service behind the endpoints: settings, the index, batches of searches and embeddings, writes."""

from __future__ import annotations

import base64
import inspect
import math
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Annotated, Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, ValidationError, model_validator

from interlingua.data.records import Passage, Query
from interlingua.errors import BadInput, InterlinguaError
from interlingua.index.documents import called
from interlingua.index.filters import Filter, without
from interlingua.index.index import Index
from interlingua.index.metadata import Budget, OutOfTime, Question, codes_in
from interlingua.index.search import Hit, finite
from interlingua.lazy import LateKernel
from interlingua.models.protocols import AnyEncoder, Encoder, Role, encode_as
from interlingua.retrieval.late_interaction.static import StaticMaxSim
from interlingua.retrieval.rerank import model_retriever
from interlingua.serving.access import Secret, Token
from interlingua.serving.batching import Batcher, Call, Part, check_lengths
from interlingua.serving.watch import Watch
from interlingua.settings import Settings, explain
from interlingua.text.detection import detect_in_bulk, detect_language

Asked = TypeVar("Asked")
Told = TypeVar("Told")
Seconds = Annotated[float, Field(gt=0)]


class ServeSettings(Settings):
    """The options of the server. Raises BadInput for numbers out of range and tokens that a header cannot carry."""

    model_config = ConfigDict(frozen=True)

    max_batch: int = Field(
        64, ge=1, description="texts that go through the model at once, and passages of writes that are synced together"
    )
    delay: float = Field(0.002, ge=0, description="seconds for which such a batch is gathered")
    queue: int = Field(128, ge=1, description="requests that may wait; more get 503")
    timeout: Seconds = Field(
        30.0,
        description="seconds until a request is given up with 504, and that the end waits for requests that have begun",
    )
    budget: Seconds = Field(
        10.0, description="seconds of work on one question, the reranker's left out; beyond it is 422"
    )
    check_pace: float = Field(
        16e6,
        ge=0,
        description="bytes a second at which the files of all indexes are compared with their checksums, once a day; "
        "0 for not at all",
    )
    max_body: int = Field(4 << 20, ge=1, description="maximum bytes of a body")
    head_timeout: Seconds = Field(
        10.0, description="seconds for the headers of a request, and for a TLS handshake; beyond it is 408"
    )
    connections: int = Field(
        512,
        ge=1,
        description="connections at once; at the limit a new one takes the place of one that asks for nothing",
    )
    connections_per_address: int | None = Field(
        None, ge=1, description="connections at once of one address; an IPv6 network of 64 bits counts as one"
    )
    token: Secret = Field("", description="the token for everything; without one, or `tokens`, nobody may write")
    read_token: Secret = Field("", description="a token without which nobody may read")
    tokens: tuple[Token, ...] = Field((), repr=False, description="tokens with names and scopes; requests need one")
    rate: float = Field(0.0, ge=0, description="requests a second of each token; more get 429")
    burst: int = Field(20, ge=1, description="requests of a token that may come at once, within the rate")
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
        if self.read_token and not self.token:
            raise ValueError("a read token needs a write token beside it; the write token reads too.")
        if min(len({one.token for one in self.access}), len({one.name for one in self.access})) < len(self.access):
            raise ValueError("no two tokens may be the same or have the same name.")
        return self

    @property
    def access(self) -> tuple[Token, ...]:
        """All tokens, with "" for what needs none."""
        plain = [Token(name="token", scopes=("admin",), token=self.token)] if self.token else []
        if self.read_token:
            plain.append(Token(name="read-token", scopes=("search", "metrics"), token=self.read_token))
        elif not self.tokens:
            plain.append(Token(name="everybody", scopes=("search", "metrics"), token=""))
        return (*plain, *self.tokens)


HIGHLIGHTED = 100
"""Hits of an answer that get highlights: they cost some milliseconds each, and all clients wait meanwhile."""


class Answer(NamedTuple):
    """Hits, notices about parts of the question or of the answer that were left out, and counts by key of metadata."""

    hits: list[dict[str, Any]]
    notices: list[str]
    facets: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Searches:
    """The options that searches of one batch share. An item is a question, which may take `seconds` of work.

    `same` says that `langs` is the language of the questions, of which the index may have no passage. `label` is what
    hits tell of the index.
    """

    index: Index
    reranker: AnyEncoder | None
    k: int
    mode: str
    langs: tuple[str, ...] | None
    same: bool
    where: Filter | None
    highlight: bool
    seconds: float = math.inf
    min_score: float | None = None
    group_by: str | None = None
    facets: tuple[str, ...] = ()
    distinct: bool = False
    label: str = ""

    def __call__(self, items: Sequence[Question]) -> list[Answer]:
        if self.same:
            self.index.refresh()  # another process may have written the first passage in this language
            if not set(codes_in(self.index.languages, self.langs) or ()) & set(self.index.languages):
                return [Answer([], [], {key: {} for key in self.facets}) for _ in items]
        budget = Budget(self.seconds)
        rankings = self.found(items, budget)
        with budget.stage("counting", *items):
            facets = self.counts()
        pairs = zip(items, rankings, strict=True)
        return [answered([(self, hit) for hit in hits], question, budget, facets) for question, hits in pairs]

    def counts(self, most: int = 50) -> dict[str, dict[str, int]]:
        """The values of each key of `facets`, among the passages that fit `where` but for the values of that key itself
        that it asks for: beside these, others could be chosen, too."""
        keys_of: dict[Filter | None, list[str]] = defaultdict(list)
        for key in self.facets:
            keys_of[without(self.where, key)].append(key)
        counts: dict[str, dict[str, int]] = {}
        for where, keys in keys_of.items():
            counts |= self.index.facets(keys, self.langs, where=where, most=most)
        return {key: counts[key] for key in self.facets}

    def found(self, items: Sequence[Question], budget: Budget) -> list[list[Hit]]:
        """The hits for each question."""
        return self.index.search_many(
            items,
            k=self.k,
            langs=self.langs,
            mode=self.mode,
            where=self.where,
            reranker=self.reranker,
            min_score=self.min_score,
            group_by=self.group_by,
            distinct=self.distinct,
            budget=budget,
        )


Found = Sequence[tuple[Searches, Hit]]
"""Hits, best first, each with the search that found it."""


def answered(found: Found, question: Question, budget: Budget, facets: dict[str, dict[str, int]]) -> Answer:
    """The answer to a question, with the highlights for which there is time."""
    highlighted = [(searches, hit) for searches, hit in found[:HIGHLIGHTED] if searches.highlight]
    highlights, notices = _marked(highlighted, question, budget), []
    if question.is_cut:
        notices.append(
            "the question is long: its first words were compared with those of the passages, the rest "
            "only by the model."
        )
    if len(highlights) < len(highlighted):
        notices.append(
            f"highlights were left out from result {len(highlights) + 1} on: the question took more than "
            f"{budget.seconds:g} seconds."
        )
    return Answer(
        [
            {
                **hit.passage.as_json(),
                **labelled(searches.label),
                "rank": rank,
                "score": finite(hit.score),
                "parts": {name: finite(score) for name, score in hit.parts.items()},
                "highlights": highlights[rank - 1] if rank <= len(highlights) else [],
                "group": hit.group,
                "more": hit.more,
                "same": [called(passage) for passage in hit.same],
                "repeated": hit.repeated,
            }
            for rank, (searches, hit) in enumerate(found, 1)
        ],
        notices,
        facets,
    )


def _marked(hits: Found, question: Question, budget: Budget) -> list[list[tuple[int, int]]]:
    """The highlights of the hits, of as many as there is time for."""
    from interlingua.index.highlights import Highlights, highlight_encoder

    highlights: list[list[tuple[int, int]]] = []
    spans: dict[Searches, Highlights] = {}
    try:
        for one, hit in hits:
            if one not in spans:
                with budget.stage("highlighting", question):
                    spans[one] = Highlights(question, encoder=highlight_encoder(one.reranker, one.index, one.mode))
            with budget.stage("highlighting", question):
                highlights.append(spans[one](hit.passage))
    except OutOfTime:
        pass
    return highlights


def labelled(index: str) -> dict[str, str]:
    """The fields of a hit or a passage that name its index: its label, where it has one."""
    return {"index": index} if index else {}


class Embedded(NamedTuple):
    """Vectors of one request, as JSON has them, and how many tokens were read."""

    vectors: list[Any]
    tokens: int


@dataclass(frozen=True)
class Embeddings:
    """The options that requests of one batch share. An item is texts of one request. A calibrated model needs their
    languages, which are recognised."""

    index: Index
    role: Role
    dimensions: int | None
    base64: bool

    def __call__(self, items: Sequence[Part]) -> list[Embedded]:
        for item in items:
            check_lengths(item)
        texts = [text for item in items for text in item.texts]
        encoder = self.index.encoder
        vectors = cut(
            encode_as(encoder, self.role)(texts, lang=[detect_language(text) or None for text in texts]),
            self.dimensions,
        )
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


def count_tokens(encoder: Encoder, texts: Sequence[str], role: str) -> list[int]:
    """Tokens of each text as the model reads it, cut to its length; 0 for a model that is not one of ours."""
    of_role: Any = getattr(encoder, "encoder", None)
    if not inspect.ismethod(of_role):  # an encoder of somebody's own may hold anything under this name
        return [0] * len(texts)
    return [len(ids) for ids in of_role(role).tokenize(texts, role)]


@dataclass(frozen=True)
class Reranks:
    """An item is a question and its documents; the result, each document's score: MaxSim of a late-interaction model,
    else the similarity of the vectors, as `Embeddings` gives them."""

    encoder: AnyEncoder

    def __call__(self, items: Sequence[tuple[str, Part]]) -> list[list[float | None]]:
        for _, documents in items:
            check_lengths(documents)
        queries = [Query(str(number), query, detect_language(query)) for number, (query, _) in enumerate(items)]
        names = {
            str(number): [f"{number}:{place}" for place in range(len(documents.texts))]
            for number, (_, documents) in enumerate(items)
        }
        passages = [
            Passage(name, text, "", detect_in_bulk(text))
            for number, (_, documents) in enumerate(items)
            for name, text in zip(names[str(number)], documents.texts, strict=True)
        ]
        run = model_retriever(self.encoder, passages).score(queries, names)
        scores = {query: dict(run[query]) for query in names}
        return [[finite(scores[query][name]) for name in ids] for query, ids in names.items()]


class Service:
    """One index, by `name`; answers and log tell its `label`, which is "" where there is no other. Questions and texts
    go through the model in the thread of `batcher`; writes, which may take long and wait for other writers, in that of
    `writer`: one at a time, those that wait being synced together. `pace` is that of the daily check."""

    def __init__(
        self,
        index: Index,
        settings: ServeSettings,
        batcher: Batcher,
        reranker: AnyEncoder | None = None,
        name: str = "",
        label: str = "",
        pace: float = 0.0,
        default: bool = True,
    ) -> None:
        self.index, self.settings, self.batcher, self.reranker = index, settings, batcher, reranker
        self.name, self.label = name, label
        self.writer = Batcher(max_batch=settings.max_batch, delay=0.0, queue=settings.queue, timeout=settings.timeout)
        self.watch = Watch(index, pace, name=label)
        self.default, self.model, self.passages = default, "", 0
        self.started = int(time())

    async def begin(self) -> None:
        """Start its threads, and warm up with a question of our own."""
        self.writer.start()
        await self.batcher.submit(Warm(self.index), None, patient=True)
        facts = await self.batcher.submit(Describe(self.index), None, patient=True)
        self.model, self.passages = facts.model, facts.passages

    @property
    def models(self) -> list[str]:
        """Every name by which a request may call a model of this server."""
        reranker = [self.settings.rerank_model] if self.reranker is not None else []
        return list(dict.fromkeys([self.model, *reranker, *self.settings.aliases]))

    @property
    def place(self) -> str:
        """The name of the index for clients, to whom its path is not shown."""
        return f"the index '{self.label}'" if self.label else "the index"

    def told(self, error: InterlinguaError) -> str:
        """The error without the place of the index."""
        return without_places(str(error), {str(self.index.path): self.place})


def without_places(text: str, places: Mapping[str, str]) -> str:
    """`text` with the name for clients of each index in place of its path. A path of one word is taken for one only
    where an error names a place, `docs: …` or `docs/index.json`: elsewhere it may be a word like others."""
    wholes = {place: {Path(place).absolute(), Path(place).resolve()} for place in places if place}
    # LanceDB names its files from the root
    places = {**{str(path): places[place] for place, paths in wholes.items() for path in paths}, **places}
    regex = "|".join(
        re.escape(place) if "/" in place else rf"(?<![\w'\"./-]){re.escape(place)}(?=[:/])"
        for place in sorted(places, key=len, reverse=True)  # idx2, then idx
        if place
    )
    return re.sub(regex, lambda match: places[match[0]], text) if regex else text


class Facts(NamedTuple):
    """Facts of an index: its content, the model it is made with (a name, not the place), and its keys of metadata."""

    passages: int
    languages: dict[str, int]
    model: str
    fields: list[str]


@dataclass(frozen=True)
class Describe:
    """Describe the index; all items of a batch are alike."""

    index: Index

    def __call__(self, items: Sequence[None]) -> list[Facts]:
        self.index.refresh()
        model = Path(self.index.info().model).name or "unnamed"
        return [Facts(len(self.index), dict(self.index.languages), model, self.index.fields)] * len(items)


@dataclass(frozen=True)
class Each(Generic[Asked, Told]):
    """Several calls on the same items. The result of an item is a list: that of each call."""

    calls: tuple[Call[Asked, Told], ...]

    def __call__(self, items: Sequence[Asked]) -> list[list[Told]]:
        return [list(results) for results in zip(*(call(items) for call in self.calls), strict=True)]


async def ask_each(services: Sequence[Service], call: Callable[[Index], Call[Asked, Told]], item: Asked) -> list[Told]:
    """The same asked of the index of each service, as one job: a queue with room for one has room for all."""
    if not services:
        return []
    return await services[0].batcher.submit(Each(tuple(call(service.index) for service in services)), item)


async def facts_of(services: Sequence[Service]) -> list[Facts]:
    """The contents of the index of each service now."""
    contents = await ask_each(services, Describe, None)
    for service, facts in zip(services, contents, strict=True):
        service.passages = facts.passages
    return contents


@dataclass(frozen=True)
class Warm:
    """A first question, so that the first client does not wait for what is loaded late."""

    index: Index

    def __call__(self, items: Sequence[None]) -> list[None]:
        detect_language("interlingua")
        LateKernel.early = True
        self.index.search_many(["interlingua"], k=1)
        if (words := StaticMaxSim.of(self.index.encoder)) is not None:  # an empty index has matched nothing yet
            question = words.question("interlingua")
            words.scores(question, [question.subwords])
        return [None] * len(items)
