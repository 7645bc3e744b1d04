"""One life of the service in this process, from start to kill: the real application, without its threads.

Requests go in by ASGI. What the scoring thread would do next is done when the simulation says `step`, so that the order
of everything is the simulation's.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar
from unittest import mock

from simulated_machine import Disk, KilledError
from sqlalchemy import create_engine

from ustad.page import event_writer, store
from ustad.service import app as app_module
from ustad.service.settings import Settings


@dataclass(eq=False)
class Exchange:
    """A request that the service has taken, and the answer once there is one."""

    method: str
    path: str
    body: dict[str, Any] | None = None
    about: Any = None  # called with it and its answer
    parts: Any = None  # of a phone: which, and what it sent
    most_waiting: int = 1  # requests that waited with it at the same time, itself included
    status: int | None = None
    content: bytes = b""
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def answer(self) -> Any:
        return json.loads(self.content)


@contextmanager
def without_threads() -> Iterator[None]:
    """Routes that are plain functions run where they are called."""

    async def here(work: Callable[..., Any], /, *arguments: Any, **more: Any) -> Any:
        return work(*arguments, **more)

    with (
        mock.patch("fastapi.routing.run_in_threadpool", here),
        mock.patch("fastapi.dependencies.utils.run_in_threadpool", here),
        mock.patch("ustad.service.request_checks.run_in_threadpool", here),
    ):
        yield


def open_service(settings: Settings, scorer: Any, apps: list[Any]) -> Any:
    """A new service, in the application of the one before: to make all routes takes longer than a simulated day."""

    def build_once(service: Any) -> Any:
        if not apps:
            apps.append(build(service))
            return apps[0]
        apps[0].state.service = service
        apps[0].user_middleware.clear()
        apps[0].middleware_stack = None
        app_module.add_checks(apps[0], service)
        return apps[0]

    build = app_module.build
    event_writer._latest[0] = 0  # a process counts from its own beginning
    with mock.patch.object(app_module, "build", build_once), mock.patch.object(store, "create_engine", _alike):
        return app_module.create_app(settings, scorer)


def _alike(*arguments: Any, **options: Any) -> Any:
    """An engine that knows the statements of the ones before: to put them in words is a sixth of a simulated day."""
    engine = create_engine(*arguments, **options)
    first = ENGINES.setdefault(engine.dialect.name, engine)
    engine.dialect, engine._compiled_cache = first.dialect, first._compiled_cache
    return engine


ENGINES: dict[str, Any] = {}


class Life:
    """From start to kill."""

    apps: ClassVar[list[Any]] = []

    def __init__(self, disk: Disk, settings: Settings, scorer: Any) -> None:
        self.disk, self.pending, self.is_idle = disk, list[Exchange](), True
        self._loop = asyncio.new_event_loop()
        try:
            self.app = open_service(settings, scorer, self.apps)
        except BaseException:
            self._loop.close()
            raise
        self.service = self.app.state.service

    def send(self, exchange: Exchange) -> list[Exchange]:
        """Hand over a request; returns the exchanges that were answered by now."""
        self.pending.append(exchange)
        for one in self.pending:
            one.most_waiting = max(one.most_waiting, len(self.pending))
        exchange.task = self._loop.create_task(self._run(exchange))
        return self._settle()

    def step(self) -> list[Exchange]:
        """What the scoring thread does next; returns the exchanges that were answered."""
        try:
            self.is_idle = not self.service.intake.step()
        except KilledError:
            return []
        return self._settle()

    def expire(self) -> None:
        """Retention, as the service does it now and then: an error is logged, and it is tried again another time."""
        with suppress(Exception, KilledError):
            self.service.expire()

    async def _run(self, exchange: Exchange) -> None:
        path, _, query = exchange.path.partition("?")
        body = json.dumps(exchange.body).encode() if exchange.body is not None else b""
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": exchange.method,
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")], "client": ("127.0.0.1", 1),
            "server": ("localhost", 80),
        }  # fmt: skip
        parts = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Any:
            return parts.pop() if parts else await asyncio.Future()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
            else:
                exchange.content += message.get("body", b"")

        await self.app(scope, receive, send)

    def _settle(self) -> list[Exchange]:
        """Run whatever can run without the scoring thread."""
        while True:
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()
            if not self._loop._ready:  # how else would one know that nothing is left to do
                break
        if self.disk.is_dead:
            return []
        done = [one for one in self.pending if one.task is not None and one.task.done()]
        self.pending = [one for one in self.pending if one not in done]
        for one in done:
            if (error := one.task.exception()) is not None:  # done, so it has a task
                raise error
        return done

    def end(self) -> list[Exchange]:
        """The process is gone; returns the requests that nobody answered."""
        self.disk.is_dead = True
        left, self.pending = self.pending, []
        for one in left:
            if one.task is not None:
                one.task.cancel()
        self._loop.call_soon(self._loop.stop)
        self._loop.run_forever()
        for one in left:
            with suppress(BaseException):
                one.task.result()  # taken, so that nobody warns of it
        self._loop.close()
        self.service.writer_lock.release()
        with suppress(BaseException):
            self.service.store.close()
        return left
