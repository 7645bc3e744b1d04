"""The store: SQLite (WAL) or PostgreSQL behind one class, written to in whole transactions.

In go rows of scored events, verdicts, fixes and snapshots. Each `add` is one transaction: what was acknowledged
survives a kill, and nothing is stored twice. Reading is in `queries`.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, bindparam, create_engine, delete, event, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import StaticPool

from ustad.page import records as r
from ustad.page.case_erasure import drop_groups, forget_in_cases
from ustad.page.migrations import migrate
from ustad.page.statement_timeout import POOL, StatementTimeout, connect_with
from ustad.tables import DataError
from ustad.ties import highest_of

log = logging.getLogger("ustad.service")
LEAST_FREE = 256_000  # bytes: less would not hold a request
DISK_FULL = "the disk of the store is full"
PATIENCE_MS = 30_000  # for another writer to end
REWRITE_US = 86_400_000_000  # at most so often, since writers wait
CHUNK = 500  # parameters of an IN list
Row = dict[str, Any]


_KEYS_THERE = select(r.events.c.key).where(r.events.c.key.in_(bindparam("keys", expanding=True)))
_LAST_ENDS = select(r.agents.c.agent, r.agents.c.last_at).where(
    r.agents.c.agent.in_(bindparam("agents", expanding=True))
)  # fmt: skip


class CommitError(SQLAlchemyError):
    """The last step of a transaction failed: it may be stored all the same, and only the store itself knows."""


class Store:
    """Open it once; every method is safe to call from any thread, one writer at a time."""

    def __init__(self, url: str) -> None:
        timeout = StatementTimeout()
        self.engine = _engine(url, timeout)
        self.url = self.engine.url.render_as_string(hide_password=True)
        self._writer = self.engine.execution_options(writing=True)
        self._writing = threading.Lock()
        self.log_patience_ms = 2000  # for readers who keep the write-ahead log from being emptied
        self.disk_full = False  # since the last transaction that was tried
        # A store in memory is one connection. A transaction on it must end before the next begins, or the end of a
        # reader would roll back what a writer has written.
        in_memory = isinstance(self.engine.pool, StaticPool)
        self._alone: AbstractContextManager[Any] = threading.RLock() if in_memory else nullcontext()
        try:
            migrate(self.engine)
        except SQLAlchemyError as error:
            raise DataError(f"the store {self.url} cannot be opened ({_first_line(error)})") from error
        timeout.limit()  # a migration may take its time

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction; everything in it is committed together or not at all."""
        is_committing = False
        try:
            with self._writing, self._alone, self._writer.begin() as connection:
                yield connection
                is_committing = True
        except SQLAlchemyError as error:
            if is_disk_full(error) and not self.disk_full:
                self.disk_full = True
                log.error("%s: nothing is stored until there is room", DISK_FULL)
            if is_committing and not is_disk_full(error):
                raise CommitError(type(error).__name__) from error
            raise
        if self.disk_full:
            self.disk_full = False
            log.warning("the disk of the store has room again")

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with self._alone, self.engine.connect() as connection:
            yield connection

    def ping(self) -> None:
        """Fails when the store does not answer."""
        with self.reading() as connection:
            connection.execute(select(1)).scalar_one()

    @property
    def file(self) -> Path | None:
        """The file of a SQLite store."""
        in_file = self.engine.dialect.name == "sqlite" and not isinstance(self.engine.pool, StaticPool)
        return Path(self.engine.url.database or "") if in_file else None

    def free_bytes(self) -> int | None:
        """Room on the disk of a SQLite store; none where it is not known."""
        return shutil.disk_usage(self.file.parent).free if self.file is not None else None

    def bytes(self) -> int:
        """What the store takes."""
        if self.file is not None:
            return sum(p.stat().st_size for p in self.file.parent.glob(self.file.name + "*"))
        with self.reading() as connection:
            if connection.dialect.name == "sqlite":
                return 0
            return int(connection.execute(select(func.pg_database_size(func.current_database()))).scalar_one())

    def has_room(self) -> bool:
        """Whether something can be written: by the disk, and by trying where the last transaction found it full."""
        free = self.free_bytes()
        if free is not None and free < LEAST_FREE:
            return False
        if self.disk_full:
            try:
                with self.writing() as connection:
                    self.remember(connection, "room", "x" * LEAST_FREE)
                with self.writing() as connection:
                    connection.execute(delete(r.about).where(r.about.c.name == "room"))
            except SQLAlchemyError:
                return False
        return True

    # ---------------------------------------------------------------------------------------- events
    def find_known(self, keys: Sequence[int], agents: Sequence[str]) -> tuple[set[int], dict[str, int]]:
        """Which of these events are there already, and when each agent's latest event ended."""
        present: set[int] = set()
        last_ends: dict[str, int] = {}
        with self.reading() as connection:
            for part in chunks(keys):
                present.update(connection.execute(_KEYS_THERE, {"keys": part}).scalars())
            for part in chunks(agents):
                last_ends |= {row[0]: row[1] for row in connection.execute(_LAST_ENDS, {"agents": part})}
        return present, last_ends

    def about(self, name: str) -> Any:
        """Something remembered by name; none where nothing is."""
        with self.reading() as connection:
            text = connection.execute(select(r.about.c.content).where(r.about.c.name == name)).scalar()
        return json.loads(text) if text is not None else None

    def remember(self, connection: Connection, name: str, content: Any) -> None:
        connection.execute(delete(r.about).where(r.about.c.name == name))
        connection.execute(insert(r.about).values(name=name, content=json.dumps(content)))

    # -------------------------------------------------------------------------------------- deletion
    def delete_agent(self, agent: str, by: str) -> int:
        """Everything about one agent; returns how many events there were. A count stays, no identity."""
        with self.writing() as connection:
            keys = select(r.events.c.key).where(r.events.c.agent == agent)
            connection.execute(delete(r.details).where(r.details.c.key.in_(keys)))
            connection.execute(delete(r.alerts).where(r.alerts.c.key.in_(keys)))
            count = connection.execute(select(func.count()).select_from(keys.subquery())).scalar_one()
            forget_in_cases(connection, agent)
            drop_groups(connection, lambda group: agent in group["agent_ids"])
            for table in (*r.OF_AGENTS, r.access_keys):  # a device that sends on would bring the agent back
                connection.execute(delete(table).where(table.c.agent == agent))
            connection.execute(insert(r.deletions).values(deleted_at=now(), deleted_by=by, n_events=count))
        self.clear_log()
        return int(count)

    def clear_log(self) -> bool:
        """Empty SQLite's write-ahead log, which holds pages as they were before a deletion; whether it is empty. The
        file itself overwrites what is deleted (`secure_delete`)."""
        if self.file is None:
            return True
        connection = self.engine.raw_connection()
        try:
            with self._writing:
                connection.execute(f"PRAGMA busy_timeout={self.log_patience_ms}")
                busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                connection.execute(f"PRAGMA busy_timeout={PATIENCE_MS}")
        finally:
            connection.close()
        if busy:
            log.warning("the store's log still holds what was deleted, because somebody reads; it is emptied later")
        return not busy

    def scrub(self, agent: str) -> None:
        """Leave no byte of a deleted agent. `secure_delete` overwrites deleted rows. It leaves the copies that SQLite
        keeps in gaps of pages when it moves rows. Where the id is still found, the file is therefore written anew."""
        if self.clear_log() and self.file is not None and _contains(self.file, agent.encode()):
            self.rewrite()

    def rewrite(self) -> None:
        """Write a SQLite store anew: nothing is left in it but what a reader sees. Writers wait meanwhile."""
        connection = self.engine.raw_connection()
        try:
            with self._writing:
                connection.execute("PRAGMA temp_store=FILE")  # a store may be larger than memory
                connection.execute("VACUUM")
        except sqlite3.Error as error:
            log.error("bytes of what was deleted are left: the store cannot be written anew; delete again")
            raise OperationalError("VACUUM", {}, error) from error
        finally:
            connection.execute("PRAGMA temp_store=MEMORY")
            connection.close()
        self.clear_log()

    def erase_leftovers(self) -> None:
        """Once a day, where retention has deleted something: write a SQLite store anew, as `scrub` does."""
        if self.file is None or not self.about("leftovers"):
            return
        if 0 <= now() - (self.about("rewritten_at") or 0) < REWRITE_US:
            return
        self.rewrite()
        with self.writing() as connection:
            self.remember(connection, "leftovers", False)
            self.remember(connection, "rewritten_at", now())


