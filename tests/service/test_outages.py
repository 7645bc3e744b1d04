"""When the store goes away, or a setting changes between starts: fixes are neither lost nor counted twice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from service_example import PATIENCE, PlainScorer, a_stay
from sqlalchemy.exc import OperationalError

from ustad.config import ConfigError, ExtractionConfig
from ustad.page import queries
from ustad.page.store import Store
from ustad.service import app as app_module
from ustad.service import stay_journal
from ustad.service.intake import Intake
from ustad.service.pipeline import Job


def fixes(minutes: range, lat: float, agent: str = "g") -> list[dict[str, Any]]:
    start = datetime(2024, 3, 1, 8, tzinfo=UTC)
    return [
        {"agent_id": agent, "time": (start + timedelta(minutes=m)).isoformat(), "lat": lat, "lon": 25.0}
        for m in minutes
    ]


MORNING = [fixes(range(10), 60.0), fixes(range(10, 20), 60.0), fixes(range(20, 40), 60.5), fixes(range(40, 45), 61.0)]
LATER = fixes(range(45, 50), 61.0)  # long enough elsewhere: the stay before is final


def dead() -> Any:
    raise OperationalError("select", {}, OSError("connection refused"))


@contextmanager
def down(store: Store) -> Iterator[None]:
    """While inside, the store answers nothing."""
    store.writing = store.reading = dead  # type: ignore[method-assign]  # taken back below
    yield
    del store.writing, store.reading


def stays_of(client: Any) -> list[tuple[str, str, float]]:
    listed = client.get("/v1/agents/g/events").json().get("events", [])
    return [(e["started_at"], e["finished_at"], e["score"]) for e in listed]


@pytest.mark.parametrize("lost", range(4))
def test_fixes_sent_again_after_an_outage_give_the_stays_of_a_day_without_one(open_client: Any, lost: int) -> None:
    whole = open_client(PlainScorer(), store="sqlite://")
    for part in [*MORNING, LATER]:
        assert whole.post("/v1/fixes", json={"fixes": part}).status_code == 200
    client = open_client(PlainScorer())
    assert stays_of(client) == []  # and the keys are read
    for number, part in enumerate([*MORNING, LATER]):
        if number == lost:
            with down(client.app.state.service.store):
                assert client.post("/v1/fixes", json={"fixes": part}).status_code == 503
        answer = client.post("/v1/fixes", json={"fixes": part}).json()
        assert (answer["accepted"], answer["late"], answer["duplicates"]) == (len(part), 0, 0)
    assert len(stays_of(client)) == 2
    assert stays_of(client) == stays_of(whole)


def test_deleting_an_agent_after_an_outage_stores_nothing_that_was_refused(open_client: Any) -> None:
    client = open_client(PlainScorer())
    client.post("/v1/fixes", json={"fixes": MORNING[0] + fixes(range(5), 60.0, "other")})
    with down(client.app.state.service.store):
        assert client.post("/v1/fixes", json={"fixes": MORNING[1]}).status_code == 503
    assert client.delete("/v1/agents/other").status_code == 200
    answer = client.post("/v1/fixes", json={"fixes": MORNING[1]}).json()
    assert (answer["accepted"], answer["late"], answer["duplicates"]) == (len(MORNING[1]), 0, 0)


def test_without_a_store_the_answer_is_503(open_client: Any) -> None:
    client = open_client(PlainScorer())
    with down(client.app.state.service.store):
        answer = client.get("/v1/agents")
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "unavailable"


def test_a_request_that_is_stored_is_not_called_lost_when_its_answer_cannot_be_read(
    open_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, known, new = open_client(PlainScorer()), a_stay("a", 0), a_stay("a", 5)
    client.post("/v1/events", json={"events": [known]})
    with monkeypatch.context() as patch:
        patch.setattr(queries, "events_by_key", lambda *_: dead())
        answer = client.post("/v1/events", json={"events": [known, new]})
    assert answer.status_code == 503
    assert "nothing" not in answer.json()["error"]["message"]
    again = client.post("/v1/events", json={"events": [known, new]}).json()
    assert (again["accepted"], again["duplicates"]) == (0, 2)


def test_retention_goes_on_after_an_error(
    open_client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls, again = [], threading.Event()

    def failing(store: Store, before: int, *more: Any) -> int:
        calls.append(before)
        if len(calls) > 2:
            again.set()
        raise OSError("disk full, agent 17")

    monkeypatch.setattr(app_module, "RETENTION_S", 0.01)
    monkeypatch.setattr(app_module, "expire", failing)
    with caplog.at_level(logging.ERROR, "ustad.service"):
        open_client(PlainScorer(), keep_days=1.0)
        assert again.wait(PATIENCE), "the second time never came"
    assert "retention failed: OSError" in caplog.text
    assert "agent 17" not in caplog.text


def test_a_call_that_nobody_waits_for_any_more_leaves_the_thread_alive() -> None:
    class Nothing:
        def run(self, jobs: list[Job]) -> list[int]:
            return []

    intake, done = Intake(Nothing(), 8, 8, lambda *a: None), []
    given_up = intake.call(lambda: done.append(1))
    job = intake.submit(Job(rows=[{"agent": "a"}]))
    assert given_up.cancel()
    assert job.cancel()
    intake.start()
    assert intake.call(lambda: 7).result(5) == 7
    assert done == [1], "what was asked for is done"
    intake.stop()


def test_fixes_after_a_snapshot_survive_a_restart(open_client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = open_client(PlainScorer(), store="sqlite://")
    for part in MORNING:
        whole.post("/v1/fixes", json={"fixes": part})
    monkeypatch.setattr(stay_journal, "SNAPSHOT_FIXES", 15)  # one after the second request
    for part in MORNING:
        answer = open_client(PlainScorer()).post("/v1/fixes", json={"fixes": part}).json()
        assert (answer["accepted"], answer["late"]) == (len(part), 0)
    again = open_client(PlainScorer())
    assert stays_of(again) == stays_of(whole)
    assert again.post("/v1/fixes", json={"fixes": MORNING[3]}).json()["accepted"] == 0, "it knows what it was sent"


def test_an_alert_after_a_deleted_one_is_still_new_to_who_saw_that_one(open_client: Any) -> None:
    client = open_client(PlainScorer())
    client.post("/v1/events", json={"events": [a_stay("a", 0, 4), a_stay("gone", 0, 4)]})
    seen = client.get("/v1/alerts").json()["next_since"]
    client.delete("/v1/agents/gone")
    client.post("/v1/events", json={"events": [a_stay("a", 9, 4)]})
    assert client.get("/v1/alerts", params={"since": seen}).json()["total"] == 1


def test_a_new_lateness_counts_after_a_restart(open_client: Any) -> None:
    open_client(PlainScorer()).post("/v1/fixes", json={"fixes": MORNING[0] + MORNING[2]})
    patient = open_client(PlainScorer(), lateness_s=3600.0)
    assert patient.post("/v1/fixes", json={"fixes": MORNING[3] + fixes(range(50, 60), 62.0)}).json()["late"] == 0
    late = patient.post("/v1/fixes", json={"fixes": fixes(range(45, 50), 61.0)}).json()
    assert (late["accepted"], late["late"]) == (5, 0)
    prompt = open_client(PlainScorer(), lateness_s=0.0)
    assert prompt.post("/v1/fixes", json={"fixes": MORNING[0][:1]}).json()["late"] == 1
    prompt.post("/v1/fixes", json={"fixes": fixes(range(60, 70), 62.5)})
    assert [finished for _, finished, _ in stays_of(prompt)][:2] == ["2024-03-01T09:00:00Z", "2024-03-01T08:50:00Z"], (
        "fixes that came late while that was allowed are not lost"
    )


@pytest.mark.parametrize("begun", [False, True])
def test_a_store_of_other_extraction_settings_is_refused_once_it_has_fixes(open_client: Any, begun: bool) -> None:
    if begun:
        open_client(PlainScorer()).post("/v1/fixes", json={"fixes": MORNING[0]})
    else:
        open_client(PlainScorer())
    other = PlainScorer()
    other.extraction = ExtractionConfig(minutes=20)
    if not begun:
        assert open_client(other).post("/v1/fixes", json={"fixes": MORNING[0]}).status_code == 200
        return
    with pytest.raises(ConfigError, match="--store") as error:
        open_client(other)
    assert "minutes" in str(error.value)
    assert "\n" not in str(error.value)
