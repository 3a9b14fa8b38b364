"""Schemas of requests, answers and errors, with their limits.

Types are taken as they are (`"10"` is no number). Where the API is ours an unknown field is an error, so that a
misspelt option is not taken for the default; where it is that of others, fields that we do not know are left alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from interlingua.errors import BadInput, Damaged, InterlinguaError, NotFound, Stale
from interlingua.index.filters import Filter, parsed
from interlingua.index.metadata import LONGEST, OutOfTime, normal_question
from interlingua.text.languages import is_unicode

LONGEST_MESSAGE = 500
MALFORMED = {"json_invalid", "token_ids"}
CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 422: "invalid_request"}


class ApiError(Exception):
    """A request that cannot be answered: status, code, one plain line."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers or {})


def check_model(asked: str | None, ours: str, aliases: Sequence[str] = ()) -> None:
    """Raise ApiError 404 for a request that names another model than the one that answers, which `aliases` name too.
    No model is ever loaded."""
    if asked and asked != ours and asked not in aliases:
        raise ApiError(
            404, "model_not_found", f"model: this server has only '{ours}'. Send that name, or leave model out."
        )


def error_response(error: ApiError) -> Response:
    """The answer that tells it. A lone surrogate in a name becomes `?`, as JSON in UTF-8 cannot hold one."""
    message = " ".join(error.message.encode("utf-8", "replace").decode().split())
    message = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
    body = json.dumps({"error": {"code": error.code, "message": message}}, ensure_ascii=False)
    return Response(body, error.status, error.headers, "application/json")


def tell_errors(app: FastAPI, told: Callable[[InterlinguaError], str], failed: Callable[[], None]) -> None:
    """Make `app` answer every error in this form. `told` is what clients read of an error of ours; `failed` is called
    where an index cannot be read, which is no fault of the request."""

    def api(request: Request, error: Any) -> Response:
        return error_response(error)

    def user(request: Request, error: Any) -> Response:
        return error_response(ApiError(400, "bad_request", told(error)))

    def fault(request: Request, error: Any) -> Response:
        failed()
        return error_response(ApiError(500, "damaged", told(error)))

    def gone(request: Request, error: Any) -> Response:
        failed()
        return error_response(ApiError(503, "index_unavailable", told(error), {"Retry-After": "30"}))

    def late(request: Request, error: Any) -> Response:
        return error_response(ApiError(422, "out_of_time", told(error)))  # not 503, after which clients ask again

    def http(request: Request, error: Any) -> Response:
        what = f"{request.method} {request.scope['path'][:100]}"
        message = {
            400: "the body cannot be read as JSON. It must be in UTF-8, and not nested too deeply.",
            404: f"{what}: there is nothing here. See /docs.",
            405: f"{what}: not with this method. See /docs.",
        }
        code = CODES.get(error.status_code, "bad_request")
        return error_response(
            ApiError(error.status_code, code, message.get(error.status_code, str(error.detail)), error.headers)
        )

    def invalid(request: Request, error: Any) -> Response:
        return error_response(invalid_request(error.errors()))

    app.add_exception_handler(ApiError, api)
    app.add_exception_handler(InterlinguaError, user)
    app.add_exception_handler(Damaged, fault)
    app.add_exception_handler(NotFound, gone)
    app.add_exception_handler(Stale, gone)
    app.add_exception_handler(OutOfTime, late)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, invalid)


