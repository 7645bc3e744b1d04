"""The queue between requests and the one thread that scores and writes: micro-batches across requests.

In: jobs from any thread. Out: their outcomes as futures. All requests that wait when the thread is free share the next
micro-batch. A small request is scored whole, a large one slice by slice. So nobody waits for another's two thousand
events. Requests of one agent keep their order. A full queue refuses (`BusyError`) instead of growing.
"""

from __future__ import annotations

import ctypes
import logging
import math
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from ustad.service.errors import BusyError, ServiceError, UnavailableError, refuse_unknown, where
from ustad.service.pipeline import Job
from ustad.tables import DataError

log = logging.getLogger("ustad.service")
SLICE_S = 0.5  # about so long a micro-batch takes: the most that somebody else waits for it
LEAST = 32  # events that are scored together, however slow the machine is


class Runs(Protocol):
    """What the intake feeds: see `pipeline.Pipeline`."""

    def run(self, jobs: list[Job]) -> list[int]: ...

    def check(self, job: Job) -> None: ...

    def renew(self, outcome: dict[str, Any]) -> None: ...


@dataclass(eq=False)
class _Waiting:
    """A request, or something else to do in the scoring thread, and how far it has come."""

    work: Job | Callable[[], Any]
    client: str
    agents: frozenset[str]
    future: Future[Any] = field(default_factory=Future)
    n_taken: int = 0  # events, or fixes, that were handed on to be scored
    n_stored: int = 0
    outcomes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def size(self) -> int:
        """What is left of it, as the queue counts."""
        return 0 if callable(self.work) else self.work.size_from(self.n_taken)


