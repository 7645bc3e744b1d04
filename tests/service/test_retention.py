"""What is older than the service keeps goes, and every total is what counting the rest gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from service_example import LookingBack, PlainScorer
from sqlalchemy import func, select, update

from ustad.page import records as r
from ustad.page.event_writer import keep_states
from ustad.page.store import Store, now, recount
from ustad.service import retention
from ustad.service.retention import expire

Stay = Callable[..., dict[str, Any]]
FIRST = 1_709_251_200_000_000  # the hour 0 of `stay`
HOUR = 3_600_000_000


def totals(store: Store) -> tuple[list[Any], list[Any]]:
    with store.reading() as connection:
        agents = connection.execute(select(r.agents).order_by(r.agents.c.agent)).all()
        days = connection.execute(select(r.days).order_by(r.days.c.agent, r.days.c.day)).all()
    return agents, days


@pytest.mark.parametrize("hour", [0, 1, 37, 70, 200])
def test_totals_after_retention_are_those_of_counting_everything_again(
    open_client: Any, stay: Stay, hour: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "AGENTS", 2)
    client, g = open_client(PlainScorer()), np.random.default_rng(hour)
    events = [
        stay(agent, 8 * i + float(g.uniform(0, 2)), float(g.uniform(0.2, 6))) for agent in "abcde" for i in range(12)
    ]
    client.post("/v1/events", json={"events": events})
    store: Store = client.app.state.service.store
    before = FIRST + hour * HOUR
    with store.reading() as connection:
        expected = connection.execute(select(func.count()).where(r.events.c.finished_at < before)).scalar_one()
    assert expire(store, before) == expected
    found = totals(store)
    with store.writing() as connection:
        for agent in "abcde":
            recount(connection, agent, own_score=True)
        orphans = connection.execute(
            select(func.count()).select_from(r.details).where(r.details.c.key.not_in(select(r.events.c.key)))
        ).scalar_one()
    assert found == totals(store)
    assert orphans == 0
    assert len(found[0]) == (5 if hour < 100 else 0)
    assert expire(store, before) == 0


def test_the_score_that_a_run_gave_an_agent_outlives_its_highest_event(open_client: Any, stay: Stay) -> None:
    client = open_client(PlainScorer())
    client.post("/v1/events", json={"events": [stay("a", 0, 6), stay("a", 50, 2), stay("b", 0, 6), stay("b", 50, 2)]})
    store: Store = client.app.state.service.store
    with store.writing() as connection:
        connection.execute(update(r.agents).where(r.agents.c.agent == "a").values(score=9.5, reason="of the run"))
    assert expire(store, FIRST + 20 * HOUR) == 2
    a, b = (client.get(f"/v1/agents/{name}").json() for name in "ab")
    assert (a["score"], a["reason"]) == (9.5, "of the run")
    assert b["score"] == pytest.approx(2.0)
    assert client.get(f"/v1/events/{a['worst']}").status_code == 200


def test_what_is_held_of_an_agent_to_score_it_live_goes_with_its_last_event(
    open_client: Any, any_store_url: str, stay: Stay
) -> None:
    client = open_client(PlainScorer(), store=any_store_url)
    client.post("/v1/events", json={"events": [stay("old", 0), stay("both", 0), stay("both", 100), stay("new", 100)]})
    store = Store(any_store_url)
    with store.writing() as connection:
        keep_states(connection, dict.fromkeys(("old", "both", "new"), b"where they were"), "model")
    expire(store, FIRST + 50 * HOUR)
    with store.reading() as connection:
        assert set(connection.execute(select(r.live_states.c.agent)).scalars()) == {"both", "new"}
    store.close()


def test_an_agent_whose_last_event_was_deleted_comes_back_as_after_a_restart(open_client: Any, stay: Stay) -> None:
    """What waited for its next event is gone, in memory too."""
    scorer = LookingBack()
    client = open_client(scorer)
    assert client.post("/v1/events", json={"events": [stay("a", 0, 1)]}).status_code == 200
    service = client.app.state.service
    service.settings = replace(service.settings, keep_days=(now() - FIRST - 50 * HOUR) / (24 * HOUR))
    assert service.expire() == 1
    answer = client.post("/v1/events", json={"events": [stay("a", 100, 2)]})
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1)
    assert scorer.held == {"a": 1}


def test_memory_follows_the_store_where_the_deletion_is_stored_although_its_commit_failed(
    open_client: Any, stay: Stay, monkeypatch: Any
) -> None:
    """Else the next event is compared with one that is gone, and refused."""
    client = open_client(PlainScorer())
    assert client.post("/v1/events", json={"events": [stay("a", 0, 9)]}).status_code == 200
    service = client.app.state.service
    service.settings = replace(service.settings, keep_days=(now() - FIRST - 50 * HOUR) / (24 * HOUR))
    writing = service.store.writing

    @contextmanager
    def stored_and_failed() -> Iterator[Any]:
        with writing() as connection:
            yield connection
        raise OSError("the answer of the disk was lost")

    with monkeypatch.context() as patch:
        patch.setattr(service.store, "writing", stored_and_failed)
        with pytest.raises(OSError, match="lost"):
            service.expire()
    answer = client.post("/v1/events", json={"events": [stay("a", 4, 2)]})
    assert (answer.status_code, answer.json()["accepted"]) == (200, 1)


def test_marks_go_with_the_verdict_that_set_them(open_client: Any, any_store_url: str, stay: Stay) -> None:
    client = open_client(PlainScorer(), store=any_store_url)
    sent = client.post("/v1/events", json={"events": [stay("a", 0, 4), stay("a", 100, 4)]}).json()["events"]
    verdict = {"verdict": "expected", "reason": "known", "until": "2025-01-01T00:00:00Z"}
    client.put(f"/v1/alerts/{sent[0]['id']}/verdict", json=verdict)
    marked = lambda: client.get(f"/v1/events/{sent[1]['id']}").json()["event"]["marked_by"]  # noqa: E731  # asked twice
    assert marked() is not None
    store = Store(any_store_url)
    assert expire(store, FIRST + 50 * HOUR) == 1
    store.close()
    assert marked() is None
