"""Lists, pages, filters, lanes and totals against slow, obvious versions; and the stream of new alerts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy
from fastapi.testclient import TestClient
from service_example import PATIENCE, PlainScorer, a_stay, client_of

from ustad.page import queries, records
from ustad.page.store import insert_new
from ustad.service.app import create_app
from ustad.service.settings import Settings

AGENTS, PER_AGENT = 12, 8


@pytest.fixture(scope="module")
def filled() -> Iterator[tuple[TestClient, list[dict[str, Any]]]]:
    """A service with some agents over a few days, and every event as it was answered."""
    g = np.random.default_rng(5)
    stays = [
        a_stay(f"agent_{i}", hour=12 * j, hours=float(g.integers(1, 10)), poi_category=["work", "shop"][j % 2])
        for i in range(AGENTS) for j in range(PER_AGENT)
    ]  # fmt: skip
    with client_of(create_app(Settings(store="sqlite://"), PlainScorer())) as client:
        events = client.post("/v1/events", json={"events": stays}).json()["events"]
        yield client, events


def pages(ask: Callable[[int], dict[str, Any]], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        page = ask(len(found))
        found += page[name]
        if len(found) >= page["total"]:
            return found


@pytest.mark.parametrize(
    "wanted",
    [{}, {"kind": "novel"}, {"category": "shop"}, {"min_score": 5.5}, {"from": "2024-03-02T00:00:00Z"},
     {"to": "2024-03-02T00:00:00Z"}, {"search": "agent_1"}, {"search": "_1"}, {"search": "%"}, {"agent": "agent_3"},
     {"order": "time"}, {"category": "work", "kind": "novel", "min_score": 7}, {"min_score": 1.5},
     {"min_score": 1.5, "raised": True}, {"min_score": 5.5, "raised": True}, {"raised": True}],
)  # fmt: skip
def test_alerts_are_those_a_plain_loop_finds_in_pages_without_repeats(filled: Any, wanted: dict[str, Any]) -> None:
    client, events = filled
    expected = [
        e for e in events
        if e["score"] >= wanted.get("min_score", 0)
        and (e["alert"] or ("min_score" in wanted and not wanted.get("raised")))
        and e["kind"] == wanted.get("kind", e["kind"]) and e["category"] == wanted.get("category", e["category"])
        and e["started_at"] >= wanted.get("from", "") and e["started_at"] < wanted.get("to", "9")
        and wanted.get("search", "") in e["agent_id"] and e["agent_id"] == wanted.get("agent", e["agent_id"])
    ]  # fmt: skip
    found = pages(lambda at: client.get("/v1/alerts", params={**wanted, "limit": 7, "offset": at}).json(), "alerts")
    assert sorted(a["id"] for a in found) == sorted(e["id"] for e in expected)
    by = "started_at" if wanted.get("order") == "time" else "score"
    assert [a[by] for a in found] == sorted((e[by] for e in expected), reverse=True)


def test_lanes_show_the_highest_score_of_each_day(filled: Any) -> None:
    client, events = filled
    found = pages(lambda at: client.get("/v1/lanes", params={"limit": 5, "offset": at}).json(), "lanes")
    cells = {(lane["agent_id"], c["day"]): c for lane in found for c in lane["cells"]}
    expected: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for e in events:
        expected.setdefault((e["agent_id"], e["day"]), []).append(e)
    assert set(cells) == set(expected)
    for where, group in expected.items():
        worst = max(group, key=lambda e: e["score"])
        assert cells[where]["score"] == worst["score"]
        assert cells[where]["events"] == len(group)
        assert cells[where]["alerts"] == sum(e["alert"] for e in group)
        assert cells[where]["reason"] == worst["reason"] or len({e["score"] for e in group}) < len(group)
    tops = [max(c["score"] for c in lane["cells"]) for lane in found]
    assert tops == sorted(tops, reverse=True)


def test_lanes_can_be_narrowed_to_days_and_kinds(filled: Any) -> None:
    client, events = filled
    found = client.get("/v1/lanes", params={"first": "2024-03-02", "last": "2024-03-02", "kind": "novel"}).json()
    expected = {e["agent_id"] for e in events if e["day"] == "2024-03-02" and e["kind"] == "novel"}
    assert {lane["agent_id"] for lane in found["lanes"]} == expected
    assert {c["day"] for lane in found["lanes"] for c in lane["cells"]} == {"2024-03-02"}


@pytest.mark.parametrize(
    "wanted",
    [{"min_score": 1.5}, {"min_score": 8}, {"min_score": 50}, {"min_score": 8, "search": "_1"},
     {"min_score": 7, "first": "2024-03-02", "last": "2024-03-03"}, {"min_score": 7, "category": "shop"},
     {"min_score": 2.5, "raised": True}],
)  # fmt: skip
def test_lanes_from_a_score_on_are_those_a_plain_loop_finds(filled: Any, wanted: dict[str, Any]) -> None:
    client, events = filled
    matching = [
        e for e in events
        if e["score"] >= wanted["min_score"] and wanted.get("search", "") in e["agent_id"]
        and wanted.get("first", "") <= e["day"] <= wanted.get("last", "9")
        and e["category"] == wanted.get("category", e["category"]) and (e["alert"] or not wanted.get("raised"))
    ]  # fmt: skip
    found = pages(lambda at: client.get("/v1/lanes", params={**wanted, "limit": 5, "offset": at}).json(), "lanes")
    tops = {e["agent_id"]: max(o["score"] for o in matching if o["agent_id"] == e["agent_id"]) for e in matching}
    assert [lane["agent_id"] for lane in found] == sorted(tops, key=lambda agent: (-tops[agent], agent))


def test_lanes_from_a_score_on_are_ranked_without_looking_through_events(filled: Any) -> None:
    client, _ = filled
    asked: list[str] = []
    with client.app.state.service.store.reading() as connection:
        sqlalchemy.event.listen(connection, "before_cursor_execute", lambda *given: asked.append(given[2]))
        found = queries.lanes(connection, queries.Filter(min_score=1.5), 0, 99_999, limit=5, offset=0)
    assert found[0] == AGENTS
    ranking = next(statement for statement in asked if "FROM days" in statement)
    assert "events" not in ranking, "the second question, for the cells of one page, may look at them"


def test_the_slider_counts_what_really_lies_above_its_threshold(filled: Any) -> None:
    client, events = filled
    totals = client.get("/v1/summary").json()
    assert (totals["events"], totals["agents"], totals["alerts"]) == (
        len(events), AGENTS, sum(e["alert"] for e in events)
    )  # fmt: skip
    scores = sorted((e["score"] for e in events), reverse=True)
    for point in totals["curve"]:
        assert point["score"] == scores[point["per_day"] * totals["days"] - 1]
    assert len(totals["curve"]) == len(events) // totals["days"]


def test_an_agents_events_come_latest_first_and_by_span(filled: Any) -> None:
    client, events = filled
    own = [e for e in events if e["agent_id"] == "agent_2"]
    found = client.get("/v1/agents/agent_2/events").json()["events"]
    assert found == own[::-1]
    some = client.get("/v1/agents/agent_2/events", params={"from": own[2]["started_at"], "to": own[4]["started_at"]})
    assert some.json()["events"] == own[2:4][::-1]


def test_a_case_tells_what_usually_happens_and_what_is_nearest(filled: Any) -> None:
    client, events = filled
    own = [e for e in events if e["agent_id"] == "agent_2"]
    case = client.get(f"/v1/events/{own[6]['id']}").json()
    assert case["usually"]["weekday"] == "Monday"
    assert len(case["nearest"]) == 3
    assert {n["id"] for n in case["nearest"]} <= {e["id"] for e in own[:6]}
    assert [n["hours"] for n in case["nearest"]] == [0.0, 0.0, 0.0]
    assert sum(f["share"] for f in case["features"]) == pytest.approx(1.0)
    first = client.get(f"/v1/events/{own[0]['id']}").json()
    assert first["nearest"] == []


def test_of_many_trips_and_gaps_the_latest_are_answered_in_order(client: TestClient) -> None:
    client.post("/v1/events", json={"events": [a_stay("mover")]})
    hour = 3_600_000_000
    rows = [{"agent": "mover", "started_at": i * hour, "finished_at": i * hour + hour // 2} for i in range(20)]
    with client.app.state.service.store.writing() as connection:  # type: ignore[attr-defined]  # of the test client
        insert_new(connection, records.trips, [{**row, "path": "[]"} for row in rows])
        insert_new(connection, records.gaps, rows)

    def hours(name: str, **wanted: Any) -> list[int]:
        found = client.get("/v1/agents/mover/movements", params=wanted).json()[name]
        return [int(row["started_at"][11:13]) for row in found]

    for name in ("trips", "gaps"):
        assert hours(name, limit=3) == [17, 18, 19]
        assert hours(name, limit=3, to="1970-01-01T10:00:00Z") == [7, 8, 9]
        assert hours(name) == list(range(20))


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Pacific/Kiritimati", "UTC"])
def test_alerts_of_a_day_are_those_of_its_lanes_in_any_zone(open_client: Any, zone: str) -> None:
    client = open_client()
    stays = [a_stay(f"agent {i}", hour=6 * i, hours=4, timezone=zone) for i in range(12)]
    events = client.post("/v1/events", json={"events": stays}).json()["events"]
    days = sorted({e["day"] for e in events})
    assert len(days) >= 3
    for first, last in [(days[0], days[0]), (days[1], days[1]), (days[1], days[-1])]:
        expected = {e["agent_id"] for e in events if first <= e["day"] <= last}
        alerts = client.get("/v1/alerts", params={"first_day": first, "last_day": last}).json()
        lanes = client.get("/v1/lanes", params={"first": first, "last": last}).json()
        assert {a["agent_id"] for a in alerts["alerts"]} == expected
        assert {lane["agent_id"] for lane in lanes["lanes"]} == expected
        assert alerts["total"] == lanes["total"] == len(expected)


@pytest.mark.parametrize(
    "path",
    ["/v1/alerts?limit=0", "/v1/alerts?limit=100000", "/v1/alerts?offset=-1", "/v1/alerts?order=no",
     "/v1/alerts?since=-3",
     "/v1/alerts?min_score=nan", "/v1/alerts?from=2024-03-01", "/v1/agents?search=%00", "/v1/lanes?first=soon",
     "/v1/lanes?first=1900-01-01", "/v1/alerts?first_day=soon", "/v1/alerts?state=nonsense"],
)  # fmt: skip
def test_questions_that_make_no_sense_are_422(filled: Any, path: str) -> None:
    answer = filled[0].get(path)
    assert answer.status_code == 422
    assert answer.json()["error"]["code"] == "invalid"


def test_new_alerts_are_streamed_and_a_client_that_was_cut_off_goes_on(
    tiny_run: Any, start_server: Any, tmp_path: Path
) -> None:
    import httpx

    server = start_server(str(tiny_run), "--store", f"sqlite:///{tmp_path}/store.db", "--alerts-per-day", "100000")
    latest = httpx.get(server.url + "/v1/alerts", timeout=PATIENCE).json()["next_since"]
    got: list[tuple[str, dict[str, Any]]] = []

    def read(headers: dict[str, str], wanted: int) -> None:
        with httpx.stream("GET", server.url + "/v1/alerts/stream", headers=headers, timeout=PATIENCE) as stream:
            number = ""
            for line in stream.iter_lines():
                if line.startswith("id: "):
                    number = line[4:]
                if line.startswith("data: "):
                    got.append((number, json.loads(line[6:])))
                    if len(got) == wanted:
                        return

    reader = threading.Thread(target=read, args=({"Last-Event-ID": str(latest)}, 2))
    reader.start()
    for hour in range(6):
        sent = {"events": [a_stay(f"live {hour}", hour=24 * 60 + 6 * hour, hours=3)]}  # of one there would be one alert
        assert httpx.post(server.url + "/v1/events", json=sent, timeout=PATIENCE).status_code == 200
    reader.join(PATIENCE)
    assert [n for n, _ in got] == [str(latest + 1), str(latest + 2)]
    read({"Last-Event-ID": got[-1][0]}, 4)
    assert [int(n) for n, _ in got] == [latest + i for i in (1, 2, 3, 4)]
    assert all(alert["agent_id"].startswith("live") and alert["alert"] for _, alert in got)