class Intake:
    """Start it, submit jobs, stop it. `on_batch(events, seconds, alerts)` is told about every micro-batch."""

    def __init__(
        self, pipeline: Runs, micro_batch: int, max_queue: int, on_batch: Callable[[int, float, list[int]], None]
    ) -> None:
        self._pipeline, self._micro_batch, self._max_queue = pipeline, micro_batch, max_queue
        self._on_batch = on_batch
        self._waiting: dict[_Waiting, None] = {}  # in order of arrival
        self._sizes: Counter[str] = Counter()  # events waiting, of each client
        self._rate = 50.0  # events a second, a running mean
        self._changed = threading.Condition()
        self._stopping = self.paused = False
        self._thread = threading.Thread(target=self._work, name="ustad-scoring", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Finish what waits, then end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def depth(self) -> int:
        """Events waiting."""
        return self._sizes.total()

    def submit(self, job: Job, client: str = "") -> Future[dict[str, Any]]:
        """Queue a job, or refuse it when too much waits already, of everybody or of this client."""
        with self._changed:
            if self._stopping:
                raise UnavailableError("the service is shutting down", Retry_After="5")
            if self.paused:
                raise UnavailableError("another service writes to the store; nothing of this request was stored")
            for waiting, most in ((self.depth, self._max_queue), (self._sizes[client], self._max_queue // 2)):
                if waiting and waiting + job.size > most:
                    seconds = max(1, math.ceil(waiting / self._rate))
                    raise BusyError(f"{waiting} events wait to be scored; send again later", Retry_After=str(seconds))
            return self._append(_Waiting(job, client, job.agents))

    def call(self, function: Callable[[], Any], agents: Iterable[str] = ()) -> Future[Any]:
        """Run something in the scoring thread, after everything that waits for these agents."""
        with self._changed:
            return self._append(_Waiting(function, "", frozenset(agents)))

    def _append(self, one: _Waiting) -> Future[Any]:
        self._waiting[one] = None
        self._count(one, one.size)
        self._changed.notify()
        return one.future

    def _count(self, one: _Waiting, change: int) -> None:
        self._sizes[one.client] += change
        if self._sizes[one.client] <= 0:
            del self._sizes[one.client]

    # ------------------------------------------------------------------------------------- the thread
    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopping:
                    self._changed.wait()
            if not self.step():
                return

    def step(self) -> bool:
        """Do the next thing that waits, a call or a micro-batch; whether there was one."""
        with self._changed:
            if not self._waiting:
                return False
            call = self._next_call()
            batch = [] if call is not None else self._take()
        if call is not None and callable(call.work):
            _settle(call.future, call.work)
        else:
            self._score(batch)
        return True

    def _next_call(self) -> _Waiting | None:
        """Something to do that no earlier request of its agents keeps back."""
        before: set[str] = set()
        for one in self._waiting:
            if callable(one.work) and before.isdisjoint(one.agents):
                del self._waiting[one]
                return one
            before |= one.agents
        return None

    def _take(self) -> list[tuple[_Waiting, Job]]:
        """The next micro-batch: of each request that waits an equal share, or what is left of it.

        Requests of one agent come one after the other: one that this batch does not finish keeps back the later ones.
        """
        room = min(self._micro_batch, max(LEAST, round(SLICE_S * self._rate)))
        share = max(1, room // len(self._waiting))
        batch: list[tuple[_Waiting, Job]] = []
        agents_done: set[str] = set()  # agents of the requests that this batch finishes
        agents_left: set[str] = set()  # and of those that it does not
        for one in self._waiting:
            if callable(one.work) or room <= 0 or not agents_left.isdisjoint(one.agents):
                agents_left |= one.agents
                continue
            part = one.work.slice(one.n_taken, min(share, room))
            whole = one.n_taken + part.length >= one.work.length
            if not whole and not agents_done.isdisjoint(one.agents):  # its order is checked once they are stored
                agents_left |= one.agents
                continue
            (agents_done if whole else agents_left).update(one.agents)
            room -= min(part.length, share)
            before = one.size
            one.n_taken += part.length
            self._count(one, one.size - before)
            batch.append((one, part))
        return batch

    def _score(self, batch: list[tuple[_Waiting, Job]]) -> None:
        began = time.perf_counter()
        batch = [(one, part) for one, part in batch if self._may_begin(one, part)]
        jobs, alerts = [part for _, part in batch], []
        try:
            alerts = self._pipeline.run(jobs) if jobs else []
        except Exception as error:  # the thread must live on; the requests are told
            log.error("scoring failed: %s at %s", type(error).__name__, where(error))
            for job in jobs:
                job.outcome = refuse_unknown(error)
        seconds, size = time.perf_counter() - began, sum(job.size for job in jobs)
        if jobs:
            self._rate = 0.9 * self._rate + 0.1 * max(size / max(seconds, 1e-3), 1.0)
            self._on_batch(size, seconds, alerts)
        for one, part in batch:
            self._advance(one, part)

    def _may_begin(self, one: _Waiting, part: Job) -> bool:
        """Whether all of a request that is scored in slices comes in order: nothing is stored of one that does not."""
        if one.n_stored or callable(one.work) or part.length >= one.work.length:
            return True
        try:
            self._pipeline.check(one.work)
        except Exception as error:
            if not isinstance(error, ServiceError | DataError):
                log.error("scoring failed: %s at %s", type(error).__name__, where(error))
            self._finish(one, error if isinstance(error, ServiceError | DataError) else None)
            return False
        return True

    def _advance(self, one: _Waiting, part: Job) -> None:
        """Note what became of a slice; the last one, or one that failed, finishes its request."""
        if callable(one.work):
            return
        outcome = part.outcome
        if not isinstance(outcome, dict):
            self._finish(one, outcome)
            return
        one.outcomes.append(outcome)
        one.n_stored += part.length
        if one.n_stored >= one.work.length:
            whole = _join_outcomes(one.outcomes)
            if len(one.outcomes) > 1:
                self._pipeline.renew(whole)
            self._finish(one, whole)
            if len(one.outcomes) > 1:
                give_back_memory()

    def _finish(self, one: _Waiting, outcome: Any) -> None:
        with self._changed:
            del self._waiting[one]
            self._count(one, -one.size)
        if not one.future.set_running_or_notify_cancel():  # from here on it cannot be cancelled any more
            return
        if isinstance(outcome, dict):
            one.future.set_result(outcome)
        else:
            one.future.set_exception(_refusal(one, outcome))


def give_back_memory() -> None:
    """Hand what a large request needed back to the system; only glibc knows how, elsewhere nothing happens."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def _join_outcomes(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """The outcome of a request from those of its slices: counts added up, lists one after the other."""
    whole: dict[str, Any] = dict(outcomes[0])
    for outcome in outcomes[1:]:
        whole = {name: value + outcome[name] for name, value in whole.items()}
    return {**whole, "events": list({event["id"]: event for event in whole["events"]}.values())}


def _refusal(one: _Waiting, error: Any) -> Exception:
    """Why a request failed, and what of it is stored nevertheless."""
    length = 0 if callable(one.work) else one.work.length
    rest = f"{one.n_stored:,} of {length:,} were stored before, and sending all of them again is safe"
    if isinstance(error, ServiceError):
        return type(error)(f"{error.message}; {rest}", error.details, **error.headers) if one.n_stored else error
    if isinstance(error, DataError):
        return DataError(f"{error}; {rest}") if one.n_stored else error
    note = rest if one.n_stored else "nothing of this request was stored"
    return UnavailableError(f"scoring failed; {note}", Retry_After="5")


def _settle(future: Future[Any], function: Callable[[], Any]) -> None:
    """Run it whether or not somebody still waits: a deletion that was asked for is done."""
    try:
        outcome, error = function(), None
    except Exception as raised:  # handed to whoever asked
        outcome, error = None, raised
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(outcome)
