"""What is known around events: which history each is compared with, and what came before.

A history moves on week by week, always some weeks behind the event. In go trained habits and the visits that follow
them; out come, one after the other, the histories that they are compared with. An event's history ends `absorb_after`
days before it or up to a week earlier, in whole weeks since the end of the trained one, so it depends on the event's
own day alone: what happened later, and what happened in the weeks just before, is not in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ustad.events.visits import Visits
from ustad.evidence_source import VisitInquiry
from ustad.habits.history import Habits
from ustad.habits.moving import DAYS_A_WEEK, moved_on, with_end


def history_end(trained_end: int, day: int, absorb_after: int) -> int:
    """Last local day of the history that events on `day` are compared with; `trained_end` is that of the first one."""
    weeks = (day - 1 - absorb_after - trained_end) // DAYS_A_WEEK if absorb_after else 0
    return trained_end + DAYS_A_WEEK * max(0, weeks)


@dataclass(frozen=True)
class MovingHistory:
    """Iterate over it for the histories that N visits are compared with, the trained one first, as often as needed;
    those of the visits that `end` with a history's last day are compared with that one."""

    trained_habits: Habits
    visits: Visits
    day: np.ndarray  # int64 [N] local day, never falling within an entity
    end: np.ndarray  # int64 [N] last local day of the history that each visit is compared with

    @classmethod
    def of(cls, trained_habits: Habits, visits: Visits, since: int, absorb_after: int) -> MovingHistory:
        """`since` is the first local day that visits were observed on: before it there is nothing to take in."""
        day, last = rising(visits.day, visits.entity), trained_habits.last_day
        if not absorb_after:
            return cls(trained_habits, visits, day, np.full(len(day), last))
        end = last + DAYS_A_WEEK * np.maximum(0, (day - 1 - absorb_after - last) // DAYS_A_WEEK)
        return cls(trained_habits, visits, day, np.where(end < since, last, end))

    @property
    def moves(self) -> bool:
        return bool((self.end != self.trained_habits.last_day).any())

    def __iter__(self) -> Iterator[Habits]:
        habits = self.trained_habits
        for end in np.unique(self.end).tolist() if self.moves else [habits.last_day]:
            while habits.last_day < end:
                habits = self._next(habits)
            yield habits

    def _next(self, habits: Habits) -> Habits:
        """A week later."""
        stop = habits.last_day + DAYS_A_WEEK
        week = np.flatnonzero((self.day > habits.last_day) & (self.day <= stop))
        return moved_on(habits, self.visits.take(week), stop) if len(week) else with_end(habits, stop)

    def since(self, habits: Habits, first: int) -> int:
        """The local day from which on visits are counted beside a history, where observation began on day `first`."""
        return first if habits.last_day == self.trained_habits.last_day else max(first, habits.last_day + 1)

    def counted_rows(self, habits: Habits) -> np.ndarray:
        """Visits that are counted beside a history: int64 [n]."""
        if habits.last_day == self.trained_habits.last_day:
            return np.flatnonzero(self.end == habits.last_day)
        last = int(self.day[self.end == habits.last_day].max())
        return np.flatnonzero((self.day > habits.last_day) & (self.day <= last))


@dataclass(frozen=True)
class HistoryInquiry(VisitInquiry):
    """With what is known of the E entities of the events; a history holds the `earlier` context."""

    history: MovingHistory  # of the visits
    count_days: tuple[int, int]  # the first and last local day that visits are counted in

    def stages(self) -> Iterator[tuple[Habits, np.ndarray, pa.Table | None]]:
        """A history, the rows (of N, ascending) of the events that are compared with it, and what is known before
        them."""
        for habits in self.history:
            mine = self.is_event & (self.history.end == habits.last_day)
            if not mine.any():
                continue
            rows = np.sort(self.visits.row[mine])
            others = np.arange(self.first)
            if self.history.moves:  # what comes later is not known yet
                past_rows = self.visits.row[self.history.day <= self.history.day[mine].max()]
                others = np.setdiff1d(past_rows, rows)
            parts = [self.table.take(pa.array(others))] if len(others) else []
            parts = parts if self.earlier is None else [self.earlier, *parts]
            before = pa.concat_tables(parts, promote_options="permissive") if parts else None
            yield habits, rows - self.first, before


def rising(day: np.ndarray, entity: np.ndarray) -> np.ndarray:
    """Local days that never fall within an entity, who may cross zones: int64 [N], sorted by entity and time."""
    lift = entity.astype(np.int64) << 32
    return np.maximum.accumulate(day + lift) - lift if len(day) else day
