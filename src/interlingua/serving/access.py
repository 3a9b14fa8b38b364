"""Access control: tokens with scopes by index, and a limit of requests a second for each token."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from time import monotonic
from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from starlette.types import ASGIApp, Receive, Scope, Send

from interlingua.errors import BadInput
from interlingua.files import read_lines
from interlingua.serving.middleware import note
from interlingua.serving.schemas import MAX_ID, ApiError, error_response
from interlingua.settings import Settings

SCOPES = {
    "search": frozenset({"search"}),
    "write": frozenset({"write"}),
    "metrics": frozenset({"metrics"}),
    "admin": frozenset({"search", "write", "metrics"}),
}
"""The rights of each scope: admin allows everything."""
OF_INDEX = frozenset({"search", "write"})
"""Scopes that may be those of one index: `search:handbook`."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Names that an index may have."""
NAMING = "a name has up to 64 of the characters A-Z a-z 0-9 . _ - and begins with a letter or digit"
INDEXES = "/indexes"
WRITING = "/passages"
METRICS = "/metrics"
TOGETHER = ("/search", "/passages/", "/documents/", "/info", "/openapi.json", "/docs", INDEXES)
"""The paths that read all indexes which a token may search. Other paths without an index's name mean the first one."""
READING = ("/search", "/passages/", "/documents/", "/v1/", "/v2/", "/rerank", "/info", "/openapi.json", "/docs")
"""The paths that need the scope `search`. The page and /health show nothing of the index and need none."""


def parted(path: str) -> tuple[str, str]:
    """The name of an index that a path begins with, "" without one, and the path within that index."""
    if not path.startswith(f"{INDEXES}/"):
        return "", path
    name, sign, rest = path.removeprefix(f"{INDEXES}/").partition("/")
    return name, sign + rest


def needed(method: str, path: str) -> str | None:
    """The scope that a request needs."""
    if path == INDEXES:
        return "search"
    path = parted(path)[1]
    if path == WRITING or (path.startswith(f"{WRITING}/") and method != "GET"):
        return "write"
    if path.startswith(METRICS):
        return "metrics"
    return "search" if path.startswith(READING) else None


def _sendable(token: str) -> str:
    if token and (not token.isascii() or not token.isprintable() or " " in token):
        raise ValueError(
            "a token is of printable ASCII characters without spaces. A good one: "
            "python -c 'import secrets; print(secrets.token_urlsafe())'."
        )
    return token


Secret = Annotated[str, AfterValidator(_sendable), Field(repr=False)]


class Token(Settings):
    """A token, its name in the log, and its scopes. An empty token is for requests without one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(description="its name in the log")
    scopes: tuple[str, ...] = Field(description="what it allows: search, write, metrics, admin")
    token: Secret = Field(description="the secret itself")

    @model_validator(mode="after")
    def _known(self) -> Self:
        if not re.fullmatch(r"[\w.-]{1,64}", self.name):
            raise ValueError("a name has up to 64 letters, digits and the characters . _ - .")
        if not self.scopes or not all(map(_known_scope, self.scopes)):
            # what is wrong is not shown: it may be the token
            raise ValueError(
                f"scopes are some of {', '.join(SCOPES)}, with commas between them and no spaces. "
                "Of one index: search:NAME, write:NAME."
            )
        return self

    @property
    def allowed(self) -> frozenset[str]:
        """The rights of its scopes, perhaps in some indexes only."""
        return frozenset().union(*(SCOPES[scope.partition(":")[0]] for scope in self.scopes))

    @property
    def indexes(self) -> frozenset[str]:
        """The indexes that its scopes name."""
        return frozenset(scope.partition(":")[2] for scope in self.scopes) - {""}

    def allows(self, need: str, index: str) -> bool:
        """Whether it has the scope `need` for an index."""
        parts = (scope.partition(":") for scope in self.scopes)
        return any(need in SCOPES[kind] and name in ("", index) for kind, _, name in parts)


def _known_scope(scope: str) -> bool:
    kind, sign, index = scope.partition(":")
    return kind in (OF_INDEX if sign else SCOPES) and (not sign or NAME.fullmatch(index) is not None)


def read_tokens(file: str | Path) -> tuple[Token, ...]:
    """The tokens of a file with a line each, `name scopes token`, the scopes with commas between them, some of them of
    one index: `search:handbook`. The token `-` stands for requests without one. Lines that are empty or begin with #
    are left out. Raises BadInput naming the line, and never shows a token."""
    tokens: list[Token] = []
    for number, line in read_lines(file):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{file}, line {number}"
        fields = line.split()
        if len(fields) != 3:
            raise BadInput(f"{where}: {len(fields)} words instead of three: name, scopes, token.")
        name, scopes, token = fields
        entry = Token.checked(
            {"name": name, "scopes": tuple(scopes.split(",")), "token": "" if token == "-" else token}, where
        )
        for attribute in ("name", "token"):
            if any(getattr(other, attribute) == getattr(entry, attribute) for other in tokens):
                raise BadInput(f"{where}: another line has this {attribute}.")
        tokens.append(entry)
    if not tokens:
        raise BadInput(f"{file}: no token. A line is: name, scopes, token.")
    return tuple(tokens)


def network(host: str) -> str:
    """The address of a client for limits: an IPv6 client has all of its /64."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))


