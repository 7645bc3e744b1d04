"""Incidents as events come: as in bulk, through restarts, and with one alert each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.schema import mobility_schema
from ustad.scoring.incidents import IncidentLog, find_incidents
from ustad.service.live_incidents import join_incident, known_incidents

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
        joined = join_incident(log, event, hour, str(hour), score)
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
