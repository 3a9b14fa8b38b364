"""Endpoints: search, passages, embeddings, status, the page and the API's page."""

from __future__ import annotations

import hashlib
import json
import mimetypes
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from time import perf_counter
from typing import Annotated, Any
from uuid import uuid4

from fastapi import APIRouter, Depends, FastAPI, Path, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from interlingua.index.metadata import Question
from interlingua.models.protocols import Role
from interlingua.serving.batching import parts
from interlingua.serving.federated import Federated
from interlingua.serving.middleware import note
from interlingua.serving.schemas import (
    MAX_ID,
    ApiError,
    CohereRerankAnswer,
    EmbeddingsAnswer,
    EmbeddingsRequest,
    HealthAnswer,
    IndexesAnswer,
    InfoAnswer,
    ModelCard,
    ModelsAnswer,
    RerankAnswer,
    RerankRequest,
    SearchAnswer,
    SearchRequest,
    check_model,
)
from interlingua.serving.served import Address, Served
from interlingua.serving.service import Embeddings, Facts, Reranks, Searches, Service, facts_of
from interlingua.text.detection import detect_language
from interlingua.text.languages import find_code, normalise_code

STYLE = """\
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; font-family: ui-monospace, monospace; font-size: 1.1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884; }
code, pre { font-family: ui-monospace, monospace; font-size: .9em; }
pre { overflow-x: auto; padding: .75rem; background: #8881; }
"""


def docs_page(spec: Mapping[str, Any]) -> str:
    """The whole page."""
    schemas = spec["components"]["schemas"]
    parts = [
        _operation(path, method, operation, schemas)
        for path, methods in spec["paths"].items()
        for method, operation in methods.items()
    ]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<title>{escape(spec["info"]["title"])}</title><link rel="stylesheet" href="/docs.css">'
        f"<h1>{escape(spec['info']['title'])}</h1><p>{escape(spec['info']['description'])} "
        f'The description for programs is <a href="/openapi.json">openapi.json</a>.</p>{"".join(parts)}</html>'
    )


