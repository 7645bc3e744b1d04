"""Habits that move on: later visits enter a history that was fitted before them, in bounded size.

In go habits and the visits that followed; out come habits as if they had been fitted on both: counts, days, kinds,
times and ways exactly, positions to rounding (where some visits have none, the mean of a place counts them too). Visits
without a named place belong to the own place whose mean position is near, else to clusters of their own, while a fit
of everything would gather them around the first of them: near the radius that can be another place. Days that say
nothing of an entity (before it was first seen, whole weeks without a visit) are kept apart: they are no evidence that
it was nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ustad.events.visits import Visits
from ustad.habits.history import VISITS_A_PLACE, Habits, collect, own_keys

#: Own places of an entity in a history that has moved on; those not visited for longest go first.
PLACES_AN_ENTITY = 512
DAYS_A_WEEK = 7


def moved_on(
    habits: Habits, visits: Visits, last_day: int, most: int = VISITS_A_PLACE, *, limit: int = PLACES_AN_ENTITY
) -> Habits:
    """The history with later visits of any entities, sorted by entity and time; it ends with the local day `last_day`.

    Of entities with a visit among these at most `limit` places are kept. Named places come out the same whether one
    goes on in one step or in several of whole weeks.
    """
    if not len(visits):
        return with_end(habits, last_day)
    visits = _present(visits)
    key = own_keys(visits, habits)
    later = collect(visits, key, _places_before(habits, visits, key), most)
    history = replace(_merge(habits, later, most), first_day=habits.first_day, last_day=last_day)
    unseen, back = _count_unseen(habits, visits, history)
    history = replace(history, entity_unseen=unseen, entity_back=back)
    return _limit_places(history, np.isin(history.entity_key, later.entity_key), limit)


def with_end(habits: Habits, last_day: int, is_seen: bool = False) -> Habits:
    """The history up to a later day without another visit; where its entities were not `is_seen`, that says nothing."""
    if is_seen:
        return replace(habits, last_day=last_day)
    unseen = habits.entity_unseen + (last_day - habits.last_day)
    return replace(habits, last_day=last_day, entity_unseen=unseen, entity_back=np.full(len(unseen), last_day + 1))


def _present(visits: Visits) -> Visits:
    """Without the entities that have no visit."""
    codes, entity = np.unique(visits.entity, return_inverse=True)
    return replace(
        visits, entity_ids=visits.entity_ids[codes], entity_key=visits.entity_key[codes], entity=entity.astype(np.int64)
    )


def _places_before(habits: Habits, visits: Visits, key: np.ndarray) -> np.ndarray:
    """Key of the place before each visit, for an entity's first that of its latest in the history: uint64 [N]."""
    before = np.r_[np.uint64(0), key[:-1]]
    first = visits.offsets[:-1]
    before[first] = 0
    owner = habits.owners(visits)[first]
    has_history = owner >= 0
    if has_history.any():
        latest = np.lexsort((_last_times(habits), habits.place_owner))[habits.place_offsets[1:] - 1]
        before[first[has_history]] = habits.place_key[latest[owner[has_history]]]
    return before


def _last_times(habits: Habits) -> np.ndarray:
    """Time of the latest visit to each place: int64 [P]."""
    return habits.visit_time[habits.visit_offsets[1:] - 1]


@dataclass(frozen=True)
class _Grouping:
    """Two sets of rows behind one another, put into the order of their groups."""

    order: np.ndarray  # int64 [N] of the rows
    group: np.ndarray  # int64 [N] of each row, in their first order
    starts: np.ndarray  # int64 [G] where each group begins in `order`
    stops: np.ndarray

    @classmethod
    def of(cls, *keys: np.ndarray) -> _Grouping:
        """Groups of equal keys, the last key first in the order; within a group the rows stay as they are."""
        order = np.lexsort(keys)
        new = np.ones(len(order), bool)
        new[1:] = np.any([k[order][1:] != k[order][:-1] for k in keys], axis=0)
        group = np.empty(len(order), np.int64)
        group[order] = np.cumsum(new) - 1
        starts = np.flatnonzero(new)
        return cls(order, group, starts, np.append(starts[1:], len(order)))


