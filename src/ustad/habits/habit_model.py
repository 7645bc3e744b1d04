"""Each entity's own history and what it says of later events, for a source of evidence to answer with.

In go training events and the validation week; out comes a `HabitModel`. It keeps the histories of entities, hands them
out as a `HistoryInquiry`, and compares the events of an inquiry with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.dataset import event_days
from ustad.events.visits import Frame, Visits, read_visits
from ustad.habits.absences import Expected, judge_visits
from ustad.habits.history import Habits
from ustad.habits.kernels import count_so_far
from ustad.habits.lasting import Changes
from ustad.habits.leaving import Left, rows_before
from ustad.habits.population import Population
from ustad.habits.questions import Comparison, Counting, compare, nothing_compared
from ustad.habits.recurrence import Recurrence
from ustad.habits.stages import HistoryInquiry, MovingHistory
from ustad.habits.usual import find_home, fit_widths
from ustad.habits.widths import Widths
from ustad.schema import EventSchema
from ustad.tables import DataError


def part_of(entity_key: np.ndarray, parts: int) -> np.ndarray:
    """Which of so many parts each entity belongs to, by its hash: int64 [E]."""
    return (entity_key % np.uint64(parts)).astype(np.int64)


@dataclass(frozen=True)
class HabitFacts:
    """The facts behind answers about N events, in the order of their table, and E entities."""

    comparison: Comparison
    unseen: dict[str, np.ndarray]  # what was not observed, see `kinds.unseen_parts`
    entity_ids: np.ndarray
    entity: np.ndarray  # int64 [N] index into entity_ids
    history: MovingHistory | Sequence[Habits] = ()  # the histories that events were compared with …
    end: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # … by their last day: int64 [N]
    changes: Changes | None = None  # lasting changes of the entities, and a sentence for each that is told
    change_words: list[str | None] = field(default_factory=list)
    expected: Expected | None = None  # nearly certain visits and whether they came, by row of the table (-1: context)


@dataclass(frozen=True)
class HabitModel:
    """`habits` are those of training and validation together, which later weeks enter once they lie `absorb_after`
    days back (0: never; with `counting: whole` neither)."""

    schema: EventSchema
    frame: Frame
    population: Population
    recurrence: Recurrence
    habits: Habits
    counting: Counting = "past"
    absorb_after: int = 28
    widths: Widths = field(default_factory=lambda: Widths.plain(1))  # of the expectations that are shown

    # ---------------------------------------------------------------------------------------- fitting
    @classmethod
    def learn_habits(
        cls,
        train: pa.Table,
        validation: pa.Table,
        schema: EventSchema,
        calibrates: np.ndarray,
        *,
        counting: Counting = "past",
        absorb_after: int = 28,
        days_off: tuple[int, ...] = (),
    ) -> tuple[Self, HistoryInquiry, Comparison]:
        """Learn habits; and the validation week as an inquiry, compared with the training weeks alone.

        `calibrates`: bool by row of `validation`, whose entities calibrate. What people do on the whole comes from the
        calibrating weeks too; nobody's own is part of what it is compared with. `days_off` are local dates that are
        learnt, and compared, as weekend days."""
        if calibrates.sum() < 2:
            raise DataError("habits: fewer than two events of the validation week are there to calibrate on")
        frame = Frame.fit(train, schema, days_off)
        before, week = (read_visits(t, schema, frame) for t in (train, validation))
        both = read_visits(pa.concat_tables([train, validation], promote_options="permissive"), schema, frame)
        habits, recurrence = Habits.fit(before), Recurrence.fit_halves(before)
        period, kinds_known = (int(week.day.min()), int(week.day.max())), len(frame.categories) + 1
        lesson_visits = both.take(np.r_[np.ones(train.num_rows, bool), calibrates][both.row])
        comparisons = nothing_compared(len(week))  # of each group of people by what the others did in the week
        for rows, population in Population.fit_others(lesson_visits, week, period[0], kinds_known):
            some = compare(habits, population, recurrence, week.take(rows), period=period, counting=counting)
            comparisons.put(rows, some)
        history = MovingHistory.of(habits, week, period[0], 0)
        inquiry = HistoryInquiry(validation, 0, train, week, period, history, period)
        whole = Habits.fit(both)
        model = cls(
            schema,
            frame,
            Population.fit(lesson_visits, kinds_known),
            recurrence,
            whole,
            counting,
            absorb_after,
            fit_widths(whole, kinds_known),
        )
        return model, inquiry, comparisons.take(inquiry.order)

    # -------------------------------------------------------------------------------------- comparing
    def open_inquiry(
        self,
        events: pa.Table,
        context: pa.Table | None = None,
        count_days: tuple[int, int] | None = None,
        test_days: tuple[int, int] | None = None,
    ) -> HistoryInquiry:
        """The events with what is known of their entities. Rows of `context` after the history ends are counted.

        `count_days` are by default those of events and counted context, `test_days` the events' own (`count_days`,
        where no context is counted). Give both when entities are scored in parts, so that no part differs from the
        whole.
        """
        table, first, earlier, days = self._join_context(events, context)
        visits = read_visits(table, self.schema, self.frame)
        own = visits.day[visits.row >= first]
        if test_days is None:
            test_days = count_days if count_days is not None and first == 0 else (int(own.min()), int(own.max()))
        count_days = count_days or (min([test_days[0], *days]), max([test_days[1], *days]))
        absorb = self.absorb_after if self.counting == "past" else 0
        history = MovingHistory.of(self.habits, visits, count_days[0], absorb)
        return HistoryInquiry(table, first, earlier, visits, test_days, history, count_days)

    def compare_inquiry(self, inquiry: HistoryInquiry) -> tuple[Comparison, Expected | None]:
        """The events compared with their own histories; nearly certain visits whose time has passed with them, by row
        of the events."""
        visits, population, recurrence = inquiry.visits, self.population, self.recurrence
        if inquiry.history.moves:
            comparison, expected = self._in_stages(inquiry)
        else:
            habits, counting = inquiry.history.trained_habits, self.counting
            comparison = compare(habits, population, recurrence, visits, period=inquiry.count_days, counting=counting)
            expected = self._expect(habits, visits, comparison.key, inquiry.is_event)
        if expected is not None:
            expected = expected.of_rows(np.maximum(visits.row - inquiry.first, -1))
        return comparison.take(inquiry.order), expected

    def _expect(self, habits: Habits, visits: Visits, key: np.ndarray, closes: np.ndarray) -> Expected | None:
        """Nearly certain visits, see `judge_visits`; None where events have no length."""
        return judge_visits(habits, visits, key, closes) if self.schema.end is not None else None

    def _in_stages(self, inquiry: HistoryInquiry) -> tuple[Comparison, Expected | None]:
        """Every scored visit compared with its own history, and the nearly certain visits whose time has passed with
        it."""
        history, visits, comparisons = inquiry.history, inquiry.visits, nothing_compared(len(inquiry.visits))
        parts, before = [], rows_before(visits, history.trained_habits.last_day)
        for habits in history:
            rows = np.flatnonzero(inquiry.is_event & (history.end == habits.last_day))
            if not len(rows):
                continue
            counted_rows = history.counted_rows(habits)
            key = habits.locate(visits.take(counted_rows))[1]
            at = np.searchsorted(counted_rows, rows)
            counts = count_so_far(visits.entity[counted_rows], key)[at]
            own_visits = replace(visits.take(rows), key=key[at])
            days = (history.since(habits, inquiry.count_days[0]), inquiry.count_days[1])
            left = Left.ask(habits, self.population, visits, before[rows])
            comparison = compare(
                habits, self.population, self.recurrence, own_visits, period=days, counting="past", counts=counts,
                left=left,
            )  # fmt: skip
            comparisons.put(rows, comparison)
            closes = np.isin(np.arange(len(counted_rows)), at)
            expected = self._expect(habits, visits.take(counted_rows), key, closes)
            parts += [expected.of_rows(counted_rows)] if expected is not None else []
        return comparisons, Expected.join(parts) if parts else None

    def _join_context(
        self, events: pa.Table, context: pa.Table | None
    ) -> tuple[pa.Table, int, pa.Table | None, tuple[int, ...]]:
        """Counted context and events in one table, the row where the events begin, the context before that, and the
        first and last day of anybody's counted context. Context of entities without an event is left out."""
        if context is None or context.num_rows == 0:
            return events, 0, None, ()
        entity, day = self.schema.entity, event_days(context, self.schema)
        later = day > self.habits.last_day
        days = (int(day[later].min()), int(day[later].max())) if later.any() else ()
        entities = pc.unique(events[entity]).cast(context[entity].type)
        mine = pc.is_in(context[entity], entities).to_numpy(zero_copy_only=False)
        later_context = context.filter(pa.array(later & mine))
        table = pa.concat_tables([later_context, events], promote_options="permissive")
        return table, later_context.num_rows, context.filter(pa.array(~later & mine)), days

    def is_home(self, place: int) -> bool:
        """Whether nights are spent at an own place; where events have no length nobody knows."""
        return self.schema.end is not None and place >= 0 and place == find_home(self.habits, place)

    # ---------------------------------------------------------------------------------------- keeping
    @property
    def known_until(self) -> int:
        """The last local day of the trained histories."""
        return self.habits.last_day

    @property
    def entity_key(self) -> np.ndarray:
        """Hashes of the entities that have a history: uint64."""
        return self.habits.entity_key

    def forget(self, entities: Sequence[Any]) -> Self:
        """Without the history of some entities."""
        return replace(self, habits=self.habits.forget(list(entities)))

    def share(self, part: int, parts: int) -> Self:
        """With the histories of the entities of one of so many parts alone, see `part_of`."""
        return replace(self, habits=self.habits.with_entities(part_of(self.habits.entity_key, parts) == part))

    def with_histories(self, table: pa.Table) -> Self:
        """The same with the histories of these entities alone, as `habits.parquet` has them."""
        return replace(self, habits=Habits.from_table(table))
