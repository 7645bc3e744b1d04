"""Which absences a page shows: rare ones, and those of an incident."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from ustad.page import records as r
from ustad.page.event_details import movements
from ustad.page.runs import add_absences
from ustad.page.store import Store
from ustad.schema import mobility_schema

NOON = datetime(2024, 5, 21, 12, tzinfo=UTC)


def test_a_page_shows_rare_absences_and_those_of_an_incident_with_the_stay_that_took_their_place() -> None:
    store, hour = Store("sqlite://"), timedelta(hours=1)
    starts = [NOON - timedelta(days=day) for day in range(4)]
    table = pa.table({
        "agent_id": [7, 7, 7, 8], "expected_from": starts, "expected_until": [start + hour for start in starts],
        "poi_category": ["office"] * 4, "p_value": [0.03, 0.03, 0.004, 0.001], "reason": ["a", "b", "c", "d"],
        "instead_started_at": [start - hour for start in starts],
    })  # fmt: skip
    add_absences(store, table, mobility_schema())
    event = {
        "key": 5, "agent": "7", "started_at": int((starts[1] - hour).timestamp() * 1e6), "finished_at": 0, "day": 0,
        "timezone": "UTC", "alert": False, "incident": "one",
    }  # fmt: skip
    with store.writing() as connection:
        connection.execute(r.events.insert(), event)
        shown = movements(connection, "7", 0, 2**62, limit=10)["absences"]
    assert [one["reason"] for one in shown] == ["c", "b"]
    assert shown[1] == {
        "started_at": "2024-05-20T12:00:00Z", "finished_at": "2024-05-20T13:00:00Z", "category": "office",
        "p_value": 0.03, "reason": "b", "incident_id": "one", "instead": "5",
    }  # fmt: skip
    assert store.delete_agent("7", "somebody") == 1
    with store.reading() as connection:
        assert [row.agent for row in connection.execute(r.absences.select())] == ["8"]
    store.close()
