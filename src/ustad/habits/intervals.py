"""Times that nobody saw: every start and length that an event may have had, so that it is scored by the most usual.

In go visits whose ends are intervals; out come visits with times spread over those intervals. The least surprising of
them stands for the event: what was not observed can only lower a term, never raise it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ustad.events.observed import DAY_MINUTES
from ustad.events.visits import Visits
from ustad.habits.history import Habits, once_per_history
from ustad.habits.kernels import SLOTS, SLOTS_OF_EVIDENCE, presence

#: Steps from one start to the next, minutes, and from one length to the next, log(1 + minutes): well below the width
#: of the terms' kernels. A span of lengths has so many steps at most.
START_STEP, LENGTH_STEP = 20.0, 0.1
MOST_STEPS = 36
#: An earlier start makes the event longer: below this length, minutes, the step of the length decides.
SHORT = START_STEP / LENGTH_STEP
#: Visits that are spread at once: what that takes in memory is bounded.
ROWS_AT_ONCE = 512


def silence(habits: Habits, visits: Visits, owner: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    """How unlikely it is that there are no data before and in each visit: float64 [N], 0 where all of it was seen.

    As `presence`, of the half hours before the visit that say nothing: on how many days the entity's data were silent
    then. Hidden minutes of the visit count as silence of the first day. NaN for strangers and where nothing was seen
    before.
    """
    silent = np.flatnonzero((owner >= 0) & (visits.early > 0))
    result = np.where((owner >= 0) & np.isfinite(visits.early), 0.0, np.nan)
    if len(silent):
        since, early = habits.first_day + habits.entity_unseen, visits.early[silent]
        is_finite = np.isfinite(early)
        start, day = _back(visits.minute[silent], visits.weekday[silent], np.where(is_finite, early, 0.0))
        result[silent] = presence(
            owner[silent], start, np.where(is_finite, early, np.nan), day, np.zeros(len(silent)), since,
            habits.last_day, habits.visit_offsets[habits.place_offsets], *_earlier_silences(habits),
        )  # fmt: skip
    days = np.maximum(habits.days_of(owner), 1)
    return result + hidden * SLOTS / DAY_MINUTES * np.log(2.0 * (days + 1)) / SLOTS_OF_EVIDENCE


@once_per_history
def _earlier_silences(habits: Habits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of the silences before the visits of a history: minute of the day, length (NaN for none), weekday. [V] each."""
    gap = np.where((habits.visit_early > 0) & np.isfinite(habits.visit_early), habits.visit_early, np.nan)
    minute, weekday = _back(habits.visit_minute, habits.visit_weekday, np.nan_to_num(gap))
    return minute, gap.astype(np.float64), weekday


def _back(minute: np.ndarray, weekday: np.ndarray, by: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minute of the day and weekday so many minutes before."""
    start = minute - by
    days = np.floor(start / DAY_MINUTES).astype(np.int64)
    return start - days * DAY_MINUTES, (weekday + days) % 7


def least_over_intervals(
    terms: np.ndarray,
    visits: Visits,
    place: np.ndarray,
    hidden: np.ndarray,
    *,
    measure: Callable[[Visits, np.ndarray], np.ndarray],
    among: np.ndarray | None = None,
    spread: Callable[[Visits, np.ndarray], tuple[np.ndarray, Visits]] | None = None,
) -> np.ndarray:
    """Terms [N, K] of visits as their times are, with those of unobserved times at their most usual: float64 [N, K].

    `measure(visits, place)` gives the terms of any visits. A visit with hidden minutes may have been several: it
    lasted anything up to its length. `among`: bool [N], the only visits to look at; `spread`: which times are tried,
    `possible_times` by default.
    """
    unseen = (visits.early > 0) | (visits.late > 0) | (hidden > 0)
    wide = np.flatnonzero(unseen if among is None else unseen & among)
    for first in range(0, len(wide), ROWS_AT_ONCE):
        rows = wide[first : first + ROWS_AT_ONCE]
        at, copies = (spread or possible_times)(visits.take(rows), hidden[rows] > 0)
        values = measure(copies, place[rows][at])
        starts = np.flatnonzero(np.r_[True, at[1:] != at[:-1]])
        terms[rows] = np.fmin(terms[rows], np.fmin.reduceat(values, starts, axis=0))
    return terms


def possible_times(visits: Visits, short: np.ndarray) -> tuple[np.ndarray, Visits]:
    """Visits at every start and length that they may have had, and which of the N each is of (int64, ascending).

    `short`: bool [N], visits that may have been shorter than they look.
    """
    early, late = (np.minimum(values, DAY_MINUTES) for values in (visits.early, visits.late))
    at, earlier = _earlier_starts(np.maximum(np.nan_to_num(visits.duration), 5.0), early)
    length = visits.duration[at] + earlier
    low = np.log1p(np.maximum(np.where(short[at], 0.0, length), 0.0))
    high = np.log1p(np.maximum(length + late[at], 0.0))
    low, high = np.nan_to_num(low), np.nan_to_num(high)
    each, log_length = _spread(low, high, np.minimum(np.ceil((high - low) / LENGTH_STEP), MOST_STEPS))
    minutes = np.where(np.isnan(length)[each], np.nan, np.expm1(log_length))
    at, earlier = at[each], earlier[each]
    copies = visits.take(at)
    minute, weekday = _back(copies.minute, copies.weekday, earlier)
    return at, replace(
        copies,
        time=copies.time - (earlier * 60e6).astype(np.int64),
        day=copies.day + np.floor((copies.minute - earlier) / DAY_MINUTES).astype(np.int64),
        minute=minute,
        weekday=weekday,
        duration=minutes,
    )


def possible_ends(visits: Visits, short: np.ndarray) -> tuple[np.ndarray, Visits]:
    """As `possible_times`, of every end, whatever the start."""
    length = np.maximum(np.nan_to_num(visits.duration), 0.0)
    low, high = np.where(short, 0.0, length), length + np.minimum(visits.late, DAY_MINUTES)
    at, minutes = _spread(low, high, np.ceil((high - low) / START_STEP))
    copies = visits.take(at)
    return at, replace(copies, duration=np.where(np.isnan(copies.duration), np.nan, minutes))


def _earlier_starts(length: np.ndarray, early: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minutes that events of a length may have begun earlier, 0 … early, and the row that each belongs to."""
    bend = np.maximum(length, SHORT)  # steps grow with the length up to here
    bent = np.log(bend / length) / LENGTH_STEP
    whole = length + early
    high = np.where(
        whole < bend, np.log(whole / length) / LENGTH_STEP, bent + np.maximum(whole - bend, 0.0) / START_STEP
    )
    row, number = _spread(np.zeros(len(length)), high, np.ceil(high))
    earlier_length = length[row] * np.exp(np.minimum(number, bent[row]) * LENGTH_STEP)
    return row, earlier_length + np.maximum(number - bent[row], 0.0) * START_STEP - length[row]


def _spread(low: np.ndarray, high: np.ndarray, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values from low to high, both included, in so many steps, and the row that each belongs to."""
    steps = steps.astype(np.int64)
    row = np.repeat(np.arange(len(low)), steps + 1)
    number = np.arange(len(row)) - np.repeat(np.cumsum(steps + 1) - steps - 1, steps + 1)
    share = number / np.maximum(steps, 1)[row]
    return row, low[row] + share * (high - low)[row]
