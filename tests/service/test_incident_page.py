"""One incident on the page: the days around it, why its events belong together, and names on its map."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from page_visit import Visit
from service_example import PlainScorer, a_stay

from ustad.scoring.incidents import IncidentLog

ZONE = ZoneInfo("Europe/Helsinki")
CALL = "async ([file, name, values]) => (await import(`/static/${file}.js`))[name](...values)"

LOAD = """async () => {
  window.parts = { ...await import("/static/drawer.js"), ...await import("/static/agent.js") };
}"""


def make_days(seed: int = 3) -> list[dict[str, Any]]:
    """Six weeks around a change of the clocks: stays of every length at one of three places, with silence between."""
    chance, hour, stays = np.random.default_rng(seed), 3.0, []
    while hour < 24 * 42:
        spot, length = int(chance.integers(3)), float(chance.uniform(0.3, 15))
        more = {"lat": 60.17 + 0.01 * spot, "poi_category": ("home", "work", "bar")[spot]}
        stays.append(a_stay("me", hour, length, **more))
        hour += length + float(chance.uniform(0, 3))
    return stays


def expect_days(stays: list[dict[str, Any]], own: dict[str, Any]) -> list[dict[str, Any]]:
    """The slow way, by wall clocks."""
    wall = [[_wall(stay[n]) for n in ("started_at", "finished_at")] for stay in stays]
    wall = [
        [start, start + (_utc(s["finished_at"]) - _utc(s["started_at"]))]
        for (start, _), s in zip(wall, stays, strict=True)
    ]
    at = stays.index(own)
    today = wall[at][0].date()
    midnight = datetime.combine(today + timedelta(days=1), datetime.min.time())
    middle = wall[at][0] + (min(wall[at][1], midnight) - wall[at][0]) / 2
    first = max(wall[0][0].date(), middle.date() - timedelta(days=28))
    last = min(wall[-1][1].date(), middle.date() + timedelta(days=14))
    days = []
    for n in range((last - first).days + 1):
        day = first + timedelta(days=n)
        moment = middle + (day - middle.date())
        cover = [s for s, (start, end) in zip(stays, wall, strict=True) if start <= moment < end]
        visits = [
            s for s, (start, _) in zip(stays, wall, strict=True) if start.date() == day and s["lat"] == own["lat"]
        ]
        at_hour = cover[-1] if cover else None
        days.append({
            "day": day.isoformat(),
            "at": at_hour["poi_category"] if at_hour else None,
            "here": bool(at_hour and at_hour["lat"] == own["lat"]),
            "visits": len(visits),
            "incident": day == today,
        })  # fmt: skip
    return days


def _utc(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _wall(text: str) -> datetime:
    return _utc(text).astimezone(UTC).astimezone(ZONE).replace(tzinfo=None)


def test_the_days_around_an_event_are_those_of_a_plain_list(open_client: Any) -> None:
    client, stays = open_client(PlainScorer()), make_days()
    sent = client.post("/v1/events", json={"events": stays}).json()["events"]
    for at in range(2, len(stays), 17):
        days = client.get(f"/v1/events/{sent[at]['id']}").json()["days"]
        assert days["days"] == expect_days(stays, stays[at])
        assert {d["day"]: d["here"] for d in days["days"]}[days["today"]]
        assert days["today"] == _wall(stays[at]["started_at"]).date().isoformat()


def test_the_sentence_of_days_counts_like_days_before_and_after(visit: Visit) -> None:
    page = visit.go()
    days = [("2024-03-0" + str(n), "home" if n < 6 else "school") for n in range(1, 9)]  # Friday to Friday
    number = {day: (datetime.fromisoformat(day) - datetime(1970, 1, 1)).days for day, _ in days}
    cells = [
        {"day": d, "at": at, "here": at == "school", "visits": int(at == "school"), "number": number[d],
         "isToday": d == "2024-03-07"}
        for d, at in days
    ]  # fmt: skip
    said = page.evaluate(CALL, ["days_here", "sentence", [cells, "09:10"]])
    assert said == (
        "Weekdays at 09:10: here on 1 of 4 before and 1 of 1 after, home on 3 of 4 before and 0 of 1 after. At any "
        "hour, here on 1 day before and 1 after. Only 4 such days are known before."
    )
    cells[5]["incident"] = True  # the day before: what the incident did itself is not told as before it
    said = page.evaluate(CALL, ["days_here", "sentence", [cells, "09:10"]])
    assert "here on 0 of 3 before" in said
    assert "here on 0 days before and 1 after. 1 other day of this incident not counted." in said


@pytest.mark.parametrize("seed", [1, 2])
def test_why_events_are_one_incident_is_how_they_were_joined(visit: Visit, seed: int) -> None:
    """Scoring's own log is asked which rule joined each event."""
    chance, log, hour, events, reasons = np.random.default_rng(seed), IncidentLog(), 0.0, [], {}
    for key in range(60):
        hour += float(chance.choice([1.0, 5.0, 20.0, 30.0, 48.0]))
        place, p_value = int(chance.integers(2)), float(chance.choice([0.001, 0.5], p=[0.7, 0.3]))
        start = datetime(2024, 3, 1, tzinfo=UTC) + timedelta(hours=hour)
        before = log.last
        near = {i.incident_id for i in log.incidents if start.timestamp() * 1e6 - i.latest <= 24 * 3.6e9}
        joined = log.add(key, str(key), int(start.timestamp() * 1e6), place, p_value, 1.0)
        incident = joined.incident_id if joined else None
        events.append({"id": str(key), "incident_id": incident, "score": 1.0, "started_at": start.isoformat()})
        if joined and incident != str(key):
            reasons[str(key)] = "next after" if incident == before and before in near else "again here"
    assert set(reasons.values()) == {"next after", "again here"}
    page = visit.go()
    page.evaluate(
        "async () => { window.parts = { ...await import('/static/drawer.js'), ...await import('/static/agent.js') }; }"
    )
    said = page.evaluate(
        """([events, keys]) => keys.map((key) => {
          const event = events.find((e) => e.id === key);
          const incident = events.filter((e) => e.incident_id === event.incident_id);
          return window.parts.joinedBy(event, { incident, before: (e) => window.parts.eventBefore(events, e) });
        })""",
        [events, list(reasons)],
    )
    assert [text.split(" the")[0].split(" at")[0] for text in said] == list(reasons.values())


