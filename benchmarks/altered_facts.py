"""Plain facts of stays, beside what habits answer: what a model of real or altered days may see besides.

In go a history and visits; out comes one array by fact, in the order of the visits, NaN where nothing is known.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from ustad.events.visits import Visits, ends_of
from ustad.habits.history import Habits
from ustad.habits.kernels import apart
from ustad.habits.leaving import visit_ends

FACTS = ("minute", "length", "end_minute", "visits_a_day", "from_own_start", "from_own_end")


def plain_facts(habits: Habits, visits: Visits) -> dict[str, np.ndarray]:
    """Minute of start and end, length (log of minutes), visits to the place a day of the history, and minutes to the
    nearest own start and end there: float64 [N] each."""
    place = habits.locate(visits)[0]
    end = ends_of(visits.minute, visits.duration, visits.day, visits.days_off)[0]
    values = (
        visits.minute,
        np.log1p(np.maximum(visits.duration, 0.0)),
        end,
        habits.visits_at(place) / habits.days,
        _nearest(place, visits.minute, habits.visit_offsets, habits.visit_minute),
        _nearest(place, end, habits.visit_offsets, visit_ends(habits)[0]),
    )
    return dict(zip(FACTS, values, strict=True))


@njit
def _nearest(
    place: np.ndarray, minute: np.ndarray, visit_offsets: np.ndarray, visit_minute: np.ndarray
) -> np.ndarray:  # pragma: no cover - compiled
    """Minutes from each time of day to the nearest of the visits to its place: float64 [N], NaN somewhere new."""
    result = np.full(len(place), np.nan)
    for i in range(len(place)):
        if place[i] < 0 or np.isnan(minute[i]):
            continue
        for v in range(visit_offsets[place[i]], visit_offsets[place[i] + 1]):
            away = apart(visit_minute[v], minute[i])
            if not np.isnan(away) and not away >= result[i]:
                result[i] = away
    return result