def _operation(path: str, method: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    schema = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    body = _fields(schema, schemas) if schema else ""
    answers = "".join(
        f"<tr><td><code>{code}</code></td><td>{escape(answer['description'])}</td></tr>"
        for code, answer in operation["responses"].items()
    )
    return (
        f"<h2>{method.upper()} {escape(path)}</h2><p>{escape(operation['summary'])}.</p>{body}"
        f"<table><tr><th>status</th><th></th></tr>{answers}</table>"
    )


def _fields(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    model = _resolved(schema, schemas)
    required = model.get("required", ())
    rows = [
        f"<tr><td><code>{escape(name)}</code></td><td><code>{escape(_type(field, schemas))}</code></td>"
        f"<td>{'' if name in required else '<code>' + escape(json.dumps(field.get('default'))) + '</code>'}</td>"
        f"<td>{escape(field.get('description', ''))}</td></tr>"
        for name, field in model["properties"].items()
    ]
    return f"<table><tr><th>field</th><th>type</th><th>without it</th><th></th></tr>{''.join(rows)}</table>"


def _type(field: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    """A short name of a type: `list of string`, `"float" | "base64"`, `integer 1–1000`."""
    if "$ref" in field:
        inner = _resolved(field, schemas)
        return "{" + ", ".join(f"{name}: {_type(one, schemas)}" for name, one in inner["properties"].items()) + "}"
    if "anyOf" in field:
        return " | ".join(_type(one, schemas) for one in field["anyOf"])
    if "enum" in field or "const" in field:
        return " | ".join(json.dumps(value) for value in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"list of {_type(field['items'], schemas)}"
    if field.get("type") == "object":
        return f"{{string: {_type(field.get('additionalProperties', {}), schemas)}}}"
    minimum, maximum = field.get("minimum"), field.get("maximum")
    span = f" {minimum}–{maximum}" if maximum is not None else f" from {minimum}" if minimum is not None else ""
    return f"{field.get('type', 'anything')}{span}"


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    model: Mapping[str, Any] = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return model


def page_routes() -> list[Route]:
    """GET / and a route for each file in `serving/page`; / is `index.html`."""
    page = files("interlingua.serving").joinpath("page").iterdir()
    names = {file.name: file for file in page if file.is_file() and not file.name.startswith((".", "_"))}
    return [Route(f"/{name}", _answer(file)) for name, file in (names | {"": names["index.html"]}).items()]


def _answer(file: Traversable) -> Callable[[Request], Awaitable[Response]]:
    """Answer with a file. Its tag tells a browser whether it has it already."""
    content, media_type = file.read_bytes(), mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()[:16]}"', "Cache-Control": "no-cache"}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)

    return answer


USUAL = 500
"""Characters that count as one text of a batch: a few long questions fill one, and others do not wait for many."""


def search_routes(at: Address) -> APIRouter:
    """Search in an index, or in several."""
    router, all_services = APIRouter(prefix=at.prefix), Depends(at.every)

    @router.post("/search", response_model=SearchAnswer, summary="Find passages for a question in any language")
    async def search(
        body: SearchRequest, request: Request, services: tuple[Service, ...] = all_services
    ) -> JSONResponse:
        start = perf_counter()
        if body.indexes is not None:
            services = at.named(request, body.indexes)
        first = services[0]
        if first.settings.log_queries:
            note(request.scope, query=body.query)
        if len(services) > 1:
            note(request.scope, indexes=[service.label for service in services])
        elif first.label:
            note(request.scope, index=first.label)
        lang, langs = _languages(body)
        if body.rerank and first.reranker is None:
            raise ApiError(400, "no_reranker", "rerank: this server has no reranker. Start it with --rerank MODEL.")
        searches = tuple(
            Searches(
                service.index,
                service.reranker if body.rerank else None,
                body.k,
                body.mode,
                langs,
                body.lang_of_results == "same",
                body.where,
                body.highlight,
                service.settings.budget,
                body.min_score,
                body.group_by,
                tuple(body.facets),
                body.distinct,
                service.label,
            )
            for service in services
        )
        question = Question(body.query, lang)
        call = searches[0] if len(searches) == 1 else Federated(searches)
        size = len(searches) * (1 + len(question.normal) // USUAL)
        answer = await first.batcher.submit(call, question, size)
        note(request.scope, hits=len(answer.hits))
        took = round((perf_counter() - start) * 1e3, 1)
        return JSONResponse(
            {
                "query": body.query,
                "lang": lang,
                "mode": body.mode,
                "took_ms": took,
                "hits": answer.hits,
                "notices": answer.notices,
                "facets": answer.facets,
            }
        )

    return router


def rerank_routes(at: Address) -> APIRouter:
    """Order documents that a client brings: in Jina's form, and in the two of Cohere."""
    router, one_service = APIRouter(prefix=at.prefix), Depends(at.one)

    async def reranked(service: Service, body: RerankRequest, request: Request) -> tuple[str, list[dict[str, Any]]]:
        """The model's name, and the results, best first."""
        if service.settings.log_queries:
            note(request.scope, query=body.query)
        texts = [document.text for document in body.documents]
        name = service.settings.rerank_model if service.reranker is not None else service.model
        check_model(body.model, name, service.settings.aliases)
        call = Reranks(service.index.encoder if service.reranker is None else service.reranker)
        scores: list[float | None] = []
        for part in parts(texts, service.settings.max_batch):
            scores += await service.batcher.submit(call, (body.query, part), len(part.texts))
        note(request.scope, texts=len(texts))
        # a document without a score (no tokens) is the last; equal ones stay in the order sent
        order = sorted(range(len(texts)), key=lambda place: (scores[place] is None, -(scores[place] or 0.0)))
        results: list[dict[str, Any]] = [
            {"index": place, "relevance_score": scores[place]} for place in order[: body.top_n]
        ]
        if body.return_documents:
            for result in results:
                result["document"] = {"text": texts[result["index"]]}
        return name, results

    @router.post("/rerank", response_model=RerankAnswer, summary="Order documents by how well they answer")
    async def rerank(body: RerankRequest, request: Request, service: Service = one_service) -> JSONResponse:
        name, results = await reranked(service, body, request)
        return JSONResponse({"model": name, "results": results})

    def cohere(version: str) -> None:
        @router.post(
            f"/v{version}/rerank",
            response_model=CohereRerankAnswer,
            summary=f"Order documents (the form of Cohere's version {version})",
            name=f"rerank_v{version}",
        )
        async def answer(body: RerankRequest, request: Request, service: Service = one_service) -> JSONResponse:
            _, results = await reranked(service, body, request)
            scores = [result["relevance_score"] for result in results if result["relevance_score"] is not None]
            lowest = min(scores, default=0.0)
            for result in results:
                if result["relevance_score"] is None:  # their clients need a number
                    result["relevance_score"] = lowest
            return JSONResponse({"id": str(uuid4()), "results": results, "meta": {"api_version": {"version": version}}})

    cohere("1")
    cohere("2")
    return router


def _languages(body: SearchRequest) -> tuple[str, tuple[str, ...] | None]:
    """The language of the question, "" where it is not sure, and those of the results."""
    lang = normalise_code(body.lang) if body.lang else detect_language(body.query)
    if body.lang_of_results == "any":
        return lang, tuple(sorted({find_code(code) or code for code in body.langs})) if body.langs else None
    if body.langs is not None:
        raise ApiError(422, "invalid_request", "lang_of_results: send `same` or langs, not both.")
    if not lang:
        raise ApiError(
            400, "language_not_sure", "lang_of_results: the question's language was not detected for sure. Set lang."
        )
    return lang, (lang,)


def embedding_routes(at: Address) -> APIRouter:
    """Vectors of the index's own model."""
    router, one_service = APIRouter(prefix=at.prefix), Depends(at.one)

    @router.post("/v1/embeddings", response_model=EmbeddingsAnswer, summary="Vectors of texts (OpenAI's form)")
    async def embeddings(body: EmbeddingsRequest, request: Request, service: Service = one_service) -> JSONResponse:
        check_model(body.model, service.model, service.settings.aliases)
        role: Role = "query" if body.input_type == "query" else "passage"
        call = Embeddings(service.index, role, body.dimensions, body.encoding_format == "base64")
        vectors: list[Any] = []
        tokens = 0
        for part in parts(body.input, service.settings.max_batch):
            result = await service.batcher.submit(call, part, len(part.texts))
            vectors += result.vectors
            tokens += result.tokens
        note(request.scope, texts=len(body.input), tokens=tokens)
        data = [{"object": "embedding", "index": place, "embedding": vector} for place, vector in enumerate(vectors)]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "model": service.model, "data": data, "usage": usage})

    def card(name: str, service: Service) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": service.started, "owned_by": "interlingua"}

    @router.get("/v1/models", response_model=ModelsAnswer, summary="Names of the models (OpenAI's form)")
    async def models(service: Service = one_service) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [card(name, service) for name in service.models]})

    @router.get("/v1/models/{name:path}", response_model=ModelCard, summary="One of them")
    async def model(name: Annotated[str, Path(max_length=MAX_ID)], service: Service = one_service) -> JSONResponse:
        if name not in service.models:
            raise ApiError(404, "model_not_found", "this server has no model of this name. GET /v1/models lists them.")
        return JSONResponse(card(name, service))

    return router


