"""Connections to PostgreSQL that do not wait for ever: a server that is paused, or cut off, is given up.

The server's own limit (`statement_timeout`) does not help where the server itself stands still.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from dataclasses import dataclass
from functools import cache
from typing import Any

CONNECT_S = 5
STATEMENT_S = 30.0
#: After a statement that was not answered: until one is, others wait no longer than this.
DOUBT_S = 2.0
#: Connections at the same time, and how long a request waits for one. More threads answer what needs no store.
POOL = {"pool_size": 10, "max_overflow": 10, "pool_timeout": 3.0}


@dataclass
class StatementTimeout:
    """How long a statement may take, of all connections of a store: as long as it likes until `limit` is called."""

    seconds: float = math.inf

    def limit(self) -> None:
        self.seconds = STATEMENT_S

    def note(self, is_answered: bool) -> None:
        if self.seconds < math.inf:
            self.seconds = STATEMENT_S if is_answered else DOUBT_S


def connect_with(timeout: StatementTimeout, *arguments: Any, **options: Any) -> Any:
    """A connection of psycopg that keeps to it."""
    connection = _kind().connect(*arguments, **{"connect_timeout": CONNECT_S, **options})
    connection.statement_timeout = timeout
    return connection


@cache
def _kind() -> Any:
    import psycopg

    class TimedConnection(psycopg.Connection[Any]):
        statement_timeout = StatementTimeout()

        def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
            try:
                end = time.monotonic() + self.statement_timeout.seconds
                result = super().wait(_until(gen, end), *arguments, **options)
            except TimeoutError as error:
                self.pgconn.finish()  # it is in the middle of a statement: nobody can use it again
                self.statement_timeout.note(is_answered=False)
                raise psycopg.OperationalError("the server does not answer") from error
            self.statement_timeout.note(is_answered=True)
            return result

    return TimedConnection


def _until(steps: Generator[Any, Any, Any], end: float) -> Generator[Any, Any, Any]:
    """The same steps; where nothing is ready any more after the end, an error. Nothing ready is told every moment."""
    ready = None
    while True:
        try:
            request = steps.send(ready)
        except StopIteration as last:
            return last.value
        ready = yield request
        if not ready and time.monotonic() > end:
            raise TimeoutError