def invalid_request(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """The error of a body: an unknown name, which may be another field misspelt, else the first error; and how many
    others there are."""
    first = next((error for error in errors if error["type"] == "extra_forbidden"), errors[0])
    location = ".".join(str(part) for part in first["loc"] if part != "body")[: LONGEST_MESSAGE // 2]
    if first["type"] == "json_invalid":
        return ApiError(400, "bad_request", f"the body is not JSON ({first['ctx']['error']} at character {location}).")
    if not location:
        message = "the body must be a JSON object, sent as Content-Type: application/json."
    else:
        message = f"{location}: {first['msg'][0].lower()}{first['msg'][1:]}"
    more = len(errors) - 1
    suffix = f" ({more} more error{'s' * (more > 1)})" if more else ""
    status = 400 if first["type"] in MALFORMED else 422
    return ApiError(status, CODES[status], f"{message.removesuffix('.')}{suffix}.")


MAX_K = 1_000
MAX_QUERY = 10_000
MAX_TEXT = 100_000
MAX_PASSAGES = 256
MAX_DOCUMENTS = 1_000
MAX_INPUTS = 2_048
MAX_ID = 1_000
MAX_FACETS = 16
MAX_INDEXES = 1_000
MAX_AROUND = 500


def _encodable(text: str) -> str:
    if not is_unicode(text):
        raise PydanticCustomError("lone_surrogate", "holds half a character (a lone surrogate)")
    return text


def _filled(text: str) -> str:
    if not text.strip():
        raise PydanticCustomError("empty", "is empty")
    return text


def _short(text: str) -> str:
    try:
        normal_question(text)
    except BadInput as error:
        raise PydanticCustomError("too_long", "{reason}", {"reason": str(error)}) from None
    return text


def _no_token_ids(value: Any) -> Any:
    first = next(iter(value), None) if isinstance(value, list) else value
    if isinstance(first, (int, float, list)):
        raise PydanticCustomError(
            "token_ids",
            "token ids are of another model's tokenizer and cannot be read here; send text (in langchain-openai: "
            "check_embedding_ctx_length=False)",
        )
    return [value] if isinstance(value, str) else value


def _filter(value: Any) -> Filter | None:
    if value is not None and not isinstance(value, dict):
        raise PydanticCustomError("filter", "must be an object")
    try:
        return parsed(value)
    except BadInput as error:
        raise PydanticCustomError("filter", "{reason}", {"reason": str(error)}) from None


WHOLE = AfterValidator(_encodable)
FILLED = AfterValidator(_filled)
# lengths first: behind a validator pydantic tells of "items"
Code = Annotated[str, Field(min_length=1, max_length=35), WHOLE]
Question = Annotated[str, Field(min_length=1, max_length=LONGEST), WHOLE, FILLED, AfterValidator(_short)]
Body = Annotated[str, Field(min_length=1, max_length=MAX_TEXT), WHOLE, FILLED]
Label = Annotated[str, Field(min_length=1, max_length=MAX_ID), WHOLE]
Metadata = Annotated[dict[Label, Annotated[str, Field(max_length=MAX_QUERY), WHOLE]], Field(max_length=64)]
Where = Annotated[
    Filter | None, PlainValidator(_filter), WithJsonSchema({"type": "object", "additionalProperties": {}})
]
Mode = Literal["hybrid", "dense", "lexical"]


class Ours(BaseModel):
    """A body of our own API."""

    model_config = ConfigDict(strict=True, extra="forbid")


class Theirs(BaseModel):
    """A body of an API that others made."""

    model_config = ConfigDict(strict=True, extra="ignore", protected_namespaces=())


class ErrorDetail(Ours):
    code: str
    message: str


class ErrorAnswer(Ours):
    error: ErrorDetail


class SearchRequest(Ours):
    query: Question = Field(description="in any language")
    k: int = Field(10, ge=1, le=MAX_K, description="how many results")
    mode: Mode = "hybrid"
    langs: Annotated[list[Code], Field(min_length=1, max_length=100)] | None = Field(
        None, description="only passages in these languages"
    )
    lang_of_results: Literal["any", "same"] = Field(
        "any", description="`same`: only passages in the language of the question; not together with `langs`"
    )
    where: Where = Field(
        None,
        description='only passages whose metadata fit: {"topic": "storm"}, a list of values, {"year": {"gte": 2020}}, '
        '{"any": […]}, {"all": […]}, {"not": {…}}',
    )
    min_score: float | None = Field(
        None, description="only hits with this `score` or more, whose scale is that of the mode", allow_inf_nan=False
    )
    group_by: Label | None = Field(
        None,
        description="only the best hit of each value of this key of metadata; `document`: one passage a document or "
        "row, `source`: one a file",
    )
    distinct: bool = Field(
        False, description="passages with the same words, numbers and symbols (one page under two names) are one hit"
    )
    facets: Annotated[list[Label], Field(max_length=MAX_FACETS)] = Field(
        default_factory=list,
        description="keys of metadata whose values are counted over all passages that `where` and the languages let "
        "through; of a key that `where` asks for values of, the others, too",
    )
    lang: Code | None = Field(None, description="the language of the question; recognised without it")
    highlight: bool = Field(True, description="mark the words of a passage that match")
    rerank: bool = Field(False, description="reorder the first 100 by the model of `--rerank`")
    indexes: Annotated[list[Label], Field(min_length=1, max_length=MAX_INDEXES)] | None = Field(
        None, description="only in the indexes of these names; in all that the token may search without it"
    )


class StoredPassage(Ours):
    id: str = Field(description="as it was given; with `source` it tells the passage from all others")
    source: str = Field(description="the file or collection of the passage; versions of one page may share an id")
    lang: str
    title: str
    text: str
    metadata: dict[str, str]
    index: str = Field("", description="the name of its index; only where several are served")


class PassagesAnswer(Ours):
    passages: list[StoredPassage] = Field(description="those with the id, in the order of their sources")


class AroundQuery(BaseModel):
    """The parameters of a document's address."""

    model_config = ConfigDict(extra="forbid")

    around: int = Field(2, ge=0, le=MAX_AROUND, description="passages before it, and passages after it")


class DocumentPassage(StoredPassage):
    part: str = Field(description="its text without what the passage beside it, towards the one asked for, says too")


class DocumentAnswer(Ours):
    name: str = Field(description="of `handbook/guide.md#3` it is `handbook/guide.md`; the id of one that was not cut")
    source: str = Field(description="the file or collection that it comes from")
    position: int = Field(description="the place in `passages` of the one that was asked for, from 0")
    passages: list[DocumentPassage] = Field(description="in the order of the document")
    index: str = Field("", description="the name of its index; only where several are served")


class SearchHit(StoredPassage):
    rank: int
    score: float | None
    parts: dict[str, float | None] = Field(
        description="the scores that made `score`; `own` is the score within its index, of a search in several"
    )
    highlights: list[tuple[int, int]] = Field(description="[start, end) of marked words, in characters of `text`")
    group: str | None = Field(description="with `group_by`: the value; null for a passage that has none")
    more: int = Field(description="with `group_by`: further hits with this value")
    same: list[str] = Field(description="with `distinct`: names of passages that say the same, the first five")
    repeated: int = Field(description="with `distinct`: how many passages say the same")


class SearchAnswer(Ours):
    query: str
    lang: str = Field(description="of the question; empty where it is not sure")
    mode: Mode
    took_ms: float
    hits: list[SearchHit]
    notices: list[str] = Field(
        description="what was left out, in words: words of a very long question, highlights for which there was no time"
    )
    facets: dict[str, dict[str, int]] = Field(
        description="of each key asked for the 50 most frequent values, with the number of their passages"
    )


class EmbeddingsRequest(Theirs):
    input: Annotated[
        Annotated[list[Body], Field(min_length=1, max_length=MAX_INPUTS)],
        BeforeValidator(
            _no_token_ids,
            json_schema_input_type=Body | Annotated[list[Body], Field(min_length=1, max_length=MAX_INPUTS)],
        ),
    ]
    model: Annotated[str, Field(max_length=MAX_ID), WHOLE] | None = Field(
        None, description="this server's model or nothing; it is compared, never loaded"
    )
    dimensions: int | None = Field(
        None,
        ge=1,
        description="keep only the first ones and bring vectors to unit length again; good for models "
        "that were trained for it (Matryoshka)",
    )
    # clients send null for what was not said
    encoding_format: Literal["float", "base64"] | None = Field("float", description="base64: of little-endian float32")
    input_type: Literal["query", "document"] | None = Field("document", description="what the texts are")


class Embedding(Theirs):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class Usage(Theirs):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(Theirs):
    object: Literal["list"] = "list"
    model: str
    data: list[Embedding]
    usage: Usage


class Document(Theirs):
    text: Body


def _document(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise PydanticCustomError("document", "should be a text, or an object with the field `text`")
    return {"text": value} if isinstance(value, str) else value


AnyDocument = Annotated[Document, BeforeValidator(_document, json_schema_input_type=Body | Document)]


class RerankRequest(Theirs):
    query: Question
    documents: Annotated[list[AnyDocument], Field(min_length=1, max_length=MAX_DOCUMENTS)]
    top_n: int | None = Field(None, ge=1, description="how many of the best to return; all without it")
    return_documents: bool | None = False
    model: Annotated[str, Field(max_length=MAX_ID), WHOLE] | None = Field(
        None, description="this server's model or nothing; it is compared, never loaded"
    )


class RerankResult(Theirs):
    index: int = Field(description="place among the documents sent")
    relevance_score: float | None
    document: Document | None = None


class RerankAnswer(Theirs):
    model: str
    results: list[RerankResult]


class CohereRerankResult(Theirs):
    index: int = Field(description="place among the documents sent")
    relevance_score: float = Field(description="a document of which the model knows no token has the lowest")
    document: Document | None = None


class CohereVersion(Theirs):
    version: Literal["1", "2"]


class CohereMeta(Theirs):
    api_version: CohereVersion


class CohereRerankAnswer(Theirs):
    id: str = Field(description="of this answer")
    results: list[CohereRerankResult]
    meta: CohereMeta


class ModelCard(Theirs):
    id: str = Field(description="what requests may call the model")
    object: Literal["model"] = "model"
    created: int = Field(description="when the server started, in seconds since 1970")
    owned_by: Literal["interlingua"] = "interlingua"


class ModelsAnswer(Theirs):
    object: Literal["list"] = "list"
    data: list[ModelCard]


class PassageBody(Ours):
    id: Label
    text: Body
    title: Annotated[str, Field(max_length=MAX_QUERY), WHOLE] = ""
    lang: Annotated[str, Field(max_length=35), WHOLE] = Field("", description="recognised where it is not given")
    metadata: Metadata = Field(default_factory=dict)


class PassagesRequest(Ours):
    passages: Annotated[list[PassageBody], Field(min_length=1, max_length=MAX_PASSAGES)]


class WriteAnswer(Ours):
    written: int = Field(description="passages that were new or different")
    passages: int = Field(description="in the index now")


class DeleteAnswer(Ours):
    deleted: int
    passages: int = Field(description="in the index now")


class HealthAnswer(Ours):
    status: Literal["ready", "starting", "stuck", "stopping", "index_unavailable"]


class IndexCard(Theirs):
    name: str
    passages: int
    languages: dict[str, int]
    fields: list[str] = Field(description="keys of metadata that passages have")
    model: str
    default: bool = Field(description="whether paths for one index mean this one where they do not name it")


class InfoAnswer(Theirs):
    passages: int
    languages: dict[str, int]
    modes: list[Mode]
    rerank: bool
    model: str
    fields: list[str] = Field(description="keys of metadata that passages have")
    indexes: list[IndexCard] = Field([], description="only where these are the facts of several indexes")


class IndexesAnswer(Theirs):
    indexes: list[IndexCard] = Field(description="those that the token may search")
