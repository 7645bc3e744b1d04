"""Times from the future: one wrong clock must not shut an agent out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from service_example import PlainScorer, a_stay


def fix(moment: datetime) -> dict[str, Any]:
    return {"agent_id": "a", "time": moment.isoformat(), "lat": 60.0, "lon": 25.0}


def test_fixes_from_the_future_are_refused_and_later_ones_are_taken(open_client: Any) -> None:
    client, now = open_client(PlainScorer()), datetime.now(UTC)
    refused = client.post("/v1/fixes", json={"fixes": [fix(now), fix(now + timedelta(days=400))]})
    assert refused.status_code == 422
    assert refused.json()["error"]["details"] == [{"row": 1}]
    assert "clock" in refused.json()["error"]["message"]
    taken = client.post("/v1/fixes", json={"fixes": [fix(now), fix(now + timedelta(hours=20))]}).json()
    assert (taken["accepted"], taken["late"]) == (2, 0)


@pytest.mark.parametrize(("ahead_days", "status"), [(1.0, 422), (3.0, 200), (0.0, 200)])
def test_the_setting_says_how_far_ahead_an_event_may_end(open_client: Any, ahead_days: float, status: int) -> None:
    client, now = open_client(PlainScorer(), ahead_days=ahead_days), datetime.now(UTC)
    times = {"started_at": now.isoformat(), "finished_at": (now + timedelta(days=2)).isoformat()}
    assert client.post("/v1/events", json={"events": [{**a_stay(), **times}]}).status_code == status
    assert client.get("/v1/agents/a").status_code == (404 if status == 422 else 200)


def test_fixes_of_another_century_are_refused_by_row_and_those_at_zero_zero_are_counted(open_client: Any) -> None:
    client, now = open_client(PlainScorer(), ahead_days=0.0), datetime.now(UTC)
    early = {**fix(now), "time": "1970-01-01T00:00:47Z"}
    refused = client.post("/v1/fixes", json={"fixes": [fix(now), early]})
    assert refused.status_code == 422
    assert refused.json()["error"]["details"] == [{"row": 1}]
    assert "before 1980" in refused.json()["error"]["message"]
    nowhere = {**fix(now + timedelta(minutes=1)), "lat": 0.0, "lon": 0.0}
    taken = client.post("/v1/fixes", json={"fixes": [fix(now), nowhere, fix(now + timedelta(days=400))]}).json()
    assert (taken["accepted"], taken["implausible"]) == (2, 1)
