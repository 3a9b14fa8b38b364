"""The indexes of a server, by name: which of them a request means, their common life and errors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path as FilePath
from typing import Annotated, NamedTuple

from fastapi import FastAPI, Path, Request

from interlingua.errors import BadInput, Busy, Damaged, InterlinguaError, NotFound, Stale
from interlingua.index.index import Index
from interlingua.index.metadata import load_encoder
from interlingua.index.store import is_address, is_index
from interlingua.models.protocols import AnyEncoder, Encoder
from interlingua.serving.access import GRANT, INDEXES, NAME, NAMING, Grant, refusal
from interlingua.serving.batching import Batcher
from interlingua.serving.middleware import Metrics
from interlingua.serving.schemas import ApiError
from interlingua.serving.service import ServeSettings, Service, Warm, ask_each, without_places

ONLY = "index"
"""The name of an only index that has no other."""


class Address(NamedTuple):
    """The indexes that paths with a `prefix` mean: `one` for what only one index can do, `every` for what all can do
    together, `named` for a request that names some of them itself."""

    prefix: str
    one: Callable[..., Awaitable[Service]]
    every: Callable[..., Awaitable[tuple[Service, ...]]]
    named: Callable[[Request, Sequence[str]], tuple[Service, ...]]


class Served:
    """One `Service` for each of `indexes`, by name; the first is the default. Models run in one thread for all.

    Raises BadInput for a name with other characters than those of `NAME`, and for a token of an index that is not
    there.
    """

    def __init__(
        self, indexes: Mapping[str, Index], settings: ServeSettings, reranker: AnyEncoder | None = None
    ) -> None:
        if not indexes:
            raise BadInput("there is no index to serve. Give at least one.")
        for name in indexes:
            check_name(name)
        for token in settings.access:
            if token.indexes - set(indexes):
                raise BadInput(
                    f"the token '{token.name}' has a scope for an index that is not served. "
                    f"There are: {', '.join(sorted(indexes))}."
                )
        self.metrics = Metrics()
        self.batcher = Batcher(
            max_batch=settings.max_batch,
            delay=settings.delay,
            queue=settings.queue,
            timeout=settings.timeout,
            on_batch=self.metrics.batches.observe,
        )
        self.services = {
            name: Service(
                index,
                settings,
                self.batcher,
                reranker,
                name=name,
                label=name if len(indexes) > 1 else "",
                pace=settings.check_pace / len(indexes),
                default=name == next(iter(indexes)),
            )
            for name, index in indexes.items()
        }
        self.metrics.waiting.set_function(lambda: self.batcher.waiting)
        self.metrics.passages.set_function(lambda: sum(service.passages for service in self.services.values()))
        for name, service in self.services.items():
            self.metrics.of_index.labels(name).set_function(lambda service=service: service.passages)
        self.ready = self.failed = False

    @asynccontextmanager
    async def life(self, app: FastAPI) -> AsyncIterator[None]:
        """Start the threads, warm up, and at the end finish what waits."""
        services = self.services.values()
        self.batcher.start()
        try:
            for service in services:
                await service.begin()
            for route in app.routes:  # FastAPI makes one when it is first looked at: no client waits for that
                route.matches({"type": "http", "method": "GET", "path": "/", "root_path": "", "headers": []})
            self.ready = True
            for service in services:
                service.watch.start()
            yield
        finally:
            for service in services:
                service.watch.close()
                await service.writer.close()
            await self.batcher.close()

    @property
    def status(self) -> str:
        """ "ready", or why not."""
        if self.batcher.closing:
            return "stopping"
        if not self.ready:
            return "starting"
        if self.batcher.stuck:
            return "stuck"
        return "index_unavailable" if self.failed else "ready"

    def fail(self) -> None:
        """Note that an index could not be read."""
        self.failed = True

    async def look_again(self) -> None:
        """Ask every index a question, where one could not be read before. Where all answer, none is unavailable."""
        if self.failed:
            with suppress(BadInput, Busy, Damaged, NotFound, Stale, ApiError, OSError):
                await ask_each(tuple(self.services.values()), Warm, None)
                self.failed = False

    def told(self, error: InterlinguaError) -> str:
        """The error without the places of the indexes, which are no business of a client."""
        places = {str(service.index.path): service.place for service in self.services.values()}
        return without_places(str(error), places)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the indexes, that of the default first."""
        return tuple(self.services)

    @property
    def within(self) -> Address:
        """The index whose name is in the path."""
        return Address(f"{INDEXES}/{{index}}", self._named, self._alone, self._none)

    @property
    def without(self) -> Address:
        """No name in the path: the default, or all that the token may search."""
        return Address("", self._default, self._searchable, self._chosen)

    async def _named(self, index: Annotated[str, Path(description="the name of an index")]) -> Service:
        if index not in self.services:
            raise unknown()
        return self.services[index]

    async def _alone(self, index: Annotated[str, Path(description="the name of an index")]) -> tuple[Service, ...]:
        return (await self._named(index),)

    def _none(self, request: Request, names: Sequence[str]) -> tuple[Service, ...]:
        raise ApiError(422, "invalid_request", "indexes: the path names the index. Leave it out, or POST /search.")

    async def _default(self) -> Service:
        return self.services[self.names[0]]

    async def _searchable(self, request: Request) -> tuple[Service, ...]:
        grant: Grant = request.scope[GRANT]
        return tuple(service for name, service in self.services.items() if name in grant.searchable)

    def _chosen(self, request: Request, names: Sequence[str]) -> tuple[Service, ...]:
        grant: Grant = request.scope[GRANT]
        for name in names:
            if name not in self.services:
                raise unknown()
            if name not in grant.searchable:
                raise refusal("search", grant.token, name)
        return tuple(service for name, service in self.services.items() if name in names)


