"""POST /passages and DELETE /passages/{id}, for who has the token."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import JSONResponse

from interlingua.data.records import Passage
from interlingua.errors import InterlinguaError
from interlingua.serving import schemas
from interlingua.serving.errors import ApiError
from interlingua.serving.request_log import note
from interlingua.serving.service import Service
from interlingua.serving.writes import Change, Changed, Delete, Write
from interlingua.text.detect import detect_language
from interlingua.text.languages import normalise_code


def passage_routes(service: Service) -> APIRouter:
    """Changes of the index. They are there for the next search."""
    router = APIRouter(responses={409: {"model": schemas.ErrorAnswer, "description": "The index does not take it now"}})

    @router.post("/passages", response_model=schemas.WriteAnswer, summary="Add passages, or replace those of these ids")
    async def write(body: schemas.PassagesRequest, request: Request) -> JSONResponse:
        passages = [
            Passage(one.id, one.text, one.title, normalise_code(one.lang) if one.lang else detect_language(one.text),
                    one.metadata) for one in body.passages]
        twice = [id for (_, id), count in Counter(passage.key for passage in passages).items() if count > 1]
        if twice:
            raise ApiError(422, "invalid_request", f"passages: the id '{twice[0]}' is there more than once.")
        note(request.scope, texts=len(passages))
        done = await _written(service, Write(passages), len(passages))
        return JSONResponse({"written": done.changed, "passages": done.passages})

    @router.delete("/passages/{id:path}", response_model=schemas.DeleteAnswer,
                   summary="Delete the passages with an id, or the one called source:id")
    async def delete(id: Annotated[str, Path(min_length=1, max_length=schemas.MAX_ID)]) -> JSONResponse:
        done = await _written(service, Delete(id))
        if not done.changed:
            raise ApiError(404, "not_found", "no passage has this id.")
        return JSONResponse({"deleted": done.changed, "passages": done.passages})

    return router


async def _written(service: Service, write: Write | Delete, size: int = 1) -> Changed:
    """Raises ApiError 409 where the index does not take it: another process is writing, the disk is full."""
    done = await service.writer.submit(Change(service.index), write, size)
    if isinstance(done, InterlinguaError):
        raise ApiError(409, "not_written", service.told(done), {"Retry-After": "5"}) from done
    if isinstance(done, Exception):
        raise done
    service.metrics.passages.set(done.passages)
    return done
