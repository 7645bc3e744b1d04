"""The pipeline and its store under any order of requests, restarts and failures, against a plain list of events.

What was acknowledged is stored once; what was refused is not there; what was forgotten is nowhere; no alert is told
twice and none is lost; totals are those of counting. `USTAD_MORE=20` runs so many times as many cases.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import first_store
import pytest
import sqlalchemy as sa
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from service_example import PlainScorer

from ustad.page import hidden, migrations, queries
from ustad.page import records as r
from ustad.page.store import Store, _engine
from ustad.page.translate import keys_for
from ustad.service import pipeline
from ustad.service.errors import OutOfOrderError
from ustad.service.messages import Verdict
from ustad.service.pipeline import Job, Pipeline, ScoreBatch
from ustad.service.retention import expire
from ustad.service.routes_verdict import give_verdict
from ustad.triage.hiding import HidingRule

MORE = int(os.environ.get("USTAD_MORE", "1"))
FIRST, HOUR, DAY = 1_709_251_200_000_000, 3_600_000_000, 86_400_000_000  # 2024-03-01T00:00Z
AGENTS = ("anna", "bo", "cy")


class CountingScorer(PlainScorer):
    """An hour scores 1. A final score is the highest of the event's own and the next one's. The reason is how many
    events of the agent came before: what a scorer holds must survive restarts and go with the agent."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, tuple[int, int | None, float]] = {}  # agent → events, the last one's key and score

    def remember(self, agents: Sequence[str], context: Any, states: Mapping[str, bytes], incidents: Any = None) -> None:
        super().remember(agents, context, states)
        for agent in agents:
            self.states[agent] = tuple(json.loads(states[agent])) if agent in states else (0, None, 0.0)

    def forget(self, agents: Sequence[str]) -> None:
        super().forget(agents)
        for agent in agents:
            self.states.pop(agent, None)

    def score(self, rows: Sequence[Mapping[str, Any]]) -> ScoreBatch:
        scored = super().score(rows)
        finals: dict[int, dict[str, Any]] = {}
        made = []
        for key, source, row in zip(keys_for(rows), rows, scored.rows, strict=True):
            count, last, score = self.states[source["agent"]]
            if last is not None:
                highest = max(score, row["score"])
                finals[last] = {"score": highest, "p_value": 10.0**-highest, "alert": highest >= 3}
            self.states[source["agent"]] = (count + 1, key, row["score"])
            made.append({**row, "final": False, "reason": f"after {count}"})
        kept = {str(row["agent"]): json.dumps(self.states[row["agent"]]).encode() for row in rows}
        return ScoreBatch(scored.zones, made, finals, kept)


@dataclass
class Event:
    """What the list holds of one event: times in hours."""

    agent: str
    start: int
    hours: int
    score: float
    before: int
    final: bool = False
    verdict: str | None = None
    hidden_by: int | None = None

    @property
    def key(self) -> int:
        return int(keys_for([{"agent": self.agent, "started_at": FIRST + self.start * HOUR, "event_id": None}])[0])

    def row(self, hours: int | None = None) -> dict[str, Any]:
        return row_of(self.agent, self.start, hours or self.hours)


def row_of(agent: str, start: float, hours: int) -> dict[str, Any]:
    """An event as a request brings it."""
    begin = FIRST + round(start * HOUR)
    return {
        "agent": agent, "started_at": begin, "finished_at": begin + hours * HOUR, "timezone": "UTC", "given": {},
        "event_id": None, "lat": 60.17, "lon": 24.94, "poi_id": None, "place_name": None, "category": "work",
        "n_fixes": None, "start_gap_s": None, "end_gap_s": None, "observed_s": None,
    }  # fmt: skip


agents = st.sampled_from(AGENTS)
lengths = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5)), min_size=1, max_size=4)


