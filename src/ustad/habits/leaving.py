"""When places are left: how unusual the end of a visit is, and how unusual it was to leave the place before.

In go habits and visits; out come -log densities, NaN where nothing is known. What nobody saw is not asked about: a
visit after a silence has no visit before it, and neither has the first one after the history.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ustad.events.observed import DAY_MINUTES, UNOBSERVED_MINUTES
from ustad.events.visits import Visits, ends_of
from ustad.habits.history import SAME_PLACE_KM, Habits, once_per_history
from ustad.habits.in_parts import in_parts
from ustad.habits.intervals import least_over_intervals, possible_ends
from ustad.habits.kernels import ends_at_place
from ustad.habits.population import Population

#: Nobody is on the way for longer than this, minutes: after that, where they went first is not known.
LONGEST_WAY = 360.0


@dataclass(frozen=True)
class Left:
    """How the visits before N visits were left."""

    surprise: np.ndarray  # float64 [N] -log density of leaving the place then, NaN where it is not known
    place: np.ndarray  # int64 [N] own place that was left, -1 where it is not known or new
    at: np.ndarray  # float64 [N] when, minutes of the local clock since 1970-01-01, NaN where not known

    @classmethod
    def unknown(cls, rows: int) -> Left:
        return cls(np.full(rows, np.nan), np.full(rows, -1, np.int64), np.full(rows, np.nan))

    @classmethod
    def of_rows(cls, before: np.ndarray, ends: np.ndarray, place: np.ndarray, visits: Visits) -> Left:
        """By rows of visits (int64 [N], -1: none), given what `ask_ends` says of those and their own places."""
        is_left, at = before >= 0, visits.day * DAY_MINUTES + visits.minute + visits.duration
        nothing = cls.unknown(1)
        pairs = zip((ends, place, at), (nothing.surprise, nothing.place, nothing.at), strict=True)
        return cls(*(np.where(is_left, values[before], none) for values, none in pairs))

    @classmethod
    def ask(cls, habits: Habits, population: Population, visits: Visits, before: np.ndarray) -> Left:
        """The same of visits that nothing is known of yet."""
        if not (before >= 0).any():
            return cls.unknown(len(before))
        rows, at = np.unique(before[before >= 0], return_inverse=True)
        some = visits.take(rows)
        place = habits.locate(some)[0]
        back = np.full(len(before), -1)
        back[before >= 0] = at
        return cls.of_rows(back, ask_ends(habits, population, some, place), place, some)


def rows_before(visits: Visits, known_until: int) -> np.ndarray:
    """Row of the visit before each visit (by entity and time), -1 where none is known: int64 [N].

    `known_until` is the last local day of the trained history: what that holds is not asked about."""
    rows = np.arange(len(visits)) - 1
    is_left = np.zeros(len(visits), bool)
    if len(visits) > 1:
        earlier, later = visits.take(rows[1:]), visits.take(rows[1:] + 1)
        is_left[1:] = (earlier.entity == later.entity) & was_left(earlier, later, known_until)
    return np.where(is_left, rows, -1)


def was_left(earlier: Visits, later: Visits, known_until: int) -> np.ndarray:
    """Whether it was seen where N visits were, that they ended and that the N later ones came next, at another place:
    bool [N]. Keys are as they were read."""
    way = (later.time - earlier.time) / 60e6 - earlier.duration
    is_seen = (earlier.late <= UNOBSERVED_MINUTES) & (later.early <= UNOBSERVED_MINUTES)
    is_seen &= (earlier.key != 0) | np.isfinite(earlier.x)
    is_seen &= ~are_at_one_place(earlier, later)
    return is_seen & np.isfinite(earlier.duration) & (way <= LONGEST_WAY) & (earlier.day > known_until)


def are_at_one_place(earlier: Visits, later: Visits) -> np.ndarray:
    """Whether N visits went on where they were: a stay in two pieces is no departure, bool [N]."""
    is_near = np.hypot(later.x - earlier.x, later.y - earlier.y) <= SAME_PLACE_KM
    return np.where(earlier.key != 0, earlier.key == later.key, (later.key == 0) & is_near)


def ask_ends(
    habits: Habits, population: Population, visits: Visits, place: np.ndarray, *, hidden: np.ndarray | None = None
) -> np.ndarray:
    """-log of the density of each end at its own `place`; where it was not observed, at the most usual one that it may
    have had: float64 [N]. `hidden` is what `habits.hidden_minutes` says, where the caller has asked."""

    def measure(some: Visits, at: np.ndarray) -> np.ndarray:
        return _ends_as_given(habits, population, some, at)[:, None]

    hidden = habits.hidden_minutes(visits, habits.owners(visits)) if hidden is None else hidden
    ends = measure(visits, place)
    return least_over_intervals(ends, visits, place, hidden, measure=measure, spread=possible_ends)[:, 0]


def _ends_as_given(habits: Habits, population: Population, visits: Visits, place: np.ndarray) -> np.ndarray:
    """-log of the density of the end: float64 [N]."""
    density = population.ends(visits, habits.visits_at(place))
    history = (habits.visit_offsets, *visit_ends(habits), habits.visit_length_weight)
    end, weekend = ends_of(visits.minute, visits.duration, visits.day, visits.days_off)

    def ends(rows: slice) -> np.ndarray:
        return ends_at_place(place[rows], end[rows], weekend[rows], density[rows], *history)

    return in_parts(ends, len(visits))


@once_per_history
def visit_ends(habits: Habits) -> tuple[np.ndarray, np.ndarray]:
    """When each visit of a history ended, see `ends_of`: float64 [V], bool [V]."""
    return ends_of(habits.visit_minute, habits.visit_duration, habits.visit_day, habits.days_off)
