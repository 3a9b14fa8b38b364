"""Requests that wait together are run together, in order; a bad one, a late one and a lost one harm nobody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from interlingua.serving.batching import Batcher
from interlingua.serving.schemas import ApiError


@dataclass(frozen=True)
class Double:
    """Doubles numbers; 13 is an error. Calls with equal `name` are equal. `gate` holds every batch."""

    name: str = ""
    batches: list[list[int]] = field(default_factory=list, compare=False)
    gate: threading.Event = field(default_factory=threading.Event, compare=False)
    entered: threading.Event = field(default_factory=threading.Event, compare=False)

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.batches.append(list(items))
        self.entered.set()
        assert self.gate.wait(30)
        if 13 in items:
            raise ValueError("thirteen")
        return [2 * item for item in items]


def run(check: Callable[[Batcher, Double], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        batcher = Batcher(**{"max_batch": 8, "delay": 0.0, "queue": 8, "timeout": 30.0, **options})
        batcher.start()
        call = Double()
        try:
            await asyncio.wait_for(check(batcher, call), 30)
        finally:
            call.gate.set()
            await batcher.close()

    asyncio.run(main())


async def first_held(batcher: Batcher, call: Double) -> asyncio.Task[int]:
    """A request that is being run, until the gate opens."""
    task = asyncio.create_task(batcher.submit(call, 0))
    await asyncio.to_thread(call.entered.wait, 30)
    return task


async def queued(batcher: Batcher, call: Double, *items: int) -> list[asyncio.Task[int]]:
    tasks = [asyncio.create_task(batcher.submit(call, item)) for item in items]
    await asyncio.sleep(0)
    return tasks


def test_what_waits_goes_together_and_each_gets_its_own_answer() -> None:
    async def check(batcher: Batcher, call: Double) -> None:
        held = await first_held(batcher, call)
        tasks = await queued(batcher, call, 5, 6, 7)
        call.gate.set()
        assert await asyncio.gather(held, *tasks) == [0, 10, 12, 14]
        assert call.batches == [[0], [5, 6, 7]]

    run(check)


def test_other_options_are_another_batch_and_the_oldest_goes_first() -> None:
    async def check(batcher: Batcher, call: Double) -> None:
        other = Double("other", call.batches, call.gate)
        held = await first_held(batcher, call)
        tasks = [*await queued(batcher, other, 1), *await queued(batcher, call, 2), *await queued(batcher, other, 3)]
        call.gate.set()
        assert await asyncio.gather(held, *tasks) == [0, 2, 4, 6]
        assert call.batches == [[0], [1, 3], [2]]

    run(check)


def test_a_batch_holds_no_more_texts_than_allowed_but_one_request_may() -> None:
    async def check(batcher: Batcher, call: Double) -> None:
        held = await first_held(batcher, call)
        tasks = [asyncio.create_task(batcher.submit(call, size, size)) for size in (3, 4, 1, 20, 2)]
        await asyncio.sleep(0)
        call.gate.set()
        await asyncio.gather(held, *tasks)
        assert call.batches == [[0], [3, 4, 1], [20], [2]]

    run(check)


def test_a_delay_gathers_requests_on_an_idle_server() -> None:
    async def check(batcher: Batcher, call: Double) -> None:
        call.gate.set()
        tasks = await queued(batcher, call, *range(4))
        assert not call.batches  # company is waited for
        tasks += await queued(batcher, call, *range(4, 8))
        await asyncio.gather(*tasks)  # a full batch does not wait for the delay
        assert call.batches == [list(range(8))]

    run(check, delay=3600.0)


def test_an_error_is_told_to_the_one_who_made_it() -> None:
    async def check(batcher: Batcher, call: Double) -> None:
        held = await first_held(batcher, call)
        tasks = await queued(batcher, call, 1, 13, 2)
        call.gate.set()
        good, bad, fine = await asyncio.gather(*tasks, return_exceptions=True)
        assert (await held, good, fine) == (0, 2, 4)
        assert isinstance(bad, ValueError)

    run(check)


def test_a_full_queue_is_503_with_retry_after() -> None:
    async def check(batcher: Batcher, call: Double) -> None:
        held = await first_held(batcher, call)
        tasks = await queued(batcher, call, 1, 2)
        with pytest.raises(ApiError) as error:
            await batcher.submit(call, 3)
        assert (error.value.status, error.value.headers) == (503, {"Retry-After": "1"})
        call.gate.set()
        assert await asyncio.gather(held, *tasks) == [0, 2, 4]

    run(check, queue=2)


def test_a_late_request_is_504_and_is_not_run_any_more() -> None:
    async def check(batcher: Batcher, call: Double) -> None:
        held = asyncio.create_task(batcher.submit(call, 0, patient=True))
        await asyncio.to_thread(call.entered.wait, 30)
        with pytest.raises(ApiError) as error:
            await batcher.submit(call, 1)
        assert error.value.status == 504
        assert batcher.stuck
        assert batcher.waiting == 0
        call.gate.set()
        assert await held == 0
        assert call.batches == [[0]]

    run(check, timeout=0.01)


def test_a_request_whose_client_left_is_not_run_and_frees_its_place() -> None:
    async def check(batcher: Batcher, call: Double) -> None:
        held = await first_held(batcher, call)
        lost, kept = await queued(batcher, call, 1, 2)
        lost.cancel()
        await asyncio.sleep(0)
        assert batcher.waiting == 1
        held.cancel()  # while it is being run: its answer goes nowhere
        call.gate.set()
        assert await kept == 4
        assert call.batches == [[0], [2]]

    run(check)


def test_close_finishes_what_waits_and_takes_nothing_new() -> None:
    async def check(batcher: Batcher, call: Double) -> None:
        held = await first_held(batcher, call)
        tasks = await queued(batcher, call, 1, 2)
        closing = asyncio.create_task(batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(ApiError, match="shutting down"):
            await batcher.submit(call, 3)
        call.gate.set()
        await closing
        assert await asyncio.gather(held, *tasks) == [0, 2, 4]

    run(check)
