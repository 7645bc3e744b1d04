"""Ctrl-C while a job runs: never dropped, never taken over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from ustad.engine.cluster import Cluster
from ustad.engine.folder import Place
from ustad.engine.interrupts import given_back, notice_interrupts
from ustad.engine.jobs import Job, Task

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # they are what we want


@pytest.fixture(autouse=True)
def as_in_a_terminal() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt() -> None:
    """The signal, and time for its handler to run here."""
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)


class Ending:
    """Python drops what is raised in here."""

    def __del__(self) -> None:
        interrupt()


def test_an_interrupt_inside_a_destructor_ends_the_step_and_what_was_done_is_kept(tmp_path, monkeypatch):
    def rows(self, step, tasks, work, shared):
        for task in tasks:
            self.place.write_json({}, f"done/{step}/{task.name}.json")
            if task.name == "2":
                Ending()
            yield task.name, {}

    monkeypatch.setattr(Job, "_run", rows)
    job = Job.open(Place.of(tmp_path), "test", "one", Cluster())
    with pytest.raises(KeyboardInterrupt):
        job.run("step", [Task(f"{i}") for i in range(6)], lambda payload, shared: {})
    assert job.place.names("done/step", ".json") == {"0.json", "1.json", "2.json"}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_at_the_very_end_of_a_step_counts_too():
    with pytest.raises(KeyboardInterrupt), notice_interrupts():
        Ending()


def test_whoever_handles_the_signal_himself_goes_on_to_do_so():
    seen = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    with notice_interrupts() as check:
        interrupt()
        check()
    assert seen == [1]


@pytest.mark.parametrize("end", [lambda: None, lambda: exit(0), lambda: 1 / 0], ids=["goes on", "exits", "fails"])
def test_an_interrupt_that_another_took_is_one_however_it_ends_and_the_signal_is_ours_again(end):
    def training() -> None:
        signal.signal(signal.SIGINT, lambda *_: None)  # as Ray Train does
        interrupt()
        end()

    with pytest.raises(KeyboardInterrupt), given_back():
        training()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_without_an_interrupt_an_error_and_an_exit_stay_what_they_are():
    with given_back():
        signal.signal(signal.SIGINT, lambda *_: None)
    with pytest.raises(ZeroDivisionError), given_back():
        1 / 0  # noqa: B018  # raises
    with pytest.raises(SystemExit), given_back():
        raise SystemExit(3)
