"""Figures for Prometheus: requests by route, micro-batches, the queue, events and alerts, the store and the model.

No identities."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from sqlalchemy import func, select

from ustad.page import records as r
from ustad.page.store import Store
from ustad.service.live_drift import LiveDrift

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

    def watch(self, name: str, about: str, read: Callable[[], float | None]) -> None:
        """A figure that is read whenever somebody asks; not a number where it cannot be."""

        def value() -> float:
            try:
                values = read()
            except Exception:  # a store that does not answer must not hide the other figures
                return math.nan
            return math.nan if values is None else float(values)

        Gauge(name, about, registry=self.registry).set_function(value)

    def watch_store(self, store: Store) -> None:
        """What the store holds and takes, and the room it has left."""
        self.watch("ustad_store_bytes", "What the store takes on its disk", store.bytes)
        self.watch("ustad_store_free_bytes", "Room on the disk of a SQLite store", store.free_bytes)
        self.watch("ustad_store_writable", "1 while something can be stored", store.has_room)
        self.watch("ustad_store_agents", "Agents in the store", lambda: _count(store, func.count()))
        self.watch("ustad_store_events", "Events in the store",
                   lambda: _count(store, func.coalesce(func.sum(r.agents.c.n_events), 0)))  # fmt: skip

    def watch_model(self, scorer: Any) -> None:
        """Which model scores, since when, until when it was trained, and of how many agents it holds the window."""
        info = Gauge("ustad_model_info", "The model that scores", ["fingerprint", "schema"], registry=self.registry)
        info.labels(scorer.fingerprint, scorer.schema.name).set(1)
        loaded_at = time.time()
        self.watch("ustad_model_loaded_timestamp_seconds", "When the model was loaded", lambda: loaded_at)
        until = getattr(scorer, "trained_until", lambda: None)
        self.watch("ustad_model_trained_until_timestamp_seconds", "The last day of its training", until)
        self.watch("ustad_model_agents", "Agents whose window is in memory", lambda: getattr(scorer, "agents_held", 0))

    def watch_drift(self, drift: LiveDrift) -> None:
        """Whether live p-values still are what they say."""
        self.watch("ustad_drift_log10_evidence", "Evidence that life differs from the weeks of calibration; alarm at 2",
                   lambda: drift.alarm.log_evidence)  # fmt: skip
        self.watch("ustad_drift_alarm", "1 once the drift alarm was raised, until another model is loaded",
                   lambda: drift.alarm.raised_on is not None)  # fmt: skip

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


def _count(store: Store, what: Any) -> int:
    """A figure over all agents."""
    with store.reading() as connection:
        return int(connection.execute(select(what).select_from(r.agents)).scalar_one())
