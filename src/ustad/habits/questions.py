"""History terms: how each event compares with what its entity usually does, each as a raw value to be calibrated.

In go habits (fitted on an earlier period), the population and the visits of one period; out comes one array per
term, in the order of the visits, NaN where a term has nothing to say. `past` counts use nothing later than the
event; `whole` counts the period's visits to the place, later ones included.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ustad.events.observed import UNOBSERVED_MINUTES
from ustad.events.visits import Visits, are_cut, day_kinds
from ustad.habits.elsewhere import expected_elsewhere
from ustad.habits.history import Habits
from ustad.habits.in_parts import in_parts
from ustad.habits.intervals import least_over_intervals, silence
from ustad.habits.kernels import DAY_MINUTES, SLOTS, count_so_far, nearest_place, times_at_place
from ustad.habits.leaving import Left, ask_ends, rows_before
from ustad.habits.population import Population
from ustad.habits.recurrence import Recurrence

Counting = Literal["past", "whole"]
#: What each term asks. The order is the order of the columns.
TERMS = {
    "recurrence": "how often this place is visited now, against its history",
    "distance": "how far it is to the nearest own place",
    "new_kind": "the kind of place, where the place is new",
    "start": "the start, given the place",
    "duration": "the duration, given place and start",
    "end": "the end, given the place",
    "left_before": "the end of the visit before, given the place of that one",
    "elsewhere": "being here at hours when history expects another place",
    "silence": "no data at hours that usually have some, before or in the visit; shown, not scored",
}
#: Terms that are added up, by look; an event is as unusual as its most unusual look.
LOOKS = {
    "visit": ("recurrence", "distance", "new_kind", "start", "duration", "elsewhere"),
    "stay": ("duration",),
    "start": ("start",),
    "end": ("end",),
    "handover": ("start", "left_before"),
    "elsewhere": ("elsewhere",),
}
#: Terms that rest on the start of an event, on both of its ends, on its end alone; elsewhere is about the time seen.
ABOUT = {"start": "start", "duration": "length", "end": "end"}
HALF_HOUR = DAY_MINUTES / SLOTS
#: A phone that says nothing may have been carried so far unseen, km: a silent night near home may be one at home.
SILENT_REACH_KM = 1.0
#: Distances below this are alike: the scale of the logarithm, km.
NEAR_KM = 0.5


@dataclass(frozen=True)
class Comparison:
    """Raw terms of N visits and the facts behind them."""

    terms: dict[str, np.ndarray]  # float64 [N] each
    place: np.ndarray  # int64 [N] own place, -1 where not seen before
    key: np.ndarray  # uint64 [N] key of the place
    count: np.ndarray  # int64 [N] visits to it in this period, up to the event (or in all)
    before: np.ndarray  # int64 [N] visits to it in the history
    distance: np.ndarray  # float64 [N] km to the nearest own place
    left_place: np.ndarray  # int64 [N] own place that was left before, see `Left`
    left_at: np.ndarray  # float64 [N] when it was left

    def take(self, index: np.ndarray) -> Comparison:
        terms = {name: values[index] for name, values in self.terms.items()}
        return Comparison(terms, *(getattr(self, name)[index] for name in _FACTS))

    def put(self, rows: np.ndarray, comparison: Comparison) -> None:
        """Set what was found of some rows."""
        for name, values in comparison.terms.items():
            self.terms[name][rows] = values
        for name in _FACTS:
            getattr(self, name)[rows] = getattr(comparison, name)


_FACTS = ("place", "key", "count", "before", "distance", "left_place", "left_at")


def nothing_compared(rows: int) -> Comparison:
    """Nothing known of so many visits yet."""
    terms = {name: np.full(rows, np.nan) for name in TERMS}
    none, key, left = np.zeros(rows, np.int64), np.zeros(rows, np.uint64), Left.unknown(rows)
    place, distance = np.full(rows, -1, np.int64), np.full(rows, np.nan)
    return Comparison(terms, place, key, none, none.copy(), distance, left.place, left.at)


def compare(
    habits: Habits,
    population: Population,
    recurrence: Recurrence,
    visits: Visits,
    *,
    period: tuple[int, int],
    counting: Counting = "past",
    counts: np.ndarray | None = None,
    places: tuple[np.ndarray, np.ndarray] | None = None,
    left: Left | None = None,
) -> Comparison:
    """Every term of every visit. `period`: first and last local day that visits are counted in.

    `counts` are visits to each visit's place so far, itself included, where the caller keeps them (live); `places` is
    what `habits.locate` says of the visits, where the caller has asked. `left` is how the visits before were left; they
    are among the visits where it is not given.
    """
    owner = habits.owners(visits)
    place, key = habits.locate(visits) if places is None else places
    if counts is None:
        counts = _counts(visits, key, counting)
    since, last = period
    exposure = np.maximum(visits.day - since + 1, 1) if counting == "past" else np.full(len(visits), last - since + 1)
    before = habits.visits_at(place)
    _, distance = nearest_place(owner, visits.x, visits.y, habits.place_offsets, habits.place_x, habits.place_y)
    distance = np.where(place >= 0, 0.0, distance)
    hidden = habits.hidden_minutes(visits, owner)
    terms = {
        "recurrence": recurrence.surprise(before, counts, habits.days_of(owner), exposure.astype(np.float64)),
        "distance": np.log1p(distance / NEAR_KM),
        "new_kind": _new_kind(population, visits, (place < 0) & (owner >= 0)),
        **_times(habits, population, visits, place, hidden=hidden),
    }
    terms["elsewhere"] = _elsewhere(habits, visits, owner, place, hidden=hidden)
    terms["silence"] = silence(habits, visits, owner, hidden)
    terms["recurrence"][owner < 0] = np.nan
    if left is None:
        left = Left.of_rows(rows_before(visits, habits.last_day), terms["end"], place, visits)
    terms["left_before"] = left.surprise
    named_terms = {name: terms[name] for name in TERMS}
    return Comparison(named_terms, place, key, counts, before, distance, left.place, left.at)


def _counts(visits: Visits, key: np.ndarray, counting: Counting) -> np.ndarray:
    if counting == "past":
        return count_so_far(visits.entity, key)
    _, place, number = np.unique(key, return_inverse=True, return_counts=True)
    return number[place]


def _new_kind(population: Population, visits: Visits, is_new: np.ndarray) -> np.ndarray:
    """-log of the share of each visit's kind in first visits: float64 [N], NaN where no kind is known."""
    share = population.new_kind[visits.category]
    return np.where(is_new & (visits.category > 0), -np.log(share), np.nan)