MAX_CLIENTS = 10_000


class RateLimit:
    """At most `rate` requests a second of each client on average, and `burst` of them at once."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float] = monotonic) -> None:
        self.interval, self.burst, self.clock = 1 / rate, burst, clock
        self._paid: dict[str, float] = {}
        """The time until which the requests of a client have used its rate up; the oldest client first."""

    def wait(self, client: str) -> float:
        """Seconds until `client` may ask again; 0.0 where it may now, which is counted."""
        now = self.clock()
        paid = max(self._paid.pop(client, now), now)
        wait = paid - now - (self.burst - 1) * self.interval
        allowed = wait <= 1e-9  # sums of intervals are not exact
        self._paid[client] = paid + self.interval if allowed else paid
        if len(self._paid) > MAX_CLIENTS:
            del self._paid[next(iter(self._paid))]
        return 0.0 if allowed else wait


GRANT = "interlingua.grant"


class Grant(NamedTuple):
    """The indexes that the one who asks may search, and the name of the token, "" without one."""

    searchable: frozenset[str]
    token: str


def refusal(need: str, token: str, index: str = "", *, unknown: bool = False) -> ApiError:
    """The error for a request that has not the scope `need`, for an `index` where there are several. `unknown`: what it
    gave is no token."""
    if not token:
        reason = (
            "the token is none of this server's." if unknown else "this needs the header Authorization: Bearer TOKEN."
        )
        return ApiError(401, "unauthorized", reason, {"WWW-Authenticate": "Bearer"})
    suffix = f" for the index '{index}'" if index else ""
    return ApiError(403, "forbidden", f"this needs a token with the scope {need}{suffix}, which '{token}' has not.")


class Tokens:
    """Lets a request pass that has a token with the scope that it needs, and not too often: else 401, 403 or 429. The
    request learns its `Grant`.

    Requests without a (right) token may do what the token "" may, and are counted by their address. A path that names
    none of the `indexes` passes with a scope for any of them: it leads nowhere.
    """

    def __init__(
        self, app: ASGIApp, tokens: Sequence[Token], indexes: Sequence[str], rate: float = 0.0, burst: int = 1
    ) -> None:
        self.app, self.indexes = app, tuple(indexes)
        self._known = [(_digest(token.token.encode()), token) for token in tokens if token.token]
        self._open = [token for token in tokens if not token.token]
        self._writable = any("write" in token.allowed for token in tokens)
        self._limit = RateLimit(rate, burst) if rate else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = self._refused(scope) if scope["type"] == "http" else None
        if error is None:
            await self.app(scope, receive, send)
        else:
            await error_response(error)(scope, receive, send)

    def _refused(self, scope: Scope) -> ApiError | None:
        root, whole = scope.get("root_path", ""), scope["path"].removesuffix("\n")  # a route also takes a line break
        if root and whole.startswith(f"{root}/"):
            whole = whole.removeprefix(root)  # as routes are found
        need = needed(scope["method"], whole)
        if need is None:
            return None
        token = self._given(scope)
        if token is not None:
            note(scope, token=token.name)
        index, path = parted(whole)
        several = len(self.indexes) > 1
        if index not in self.indexes:
            together = index or need == "metrics" or (need == "search" and path.startswith(TOGETHER))
            index = "" if together else self.indexes[0]
        facts = {"index": index} if index and (several or path != whole) else {}
        note(scope, **facts)
        if need == "write":
            deletes = scope["method"] == "DELETE"
            ids = {"ids": [path.removeprefix(f"{WRITING}/")[:MAX_ID]]} if deletes else {}
            note(scope, audit={**facts, **ids})
        if self._limit is not None:
            client = f"token {token.name}" if token else network(str((scope.get("client") or ("",))[0]))
            if wait := self._limit.wait(client):
                return ApiError(
                    429,
                    "too_many_requests",
                    f"more than {1 / self._limit.interval:g} requests a second. Try again later.",
                    {"Retry-After": str(math.ceil(wait))},
                )
        tokens = self._open if token is None else [token]
        name = token.name if token else ""
        searchable = [one for one in self.indexes if any(token.allows("search", one) for token in tokens)]
        scope[GRANT] = Grant(frozenset(searchable), name)
        if any(token.allows(need, one) for token in tokens for one in ([index] if index else self.indexes)):
            return None
        if need == "write" and not self._writable:
            return ApiError(
                403,
                "writing_off",
                "this server was started without a token, so nobody may write. "
                "Start it with --token-file or INTERLINGUA_TOKEN.",
            )
        given = dict(scope["headers"]).get(b"authorization", b"").lower().startswith(b"bearer ")
        return refusal(need, name, index if several else "", unknown=given)

    def _given(self, scope: Scope) -> Token | None:
        """The token of a request. All are compared, each in a time that tells nothing of it."""
        scheme, _, credentials = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        digest = _digest(credentials.strip())
        matches = [token for expected, token in self._known if compare_digest(digest, expected)]
        return matches[0] if matches and scheme.lower() == b"bearer" else None


def _digest(token: bytes) -> bytes:
    return sha256(token).digest()