def _merge(first: Habits, later: Habits, most: int) -> Habits:
    """Both histories in one, `later` being after `first`; days are left to the caller."""
    entity_key, index = np.unique(np.r_[first.entity_key, later.entity_key], return_index=True)
    pair = (first, later)
    owner = np.concatenate([np.searchsorted(entity_key, h.entity_key)[h.place_owner] for h in pair])
    places = _Grouping.of(_both(pair, "place_key"), owner)
    own = owner[places.order][places.starts]
    number = np.concatenate([np.diff(h.visit_offsets) for h in pair])
    place = np.repeat(places.group, number)
    order = np.lexsort((_both(pair, "visit_time"), place))
    counts = np.bincount(place, minlength=len(places.starts))
    age = np.repeat(np.cumsum(counts), counts) - np.arange(len(order))  # 1 is the latest visit to its place
    recent_rows = order[age <= most]
    visits = {n: _both(pair, n)[recent_rows] for n in _VISITS}
    ids = first.entity_ids if not len(later.entity_ids) else later.entity_ids
    if len(first.entity_ids) and len(later.entity_ids):
        ids = np.concatenate([first.entity_ids, later.entity_ids])
    return Habits(
        entity_ids=ids[index],
        entity_key=entity_key,
        entity_unseen=np.zeros(len(entity_key), np.int64),
        entity_back=np.zeros(len(entity_key), np.int64),
        place_offsets=np.searchsorted(own, np.arange(len(entity_key) + 1)).astype(np.int64),
        place_key=_both(pair, "place_key")[places.order][places.starts],
        place_x=_positions(pair, "place_x", places),
        place_y=_positions(pair, "place_y", places),
        place_category=_both(pair, "place_category")[places.order][places.stops - 1],
        place_count=np.add.reduceat(_both(pair, "place_count")[places.order], places.starts),
        place_first=np.minimum.reduceat(_both(pair, "place_first")[places.order], places.starts),
        place_last=np.maximum.reduceat(_both(pair, "place_last")[places.order], places.starts),
        visit_offsets=np.r_[0, np.cumsum(np.minimum(counts, most))].astype(np.int64),
        first_day=0,
        last_day=0,
        days_off=first.days_off,
        **visits,
    )


_VISITS = (
    "visit_time",
    "visit_minute",
    "visit_weekday",
    "visit_duration",
    "visit_previous",
    "visit_early",
    "visit_late",
    "visit_silent",
)


def _both(pair: tuple[Habits, Habits], name: str) -> np.ndarray:
    return np.concatenate([getattr(h, name) for h in pair])


def _positions(pair: tuple[Habits, Habits], name: str, places: _Grouping) -> np.ndarray:
    """Mean positions, by counts: float64 [P]; those of places on one side alone stay as they are."""
    values, count = _both(pair, name)[places.order], _both(pair, "place_count")[places.order]
    weight = np.where(np.isfinite(values), count, 0)
    total = np.add.reduceat(weight, places.starts)
    weighted_sum = np.add.reduceat(np.where(np.isfinite(values), values, 0.0) * weight, places.starts)
    mean = np.where(total > 0, weighted_sum / np.maximum(total, 1), np.nan)
    return np.where(places.stops - places.starts == 1, values[places.starts], mean)


def _count_unseen(habits: Habits, visits: Visits, history: Habits) -> tuple[np.ndarray, np.ndarray]:
    """`entity_unseen` and `entity_back` of the merged history, from the weeks since the end of `habits`."""
    span, begin = history.last_day - habits.last_day, habits.last_day + 1
    weeks = -(-span // DAYS_A_WEEK)
    unseen, back = np.full(len(history.entity_key), habits.days), np.full(len(history.entity_key), begin)
    position = np.searchsorted(history.entity_key, habits.entity_key)
    unseen[position], back[position] = habits.entity_unseen, habits.entity_back
    if not weeks:
        return unseen, back
    there = np.zeros((len(history.entity_key), weeks), bool)
    week = np.clip((visits.day - begin) // DAYS_A_WEEK, 0, weeks - 1)
    there[np.searchsorted(history.entity_key, visits.entity_key)[visits.entity], week] = True
    length = np.diff(np.minimum(np.arange(weeks + 1) * DAYS_A_WEEK, span))
    absent = ~there
    unseen += (absent * length).sum(axis=1)
    last = weeks - 1 - np.argmax(absent[:, ::-1], axis=1)  # the last week without a visit, where there is one
    back = np.where(absent.any(axis=1), begin + np.minimum((last + 1) * DAYS_A_WEEK, span), back)
    return unseen, back


def _limit_places(habits: Habits, changes: np.ndarray, limit: int) -> Habits:
    """At most `limit` places of each of the entities that have changes (bool [E])."""
    number = np.diff(habits.place_offsets)
    if not (changes & (number > limit)).any():
        return habits
    owner = habits.place_owner
    order = np.lexsort((habits.place_key, -_last_times(habits), owner))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order)) - habits.place_offsets[:-1][owner[order]]
    return habits.with_places((rank < limit) | ~changes[owner])
