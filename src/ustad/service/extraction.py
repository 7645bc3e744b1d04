"""Fixes to stays as they arrive, and surviving a kill: a journal of fixes and now and then a snapshot.

In: tables of fixes, in order of arrival. Out: the stays, trips and gaps they finish. Each micro-batch of fixes goes
into the journal in the transaction that stores what it finished; opening reads the last snapshot and replays the
journal behind it. The tracker gives the same however a stream is cut, so the replay leads to the same state.
"""

from __future__ import annotations

import pyarrow as pa
from sqlalchemy import Connection, delete, func, insert, select

from ustad.config import ExtractionConfig
from ustad.mobility.core import Found
from ustad.mobility.tracker import StayTracker
from ustad.service import records as r
from ustad.service.store import Store

SNAPSHOT_FIXES = 100_000


class Extraction:
    """The tracker of a service, in step with its store."""

    def __init__(self, store: Store, config: ExtractionConfig, lateness_s: float) -> None:
        self._store, self._config, self._lateness_s = store, config, lateness_s
        self._stale = False  # the tracker knows fixes that the store does not
        self._tracker, self._since_snapshot = self._restore()

    @property
    def counts(self) -> dict[str, int]:
        """Fixes dropped so far, by why."""
        return self._tracker.counts

    def update(self, fixes: pa.Table) -> tuple[Found, dict[str, int]]:
        """What these fixes finish, and how many of them were dropped, by why."""
        self._in_step()
        before = dict(self._tracker.counts)
        found = self._tracker.update(fixes)
        return found, {why: count - before[why] for why, count in self._tracker.counts.items()}

    def record(self, connection: Connection, fixes: pa.Table) -> None:
        """Write the fixes of a micro-batch, in the transaction that stores what they finished."""
        connection.execute(insert(r.journal).values(content=_to_bytes(fixes)))
        self._since_snapshot += fixes.num_rows
        if self._since_snapshot >= SNAPSHOT_FIXES:
            self.snapshot(connection)

    def snapshot(self, connection: Connection) -> None:
        """Write the whole state and empty the journal."""
        seq = connection.execute(select(func.max(r.journal.c.seq))).scalar() or 0
        connection.execute(delete(r.snapshots))
        connection.execute(insert(r.snapshots).values(id=1, seq=seq, content=self._tracker.to_bytes()))
        connection.execute(delete(r.journal).where(r.journal.c.seq <= seq))
        self._since_snapshot = 0

    def go_back(self) -> None:
        """After a transaction that failed: what the store says is read again before anything else is done."""
        self._stale = True

    def _in_step(self) -> None:
        """Fails, and stays stale, as long as the store cannot be read."""
        if self._stale:
            self._tracker, self._since_snapshot = self._restore()
            self._stale = False

    def forget(self, agent: str) -> None:
        """Leave nothing of an agent, neither in memory nor in the store."""
        self._in_step()
        self._tracker.forget([agent])
        try:
            with self._store.writing() as connection:
                self.snapshot(connection)
        except BaseException:
            self.go_back()
            raise

    def _restore(self) -> tuple[StayTracker, int]:
        tracker, seq, replayed = StayTracker(self._config, self._lateness_s), 0, 0
        with self._store.reading() as connection:
            saved = connection.execute(select(r.snapshots.c.seq, r.snapshots.c.content)).first()
            if saved is not None:
                tracker, seq = StayTracker.from_bytes(saved.content), saved.seq
            later = select(r.journal.c.content).where(r.journal.c.seq > seq).order_by(r.journal.c.seq)
            for content in connection.execute(later).scalars():
                fixes = _from_bytes(content)
                tracker.update(fixes)
                replayed += fixes.num_rows
        return tracker, replayed


def _to_bytes(fixes: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, fixes.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(fixes)
    return sink.getvalue().to_pybytes()


def _from_bytes(content: bytes) -> pa.Table:
    return pa.ipc.open_stream(content).read_all()