class StoreMachine(RuleBasedStateMachine):
    """Every rule is a request or an accident; the list says what must be there afterwards."""

    url: str | None = None  # of PostgreSQL; without one each run has a SQLite file of its own

    @initialize(old=st.booleans())
    def open_store(self, old: bool) -> None:
        quick = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a disk in memory, where there is one
        self.place = Path(tempfile.mkdtemp(prefix="ustad-machine-", dir=quick))
        self.store_url = self.url or f"sqlite:///{self.place / '0.db'}"
        self.events: list[Event] = []
        self.clock = dict.fromkeys(AGENTS, 0)  # the hour when the latest event of each ended
        self.copies, self.cursor = 0, 0
        self.told: list[int] = []
        self.rules: dict[int, tuple[str | None, int]] = {}  # in force: whose alerts are hidden, and until which hour
        self.once_hidden: set[int] = set()  # events that a rule has hidden: their alerts may have gone by unseen
        engine = _engine(self.store_url)
        with engine.begin() as connection:
            if self.url is not None:
                for table in (*r.metadata.sorted_tables, migrations.version_table):
                    table.drop(connection, checkfirst=True)
            if old:  # a store of the first version, which migrates when it is opened
                first_store.metadata.create_all(connection)
                migrations.version_table.create(connection)
                connection.execute(sa.insert(migrations.version_table).values(version=1))
        engine.dispose()
        self._start()

    def _start(self) -> None:
        self.store, self.scorer = Store(self.store_url), CountingScorer()
        self.pipeline = Pipeline(self.store, self.scorer, None)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.place, ignore_errors=True)

    # ------------------------------------------------------------------------------------------- coming in
    def _of(self, agent: str) -> list[Event]:
        return [event for event in self.events if event.agent == agent]

    def _new(self, agent: str, steps: list[tuple[int, int]]) -> list[Event]:
        """Events after the agent's latest; not in the list yet."""
        made, at = [], self.clock[agent]
        for pause, hours in steps:
            made.append(Event(agent, at + pause, hours, float(hours), 0))
            at += pause + hours
        return made

    def _accept(self, new: list[Event]) -> None:
        for event in new:
            mine = self._of(event.agent)
            event.before = mine[-1].before + 1 if mine else 0
            if mine:
                mine[-1].final, mine[-1].score = True, max(mine[-1].score, event.score)
            self.events.append(event)
            self.clock[event.agent] = event.start + event.hours
        self._hide()

    def _hide(self) -> None:
        """Of several rules the oldest hides an event."""
        for event in self.events:
            covering = [
                n for n, (who, until) in self.rules.items() if who in (None, event.agent) and event.start < until
            ]
            event.hidden_by = min(covering, default=None)
        self.once_hidden |= {event.key for event in self.events if event.hidden_by is not None}

    def _send(self, *rows: dict[str, Any]) -> Any:
        job = Job(rows=[{**row, "row": i} for i, row in enumerate(rows)])
        self.pipeline.run([job])
        return job.outcome

    @rule(agent=agents, steps=lengths, twice=st.booleans())
    def send_one(self, agent: str, steps: list[tuple[int, int]], twice: bool) -> None:
        """Of an event that comes twice in one request, the second time with another end, the first one counts."""
        new = self._new(agent, steps)
        again = [new[-1].row(new[-1].hours + 1)] if twice else []
        answer = self._send(*(event.row() for event in new), *again)
        assert (answer["accepted"], answer["duplicates"]) == (len(new), len(again))
        self._accept(new)

    @rule(agent=agents, steps=lengths, other=agents, more=lengths)
    def send_two(self, agent: str, steps: list[tuple[int, int]], other: str, more: list[tuple[int, int]]) -> None:
        new = self._new(agent, steps) + (self._new(other, more) if other != agent else [])
        answer = self._send(*(event.row() for event in new))
        assert (answer["accepted"], answer["duplicates"]) == (len(new), 0)
        self._accept(new)

    @precondition(lambda self: self.events)
    @rule(data=st.data(), hours=st.sampled_from([None, 1, 9]))
    def send_again(self, data: Any, hours: int | None) -> None:
        """As it was, or with another end: the first one stays."""
        again = data.draw(st.lists(st.sampled_from(self.events), min_size=1, max_size=3))
        answer = self._send(*(event.row(hours) for event in again))
        assert (answer["accepted"], answer["duplicates"]) == (0, len(again))
        assert {int(event["id"]) for event in answer["events"]} == {event.key for event in again}
        corrected = {str(event.key) for event in again if hours not in (None, event.hours)}
        assert {kept["id"] for kept in answer["kept"]} == corrected

    @precondition(lambda self: self.events)
    @rule(agent=agents, steps=lengths, data=st.data())
    def send_too_late(self, agent: str, steps: list[tuple[int, int]], data: Any) -> None:
        """One event that begins within a known one: nothing of the request is taken."""
        known = data.draw(st.sampled_from(self.events))
        late = row_of(known.agent, known.start + 0.5, 1)
        assert isinstance(self._send(*(e.row() for e in self._new(agent, steps)), late), OutOfOrderError)

    @rule(agent=agents, steps=lengths, where=st.sampled_from(["scoring", "writing"]))
    def fail_and_send_again(self, agent: str, steps: list[tuple[int, int]], where: str) -> None:
        """Halfway through a request something breaks: nothing of it is there, and it can be sent again."""
        new = self._new(agent, steps)

        def break_down(*arguments: Any) -> None:
            raise RuntimeError("broken on purpose")

        with pytest.MonkeyPatch.context() as patch:
            if where == "scoring":
                patch.setattr(self.scorer, "fail", break_down)
            else:
                patch.setattr(pipeline, "keep_states", break_down)
            with pytest.raises(RuntimeError):
                self._send(*(event.row() for event in new))
        self.compare()
        assert self._send(*(event.row() for event in new))["accepted"] == len(new)
        self._accept(new)

    # ---------------------------------------------------------------------------------------- what people do
    @precondition(lambda self: self.events)
    @rule(data=st.data(), verdict=st.sampled_from(["confirmed", "expected", "open"]))
    def judge(self, data: Any, verdict: str) -> None:
        event = data.draw(st.sampled_from(self.events))
        give_verdict(self.store, event.key, Verdict(verdict=verdict, reason="known"), "somebody")
        event.verdict = None if verdict == "open" else verdict

    @rule(agent=st.sampled_from([None, *AGENTS]), until=st.integers(1, 120))
    def hide(self, agent: str | None, until: int) -> None:
        """What one did, or everybody at this place."""
        where = {} if agent else {"lat": 60.17, "lon": 24.94}
        rule = HidingRule("rule", FIRST + until * HOUR, "explained", agent=agent, **where)
        with self.store.writing() as connection:
            self.rules[hidden.add_rule(connection, rule, "somebody")] = (agent, until)
        self._hide()

    @precondition(lambda self: self.rules)
    @rule(data=st.data())
    def show_again(self, data: Any) -> None:
        number = data.draw(st.sampled_from(sorted(self.rules)))
        with self.store.writing() as connection:
            assert hidden.end_rule(connection, number, "somebody")
        del self.rules[number]
        self._hide()

    @precondition(lambda self: self.events)
    @rule(agent=agents)
    def forget(self, agent: str) -> None:
        gone = self._of(agent)
        assert self.pipeline.delete_agent(agent, "somebody") == len(gone)
        self._drop(gone)
        self.clock[agent] = 0  # who comes again begins anew
        self.rules = {number: rule for number, rule in self.rules.items() if rule[0] != agent}
        self._hide()

    @precondition(lambda self: self.events)
    @rule(data=st.data(), after=st.integers(0, 1))
    def retain(self, data: Any, after: int) -> None:
        """From the end of some event on, or just after it."""
        last = data.draw(st.sampled_from(self.events))
        hour = last.start + last.hours + after
        gone = [event for event in self.events if event.start + event.hours < hour]
        assert expire(self.store, FIRST + hour * HOUR, self.pipeline.forget) == len(gone)
        self._drop(gone)

    def _drop(self, gone: list[Event]) -> None:
        keys = {event.key for event in gone}
        self.events = [event for event in self.events if event.key not in keys]
        self.told = [key for key in self.told if key not in keys]

    # -------------------------------------------------------------------------------------------- accidents
    @precondition(lambda self: self.events)
    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        if not kill or self.url is not None:
            self.store.close()
            self._start()
        else:
            self._kill()

    def _kill(self) -> None:
        """Go on from copies of the files as they are now: everything that is only in memory is lost."""
        before = self.store
        self.copies += 1
        old, new = (self.place / f"{number}.db" for number in (self.copies - 1, self.copies))
        for end in ("", "-wal"):
            if Path(f"{old}{end}").exists():
                shutil.copy(f"{old}{end}", f"{new}{end}")
        self.store_url = f"sqlite:///{new}"
        self._start()
        before.close()

    # --------------------------------------------------------------------------------------------- what holds
    @invariant()
    def compare(self) -> None:
        if not hasattr(self, "store"):
            return
        with self.store.reading() as connection:
            new = queries.alerts_after(connection, self.cursor, limit=10_000)
            read = {
                table.name: connection.execute(sa.select(table)).mappings().all()
                for table in r.metadata.tables.values()
            }
        self._compare_events(read)
        self._compare_alerts(read, new)
        self._compare_totals(read)
        keys = {event.key for event in self.events}
        assert {row["key"] for row in read["details"]} == keys
        assert {row["key"] for row in read["verdicts"]} <= keys
        assert {row["agent"] for row in read["live_states"]} == {event.agent for event in self.events}
        assert {row["marked_by"] for row in read["events"]} - {None} <= {row["id"] for row in read["verdicts"]}
        assert {row["id"] for row in read["hiding_rules"] if row["ended_at"] is None} == set(self.rules)

    def _compare_events(self, read: Any) -> None:
        verdicts = {row["id"]: row["verdict"] for row in read["verdicts"]}
        stored = [
            (e["key"], e["agent"], e["started_at"], e["finished_at"], e["score"], e["final"], e["reason"],
             verdicts.get(e["verdict"]), e["hidden_by"])
            for e in read["events"]
        ]  # fmt: skip
        expected = [
            (e.key, e.agent, FIRST + e.start * HOUR, FIRST + (e.start + e.hours) * HOUR, e.score, e.final,
             f"after {e.before}", e.verdict, e.hidden_by)
            for e in self.events
        ]  # fmt: skip
        assert sorted(stored) == sorted(expected)

    def _compare_alerts(self, read: Any, new: list[tuple[int, dict[str, Any]]]) -> None:
        flagged = sorted(event.key for event in self.events if event.score >= 3)
        assert sorted(row["key"] for row in read["events"] if row["alert"]) == flagged
        assert sorted(row["key"] for row in read["alerts"]) == flagged
        self.cursor = max([self.cursor, *(number for number, _ in new)])
        self.told += [int(alert["id"]) for _, alert in new]
        assert len(self.told) == len(set(self.told)), "no alert is told twice"
        assert {*self.told} - self.once_hidden == {*flagged} - self.once_hidden, "none is lost that no rule hid"

    def _compare_totals(self, read: Any) -> None:
        totals = {
            agent: (
                len(mine),
                sum(e.score >= 3 and e.hidden_by is None for e in mine),
                max(e.score for e in mine),
                FIRST + mine[0].start * HOUR,
            )
            for agent in AGENTS
            if (mine := self._of(agent))
        }
        assert {a["agent"]: (a["n_events"], a["n_alerts"], a["score"], a["first_at"]) for a in read["agents"]} == totals
        days: dict[tuple[str, int], list[Event]] = {}
        for event in self.events:
            days.setdefault((event.agent, (FIRST + event.start * HOUR) // DAY), []).append(event)
        counted = {
            key: (len(day), sum(e.score >= 3 and e.hidden_by is None for e in day), max(e.score for e in day))
            for key, day in days.items()
        }
        assert {(d["agent"], d["day"]): (d["n_events"], d["n_alerts"], d["score"]) for d in read["days"]} == counted


def run(machine: type[StoreMachine], examples: int) -> None:
    phases = (Phase.generate,) if MORE == 1 else (Phase.generate, Phase.shrink)  # to shrink takes minutes
    chosen = settings(max_examples=examples * MORE, stateful_step_count=20, phases=phases)
    run_state_machine_as_test(machine, settings=chosen)


def test_a_store_in_a_file_holds_what_a_plain_list_holds() -> None:
    run(StoreMachine, 10)


def test_a_store_on_a_server_holds_what_a_plain_list_holds(postgresql_url: str) -> None:
    class OnServer(StoreMachine):
        url = postgresql_url

    run(OnServer, 3)
