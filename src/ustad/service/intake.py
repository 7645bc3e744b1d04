"""The queue between requests and the one thread that scores and writes: micro-batches across requests.

In: jobs from any thread. Out: their outcomes as futures. Whatever waits when the thread is free is scored together,
so one client is answered at once and many share the model. A full queue refuses (`BusyError`) instead of growing.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from ustad.service.errors import BusyError, ServiceError, UnavailableError, where
from ustad.service.pipeline import Job
from ustad.tables import DataError

log = logging.getLogger("ustad.service")


class Runs(Protocol):
    """What the intake feeds: see `pipeline.Pipeline`."""

    def run(self, jobs: list[Job]) -> list[int]: ...


class Intake:
    """Start it, submit jobs, stop it. `on_batch(events, seconds, alerts)` is told about every micro-batch."""

    def __init__(
        self, pipeline: Runs, micro_batch: int, max_queue: int, on_batch: Callable[[int, float, list[int]], None]
    ) -> None:
        self._pipeline, self._micro_batch, self._max_queue = pipeline, micro_batch, max_queue
        self._on_batch = on_batch
        self._waiting: deque[tuple[Job | Callable[[], Any], Future[Any]]] = deque()
        self._size, self._rate = 0, 50.0  # events waiting; events a second, a running mean
        self._changed = threading.Condition()
        self._stopping = False
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
        return self._size

    def submit(self, job: Job) -> Future[dict[str, Any]]:
        """Queue a job, or refuse it when too much waits already."""
        with self._changed:
            if self._stopping:
                raise UnavailableError("the service is shutting down", Retry_After="5")
            if self._size and self._size + job.size > self._max_queue:
                seconds = max(1, math.ceil(self._size / self._rate))
                raise BusyError(f"{self._size} events wait to be scored; send again later", Retry_After=str(seconds))
            return self._append(job, job.size)

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Run something in the scoring thread, between two micro-batches."""
        with self._changed:
            return self._append(function, 0)

    def _append(self, work: Job | Callable[[], Any], size: int) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((work, future))
        self._size += size
        self._changed.notify()
        return future

    # ------------------------------------------------------------------------------------- the thread
    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._stopping:
                    self._changed.wait()
                if not self._waiting:
                    return
                batch = self._take()
            if callable(batch[0][0]):
                _settle(batch[0][1], batch[0][0])
            else:
                self._score(batch)

    def _take(self) -> list[tuple[Any, Future[Any]]]:
        """One call, or as many jobs as fit into a micro-batch; at least one."""
        batch = [self._waiting.popleft()]
        if not callable(batch[0][0]):
            size = batch[0][0].size
            while self._waiting:
                work = self._waiting[0][0]
                if callable(work) or size + work.size > self._micro_batch:
                    break
                size += work.size
                batch.append(self._waiting.popleft())
            self._size -= size
        return batch

    def _score(self, batch: list[tuple[Job, Future[Any]]]) -> None:
        jobs, began = [job for job, _ in batch], time.perf_counter()
        alerts: list[int] = []
        try:
            alerts = self._pipeline.run(jobs)
        except Exception as error:  # the thread must live on; the requests are told
            log.error("scoring failed: %s at %s", type(error).__name__, where(error))
            for job in jobs:
                job.outcome = None
        seconds, size = time.perf_counter() - began, sum(job.size for job in jobs)
        self._rate = 0.9 * self._rate + 0.1 * max(size / max(seconds, 1e-3), 1.0)
        self._on_batch(size, seconds, alerts)
        for job, future in batch:
            _answer(future, job.outcome)


def _answer(future: Future[Any], outcome: Any) -> None:
    if not future.set_running_or_notify_cancel():  # from here on it cannot be cancelled any more
        return
    if isinstance(outcome, (ServiceError, DataError)):
        future.set_exception(outcome)
    elif outcome is None:
        future.set_exception(UnavailableError("scoring failed; nothing of this request was stored", Retry_After="5"))
    else:
        future.set_result(outcome)


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
