"""POST /search and POST /rerank."""

from __future__ import annotations

from time import perf_counter
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse

from interlingua.retrieval.index_questions import Question
from interlingua.serving import schemas
from interlingua.serving.embeddings import Reranks
from interlingua.serving.errors import ApiError, check_model
from interlingua.serving.request_log import note
from interlingua.serving.searches import Searches
from interlingua.serving.service import Service
from interlingua.text.detect import detect_language
from interlingua.text.languages import find_code, normalise_code

USUAL = 500
"""Characters that count as one text of a batch: a few long questions fill one, and others do not wait for many."""


def search_routes(service: Service) -> APIRouter:
    """The two ways to rank: what is in the index, and what a client brings."""
    router = APIRouter()

    @router.post("/search", response_model=schemas.SearchAnswer, summary="Find passages for a question in any language")
    async def search(body: schemas.SearchRequest, request: Request) -> JSONResponse:
        start = perf_counter()
        if service.settings.log_queries:
            note(request.scope, query=body.query)
        lang, langs = _languages(body)
        if body.rerank and service.reranker is None:
            raise ApiError(400, "no_reranker", "rerank: this server has no reranker. Start it with --rerank MODEL.")
        searches = Searches(
            service.index, service.reranker if body.rerank else None, body.k, body.mode, langs,
            body.lang_of_results == "same", tuple(sorted((body.where or {}).items())), body.highlight,
            service.settings.budget)
        question = Question(body.query, lang)
        found = await service.batcher.submit(searches, question, 1 + len(question.normal) // USUAL)
        note(request.scope, hits=len(found.hits))
        took = round((perf_counter() - start) * 1e3, 1)
        return JSONResponse({"query": body.query, "lang": lang, "mode": body.mode, "took_ms": took, "hits": found.hits,
                             "notices": found.notices})

    @router.post("/rerank", response_model=schemas.RerankAnswer, summary="Order documents by how well they answer")
    async def rerank(body: schemas.RerankRequest, request: Request) -> JSONResponse:
        if service.settings.log_queries:
            note(request.scope, query=body.query)
        texts = [document if isinstance(document, str) else document.text for document in body.documents]
        name = service.settings.rerank_model if service.reranker is not None else service.model
        check_model(body.model, name)
        scorer = service.index.encoder if service.reranker is None else service.reranker
        scores = await service.batcher.submit(Reranks(scorer), (body.query, texts), len(texts))
        note(request.scope, texts=len(texts))
        # a document without a score (no tokens) is the last; equal ones stay in the order sent
        order = sorted(range(len(texts)), key=lambda place: (scores[place] is None, -(scores[place] or 0.0)))
        results: list[dict[str, Any]] = [{"index": place, "relevance_score": scores[place]}
                                         for place in order[: body.top_n]]
        if body.return_documents:
            for result in results:
                result["document"] = {"text": texts[result["index"]]}
        return JSONResponse({"model": name, "results": results})

    return router


def _languages(body: schemas.SearchRequest) -> tuple[str, tuple[str, ...] | None]:
    """The language of the question, "" where it is not sure, and those of the results."""
    lang = normalise_code(body.lang) if body.lang else detect_language(body.query)
    if body.lang_of_results == "any":
        return lang, tuple(sorted({find_code(one) or one for one in body.langs})) if body.langs else None
    if body.langs is not None:
        raise ApiError(422, "invalid_request", "lang_of_results: `same` and langs exclude each other. Give one.")
    if not lang:
        raise ApiError(400, "language_not_sure", "lang_of_results: the language of this question is not sure. Say it "
                       "with lang.")
    return lang, (lang,)
