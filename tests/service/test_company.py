"""Other people on the page of an alert: who does this at this hour, and who was there who is usually not."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
from service_example import PlainScorer, a_stay


def make_stays(seed: int = 5, days: int = 10) -> list[dict[str, Any]]:
    """Thirty people of whom each begins a stay a day, at one of three places of three kinds."""
    chance = np.random.default_rng(seed)
    stays = []
    for person in range(30):
        for day in range(days):
            spot = int(chance.integers(3))
            hour = 24 * day + float(chance.uniform(8, 14))
            more = {"lat": 60.17 + 0.01 * spot, "poi_category": ("work", "bar", "shop")[spot]}
            stays.append(a_stay(f"p{person}", hour, float(chance.uniform(0.5, 2)), **more))
    return stays


def seconds(stay: dict[str, Any], name: str) -> float:
    return datetime.fromisoformat(stay[name]).timestamp()


def expect_company(stays: list[dict[str, Any]], own: dict[str, Any]) -> dict[str, Any]:
    """The slow way, from a plain list."""
    start, end = seconds(own, "started_at"), seconds(own, "finished_at")
    others = [s for s in stays if s["agent_id"] != own["agent_id"]]
    days = [timedelta(days=n).total_seconds() for n in range(1, 8)]
    hour = [s for s in others if any(abs(seconds(s, "started_at") - start + d) <= 3600 for d in days)]
    alike = {s["agent_id"] for s in hour if s["poi_category"] == own["poi_category"]}
    here = [s for s in others if abs(s["lat"] - own["lat"]) < 1e-3]
    there = {s["agent_id"] for s in here if seconds(s, "started_at") < end and seconds(s, "finished_at") > start}
    visits = {a: sum(s["agent_id"] == a and seconds(s, "started_at") < start - 43_200 for s in here) for a in there}
    new = [{"agent_id": a, "visits": visits[a]} for a in sorted(there)[:10] if visits[a] <= 1]
    peers = {
        "people": len({s["agent_id"] for s in hour}),
        "alike": len(alike),
        "days": 7,
        "category": own["poi_category"],
    }
    return {"peers": peers, "others": {"people": len(there), "new": new, "missed": []}}


def test_other_people_are_those_of_a_plain_list(open_client: Any) -> None:
    client, stays = open_client(PlainScorer()), make_stays()
    own = a_stay("me", 24 * 8 + 11, 4, lat=60.18, poi_category="bar")
    for part in (stays[:200], [*stays[200:], own]):
        assert client.post("/v1/events", json={"events": part}).status_code == 200
    found = next(e for e in client.get("/v1/alerts").json()["alerts"] if e["agent_id"] == "me")
    company = client.get(f"/v1/events/{found['id']}").json()["company"]
    wanted = expect_company(stays, own)
    assert company == wanted
    assert wanted["peers"]["alike"] > 3
    assert wanted["others"]["people"] > len(wanted["others"]["new"])


def test_only_alerts_are_asked_about_others(open_client: Any) -> None:
    client = open_client(PlainScorer())
    sent = client.post("/v1/events", json={"events": [a_stay(hours=1)]}).json()["events"][0]
    assert client.get(f"/v1/events/{sent['id']}").json()["company"] is None


def test_an_alert_without_place_and_kind_knows_nobody(open_client: Any) -> None:
    client = open_client(PlainScorer())
    stay = {k: v for k, v in a_stay(hours=5).items() if k not in ("lat", "lon", "poi_category")}
    answer = client.post("/v1/events", json={"events": [stay]})
    if answer.status_code == 200:
        found = client.get(f"/v1/events/{answer.json()['events'][0]['id']}").json()
        assert found["company"] == {"peers": None, "others": None}


def test_who_is_usually_here_and_was_not_is_missed_with_where_they_were(open_client: Any) -> None:
    day, stays = 13, []  # a Thursday; weekdays before it are days 0, 3 to 7, 10 to 12
    for n in (0, 3, 4, 5, 6, 7, 10, 11, 12, day):
        here = {"lat": 60.18, "poi_category": "bar"}
        stays += [a_stay("always", 24 * n + 10, 3, **here)]
        stays += [a_stay("regular", 24 * n + 10, 3, **(here if n != day else {}))]
        stays += [a_stay("silent", 24 * n + 10, 3, **here)] if n != day else []
        stays += [a_stay("seldom", 24 * n + 10, 3, **(here if n in (6, 12) else {}))]
        stays += [a_stay("later", 24 * n + 15, 3, **here)] if n != day else []
    own = a_stay("me", 24 * day + 10.5, 4, lat=60.18, poi_category="bar")
    client = open_client(PlainScorer())
    answer = client.post("/v1/events", json={"events": [*stays, own]}).json()
    key = next(e["id"] for e in answer["events"] if e["agent_id"] == "me")
    missed = client.get(f"/v1/events/{key}").json()["company"]["others"]["missed"]
    assert missed == [
        {"agent_id": "regular", "days": 9, "of": 10, "where": "work"},
        {"agent_id": "silent", "days": 9, "of": 10, "where": None},
    ]
