"""Cases: what was done is only ever added to; a case and a list never disagree; forgotten means gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from service_example import PlainScorer, a_stay, client_of
from sqlalchemy import select

from ustad.page import records as r
from ustad.page.store import Store
from ustad.service.app import create_app
from ustad.service.keys import create_key
from ustad.service.retention import expire
from ustad.service.settings import Settings

Stay = Callable[..., dict[str, Any]]
FIRST, HOUR = 1_709_251_200_000_000, 3_600_000_000


def send(client: TestClient, *stays: dict[str, Any]) -> list[str]:
    return [e["id"] for e in client.post("/v1/events", json={"events": list(stays)}).json()["events"]]


def open_case(client: TestClient, *ids: str, **more: Any) -> dict[str, Any]:
    answer = client.post("/v1/cases", json={"incidents": list(ids), **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def change(client: TestClient, case: dict[str, Any], **what: Any) -> Any:
    return client.patch(f"/v1/cases/{case['case']['id']}", json=what)


def acts(case: dict[str, Any]) -> list[tuple[str, str]]:
    return [(entry["act"], entry["text"]) for entry in case["history"]]


def test_a_case_holds_incidents_of_several_people_and_says_who_did_what(
    open_client: Any, any_store_url: str, stay: Stay
) -> None:
    store = Store(any_store_url)
    keys = {name: create_key(store, name, ["read", "verdict", "ingest"]) for name in ("anna", "bo")}
    store.close()
    client = open_client(PlainScorer(), store=any_store_url, key=keys["anna"])
    first, second = send(client, stay("a", hours=4), stay("b", hours=5))
    case = open_case(client, first, title="Both at night", note="seen by the neighbour")
    case = change(client, case, attach=[second], assignee="bo", state="watching").json()
    assert (case["case"]["agents"], case["case"]["state"]) == (["a", "b"], "watching")
    client.headers["Authorization"] = f"Bearer {keys['bo']}"
    seen = client.get(f"/v1/cases/{case['case']['id']}").json()
    client.get(f"/v1/cases/{case['case']['id']}")
    assert [(e["by"], e["act"]) for e in seen["history"]][-1] == ("bo", "looked"), "who looked is known"
    done = change(client, case, detach=[first], note="only the second one").json()
    assert acts(done) == [
        ("opened", "Both at night"), ("attached", ""), ("note", "seen by the neighbour"), ("attached", ""),
        ("assigned", "bo"), ("state", "watching"), ("looked", ""), ("detached", ""), ("note", "only the second one"),
    ]  # fmt: skip
    assert [i["agent_id"] for i in done["incidents"]] == ["b"]
    assert client.get("/v1/cases", params={"assignee": "bo", "agent": "b"}).json()["total"] == 1
    assert client.get("/v1/cases", params={"agent": "a"}).json()["total"] == 0
    assert client.get(f"/v1/events/{second}").json()["cases"][0]["title"] == "Both at night"


@pytest.mark.parametrize(
    ("state", "verdict"), [("confirmed", "confirmed"), ("wrong", "wrong"), ("explained", "expected")]
)
def test_the_state_of_a_case_is_the_verdict_on_its_incidents(
    client: TestClient, stay: Stay, state: str, verdict: str
) -> None:
    ids = send(client, stay("a", hours=4), stay("b", hours=5), stay("c", hours=6))
    case = open_case(client, *ids[:2])
    assert change(client, case, state=state, reason="a phone lent").status_code == 200
    judged = client.get("/v1/alerts", params={"state": verdict}).json()["alerts"]
    assert {a["id"] for a in judged} == set(ids[:2])
    assert client.get("/v1/lanes", params={"state": verdict}).json()["total"] == 2
    assert client.get("/v1/alerts", params={"state": "open"}).json()["total"] == 1
    change(client, case, state="open")
    assert client.get("/v1/alerts", params={"state": "open"}).json()["total"] == 3


def test_a_verdict_on_an_incident_is_in_the_history_of_its_cases(client: TestClient, stay: Stay) -> None:
    (event,) = send(client, stay(hours=4))
    case = open_case(client, event)
    client.put(f"/v1/alerts/{event}/verdict", json={"verdict": "wrong", "reason": "GPS indoors"})
    assert acts(client.get(f"/v1/cases/{case['case']['id']}").json())[-1] == ("verdict", "wrong: GPS indoors")


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(["open", "watching", "explained", "confirmed", "wrong"]),
        "assignee": st.sampled_from(["", "anna", "bo"]), "title": st.sampled_from(["", "x", "y"]),
        "note": st.sampled_from(["", "n1", "n2"]), "attach": st.lists(st.integers(0, 3), max_size=2),
        "detach": st.lists(st.integers(0, 3), max_size=2),
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[TestClient, list[str]]]:
    """A service with an alert of each of four people; every example opens a case of its own."""
    with client_of(create_app(Settings(store="sqlite://"), PlainScorer())) as client:
        yield client, send(client, *(a_stay(agent, hours=4) for agent in "abcd"))


@settings(max_examples=15)
@given(changes=st.lists(CHANGES, min_size=1, max_size=5))
def test_a_history_is_only_ever_added_to_and_a_state_is_its_last_entry(
    shared: tuple[TestClient, list[str]], changes: list[dict[str, Any]]
) -> None:
    client, ids = shared
    case = open_case(client, ids[0])
    for what in changes:
        named = {n: [ids[i] for i in v] if n in ("attach", "detach") else v for n, v in what.items()}
        before, answer = case["history"], change(client, case, reason="because", **named)
        assert answer.status_code == 200, answer.text
        case = answer.json()
        assert case["history"][: len(before)] == before
    attached = [e["event_id"] for e in case["history"] if e["act"] == "attached"]
    detached = [e["event_id"] for e in case["history"] if e["act"] == "detached"]
    assert {i["id"] for i in case["incidents"]} == {i for i in ids if attached.count(i) > detached.count(i)}
    states = [e["text"] for e in case["history"] if e["act"] == "state"]
    assert case["case"]["state"] == (states[-1] if states else "open")


def everything_in(store: Store) -> str:
    with store.reading() as connection:
        return " ".join(str(connection.execute(select(table)).all()) for table in r.metadata.sorted_tables)


def test_who_is_forgotten_is_in_no_case_watchlist_or_view(open_client: Any, any_store_url: str, stay: Stay) -> None:
    client = open_client(PlainScorer(), store=any_store_url)
    gone, other = send(client, stay("Gone & Co", hours=4), stay("b", hours=5))
    alone = open_case(client, gone, note="Gone & Co was at home")
    shared = open_case(client, other, gone, title="with Gone & Co", note="Gone & Co again")
    client.put("/v1/agents/Gone%20%26%20Co/watch", json={"watched": True, "note": "Gone & Co"})
    client.put("/v1/views", json={"name": "one", "address": "/agent/Gone%20%26%20Co?kind=novel"})
    client.put("/v1/views", json={"name": "two", "address": "/?search=Gone+%26+Co"})
    client.put("/v1/views", json={"name": "kept", "address": "/?kind=novel"})
    assert client.delete("/v1/agents/Gone%20%26%20Co").status_code == 200
    assert "Gone" not in everything_in(client.app.state.service.store)
    assert client.get(f"/v1/cases/{alone['case']['id']}").status_code == 404
    left = client.get(f"/v1/cases/{shared['case']['id']}").json()
    assert [i["agent_id"] for i in left["incidents"]] == ["b"]
    assert [v["name"] for v in client.get("/v1/views").json()["views"]] == ["kept"]


def test_what_retention_deletes_is_in_no_case(client: TestClient, stay: Stay) -> None:
    old, new = send(client, stay(hour=0, hours=4), stay(hour=100, hours=4))
    both, alone = open_case(client, old, new), open_case(client, old, note="long ago")
    expire(client.app.state.service.store, FIRST + 50 * HOUR)
    assert client.get(f"/v1/cases/{alone['case']['id']}").status_code == 404
    assert [i["id"] for i in client.get(f"/v1/cases/{both['case']['id']}").json()["incidents"]] == [new]
    assert "long ago" not in everything_in(client.app.state.service.store)


def test_watched_people_can_be_listed_alone(client: TestClient, stay: Stay) -> None:
    send(client, stay("a", hours=4), stay("b", hours=5))
    assert client.put("/v1/agents/b/watch", json={"watched": True}).json()["watched"][0]["agent_id"] == "b"
    assert [a["agent_id"] for a in client.get("/v1/alerts", params={"watched": True}).json()["alerts"]] == ["b"]
    lanes = client.get("/v1/lanes", params={"watched": True}).json()["lanes"]
    assert [lane["agent_id"] for lane in lanes] == ["b"]
    assert client.put("/v1/agents/b/watch", json={"watched": False}).json()["watched"] == []
    assert client.put("/v1/agents/nobody/watch", json={"watched": True}).status_code == 404


def test_who_may_only_look_changes_nothing(open_client: Any, store_url: str) -> None:
    key = create_key(Store(store_url), "reader", ["read"])
    client = open_client(key=key)
    tried = [
        client.post("/v1/cases", json={"incidents": ["1"]}), client.patch("/v1/cases/1", json={"state": "wrong"}),
        client.put("/v1/agents/a/watch", json={"watched": True}), client.delete("/v1/views", params={"name": "x"}),
        client.put("/v1/views", json={"name": "x", "address": "/"}),
    ]  # fmt: skip
    assert [answer.status_code for answer in tried] == [403] * 5
    assert client.get("/v1/cases").status_code == client.get("/v1/watchlist").status_code == 200


@pytest.mark.parametrize("address", ["//evil.example", "https://evil.example", "javascript:alert(1)", ""])
def test_a_saved_view_never_leads_to_another_site(client: TestClient, address: str) -> None:
    assert client.put("/v1/views", json={"name": "x", "address": address}).status_code == 422
