"""Our judge one event at a time, where habits keep the histories.

In goes an event (a row as a mapping), out come its scores. The numbers are those of batch scoring with counts up to the
event and the window `past`. State per entity is small and bounded, leaves as bytes and comes back from them, and can be
forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import microseconds
from ustad.config import ConfigError
from ustad.events.observed import GAP_COLUMNS
from ustad.events.one_visit import RowColumns, VisitReader
from ustad.events.visits import Visits, place_keys, read_visits, spot_names
from ustad.evidence_source import number_columns
from ustad.files import as_table
from ustad.habits.habit_source import ABSENCES, HabitSource
from ustad.habits.history import SAME_PLACE_KM
from ustad.habits.one_comparison import was_left_alone
from ustad.habits.side_by_side import locate_alone
from ustad.habits.stages import history_end
from ustad.live.absorbing import MOST_VISITS, absorb, make_room
from ustad.live.habit_state import HabitState, model_mark
from ustad.live.micro_batch import judge_together
from ustad.live.one_judgement import judge_alone
from ustad.live.prepared_event import LiveEvent
from ustad.live.visit_log import as_visits, log_days, log_ends, unpack_habits, with_visit
from ustad.schema import EventSchema
from ustad.scoring.adding_judge import AddingJudge
from ustad.scoring.alerts import DEFAULT_P_VALUE
from ustad.scoring.looks import minus_log10_p
from ustad.tables import TIMESTAMP, DataError

#: Entities whose state is kept at hand; the quietest go first. Keep their bytes where they must not be lost.
MOST_ENTITIES = 4096
#: The latest visits among which a visit is looked for that did not come: more than two days of them.
LOOKED_AT = 128
#: Fewer events than this are judged one by one in less time than together.
LEAST_TOGETHER = 12


@dataclass
class _Entry:
    """One entity at hand: its own part of the history, its state, and what other sources have seen lately."""

    history: HabitSource
    state: HabitState
    windows: list[Any] | None = None
    latest: Visits | None = None  # the last of the log as it was read, where it was not read from bytes


class HabitLive:
    """Scores of our judge, event by event, for any interleaving of entities.

    >>> live = HabitLive(detector.judge, since=19_751)      # doctest: +SKIP
    >>> live.warm(stays_before)                              # doctest: +SKIP
    >>> row = live.update(stay)                              # doctest: +SKIP
    >>> row["p_value"], row["reason"]                        # doctest: +SKIP

    `update(event)` takes one finished event (a mapping with the schema's columns; times as aware datetimes) and
    gives its row: score, p_value, alert (whether the p-value is at most the one asked for; `scoring.incidents` joins
    events that belong together), kind, reason (None unless asked for), visits_now, km_from_own_places, new_place,
    evidence, what was expected by the entity's own history (expected_f, observed_f, spread_f and
    error_f of every feature that habits look at), and the event's own entity, time and id. The first event of a local
    day also has `change`, a sentence, where the days before it go on differently for good. An event with which the time
    of a nearly certain visit has passed that did not come has `absences`, rows as in `absences.parquet`.

    An entity's history moves on as in bulk: weeks enter it once they lie `scoring.absorb_after` days back.

    `to_bytes(entity)` is all that is held of an entity since going live, `from_bytes(entity, content)` puts it
    back, so that a service can store it after each event and go on after a restart with the same scores.
    `forget(entity)` drops it and the entity's history. At most `most` entities are at hand; the quietest is let go
    and then `missing`: `update` refuses it until `from_bytes` has brought it back, rather than count from zero.
    """

    def __init__(
        self,
        judge: AddingJudge[HabitSource],
        since: int,
        p_value: float = DEFAULT_P_VALUE,
        reasons: Literal["flagged", "all", "none"] = "flagged",
        *,
        most: int = MOST_ENTITIES,
    ) -> None:
        """`since`: the local day (days since 1970-01-01) from which on visits are counted."""
        self.history = judge.history
        if self.history.counting != "past":
            raise ConfigError("live scores count visits up to the event; learn the judge with counting='past'")
        self.looks, self.about, self._absent = judge.looks, judge.about, judge.beside.get(ABSENCES)
        self.others_about = {name: part for name, part in self.about.items() if name not in self.history.about}
        self.number_columns = number_columns(self.history.schema, self.about)
        self.since, self.p_value, self.reasons, self.most = since, p_value, reasons, most
        self.others = tuple(source.live() for source in judge.others)
        self._most_events = max([1, *(one.most_events for one in self.others)])
        self._visits = VisitReader(self.history.schema, self.history.frame)
        self.features_in = self._visits.features_in
        self._gone: set[Any] = set()
        self._entries: OrderedDict[Any, _Entry] = OrderedDict()
        self._context: dict[Any, pa.Table] = {}

    # ------------------------------------------------------------------------------------------ public
    def warm(self, events: Any) -> None:
        """Remember what came before going live, as context of the first windows; nothing is scored or counted."""
        if not self.others:
            return
        self._context.update(latest_events(as_table(events, "context"), self.history.schema, self._most_events))

    def update(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Score one event and remember it. Events of one entity must come in the order of their times.

        Where it fails, nothing was counted: the same event can be sent again.
        """
        return self._update([event], judge_alone)[0]

    def update_many(self, events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Score several in their order, with the scores of `update` one by one, but at once: events of different
        entities and later ones of the same side by side. Where it fails, none of them was counted."""
        return self._update(events, judge_together if len(events) >= LEAST_TOGETHER else judge_alone)

    def _update(
        self, events: Sequence[Mapping[str, Any]], judge: Callable[[HabitLive, list[LiveEvent]], list[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        entries: dict[Any, tuple[_Entry, _Entry]] = {}
        try:
            with ExitStack() as stack:
                for one in self.others:
                    stack.enter_context(one.alone())
                pairs = [(self._begin(event, entries), event) for event in events]
                live_events = [self._prepare(entry, event) for entry, event in pairs]
                self._ask(live_events)
                rows = judge(self, live_events)
        except BaseException:
            for entry, _ in entries.values():
                entry.windows = None  # begun anew from the recent events, which hold none of these
            raise
        for entry, trial in entries.values():
            entry.history, entry.state, entry.windows = trial.history, trial.state, trial.windows
            entry.latest = trial.latest
        return rows

    def _begin(self, event: Mapping[str, Any], entries: dict[Any, tuple[_Entry, _Entry]]) -> _Entry:
        """What is at hand of the event's entity, to be changed; it is taken over once nothing has failed."""
        schema = self.history.schema
        entity = event.get(schema.entity)
        if entity is None or event.get(schema.time) is None:
            raise DataError(f"an event needs '{schema.entity}' and '{schema.time}'")
        entry = self._at_hand(entity)
        if entity not in entries:
            entries[entity] = entry, replace(entry, state=entry.state.copy())
        return entries[entity][1]

    def _prepare(self, entry: _Entry, event: Mapping[str, Any]) -> LiveEvent:
        """The event read and counted, its history as it is then. Events of an entity come here in their order."""
        schema, last = self.history.schema, entry.state.last
        if last is not None and event[schema.time] < last[schema.time]:
            raise DataError(f"an event arrived before its {schema.entity_word}'s previous one; send them in order")
        row = {c: event[c] for c in self._columns if c in event}
        visits = self._read(row)
        earlier, entry.latest = self._earlier(entry, visits), visits
        entry.state.follows = self._mark
        change = self._change(entry, visits)
        self._move_on(entry, visits)
        history = entry.history
        unseen = history.find_unseen(RowColumns(row), visits)  # of it as it came: a place that is found has a key
        place, key = locate_alone(history.habits, visits)
        if key == 0:
            visits = self._find_place(entry, visits)
            place, key = locate_alone(history.habits, visits)
        count, absences = entry.state.count(key), self._absences(entry, row, visits)
        has_moved = history.habits.last_day > self.history.habits.last_day
        since = max(self.since, history.habits.last_day + 1) if has_moved else self.since
        if self.others and entry.windows is None:
            before = self._before(entry.state, visits.entity_ids[0])
            entry.windows = [one.start(history.habits, before) for one in self.others]
        entry.state.move_on(row, self._most_events)
        windows = entry.windows or []
        return LiveEvent(
            row, last, visits, earlier, unseen, history, place, key, count, since, change, absences, windows
        )

    def _ask(self, live_events: Sequence[LiveEvent]) -> None:
        """The other sources' answers, from windows that end with each event."""
        for n, one in enumerate(self.others):
            questions = [
                (event.windows[n], [event.row] if event.before is None else [event.before, event.row], event.visits,
                 event.place)
                for event in live_events
            ]  # fmt: skip
            if len(questions) > 1 and hasattr(one, "ask_many"):
                answers = one.ask_many(questions, table=self._table)
            else:
                answers = [one.ask_row(*question, table=self._table) for question in questions]
            for event, answer in zip(live_events, answers, strict=True):
                event.answers.append(answer)

    def to_bytes(self, entity: Any) -> bytes:
        """What is held of an entity since going live."""
        return self._at_hand(entity).state.to_bytes(self._table)

    def from_bytes(self, entity: Any, content: bytes) -> None:
        """Take up an entity where `to_bytes` left it. Of another model (trained to another day, or with other kinds of
        places or another centre of the map) only the recent events are taken over, as context of the next ones: counts,
        places and history begin anew."""
        state = HabitState.from_bytes(content).of(self._mark)
        own = unpack_habits(state.own, entity) if state.own is not None else None
        self._entries.pop(entity, None)
        self._gone.discard(entity)
        entry = self._at_hand(entity)
        entry.state = state
        if own is not None:
            entry.history = replace(self.history, habits=replace(own, days_off=self.history.habits.days_off))

    def missing(self, entity: Any) -> bool:
        """Whether an entity was let go and has to come back with `from_bytes` before its next event."""
        return entity in self._gone

    def forget(self, entity: Any) -> None:
        """Drop everything held about one entity, its history included."""
        self._entries.pop(entity, None)
        self._gone.discard(entity)
        self._context.pop(entity, None)
        self._visits.forget()
        self.history = self.history.forget([entity])

    def drop(self, entity: Any) -> None:
        """Let go of what is at hand of an entity; bring it back with `from_bytes` before its next event."""
        self._entries.pop(entity, None)

    def __len__(self) -> int:
        """Entities at hand."""
        return len(self._entries)

    # ------------------------------------------------------------------------------------------- state
    @cached_property
    def _columns(self) -> tuple[str, ...]:
        return event_columns(self.history.schema)

    @cached_property
    def _mark(self) -> str:
        return model_mark(self.history.habits.last_day, self.history.frame)

    def _at_hand(self, entity: Any) -> _Entry:
        if entity in self._gone:
            raise DataError(f"this {self.history.schema.entity_word} was let go; bring it back with from_bytes first")
        if entity not in self._entries:
            own = replace(self.history, habits=self.history.habits.only([entity]))
            self._entries[entity] = _Entry(own, HabitState())
            if len(self._entries) > self.most:
                self._gone.add(self._entries.popitem(last=False)[0])
        self._entries.move_to_end(entity)
        return self._entries[entity]

    def _table(self, rows: list[dict[str, Any]]) -> pa.Table:
        times = {self.history.schema.time, self.history.schema.end}
        names = list(dict.fromkeys(name for row in rows for name in row))
        return pa.table({name: _column([row.get(name) for row in rows], name in times) for name in names})

    def _read(self, row: dict[str, Any]) -> Visits:
        """The event as a visit; what only a table knows how to convert goes through one."""
        visits = self._visits.read(row)
        return read_visits(self._table([row]), self.history.schema, self.history.frame) if visits is None else visits

    def _move_on(self, entry: _Entry, visits: Visits) -> None:
        """The history up to where it ends for the event, whose visit is held until it enters the history itself."""
        history, state, entity = entry.history, entry.state, visits.entity_ids[0]
        training_end = self.history.habits.last_day
        day = max([int(visits.day[0]), *log_days(state.log)[-1:].tolist()])
        if day <= training_end:
            return
        if not history.absorb_after:
            state.log = with_visit(state.log, visits)[-LOOKED_AT:]
            return
        end, habits = history_end(training_end, day, history.absorb_after), history.habits
        if max(self.since, habits.last_day + 1) <= end:
            habits = absorb(habits, state, entity, end)
        if len(state.log) >= MOST_VISITS:
            habits = make_room(habits, state, entity)
        if habits is not history.habits:
            entry.history, entry.windows = replace(history, habits=habits), None
        state.log = with_visit(state.log, visits)

    def _earlier(self, entry: _Entry, visits: Visits) -> Visits | None:
        """The visit before the event, where it was seen that it was left. The log holds it, whose last nobody takes."""
        log, earlier = entry.state.log, entry.latest
        if earlier is None and len(log):
            days_off = self.history.frame.days_off
            earlier = replace(as_visits(log[-1:], visits.entity_ids[0]), days_off=days_off)
        if earlier is None or not was_left_alone(earlier, visits, self.history.habits.last_day):
            return None
        return earlier

    def _change(self, entry: _Entry, visits: Visits) -> str | None:
        """With the first event of a local day: how the days up to then go on differently for good, where they do."""
        log = entry.state.log
        if not len(log) or not entry.history.absorb_after or log_days(log)[-1] >= visits.day[0]:
            return None
        return entry.history.describe_change(as_visits(log, visits.entity_ids[0]), self.history.habits.last_day)

    def _absences(self, entry: _Entry, row: dict[str, Any], visits: Visits) -> list[dict[str, Any]]:
        """Nearly certain visits that did not come and whose time has passed with the event."""
        history, log = entry.history, entry.state.log[-LOOKED_AT:]
        if (
            self._absent is None
            or not len(log)
            or log["time"][-1] != visits.time[0]
            or not history.may_miss(*log_ends(log))
        ):
            return []
        return history.tell_missed(
            as_visits(log, visits.entity_ids[0]), lambda: self._table([row]), partial(minus_log10_p, self._absent)
        )

    def _find_place(self, entry: _Entry, visits: Visits) -> Visits:
        """With the key of the unnamed place met since going live that the visit is at, if there is one.

        As in a batch: an own place nearby comes first, then the nearest place met since, else it is a new one.
        """
        new = int(place_keys(visits.entity_key, spot_names(visits.x, visits.y))[0])
        key = entry.state.nearest(new, float(visits.x[0]), float(visits.y[0]), SAME_PLACE_KM)
        return replace(visits, key=np.array([key], np.uint64))

    def _before(self, state: HabitState, entity: Any) -> pa.Table | None:
        """Recent events, those before going live included: what the network's window is begun with."""
        parts = [self._context[entity]] if entity in self._context else []
        if state.recent:
            parts.append(self._table(state.recent))
        return pa.concat_tables(parts, promote_options="permissive") if parts else None


def event_columns(schema: EventSchema) -> tuple[str, ...]:
    """The columns of an event that are looked at."""
    optional = (schema.event_id, schema.timezone, schema.habitat, *schema.extra, *GAP_COLUMNS)
    return tuple(dict.fromkeys((*schema.columns, *(c for c in optional if c))))


def latest_events(table: pa.Table, schema: EventSchema, most: int) -> dict[Any, pa.Table]:
    """The latest events of each entity, `most` at most, in the order of their times."""
    table = table.select([c for c in event_columns(schema) if c in table.column_names])
    table = table.sort_by([(schema.entity, "ascending"), (schema.time, "ascending")])
    runs = pc.run_end_encode(table[schema.entity].combine_chunks())
    starts = [0, *runs.run_ends.to_pylist()]
    return {
        entity: table.slice(max(first, stop - most), stop - max(first, stop - most))
        for entity, first, stop in zip(runs.values.to_pylist(), starts, starts[1:], strict=False)
    }


def _column(values: list[Any], is_time: bool) -> pa.Array:
    """A short column. Moments go through integers: asking a library for their zone is slow."""
    if not is_time:
        return pa.array(values)
    if all(v is None or (isinstance(v, datetime) and v.tzinfo is not None) for v in values):
        moments = [None if v is None else microseconds(v) for v in values]
        return pa.array(moments, TIMESTAMP)
    return pa.array(values).cast(TIMESTAMP)
