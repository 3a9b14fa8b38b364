"""The application: endpoints, and what stands around them."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from interlingua import __version__
from interlingua.serving import schemas
from interlingua.serving.embedding_routes import embedding_routes
from interlingua.serving.errors import tell_errors
from interlingua.serving.host_names import HostNames
from interlingua.serving.page_files import page_routes
from interlingua.serving.passage_routes import passage_routes
from interlingua.serving.request_log import RequestLog
from interlingua.serving.search_routes import search_routes
from interlingua.serving.service import Service
from interlingua.serving.settings import ServeSettings
from interlingua.serving.status_routes import status_routes
from interlingua.serving.tokens import Tokens
from interlingua.serving.whole_body import WholeBody

REFUSALS = {
    400: "Not possible here, or not JSON", 401: "The token is missing or wrong", 403: "Writing is off",
    404: "There is no such thing", 408: "The request came too slowly", 413: "The body is too large",
    422: "A field is missing, misspelt or out of its limits, or the question took too much time",
    503: "Too many requests wait; see Retry-After",
    504: "No answer in time",
}
DESCRIPTION = "Search in any language, and the model behind it."


def create_app(index: Any, settings: ServeSettings | None = None, reranker: Any = None) -> FastAPI:
    """The HTTP API and the page over `index`, an `Index` or what has its methods.

    `reranker` is a model of `load_any`, used by searches that ask for it and by /rerank, which otherwise compares the
    vectors of the index's own model. What the application needs it
    takes when it starts (`with TestClient(app)` in tests).
    """
    service = Service(index, settings or ServeSettings(), reranker)
    app = FastAPI(title="interlingua", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None,
                  redirect_slashes=False, lifespan=service.life,
                  responses={code: {"model": schemas.ErrorAnswer, "description": text}
                             for code, text in REFUSALS.items()})
    tell_errors(app, service.told)
    app.include_router(search_routes(service))
    app.include_router(embedding_routes(service))
    app.include_router(passage_routes(service))
    app.include_router(status_routes(service, app))
    app.router.routes.extend(page_routes())
    app.add_middleware(WholeBody, max_body=service.settings.max_body, timeout=service.settings.timeout)
    app.add_middleware(Tokens, settings=service.settings)
    app.add_middleware(HostNames, names=service.settings.names)
    app.add_middleware(RequestLog, metrics=service.metrics)  # the last is the outermost
    return app
