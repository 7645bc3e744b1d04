"""Forgotten means gone from every byte of a SQLite store: its file, free pages and write-ahead log. Backups aside."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from service_example import PlainScorer
from sqlalchemy import delete, insert, select

from ustad.page import records as r
from ustad.page import store as store_module
from ustad.page.event_writer import keep_states
from ustad.page.facts import NO_FACTS
from ustad.page.store import Store
from ustad.service.retention import expire

Stay = Callable[..., dict[str, Any]]
GONE, LAT, LON = "the person to forget", 61.234567891, 23.456789123
FIRST, HOUR, DAY = 1_709_251_200_000_000, 3_600_000_000, 86_400_000_000  # the hour 0 of `stay`
TRACES = {
    "the id": GONE.encode(), "the place": b"their garden", "the note": b"called them at home",
    "the latitude": struct.pack(">d", LAT), "the longitude": struct.pack(">d", LON),  # as SQLite writes numbers
    "the latitude in text": str(LAT).encode(), "the longitude in text": str(LON).encode(),
    "the state": b"what live scores held",
}  # fmt: skip


def traces(file: Path) -> set[str]:
    """What is found of the person in the store's files, as they are on disk now."""
    content = b"".join(p.read_bytes() for p in sorted(file.parent.glob(file.name + "*")))
    return {name for name, trace in TRACES.items() if trace in content}


def fill(client: Any, stay: Stay, events: int) -> None:
    """So many events of the person among those of sixty others, with an alert, a verdict, fixes and a state."""
    there = {"lat": LAT, "lon": LON, "poi_id": "their garden", "poi_category": "their garden"}
    chance = np.random.default_rng(1)
    for number in range(events):
        others = [stay(f"other {i}", 6 * number, 1 + i % 4) for i in chance.choice(60, 20, replace=False)]
        sent = [stay(GONE, 6 * number, 4, **there), *others]
        answer = client.post("/v1/events", json={"events": sent})
        assert answer.status_code == 200
    alert = client.get("/v1/alerts", params={"agent": GONE}).json()["alerts"][0]["id"]
    client.put(f"/v1/alerts/{alert}/verdict", json={"verdict": "confirmed", "note": "called them at home"})
    moments = [f"2025-03-02T08:{minute:02}:00Z" for minute in range(0, 60, 5)]
    fixes = [{"agent_id": a, "time": t, "lat": LAT, "lon": LON} for t in moments for a in (GONE, "other 1")]
    assert client.post("/v1/fixes", json={"fixes": [f for f in fixes if f["agent_id"] == GONE]}).status_code == 200
    with client.app.state.service.store.writing() as connection:
        keep_states(connection, {GONE: b"what live scores held" * 500}, "plain")
        client.app.state.service.store.remember(connection, "facts", with_groups(GONE, "other 1"))


def with_groups(*people: str) -> dict[str, Any]:
    """Facts of a run with a group of each of these and somebody else, an hour apart."""
    groups = [
        {"agent_ids": [who, "x"], "p_value": 1e-4, "reason": f"{who} and x", "finished_at": FIRST + n * HOUR}
        for n, who in enumerate(people)
    ]
    return {**NO_FACTS, "together": groups}


@pytest.mark.parametrize("events", [1, 30])
def test_a_forgotten_person_is_in_no_byte_of_the_store(
    open_client: Any, stay: Stay, tmp_path: Path, events: int
) -> None:
    """While the service goes on, not only once it has stopped."""
    file = tmp_path / "store.db"
    client = open_client(PlainScorer(), store=f"sqlite:///{file}")
    fill(client, stay, events)
    assert traces(file) >= {"the id", "the place", "the note", "the latitude", "the longitude", "the state"}
    assert client.delete(f"/v1/agents/{GONE}").json() == {"deleted_events": events}
    assert traces(file) == set()
    assert [group["agent_ids"] for group in client.get("/v1/run").json()["together"]] == [["other 1", "x"]]
    assert client.post("/v1/events", json={"events": [stay("other 1", 9000, 1)]}).status_code == 200
    assert client.get("/v1/agents/other 1").json()["n_events"] > 0


