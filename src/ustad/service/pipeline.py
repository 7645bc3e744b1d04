"""One micro-batch from requests to the store: extract, leave out what is known, score, write, and answer.

In: jobs of events and of fixes. Out: for each job its answer, or the error that refuses it. Everything a batch
changes is one transaction; when it fails, what is in memory goes back to what the store says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from ustad.schema import EventSchema
from ustad.service import likeness, queries
from ustad.service import records as r
from ustad.service.errors import InvalidError, OutOfOrderError, ServiceError
from ustad.service.extraction import Extraction
from ustad.service.ledger import add_events
from ustad.service.movements import gap_rows, trip_rows
from ustad.service.store import Row, Store, chunks, insert_new
from ustad.service.translate import Layout, event_table, keys_of, store_rows
from ustad.tables import DataError


class Scorer(Protocol):
    """What the pipeline needs of a model."""

    schema: EventSchema

    def missing(self, agents: Sequence[str]) -> list[str]:
        """Agents whose recent events it does not hold."""

    def remember(self, agents: Sequence[str], context: pa.Table) -> None:
        """Take over the recent events of these agents, read from the store."""

    def score(self, events: pa.Table) -> tuple[pa.Table, Sequence[Mapping[str, Any]]]:
        """The events with a zone for each, and the columns of scores for each, in the same order."""

    def forget(self, agents: Sequence[str]) -> None:
        """Drop what it holds of these agents."""

    def locate(self, stays: pa.Table, trips: pa.Table) -> pa.Table:
        """Extracted stays with everything else that the model reads: category, zone, trip vectors."""


@dataclass
class Job:
    """One request's events (rows as `translate.event_table` takes them) or fixes."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    fixes: pa.Table | None = None
    outcome: dict[str, Any] | ServiceError | DataError | None = None

    @property
    def size(self) -> int:
        """What the job weighs in the queue: events, or fixes by the hundred."""
        return len(self.rows) if self.fixes is None else 1 + self.fixes.num_rows // 100


@dataclass
class _Found:
    """What the fixes of a batch finished."""

    stays: list[pa.Table] = field(default_factory=list)
    trips: list[pa.Table] = field(default_factory=list)
    gaps: list[pa.Table] = field(default_factory=list)
    fixes: list[pa.Table] = field(default_factory=list)


