"""Large requests: cut into slices that others share the model with, and answered as if they were not."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from service_example import PATIENCE, PlainScorer, until
from test_finals import LookingBack

from ustad.service.intake import give_back_memory

Stay = Callable[..., dict[str, Any]]


class Held(PlainScorer):
    """Waits within its first micro-batch until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.release = threading.Event(), threading.Event()
        self.fail = self.hold

    def hold(self, events: Any) -> None:
        self.begun.set()
        self.release.wait(PATIENCE)


def post(client: TestClient, events: list[dict[str, Any]]) -> Any:
    return client.post("/v1/events", json={"events": events})


def large(stay: Stay, n: int = 1000, agents: int = 5) -> list[dict[str, Any]]:
    return [stay(f"large {i % agents}", 2.0 * (i // agents)) for i in range(n)]


def depth(client: TestClient) -> int:
    return int(client.app.state.service.intake.depth)  # type: ignore[attr-defined]  # FastAPI's


def test_a_single_event_does_not_wait_for_a_large_request(open_client: Any, stay: Stay) -> None:
    client = open_client(scorer := Held())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, client, large(stay))
        assert scorer.begun.wait(PATIENCE)
        before = depth(client)
        second = pool.submit(post, client, [stay("single")])
        assert until(lambda: depth(client) > before)
        scorer.release.set()
        assert (first.result().json()["accepted"], second.result().json()["accepted"]) == (1000, 1)
    assert [agent for agent, _ in scorer.scored].index("single") < 200  # after all thousand, before
    assert max(scorer.batches) <= 128


def test_memory_is_given_back_after_a_large_request_alone(
    open_client: Any, stay: Stay, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bool] = []
    monkeypatch.setattr("ustad.service.intake.give_back_memory", lambda: given.append(True))
    client = open_client(PlainScorer())
    post(client, [stay("single")])
    assert given == []
    post(client, large(stay, 300))
    assert until(lambda: given == [True])


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_memory_that_is_free_goes_back_to_the_system() -> None:
    blocks = [bytes(1000) for _ in range(100_000)]
    keep, full = bytes(1000), _resident()  # the block above the others stays, so they are not given back by themselves
    del blocks
    give_back_memory()
    assert keep
    assert _resident() < full - 50e6


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_fixes_come_in_slices_too(open_client: Any, stay: Stay) -> None:
    start = datetime(2024, 3, 1, tzinfo=UTC)
    fixes = [
        {
            "agent_id": "g",
            "time": (start + timedelta(minutes=5 * i)).isoformat(),
            "lat": 60 + 0.1 * (i // 12),
            "lon": 25,
        }
        for i in range(2400)
    ]
    scorer = PlainScorer()
    answer = open_client(scorer).post("/v1/fixes", json={"fixes": fixes}).json()
    assert (answer["accepted"], len(answer["events"])) == (2400, len(scorer.scored))
    assert len(scorer.scored) > 150
    assert len(scorer.batches) > 1
    assert max(scorer.batches) <= 128


@pytest.mark.parametrize("make", [PlainScorer, LookingBack])
def test_a_large_request_is_answered_and_stored_as_small_ones_are(
    open_client: Any, stay: Stay, tmp_path: Any, make: Any
) -> None:
    g = np.random.default_rng(4)
    events = [stay(f"a{i % 7}", 6.0 * (i // 7), float(h)) for i, h in enumerate(g.choice([0.5, 1.0, 4.0], 300))]
    whole, small = open_client(make()), open_client(make(), store=f"sqlite:///{tmp_path / 'small.db'}")
    answer = post(whole, events + events[:3]).json()
    for start in range(0, 300, 20):
        post(small, events[start : start + 20])
    assert (answer["accepted"], answer["duplicates"], len(answer["events"])) == (300, 3, 300)
    stored = {e["id"]: e for a in range(7) for e in small.get(f"/v1/agents/a{a}/events?limit=1000").json()["events"]}
    names = ("agent_id", "started_at", "finished_at", "score", "alert", "final")
    assert {e["id"]: [e[n] for n in names] for e in answer["events"]} == {
        key: [e[n] for n in names] for key, e in stored.items()
    }


def test_a_large_request_out_of_order_is_refused_whole_and_its_rows_are_named(open_client: Any, stay: Stay) -> None:
    client = open_client(scorer := PlainScorer())
    events = [*large(stay, 400), stay("large 4", 1.5)]
    refused = post(client, events)
    assert refused.status_code == 409
    named = [detail["row"] for detail in refused.json()["error"]["details"]]
    assert named == [9]  # which the last row, begun before it, overlaps
    assert (scorer.scored, client.get("/v1/agents").json()["total"]) == ([], 0)


def test_requests_of_one_agent_keep_their_order_beside_a_large_one(open_client: Any, stay: Stay) -> None:
    client = open_client(scorer := Held())
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(post, client, large(stay, 400, 1))
        assert scorer.begun.wait(PATIENCE)
        before = depth(client)
        second = pool.submit(post, client, [stay("large 0", 900.0)])
        assert until(lambda: depth(client) > before)
        erased = pool.submit(client.delete, "/v1/agents/large 0")
        scorer.release.set()
        assert (first.result().json()["accepted"], second.result().json()["accepted"]) == (400, 1)
        assert erased.result().status_code == 200
    moments = [moment for agent, moment in scorer.scored if agent == "large 0"]
    assert moments == sorted(moments)


def test_an_agent_that_is_erased_during_its_large_request_does_not_come_back(open_client: Any, stay: Stay) -> None:
    client = open_client(scorer := Held())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, client, large(stay, 400, 1))
        assert scorer.begun.wait(PATIENCE)
        erased = pool.submit(client.delete, "/v1/agents/large 0")
        assert until(lambda: len(client.app.state.service.intake._waiting) > 1)
        scorer.release.set()
        assert first.result().status_code == 200
        assert erased.result().json() == {"deleted_events": 400}
    assert client.get("/v1/agents").json()["total"] == 0


def test_a_large_request_that_fails_on_the_way_says_what_is_stored_and_can_be_sent_again(
    open_client: Any, stay: Stay
) -> None:
    client = open_client(scorer := PlainScorer())

    def fail(events: Any) -> None:
        if len(scorer.scored) > 100:
            raise RuntimeError("out of memory")

    scorer.fail = fail
    told = post(client, large(stay, 400))
    stored = sum(agent["n_events"] for agent in client.get("/v1/agents").json()["agents"])
    assert told.status_code == 503
    assert stored > 100
    assert f"{stored} of 400 were stored" in told.json()["error"]["message"]
    scorer.fail = lambda events: None
    again = post(client, large(stay, 400)).json()
    assert (again["accepted"], again["duplicates"]) == (400 - stored, stored)


def test_one_client_fills_half_of_the_queue_at_most(open_client: Any, stay: Stay) -> None:
    from ustad.service.intake import Intake
    from ustad.service.pipeline import Job

    client = open_client(scorer := Held())
    intake: Intake = client.app.state.service.intake
    rows = [{"agent": "x"}] * 1000
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post, client, [stay("first")])
        assert scorer.begun.wait(PATIENCE)
        taken = [intake.submit(Job(rows=rows), "greedy") for _ in range(2)]
        with pytest.raises(Exception, match="send again later"):
            intake.submit(Job(rows=rows), "greedy")
        other = intake.submit(Job(rows=rows), "other")
        for future in (*taken, other):
            future.cancel()
        scorer.release.set()
        assert waiting.result().status_code == 200


# ------------------------------------------------------------------------------- what is said about rows
def test_an_event_out_of_order_is_named_by_its_row(client: TestClient, stay: Stay) -> None:
    post(client, [stay("b", 10)])
    refused = post(client, [stay("c", 1), stay("a", 2), stay("b", 5), stay("a", 8)])
    assert refused.status_code == 409
    assert [detail["row"] for detail in refused.json()["error"]["details"]] == [2]


def test_a_corrected_end_is_said_not_to_be_kept(client: TestClient, stay: Stay) -> None:
    first = post(client, [stay("a", 0, 1), stay("a", 2, 1)]).json()
    assert first["kept"] == []
    again = post(client, [stay("a", 0, 1), stay("a", 2, 1.5), stay("b", 0, 1), stay("b", 0, 2)]).json()
    assert (again["accepted"], again["duplicates"]) == (1, 3)
    ends = {kept["row"]: kept["finished_at"] for kept in again["kept"]}
    assert ends == {1: "2024-03-01T03:00:00Z", 3: "2024-03-01T01:00:00Z"}


def test_a_stay_of_years_is_refused_and_named(client: TestClient, stay: Stay) -> None:
    years = stay("b", started_at="1970-01-01T00:00:00Z")
    refused = post(client, [stay("a"), years])
    assert refused.status_code == 422
    assert [d["row"] for d in refused.json()["error"]["details"]] == [1]
    assert "366 days" in refused.json()["error"]["details"][0]["problem"]
    assert client.get("/v1/agents").json()["total"] == 0
    assert post(client, [stay("a", 0, 24 * 300)]).status_code == 200
