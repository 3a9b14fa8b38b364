"""The web page's files, read once: no path of a request ever reaches the file system."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class PageFile(NamedTuple):
    """Its bytes, its media type, and the tag by which a browser knows that it has it already."""

    content: bytes
    media_type: str
    tag: str


def page_files() -> dict[str, PageFile]:
    """The files in `serving/page` by name; "" is `index.html`."""
    found = {}
    for file in files("interlingua.serving").joinpath("page").iterdir():
        if file.is_file() and not file.name.startswith((".", "_")):
            content = file.read_bytes()
            media_type = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
            found[file.name] = PageFile(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    return found | {"": found["index.html"]}


def page_routes() -> list[Route]:
    """GET / and a route for each file that the page asks for."""
    return [Route(f"/{name}", _answer(file)) for name, file in page_files().items()]


def _answer(file: PageFile) -> Callable[[Request], Awaitable[Response]]:
    headers = {"ETag": file.tag, "Cache-Control": "no-cache"}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)

    return answer
