"""POST /v1/embeddings, as OpenAI's clients know it."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from interlingua.serving import schemas
from interlingua.serving.embeddings import Embeddings
from interlingua.serving.errors import check_model
from interlingua.serving.request_log import note
from interlingua.serving.service import Service


def embedding_routes(service: Service) -> APIRouter:
    """Vectors of the index's own model."""
    router = APIRouter()

    @router.post("/v1/embeddings", response_model=schemas.EmbeddingsAnswer, summary="Vectors of texts (OpenAI's form)")
    async def embeddings(body: schemas.EmbeddingsRequest, request: Request) -> JSONResponse:
        check_model(body.model, service.model)
        role = "query" if body.input_type == "query" else "passage"
        call = Embeddings(service.index, role, body.dimensions, body.encoding_format == "base64")
        found = await service.batcher.submit(call, body.input, len(body.input))
        note(request.scope, texts=len(body.input), tokens=found.tokens)
        data = [{"object": "embedding", "index": place, "embedding": vector}
                for place, vector in enumerate(found.vectors)]
        usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
        return JSONResponse({"object": "list", "model": service.model, "data": data, "usage": usage})

    return router
