"""GET /health, /info, /metrics and /docs: the server about itself."""

from __future__ import annotations

from fastapi import APIRouter, FastAPI
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response

from interlingua.serving import schemas
from interlingua.serving.docs_page import STYLE, docs_page
from interlingua.serving.service import Service


def status_routes(service: Service, app: FastAPI) -> APIRouter:
    """What monitoring, the page and a reader of the API ask for."""
    router = APIRouter()

    @router.get("/health", response_model=schemas.HealthAnswer, summary="Whether the server answers questions",
                responses={503: {"model": schemas.HealthAnswer, "description": "Not now"}})
    async def health() -> JSONResponse:
        status = service.status
        return JSONResponse({"status": status}, 200 if status == "ready" else 503)

    @router.get("/info", response_model=schemas.InfoAnswer, summary="What the index holds")
    async def info() -> JSONResponse:
        facts = await service.facts()
        return JSONResponse({"passages": facts.passages, "languages": facts.languages,
                             "modes": ["hybrid", "dense", "lexical"], "rerank": service.reranker is not None,
                             "model": facts.model})

    @router.get("/metrics", response_class=PlainTextResponse, summary="For Prometheus")
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()))

    @router.get("/docs.css", include_in_schema=False)
    async def style() -> Response:
        return Response(STYLE, media_type="text/css")

    return router