def _contains(file: Path, text: bytes) -> bool:
    with file.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(text) >= 0


def with_own_scores(connection: Connection, agents: Sequence[str]) -> set[str]:
    """Agents whose score is that of their highest event; of the others a finished run says it, and it stays."""
    a, e = r.agents.c, r.events.c
    query = select(a.agent).join(r.events, e.key == a.worst)
    query = query.where(a.agent.in_(agents), a.score == e.score, a.p_value.is_not_distinct_from(e.p_value))
    return set(connection.execute(query).scalars())


def add_days(connection: Connection, agent: str, rows: Iterable[Any]) -> None:
    """The totals of each local day of an agent, from its scored events (key, day, score, alert)."""
    by_day: dict[int, list[Any]] = {}
    for row in rows:
        by_day.setdefault(row.day, []).append(row)
    for day, group in by_day.items():
        worst = group[highest_of([row.score for row in group])]
        connection.execute(insert(r.days).values(
            agent=agent, day=day, score=worst.score, n_events=len(group), n_alerts=sum(row.alert for row in group),
            worst=worst.key,
        ))  # fmt: skip


#: Whether an event is an alert that no rule hides.
IS_SHOWN = r.events.c.alert.is_(True) & r.events.c.hidden_by.is_(None)


def recount(connection: Connection, agent: str, own_score: bool) -> None:
    """Set an agent's totals and days from its events and, where it is `own_score`, its score from the highest."""
    e, d = r.events.c, r.days.c
    connection.execute(delete(r.days).where(d.agent == agent))
    columns = (e.key, e.day, e.score, IS_SHOWN.label("alert"), e.started_at, e.finished_at, e.p_value, e.reason)
    rows = connection.execute(select(*columns).where(e.agent == agent).order_by(e.started_at, e.key)).all()  # fmt: skip
    if not rows:
        for table in (r.live_states, r.agents):
            connection.execute(delete(table).where(table.c.agent == agent))
        return
    rows_with_score = [row for row in rows if row.score is not None]
    add_days(connection, agent, rows_with_score)
    worst = rows_with_score[highest_of([row.score for row in rows_with_score])] if rows_with_score else None
    names = ("score", "p_value", "reason") if own_score else ()
    connection.execute(update(r.agents).where(r.agents.c.agent == agent).values(
        first_at=min(row.started_at for row in rows), last_at=max(row.finished_at for row in rows),
        n_events=len(rows), n_scored=len(rows_with_score), n_alerts=sum(row.alert for row in rows_with_score),
        worst=worst.key if worst else None, **{name: getattr(worst, name, None) for name in names},
    ))  # fmt: skip


