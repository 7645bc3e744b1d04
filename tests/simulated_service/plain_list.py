"""What must be in the store: a plain list of the events of each agent, and what is told of them.

The list follows the answers of the service. What an answer did not reach is looked up in the store once, after which it
must be one of the two: all there, or nothing (of a request in several slices: a part from its beginning).
"""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from ustad.config import ExtractionConfig
from ustad.detector import Detector
from ustad.mobility.tracker import StayTracker
from ustad.page import records as r
from ustad.page.store import Store
from ustad.page.translate import Layout, event_table, keys_for, table_rows
from ustad.service.live import ModelScorer
from ustad.service.settings import Settings
from ustad.tables import TIMESTAMP

CLOSE = 1e-6
MICRO_BATCH = 8  # events of one transaction; of fixes ten times as many
Row = dict[str, Any]


class ViolatedError(AssertionError):
    """Something that must hold does not."""


def demand(holds: Any, what: str) -> None:
    if not holds:
        raise ViolatedError(what)


@dataclass
class Agent:
    stored: dict[int, Row] = field(default_factory=dict)  # by key, in order of time
    came: list[Row] = field(default_factory=list)  # since nothing was known of the agent, deleted ones included
    tracker: StayTracker | None = None
    is_unsure: bool = False  # some of its fixes may be in the store or not

    @property
    def ended(self) -> int | None:
        return max((row["finished_at"] for row in self.stored.values()), default=None)


