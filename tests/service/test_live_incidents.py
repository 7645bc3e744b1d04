"""Incidents as events come: as in bulk, through restarts, and with one alert each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from service_example import PlainScorer

from ustad.schema import mobility_schema
from ustad.scoring.incidents import IncidentLog, find_incidents
from ustad.service.live import ModelScorer
from ustad.service.live_incidents import join_incident, known_incidents, pack_state, unpack_state
from ustad.service.pipeline import ScoreBatch

HOUR = 3_600_000_000
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 500),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([0.5, 0.2, 0.04, 0.01, 0.001, 1e-5]),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
    unique_by=lambda e: e[0],
)


@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_what_the_store_knows_is_enough_to_go_on_as_bulk_does(events: list[tuple[int, Any, float, bool]]) -> None:
    """A restart, where the flag says so, reads the incidents back from the rows of the store."""
    rows: list[dict[str, Any]] = []
    log = IncidentLog()
    for hour, place, p, restarted in sorted(events):
        if restarted:
            log = known_incidents(rows).get("x", IncidentLog())
        event = {"started_at": hour * HOUR, "poi_id": place}
        score = {"p_value": p, "score": float(-np.log10(p)), "alert": p <= 0.01}
        joined = join_incident(log, event, hour, str(hour), score=score)
        if joined is not None and joined.led_before is not None:
            next(row for row in rows if row["key"] == joined.led_before)["echo"] = True
        rows.append({**event, **score, "agent": "x", "key": hour, "incident": score["incident_id"]})
    ordered = sorted(events)
    table = pa.table(
        {
            "stay_id": [e[0] for e in ordered],
            "agent_id": ["x"] * len(ordered),
            "started_at": pa.array([e[0] * HOUR for e in ordered]).cast(pa.timestamp("us", tz="UTC")),
            "poi_id": pa.array([e[1] for e in ordered], pa.string()),
        }
    )
    p_values = np.array([e[2] for e in ordered])
    bulk = find_incidents(table, mobility_schema(), p_values, -np.log10(p_values))
    assert [row["incident"] for row in rows] == bulk.incident_id.tolist()
    assert [row["echo"] for row in rows] == bulk.echo.tolist()
    for incident in {i for i in bulk.incident_id if i is not None}:
        mine = [row for row in rows if row["incident"] == incident]
        crossed = [row["key"] for row in mine if row["p_value"] <= 0.01]
        assert [row["key"] for row in mine if row["alert"]] == crossed[:1], "one alert, of the first beyond the limit"


@settings(max_examples=60, deadline=None)
@given(EVENTS)
def test_a_stored_state_is_enough_to_go_on_when_retention_has_deleted_every_event(events: list[Any]) -> None:
    unbroken, restarted = IncidentLog(), IncidentLog()
    for hour, place, p, is_restart in sorted(events):
        event = {"started_at": hour * HOUR, "poi_id": place}
        first, second = ({"p_value": p, "score": float(-np.log10(p)), "alert": p <= 0.01} for _ in range(2))
        assert join_incident(unbroken, event, hour, str(hour), score=first) == join_incident(
            restarted, event, hour, str(hour), score=second
        )
        assert first == second
        if is_restart:
            log, state = unpack_state(pack_state(restarted, hour * HOUR, b"counts\n"))
            assert state == b"counts\n"
            restarted = log


def test_a_state_of_an_earlier_version_has_no_incidents() -> None:
    assert unpack_state(b"PK\x03 a state") == (None, b"PK\x03 a state")
    assert unpack_state(None) == (None, None)


# ------------------------------------------------------------------------------------------------- the service
class JoiningScorer(PlainScorer):
    """An hour scores 1, so that two hours are unusual; events that belong together are joined as a model's are."""

    def __init__(self) -> None:
        super().__init__()
        self._incidents: dict[str, IncidentLog] = {}

    def remember(self, agents: Any, context: Any, states: Any, incidents: Any = None) -> None:
        super().remember(agents, context, states)
        self._incidents |= {agent: incidents.get(agent) or IncidentLog() for agent in agents}

    def score(self, rows: Any) -> ScoreBatch:
        plain = super().score(rows)
        echoes = ModelScorer._join_incidents(self, rows, plain.rows)  # type: ignore[arg-type]  # all that it asks for
        return ScoreBatch(plain.zones, plain.rows, echoes)


@pytest.fixture(params=[True, False], ids=["restarted", "in one go"])
def joined(request: Any, open_client: Any, any_store_url: str, stay: Any) -> Any:
    """A client after three unusual stays in a row, the second the longest, then a usual and another long one."""
    client = open_client(JoiningScorer(), store=any_store_url)
    for hour, hours in ((0, 4), (5, 6), (12, 3), (16, 0.1), (17, 5)):
        if request.param:
            client = open_client(JoiningScorer(), store=any_store_url)
        assert client.post("/v1/events", json={"events": [stay("a", hour, hours)]}).status_code == 200
    return client


def events_of(client: Any) -> list[dict[str, Any]]:
    return sorted(client.get("/v1/agents/a/events").json()["events"], key=lambda event: event["started_at"])


def test_stays_in_a_row_are_one_incident_of_the_store_with_one_alert(joined: Any) -> None:
    first, second, third, usual, other = events_of(joined)
    assert first["incident_id"] == second["incident_id"] == third["incident_id"] != other["incident_id"]
    assert usual["incident_id"] is None
    assert [event["echo"] for event in (first, second, third, usual, other)] == [True, False, True, False, False]
    assert [event["alert"] for event in (first, second, third, usual, other)] == [True, False, False, False, True]
    assert joined.get("/v1/agents/a").json()["n_alerts"] == 2


def test_the_slider_lists_and_counts_an_incident_once(joined: Any) -> None:
    _, second, *_, other = events_of(joined)
    listed = joined.get("/v1/alerts", params={"min_score": 2.5}).json()["alerts"]
    assert [event["id"] for event in listed] == [second["id"], other["id"]]
    curve = joined.get("/v1/summary").json()["curve"]
    assert [point["score"] for point in curve[:2]] == pytest.approx([6.0, 5.0])


def test_a_verdict_is_of_the_whole_incident_and_of_no_other(joined: Any) -> None:
    first, *_, other = events_of(joined)
    joined.put(f"/v1/alerts/{first['id']}/verdict", json={"verdict": "confirmed"}).raise_for_status()
    assert [event["verdict"] is not None for event in events_of(joined)] == [True, True, True, False, False]
    joined.put(f"/v1/alerts/{other['id']}/verdict", json={"verdict": "confirmed"}).raise_for_status()
    joined.put(f"/v1/alerts/{first['id']}/verdict", json={"verdict": "open"}).raise_for_status()
    assert [event["verdict"] is not None for event in events_of(joined)] == [False, False, False, False, True]
