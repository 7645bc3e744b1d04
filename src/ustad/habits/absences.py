"""Absences: visits that an entity's history makes nearly certain and that did not come.

In go habits and later visits; out comes every nearly certain visit whose time has passed, with how surprising it is
that it did not come (0 where it came). Silence is no absence: what may have come unseen is not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ustad.events.visits import Visits, day_kinds
from ustad.habits.expected_kernels import ABOUT, HALF_HOUR, ends_certain_time, judge_expected, usual_presence
from ustad.habits.history import Habits, once_per_history
from ustad.habits.kernels import DAY_MINUTES, SLOTS
from ustad.habits.usual import find_homes

#: The least scale of the tail of what did not come: people who missed nothing do not say how far far is.
LEAST_SCALE = 0.5


@dataclass(frozen=True)
class Expected:
    """M nearly certain visits. Those that came have the surprise 0."""

    closed_by: np.ndarray  # int64 [M] the visit with which its time had passed
    instead: np.ndarray  # int64 [M] the visit that took its place, -1 where it came
    instead_time: np.ndarray  # int64 [M] microseconds UTC: when that began
    begin: np.ndarray  # int64 [M] microseconds UTC: from when it was nearly certain …
    end: np.ndarray  # … until when
    surest: np.ndarray  # int64 [M] the half hour at which it was surest, of the local clock since 1970-01-01
    is_weekend: np.ndarray  # bool [M] whether that is compared with weekend days
    surprise: np.ndarray  # float64 [M] how surprising it is that it did not come; not calibrated
    there: np.ndarray  # float64 [M] on how many days like this one the entity was there at about that time
    days: np.ndarray  # float64 [M] of how many
    x: np.ndarray  # float64 [M] km: where
    y: np.ndarray
    category: np.ndarray  # int64 [M] what kind of place, a code of the frame
    is_home: np.ndarray  # bool [M] whether nights are spent there; told of those that did not come

    def __len__(self) -> int:
        return len(self.instead)

    def take(self, rows: np.ndarray) -> Expected:
        return Expected(*(getattr(self, f.name)[rows] for f in fields(self)))

    @classmethod
    def join(cls, parts: Sequence[Expected]) -> Expected:
        return cls(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)))

    def of_rows(self, rows: np.ndarray) -> Expected:
        """The same of visits that are those `rows` of a longer list."""
        instead = np.where(self.instead >= 0, rows[self.instead], -1)
        return replace(self, closed_by=rows[self.closed_by], instead=instead)


def judge_visits(habits: Habits, visits: Visits, key: np.ndarray, closes: np.ndarray) -> Expected:
    """The nearly certain visits whose time has passed with a visit that `closes` (bool [N]) and not before; `key`
    (uint64 [N]) are the places of the visits as the history knows them."""
    owner = habits.owners(visits)
    begin = visits.day * DAY_MINUTES + visits.minute
    rows, facts = judge_expected(
        owner, key, begin, begin + np.nan_to_num(visits.duration), visits.early, visits.late,
        habits.hidden_minutes(visits, owner), closes, habits.last_day, habits.place_offsets, habits.place_key,
        habits.place_since, habits.known_since, habits.visit_offsets,
        habits.visit_day * DAY_MINUTES + habits.visit_minute, habits.visit_duration, habits.sorted_days_off,
    )  # fmt: skip
    closed_by, instead, place, start, stop, surest = rows.T
    start, stop = np.minimum(start + ABOUT, surest), np.maximum(stop - ABOUT, surest + 1)  # without "about"
    near = np.where(instead >= 0, instead, closed_by)  # whose clock is that of the absence
    begins, ends = (
        visits.time[near] + np.round((slot * HALF_HOUR - begin[near]) * 60e6).astype(np.int64) for slot in (start, stop)
    )
    surprise, there, days = facts.T
    is_home, is_absent = np.zeros(len(place), bool), surprise > 0
    if is_absent.any():
        is_home[is_absent] = find_homes(habits, owner[closed_by[is_absent]]) == place[is_absent]
    return Expected(
        closed_by,
        instead,
        visits.time[near],
        begins,
        ends,
        surest,
        day_kinds(surest // SLOTS, habits.days_off) >= 5,
        surprise,
        there,
        days,
        habits.place_x[place],
        habits.place_y[place],
        habits.place_category[place],
        is_home,
    )


def may_close(habits: Habits, known_until: float, end: float) -> bool:
    """Whether the time of a nearly certain visit of the only entity of a history can have passed with an event that
    ends at `end`, where earlier ones end by `known_until`; both minutes of the local clock since 1970-01-01."""
    return bool(ends_certain_time(_certain_hours(habits), known_until, end, habits.sorted_days_off))


@once_per_history
def _certain_hours(habits: Habits) -> np.ndarray:
    """-log of the chance not to be at each place with a nearly certain visit, see `usual_presence`: [C, 7, SLOTS]."""
    begin = habits.visit_day * DAY_MINUTES + habits.visit_minute
    return usual_presence(
        0, len(habits.place_key), habits.last_day, habits.place_since, habits.known_since, habits.visit_offsets, begin,
        habits.visit_duration, habits.sorted_days_off,
    )[3]  # fmt: skip
