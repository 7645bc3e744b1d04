"""From events to score tables: measure, settle, raise alerts, tell. Any judge, in memory or in parts of whole entities.

Nothing that is measured of one entity depends on another. So parts are measured one after the other and put aside, what
rests on all events (ranks, thresholds, warnings) comes from what the parts report, and each part is then told. With one
part, everything stays in memory; with many, memory is bounded by the part. A cluster takes the same steps
(`engine/score_job.py`).
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.dataset import event_days
from ustad.distribution import Ranks
from ustad.files import as_table, floats, set_columns
from ustad.progress import silence, track, warn
from ustad.schema import EventSchema
from ustad.scores import Scores
from ustad.scoring.alerts import AlertRule, Alerts, Rank, raise_alerts, refuse_everything, report_part
from ustad.scoring.drift_alarm import count_p_values, join_counts, note_drift
from ustad.scoring.incidents import order_by_time
from ustad.scoring.judge import Judge, Request, Span
from ustad.scoring.score_table import finish_part, read_measurements
from ustad.tables import DataError, agent_codes, take_rows
from ustad.turns import short_turns

#: Entities of one part, at most; and at least, where several parts are on their way at once.
ENTITIES, LEAST_ENTITIES = 2_000, 500
Measurement = tuple[pa.Table, pa.Table | None]  # events, and agents where they are known already


def score_whole(
    judge: Judge, events: Any, context: Any = None, request: Request | None = None, *, span: Span | None = None
) -> Scores:
    """All tables, event scores in the order of `events`; `run` has what is said of the alerts.

    `context` are events before the scored ones, which are counted and looked back at.
    """
    return ScoredParts(judge, events, context, request, entities=None, span=span).whole()


class ScoredParts:
    """Iterate over the `Scores` of each part; then `notes` says rule, threshold and warnings.

    >>> for part in ScoredParts(judge, stays, context):  # doctest: +SKIP
    ...     writer.write_table(part.events)
    """

    def __init__(
        self,
        judge: Judge,
        events: Any,
        context: Any = None,
        request: Request | None = None,
        *,
        entities: int | None = ENTITIES,
        without: tuple[str, ...] = (),
        span: Span | None = None,
        at_once: int = 1,
    ) -> None:
        """Parts of so many `entities` or fewer; all at once where that is None. Columns `without` are not carried on.
        So many parts are on their way `at_once`: beside a GPU, while it works on one, the CPU does the others."""
        if entities is not None and entities < 1:
            raise ValueError(f"entities must be at least 1, got {entities}")
        self.judge, self.entities, self.request = judge, entities, request or Request()
        self.events = as_table(events, "events")
        self.context = as_table(context, "context") if context is not None else None
        if not self.events.num_rows:
            raise DataError(f"{judge.schema.name}: the table of events is empty")
        self.span = span or Span.of(self.events, self.context, judge.schema, judge.known_until)
        self.notes: dict[str, Any] = {}
        self.look: Callable[[pa.Table], None] | None = None  # sees the scores of each part before alerts are chosen
        self._without, self._at_once = without, at_once

    def whole(self) -> Scores:
        """The only part there is, with the notes."""
        (part,) = self
        return replace(part, run=self.notes)

    def __iter__(self) -> Iterator[Scores]:
        with tempfile.TemporaryDirectory(prefix="ustad-parts-") as folder:
            shelf = _Shelf(Path(folder) if self.entities is not None else None)
            standing = None if self.judge.ranked_columns else self.judge.stand(None)
            reports = {}
            for name, (table, agents) in self._measure_all():
                if self.judge.ranked_columns:
                    shelf.put(name, table, agents, self.judge.ranked_columns)
                else:
                    event_scores = self.judge.settle(table, standing)
                    shelf.put(name, event_scores, agents)
                    reports[name] = self._report(event_scores)
            if self.judge.ranked_columns:
                standing = self.judge.stand([Ranks.of(np.concatenate(c)) for c in zip(*shelf.columns, strict=True)])
                for name in shelf.agents:
                    shelf.tables[name] = self.judge.settle(shelf.tables[name], standing)
                    reports[name] = self._report(shelf.tables[name])
            alerts, self.notes = choose_alerts(self.judge, reports, self)
            for name in reports:
                yield tell_part(
                    self.judge,
                    name,
                    shelf.tables.pop(name),
                    shelf.agents[name],
                    alerts=alerts,
                    standing=standing,
                    run=self,
                )

    # ------------------------------------------------------------------------------------------ measuring
    def _measure_all(self) -> Iterator[tuple[str, Measurement]]:
        """Parts by name, in their order."""
        if self.entities is None:
            yield "00000", self._measure_part(self.events, self.context)
            return
        with track("scoring, parts", self.events.num_rows) as advance, silence():
            for name, part in self._measured_parts():
                yield name, part
                advance(part[0].num_rows)

    def _measured_parts(self) -> Iterator[tuple[str, Measurement]]:
        with ThreadPoolExecutor(self._at_once) as pool, short_turns(self._at_once > 1):
            waiting: deque[tuple[str, Future[Measurement]]] = deque()
            for i, part in enumerate(self._divide()):
                waiting.append((f"{i:05d}", pool.submit(self._measure_part, *part)))
                if len(waiting) > self._at_once:
                    name, first = waiting.popleft()
                    yield name, first.result()
            for name, rest in waiting:
                yield name, rest.result()

    def _measure_part(self, events: pa.Table, context: pa.Table | None) -> Measurement:
        table, agents = self.judge.measure(events, context, self.span, self.request)
        return table.drop_columns([c for c in self._without if c in table.column_names]), agents

    def _divide(self) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """Events and context of so many entities at a time, in the order of the entities."""
        entity = self.judge.schema.entity
        codes, names = agent_codes(self.events[entity])
        size = self.entities or ENTITIES
        if self._at_once > 1:  # enough parts that all threads have something to do from the first to the last
            size = min(size, max(LEAST_ENTITIES, -(-len(names) // (2 * self._at_once))))
        order = np.argsort(codes, kind="stable")
        before, entity_index = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self.context is not None:
            index = pc.index_in(self.context[entity], pa.array(names.tolist(), self.context[entity].type))
            entity_index = pc.fill_null(index, -1).to_numpy(zero_copy_only=False).astype(np.int64)
            before = np.argsort(entity_index, kind="stable")
        for first in range(0, len(names), size):
            bounds = (first, first + size)
            low, high = np.searchsorted(codes[order], bounds)
            part = take_rows(self.events, np.sort(order[low:high]))
            context = None
            if self.context is not None:
                low, high = np.searchsorted(entity_index[before], bounds)
                context = take_rows(self.context, np.sort(before[low:high])) if high > low else None
            yield part, context

    # -------------------------------------------------------------------------------------------- alerts
    def _report(self, event_scores: pa.Table) -> dict[str, Any]:
        if self.look is not None:
            self.look(event_scores)
        return report_scores(event_scores, self.judge.schema, self.request.rule, self.span.days)


class _Shelf:
    """Measured parts, in memory or as files in a folder, and of each the columns whose ranks are asked for."""

    def __init__(self, folder: Path | None) -> None:
        self.tables: Any = {} if folder is None else _Files(folder)
        self.agents: dict[str, pa.Table | None] = {}
        self.columns: list[list[np.ndarray]] = []

    def put(self, name: str, table: pa.Table, agents: pa.Table | None, rank_columns: tuple[str, ...] = ()) -> None:
        self.tables[name], self.agents[name] = table, agents
        if rank_columns:
            measurements = read_measurements(table)
            self.columns.append([floats(measurements[column]) for column in rank_columns])


class _Files:
    """Tables by name, each in a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __setitem__(self, name: str, table: pa.Table) -> None:
        new_file = self._folder / f"{name}.new"
        with pa.OSFile(str(new_file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        new_file.replace(self._folder / name)

    def __getitem__(self, name: str) -> pa.Table:
        with pa.OSFile(str(self._folder / name)) as source:
            return pa.ipc.open_file(source).read_all()

    def pop(self, name: str) -> pa.Table:
        table = self[name]
        (self._folder / name).unlink()
        return table


# ----------------------------------------------------------------------------------------- steps of one part
def report_scores(event_scores: pa.Table, schema: EventSchema, rule: AlertRule, days: float) -> dict[str, Any]:
    """What a part whose scores are known has to tell."""
    p_values, scores = event_scores["p_value"].to_numpy(), event_scores["score"].to_numpy()
    echo = event_scores["echo"].to_numpy(zero_copy_only=False)
    report = report_part(p_values, scores, echo, order_by_time(event_scores, schema), rule=rule, days=days)
    return {**report, "p_values": count_p_values(event_days(event_scores, schema), p_values)}


def choose_alerts(
    judge: Judge, reports: Mapping[str, dict[str, Any]], run: Any, rank: Rank | None = None
) -> tuple[Alerts, dict[str, Any]]:
    """The alerts by what all parts report, and what is said of them. `run` has the `span` and the `request`; `rank`
    decides between events that tie, see `raise_alerts`. Refused where nearly all events would be alerts."""
    rule, days = run.request.rule, run.span.days
    alerts = raise_alerts(rule, reports, days, judge.reference, rank=rank, counts=judge.counts)
    refuse_everything(alerts.count, sum(report["events"] for report in reports.values()), rule, days)
    for text in alerts.warnings:
        warn(text)
    counts = join_counts(report["p_values"] for report in reports.values())
    return alerts, note_drift(alerts.notes(run.request.coverage), counts)


def tell_part(
    judge: Judge, name: str, event_scores: pa.Table, agents: pa.Table | None, *, alerts: Alerts, standing: Any, run: Any
) -> Scores:
    """The final tables of a part, events in their order. `run` has the `span` and the `request`."""
    echo = event_scores["echo"].to_numpy(zero_copy_only=False)
    alert = alerts.flags(name, event_scores["p_value"].to_numpy(), echo)
    event_scores = set_columns(event_scores, alert=alert)
    events, agents = judge.tell(event_scores, agents, standing, span=run.span, request=run.request)
    return finish_part(judge.schema, events, agents, details=run.request.details)