def test_every_stay_of_an_incident_says_where_it_was_and_what_it_scored(visit: Visit) -> None:
    """Beside a score of 4.2 nothing says that nothing stands out."""
    home = {"lon": 24.94, "lat": 60.17, "category": "house", "visits": 20, "hours": 200, "name": None}
    stays = [
        a_stay("me", 1, 1, poi_category="house"),
        a_stay("me", 2, 2, lat=60.27, poi_category="shop"),
    ]  # fmt: skip
    shown = {"agent_id": "me", "timezone": "UTC", "place_name": None, "kind": None, "term": None, "with_it": None}
    more = {"score": 4.2, "p_value": 1e-4, "incident_id": "1", "verdict": None, "reason": None, "echo": True}
    events: list[dict[str, Any]] = [
        {**shown, **more, **s, "id": str(i), "lat": s["lat"], "lon": 24.94, "category": s["poi_category"]}
        for i, s in enumerate(stays)
    ]
    events[1] |= {"score": 5.0, "echo": False, "reason": "At a shop at 02:00.", "with_it": "With it: at a house."}
    page = visit.go()
    page.evaluate(LOAD)
    draw = """([events, home, id]) => {
      const usually = { weekday: null }, detail = { event: events[id], features: [], usually, nearest: [], verdicts: [] };
      const about = { event_word: "stay", roles: [] }, act = { incident: events, places: [home], before: () => null };
      const panel = window.parts.drawer({ ...detail, knn: {} }, about, act);
      return [panel.querySelector(".sentence")?.textContent ?? null, ...[...panel.querySelectorAll(".incident li")].map((l) => l.textContent)];
    }"""  # noqa: E501
    said, *lines = page.evaluate(draw, [events, home, 0])
    assert said is None, "no reason, no sentence"
    assert "house · at home · score 4.2" in lines[0]
    assert "shop · the most unusual · 11 km from home · score 5.0" in lines[1]
    assert "At a shop at 02:00." in lines[1]
    assert page.evaluate(draw, [events, home, 1])[0] == "At a shop at 02:00. With it: at a house."


