"""Passages by id, the documents that they were cut from, and writes, which are there for the next search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Path, Query, Request
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.responses import JSONResponse

from interlingua.data.records import Passage
from interlingua.errors import BadInput, Busy, Damaged, NotFound, Stale
from interlingua.index.index import Index
from interlingua.serving.batching import check_lengths, parts
from interlingua.serving.middleware import audit, note
from interlingua.serving.schemas import (
    MAX_ID,
    ApiError,
    AroundQuery,
    DeleteAnswer,
    DocumentAnswer,
    ErrorAnswer,
    PassagesAnswer,
    PassagesRequest,
    WriteAnswer,
)
from interlingua.serving.served import Address
from interlingua.serving.service import Service, ask_each, labelled
from interlingua.text.detection import detect_language
from interlingua.text.languages import normalise_code

Id = Annotated[str, Path(min_length=1, max_length=MAX_ID)]


class Anything(PathConvertor):
    """The rest of a path, also with line breaks, which an id may have."""

    regex = "(?s:.*)"


register_url_convertor("anything", Anything())


@dataclass(frozen=True)
class Versions:
    """Look up ids; the result, the passages that each means."""

    index: Index

    def __call__(self, items: Sequence[str]) -> list[list[dict[str, Any]]]:
        return [[passage.as_json() for passage in self.index.versions(id)] for id in items]


class Near(NamedTuple):
    """A passage by its id, and how many before and after it are wanted."""

    id: str
    around: int


@dataclass(frozen=True)
class Documents:
    """Look up the documents of passages; the result, what each holds near its passage. None where no passage has the
    id."""

    index: Index

    def __call__(self, items: Sequence[Near]) -> list[dict[str, Any] | None]:
        self.index.refresh()
        return [self._one(item) for item in items]

    def _one(self, item: Near) -> dict[str, Any] | None:
        try:
            document = self.index.document(item.id, around=item.around)
        except NotFound:
            return None
        pairs = zip(document.passages, document.parts, strict=True)
        return {
            "name": document.name,
            "source": document.source,
            "position": document.position,
            "passages": [{**passage.as_json(), "part": part} for passage, part in pairs],
        }


class Changed(NamedTuple):
    """The number of passages that a call changed, and the number that there are now."""

    changed: int
    passages: int


Write = Callable[[Index], int]
"""A write to an index; the number of passages that it changes."""


@dataclass(frozen=True)
class Change:
    """Writes that waited together: done one by one, each whole or not at all, and synced together, before any is
    acknowledged. One result each: a write that failed has its own error. Where the sync fails, the others are
    `NotSafe`."""

    index: Index

    def __call__(self, items: Sequence[Write]) -> list[Changed | Exception]:
        results: list[Changed | Exception] = []
        try:
            with self.index.together():
                for item in items:
                    try:
                        results.append(Changed(item(self.index), len(self.index)))
                    except Exception as error:
                        results.append(error)
        except (Busy, Damaged, Stale, OSError) as error:  # another process writes, or the disk does not take it
            if not results:
                return [error] * len(items)
            unsafe = NotSafe(f"the change is made and found, but the disk may lose it ({_said(error)}). Send it again.")
            return [result if isinstance(result, Exception) else unsafe for result in results]
        return results


class NotSafe(Damaged):
    """A change that is made, and that a power cut may undo."""


def _said(error: Exception) -> str:
    """The part of an error that a client may know: not where the index is."""
    return error.strerror or "the disk fails" if isinstance(error, OSError) else str(error).rstrip(".")


AUDITED = 10
"""Ids of a write that are in its audit line."""


def passage_routes(at: Address) -> APIRouter:
    """Passages by id, their documents, and writes."""
    router = APIRouter(
        prefix=at.prefix, responses={409: {"model": ErrorAnswer, "description": "The index does not take it now"}}
    )
    one_service, all_services = Depends(at.one), Depends(at.every)

    @router.post("/passages", response_model=WriteAnswer, summary="Add passages, or replace those of these ids")
    async def write(body: PassagesRequest, request: Request, service: Service = one_service) -> JSONResponse:
        passages = _passages(body)
        note(request.scope, texts=len(passages))
        audit(request.scope, passages=len(passages), ids=[passage.id for passage in passages[:AUDITED]])
        change = await _written(service, lambda index: index.replace(passages), len(passages))
        audit(request.scope, changed=change.changed)
        return JSONResponse({"written": change.changed, "passages": change.passages})

    @router.get(
        "/passages/{id:anything}",
        response_model=PassagesAnswer,
        summary="The passages with an id, or the one called source:id",
    )
    async def read(id: Id, services: tuple[Service, ...] = all_services) -> JSONResponse:
        answers = await ask_each(services, Versions, id)
        passages = [
            {**passage, **labelled(service.label)}
            for service, versions in zip(services, answers, strict=True)
            for passage in versions
        ]
        if not passages:
            raise ApiError(404, "not_found", "no passage has this id.")
        return JSONResponse({"passages": passages})

    @router.get(
        "/documents/{id:anything}",
        response_model=DocumentAnswer,
        summary="The document of the passage with an id: those before and after it, `?around=2` of each",
    )
    async def document(
        id: Id, near: Annotated[AroundQuery, Query()], services: tuple[Service, ...] = all_services
    ) -> JSONResponse:
        documents = await ask_each(services, Documents, Near(id, near.around))
        matches = [(one, document) for one, document in zip(services, documents, strict=True) if document is not None]
        if not matches:
            raise ApiError(404, "not_found", "no passage has this id.")
        if len(matches) > 1:
            names = ", ".join(service.label for service, _ in matches)
            raise ApiError(
                400, "bad_request", f"several indexes have this id: {names}. Ask /indexes/NAME/documents/ID."
            )
        ((service, document),) = matches
        return JSONResponse({**document, **labelled(service.label)})

    @router.delete(
        "/passages/{id:anything}",
        response_model=DeleteAnswer,
        summary="Delete the passages with an id, or the one called source:id",
    )
    async def delete(id: Id, request: Request, service: Service = one_service) -> JSONResponse:
        change = await _written(service, lambda index: index.delete([id]))
        audit(request.scope, changed=change.changed)
        if not change.changed:
            raise ApiError(404, "not_found", "no passage has this id.")
        return JSONResponse({"deleted": change.changed, "passages": change.passages})

    return router


def _passages(body: PassagesRequest) -> list[Passage]:
    """The passages of a request, each with its language. Raises ApiError 422 for an id that occurs twice, and for texts
    that grow too long in NFKC."""
    (all_texts,) = parts([passage.text for passage in body.passages], len(body.passages))
    check_lengths(all_texts)
    passages = [
        Passage(
            passage.id,
            passage.text,
            passage.title,
            _code(passage.lang, number) if passage.lang else detect_language(passage.text),
            passage.metadata,
        )
        for number, passage in enumerate(body.passages)
    ]
    duplicates = [id for (_, id), count in Counter(passage.key for passage in passages).items() if count > 1]
    if duplicates:
        raise ApiError(422, "invalid_request", f"passages: the id '{duplicates[0]}' occurs more than once.")
    return passages


async def _written(service: Service, write: Write, size: int = 1) -> Changed:
    """Raises ApiError 409 where the index does not take it: another process is writing, the disk is full."""
    result = await service.writer.submit(Change(service.index), write, size)
    if isinstance(result, Busy | Damaged | Stale | OSError):
        code = "not_safe" if isinstance(result, NotSafe) else "not_written"
        told = f"{_said(result)}." if isinstance(result, OSError) else service.told(result)
        raise ApiError(409, code, told, {"Retry-After": "5"}) from result
    if isinstance(result, Exception):
        raise result
    service.passages = result.passages
    return result


def _code(lang: str, number: int) -> str:
    try:
        return normalise_code(lang)
    except BadInput as error:
        raise BadInput(f"passages.{number}.lang: {error}") from error
