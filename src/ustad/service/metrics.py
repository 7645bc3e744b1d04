"""Figures for Prometheus: requests by route, micro-batches, the queue, events and alerts. No identities."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

LATENCY = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """One registry per application."""

    def __init__(self, depth: Callable[[], int]) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "ustad_requests", "Requests answered", ["route", "method", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "ustad_request_seconds", "Time to answer", ["route"], buckets=LATENCY, registry=self.registry
        )
        self.events = Counter("ustad_events_processed", "Events that went through scoring", registry=self.registry)
        self.alerts = Counter("ustad_alerts", "Alerts raised", registry=self.registry)
        self.batch_size = Histogram("ustad_batch_size", "Events scored together", buckets=SIZES, registry=self.registry)
        self.batch_seconds = Histogram(
            "ustad_batch_seconds", "Time of a micro-batch", buckets=LATENCY, registry=self.registry
        )
        waiting = Gauge("ustad_queue_events", "Events waiting to be scored", registry=self.registry)
        waiting.set_function(depth)

    def batch(self, size: int, seconds: float, alerts: int) -> None:
        """One micro-batch was scored and stored."""
        self.events.inc(size)
        self.alerts.inc(alerts)
        self.batch_size.observe(size)
        self.batch_seconds.observe(seconds)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        self.requests.labels(route, method, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self.registry)
