"""What was to be expected of an event by its entity's own history: where, what kind of place, when, how long, each ±.

In go habits and visits compared with them; out come arrays by visit, and the columns that the paper's preset has of
the same features (`expected_f`, `observed_f`, `spread_f`, `error_f`), so that pages and answers show them alike. The
place is where the entity is at that hour on most such days; start and duration are those of its visits to the place
where it was or, somewhere new, to the place where it was expected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ustad.events.encoder import UNKNOWN
from ustad.events.visits import Frame, HasColumns, Visits, day_kinds, kind_feature, place_feature
from ustad.habits.history import Habits, once_per_history
from ustad.habits.in_parts import in_parts
from ustad.habits.kernels import OTHER_DAY
from ustad.habits.leaving import visit_ends
from ustad.habits.usual_kernels import times_by_other_days, usual_start, usual_times, visits_near, whereabouts
from ustad.habits.widths import Widths
from ustad.schema import EventSchema
from ustad.ties import lowered

#: When people are at home, minute of the day.
NIGHT = 180.0
#: Visits of a history that are compared with its other days.
MOST_SAMPLES = 16_000
#: More than there are kinds of places: an entity and a kind make one number.
_MOST_KINDS = 1 << 20


@dataclass(frozen=True)
class Usual:
    """What N visits were to be like; NaN (-1 for a place) where the history says nothing."""

    place: np.ndarray  # int64 [N] own place where the entity is at that hour on most days of the kind
    share: np.ndarray  # float64 [N] share of those days
    weekend: np.ndarray  # bool [N] whether those are weekend days
    apart: np.ndarray  # float64 [N, 2] km: how far apart its whereabouts at that hour lie, in x and y
    start: np.ndarray  # float64 [N] minute of the day
    start_spread: np.ndarray  # float64 [N] minutes
    duration: np.ndarray  # float64 [N] minutes
    duration_spread: np.ndarray  # float64 [N]
    days: np.ndarray  # int64 [N] of the history since the entity was first seen in it, -1 where it has none
    new_kind: np.ndarray  # bool [N] at a kind of place that is new to the entity, see `_new_kinds`
    of_days: np.ndarray  # float64 [N] how many days of that kind `share` is a share of


def usual(habits: Habits, visits: Visits, place: np.ndarray, widths: Widths) -> Usual:
    """Of every visit; `place` [N] is the own place that each is at, -1 somewhere new. `widths` say how wide ± is."""
    weekend, owner = day_kinds(visits.day, visits.days_off) >= 5, habits.owners(visits)
    half = np.nan_to_num(visits.duration) / 2
    moment = (visits.minute + half) % 1440
    later = ((visits.minute + half) // 1440).astype(np.int64)  # days between the start and the middle
    weekend_then = day_kinds(visits.day + later, visits.days_off) >= 5
    days = remembered_days(habits)
    where, share, apart = whereabouts(
        owner, moment, weekend_then, habits.place_offsets, habits.place_x, habits.place_y,
        habits.visit_offsets, habits.visit_day, habits.visit_minute, habits.visit_duration, days,
        habits.sorted_days_off,
    )  # fmt: skip
    of_days = np.where(where >= 0, days[where, weekend_then.astype(int)], 0.0) if len(days) else np.zeros(len(where))
    at = np.where(place >= 0, place, where)
    minute = np.where(place >= 0, visits.minute, np.nan)
    start, start_spread, duration, duration_spread = _times(habits, at, minute, weekend)
    if len(habits.place_count):
        spreads = np.stack([start_spread, duration_spread])
        start_spread, duration_spread = widths.widen(spreads, habits.place_category[at], habits.place_count[at])
    since = np.append(habits.entity_since, habits.last_day + 2)[owner]  # the last is of strangers: -1
    length = (duration, duration_spread, habits.last_day + 1 - since)
    new_kind = _new_kinds(habits, visits, owner)
    return Usual(where, share, weekend_then, apart, start, start_spread, *length, new_kind, of_days)


def _times(habits: Habits, at: np.ndarray, minute: np.ndarray, weekend: np.ndarray) -> np.ndarray:
    """Start and duration at places, each with ± as wide as the earlier visits lie: float64 [4, N]."""
    history = (habits.visit_offsets, habits.visit_minute, habits.visit_duration, habits.visit_weekend)
    weights = (habits.visit_start_weight, habits.visit_length_weight)
    order = np.argsort(2 * at + weekend, kind="stable")  # rows of one place and kind of day share their work

    def measure(rows: slice) -> np.ndarray:
        some = order[rows]
        return usual_times(at[some], minute[some], weekend[some], *history, *weights)

    times = np.empty((len(at), 4))
    times[order] = in_parts(measure, len(at))
    return times.T


def usual_end(habits: Habits, place: int, end: float, weekend: bool) -> float:
    """Around which minute of the day an own place is left on days of a kind, of several the nearest to `end`; NaN where
    no end is known."""
    first, last = habits.visit_offsets[place : place + 2]
    ends, on_weekend = (values[first:last] for values in visit_ends(habits))
    has_end = np.isfinite(ends)
    if not has_end.any():
        return np.nan
    weight = np.where(on_weekend == weekend, 1.0, OTHER_DAY)[has_end] * habits.visit_length_weight[first:last][has_end]
    return float(usual_start(ends[has_end], visits_near(ends[has_end], weight), end))


def fit_widths(habits: Habits, kinds: int) -> Widths:
    """From days of the history, each by its other days: so a history as long as the one that is used is judged."""
    place, visits, by_days = days_left_out(habits)
    return Widths.fit(by_days, habits.place_category[place], visits, kinds)


def days_left_out(habits: Habits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of visits of a history, MOST_SAMPLES at most, evenly: their place, how many visits to it a whole history would
    hold, and how far start and duration are from what the other days say, in its ±: int64 [N] twice, float64 [2, N].

    What begins or ends unseen is left out, and so is the first visit of each entity: nothing before it says when it
    began. Visits are counted as though the day were one more like the other days of its weekday: a place of every
    Monday would be known from as many Mondays as there are, a place of a single visit from that one alone."""
    is_observed = (habits.visit_early <= 0) & (habits.visit_late <= 0) & (habits.visit_previous != 0)
    observed_rows = np.flatnonzero(is_observed)
    rows = observed_rows[:: max(1, -(-len(observed_rows) // MOST_SAMPLES))]
    place = np.searchsorted(habits.visit_offsets, rows, side="right") - 1
    history = (habits.visit_offsets, habits.visit_minute, habits.visit_duration, habits.visit_weekend)
    weights = (habits.visit_start_weight, habits.visit_length_weight)

    def measure(part: slice) -> np.ndarray:
        return times_by_other_days(rows[part], place[part], habits.visit_day, *history, *weights)

    times = in_parts(measure, len(rows))
    has_visits = times[:, 4] > 0
    place, rows, times = place[has_visits], rows[has_visits], times[has_visits]
    like_it = times[:, 5] / np.maximum(_other_weeks(habits, rows, place), 1)
    away = _in_spreads(habits.visit_minute[rows], habits.visit_duration[rows], times[:, :4].T)
    return place, np.floor(times[:, 4] + like_it + 0.5).astype(np.int64), away


def _other_weeks(habits: Habits, rows: np.ndarray, place: np.ndarray) -> np.ndarray:
    """How many other days of the same weekday the history has of the entity, for each visit: int64 [N]."""
    day, since = habits.visit_day[rows], np.maximum(habits.place_since, habits.known_since)[place]
    return (habits.last_day - day) // 7 + np.maximum(day - since, 0) // 7


def _in_spreads(minute: np.ndarray, duration: np.ndarray, times: np.ndarray) -> np.ndarray:
    """How far starts and durations are from `times` [4, N] (each with its ±), in ±: float64 [2, N]."""
    start, start_spread, expected, duration_spread = times
    away = np.abs(minute - start)
    differences = np.stack([np.minimum(away, 1440.0 - away), np.abs(duration - expected)])
    return differences / np.maximum(np.stack([start_spread, duration_spread]), 1e-6)


def find_home(habits: Habits, place: int) -> int:
    """Of the owner of a place: where it is at night on at least half of its weekdays, -1 without such a place."""
    owner, homes = int(habits.place_offsets.searchsorted(place, "right")) - 1, _known_homes(habits)
    if owner not in homes:
        homes[owner] = _home_of(habits, owner)
    return homes[owner]


@once_per_history
def _known_homes(habits: Habits) -> dict[int, int]:
    """Homes that were asked for already, by entity: sentences ask again and again."""
    return {}


def _home_of(habits: Habits, owner: int) -> int:
    first, last = (int(edge) for edge in habits.place_offsets[owner : owner + 2])
    rows = slice(first, last)
    where, share, _ = whereabouts(
        np.zeros(1, np.int64), np.array([NIGHT]), np.zeros(1, bool), np.array([0, last - first]), habits.place_x[rows],
        habits.place_y[rows], habits.visit_offsets[first : last + 1], habits.visit_day, habits.visit_minute,
        habits.visit_duration, remembered_days(habits)[rows], habits.sorted_days_off,
    )  # fmt: skip
    return first + int(where[0]) if share[0] >= lowered(0.5) else -1


def find_homes(habits: Habits, owner: np.ndarray) -> np.ndarray:
    """As `find_home`, of entities by their index: int64 [N]."""
    people, each = np.unique(owner, return_inverse=True)
    where, share, _ = whereabouts(
        people, np.full(len(people), NIGHT), np.zeros(len(people), bool), habits.place_offsets, habits.place_x,
        habits.place_y, habits.visit_offsets, habits.visit_day, habits.visit_minute, habits.visit_duration,
        remembered_days(habits), habits.sorted_days_off,
    )  # fmt: skip
    homes = np.where(share >= lowered(0.5), where, -1)
    _known_homes(habits).update(zip(people.tolist(), homes.tolist(), strict=True))
    return homes[each]


def _new_kinds(habits: Habits, visits: Visits, owner: np.ndarray) -> np.ndarray:
    """Visits to a kind of place that none of the entity's own places is of; of strangers, to one that nobody was seen
    at: bool [N]."""
    own, kind = _own_kinds(habits), owner * _MOST_KINDS + visits.category
    is_own = own[np.minimum(own.searchsorted(kind), len(own) - 1)] == kind
    return ((owner >= 0) | (visits.category == 0)) & ~is_own


@once_per_history
def _own_kinds(habits: Habits) -> np.ndarray:
    """Entities and the kinds of their own places, each pair as one number, ascending; the last is no pair."""
    pairs = np.unique(habits.place_owner * _MOST_KINDS + habits.place_category)
    return np.append(pairs, np.iinfo(np.int64).max)


@once_per_history
def remembered_days(habits: Habits) -> np.ndarray:
    """Weekdays and weekend days that the visits to each place are remembered of, since its entity was first seen:
    float64 [P, 2]."""
    since = np.maximum(habits.place_since, habits.known_since) + 3
    stop = habits.last_day + 4  # both counted from a Monday
    weekends = sum((stop - k) // 7 - (since - k) // 7 for k in (6, 7))
    off = habits.sorted_days_off[(habits.sorted_days_off + 3) % 7 < 5] + 3
    weekends = weekends + np.searchsorted(off, stop) - np.searchsorted(off, since)
    total = stop - since
    return np.stack([total - weekends, weekends], axis=1).astype(np.float64)


def usual_columns(
    habits: Habits, frame: Frame, schema: EventSchema, events: HasColumns, *, visits: Visits, usual_visits: Usual
) -> dict[str, np.ndarray]:
    """The columns of N visits, in their order: expected, observed, ± and the difference of every feature that habits
    look at. Numbers are NaN, words None where the history or the event says nothing."""
    columns: dict[str, Any] = {}
    for feature in schema.features:
        if feature.source == ("@minute_of_day",):
            columns.update(
                _numbers(
                    feature.name, usual_visits.start, visits.minute, usual_visits.start_spread, period=feature.period
                )
            )
        elif feature.source == ("@duration",):
            columns.update(_numbers(feature.name, usual_visits.duration, visits.duration, usual_visits.duration_spread))
    where, kind = place_feature(events, schema), kind_feature(events, schema)
    if where is not None and frame.projection is not None:
        x, y = (_at(values, usual_visits.place) for values in (habits.place_x, habits.place_y))
        pairs = zip(where.field_names, (x, y), (visits.x, visits.y), usual_visits.apart.T, strict=True)
        for name, expected, observed, spread in pairs:
            columns.update(_numbers(name, expected, observed, spread))
        degrees = frame.projection.backward(x, y)
        columns.update({f"expected_{c}": values for c, values in zip(where.source, degrees, strict=True)})
    if kind is not None:
        words = np.array([None, *frame.categories], dtype=object)  # an unknown kind is never expected
        columns[f"expected_{kind.name}"] = words[_at(habits.place_category, usual_visits.place, 0)]
        words[0] = UNKNOWN
        columns[f"observed_{kind.name}"] = words[visits.category]
    return columns


def _numbers(
    name: str, expected: np.ndarray, observed: np.ndarray, spread: np.ndarray, *, period: float = 0.0
) -> dict[str, np.ndarray]:
    away = np.abs(observed - expected)
    return {
        f"expected_{name}": expected,
        f"observed_{name}": observed,
        f"spread_{name}": spread,
        f"error_{name}": np.minimum(away, period - away) if period else away,
    }


def _at(values: np.ndarray, place: np.ndarray, nothing: float = np.nan) -> np.ndarray:
    """Values of places, `nothing` for -1."""
    if not len(values):
        return np.full(len(place), nothing, np.asarray(nothing).dtype)
    return np.where(place >= 0, values[place], nothing)
