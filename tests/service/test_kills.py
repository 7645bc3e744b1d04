"""SIGKILL during load, ten times on SQLite and some on PostgreSQL: nothing acknowledged is lost or scored twice, and
the service is back soon.

Servers are forked with everything imported, about a second on an idle machine; how long a start takes that has to
import too is measured, and held against its ten seconds, by benchmarks/service.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from service_example import PATIENCE, ForkedServer, PlainScorer, a_stay, as_events, client_of, tiny_stays, until
from sqlalchemy import Engine, func, select
from sqlalchemy import event as database_event

from ustad.page import records as r
from ustad.page.store import Store
from ustad.service.app import create_app
from ustad.service.settings import Settings

KILLS, FEWER_KILLS = 10, 3  # on SQLite; on PostgreSQL, which syncs by itself
CLIENTS = 3
#: Seconds from a restart to /readyz, the quickest of the last three: the ten of the goal, three times over for a
#: machine that does much else.
RESTART_S = 3 * 10.0


class Client(threading.Thread):
    """Sends the events of its agents one after the other and remembers what was acknowledged with which score."""

    def __init__(self, url: str, events: list[dict[str, Any]], acknowledged: dict[str, float]) -> None:
        super().__init__(daemon=True)
        self.url, self.events, self.acknowledged, self.position = url, events, acknowledged, 0
        self.wrong: list[str] = []  # an assert in a thread would fail no test

    def run(self) -> None:
        try:
            self.send()
        except Exception as error:
            self.wrong.append(f"{type(error).__name__}: {error}")

    def send(self) -> None:
        with httpx.Client(base_url=self.url, timeout=PATIENCE) as client:
            while self.position < len(self.events):
                try:
                    answer = client.post("/v1/events", json={"events": [self.events[self.position]]})
                    if answer.status_code != 200:
                        self.wrong.append(f"answered {answer.status_code}")
                        return
                    for event in answer.json()["events"]:
                        before = self.acknowledged.setdefault(event["id"], event["score"])
                        if event["score"] < before:
                            self.wrong.append("a second answer is lower than the first")
                    self.position += 1
                except httpx.HTTPError:
                    return


def test_kills_lose_nothing_and_score_nothing_twice(tiny_run: Path, any_store_url: str) -> None:
    model, store = str(tiny_run / "model"), any_store_url
    kills = KILLS if store.startswith("sqlite") else FEWER_KILLS
    g = np.random.default_rng(1)
    stays = as_events(tiny_stays(agents=CLIENTS, days=80, seed=8, after=30))
    shares = [[e for e in stays if e["agent_id"] == f"agent {i}"] for i in range(CLIENTS)]
    acknowledged: dict[str, float] = {}
    positions = [0] * CLIENTS
    seconds: list[float] = []
    for _ in range(kills):
        server = ForkedServer(model, store)
        seconds.append(server.seconds)
        clients = [Client(server.url, share, acknowledged) for share in shares]
        for client, position in zip(clients, positions, strict=True):
            client.position = position
            client.start()
        enough = len(acknowledged) + int(g.integers(2, 9))
        until(lambda enough=enough: len(acknowledged) >= enough, 0.01)
        server.kill()
        for client in clients:
            client.join(PATIENCE)
            assert not client.is_alive(), "a client hangs"
        assert [wrong for client in clients for wrong in client.wrong] == []
        positions = [client.position for client in clients]
    assert len(acknowledged) >= kills, "the load was too small to mean anything"
    assert min(seconds[1:][-3:]) < RESTART_S, f"seconds until it was back: {seconds[1:]}"
    check_store(store, acknowledged, kills)
    sent = [e for share, position in zip(shares, positions, strict=True) for e in share[: position + 1]]
    again = scores_of(model, store, sent)
    uninterrupted = scores_of(model, "sqlite://", sent)
    assert again.keys() == uninterrupted.keys()
    for event, score in uninterrupted.items():
        assert again[event] == pytest.approx(score, abs=1e-4), "kills must not change a score"


def check_store(url: str, acknowledged: dict[str, float], kills: int) -> None:
    """Everything acknowledged is there, once, and little else is."""
    store = Store(url)
    with store.reading() as connection:
        stored = {str(row.key): row.score for row in connection.execute(select(r.events.c.key, r.events.c.score))}
        counted = connection.execute(select(func.sum(r.agents.c.n_scored))).scalar()
        details = connection.execute(select(func.count()).select_from(r.details)).scalar()
    store.close()
    assert acknowledged.keys() <= stored.keys(), "an acknowledged event is lost"
    assert all(stored[event] >= score for event, score in acknowledged.items()), "an acknowledged score fell"
    assert len(stored) <= len(acknowledged) + kills * CLIENTS, "more than what was under way when it was killed"
    assert counted == details == len(stored), "an event was counted twice"


def scores_of(model: str, store: str, events: list[dict[str, Any]]) -> dict[str, float]:
    """What a service on this store answers to these events."""
    app = create_app(Settings(model=Path(model), store=store, device="cpu"))
    with client_of(app) as client:
        assert client.post("/v1/events", json={"events": events}).status_code == 200
        names = sorted({e["agent_id"] for e in events})
        lists = [client.get(f"/v1/agents/{name}/events", params={"limit": 1000}).json()["events"] for name in names]
        return {e["id"]: e["score"] for events in lists for e in events}


def walk(agent: str) -> list[dict[str, Any]]:
    """A fix every two minutes, half an hour here and half an hour there."""
    start = np.datetime64("2024-05-01T08:00:00")
    return [
        {"agent_id": agent, "time": f"{start + np.timedelta64(2 * i, 'm')}Z", "lat": 60.17 + 0.01 * (i // 15 % 3),
         "lon": 24.94}
        for i in range(90)
    ]  # fmt: skip


def test_fixes_through_three_kills_give_the_stays_of_an_unbroken_day(tiny_run: Path, tmp_path: Path) -> None:
    model, store = str(tiny_run / "model"), f"sqlite:///{tmp_path / 'fixes.db'}"
    fixes = walk("walker")
    parts = [fixes[i : i + 7] for i in range(0, len(fixes), 7)]
    position = 0
    for last in (4, 9, len(parts)):
        server = ForkedServer(model, store)
        with httpx.Client(base_url=server.url, timeout=PATIENCE) as client:
            while position < last:
                answer = client.post("/v1/fixes", json={"fixes": parts[position]}).json()
                assert (answer["accepted"], answer["late"]) == (len(parts[position]), 0), "sent once, taken once"
                position += 1
        server.kill()
    broken, unbroken = (
        create_app(Settings(model=Path(model), store=url, device="cpu")) for url in (store, "sqlite://")
    )
    with client_of(broken) as client, client_of(unbroken) as other:
        for part in parts:
            assert other.post("/v1/fixes", json={"fixes": part}).status_code == 200
        found, expected = (c.get("/v1/agents/walker/events").json()["events"] for c in (client, other))
    assert len(expected) >= 4
    assert [e["started_at"] for e in found] == [e["started_at"] for e in expected]
    assert [e["score"] for e in found] == pytest.approx([e["score"] for e in expected], abs=1e-4)


@contextmanager
def counted_steps() -> Iterator[list[int]]:
    """Counts what SQLite does: a number for every hundred steps of its machine, however busy the real one is."""
    steps = [0]

    def count() -> None:
        steps[0] += 1

    def connected(connection: Any, record: Any) -> None:
        connection.set_progress_handler(count, 100)

    database_event.listen(Engine, "connect", connected)
    yield steps
    database_event.remove(Engine, "connect", connected)


def test_a_start_reads_no_more_from_a_store_of_twenty_times_the_events(tmp_path: Path) -> None:
    taken = []
    for size in (100, 2000):
        store = f"sqlite:///{tmp_path / f'{size}.db'}"
        stays = [a_stay(f"agent {i % 50}", hour=2 * (i // 50), hours=1.5) for i in range(size)]
        with client_of(create_app(Settings(store=store), PlainScorer())) as client:
            assert client.post("/v1/events", json={"events": stays}).json()["accepted"] == size
        with counted_steps() as steps, client_of(create_app(Settings(store=store), PlainScorer())) as client:
            assert client.get("/readyz").status_code == 200
        taken.append(steps[0])
    assert taken[0] > 0, "nothing was counted"
    assert taken[1] <= 2 * taken[0], f"hundreds of steps: {taken}"