class PlainList:
    """The list, and the comparison with a store."""

    def __init__(self, detector: Detector, settings: Settings) -> None:
        self._detector, self._settings = detector, settings
        self.layout = Layout.of(detector.schema)
        self.agents: dict[str, Agent] = {}
        self.told: Counter[int] = Counter()  # alerts that the analyst has heard of
        self.scorer = ModelScorer(detector, settings)

    def _of(self, agent: str) -> Agent:
        return self.agents.setdefault(agent, Agent())

    # ------------------------------------------------------------------------------------------ coming in
    def expect(self, agent: str, rows: list[Row]) -> tuple[bool, list[tuple[int, Row]]]:
        """Whether these events come in order, and those of them that are new."""
        known = self.agents.get(agent, Agent())
        fresh = [(key, row) for key, row in zip(keys_for(rows), rows, strict=True) if key not in known.stored]
        ended = known.ended
        for _, row in fresh:
            if ended is not None and row["started_at"] < ended:
                return False, fresh
            ended = row["finished_at"]
        return True, fresh

    def add(self, agent: str, fresh: list[tuple[int, Row]]) -> None:
        known = self._of(agent)
        for key, row in fresh:
            demand(key not in known.stored, "an event came twice")
            known.stored[key] = row
            known.came.append(row)

    def add_fixes(self, agent: str, fixes: list[Row]) -> int:
        """Fixes of one request; returns how many of them are new. What they finish is added."""
        known = self._of(agent)
        if known.tracker is None:
            known.tracker = StayTracker(ExtractionConfig(), self._settings.lateness_s)
        before = sum(known.tracker.counts.values())
        step = known.tracker.update(fix_table(agent, fixes), check_clock=False)
        if step.stays.num_rows:
            rows = table_rows(self.scorer.locate(step.stays, step.trips), self.layout)
            in_order = [(key, row) for key, row in zip(keys_for(rows), rows, strict=True)]
            self.add(agent, [(key, row) for key, row in in_order if self._is_new(known, key, row)])
        return max(0, len(fixes) - (sum(known.tracker.counts.values()) - before))

    def _is_new(self, known: Agent, key: int, row: Row) -> bool:
        return key not in known.stored and (known.ended is None or row["started_at"] >= known.ended)

    # ----------------------------------------------------------------------------- what no answer has said
    def look_up(self, agent: str, items: list[Any], stored: set[int], *, may_be_there: bool, is_cut: bool) -> None:
        """Take over what the store has of a request that was not acknowledged: all, or nothing, or some slices of one
        that may be cut."""
        _, fresh = self.expect(agent, [item["row"] for item in items])
        there = [pair for pair in fresh if pair[0] in stored]
        demand(may_be_there or is_cut or not there, "something was stored of a request that was refused")
        demand(is_cut or len(there) in (0, len(fresh)), "a part of a request was stored")
        demand(there == fresh[: len(there)], "a later slice was stored before an earlier one")
        self.add(agent, there)

    def look_up_fixes(self, agent: str, items: list[Any], stored: set[int]) -> None:
        """The same of fixes, as far as the stays show that they finished. The others are sent again, and make no
        difference when they come twice."""
        known = self._of(agent)
        known.is_unsure = True
        twin = PlainList(self._detector, self._settings)
        twin.agents[agent] = copy.deepcopy(known)
        for start in range(0, len(items), 10):  # the more requests wait, the smaller is the slice of each
            twin.add_fixes(agent, items[start : start + 10])
            finished = [key for key in twin.agents[agent].stored if key not in known.stored]
            if finished and stored.issuperset(finished):
                self.agents[agent] = copy.deepcopy(twin.agents[agent])

    # --------------------------------------------------------------------------------------------- going
    def forget(self, agent: str) -> None:
        gone = self.agents.pop(agent, None)
        if gone is not None:
            self._untell(gone.stored)

    def retain(self, before: int, left: set[int] | None = None) -> None:
        """Events that ended before this moment go, unless the store still has them (`left`: what it has)."""
        for known in self.agents.values():
            old = [
                key for key, row in known.stored.items() if row["started_at"] < before and row["finished_at"] < before
            ]
            if not old or (left is not None and not left.isdisjoint(old)):
                demand(left is None or not old or left.issuperset(old), "retention deleted a part of what is old")
                continue
            for key in old:
                del known.stored[key]
            self._untell(old)
            if not known.stored:  # nothing is known of the agent any more; fixes of a stay under way stay
                known.came = []

    def _untell(self, keys: Any) -> None:
        for key in keys:
            self.told.pop(key, None)

    # -------------------------------------------------------------------------------------------- comparing
    def compare(self, store: Store, skip: set[str]) -> None:
        """Events, details, alerts and totals of the store are those of the list."""
        with store.reading() as connection:
            tables = {t.name: connection.execute(sa.select(t)).mappings().all() for t in r.metadata.tables.values()}
        events = [row for row in tables["events"] if row["agent"] not in skip]
        listed = {
            key: row for name, agent in self.agents.items() if name not in skip for key, row in agent.stored.items()
        }
        stored = {row["key"]: row for row in events}
        demand(not listed.keys() - stored.keys(), "an acknowledged event is lost")
        demand(not stored.keys() - listed.keys(), "the store has an event that nobody acknowledged")
        for key, row in listed.items():
            demand(row["finished_at"] == stored[key]["finished_at"], "an event has changed")
        known = {name for name, agent in self.agents.items() if agent.stored}
        for table in (r.events, r.days, r.verdicts, r.live_states, r.agents):
            others = {row["agent"] for row in tables[table.name]} - known - skip
            demand(not others, f"{table.name} holds an agent who is gone")
        self._compare_alerts(tables, events)
        _compare_totals(tables, events, skip)
        demand({row["key"] for row in tables["details"]} == {row["key"] for row in tables["events"]}, "details differ")

    def _compare_alerts(self, tables: Any, events: list[Any]) -> None:
        raised = {row["key"] for row in tables["alerts"]}
        demand(raised == {row["key"] for row in tables["events"] if row["alert"]}, "alerts and their list differ")
        incidents = Counter((row["agent"], row["incident"]) for row in events if row["alert"] and row["incident"])
        demand(all(n == 1 for n in incidents.values()), "an incident raised two alerts")

    def hear(self, keys: list[int]) -> None:
        """The analyst is told of these alerts."""
        for key in keys:
            self.told[key] += 1
            demand(self.told[key] == 1, "an alert was told twice")

    def compare_scores(self, store: Store) -> int:
        """Each score is what a service says to which nothing ever happened; returns how many were compared."""
        with store.reading() as connection:
            rows = {row["key"]: row for row in connection.execute(sa.select(r.events)).mappings()}
        count = 0
        for name, agent in self.agents.items():
            if agent.stored:
                count += self._compare_agent(name, agent, rows)
        alerts = {key for key, row in rows.items() if row["alert"]}
        demand(alerts == set(self.told), "an alert was never told")
        return count

    def _compare_agent(self, name: str, agent: Agent, stored: dict[int, Any]) -> int:
        scorer = ModelScorer(self._detector, self._settings)
        scorer.remember([name], event_table([], self.layout), {}, {})
        rows = [{**row, "given": row.get("given") or dict.fromkeys(self.layout.extra_columns)} for row in agent.came]
        scored = scorer.score(rows)
        expected = {key: dict(row) for key, row in zip(keys_for(rows), scored.rows, strict=True)}
        for key, final in scored.finals.items():
            expected[key].update(final)
        for key in agent.stored:
            mine, theirs = expected[key], stored[key]
            which = f"of {name} at {theirs['started_at']} is not that of an unbroken service"
            demand(abs(mine["score"] - theirs["score"]) <= CLOSE, f"the score {which}")
            pairs = (("alert", "alert"), ("incident_id", "incident"), ("echo", "echo"), ("kind", "kind"))
            for ours, column in pairs:
                demand(mine[ours] == theirs[column], f"{column} {which}: {theirs[column]}, not {mine[ours]}")
        return len(agent.stored)


def _compare_totals(tables: Any, events: list[Any], skip: set[str]) -> None:
    counted: dict[str, list[Any]] = {}
    for row in events:
        counted.setdefault(row["agent"], []).append(row)
    totals = {row["agent"]: (row["n_events"], row["n_alerts"]) for row in tables["agents"] if row["agent"] not in skip}
    demand(
        totals == {a: (len(e), sum(x["alert"] for x in e)) for a, e in counted.items()}, "an agent's totals are wrong"
    )
    days = Counter((row["agent"], row["day"]) for row in events)
    demand(
        {(d["agent"], d["day"]): d["n_events"] for d in tables["days"] if d["agent"] not in skip} == days,
        "the totals of a day are wrong",
    )


def fix_table(agent: str, fixes: list[Row]) -> pa.Table:
    return pa.table({
        "agent_id": pa.array([agent] * len(fixes), pa.string()),
        "time": pa.array([fix["time"] for fix in fixes], pa.int64()).cast(TIMESTAMP),
        "lat": pa.array([fix["lat"] for fix in fixes], pa.float64()),
        "lon": pa.array([fix["lon"] for fix in fixes], pa.float64()),
        "accuracy_m": pa.nulls(len(fixes), pa.float64()),
    })  # fmt: skip
