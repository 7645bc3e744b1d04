"""The machine that a simulated service runs on: its clock, and a disk whose writes fail, tear or stop with a kill.

SQLite writes real files. Every statement and commit first asks the disk, which raises what a database would raise. A
kill copies the files as they are at that moment: the next life begins from the copy, and nothing else is left.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from sqlalchemy import Engine
from sqlalchemy import event as database_event

SECTOR = 512
#: What SQLite says, and its code.
ERRORS = {"io": ("disk I/O error", 10), "full": ("database or disk is full", 13), "locked": ("database is locked", 5),
          "readonly": ("attempt to write a readonly database", 8)}  # fmt: skip
AT_COMMIT = ("torn", "answer lost", "refused")


class KilledError(BaseException):
    """The process is gone. No `except Exception` may notice."""


class Clock:
    """Microseconds: what is true, and how wrong the service's own clock is."""

    def __init__(self, start: int) -> None:
        self.true, self.wrong_by = start, 0

    @property
    def shown(self) -> int:
        return self.true + self.wrong_by

    def module(self) -> Any:
        """What stands where a module has `time`; the time since the start never jumps."""
        running = lambda: self.true / 1e6  # noqa: E731  # a name for one expression
        return SimpleNamespace(
            time=lambda: self.shown / 1e6, time_ns=lambda: self.shown * 1000, monotonic=running, perf_counter=running,
            sleep=lambda seconds: None,
        )  # fmt: skip


@contextmanager
def injected(clock: Clock) -> Iterator[None]:
    """Every module of the product reads this clock."""
    modules = [
        m for name, m in sorted(sys.modules.items()) if name.startswith("ustad.") and vars(m).get("time") is time
    ]
    shown = clock.module()
    for module in modules:
        module.time = shown
    try:
        yield
    finally:
        for module in modules:
            module.time = time


class Disk:
    """The files of one store, and what goes wrong with them next."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance, self.copies = folder, chance, 0
        self.failing: str | None = None  # every write fails like this
        self.armed: list[tuple[str, int]] = []  # what happens at the n-th statement, or commit, from now
        self.is_dead = False
        self.ambiguous = 0  # commits that were refused, or broke off, although they are stored
        self.torn: tuple[str, str] | None = None  # the store before and after a commit that was torn

    @property
    def path(self) -> Path:
        return self.folder / f"{self.copies}.db"

    def arm(self, what: str, after: int) -> None:
        self.armed.append((what, after))

    def calm(self) -> None:
        self.armed, self.failing = [], None

    # --------------------------------------------------------------------------------------- what happens
    def before_statement(self, text: str) -> None:
        if self.is_dead:
            raise KilledError
        is_write = not text.lstrip().upper().startswith(("SELECT", "PRAGMA", "BEGIN"))
        if self.failing is not None and is_write:
            raise error_of(self.failing)
        for what in self._due(lambda what: what not in AT_COMMIT):
            if what == "kill":
                self.kill()
                raise KilledError
            raise error_of(what)

    def commit(self, connection: sqlite3.Connection, commit: Any) -> None:
        if self.is_dead:
            raise KilledError
        for what in self._due(lambda what: what in AT_COMMIT):
            if what == "refused":
                raise error_of("io")
            if what == "torn":
                self._tear(commit)
                raise KilledError
            commit()
            self.ambiguous += 1
            raise error_of("io")
        commit()

    def _due(self, concerns: Any) -> Iterator[str]:
        """What is due now, each once."""
        left, due = [], []
        for what, after in self.armed:
            if not concerns(what):
                left.append((what, after))
            elif after <= 0:
                due.append(what)
            else:
                left.append((what, after - 1))
        self.armed = left + [(what, 0) for what in due[1:]]
        yield from due[:1]

    # ----------------------------------------------------------------------------------------------- a kill
    def kill(self) -> None:
        """Everything that is not in the files is lost."""
        self.is_dead = True
        before = self.path
        self.copies += 1
        for end in ("", "-wal"):
            if Path(f"{before}{end}").exists():
                shutil.copy(f"{before}{end}", f"{self.path}{end}")

    def _tear(self, commit: Any) -> None:
        """The power goes while the log is written: of what is new some is there, and perhaps nonsense at its end.

        The file of the store is as before, since it is written only after the log is safe.
        """
        base, log = self.path, Path(f"{self.path}-wal")
        store, old = base.read_bytes(), log.read_bytes() if log.exists() else b""
        before = state_of(base)
        commit()
        self.torn = before, state_of(base)
        new = log.read_bytes()
        first = first_difference(old, new)
        cut = self.chance.randint(first, len(new))
        torn = bytearray(new[:cut] + old[cut:])
        if cut > first and self.chance.random() < 0.5:
            start = max(first, cut - SECTOR)
            torn[start:cut] = self.chance.randbytes(cut - start)
        self.is_dead = True
        self.copies += 1
        self.path.write_bytes(store)
        Path(f"{self.path}-wal").write_bytes(torn)

    def revive(self) -> None:
        """Before the next life: the files of earlier ones go."""
        self.is_dead = False
        for file in self.folder.iterdir():
            if not file.name.startswith(f"{self.copies}.db"):
                file.unlink()

    def content(self) -> bytes:
        """Every byte of the store."""
        return b"".join(file.read_bytes() for file in sorted(self.folder.glob(f"{self.copies}.db*")))


def first_difference(old: bytes, new: bytes) -> int:
    """Where two contents begin to differ."""
    length = min(len(old), len(new))
    differs = np.frombuffer(old, np.uint8, length) != np.frombuffer(new, np.uint8, length)
    return int(differs.argmax()) if differs.any() else length


def error_of(kind: str) -> sqlite3.OperationalError:
    text, code = ERRORS[kind]
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


def state_of(path: Path) -> str:
    """A digest of every row, as a program sees it that opens the store now."""
    digest = hashlib.sha256()
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in sorted(names):
            rows = sorted(map(repr, connection.execute(f"SELECT * FROM {name}")))
            digest.update(repr((name, rows)).encode())
    return digest.hexdigest()


@contextmanager
def on_disk(disk: Disk) -> Iterator[None]:
    """Connections to SQLite that are opened inside ask this disk first."""

    class Cursor(sqlite3.Cursor):
        def execute(self, text: str, *values: Any) -> Any:
            disk.before_statement(text)
            return super().execute(text, *values)

        def executemany(self, text: str, *values: Any) -> Any:
            disk.before_statement(text)
            return super().executemany(text, *values)

    class Connection(sqlite3.Connection):
        def cursor(self, *kind: Any) -> Any:
            return super().cursor(Cursor)

        def commit(self) -> None:
            disk.commit(self, super().commit)

    def connecting(dialect: Any, record: Any, arguments: Any, options: dict[str, Any]) -> None:
        options["factory"] = Connection

    database_event.listen(Engine, "do_connect", connecting)
    try:
        yield
    finally:
        database_event.remove(Engine, "do_connect", connecting)
