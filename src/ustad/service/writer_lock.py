"""The right to be the one service that writes to a store: events of two would come in no order.

SQLite: a lock on a file beside the store. PostgreSQL: an advisory lock on a connection of its own. Both end with the
process, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import IO, Any

from sqlalchemy import Connection, func, select, text
from sqlalchemy.exc import SQLAlchemyError

from ustad.page.store import Store
from ustad.tables import DataError

WAIT_S = 3.0  # PostgreSQL takes a moment to notice that a process which was killed is gone
#: A machine that is gone, with its connection open, is noticed within a minute.
KEEPALIVE = {"tcp_keepalives_idle": 30, "tcp_keepalives_interval": 10, "tcp_keepalives_count": 3}
_LOCK = 0x7573746165  # what PostgreSQL calls it: any number that is always the same, and no other lock's


class WriterLock:
    """Taken when it is made, until it is released."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._file: IO[Any] | None = None
        self._connection: Connection | None = None
        deadline = time.monotonic() + (WAIT_S if store.engine.dialect.name == "postgresql" else 0)
        while not self._take():
            if time.monotonic() >= deadline:
                raise DataError(f"another service writes to the store {store.url}; stop it, or choose another --store")
            time.sleep(0.1)

    def holds(self) -> bool:
        """Whether it is still ours. A connection that broke off is made again, unless another service was quicker."""
        if self._connection is None:
            return self._file is not None or self._store.file is None
        try:
            self._connection.execute(select(1))
            return True
        except SQLAlchemyError:
            self.release()
        try:
            return self._take()
        except SQLAlchemyError:
            return False

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._connection.invalidate()  # not back to the pool: the lock is the connection's
                self._connection.close()
            self._connection = None

    def _take(self) -> bool:
        if self._store.engine.dialect.name == "postgresql":
            return self._lock_database()
        return self._store.file is None or self._lock_file()

    def _lock_file(self) -> bool:
        import fcntl

        name = f"{self._store.file}.lock"
        try:
            file = os.fdopen(os.open(name, os.O_CREAT | os.O_RDWR, 0o600), "r+")
        except OSError as error:
            raise DataError(f"the lock beside the store cannot be made ({error.strerror})") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._file = file
        return True

    def _lock_database(self) -> bool:
        connection = self._store.engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        for option, value in KEEPALIVE.items():
            connection.execute(text(f"SET {option} = {value}"))
        if not connection.execute(select(func.pg_try_advisory_lock(_LOCK))).scalar_one():
            connection.close()
            return False
        self._connection = connection
        return True
