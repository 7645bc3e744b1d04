"""What was expected and did not come: the own place that a stay kept somebody from, when, and how sure that was.

In go an entity's history and one of its visits; out comes the half hour of the visit at which history is surest that
the entity is somewhere else, and where. The visit's own evidence (`elsewhere`) says how unusual that is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ustad.events.visits import Visits, day_kinds
from ustad.habits.history import Habits
from ustad.habits.kernels import DAY_MINUTES, SLOTS
from ustad.habits.usual import remembered_days
from ustad.habits.usual_kernels import whereabouts
from ustad.ties import highest_of, lowered

#: An absence is told where the entity is there at that time on at least this share of days.
NEARLY_CERTAIN = 0.5
#: Half hours of a visit that are looked at, from its start on.
MOST_SLOTS = 2 * SLOTS


@dataclass(frozen=True)
class MissedVisit:
    """A visit that did not come."""

    place: int  # own place in the history
    weekday: int  # 0 is Monday
    minute: float  # of the day
    share: float  # of days of the kind on which the entity is there at that time
    days: float  # how many such days are known
    is_weekend: bool  # whether those are weekend days, with which a day off is compared too


def find_missed(habits: Habits, visits: Visits, at: int, place: int) -> MissedVisit | None:
    """Of the visit at the index `at`, which is at the own `place` (-1 somewhere new): the surest other place."""
    key = visits.entity_key[visits.entity[at]]
    owner = int(habits.entity_key.searchsorted(key))
    if owner == len(habits.entity_key) or habits.entity_key[owner] != key or not np.isfinite(visits.duration[at]):
        return None
    step = DAY_MINUTES / SLOTS
    slots = max(1, min(int(visits.duration[at] // step), MOST_SLOTS))
    moment = visits.minute[at] + step * (np.arange(slots) + 0.5)
    weekday = (visits.weekday[at] + moment // DAY_MINUTES).astype(np.int64) % 7
    weekend = day_kinds(visits.day[at] + (moment // DAY_MINUTES).astype(np.int64), visits.days_off) >= 5
    first, last = (int(edge) for edge in habits.place_offsets[owner : owner + 2])
    rows = slice(first, last)
    days = remembered_days(habits)[rows]
    where, share, _ = whereabouts(
        np.zeros(slots, np.int64), moment % DAY_MINUTES, weekend, np.array([0, last - first]), habits.place_x[rows],
        habits.place_y[rows], habits.visit_offsets[first : last + 1], habits.visit_day, habits.visit_minute,
        habits.visit_duration, days, habits.sorted_days_off,
    )  # fmt: skip
    sure = np.where((where >= 0) & (first + where != place), share, 0.0)
    best = highest_of(sure.tolist())
    if sure[best] < lowered(NEARLY_CERTAIN):
        return None
    day_count = float(days[where[best], int(weekend[best])])
    minute = float(moment[best] % DAY_MINUTES)
    return MissedVisit(
        first + int(where[best]), int(weekday[best]), minute, float(sure[best]), day_count, bool(weekend[best])
    )
