"""`interlingua serve`."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING, Any

from interlingua.cli.options import durability_option, index_argument, model_option, opened, precision_option
from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

if TYPE_CHECKING:
    from interlingua.index.index import Index
    from interlingua.models.protocols import AnyEncoder

logger = logging.getLogger(__name__)

NAMES = ("serve",)
TOKEN, READ_TOKEN = "INTERLINGUA_TOKEN", "INTERLINGUA_READ_TOKEN"


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("serve", help="a web page and an HTTP API over an index", parents=[common])
    index_argument(parser)
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (127.0.0.1: this machine only)")
    parser.add_argument("--port", type=int, default=8080, help="8080; 0 for any that is free")
    parser.add_argument(
        "--name",
        action=Repeated,
        default=[],
        help="a host name under which it may be reached, of a proxy before it say; on a loopback "
        "address localhost always is, and without this no other",
    )
    model_option(parser)
    precision_option(parser)
    parser.add_argument(
        "--rerank",
        metavar="MODEL",
        help="a late-interaction (or other) model that reorders results where a search asks for it",
    )
    parser.add_argument(
        "--alias",
        action=Repeated,
        default=[],
        metavar="NAME",
        help="another name by which requests may call the model: of a client that insists on one, say",
    )
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help=f"holds the token for writing passages (or ${TOKEN}; without one nobody may)",
    )
    parser.add_argument(
        "--read-token-file",
        metavar="FILE",
        help=f"holds a token without which nobody may search either (or ${READ_TOKEN})",
    )
    durability_option(parser)
    parser.add_argument("--max-batch", type=int, default=64, help="texts that go through the model at once (64)")
    parser.add_argument(
        "--queue", type=int, default=128, help="requests that may wait; more are told to come back (128)"
    )
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds until a request is given up (30)")
    parser.add_argument(
        "--budget",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="work on one question, after which it is given up (10)",
    )
    parser.add_argument("--log-queries", action="store_true", help="put the text of questions into the log")
    parser.set_defaults(run=serve)


def serve(arguments: argparse.Namespace) -> None:
    """Serve until it is stopped."""
    from interlingua.serving.app import bind, create_app, is_loopback, own_name, run
    from interlingua.serving.middleware import LOCAL
    from interlingua.serving.service import ServeSettings

    token, read_token = (
        _token(*pair) for pair in ((arguments.token_file, TOKEN), (arguments.read_token_file, READ_TOKEN))
    )
    name = arguments.rerank.rstrip("/").rpartition("/")[2] if arguments.rerank else ""
    with bind(arguments.host, arguments.port) as listener:
        own = (*arguments.name, arguments.host, own_name(listener), *LOCAL)
        names = own if arguments.name or is_loopback(listener) else ()
        settings = ServeSettings(
            max_batch=arguments.max_batch,
            queue=arguments.queue,
            timeout=arguments.timeout,
            budget=arguments.budget,
            token=token,
            read_token=read_token,
            log_queries=arguments.log_queries,
            rerank_model=name,
            aliases=tuple(arguments.alias),
            names=names,
        )
        if not is_loopback(listener) and not read_token:
            logger.warning(
                f"warning: everybody who reaches {arguments.host} may search. --read-token-file asks for a token; the "
                "connection itself is not encrypted."
            )
        index, reranker = _opened(arguments)
        run(create_app(index, settings, reranker), listener, arguments.timeout)


def _opened(arguments: argparse.Namespace) -> tuple[Index, AnyEncoder | None]:
    """The index with its model, and the reranker, loaded now: what is wrong with them is said before anybody waits."""
    from interlingua.models.late_interaction import load_any

    index = opened(arguments, durability=arguments.durability)
    index.encoder  # noqa: B018
    return index, load_any(arguments.rerank) if arguments.rerank else None


def _token(file: str | None, variable: str) -> str:
    import os

    from interlingua.files import read_lines

    if file is None:
        return os.environ.get(variable, "")
    lines = [line.strip() for _, line in read_lines(file) if line.strip()]
    if len(lines) != 1:
        raise BadInput(f"{file}: {len(lines)} lines, a token is one line.")
    return lines[0]
