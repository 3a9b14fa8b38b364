"""The application: the endpoints, what lies around every request, and what may be refused."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import FastAPI

from interlingua import __version__
from interlingua.index.index import Index
from interlingua.models.protocols import AnyEncoder
from interlingua.serving.access import Tokens
from interlingua.serving.middleware import Head, HostNames, ReadRest, RequestLog, WholeBody
from interlingua.serving.passages import passage_routes
from interlingua.serving.routes import (
    embedding_routes,
    info_routes,
    page_routes,
    rerank_routes,
    search_routes,
    status_routes,
)
from interlingua.serving.schemas import ErrorAnswer, tell_errors
from interlingua.serving.served import Served, only_name
from interlingua.serving.service import ServeSettings

REFUSALS = {
    400: "Not possible here, or not JSON",
    401: "The token is missing or wrong",
    403: "Writing is off, or the token has not the scope for this",
    404: "There is no such thing",
    408: "The request came too slowly",
    413: "The body is too large",
    422: "A field is missing, misspelt or out of its limits, or the question took too much time",
    429: "Too many requests of one token or address; see Retry-After",
    503: "Too many requests wait, or the index is gone; see Retry-After",
    504: "No answer in time",
}
REST = 16
"""A refused body is read on up to this many times the size of an allowed one, so that its refusal arrives."""
DESCRIPTION = "Search in any language, and the model behind it."


def create_app(
    index: Index | Mapping[str, Index], settings: ServeSettings | None = None, reranker: AnyEncoder | None = None
) -> FastAPI:
    """The HTTP API and the page over `index`, or over several indexes by name, the first of which is the default.

    `reranker` is a model of `load_any`, used by searches that ask for it and by /rerank, which otherwise compares the
    vectors of the index's own model. What the application needs it
    takes when it starts (`with TestClient(app)` in tests).
    """
    settings = settings or ServeSettings()
    served = Served(index if isinstance(index, Mapping) else {only_name(index.path): index}, settings, reranker)
    app = FastAPI(
        title="interlingua",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=served.life,
        responses={code: {"model": ErrorAnswer, "description": text} for code, text in REFUSALS.items()},
    )
    app.state.metrics = served.metrics
    tell_errors(app, served.told, served.fail)
    for routes in (search_routes, rerank_routes, embedding_routes, passage_routes, info_routes):
        app.include_router(routes(served.without))
        app.include_router(routes(served.within))
    app.include_router(status_routes(served, app))
    app.router.routes.extend(page_routes())
    app.add_middleware(WholeBody, max_body=settings.max_body, timeout=settings.timeout)
    app.add_middleware(Tokens, tokens=settings.access, indexes=served.names, rate=settings.rate, burst=settings.burst)
    app.add_middleware(HostNames, names=settings.names)
    app.add_middleware(ReadRest, max_rest=REST * settings.max_body, timeout=settings.timeout)
    app.add_middleware(Head)
    app.add_middleware(RequestLog, metrics=served.metrics)  # the last is the outermost
    return app
