"""Micro-batching: requests that wait together go through the model together, in one thread.

A request waits for company for at most `delay` seconds, and while the thread is busy. The oldest goes first and takes
along the waiting ones that ask for the same call, up to `max_batch` texts. An error of a batch is looked for one
request at a time, so that nobody gets an answer to what a neighbour asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple, Protocol, TypeVar

from interlingua.serving.schemas import MAX_TEXT, ApiError
from interlingua.text.languages import nfkc

MAX_TEXTS = 4 << 20
"""Characters that all texts of a request may have in NFKC: as many as a body has bytes."""
Item = TypeVar("Item", contravariant=True)
Result = TypeVar("Result", covariant=True)


class Part(NamedTuple):
    """Texts of one request: those from number `first` (from 1) on, of `total`. `lengths`: by `first`, those of the
    parts of the request that were checked."""

    texts: Sequence[str]
    first: int
    total: int
    lengths: dict[int, int]


def parts(texts: Sequence[str], most: int) -> list[Part]:
    """`texts` in parts of at most `most`. Between two parts of a large request the model answers others."""
    lengths: dict[int, int] = {}
    return [Part(texts[start : start + most], start + 1, len(texts), lengths) for start in range(0, len(texts), most)]


def check_lengths(part: Part) -> None:
    """Raise ApiError 422 for texts that grow too long in NFKC, which a model reads: one character may become 18."""
    before = total_length = sum(length for first, length in part.lengths.items() if first < part.first)
    for number, text in enumerate(part.texts, part.first):
        length = len(text) if text.isascii() else len(nfkc(text))
        total_length += length
        if length > MAX_TEXT or total_length > MAX_TEXTS:
            raise ApiError(
                422,
                "invalid_request",
                f"text {number} of {part.total}: {length:,} characters after NFKC normalisation "
                f"({total_length:,} with the texts before it). The limits are {MAX_TEXT:,} for one text and "
                f"{MAX_TEXTS:,} for all together.",
            )
    part.lengths[part.first] = total_length - before


class Call(Hashable, Protocol[Item, Result]):
    """The work of a batch: one result for each item. Equal calls are put together."""

    def __call__(self, items: Sequence[Item]) -> Sequence[Result]: ...


@dataclass(eq=False)
class _Job:
    call: Call[Any, Any]
    item: Any
    size: int
    answer: asyncio.Future[Any]
    since: float = field(default_factory=monotonic)


class Batcher:
    """`submit` an item; `start` and `close` frame its life. `on_batch` hears the texts of each batch.

    Of requests that were cancelled, or whose time was up, those not begun yet are never run.
    """

    def __init__(
        self,
        *,
        max_batch: int,
        delay: float,
        queue: int,
        timeout: float,
        on_batch: Callable[[int], object] = lambda texts: None,
    ) -> None:
        self.max_batch, self.delay, self.queue, self.timeout, self.on_batch = max_batch, delay, queue, timeout, on_batch
        self._jobs: deque[_Job] = deque()
        self._news = asyncio.Event()
        self.closing = False
        """Whether `close` was called."""
        self._busy_since: float | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work; an event loop must be running."""
        self._loop = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Take nothing more, finish what waits, and end the thread."""
        self.closing = True
        self._news.set()
        if self._loop is not None:
            await self._loop
        self._thread.shutdown()

    @property
    def waiting(self) -> int:
        """Requests that are not begun yet."""
        return len(self._jobs)

    @property
    def stuck(self) -> bool:
        """Whether one batch has been running for longer than a request may take."""
        return self._busy_since is not None and monotonic() - self._busy_since > self.timeout

    async def submit(self, call: Call[Item, Result], item: Item, size: int = 1, *, patient: bool = False) -> Result:
        """`call([item])[0]`, together with others. `size` is how many texts the item holds; `patient`
        ones do not wait for company, and wait without an end for the answer.

        Raises ApiError: 503 when the queue is full or closed, 504 when `timeout` has passed.
        """
        if self.closing:
            raise ApiError(
                503, "shutting_down", "the server is shutting down. Try again in a few seconds.", {"Retry-After": "5"}
            )
        if len(self._jobs) >= self.queue:
            raise ApiError(
                503,
                "overloaded",
                f"{self.queue} requests are waiting already. Try again in a second.",
                {"Retry-After": "1"},
            )
        job = _Job(call, item, size, asyncio.get_running_loop().create_future())
        job.since -= self.delay if patient else 0.0
        self._jobs.append(job)
        self._news.set()
        try:
            async with asyncio.timeout(None if patient else self.timeout):
                answer: Result = await job.answer
                return answer
        except TimeoutError as error:
            raise ApiError(
                504,
                "timeout",
                f"no answer after {self.timeout:g} seconds. Ask for less at once, or try "
                "again when the server has less to do.",
            ) from error
        finally:
            if job in self._jobs:  # cancelled or too late: leaves its place in the queue to another
                self._jobs.remove(job)

    async def _work(self) -> None:
        while await self._company():
            batch = self._take()
            self._busy_since = monotonic()
            try:
                await self._run(batch)
            finally:
                self._busy_since = None

    async def _company(self) -> bool:
        """Wait for a request, then for others beside it; False when there will be none any more."""
        while not self.closing:
            if self._jobs:
                remaining = self._jobs[0].since + self.delay - monotonic()
                if remaining <= 0 or sum(job.size for job in self._jobs) >= self.max_batch:
                    return True
            self._news.clear()
            try:
                async with asyncio.timeout(remaining if self._jobs else None):
                    await self._news.wait()
            except TimeoutError:
                continue
        return bool(self._jobs)

    def _take(self) -> list[_Job]:
        first = self._jobs.popleft()
        batch, size, others = [first], first.size, deque[_Job]()
        for job in self._jobs:
            if job.call == first.call and size + job.size <= self.max_batch:
                batch.append(job)
                size += job.size
            else:
                others.append(job)
        self._jobs = others
        self.on_batch(size)
        return batch

    async def _run(self, batch: Sequence[_Job]) -> None:
        try:
            results = await self._call(batch)
        except Exception as error:
            if len(batch) > 1:
                for job in batch:
                    if not job.answer.done():
                        await self._run([job])
            elif not batch[0].answer.done():
                batch[0].answer.set_exception(error)
            return
        for job, result in zip(batch, results, strict=True):
            if not job.answer.done():
                job.answer.set_result(result)

    async def _call(self, batch: Sequence[_Job]) -> Sequence[Any]:
        call, items = batch[0].call, [job.item for job in batch]
        results: Sequence[Any] = await asyncio.get_running_loop().run_in_executor(self._thread, lambda: call(items))
        if len(results) != len(batch):
            raise RuntimeError(f"{call}: {len(results)} results for {len(batch)} requests")
        return results