def _elsewhere(
    habits: Habits, visits: Visits, owner: np.ndarray, place: np.ndarray, *, hidden: np.ndarray
) -> np.ndarray:
    """What was seen is the least of what it may have been, but for less than one half hour: float64 [N]."""
    places = (
        habits.place_offsets,
        habits.place_x,
        habits.place_y,
        habits.place_count,
        habits.place_since,
        habits.known_since,
    )
    history = (
        habits.visit_offsets,
        habits.visit_minute,
        habits.visit_duration,
        habits.visit_day,
        habits.sorted_days_off,
    )

    def ask(some: Visits, owner: np.ndarray, place: np.ndarray, hidden: np.ndarray) -> np.ndarray:
        reach = np.where(some.silent > UNOBSERVED_MINUTES, SILENT_REACH_KM, 0.0)
        own = (owner, place, some.minute, some.duration, some.kinds, hidden, some.x, some.y, reach)
        return expected_elsewhere(habits.last_day, *own, *places, *history)

    def measure(rows: slice) -> np.ndarray:
        return ask(visits.take(np.arange(len(visits))[rows]), owner[rows], place[rows], hidden[rows])

    def spread(some: Visits, at: np.ndarray) -> np.ndarray:
        return ask(some, habits.owners(some), at, np.zeros(len(at)))[:, None]

    brief, values = visits.duration < HALF_HOUR, in_parts(measure, len(visits))[:, None]
    return least_over_intervals(values, visits, place, np.zeros(len(visits)), measure=spread, among=brief)[:, 0]


def _times(
    habits: Habits, population: Population, visits: Visits, place: np.ndarray, *, hidden: np.ndarray
) -> dict[str, np.ndarray]:
    """Start, duration and end; where one was not observed, each at the most usual time that it may have had. What a
    table cuts at midnight may have been longer."""

    def measure(some: Visits, at: np.ndarray) -> np.ndarray:
        return _times_as_given(habits, population, some, at)

    late = np.where(are_cut(visits.minute, visits.duration), np.inf, visits.late)
    values = least_over_intervals(measure(visits, place), replace(visits, late=late), place, hidden, measure=measure)
    values[~np.isfinite(visits.duration), 1] = np.nan
    ends = ask_ends(habits, population, visits, place, hidden=hidden)
    return {"start": values[:, 0], "duration": values[:, 1], "end": ends}


def _times_as_given(habits: Habits, population: Population, visits: Visits, place: np.ndarray) -> np.ndarray:
    """-log of start density and of duration density: float64 [N, 2]."""
    before = habits.visits_at(place)
    starts, density = population.starts(visits, before), population.durations(visits, before)
    length = np.log1p(np.maximum(visits.duration, 0.0))
    weekend = day_kinds(visits.day, visits.days_off) >= 5
    history = (
        habits.visit_offsets,
        habits.visit_minute,
        habits.visit_log_duration,
        habits.visit_weekend,
        habits.visit_start_weight,
        habits.visit_length_weight,
    )

    def times(rows: slice) -> np.ndarray:
        own = (place, visits.minute, length, weekend, starts, density)
        return times_at_place(*(values[rows] for values in own), *history)  # type: ignore[call-arg]  # six and six

    return in_parts(times, len(visits))
