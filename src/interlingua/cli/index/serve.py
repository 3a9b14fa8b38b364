"""`interlingua serve`."""

from __future__ import annotations

import argparse
import logging
from typing import TYPE_CHECKING, Any

from interlingua.cli.options import INDEX, durability_option, model_option, number, precision_option
from interlingua.cli.parser import Repeated
from interlingua.errors import BadInput

if TYPE_CHECKING:
    from interlingua.index.index import Index
    from interlingua.models.protocols import AnyEncoder

logger = logging.getLogger(__name__)

NAMES = ("serve",)
TOKEN, READ_TOKEN = "INTERLINGUA_TOKEN", "INTERLINGUA_READ_TOKEN"


def add(verbs: Any) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("serve", help="a web page and an HTTP API over indexes")
    parser.add_argument(
        "index",
        nargs="+",
        metavar="IDX",
        help=f"{INDEX}; a folder of indexes; or NAME=IDX to serve one under another name than that of its folder",
    )
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
    durability_option(parser)
    _access_options(parser)
    _limit_options(parser)
    parser.add_argument("--log-queries", action="store_true", help="put the text of questions into the log")
    parser.set_defaults(run=serve)


def _access_options(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument(
        "--tokens",
        metavar="FILE",
        help="tokens with names and scopes, a line each: NAME SCOPES TOKEN, the scopes some of "
        "search,write,metrics,admin, or of one index: search:NAME; the token - is for requests without one",
    )
    parser.add_argument(
        "--rate",
        type=number,
        default=0.0,
        metavar="N",
        help="requests a second of each token; more get 429 (any number)",
    )
    parser.add_argument(
        "--burst",
        type=int,
        default=20,
        metavar="N",
        help="requests of a token that may come at once, within the rate (20)",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="speak HTTPS with this certificate and its chain, in PEM")
    parser.add_argument("--tls-key", metavar="FILE", help="its private key, where that has a file of its own")


def _limit_options(parser: argparse.ArgumentParser) -> None:
    """Fields of `ServeSettings`, with its descriptions and defaults. That class needs pydantic: it is not loaded for
    --help, a test compares."""
    parser.add_argument(
        "--connections",
        type=int,
        default=512,
        metavar="N",
        help="connections at once; at the limit a new one takes the place of one that asks for nothing (512)",
    )
    parser.add_argument(
        "--connections-per-address",
        type=int,
        metavar="N",
        help="connections at once of one address; an IPv6 network of 64 bits counts as one (half of all)",
    )
    parser.add_argument(
        "--head-timeout",
        type=number,
        default=10.0,
        metavar="SECONDS",
        help="seconds for the headers of a request, and for a TLS handshake; beyond it is 408 (10)",
    )
    parser.add_argument(
        "--max-batch",
        type=int,
        default=64,
        metavar="N",
        help="texts that go through the model at once, and passages of writes that are synced together (64)",
    )
    parser.add_argument(
        "--queue", type=int, default=128, metavar="N", help="requests that may wait; more get 503 (128)"
    )
    parser.add_argument(
        "--timeout",
        type=number,
        default=30.0,
        metavar="SECONDS",
        help="seconds until a request is given up with 504, and that the end waits for requests that have begun (30)",
    )
    parser.add_argument(
        "--budget",
        type=number,
        default=10.0,
        metavar="SECONDS",
        help="seconds of work on one question, the reranker's left out; beyond it is 422 (10)",
    )


def serve(arguments: argparse.Namespace) -> None:
    """Serve until it is stopped."""
    from interlingua.serving.access import read_tokens
    from interlingua.serving.app import create_app
    from interlingua.serving.middleware import LOCAL
    from interlingua.serving.server import bind, is_loopback, own_name, run, tls_context
    from interlingua.serving.service import ServeSettings

    if not arguments.rate and arguments.burst != ServeSettings.model_fields["burst"].default:
        raise BadInput("--burst: is the number of requests at once within a rate. Give --rate, too.")
    token, read_token = (
        _token(*pair) for pair in ((arguments.token_file, TOKEN), (arguments.read_token_file, READ_TOKEN))
    )
    tls = tls_context(arguments.tls_cert, arguments.tls_key)
    name = arguments.rerank.rstrip("/").rpartition("/")[2] if arguments.rerank else ""
    with bind(arguments.host, arguments.port) as listener:
        hosts = (*arguments.name, arguments.host, own_name(listener), *LOCAL)
        names = hosts if arguments.name or is_loopback(listener) else ()
        settings = ServeSettings(
            max_batch=arguments.max_batch,
            queue=arguments.queue,
            timeout=arguments.timeout,
            budget=arguments.budget,
            token=token,
            read_token=read_token,
            tokens=read_tokens(arguments.tokens) if arguments.tokens else (),
            rate=arguments.rate,
            burst=arguments.burst,
            connections=arguments.connections,
            connections_per_address=arguments.connections_per_address,
            head_timeout=arguments.head_timeout,
            log_queries=arguments.log_queries,
            rerank_model=name,
            aliases=tuple(arguments.alias),
            names=names,
        )
        if not is_loopback(listener):
            if any(not one.token and "search" in one.allowed for one in settings.access):
                ways = (
                    "A file of --tokens without a line for -" if arguments.tokens else "--read-token-file or --tokens"
                )
                logger.warning(f"warning: everybody who reaches {arguments.host} may search. {ways} asks for a token.")
            if tls is None:
                logger.warning("warning: the connection is not encrypted. --tls-cert gives it a certificate.")
        indexes, reranker = _opened(arguments)
        run(create_app(indexes, settings, reranker), listener, settings, tls)


def _opened(arguments: argparse.Namespace) -> tuple[dict[str, Index], AnyEncoder | None]:
    """The indexes with their models, and the reranker, loaded now: what is wrong with them is said before anybody
    waits."""
    from interlingua.models.late_interaction import load_any
    from interlingua.serving.served import open_all, places_of

    indexes = open_all(
        places_of(arguments.index),
        model=arguments.model,
        precision=arguments.precision,
        durability=arguments.durability,
    )
    if len(indexes) > 1:
        logger.info(f"{len(indexes)} indexes: {', '.join(indexes)}; the first is the default.")
    return indexes, load_any(arguments.rerank) if arguments.rerank else None


def _token(file: str | None, variable: str) -> str:
    import os

    from interlingua.files import read_lines

    if file is None:
        return os.environ.get(variable, "")
    lines = [line.strip() for _, line in read_lines(file) if line.strip()]
    if len(lines) != 1:
        raise BadInput(f"{file}: {len(lines)} lines, a token is one line.")
    return lines[0]