def insert_or(table: Table, dialect: str) -> Any:
    """An insert that can say what to do where a row is there already, as both databases have it."""
    return (sqlite_insert if dialect == "sqlite" else postgresql_insert)(table)


def insert_new(connection: Connection, table: Table, rows: list[Row]) -> None:
    """Insert rows; those whose primary key is there already are left as they are."""
    if rows:
        connection.execute(insert_or(table, connection.dialect.name).on_conflict_do_nothing(), rows)


def is_disk_full(error: BaseException) -> bool:
    """Whether a database says so: SQLite's code 13, PostgreSQL's 53100."""
    cause = getattr(error, "orig", error)
    return getattr(cause, "sqlite_errorcode", 0) & 0xFF == 13 or getattr(cause, "sqlstate", None) == "53100"


def now() -> int:
    return time.time_ns() // 1000


def chunks(values: Sequence[Any]) -> Iterator[list[Any]]:
    """Lists short enough for a database's limit on parameters."""
    for start in range(0, len(values), CHUNK):
        yield list(values[start : start + CHUNK])


def _engine(url: str, timeout: StatementTimeout | None = None) -> Engine:
    try:
        address = make_url(url)
    except ArgumentError as error:
        raise DataError("--store takes a URL such as sqlite:///ustad.db or postgresql://USER@HOST/NAME") from error
    if address.get_backend_name() == "postgresql":
        address = address.set(drivername="postgresql+psycopg")
        engine = create_engine(address, hide_parameters=True, pool_pre_ping=True, **POOL)
        connect = partial(connect_with, timeout or StatementTimeout())
        event.listen(engine, "do_connect", lambda dialect, record, place, options: connect(*place, **options))
        return engine
    if address.get_backend_name() != "sqlite":
        raise DataError(f"--store: '{address.get_backend_name()}' is not supported; use sqlite or postgresql")
    options: dict[str, Any] = {"connect_args": {"check_same_thread": False, "timeout": 30}}
    if address.database in (None, "", ":memory:"):
        options["poolclass"] = StaticPool
    else:
        _keep_private(Path(address.database))
        options["pool_use_lifo"] = True  # the connection used last, so that those of a rush fill no memory after it
    engine = create_engine(address, hide_parameters=True, **options)
    _prepare_sqlite(engine)
    return engine


def _keep_private(file: Path) -> None:
    """A new store belongs to its owner alone; SQLite's other files get the rights of this one."""
    if not file.exists():
        with suppress(OSError):  # then the database says what is wrong
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))
    elif file.stat().st_mode & 0o077:
        log.warning("other users of this machine can open the store; run: chmod 600 %s*", file)


def _prepare_sqlite(engine: Engine) -> None:
    """Write-ahead log, a sync at every commit, deleted rows overwritten, and transactions that begin as writers."""

    @event.listens_for(engine, "connect")
    def set_pragmas(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the begin below is ours
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON", f"busy_timeout={PATIENCE_MS}",
                       "cache_size=-4096", "temp_store=MEMORY"):  # fmt: skip
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def began(connection: Connection) -> None:
        writing = connection.get_execution_options().get("writing", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def _first_line(error: BaseException) -> str:
    return str(getattr(error, "orig", error)).splitlines()[0]
