"""One visit compared with its entity's history in plain numbers: what `compare` and `usual` do for many.

In go the history of at most the visit's own entity and the visit; out come the same facts (a test compares them).
Arrays of one element cost a hundred times their arithmetic, so only compiled loops are given any.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ustad.events.encoder import UNKNOWN
from ustad.events.observed import DAY_MINUTES, UNOBSERVED_MINUTES
from ustad.events.visits import LONGEST, Frame, Visits
from ustad.habits.elsewhere import expected_elsewhere
from ustad.habits.history import Habits, once_per_history
from ustad.habits.kernels import ends_at_place, nearest_place, times_at_place
from ustad.habits.leaving import LONGEST_WAY, Left, are_at_one_place, visit_ends
from ustad.habits.population import DURATION_BINS, PART_BINS, SELDOM, START_BINS, Population
from ustad.habits.questions import NEAR_KM, TERMS, Comparison, compare
from ustad.habits.recurrence import Recurrence
from ustad.habits.side_by_side import locate_alone
from ustad.habits.usual import Usual, remembered_days, usual
from ustad.habits.usual_kernels import usual_times, whereabouts
from ustad.habits.widths import Widths
from ustad.schema import EventSchema, Feature

_DAYS = np.arange(4)
_NOTHING = np.zeros(1)


def compare_alone(
    habits: Habits,
    population: Population,
    recurrence: Recurrence,
    visits: Visits,
    *,
    since: int,
    count: int,
    place_and_key: tuple[int, int],
    earlier: Visits | None,
) -> Comparison:
    """`compare` of the only visit, with its count and its own place and key, and the visit before it where it was seen
    that it was left. One that was not wholly seen may have been at many times: that is left to `compare`."""
    place, key = place_and_key
    places, counts, keys = np.array([place]), np.array([count]), np.array([key], np.uint64)
    left = _left(habits, population, earlier)
    if _has_other_times(visits):
        period = (since, int(visits.day[0]))
        return compare(
            habits, population, recurrence, visits, period=period, counting="past", counts=counts,
            places=(places, keys), left=left,
        )  # fmt: skip
    is_own = len(habits.entity_key) > 0 and habits.entity_key[0] == visits.entity_key[0]
    owner = np.array([0 if is_own else -1])
    before = int(habits.place_count[place]) if place >= 0 else 0
    if place >= 0:
        distance = 0.0
    else:
        distances = nearest_place(owner, visits.x, visits.y, habits.place_offsets, habits.place_x, habits.place_y)[1]
        distance = float(distances[0])
    days = habits.days - (int(habits.entity_unseen[0]) if is_own else 0)
    exposure = max(int(visits.day[0]) - since + 1, 1)
    terms = {
        "recurrence": recurrence.surprise_of(before, count, days, exposure) if is_own else math.nan,
        "distance": math.log1p(distance / NEAR_KM),
        "new_kind": _new_kind(population, int(visits.category[0])) if is_own and place < 0 else math.nan,
        **_times(habits, population, visits, places, seldom=int(before < SELDOM)),
        "left_before": float(left.surprise[0]),
        "elsewhere": _elsewhere(habits, visits, owner, places),
        "silence": 0.0 if is_own else math.nan,
    }
    return Comparison(
        {name: np.array([terms[name]]) for name in TERMS},
        places,
        keys,
        counts,
        np.array([before]),
        np.array([distance]),
        left.place,
        left.at,
    )


def _has_other_times(visits: Visits) -> bool:
    """Whether the only visit may have begun earlier or lasted longer, or been several."""
    duration, end = float(visits.duration[0]), float(visits.minute[0] + visits.duration[0])
    if visits.early[0] != 0 or visits.late[0] != 0 or visits.silent[0] != 0 or math.isinf(duration):
        return True
    return end == end and round(end * 60.0) % (60.0 * DAY_MINUTES) == 0  # see `are_cut`


def _new_kind(population: Population, category: int) -> float:
    return -float(np.log(population.new_kind[category])) if category > 0 else math.nan


def _times(
    habits: Habits, population: Population, visits: Visits, place: np.ndarray, *, seldom: int
) -> dict[str, float]:
    """Start, duration and end; `seldom` is 1 where the place is seldom visited."""
    day, minute, duration = int(visits.day[0]), float(visits.minute[0]), float(visits.duration[0])
    category, weekend = int(visits.category[0]), is_weekend(day, visits.days_off)
    has_length = duration == duration
    length = math.log1p(max(duration, 0.0)) if has_length else math.nan
    start_density = population.start[seldom, int(weekend), category, _bin(minute, DAY_MINUTES, START_BINS)]
    part, length_bin = _bin(minute, DAY_MINUTES, PART_BINS), _bin(length if has_length else 0.0, LONGEST, DURATION_BINS)
    duration_density = population.duration[seldom, category, part, length_bin]
    times = times_at_place(
        place, visits.minute, np.array([length]), np.array([weekend]), np.array([start_density]),
        np.array([duration_density]), habits.visit_offsets, habits.visit_minute, habits.visit_log_duration,
        habits.visit_weekend, habits.visit_start_weight, habits.visit_length_weight,
    )  # fmt: skip
    end = _end(habits, population, visits, place, seldom=seldom) if has_length and place[0] >= 0 else math.nan
    return {"start": float(times[0, 0]), "duration": float(times[0, 1]) if has_length else math.nan, "end": end}


def was_left_alone(earlier: Visits, later: Visits, known_until: int) -> bool:
    """`was_left` of one visit and the next."""
    if earlier.day[0] <= known_until or earlier.late[0] > UNOBSERVED_MINUTES or later.early[0] > UNOBSERVED_MINUTES:
        return False
    if earlier.key[0] == 0 and not math.isfinite(earlier.x[0]):
        return False
    if are_at_one_place(earlier, later)[0]:
        return False
    duration = float(earlier.duration[0])
    way = (int(later.time[0]) - int(earlier.time[0])) / 60e6 - duration
    return math.isfinite(duration) and way <= LONGEST_WAY


def _left(habits: Habits, population: Population, earlier: Visits | None) -> Left:
    """`Left.ask` of the only visit before."""
    if earlier is None:
        return Left.unknown(1)
    if earlier.early[0] != 0 or earlier.late[0] != 0 or earlier.silent[0] != 0:
        return Left.ask(habits, population, earlier, np.zeros(1, np.int64))
    place = locate_alone(habits, earlier)[0]
    seldom = int(place < 0 or habits.place_count[place] < SELDOM)
    surprise = _end(habits, population, earlier, np.array([place]), seldom=seldom) if place >= 0 else math.nan
    at = int(earlier.day[0]) * DAY_MINUTES + float(earlier.minute[0]) + float(earlier.duration[0])
    return Left(np.array([surprise]), np.array([place]), np.array([at]))


def _end(habits: Habits, population: Population, visits: Visits, place: np.ndarray, *, seldom: int) -> float:
    end = float(visits.minute[0]) + float(visits.duration[0])
    days = math.floor(end / DAY_MINUTES)
    if round(end * 60.0) % (60 * DAY_MINUTES) == 0:  # there a table is cut, and nobody leaves
        return math.nan
    minute, weekend = end - days * DAY_MINUTES, is_weekend(int(visits.day[0]) + days, visits.days_off)
    density = population.end[seldom, int(weekend), int(visits.category[0]), _bin(minute, DAY_MINUTES, START_BINS)]
    surprise = ends_at_place(
        place, np.array([minute]), np.array([weekend]), np.array([density]), habits.visit_offsets, *visit_ends(habits),
        habits.visit_length_weight,
    )  # fmt: skip
    return float(surprise[0])


def _elsewhere(habits: Habits, visits: Visits, owner: np.ndarray, place: np.ndarray) -> float:
    kinds = (visits.day[0] + 3 + _DAYS) % 7 if not visits.days_off else visits.kinds[0]
    surprise = expected_elsewhere(
        habits.last_day, owner, place, visits.minute, visits.duration, kinds[None], _NOTHING, visits.x, visits.y,
        _NOTHING, habits.place_offsets, habits.place_x, habits.place_y, habits.place_count, habits.place_since,
        habits.known_since, habits.visit_offsets, habits.visit_minute, habits.visit_duration, habits.visit_day,
        habits.sorted_days_off,
    )  # fmt: skip
    return float(surprise[0])


def usual_alone(habits: Habits, visits: Visits, place: int, widths: Widths) -> Usual:
    """`usual` of the only visit."""
    if math.isinf(visits.duration[0]):
        return usual(habits, visits, np.array([place]), widths)
    minute, duration, day = float(visits.minute[0]), float(visits.duration[0]), int(visits.day[0])
    later, moment = divmod(minute + (duration / 2 if duration == duration else 0.0), DAY_MINUTES)
    weekend, days_off = is_weekend(day, visits.days_off), visits.days_off
    weekend_then = np.array([is_weekend(day + int(later), days_off)])
    is_own = len(habits.entity_key) > 0 and habits.entity_key[0] == visits.entity_key[0]
    days = remembered_days(habits)
    where, share, apart = whereabouts(
        np.array([0 if is_own else -1]), np.array([moment]), weekend_then, habits.place_offsets, habits.place_x,
        habits.place_y, habits.visit_offsets, habits.visit_day, habits.visit_minute, habits.visit_duration, days,
        habits.sorted_days_off,
    )  # fmt: skip
    expected = int(where[0])
    of_days = float(days[expected, int(weekend_then[0])]) if expected >= 0 else 0.0
    at = place if place >= 0 else expected
    times = usual_times(
        np.array([at]), np.array([minute if place >= 0 else math.nan]), np.array([weekend]), habits.visit_offsets,
        habits.visit_minute, habits.visit_duration, habits.visit_weekend, habits.visit_start_weight,
        habits.visit_length_weight,
    )[0]  # fmt: skip
    start, start_spread, length, length_spread = times.tolist()
    if at >= 0:
        kind, count = int(habits.place_category[at]), int(habits.place_count[at])
        start_spread, length_spread = widths.widen_one((start_spread, length_spread), kind, count)
    since = int(habits.entity_since[0]) if is_own else habits.last_day + 2
    times_then = (np.array([start]), np.array([start_spread]), np.array([length]), np.array([length_spread]))
    days_known = np.array([habits.last_day + 1 - since])
    category = int(visits.category[0])
    new_kind = category not in _own_kinds(habits) if is_own else category == 0
    return Usual(where, share, weekend_then, apart, *times_then, days_known, np.array([new_kind]), np.array([of_days]))


@once_per_history
def _own_kinds(habits: Habits) -> set[int]:
    """Kinds of the own places."""
    return set(habits.place_category.tolist())


def usual_row(
    habits: Habits,
    frame: Frame,
    schema: EventSchema,
    features: tuple[Feature | None, Feature | None],
    *,
    visits: Visits,
    usual_visits: Usual,
) -> dict[str, Any]:
    """`usual_columns` of the only visit, as numbers and words; `features` say what kind of place it is and where."""
    row: dict[str, Any] = {}
    for feature in schema.features:
        if feature.source == ("@minute_of_day",):
            expected, spread = float(usual_visits.start[0]), float(usual_visits.start_spread[0])
            row |= _numbers(feature.name, expected, float(visits.minute[0]), spread, period=feature.period)
        elif feature.source == ("@duration",):
            expected, spread = float(usual_visits.duration[0]), float(usual_visits.duration_spread[0])
            row |= _numbers(feature.name, expected, float(visits.duration[0]), spread)
    (kind, where), place = features, int(usual_visits.place[0])
    if where is not None and frame.projection is not None:
        x, y = (float(values[place]) if place >= 0 else math.nan for values in (habits.place_x, habits.place_y))
        pairs = zip(where.field_names, (x, y), (visits.x, visits.y), usual_visits.apart[0].tolist(), strict=True)
        for name, expected, observed, spread in pairs:
            row |= _numbers(name, expected, float(observed[0]), spread)
        degrees = frame.projection.backward_one(x, y)
        row |= {f"expected_{c}": value for c, value in zip(where.source, degrees, strict=True)}
    if kind is not None:
        code, own = int(habits.place_category[place]) if place >= 0 else 0, int(visits.category[0])
        row[f"expected_{kind.name}"] = frame.categories[code - 1] if code else None  # an unknown kind is never expected
        row[f"observed_{kind.name}"] = frame.categories[own - 1] if own else UNKNOWN
    return row


def _numbers(name: str, expected: float, observed: float, spread: float, *, period: float = 0.0) -> dict[str, float]:
    away = abs(observed - expected)
    error = min(away, period - away) if period and away == away else away
    values = {"expected": expected, "observed": observed, "spread": spread, "error": error}
    return {f"{what}_{name}": value for what, value in values.items()}


def is_weekend(day: int, days_off: tuple[int, ...]) -> bool:
    """`day_kinds` of one local date."""
    return (day + 3) % 7 >= 5 or day in days_off


def _bin(value: float, end: float, bins: int) -> int:
    return min(max(int(value / end * bins), 0), bins - 1)
