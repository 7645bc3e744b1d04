"""Fixes to stays as they arrive, and surviving a kill: a journal of fixes and now and then a snapshot.

In: tables of fixes, in order of arrival. Out: the stays, trips and gaps they finish. Each micro-batch of fixes is
written to the journal in the transaction that stores the stays it finished. Opening reads the last snapshot and replays
the journal after it. The tracker gives the same however a stream is cut, so the replay leads to the same state.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import pyarrow as pa
from sqlalchemy import Connection, delete, func, insert, select

from ustad.config import ConfigError, ExtractionConfig
from ustad.mobility.core import StayTables
from ustad.mobility.tracker import StayTracker
from ustad.page import records as r
from ustad.page.store import Store

SNAPSHOT_FIXES = 100_000
ENTRY_FIXES = 5  # an entry of one fix takes about as long to read back as five more would
WORTH_PACKING = 64  # fixes: to pack fewer takes longer than to write them
SETTINGS = "extraction"  # the name under which the store remembers them
NAMES_ONLY = "poi_radius_m"  # names stays that are finished; what is under way does not depend on it


class Extraction:
    """The tracker of a service, in step with its store."""

    def __init__(self, store: Store, config: ExtractionConfig, lateness_s: float) -> None:
        self._store, self._config, self._lateness_s = store, config, lateness_s
        self._stale = False  # the tracker knows fixes that the store does not
        self._tracker, self._since_snapshot = self._restore()
        self._take_over()

    @property
    def counts(self) -> dict[str, int]:
        """Fixes dropped so far, by why."""
        return self._tracker.counts

    def update(self, fixes: pa.Table) -> tuple[StayTables, dict[str, Counter[str]]]:
        """What these fixes finish, and how many were dropped, by why and agent."""
        self._in_step()
        step = self._tracker.update(fixes, check_clock=False)  # checked on arrival, by the setting
        return step, self._tracker.dropped

    def record(self, connection: Connection, fixes: pa.Table) -> None:
        """Write the fixes of a micro-batch, in the transaction that stores what they finished."""
        if not self._noted:
            self._note(connection)
        connection.execute(insert(r.journal).values(content=_to_bytes(fixes)))
        self._since_snapshot += _weight(fixes)
        if self._since_snapshot >= SNAPSHOT_FIXES:
            self.snapshot(connection)

    def snapshot(self, connection: Connection) -> None:
        """Write the whole state and empty the journal."""
        seq = connection.execute(select(func.max(r.journal.c.seq))).scalar() or 0
        self._note(connection)
        connection.execute(delete(r.snapshots))
        connection.execute(insert(r.snapshots).values(id=1, seq=seq, content=self._tracker.to_bytes()))
        connection.execute(delete(r.journal))
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
        if not self._begun:
            return
        self._tracker.forget([agent])
        try:
            with self._store.writing() as connection:
                self.snapshot(connection)
        except BaseException:
            self.go_back()
            raise

    def _restore(self) -> tuple[StayTracker, int]:
        """The tracker from the last snapshot and, with the settings of that time, everything in the journal. Each
        snapshot empties the journal, whose numbers may then begin anew."""
        settings = self._store.about(SETTINGS)
        tracker = StayTracker(self._config, self._lateness_s)
        if settings is not None:
            tracker = StayTracker(ExtractionConfig(**settings["config"]), settings["lateness_s"])
        with self._store.reading() as connection:
            snapshot = connection.execute(select(r.snapshots.c.content)).scalar()
            if snapshot is not None:
                tracker = StayTracker.from_bytes(snapshot)
            contents = connection.execute(select(r.journal.c.content).order_by(r.journal.c.seq)).scalars()
            parts = [_from_bytes(content) for content in contents]
        if parts:  # all at once: entry by entry, the single fixes of phones would take minutes
            tracker.update(pa.concat_tables(parts, promote_options="default"), check_clock=False)
        self._noted = settings is not None
        self._begun = self._noted or snapshot is not None or bool(parts)
        return tracker, sum(_weight(part) for part in parts)

    def _take_over(self) -> None:
        """Go on with the settings of today: another lateness counts from now on, other rules would mix two kinds of
        stays."""
        before, today = asdict(self._tracker.config), asdict(self._config)
        other = [name for name in today if name != NAMES_ONLY and before[name] != today[name]]
        if other:
            changes = ", ".join(f"{name} {before[name]} → {today[name]}" for name in other)
            raise ConfigError(
                f"the store holds unfinished stays of other extraction settings ({changes}); "
                "serve a model trained with those, or choose another --store"
            )
        if self._tracker.lateness_s != self._lateness_s:
            self._tracker.lateness_s = self._lateness_s
            with self._store.writing() as connection:
                self.snapshot(connection)

    def _note(self, connection: Connection) -> None:
        """Remember the settings with which the fixes of the journal were taken."""
        content = {"config": asdict(self._config), "lateness_s": self._lateness_s}
        self._store.remember(connection, SETTINGS, content)
        self._noted = self._begun = True


def _weight(fixes: pa.Table) -> int:
    """What an entry counts for the next snapshot."""
    return max(fixes.num_rows, ENTRY_FIXES)


def _to_bytes(fixes: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd" if fixes.num_rows >= WORTH_PACKING else None)
    with pa.ipc.new_stream(sink, fixes.schema, options=options) as writer:
        writer.write_table(fixes)
    return sink.getvalue().to_pybytes()


def _from_bytes(content: bytes) -> pa.Table:
    return pa.ipc.open_stream(content).read_all()
