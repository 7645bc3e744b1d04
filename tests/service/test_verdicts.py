"""Verdicts: kept with who and when, marking like events until they expire, never hiding them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service_example import PlainScorer

from ustad.page.likeness import is_like
from ustad.page.store import Store
from ustad.service.keys import create_key

Stay = Callable[..., dict[str, Any]]


def alert_of(client: TestClient, *stays: dict[str, Any]) -> list[dict[str, Any]]:
    return client.post("/v1/events", json={"events": list(stays)}).json()["events"]


def give(client: TestClient, event: dict[str, Any], **verdict: Any) -> Any:
    return client.put(f"/v1/alerts/{event['id']}/verdict", json=verdict)


def test_a_verdict_says_who_gave_it_and_survives_a_restart(open_client: Any, store_url: str, stay: Stay) -> None:
    key = create_key(Store(store_url), "the morning shift", ["read", "verdict", "ingest"])
    client = open_client(key=key)
    (event,) = alert_of(client, stay(hours=4))
    given = give(client, event, verdict="confirmed", note="called\nback").json()["verdict"]
    assert (given["verdict"], given["by"], given["note"]) == ("confirmed", "the morning shift", "called\nback")
    later = open_client(PlainScorer(), key=key)
    assert later.get("/v1/alerts", params={"state": "confirmed"}).json()["alerts"][0]["verdict"] == given
    assert later.get("/v1/alerts", params={"state": "open"}).json()["total"] == 0


def test_like_events_are_marked_until_the_verdict_expires_and_never_hidden(client: TestClient, stay: Stay) -> None:
    first, second = alert_of(client, stay(hour=0, hours=4), stay(hour=10, hours=5))
    give(client, first, verdict="expected", reason="night shift", until="2024-03-03T00:00:00Z")
    marked = client.get("/v1/alerts", params={"state": "marked"}).json()["alerts"]
    assert [a["id"] for a in marked] == [second["id"]], "an open alert like it is marked at once"
    new = alert_of(client, stay(hour=24, hours=4), stay("b", hour=24, hours=4))
    far = alert_of(client, stay(hour=30, hours=4, lat=61.0))[0]
    other = alert_of(client, stay(hour=36, hours=4, poi_category="shop"))[0]
    late = alert_of(client, stay(hour=72, hours=4))[0]
    assert new[0]["marked_by"] is not None
    assert [e["marked_by"] for e in (new[1], far, other, late)] == [None] * 4
    assert client.get("/v1/alerts").json()["total"] == 7, "marked alerts are listed like the others"


def test_taking_a_verdict_back_unmarks_what_it_marked_and_keeps_its_history(client: TestClient, stay: Stay) -> None:
    first, _ = alert_of(client, stay(hour=0, hours=4), stay(hour=10, hours=5))
    give(client, first, verdict="expected", reason="travel")
    give(client, first, verdict="open")
    assert client.get("/v1/alerts", params={"state": "open"}).json()["total"] == 2
    case = client.get(f"/v1/events/{first['id']}").json()
    assert [v["verdict"] for v in case["verdicts"]] == ["open", "expected"]
    assert case["event"]["verdict"] is None


@pytest.mark.parametrize(
    ("verdict", "status"),
    [({"verdict": "expected"}, 422), ({"verdict": "expected", "reason": "  "}, 422), ({"verdict": "guilty"}, 422),
     ({}, 422), ({"verdict": "confirmed", "note": "x" * 5000}, 422), ({"verdict": "confirmed", "note": "\x00"}, 422)],
)  # fmt: skip
def test_a_verdict_that_is_not_complete_is_refused(
    client: TestClient, stay: Stay, verdict: dict[str, Any], status: int
) -> None:
    (event,) = alert_of(client, stay(hours=4))
    assert give(client, event, **verdict).status_code == status
    assert client.get("/v1/alerts", params={"state": "open"}).json()["total"] == 1


@pytest.mark.parametrize("alert", ["0", "1", "9" * 19, "99999999999999999999", "abc", "-1", "²"])
def test_a_verdict_on_an_alert_that_is_not_there_is_404(client: TestClient, alert: str) -> None:
    assert client.put(f"/v1/alerts/{alert}/verdict", json={"verdict": "confirmed"}).status_code == 404


def test_like_means_same_agent_term_category_and_nearby() -> None:
    judged = {"agent": "a", "term": "start", "category": "work", "lat": 60.0, "lon": 25.0}
    assert is_like({**judged, "lat": 60.003}, judged)
    for change in ({"agent": "b"}, {"term": "duration"}, {"category": "home"}, {"lat": 60.01}):
        assert not is_like({**judged, **change}, judged)
    assert is_like({**judged, "lat": None}, judged), "where there is no place, place does not tell them apart"