def test_what_retention_deleted_is_in_no_byte_of_the_store(open_client: Any, stay: Stay, tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    client = open_client(PlainScorer(), store=f"sqlite:///{file}")
    there = {"lat": LAT, "lon": LON, "poi_id": "their garden"}
    client.post("/v1/events", json={"events": [stay(GONE, 0, 4, **there), stay("other", 100, 1)]})
    assert "the id" in traces(file)
    store = client.app.state.service.store
    with store.writing() as connection:
        store.remember(connection, "facts", with_groups(GONE, *("other",) * 50, "later"))
    expire(store, FIRST + 50 * HOUR)
    assert traces(file) == set()
    assert [group["reason"] for group in client.get("/v1/run").json()["together"]] == ["other and x", "later and x"]


def test_a_reader_that_holds_the_log_open_delays_erasure_and_it_is_said(
    open_client: Any, stay: Stay, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "store.db"
    client = open_client(PlainScorer(), store=f"sqlite:///{file}")
    client.post("/v1/events", json={"events": [stay(GONE, 0, 4)]})
    other = Store(f"sqlite:///{file}")
    with other.reading() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM events").scalar()
        client.app.state.service.store.log_patience_ms = 50
        assert client.delete(f"/v1/agents/{GONE}").status_code == 200
        assert "the id" in traces(file)
        assert "still holds what was deleted" in caplog.text
    other.close()
    assert client.app.state.service.store.clear_log()
    assert traces(file) == set()


def rebuild_pages(store: Store, chance: random.Random) -> int:
    """Trips of four agents that come and go, each with a way of its own; the number of the last."""
    number = 0
    for turn in range(40):
        with store.writing() as connection:
            for agent in range(4):
                for _ in range(chance.randrange(1, 9)):
                    number += 1
                    moment = (number + chance.randrange(60)) * 10**9 + number
                    row = {"agent": f"stranger-{agent}", "started_at": moment, "finished_at": number}
                    connection.execute(insert(r.trips).values(row | {"path": f"way of {number:05}"}))
            if turn % 3 == 2:
                connection.execute(delete(r.trips).where(r.trips.c.finished_at < number - chance.randrange(100, 400)))
    return number


@pytest.mark.parametrize("seed", [3, 4, 7])
def test_no_byte_is_left_in_the_gaps_of_pages_that_were_rebuilt(tmp_path: Path, seed: int) -> None:
    """SQLite moves rows between pages as others come and go; in the gaps it leaves copies, which deleting overwrites
    nowhere. With these seeds it does."""
    file = tmp_path / "store.db"
    store = Store(f"sqlite:///{file}")
    rebuild_pages(store, random.Random(seed))
    assert store.delete_agent("stranger-1", "somebody") == 0  # trips only
    store.scrub("stranger-1")
    assert b"stranger-1" not in b"".join(p.read_bytes() for p in tmp_path.iterdir())
    with store.reading() as connection:
        left = set(connection.execute(select(r.trips.c.agent).distinct()).scalars())
    assert left == {"stranger-0", "stranger-2", "stranger-3"}
    store.close()


@pytest.mark.parametrize("seed", [3, 4, 7])
def test_what_retention_deleted_is_in_no_gap_of_a_page(tmp_path: Path, seed: int) -> None:
    """As above, with rows that are old instead of somebody's."""
    file = tmp_path / "store.db"
    store = Store(f"sqlite:///{file}")
    last = rebuild_pages(store, random.Random(seed))
    expire(store, last - 50)
    content = b"".join(p.read_bytes() for p in tmp_path.iterdir())
    assert {n for n in range(1, last + 1) if f"way of {n:05}".encode() in content} == set(range(last - 50, last + 1))


def test_a_store_is_written_anew_once_a_day_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, rewritten = Store(f"sqlite:///{tmp_path / 'store.db'}"), []
    monkeypatch.setattr(store, "rewrite", lambda: rewritten.append(store_module.now()))
    moment = 10 * DAY
    monkeypatch.setattr(store_module, "now", lambda: moment)
    for turn, expected in ((0, 1), (0.5, 1), (0.9, 1), (1.1, 2), (1.2, 2), (2.5, 3)):
        moment = 10 * DAY + round(turn * DAY)
        with store.writing() as connection:
            store.remember(connection, "leftovers", True)
        expire(store, 0)
        assert len(rewritten) == expected, turn
    moment += 3 * DAY
    expire(store, 0)
    assert len(rewritten) == 3, "nothing was deleted since"
