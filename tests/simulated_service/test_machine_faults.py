"""Faults of the machine, one at a time: a disk that is read-only, fails to sync or answers late, a clock set back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from service_example import PlainScorer, a_stay
from simulated_life import Exchange, Life, without_threads
from simulated_machine import Clock, Disk, injected, on_disk

from ustad.service.settings import Settings

HOUR, DAY = 3_600_000_000, 86_400_000_000
NOW = 1_709_251_200_000_000 + 12 * HOUR  # noon of the day of `a_stay`


class Machine:
    """A service on a disk and with a clock that tests can break."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self.clock, self.disk = clock, Disk(folder, random.Random(0))
        self.settings = Settings(store=f"sqlite:///{self.disk.path}", keep_days=30.0)

    def start(self) -> None:
        self.life = Life(self.disk, self.settings, PlainScorer())

    def ask(self, method: str, path: str, body: Any = None) -> Exchange:
        exchange = Exchange(method, path, body)
        done = self.life.send(exchange)
        while not done:
            done = self.life.step()
        return exchange

    def send(self, *hours: float) -> Exchange:
        return self.ask("POST", "/v1/events", {"events": [a_stay("a", hour) for hour in hours]})


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    clock = Clock(NOW)
    one = Machine(tmp_path, clock)
    with injected(clock), on_disk(one.disk), without_threads():
        one.start()
        yield one
        one.life.end()


@pytest.mark.parametrize("fault", ["readonly", "io", "full", "locked"])
def test_while_nothing_can_be_written_events_are_refused_and_reading_goes_on(machine: Machine, fault: str) -> None:
    assert machine.send(0).answer["accepted"] == 1
    machine.disk.failing = fault
    refused = machine.send(2)
    assert refused.status == 503
    assert "nothing of this request was stored" in refused.answer["error"]["message"]
    assert machine.ask("GET", "/v1/agents/a").answer["n_events"] == 1
    machine.disk.failing = None
    assert machine.send(0, 2).answer["accepted"] == 1


@pytest.mark.parametrize(("fault", "accepted"), [("refused", 1), ("answer lost", 0)])
def test_a_commit_whose_sync_fails_is_stored_once_whether_or_not_it_was(
    machine: Machine, fault: str, accepted: int
) -> None:
    machine.disk.arm(fault, 0)
    failed = machine.send(0)
    assert failed.status == 503
    assert "this may be stored all the same" in failed.answer["error"]["message"]
    again = machine.send(0).answer
    assert (again["accepted"], again["duplicates"]) == (accepted, 1 - accepted)
    assert machine.ask("GET", "/v1/agents/a").answer["n_events"] == 1


def test_requests_that_wait_for_a_slow_disk_are_answered_in_one_batch(machine: Machine) -> None:
    """While one write takes its time the others queue; then they share a transaction."""
    waiting = [Exchange("POST", "/v1/events", {"events": [a_stay(agent, 0)]}) for agent in "abcdef"]
    for exchange in waiting:
        assert machine.life.send(exchange) == []
    answered = machine.life.step()
    assert [exchange.status for exchange in answered] == [200] * 6


def test_a_clock_set_back_refuses_what_seems_to_lie_ahead_and_deletes_nothing(machine: Machine) -> None:
    assert machine.send(0).answer["accepted"] == 1
    machine.clock.wrong_by = -5 * DAY
    assert machine.send(2).status == 422
    machine.life.expire()
    assert machine.ask("GET", "/v1/agents/a").answer["n_events"] == 1
    machine.clock.wrong_by = 0
    assert machine.send(2).answer["accepted"] == 1


def test_alerts_after_a_clock_was_set_back_are_new_to_who_saw_the_earlier_ones(machine: Machine) -> None:
    """Also after a restart, which begins with the wrong clock."""
    alarming = {"events": [a_stay("a", 0, 4)]}
    machine.ask("POST", "/v1/events", alarming)
    seen = machine.ask("GET", "/v1/alerts").answer["next_since"]
    machine.disk.kill()
    machine.life.end()
    machine.disk.revive()
    machine.clock.wrong_by = -6 * HOUR
    machine.settings = Settings(store=f"sqlite:///{machine.disk.path}")
    machine.start()
    machine.ask("POST", "/v1/events", {"events": [a_stay("a", 5, 4)]})
    assert machine.ask("GET", f"/v1/alerts?since={seen}").answer["total"] == 1