def test_who_has_no_alert_on_a_day_of_everybody_is_told_so(visit: Visit) -> None:
    page, least = (
        visit.go(),
        {"slid": None, "typed": None, "raised": 2.0, "days": {"2024-05-20": "unusual for everybody"}},
    )
    cell = {"day": "2024-05-20", "score": 6.5, "alerts": 0}

    def why(*cells: dict[str, Any]) -> str | None:
        top = max(c["score"] for c in cells)
        return page.evaluate(CALL, ["lanes", "silentDay", [{"cells": cells}, top, least]])  # type: ignore[no-any-return]

    assert why(cell) == "No alert: Mon, 20 May 2024 is unusual for everybody"
    assert why({**cell, "alerts": 1}) is None
    assert why({**cell, "score": 1.5}) is None
    other = why({**cell, "day": "2024-05-21"})
    assert other == "No alert: a rule hides it, verdicts taught otherwise, or its alert is on another day"


def test_with_the_slider_an_alert_is_what_leads_an_incident_and_is_unusual_enough(visit: Visit) -> None:
    page = visit.go()

    def is_alert(slid: float | None, **event: Any) -> bool:
        event = {"score": 3.0, "echo": False, "alert": False, **event}
        return page.evaluate(CALL, ["agent", "asSlid", [event, {"slid": slid}]])["alert"]  # type: ignore[no-any-return]

    assert is_alert(2.5)
    assert not is_alert(3.5)
    assert not is_alert(2.5, echo=True)
    assert not is_alert(2.5, score=None)
    assert is_alert(None, alert=True)


def test_home_is_named_where_expected_and_observed_lie_on_it(visit: Visit) -> None:
    home = {"lon": 24.94, "lat": 60.17, "category": "house", "visits": 20, "hours": 200, "name": None}
    bar = {"lon": 24.99, "lat": 60.19, "category": "bar", "visits": 3, "hours": 4, "name": None}
    page = visit.go()

    def labels(seen: list[float], expected: list[float]) -> list[str]:
        view = {"seen": seen, "expected": expected, "places": [home, bar], "towns": []}
        return [label["text"] for label in page.evaluate(CALL, ["map_labels", "labelsOf", [view]])]

    near = [24.9401, 60.1701]
    assert labels([24.94, 60.17], near) == ["observed and expected: home", "bar"]
    assert labels([24.9423, 60.17], [24.94, 60.17]) == ["observed and expected: home (127 m off)", "bar"]
    assert labels([24.99, 60.19], near) == ["observed: bar", "expected: home"]
    assert labels([24.97, 60.2], [24.97, 60.3]) == ["observed", "expected", "home", "bar"]


def test_a_line_tells_the_stay_that_explains_an_alert_and_then_the_alert_itself(visit: Visit) -> None:
    alert = {
        "reason": "At home at 04:43 for 4 h. Usually here from 14:48.",
        "with_it": "With it: a gym.",
        "led_by": None,
    }
    bank = {"reason": "At a bank at 02:28 for 2 h.", "category": "bank", "timezone": "Europe/Berlin"}
    times = {"started_at": "2024-05-24T00:28:00Z", "finished_at": "2024-05-24T02:40:00Z"}
    page = visit.go()
    said = [
        page.evaluate(CALL, ["words", "story", [one, short]])
        for one in (
            alert,
            {**alert, "led_by": {**bank, **times}},
            {**alert, "led_by": {**bank, **times, "reason": None}},
        )
        for short in (True, False)
    ]
    assert said == [
        f"{alert['reason']} With it: a gym.",
        f"{alert['reason']} With it: a gym.",
        "At a bank at 02:28 for 2 h. Then: At home at 04:43 for 4 h.",
        f"At a bank at 02:28 for 2 h. Then: {alert['reason']}",
        "bank, 02:28–04:40. Then: At home at 04:43 for 4 h.",
        f"bank, 02:28–04:40. Then: {alert['reason']}",
    ]
