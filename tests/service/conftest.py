"""What the service's tests share: a scorer that needs no model, a store of each kind, an application, a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("fastapi", reason="the service's libraries are not installed: pip install 'ustad[service]'")

from fastapi.testclient import TestClient

from ustad.config import ExtractionConfig
from ustad.schema import EventSchema, mobility_schema
from ustad.service.app import create_app
from ustad.service.settings import Settings
from ustad.service.translate import Layout, event_table

DAY = 86_400


class PlainScorer:
    """Scores by duration alone: an hour scores 1, and three hours or more are an alert. Remembers what it was shown."""

    def __init__(self, schema: EventSchema | None = None) -> None:
        self.schema = schema or mobility_schema()
        self.extraction = ExtractionConfig()
        self.held: dict[str, int] = {}
        self.scored: list[tuple[str, int]] = []
        self.batches: list[int] = []
        self.fail: Callable[[pa.Table], None] = lambda events: None

    def missing(self, agents: Sequence[str]) -> list[str]:
        return [a for a in agents if a not in self.held]

    def remember(self, agents: Sequence[str], context: pa.Table) -> None:
        for agent in agents:
            self.held[agent] = context["agent_id"].to_pylist().count(agent)

    def forget(self, agents: Sequence[str]) -> None:
        for agent in agents:
            self.held.pop(agent, None)

    def score(self, events: pa.Table) -> tuple[pa.Table, list[dict[str, Any]]]:
        self.fail(events)
        self.batches.append(events.num_rows)
        zones = pa.array([z or "UTC" for z in events["timezone"].to_pylist()])
        events = events.set_column(events.column_names.index("timezone"), "timezone", zones)
        start = events["started_at"].cast(pa.int64()).to_numpy()
        hours = (events["finished_at"].cast(pa.int64()).to_numpy() - start) / 3.6e9
        for agent, moment in zip(events["agent_id"].to_pylist(), start.tolist(), strict=True):
            self.scored.append((agent, moment))
            self.held[agent] = self.held.get(agent, 0) + 1
        n = len(hours)
        more = {
            "expected_duration": np.full(n, 60.0), "spread_duration": np.full(n, 20.0),
            "error_duration": np.abs(hours * 60 - 60), "loss_duration": hours, "au_duration": np.full(n, 0.1),
            "eu_duration": np.full(n, 0.01), "pct_duration": np.minimum(hours / 10, 0.999),
            "pct_start": np.full(n, 0.2), "score": hours, "p_value": np.power(10.0, -hours), "alert": hours >= 3,
            "kind": np.where(hours >= 6, "novel", "predictable"),
            "reason": [f"stayed {h:.0f} hours; expected about one" for h in hours],
        }  # fmt: skip
        return events, pa.table({name: pa.array(values) for name, values in more.items()}).to_pylist()

    def locate(self, stays: pa.Table, trips: pa.Table) -> pa.Table:
        wanted = event_table([], Layout.of(self.schema)).schema
        columns = [
            stays[f.name].cast(f.type) if f.name in stays.column_names else pa.nulls(stays.num_rows, f.type)
            for f in wanted
        ]
        return pa.table(columns, schema=wanted)


def a_stay(agent: str = "a", hour: float = 0.0, hours: float = 1.0, **more: Any) -> dict[str, Any]:
    """One stay that begins so many hours after 2024-03-01 in UTC."""
    moment = np.datetime64("2024-03-01T00:00:00", "ms")
    start = moment + np.timedelta64(round(hour * 3_600_000), "ms")
    end = start + np.timedelta64(round(hours * 3_600_000), "ms")
    return {
        "agent_id": agent, "started_at": f"{start}Z", "finished_at": f"{end}Z", "lat": 60.17, "lon": 24.94,
        "poi_category": "work", "timezone": "Europe/Helsinki", **more,
    }  # fmt: skip


@pytest.fixture
def stay() -> Callable[..., dict[str, Any]]:
    return a_stay


@pytest.fixture
def scorer() -> PlainScorer:
    return PlainScorer()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
def open_client(store_url: str) -> Iterator[Callable[..., TestClient]]:
    """Make clients of applications; each is closed at the end of the test, or earlier by `close()`."""
    opened = []

    def make(scorer: Any = None, key: str | None = None, **settings: Any) -> TestClient:
        app = create_app(Settings(**{"store": store_url, **settings}), scorer or PlainScorer())
        client = TestClient(app, raise_server_exceptions=False)
        client.__enter__()
        if key:
            client.headers["Authorization"] = f"Bearer {key}"
        opened.append(client)
        return client

    yield make
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(open_client: Callable[..., TestClient], scorer: PlainScorer) -> TestClient:
    return open_client(scorer)
