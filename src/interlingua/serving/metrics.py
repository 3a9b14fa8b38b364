"""What Prometheus reads at /metrics, in a registry of the application's own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Requests by path and status, their times, the sizes of batches, the queue, and the size of the index."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "path")
        self.requests = Counter("interlingua_requests", "Requests answered.", (*labels, "status"),
                                registry=self.registry)
        self.seconds = Histogram("interlingua_request_seconds", "Time from a request to its answer.", labels,
                                 buckets=SECONDS, registry=self.registry)
        self.batches = Histogram("interlingua_batch_texts", "Texts that went through the model together.",
                                 buckets=TEXTS, registry=self.registry)
        self.waiting = Gauge("interlingua_waiting_requests", "Requests in the queue.", registry=self.registry)
        self.passages = Gauge("interlingua_passages", "Passages in the index.", registry=self.registry)
        ProcessCollector(registry=self.registry)

    def answered(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count a request. `path` is that of a route, not what a client wrote."""
        self.requests.labels(method, path, str(status)).inc()
        self.seconds.labels(method, path).observe(seconds)

    def text(self) -> bytes:
        """In Prometheus' own format."""
        return bytes(generate_latest(self.registry))
