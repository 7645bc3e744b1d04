"""Pieces of work side by side on a CPU: as many threads as torch has, each computing alone.

One thread per batch instead of all threads on each of its few hundred small steps: nobody waits for anybody, and the
batches stay in each core's own cache. The pieces and their results are the same whatever the number of threads. On a
GPU, and with one thread, the work is done where it is asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

import torch

from ustad.network.inference.passes import Passes

Result = TypeVar("Result")
#: Pieces that wait for a thread, for each thread.
_AHEAD = 4


@contextmanager
def alone() -> Iterator[None]:
    """Inside, torch computes in the calling thread: one event is too little work to share, and waiting costs more.

    For whoever scores live in one thread: another one that first uses torch meanwhile begins with one thread too.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


class WorkerThreads:
    """Threads with a way through the network (and its buffers) for each."""

    def __init__(self, make: Callable[[], Passes], device: torch.device) -> None:
        self._threads = torch.get_num_threads() if device.type == "cpu" else 1
        self._tools: SimpleQueue[Passes] = SimpleQueue()
        self._make = make
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> WorkerThreads:
        for _ in range(self._threads):
            self._tools.put(self._make())
        if self._threads > 1:
            torch.set_num_threads(1)  # what the new threads will have, too
            self._pool = ThreadPoolExecutor(self._threads)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            torch.set_num_threads(self._threads)

    def each(self, work: Callable[..., Result], pieces: Iterable[tuple[Any, ...]]) -> Iterator[Result]:
        """work(passes, *piece) of every piece, in their order."""
        if self._pool is None:
            for piece in pieces:
                yield self._one(work, piece)
            return
        waiting: deque[Future[Result]] = deque()
        for piece in pieces:
            waiting.append(self._pool.submit(self._one, work, piece))
            if len(waiting) >= _AHEAD * self._threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _one(self, work: Callable[..., Result], piece: tuple[Any, ...]) -> Result:
        passes = self._tools.get()
        try:
            with torch.inference_mode():  # each thread has a mode of its own
                return work(passes, *piece)
        finally:
            self._tools.put(passes)
