"""What a server is told when it starts."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from interlingua.errors import InterlinguaError


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """`max_batch` texts go through the model at once, gathered for at most `delay` seconds, and writes of so many
    passages are synced together; `queue` requests may wait (more get 503); a request that is not answered after
    `timeout` seconds gets 504; one whose question takes more than `budget` seconds of work, without the reranker's,
    gets 422; a body holds at most `max_body` bytes. `token` allows writing (without one, nobody may), and with
    `read_token` reading needs that or `token`. `log_queries` puts the text of questions into the log;
    `rerank_model` is what answers call the reranker. With `names`, only requests to one of these hosts are answered.

    Raises InterlinguaError for numbers out of range, and for tokens that a header cannot carry.
    """

    max_batch: int = 64
    delay: float = 0.002
    queue: int = 128
    timeout: float = 30.0
    budget: float = 10.0
    max_body: int = 4 << 20
    token: str = field(default="", repr=False)
    read_token: str = field(default="", repr=False)
    log_queries: bool = False
    rerank_model: str = ""
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("max_batch", "queue", "max_body"):
            if (number := getattr(self, name)) < 1:
                raise InterlinguaError(f"serving: {name} {number} must be at least 1.")
        if not (0 <= self.delay < inf and 0 < self.timeout < inf and 0 < self.budget < inf):
            raise InterlinguaError(f"serving: delay {self.delay} must not be negative, timeout {self.timeout} and "
                                   f"budget {self.budget} must be more than 0 seconds, and all of them finite.")
        for token in (self.token, self.read_token):
            if token and (not token.isascii() or not token.isprintable() or " " in token):
                raise InterlinguaError("serving: a token is of printable ASCII characters without spaces. A good one: "
                                       "python -c 'import secrets; print(secrets.token_urlsafe())'.")
        if self.read_token and not self.token:
            raise InterlinguaError("serving: with a token for reading there must be one for writing too, which also "
                                   "reads.")
