"""Provisional and final scores: an event's score may rise once the next one has come, and everything follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from service_example import LookingBack
from sqlalchemy import update

from ustad.page import records as r
from ustad.page.store import Store
from ustad.service.pipeline import ScoreBatch

Stay = Callable[..., dict[str, Any]]


class Falling(LookingBack):
    """Each event's final score is lower than its first one, and no alert."""

    def score(self, rows: Any) -> ScoreBatch:
        scored = super().score(rows)
        lower = {k: {**v, "score": 0.25, "p_value": 0.5, "alert": False} for k, v in scored.finals.items()}
        return ScoreBatch(scored.zones, scored.rows, lower)


def test_an_event_becomes_an_alert_when_the_next_one_raises_it(
    open_client: Any, any_store_url: str, stay: Stay
) -> None:
    client = open_client(LookingBack(), store=any_store_url)
    first = client.post("/v1/events", json={"events": [stay("a", 0, 1)]}).json()["events"][0]
    assert (first["score"], first["alert"], first["final"]) == (1.0, False, False)
    since = client.get("/v1/alerts").json()["next_since"]
    second = client.post("/v1/events", json={"events": [stay("a", 2, 5)]}).json()["events"][0]
    assert (second["alert"], second["final"]) == (True, False)
    raised = client.get(f"/v1/events/{first['id']}").json()["event"]
    assert (raised["score"], raised["alert"], raised["final"]) == (5.0, True, True)
    assert raised["reason"] == "the stay after it is the more unusual one"
    assert {a["id"] for a in client.get("/v1/alerts", params={"since": since}).json()["alerts"]} == {
        first["id"], second["id"]
    }  # fmt: skip
    agent = client.get("/v1/agents/a").json()
    assert (agent["n_events"], agent["n_scored"], agent["n_alerts"], agent["score"]) == (2, 2, 2, 5.0)


@pytest.mark.parametrize("sizes", [[1], [2, 1, 4], [50]])
def test_totals_and_finals_do_not_depend_on_how_requests_are_cut(
    open_client: Any, stay: Stay, sizes: list[int], tmp_path: Any
) -> None:
    g = np.random.default_rng(5)
    hours = g.choice([0.5, 1.0, 2.0, 4.0], 24)
    events = [stay(f"a{i % 3}", 6.0 * (i // 3), float(h)) for i, h in enumerate(hours)]
    client = open_client(LookingBack(), store=f"sqlite:///{tmp_path / 'cut.db'}")
    position, turn = 0, 0
    while position < len(events):
        size = sizes[turn % len(sizes)]
        assert client.post("/v1/events", json={"events": events[position : position + size]}).status_code == 200
        position, turn = position + size, turn + 1
    for number in range(3):
        own = hours[number::3]
        expected = np.maximum(own, np.r_[own[1:], own[-1:]])
        listed = client.get(f"/v1/agents/a{number}/events").json()["events"][::-1]
        assert [e["score"] for e in listed] == expected.tolist()
        assert [e["final"] for e in listed] == [True] * (len(own) - 1) + [False]
        agent = client.get(f"/v1/agents/a{number}").json()
        assert agent["n_alerts"] == (expected >= 3).sum() == sum(e["alert"] for e in listed)
        assert agent["score"] == expected.max()
    cells = [c for lane in client.get("/v1/lanes").json()["lanes"] for c in lane["cells"]]
    assert sum(c["alerts"] for c in cells) == client.get("/v1/alerts").json()["total"]
    assert sum(c["events"] for c in cells) == len(events)


def test_a_score_that_falls_is_counted_anew(open_client: Any, stay: Stay) -> None:
    client = open_client(Falling())
    for hour in (0, 3):
        client.post("/v1/events", json={"events": [stay("a", hour, 2)]})
    assert client.get("/v1/agents/a").json()["score"] == 2.0, "the second one's, still provisional"
    client.post("/v1/events", json={"events": [stay("a", 6, 1)]})
    assert client.get("/v1/agents/a").json()["score"] == 1.0


def test_a_final_score_takes_no_alert_away(open_client: Any, any_store_url: str, stay: Stay) -> None:
    """Somebody may have seen it."""
    client = open_client(Falling(), store=any_store_url)
    alerted = client.post("/v1/events", json={"events": [stay("a", 0, 4)]}).json()["events"][0]
    assert alerted["alert"]
    client.post("/v1/events", json={"events": [stay("a", 5, 1)]})
    event = client.get(f"/v1/events/{alerted['id']}").json()["event"]
    assert (event["score"], event["final"], event["alert"]) == (0.25, True, True)
    assert [a["id"] for a in client.get("/v1/alerts").json()["alerts"]] == [alerted["id"]]
    assert client.get("/v1/agents/a").json()["n_alerts"] == 1


def test_an_agents_score_of_a_finished_run_stays_when_a_score_falls(
    open_client: Any, any_store_url: str, stay: Stay
) -> None:
    client = open_client(Falling(), store=any_store_url)
    client.post("/v1/events", json={"events": [stay("a", 0, 2), stay("b", 0, 2)]})
    store = Store(any_store_url)
    with store.writing() as connection:
        of_run = {"score": 9.5, "p_value": 1e-9, "reason": "as the run has it"}
        connection.execute(update(r.agents).where(r.agents.c.agent == "a").values(**of_run))
    store.close()
    client.post("/v1/events", json={"events": [stay("a", 3, 1), stay("b", 3, 1)]})
    kept, other = (client.get(f"/v1/agents/{name}").json() for name in "ab")
    assert {name: kept[name] for name in of_run} == of_run
    assert (kept["n_events"], other["n_events"], other["score"]) == (2, 2, 1.0)


def test_a_raised_alert_that_is_like_an_expected_one_is_marked(open_client: Any, stay: Stay) -> None:
    client = open_client(LookingBack())
    sent = client.post("/v1/events", json={"events": [stay("a", 0, 4), stay("a", 5, 1)]}).json()["events"]
    verdict = {"verdict": "expected", "reason": "known", "until": "2025-01-01T00:00:00Z"}
    assert client.put(f"/v1/alerts/{sent[0]['id']}/verdict", json=verdict).status_code == 200
    client.post("/v1/events", json={"events": [stay("a", 7, 5)]})
    raised = client.get(f"/v1/events/{sent[1]['id']}").json()["event"]
    assert raised["alert"]
    assert raised["marked_by"] is not None
