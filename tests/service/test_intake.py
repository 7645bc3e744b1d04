"""Taking events in: once each, in order, in micro-batches across requests, and with nothing lost when a batch fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from service_example import PATIENCE, PlainScorer, a_stay, until
from sqlalchemy import func, select

from ustad.page import records as r
from ustad.page.store import Store
from ustad.service.intake import Intake
from ustad.service.pipeline import Job, Pipeline
from ustad.tables import DataError

Stay = Callable[..., dict[str, Any]]


def post(client: TestClient, *stays: dict[str, Any]) -> Any:
    return client.post("/v1/events", json={"events": list(stays)})


def test_an_event_is_scored_stored_and_answered(client: TestClient, stay: Stay) -> None:
    answer = post(client, stay(hour=0, hours=4)).json()
    assert (answer["accepted"], answer["duplicates"]) == (1, 0)
    event = answer["events"][0]
    assert event["score"] == pytest.approx(4.0)
    assert event["alert"] is True
    assert event["term"] == "duration"
    assert client.get(f"/v1/events/{event['id']}").json()["event"] == event


def test_sending_twice_scores_once_and_answers_the_same(client: TestClient, scorer: Any, stay: Stay) -> None:
    first = post(client, stay(hour=0), stay(hour=2)).json()
    again = post(client, stay(hour=0), stay(hour=2), stay(hour=4)).json()
    assert (again["accepted"], again["duplicates"]) == (1, 2)
    assert again["events"][:2] == first["events"]
    assert len(scorer.scored) == 3


def test_one_event_twice_in_a_request_counts_once(client: TestClient, scorer: Any, stay: Stay) -> None:
    answer = post(client, stay(), stay()).json()
    assert (answer["accepted"], answer["duplicates"], len(scorer.scored)) == (1, 1, 1)


def test_of_an_event_twice_in_a_request_the_first_counts_and_the_other_is_said(client: TestClient, stay: Stay) -> None:
    answer = post(client, stay(hour=0, hours=1), stay("b", hour=0), stay(hour=0, hours=4)).json()
    assert (answer["accepted"], answer["duplicates"]) == (2, 1)
    mine = next(event for event in answer["events"] if event["agent_id"] == "a")
    assert (mine["score"], mine["finished_at"]) == (1.0, "2024-03-01T01:00:00Z")
    assert [(kept["row"], kept["finished_at"]) for kept in answer["kept"]] == [(2, "2024-03-01T01:00:00Z")]


def test_events_out_of_order_are_refused_whole(client: TestClient, scorer: Any, stay: Stay) -> None:
    post(client, stay(hour=10))
    refused = post(client, stay(hour=12), stay(hour=5), stay("b", hour=1))
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "conflict"
    assert client.get("/v1/agents/a").json()["n_events"] == 1
    assert client.get("/v1/agents/b").status_code == 404
    assert len(scorer.scored) == 1


def test_overlapping_events_of_one_request_are_refused(client: TestClient, stay: Stay) -> None:
    assert post(client, stay(hour=0, hours=3), stay(hour=2)).status_code == 409


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 8), st.integers(1, 3)), min_size=1, max_size=12))
def test_whatever_comes_nothing_overlaps_and_totals_agree(sent: list[tuple[str, int, int]]) -> None:
    store = Store("sqlite://")
    pipeline = Pipeline(store, PlainScorer(), None)
    for some in (sent[:5], sent[5:]):
        pipeline.run([Job(rows=[row_of(a_stay(*one))]) for one in some])
    with store.reading() as connection:
        rows = connection.execute(select(r.events).order_by(r.events.c.agent, r.events.c.started_at)).all()
        agents = {row.agent: row for row in connection.execute(select(r.agents))}
        days = connection.execute(select(func.sum(r.days.c.n_events))).scalar()
    store.close()
    for before, after in pairwise(rows):
        assert before.agent != after.agent or before.finished_at <= after.started_at
    assert days == len(rows)
    for name, agent in agents.items():
        own = [row for row in rows if row.agent == name]
        assert agent.n_events == agent.n_scored == len(own)
        assert agent.n_alerts == sum(row.alert for row in own)
        assert agent.score == max(row.score for row in own)
        assert agent.last_at == max(row.finished_at for row in own)


def test_a_bad_request_of_a_micro_batch_does_not_spoil_the_others(store_url: str, scorer: Any, stay: Stay) -> None:
    def refuse(events: pa.Table) -> None:
        if "bad" in events["agent_id"].to_pylist():
            raise DataError("this cannot be scored")

    scorer.fail = refuse
    pipeline = Pipeline(Store(store_url), scorer, None)
    jobs = [Job(rows=[row_of(stay(agent))]) for agent in ("a", "bad", "b")]
    pipeline.run(jobs)
    assert isinstance(jobs[1].outcome, DataError)
    assert [job.outcome["accepted"] for job in (jobs[0], jobs[2])] == [1, 1]
    assert scorer.missing(["bad"]) == ["bad"], "what a failed batch left in memory must be dropped"


def test_a_failing_commit_leaves_nothing_and_the_event_can_be_sent_again(
    client: TestClient, scorer: Any, stay: Stay, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ustad.service.pipeline as module

    def break_off(*arguments: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(module, "add_events", break_off)
        answer = post(client, stay(hours=4))
    assert answer.status_code == 503
    assert answer.headers["retry-after"]
    assert client.get("/v1/agents").json()["total"] == 0
    assert scorer.missing(["a"]) == ["a"]
    assert post(client, stay(hours=4)).json()["accepted"] == 1


def test_requests_that_wait_are_scored_together(open_client: Any, scorer: Any, stay: Stay) -> None:
    held, begun = threading.Event(), threading.Event()
    scorer.fail = lambda events: (begun.set(), held.wait(PATIENCE)) if not scorer.batches else None
    client = open_client(scorer)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(post, client, stay("first"))
        assert begun.wait(PATIENCE)
        others = [pool.submit(post, client, stay(f"a{i}")) for i in range(8)]
        wait_for_depth(client, 8)
        held.set()
        answers = [f.result() for f in (first, *others)]
    assert all(a.json()["accepted"] == 1 for a in answers)
    assert scorer.batches == [1, 8]


def test_a_full_queue_answers_429_with_retry_after(open_client: Any, scorer: Any, stay: Stay) -> None:
    held, begun = threading.Event(), threading.Event()
    scorer.fail = lambda events: (begun.set(), held.wait(PATIENCE))
    client = open_client(scorer, max_queue=3)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(post, client, stay("x"))]
        assert begun.wait(PATIENCE)
        waiting.append(pool.submit(post, client, *[stay("y", hour=i * 2) for i in range(3)]))
        wait_for_depth(client, 3)
        refused = post(client, stay("z"))
        held.set()
        assert [f.result().status_code for f in waiting] == [200, 200]
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["code"] == "busy"


def test_the_intake_lives_on_after_an_unexpected_failure() -> None:
    class Broken:
        def run(self, jobs: list[Job]) -> list[int]:
            raise RuntimeError("oh")

    intake = Intake(Broken(), 8, 8, lambda *a: None)
    intake.start()
    for _ in range(2):
        with pytest.raises(Exception, match="nothing of this request was stored"):
            intake.submit(Job(rows=[{"agent": "a"}])).result(PATIENCE)
    assert intake.call(lambda: 7).result(PATIENCE) == 7
    intake.stop()


def wait_for_depth(client: TestClient, depth: int) -> None:
    """Until so many events wait to be scored."""
    assert until(lambda: client.app.state.service.intake.depth >= depth, 0.01)


def row_of(stay: dict[str, Any]) -> dict[str, Any]:
    from datetime import datetime

    from ustad.page.translate import Layout
    from ustad.schema import mobility_schema
    from ustad.service.routes_ingest import _row

    times = {k: datetime.fromisoformat(stay[k].replace("Z", "+00:00")) for k in ("started_at", "finished_at")}
    return _row({**stay, **times}, Layout.of(mobility_schema()))
