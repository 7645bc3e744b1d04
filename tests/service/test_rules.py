"""Rules in the service: previewed, hiding what they say and nothing else, undone without a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from service_example import PlainScorer

from ustad.page.store import Store
from ustad.service.keys import create_key

Stay = Callable[..., dict[str, Any]]
NIGHT = {
    "agent_id": "a",
    "from_minute": 120,
    "to_minute": 360,
    "until": "2024-03-20T00:00:00Z",
    "reason": "night shift",
}


def send(client: TestClient, *stays: dict[str, Any]) -> list[str]:
    return [e["id"] for e in client.post("/v1/events", json={"events": list(stays)}).json()["events"]]


def everything(client: TestClient) -> dict[str, Any]:
    """What lists, lanes and totals say."""
    paths = ("/v1/alerts", "/v1/alerts?min_score=0", "/v1/lanes", "/v1/agents", "/v1/alerts?state=open")
    summary = client.get("/v1/summary").json()
    return {path: client.get(path).json() for path in paths} | {"summary": summary}


def clear_cache(client: TestClient) -> None:
    client.app.state.service.totals = None


def test_a_rule_hides_what_its_preview_said_now_and_later_and_undo_brings_all_back(
    open_client: Any, any_store_url: str, stay: Stay
) -> None:
    """Stays at 02:00 and 12:00 in Helsinki on several days, of two people; the rule is of the nights of one."""
    client = open_client(PlainScorer(), store=any_store_url)
    ids = send(client, *(stay(who, 24 * day + hour, 4) for who in "ab" for day in (0, 1) for hour in (0, 10)))
    client.put(f"/v1/alerts/{ids[0]}/verdict", json={"verdict": "confirmed"})
    before = everything(client)
    seen = client.post("/v1/rules/preview", json=NIGHT).json()
    assert (seen["alerts"], seen["hidden"], seen["confirmed"]) == (8, 2, 1)
    assert everything(client) == before, "a preview changes nothing"
    (rule,) = client.post("/v1/rules", json=NIGHT).json()["rules"]
    clear_cache(client)
    assert (rule["hides"], rule["state"]) == (2, "expired"), "its date has passed, what came before it stays hidden"
    after = everything(client)
    hidden = {ids[0], ids[2]}
    assert {a["id"] for a in after["/v1/alerts"]["alerts"]} == set(ids) - hidden
    assert (after["summary"]["alerts"], after["summary"]["hidden"]) == (6, 2)
    assert sum(cell["alerts"] for lane in after["/v1/lanes"]["lanes"] for cell in lane["cells"]) == 6
    listed = client.get("/v1/alerts", params={"state": "hidden"}).json()["alerts"]
    assert {a["id"]: a["score"] for a in listed} == dict.fromkeys(hidden, 4.0), "listed on request, with their scores"
    late = send(client, stay("a", 72, 4), stay("a", 82, 4), stay("b", 72, 4), stay("a", 24 * 30, 4))
    clear_cache(client)
    assert [client.get(f"/v1/events/{i}").json()["event"]["hidden_by"] for i in late] == [rule["id"], None, None, None]
    assert client.get("/v1/alerts").json()["total"] == 9
    assert client.delete(f"/v1/rules/{rule['id']}").json()["rules"][0]["state"] == "ended"
    clear_cache(client)
    assert client.get("/v1/alerts").json()["total"] == client.get("/v1/summary").json()["alerts"] == 12
    assert client.delete(f"/v1/rules/{rule['id']}").status_code == 404


def test_undoing_one_of_two_rules_leaves_what_the_other_hides(client: TestClient, stay: Stay) -> None:
    send(client, stay("a", 0, 4), stay("a", 10, 4))
    both = client.post("/v1/rules", json=NIGHT | {"from_minute": 0, "to_minute": 1440}).json()["rules"][0]
    client.post("/v1/rules", json=NIGHT)
    assert client.get("/v1/alerts").json()["total"] == 0
    rules = client.delete(f"/v1/rules/{both['id']}").json()["rules"]
    assert [rule["hides"] for rule in rules] == [1, 0]
    assert client.get("/v1/alerts").json()["total"] == 1


@pytest.mark.parametrize("change", [{"agent_id": None}, {"reason": ""}, {"until": "soon"}, {"lat": 60.0}])
def test_a_rule_without_scope_reason_or_date_is_refused(client: TestClient, change: dict[str, Any]) -> None:
    assert client.post("/v1/rules", json=NIGHT | change).status_code == 422


def test_a_rule_goes_with_the_person_it_is_about_and_needs_the_role(
    open_client: Any, store_url: str, stay: Stay
) -> None:
    reader = create_key(Store(store_url), "reader", ["read"])
    client = open_client(key=create_key(Store(store_url), "chief", ["read", "verdict", "ingest", "admin"]))
    send(client, stay("a", 0, 4))
    client.post("/v1/rules", json=NIGHT)
    client.delete("/v1/agents/a")
    assert client.get("/v1/rules").json()["rules"] == []
    client.headers["Authorization"] = f"Bearer {reader}"
    assert client.post("/v1/rules", json=NIGHT).status_code == 403
    assert client.post("/v1/rules/preview", json=NIGHT).status_code == 200
