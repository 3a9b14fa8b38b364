"""Errors as the API tells them: `{"error": {"code": "…", "message": "…"}}`, one plain line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from interlingua.errors import InterlinguaError
from interlingua.retrieval.index_questions import OutOfTime

LONGEST = 500
MALFORMED = {"json_invalid", "token_ids"}
CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 422: "invalid_request"}


class ApiError(Exception):
    """A request that cannot be answered: status, code, one plain line."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers or {})


def check_model(asked: str | None, ours: str) -> None:
    """Raise ApiError 404 for a request that names another model than the one that answers. No model is ever loaded."""
    if asked and asked != ours:
        raise ApiError(404, "model_not_found", f"model: this server has '{ours}' and no other. Write that, or leave "
                       "model out.")


def error_response(error: ApiError) -> Response:
    """The answer that tells it. A lone surrogate in a name becomes `?`, as JSON in UTF-8 cannot hold one."""
    message = " ".join(error.message.encode("utf-8", "replace").decode().split())
    message = message if len(message) <= LONGEST else f"{message[:LONGEST]}…"
    body = json.dumps({"error": {"code": error.code, "message": message}}, ensure_ascii=False)
    return Response(body, error.status, error.headers, "application/json")


def tell_errors(app: FastAPI, told: Callable[[InterlinguaError], str]) -> None:
    """Make `app` answer every error in this form. `told` is what clients read of an error of ours."""

    def api(request: Request, error: Any) -> Response:
        return error_response(error)

    def user(request: Request, error: Any) -> Response:
        return error_response(ApiError(400, "bad_request", told(error)))

    def late(request: Request, error: Any) -> Response:
        return error_response(ApiError(422, "out_of_time", told(error)))  # not 503, after which clients ask again

    def http(request: Request, error: Any) -> Response:
        what = f"{request.method} {request.scope['path'][:100]}"
        message = {404: f"{what}: there is nothing here. See /docs.", 405: f"{what}: not with this method. See /docs."}
        code = CODES.get(error.status_code, "bad_request")
        return error_response(ApiError(error.status_code, code, message.get(error.status_code, str(error.detail)),
                                       error.headers))

    def invalid(request: Request, error: Any) -> Response:
        return error_response(invalid_request(error.errors()))

    app.add_exception_handler(ApiError, api)
    app.add_exception_handler(InterlinguaError, user)
    app.add_exception_handler(OutOfTime, late)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def invalid_request(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """The first thing that is wrong with a body, and how many more there are."""
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")[:LONGEST // 2]
    if first["type"] == "json_invalid":
        return ApiError(400, "bad_request", f"the body is not JSON ({first['ctx']['error']} at character {where}).")
    if not where:
        message = "the body must be a JSON object, sent as Content-Type: application/json."
    else:
        message = f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}"
    more = f" ({len(errors) - 1} more such errors)" if len(errors) > 1 else ""
    status = 400 if first["type"] in MALFORMED else 422
    return ApiError(status, CODES[status], f"{message.removesuffix('.')}{more}.")