def info_routes(at: Address) -> APIRouter:
    """The content of an index, or of several."""
    router, all_services = APIRouter(prefix=at.prefix), Depends(at.every)

    @router.get("/info", response_model=InfoAnswer, summary="What the index holds, or all indexes together")
    async def info(services: tuple[Service, ...] = all_services) -> JSONResponse:
        facts = await facts_of(services)
        languages = Counter[str]()
        for one in facts:
            languages.update(one.languages)
        several = {"indexes": list(map(_card, services, facts))} if len(facts) > 1 else {}
        return JSONResponse(
            {
                "passages": sum(one.passages for one in facts),
                "languages": languages,
                "modes": ["hybrid", "dense", "lexical"],
                "rerank": services[0].reranker is not None,
                "model": ", ".join(dict.fromkeys(one.model for one in facts)),
                "fields": sorted({field for one in facts for field in one.fields}),
                **several,
            }
        )

    return router


def _card(service: Service, facts: Facts) -> dict[str, Any]:
    return {
        "name": service.name,
        "passages": facts.passages,
        "languages": facts.languages,
        "fields": facts.fields,
        "model": facts.model,
        "default": service.default,
    }


def status_routes(served: Served, app: FastAPI) -> APIRouter:
    """Routes for monitoring, for the page and for the reader of the API."""
    router, all_services = APIRouter(), Depends(served.without.every)

    @router.get(
        "/health",
        response_model=HealthAnswer,
        summary="Whether the server answers questions",
        responses={503: {"model": HealthAnswer, "description": "Not now"}},
    )
    async def health() -> JSONResponse:
        await served.look_again()
        status = served.status
        return JSONResponse({"status": status}, 200 if status == "ready" else 503)

    @router.get("/indexes", response_model=IndexesAnswer, summary="The indexes that the token may search")
    async def indexes(services: tuple[Service, ...] = all_services) -> JSONResponse:
        facts = await facts_of(services)
        return JSONResponse({"indexes": list(map(_card, services, facts))})

    @router.get("/metrics", response_class=PlainTextResponse, summary="For Prometheus")
    async def metrics() -> Response:
        return Response(served.metrics.text(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()))

    @router.get("/docs.css", include_in_schema=False)
    async def style() -> Response:
        return Response(STYLE, media_type="text/css")

    return router
