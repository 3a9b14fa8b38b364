"""What the endpoints share: the index, the settings, the batches, the metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from interlingua.errors import InterlinguaError
from interlingua.serving.batching import Batcher
from interlingua.serving.metrics import Metrics
from interlingua.serving.settings import ServeSettings
from interlingua.serving.writes import Describe, Facts, Warm


class Service:
    """One index. Questions and texts go through the model in the thread of `batcher`; writes, which may take long and
    wait for other writers, in that of `writer`: one at a time, those that wait being synced together."""

    def __init__(self, index: Any, settings: ServeSettings, reranker: Any = None) -> None:
        self.index, self.settings, self.reranker = index, settings, reranker
        self.metrics = Metrics()
        self.batcher = Batcher(max_batch=settings.max_batch, delay=settings.delay, queue=settings.queue,
                               timeout=settings.timeout, on_batch=self.metrics.batches.observe)
        self.writer = Batcher(max_batch=settings.max_batch, delay=0.0, queue=settings.queue, timeout=settings.timeout)
        self.metrics.waiting.set_function(lambda: self.batcher.waiting)
        self.ready = False
        self.model = ""

    @asynccontextmanager
    async def life(self, app: FastAPI) -> AsyncIterator[None]:
        """From the first question, asked by ourselves, to the last answer."""
        self.batcher.start()
        self.writer.start()
        try:
            await self.batcher.submit(Warm(self.index), None, patient=True)
            self.model = (await self.facts(patient=True)).model
            self.ready = True
            yield
        finally:
            await self.writer.close()
            await self.batcher.close()

    async def facts(self, *, patient: bool = False) -> Facts:
        """What the index holds now."""
        facts: Facts = await self.batcher.submit(Describe(self.index), None, patient=patient)
        self.metrics.passages.set(facts.passages)
        return facts

    def told(self, error: InterlinguaError) -> str:
        """The error without the place of the index, which is no business of a client."""
        return str(error).replace(str(getattr(self.index, "path", "\0")), "the index")

    @property
    def status(self) -> str:
        """"ready", or why not."""
        if self.batcher.closing:
            return "stopping"
        if not self.ready:
            return "starting"
        return "stuck" if self.batcher.stuck else "ready"
