"""One micro-batch from requests to the store: extract, leave out what is known, score, write, and answer.

In: jobs of events and of fixes. Out: for each job its answer, or the error that refuses it. Everything a batch
changes is one transaction; when it fails, what is in memory goes back to what the store says.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy.exc import SQLAlchemyError

from ustad.page import likeness, queries
from ustad.page import records as r
from ustad.page.event_writer import add_events, finalise, keep_changes, keep_states
from ustad.page.movements import absence_rows, gap_rows, trip_rows
from ustad.page.store import DISK_FULL, Row, Store, chunks, insert_new, is_disk_full
from ustad.page.translate import Layout, event_table, fresh_rows, has_event_ids, keys_for, table_rows
from ustad.schema import EventSchema
from ustad.scoring.incidents import IncidentLog
from ustad.service.arrivals import Arrival, Arrivals
from ustad.service.devices import Sender, device_row, note_devices
from ustad.service.errors import InvalidError, ServiceError, UnavailableError, refuse_unknown, where
from ustad.service.live_drift import LiveDrift
from ustad.service.live_groups import LiveGroups
from ustad.service.live_incidents import known_incidents
from ustad.service.stay_journal import Extraction
from ustad.tables import DataError

log = logging.getLogger("ustad.service")
_FINAL = ("score", "p_value", "alert", "echo", "reason", "term")
FIXES_PER_EVENT = 10  # of a slice: seldom do fewer make a stay
UNREAD = "this is stored, but the store could not be read for the answer; sending it again is safe"


@dataclass
class ScoreBatch:
    """The zone and the columns of the score of each event, in the order of the events.

    A row with `final` false is provisional: the agent's next event may raise it. `finals` are what earlier events are
    from now on, by key: score, p_value, alert and, where there is one, echo, reason and term.
    """

    zones: Sequence[str] = ()
    rows: list[dict[str, Any]] = field(default_factory=list)
    finals: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    states: dict[str, bytes] = field(default_factory=dict)  # of agents, kept in the same transaction
    changes: dict[str, str] = field(default_factory=dict)  # lasting ones of agents, in words
    absences: list[dict[str, Any]] = field(default_factory=list)  # visits that did not come, see `absences.parquet`


class Scorer(Protocol):
    """What the pipeline needs of a model."""

    schema: EventSchema
    context: int  # how many of an agent's latest events it asks for
    fingerprint: str  # of the model: states of another one are of no use

    def missing(self, agents: Sequence[str]) -> list[str]:
        """Agents whose recent events it does not hold."""

    def remember(
        self,
        agents: Sequence[str],
        context: pa.Table,
        states: Mapping[str, bytes],
        incidents: Mapping[str, IncidentLog],
    ) -> None:
        """Take over the recent events, the states and the incidents of these agents, read from the store."""

    def score(self, events: Sequence[Row]) -> ScoreBatch:
        """Scores of rows of events in order of agent and time, each after everything it knows of the agent."""

    def forget(self, agents: Sequence[str]) -> None:
        """Drop what it holds of these agents; they can come back from the store."""

    def erase(self, agents: Sequence[str]) -> None:
        """Drop what it knows of these agents, for good."""

    def locate(self, stays: pa.Table, trips: pa.Table) -> pa.Table:
        """Extracted stays with everything else that the model reads: category, zone, trip vectors."""


@dataclass
class Job:
    """One request's events (rows as `translate.event_table` takes them, in order of agent and time) or fixes.

    `row` of a row is its place in the request, for what is said about it; `sender` is the device that sent the fixes.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    fixes: pa.Table | None = None
    sender: Sender | None = None
    outcome: dict[str, Any] | ServiceError | DataError | None = None

    @property
    def length(self) -> int:
        """Events, or fixes."""
        return len(self.rows) if self.fixes is None else self.fixes.num_rows

    @property
    def size(self) -> int:
        """What the job weighs in the queue: events, or fixes by the hundred."""
        return self.size_from(0)

    def size_from(self, start: int) -> int:
        """The same of what comes from there on."""
        left = self.length - start
        return left if self.fixes is None or not left else 1 + left // 100

    def slice(self, start: int, events: int) -> Job:
        """A job of the next so many events, or of the fixes that may finish about as many."""
        if self.fixes is None:
            return Job(rows=self.rows[start : start + events])
        sender = replace(self.sender, left_out=0) if self.sender is not None and start else self.sender  # counted once
        return Job(fixes=self.fixes.slice(start, FIXES_PER_EVENT * events), sender=sender)

    @property
    def agents(self) -> frozenset[str]:
        if self.fixes is not None:
            return frozenset(pc.unique(self.fixes["agent_id"]).to_pylist())
        return frozenset(row["agent"] for row in self.rows)