def unknown() -> ApiError:
    """The error for a name that no index has."""
    return ApiError(404, "index_not_found", "this server has no index of this name. GET /indexes lists them.")


def only_name(place: object) -> str:
    """The name of an index that is served alone: that of its folder, where an index may have it."""
    name = last_part(place)
    return name if NAME.fullmatch(name) else ONLY


def last_part(place: object) -> str:
    """The name of a folder, or the last part of another address."""
    text = str(place)
    return text.rstrip("/").rpartition("/")[2] if is_address(text) else FilePath(text).absolute().name


def check_name(name: str, place: object = "IDX") -> None:
    """Raise BadInput for a name that the index at a place cannot be served under."""
    if not NAME.fullmatch(name):
        raise BadInput(f"'{name}': is no name for an index: {NAMING}. Name it: NAME={place}.")


def places_of(words: Sequence[str]) -> dict[str, str]:
    """Indexes by name, as a command line gives them: each an index, `NAME=INDEX`, or a folder that holds indexes. An
    index without a name has that of its folder. Raises BadInput for two of one name, and for a name that is none."""
    pairs: list[tuple[str, str]] = []
    for word in words:
        name, sign, place = word.partition("=")
        if sign and not (is_address(word) or FilePath(word).exists()):
            check_name(name, place)
            pairs.append((name, place))
        else:
            pairs += [("", inside) for inside in _inside(word)]
    if len(pairs) == 1 and not pairs[0][0]:
        return {only_name(pairs[0][1]): pairs[0][1]}
    places: dict[str, str] = {}
    for name, place in pairs:
        if not name:
            check_name(name := last_part(place), place)
        if name in places:
            raise BadInput(f"{places[name]} and {place}: both are called '{name}'. Name one of them: NAME={place}.")
        places[name] = place
    return places


def _inside(place: str) -> list[str]:
    """The index at a place, or those that lie in the folder there."""
    folder = FilePath(place)
    if is_index(place) or not folder.is_dir():
        return [place]
    try:
        return [str(path) for path in sorted(folder.iterdir()) if is_index(path) and path.name[0] != "."] or [place]
    except OSError as error:
        raise BadInput(f"{place}: cannot be read ({error.strerror}).") from error


def open_all(
    places: Mapping[str, str], *, model: str | None = None, precision: str | None = None, durability: str = "full"
) -> dict[str, Index]:
    """Open the indexes at some places. Those that one model made have one in memory. `model` is the model of all,
    where it is not at the place that they remember. Raises what `Index.open` and `load_encoder` raise."""
    encoders: dict[str, Encoder] = {}
    indexes = {}
    for name, place in places.items():
        index = Index.open(place, durability=durability)
        fingerprint = json.dumps(index.metadata.fingerprint, sort_keys=True)
        if fingerprint in encoders or model or precision:
            index.close()
            if fingerprint not in encoders:
                encoders[fingerprint] = load_encoder(index.metadata, place, model=model, precision=precision)
            index = Index.open(place, encoders[fingerprint], durability=durability)
        encoders[fingerprint] = index.encoder  # loaded now, if it was not
        indexes[name] = index
    return indexes