class Pipeline:
    """Runs in one thread; nothing else writes events."""

    def __init__(self, store: Store, scorer: Scorer, extraction: Extraction | None) -> None:
        self.store, self.scorer, self.extraction = store, scorer, extraction
        self.layout = Layout.of(scorer.schema)

    def run(self, jobs: Sequence[Job]) -> list[int]:
        """Set the outcome of every job; returns the keys of new alerts. A bad job does not spoil the others."""
        try:
            return self._run(jobs)
        except Exception as error:
            self._recover(jobs)
            if len(jobs) > 1:
                return [key for job in jobs for key in self.run([job])]
            if not isinstance(error, (ServiceError, DataError)):
                raise
            jobs[0].outcome = error
            return []

    def _run(self, jobs: Sequence[Job]) -> list[int]:
        found = _Found()
        wanted: dict[int, list[int]] = {}  # job → keys of its answer
        tables = []
        for number, job in enumerate(jobs):
            table = self._extract(job, found) if job.fixes is not None else self._events(job)
            if isinstance(job.outcome, ServiceError):
                continue
            wanted[number] = keys_of(table, self.layout.schema) if table.num_rows else []
            if table.num_rows:
                tables.append((number, table))
        new = self._new_events(jobs, tables, wanted)
        rows, details = self._score(new)
        alerts = self._write(rows, details, found)
        self._answer(jobs, wanted, {row["key"]: queries.fresh_answer(row) for row in rows})
        return alerts

    # ---------------------------------------------------------------------------------------- coming in
    def _events(self, job: Job) -> pa.Table:
        """The job's rows as a table in order of agent and time; each event once."""
        schema = self.layout.schema
        table = event_table(job.rows, self.layout).sort_by([(schema.entity, "ascending"), (schema.time, "ascending")])
        first = dict(zip(reversed(keys_of(table, schema)), range(table.num_rows - 1, -1, -1), strict=True))
        return table.take(pa.array(sorted(first.values()))) if len(first) < table.num_rows else table

    def _extract(self, job: Job, found: _Found) -> pa.Table:
        if self.extraction is None:
            raise InvalidError("this model does not read GPS; send finished events to /v1/events")
        if job.fixes is None:
            raise ValueError("a job of fixes needs fixes")
        step, dropped = self.extraction.update(job.fixes)
        job.outcome = {
            "accepted": job.fixes.num_rows - sum(dropped.values()),
            "late": dropped["late"],
            "duplicates": dropped["duplicates"],
            "dropped": dropped["spikes"] + dropped["inaccurate"],
        }
        found.fixes.append(job.fixes)
        found.trips.append(step.trips)
        found.gaps.append(step.gaps)
        return self.scorer.locate(step.stays, step.trips)

    def _new_events(
        self, jobs: Sequence[Job], tables: list[tuple[int, pa.Table]], wanted: dict[int, list[int]]
    ) -> pa.Table | None:
        """What is not in the store yet and comes after what is; a job with late events is refused whole."""
        schema = self.layout.schema
        if not tables:
            return None
        names = {str(a) for _, table in tables for a in table[schema.entity].to_pylist()}
        known, ended = self.store.known([key for keys in wanted.values() for key in keys], list(names))
        taken: list[pa.Table] = []
        for number, table in tables:
            fresh = [i for i, key in enumerate(wanted[number]) if key not in known]
            late = self._late(table, fresh, ended)
            if late and jobs[number].fixes is None:
                jobs[number].outcome = OutOfOrderError(
                    f"{len(late)} of {len(fresh)} new events begin before the agent's latest known event has ended; "
                    "events come in order of time, nothing of this request was stored",
                )
                continue
            fresh = [i for i in fresh if i not in late]
            if late:  # extracted stays that overlap events sent by hand
                wanted[number] = [k for i, k in enumerate(wanted[number]) if i not in late]
            part = table.take(pa.array(fresh, pa.int64()))
            known |= {wanted[number][i] for i in fresh} if not late else set(keys_of(part, schema))
            self._advance(part, ended)
            taken.append(part)
        taken = [part for part in taken if part.num_rows]
        return pa.concat_tables(taken, promote_options="default") if taken else None

    def _spans(self, table: pa.Table) -> list[tuple[str, int, int]]:
        schema = self.layout.schema
        end = table[schema.end or schema.time].cast(pa.int64()).to_pylist()
        start = table[schema.time].cast(pa.int64()).to_pylist()
        return list(zip(map(str, table[schema.entity].to_pylist()), start, end, strict=True))

    def _late(self, table: pa.Table, fresh: list[int], ended: dict[str, int]) -> set[int]:
        """Which of the fresh rows begin before what came before them has ended."""
        late, ended = set(), dict(ended)
        spans = self._spans(table)
        for i in fresh:
            agent, start, end = spans[i]
            if agent in ended and start < ended[agent]:
                late.add(i)
            else:
                ended[agent] = end
        return late

    def _advance(self, table: pa.Table, ended: dict[str, int]) -> None:
        for agent, _, end in self._spans(table):
            ended[agent] = max(end, ended.get(agent, end))

    # -------------------------------------------------------------------------------------- going through
    def _score(self, new: pa.Table | None) -> tuple[list[Row], dict[int, str]]:
        """Rows for the store with their details."""
        if new is None:
            return [], {}
        agents = [str(a) for a in new[self.layout.schema.entity].unique().to_pylist()]
        absent = self.scorer.missing(agents)
        if absent:
            with self.store.reading() as connection:
                rows = [row for part in chunks(absent) for row in queries.recent_events(connection, part)]
            self.scorer.remember(absent, event_table(rows, self.layout))
        complete, scored = self.scorer.score(new)
        return store_rows(complete, self.layout, scored)

    def _write(self, rows: list[Row], details: dict[int, str], found: _Found) -> list[int]:
        if not rows and not found.fixes:
            return []
        with self.store.writing() as connection:
            likeness.mark(connection, rows)
            add_events(connection, [{"verdict": None, "marked_by": None, **row} for row in rows], details)
            for table, parts, to_rows in ((r.trips, found.trips, trip_rows), (r.gaps, found.gaps, gap_rows)):
                new = [row for part in parts for row in to_rows(part)]
                insert_new(connection, table, new)
            if found.fixes and self.extraction is not None:
                self.extraction.record(connection, pa.concat_tables(found.fixes, promote_options="default"))
        return [row["key"] for row in rows if row["alert"]]

    def _answer(self, jobs: Sequence[Job], wanted: dict[int, list[int]], fresh: dict[int, dict[str, Any]]) -> None:
        """What is new is answered as it was written, what was there before as it is stored."""
        old = [k for n, keys in wanted.items() if self._open(jobs[n]) for k in keys if k not in fresh]
        events = dict(fresh)
        if old:
            with self.store.reading() as connection:
                events |= {int(row["id"]): row for row in queries.events_by_key(connection, old)}
        new = set(fresh)
        for number, keys in wanted.items():
            job = jobs[number]
            if not self._open(job):
                continue
            accepted = sum(key in new for key in keys)
            new -= set(keys)  # what two requests sent at once counts as new in the first
            counts = job.outcome if isinstance(job.outcome, dict) else {
                "accepted": accepted, "duplicates": max(len(job.rows) - accepted, 0),
            }  # fmt: skip
            job.outcome = {**counts, "events": [events[key] for key in keys if key in events]}

    @staticmethod
    def _open(job: Job) -> bool:
        return job.outcome is None or isinstance(job.outcome, dict)

    def _recover(self, jobs: Sequence[Job]) -> None:
        """After a failure, hold nothing in memory that the store does not say."""
        for job in jobs:
            job.outcome = None
        entity = {str(row["agent"]) for job in jobs for row in job.rows}
        if any(job.fixes is not None for job in jobs):
            entity |= {str(a) for job in jobs if job.fixes is not None for a in job.fixes["agent_id"].to_pylist()}
            if self.extraction is not None:
                self.extraction.reload()
        self.scorer.forget(list(entity))

    # ---------------------------------------------------------------------------------------- going away
    def delete_agent(self, agent: str, by: str) -> int:
        """Delete an agent everywhere; returns how many events there were."""
        count = self.store.delete_agent(agent, by)
        self.scorer.forget([agent])
        if self.extraction is not None:
            self.extraction.forget(agent)
        return count