@dataclass
class _Findings:
    """What the fixes of a batch finished."""

    stays: list[pa.Table] = field(default_factory=list)
    trips: list[pa.Table] = field(default_factory=list)
    gaps: list[pa.Table] = field(default_factory=list)
    fixes: list[pa.Table] = field(default_factory=list)
    devices: list[Row] = field(default_factory=list)


class Pipeline:
    """Runs in one thread; nothing else writes events."""

    def __init__(self, store: Store, scorer: Scorer, extraction: Extraction | None) -> None:
        self.store, self.scorer, self.extraction = store, scorer, extraction
        self.layout = Layout.of(scorer.schema)
        self.arrivals = Arrivals(store)
        self.drift = LiveDrift(store, scorer.fingerprint)
        tails = getattr(scorer, "together", None)
        self.groups = LiveGroups(store, self.layout, tails) if tails is not None else None

    def run(self, jobs: Sequence[Job]) -> list[int]:
        """Set the outcome of every job; returns the keys of new alerts. A bad job does not spoil the others."""
        try:
            return self._run(jobs)
        except Exception as error:
            self._recover(jobs)
            if is_disk_full(error):
                for job in jobs:
                    job.outcome = UnavailableError(f"{DISK_FULL}; nothing of this request was stored", Retry_After="60")
                return []
            if len(jobs) > 1:
                return self._one_by_one(jobs)
            if not isinstance(error, (ServiceError, DataError)):
                raise
            jobs[0].outcome = error
            return []

    def _one_by_one(self, jobs: Sequence[Job]) -> list[int]:
        """Each job for itself, so that what was stored of one is not taken back by the failure of another."""
        alerts: list[int] = []
        for job in jobs:
            try:
                alerts += self.run([job])
            except SQLAlchemyError as error:  # without a store the others would fail too, each after a long wait
                log.error("the store failed: %s at %s", type(error).__name__, where(error))
                job.outcome = refuse_unknown(error)
                break
            except Exception as error:  # the job has no outcome: its client is told to send again
                log.error("scoring failed: %s at %s", type(error).__name__, where(error))
        return alerts

    def _run(self, jobs: Sequence[Job]) -> list[int]:
        findings = _Findings()
        arrivals = {number: self._events(job) for number, job in enumerate(jobs) if job.fixes is None}
        for together in _by_agents(jobs):
            arrivals |= self._extract(together, findings)
        arrivals = dict(sorted(arrivals.items()))
        self.arrivals.sift(list(arrivals.values()))
        for number, arrival in arrivals.items():
            if arrival.refusal is not None:
                jobs[number].outcome = arrival.refusal
        good = [a for a in arrivals.values() if a.refusal is None]
        new = [(a.rows[i], a.keys[i]) for a in good for i in a.fresh]
        rows, details, scores = self._score(new)
        alerts = self._write(rows, details, scores, findings)
        self.arrivals.note_accepted(row for row, _ in new)
        fresh = {row["key"]: queries.fresh_answer(row) for row in rows}
        keys_by_job = {n: a.keys for n, a in arrivals.items() if a.refusal is None}
        try:
            self._answer(jobs, keys_by_job, fresh)
        except SQLAlchemyError as error:  # after the transaction: nothing is taken back
            log.error("the store failed: %s at %s", type(error).__name__, where(error))
            for number in keys_by_job:
                jobs[number].outcome = UnavailableError(UNREAD, Retry_After="5")
        return alerts

    def check(self, job: Job) -> None:
        """Refuse a job whose events do not come in order, before anything of it is stored."""
        if job.fixes is None:
            arrival = self._events(job)
            self.arrivals.sift([arrival])
            if arrival.refusal is not None:
                raise arrival.refusal

    def renew(self, outcome: dict[str, Any]) -> None:
        """Answer provisional scores as they are now: the next slice may have made them final."""
        provisional = [int(event["id"]) for event in outcome["events"] if not event["final"]]
        if provisional:
            with self.store.reading() as connection:
                now = {event["id"]: event for event in queries.events_by_key(connection, provisional)}
            outcome["events"] = [now.get(event["id"], event) for event in outcome["events"]]

    # ---------------------------------------------------------------------------------------- coming in
    def _events(self, job: Job) -> Arrival:
        """The job's rows in order of agent and time; each event once."""
        rows = sorted(job.rows, key=lambda row: (row["agent"], row["started_at"]))
        keys = keys_for(rows, has_event_ids(self.scorer.schema))
        first = {key: i for i, key in reversed(list(enumerate(keys)))}
        if len(first) < len(keys):
            rows, keys = [rows[i] for i in sorted(first.values())], [keys[i] for i in sorted(first.values())]
        return Arrival(rows, keys)

    def _extract(self, jobs: dict[int, Job], findings: _Findings) -> dict[int, Arrival]:
        """The stays that these jobs of fixes finish, by the number of the job. No two are of one agent."""
        if self.extraction is None:
            raise InvalidError("this model does not read GPS; send finished events to /v1/events")
        fixes = pa.concat_tables([j.fixes for j in jobs.values() if j.fixes is not None], promote_options="default")
        step, losses = self.extraction.update(fixes)
        if fixes.num_rows:
            findings.fixes.append(fixes)
            findings.trips.append(step.trips)
            findings.gaps.append(step.gaps)
        stays: dict[str, list[Row]] = {}
        if step.stays.num_rows:
            for row in table_rows(self.scorer.locate(step.stays, step.trips), self.layout):
                stays.setdefault(row["agent"], []).append(row)
        return {number: self._take_stays(job, stays, losses, findings) for number, job in jobs.items()}

    def _take_stays(
        self, job: Job, stays: dict[str, list[Row]], losses: Mapping[str, Mapping[Any, int]], findings: _Findings
    ) -> Arrival:
        """What of a step is a job's: the stays and the dropped fixes of its agents."""
        if job.fixes is None:
            raise ValueError("a job of fixes needs fixes")
        agents = sorted(job.agents)
        counts = {why: sum(of.get(a, 0) for a in agents) for why, of in losses.items()}
        job.outcome = {
            "accepted": max(0, job.fixes.num_rows - sum(counts.values())),  # repeats of earlier ones are found now
            "late": counts.get("late", 0),
            "duplicates": counts.get("duplicates", 0),
            "dropped": counts.get("spikes", 0) + counts.get("inaccurate", 0),
            "implausible": counts.get("implausible", 0),
        }
        if job.sender is not None:
            findings.devices.append(device_row(job.sender, job.fixes, job.outcome))
        rows = [row for agent in agents for row in stays.get(str(agent), [])]
        return Arrival(rows, keys_for(rows) if rows else [], is_extracted=True)

    # -------------------------------------------------------------------------------------- going through
    def _score(self, new: list[tuple[Row, int]]) -> tuple[list[Row], dict[int, str], ScoreBatch]:
        """Rows for the store, their details by key, and their scores with what is final of earlier events."""
        if not new:
            return [], {}, ScoreBatch()
        new.sort(key=lambda pair: (pair[0]["agent"], pair[0]["started_at"]))
        agents = list(dict.fromkeys(row["agent"] for row, _ in new))
        absent = self.scorer.missing(agents)
        if absent:
            with self.store.reading() as connection:
                context_rows: list[Row] = []
                states: dict[str, bytes] = {}
                for part in chunks(absent):
                    context_rows += queries.recent_events(connection, part, self.scorer.context)
                    states |= queries.live_states(connection, part, self.scorer.fingerprint)
            self.scorer.remember(absent, event_table(context_rows, self.layout), states, known_incidents(context_rows))
        scores = self.scorer.score([row for row, _ in new])
        rows, details = fresh_rows(new, scores.zones, scores.rows, self.layout)
        if self.groups is not None:
            self.groups.mark(rows, scores.rows)
        return rows, details, replace(scores, finals=_merge_finals(rows, scores.finals))

    def _write(self, rows: list[Row], details: dict[int, str], scores: ScoreBatch, findings: _Findings) -> list[int]:
        if not rows and not findings.fixes and not findings.devices:
            return []
        with self.store.writing() as connection:
            likeness.mark(connection, rows)
            alerts = finalise(connection, scores.finals)
            add_events(connection, rows, details)
            if self.groups is not None:
                self.groups.record(connection, rows)
            keep_states(connection, scores.states, self.scorer.fingerprint)
            keep_changes(connection, scores.changes)
            if scores.absences:
                table = pa.Table.from_pylist(scores.absences)
                insert_new(connection, r.absences, absence_rows(table, self.layout.schema))
            alarm = self.drift.record(connection, rows)
            for table, parts, to_rows in ((r.trips, findings.trips, trip_rows), (r.gaps, findings.gaps, gap_rows)):
                new = [row for part in parts if part.num_rows for row in to_rows(part)]
                insert_new(connection, table, new)
            if findings.fixes and self.extraction is not None:
                self.extraction.record(connection, pa.concat_tables(findings.fixes, promote_options="default"))
            note_devices(connection, findings.devices)
        self.drift.accept(alarm)
        return alerts + [row["key"] for row in rows if row["alert"]]

    def _answer(self, jobs: Sequence[Job], keys_by_job: dict[int, list[int]], fresh: dict[int, dict[str, Any]]) -> None:
        """What is new is answered as it was written, what was there before as it is stored."""
        old = [k for keys in keys_by_job.values() for k in keys if k not in fresh]
        events = dict(fresh)
        if old:
            with self.store.reading() as connection:
                events |= {int(row["id"]): row for row in queries.events_by_key(connection, old)}
        new = set(fresh)
        for number, keys in keys_by_job.items():
            job = jobs[number]
            count = sum(key in new for key in keys)
            new -= set(keys)  # what two requests sent at once counts as new in the first
            counts = job.outcome if isinstance(job.outcome, dict) else {
                "accepted": count, "duplicates": max(len(job.rows) - count, 0),
                "kept": self._find_kept(job, events) if count < len(job.rows) else [],
            }  # fmt: skip
            job.outcome = {**counts, "events": [events[key] for key in keys if key in events]}

    def _find_kept(self, job: Job, events: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Rows that came again with another end, and the end that stays."""
        if self.scorer.schema.end is None:
            return []
        stored_events = [events.get(key) for key in keys_for(job.rows, has_event_ids(self.scorer.schema))]
        return [
            {"row": row.get("row"), "id": event["id"], "finished_at": event["finished_at"]}
            for row, event in zip(job.rows, stored_events, strict=True)
            if event is not None and event["finished_at"] != queries.iso(row["finished_at"])
        ]

    def _recover(self, jobs: Sequence[Job]) -> None:
        """After a failure, hold nothing in memory that the store does not say."""
        for job in jobs:
            job.outcome = None
        entity = {str(row["agent"]) for job in jobs for row in job.rows}
        if any(job.fixes is not None for job in jobs):
            entity |= {str(a) for job in jobs if job.fixes is not None for a in job.fixes["agent_id"].to_pylist()}
            if self.extraction is not None:
                self.extraction.go_back()
        self.forget(list(entity))

    def forget(self, agents: Sequence[str]) -> None:
        """Hold nothing of these agents in memory."""
        self.scorer.forget(agents)
        self.arrivals.forget(agents)
        if self.groups is not None:
            self.groups.go_back()

    # ---------------------------------------------------------------------------------------- going away
    def delete_agent(self, agent: str, by: str) -> int:
        """Delete an agent everywhere; returns how many events there were."""
        places = self.groups.places_of(agent) if self.groups is not None else {}
        count = self.store.delete_agent(agent, by)
        if self.groups is not None:
            self.groups.renew(places)
        self.scorer.erase([agent])
        self.arrivals.forget([agent])
        if self.extraction is not None:
            self.extraction.forget(agent)
        self.store.scrub(agent)
        return count


def _by_agents(jobs: Sequence[Job]) -> list[dict[int, Job]]:
    """Jobs of fixes by their number, together as long as no two are of one agent: fixes are counted by agent."""
    groups: list[dict[int, Job]] = []
    agents: set[str] = set()
    for number, job in enumerate(jobs):
        if job.fixes is not None:
            if not groups or not agents.isdisjoint(job.agents):
                groups.append({})
                agents = set()
            groups[-1][number] = job
            agents |= job.agents
    return groups


def _merge_finals(rows: list[Row], finals: Mapping[int, Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Put what is final into rows of the same batch; what is left belongs to events that are stored already."""
    mine = {row["key"]: row for row in rows}
    for key, final in finals.items():
        if key in mine:
            mine[key].update({name: value for name, value in final.items() if name in _FINAL and value is not None})
            mine[key]["final"] = True
    return {key: final for key, final in finals.items() if key not in mine}
