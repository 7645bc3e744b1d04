"""What each entity usually does: its own places, how often, when and for how long it is there.

`Habits` are built from visits in one pass, kept in plain arrays, stored as one table (a row per own place), and
can forget an entity; later visits come in with `moved_on`. `Population` is what thin histories are smoothed towards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from ustad.events.observed import UNOBSERVED_MINUTES, length_weight, start_weight
from ustad.events.visits import Visits, day_kinds, place_keys, spot_names
from ustad.habits.kernels import find_known, lead, nearest_place
from ustad.tables import DataError, identity_hash
from ustad.ties import raised

#: Visits remembered one by one at each place, the latest ones; counts go on beyond.
VISITS_A_PLACE = 96
#: Stays without a named habitat within this distance of each other are one place, km.
SAME_PLACE_KM = 0.15
#: A named habitat that is not in the history and so near to one that is, km: GPS takes the one for the other.
NEXT_DOOR_KM = 0.05
#: The share of visits whose silence an entity's usual silence covers.
USUAL_SILENCE = 0.9
_UNSEEN_DAYS = ("entity_unseen", "entity_back")
_GAPS = ("visit_early", "visit_late", "visit_silent")
Fact = TypeVar("Fact")


@dataclass(frozen=True)
class Habits:
    """P own places of E entities, and the visits to them. Places are sorted by entity and key."""

    entity_ids: np.ndarray  # [E] as in the table, in the order of entity_key
    entity_key: np.ndarray  # uint64 [E] ascending
    entity_unseen: np.ndarray  # int64 [E] days of the history that say nothing of the entity: before it was first seen
    # in a history that has moved on, and weeks since then without a visit; 0 as fitted
    entity_back: np.ndarray  # int64 [E] local day after the last of those; the first day of the history as fitted
    place_offsets: np.ndarray  # int64 [E + 1]
    place_key: np.ndarray  # uint64 [P] ascending within an entity
    place_x: np.ndarray  # float64 [P] km: mean of its visits
    place_y: np.ndarray
    place_category: np.ndarray  # int64 [P] of its latest visit
    place_count: np.ndarray  # int64 [P] every visit, also those no longer remembered
    place_first: np.ndarray  # int64 [P] first and last local day seen
    place_last: np.ndarray
    visit_offsets: np.ndarray  # int64 [P + 1]
    visit_time: np.ndarray  # int64 [V] microseconds UTC, ascending within a place
    visit_minute: np.ndarray  # float64 [V] local minute of the day
    visit_weekday: np.ndarray  # int64 [V]
    visit_duration: np.ndarray  # float64 [V] minutes, NaN where unknown
    visit_previous: np.ndarray  # uint64 [V] key of the place before, 0 where none: transitions
    visit_early: np.ndarray  # float32 [V] minutes that it may have begun earlier, see `observed`
    visit_late: np.ndarray  # float32 [V] minutes that it may have ended later
    visit_silent: np.ndarray  # float32 [V] minutes of it that there were no data for
    first_day: int
    last_day: int
    days_off: tuple[int, ...] = ()  # local dates that count as weekend days, in the history and after it

    # --------------------------------------------------------------------------------------- building
    @classmethod
    def fit(cls, visits: Visits, most: int = VISITS_A_PLACE) -> Habits:
        """Habits of all visits given."""
        if not len(visits):
            raise DataError("habits: there are no events to learn from")
        key = own_keys(visits, None)
        previous = np.r_[np.uint64(0), key[:-1]]
        previous[visits.offsets[:-1]] = 0
        return collect(visits, key, previous, most)

    @property
    def days(self) -> int:
        """Length of the history in local days."""
        return self.last_day - self.first_day + 1

    def days_of(self, owner: np.ndarray) -> np.ndarray:
        """Days of the history that say something of each entity, of all of them for -1: int64 [N]."""
        if not len(self.entity_unseen):
            return np.full(len(owner), self.days)
        return self.days - np.where(owner >= 0, self.entity_unseen[owner], 0)

    @property
    def place_owner(self) -> np.ndarray:
        """Index of each place's entity: int64 [P]."""
        return np.repeat(np.arange(len(self.entity_key)), np.diff(self.place_offsets))

    @cached_property
    def place_since(self) -> np.ndarray:
        """The local day such that as many days as from there to the end tell of visits to a place: the day of the
        oldest one kept where older ones were let go, else the first day of the history; later by the days that say
        nothing of the entity. int64 [P]."""
        owner = self.place_owner
        since = self.first_day + self.entity_unseen[owner]
        short = self.place_count > np.diff(self.visit_offsets)
        oldest, own = self.visit_day[self.visit_offsets[:-1][short]], owner[short]
        away = np.minimum(self.entity_unseen[own], np.maximum(self.entity_back[own] - oldest, 0))
        apart = _weeks_apart(self.visit_day, self.visit_offsets, self.last_day)[short]
        since[short] = np.minimum(oldest + np.minimum(away, apart), self.last_day + 1)
        return since

    @cached_property
    def known_since(self) -> np.ndarray:
        """The day of `entity_since`, for each place: int64 [P]."""
        return self.entity_since[self.place_owner]

    @cached_property
    def entity_since(self) -> np.ndarray:
        """The local day such that as many days as from there to the end tell of an entity since it was first seen:
        int64 [E]."""
        has = np.diff(self.place_offsets) > 0
        since = np.full(len(has), self.last_day + 1)
        if not has.any():
            return since
        since[has] = np.minimum.reduceat(self.place_first, self.place_offsets[:-1][has])
        away = np.flatnonzero(self.entity_back > since)
        if len(away):
            visitor = np.repeat(self.place_owner, np.diff(self.visit_offsets))
            own = np.isin(visitor, away)
            order = np.lexsort((self.visit_day[own], visitor[own]))
            offsets = np.append(np.searchsorted(visitor[own], away), own.sum())
            apart = _weeks_apart(self.visit_day[own][order], offsets, self.last_day)
            since[away] += np.minimum(np.minimum(self.entity_unseen, self.entity_back - since)[away], apart)
        return since

    @cached_property
    def visit_day(self) -> np.ndarray:
        """Local day of each remembered visit: int64 [V].

        From the moment of its local midnight, which zones far from UTC have half a day and more off; the weekday tells.
        """
        day = np.round((self.visit_time / 60e6 - self.visit_minute) / 1440.0).astype(np.int64)
        return day + (self.visit_weekday - day) % 7 - 3  # day 0 was a Thursday: 3 where the weekdays agree

    @cached_property
    def visit_weekend(self) -> np.ndarray:
        return day_kinds(self.visit_day, self.days_off) >= 5

    @cached_property
    def sorted_days_off(self) -> np.ndarray:
        """For the compiled loops: int64, ascending."""
        return np.array(sorted(self.days_off), np.int64)

    @cached_property
    def visit_log_duration(self) -> np.ndarray:
        return np.log1p(np.maximum(self.visit_duration, 0.0))

    @cached_property
    def visit_start_weight(self) -> np.ndarray:
        return start_weight(self.visit_early.astype(np.float64))

    @cached_property
    def visit_length_weight(self) -> np.ndarray:
        return length_weight(self.visit_early.astype(np.float64), self.visit_late.astype(np.float64))

    @cached_property
    def usual_silence(self) -> np.ndarray:
        """How silent the data of each entity usually are in a visit, at most: share and minutes, float64 [E, 2]."""
        usual = np.zeros((len(self.entity_key), 2))
        has_length = np.isfinite(self.visit_duration) & (self.visit_duration > 0)
        if not self.visit_silent.any() or not has_length.any():
            return usual
        owner = np.repeat(self.place_owner, np.diff(self.visit_offsets))[has_length]
        silent = np.minimum(self.visit_silent[has_length], self.visit_duration[has_length])
        count = np.bincount(owner, minlength=len(usual))
        at = np.cumsum(count) - count + (USUAL_SILENCE * np.maximum(count - 1, 0)).astype(np.int64)
        for column, values in enumerate((silent / self.visit_duration[has_length], silent)):
            usual[count > 0, column] = values[np.lexsort((values, owner))][at[count > 0]]
        return usual

    def hidden_minutes(self, visits: Visits, owner: np.ndarray) -> np.ndarray:
        """Minutes of each visit in which its entity (`owner` [N]) may have been elsewhere unseen: float64 [N].

        Silence that is usual for the entity hides nothing (a phone that is silent while it lies still, for a night):
        usual by its share of the visit and by its length. Of a stranger no silence is usual.
        """
        if not visits.silent.any():
            return np.zeros(len(visits))
        share, minutes = np.vstack([self.usual_silence, np.zeros((1, 2))])[owner].T
        hidden = visits.silent - np.minimum(share * np.nan_to_num(visits.duration), minutes)
        return np.where(hidden > UNOBSERVED_MINUTES, hidden, 0.0)

    def owners(self, visits: Visits) -> np.ndarray:
        """Index of each visit's entity here, -1 where the entity has no history: int64 [N]."""
        if len(visits.entity_key) == len(self.entity_key) == 1:  # live
            return np.full(len(visits), 0 if self.entity_key[0] == visits.entity_key[0] else -1)
        at = np.minimum(np.searchsorted(self.entity_key, visits.entity_key), max(len(self.entity_key) - 1, 0))
        has_history = self.entity_key[at] == visits.entity_key if len(self.entity_key) else np.zeros(len(at), bool)
        return np.where(has_history, at, -1)[visits.entity]

    def locate(self, visits: Visits) -> tuple[np.ndarray, np.ndarray]:
        """Own place of each visit (int64 [N], -1: not seen before) and the key of its place (uint64 [N])."""
        key = own_keys(visits, self)
        return find_known(self.owners(visits), key, self.place_offsets, self.place_key), key

    def visits_at(self, place: np.ndarray) -> np.ndarray:
        """Visits in the history to each own place, 0 for -1: int64 [N]."""
        if not len(self.place_count):
            return np.zeros(len(place), np.int64)
        return np.where(place >= 0, self.place_count[place], 0)

    # --------------------------------------------------------------------------------------- changing
    def forget(self, entities: Iterable[Any]) -> Habits:
        """Without every trace of some entities."""
        return self.with_entities(~np.isin(self.entity_key, identity_hash(entities)))

    def only(self, entities: Iterable[Any]) -> Habits:
        """Of some entities alone. One entity is cut out without looking at the others."""
        keys = identity_hash(entities)
        at = int(np.searchsorted(self.entity_key, keys[0])) if len(keys) == 1 else len(self.entity_key)
        if at < len(self.entity_key) and self.entity_key[at] == keys[0]:
            return self._slice(at)
        return self.with_entities(np.isin(self.entity_key, keys))

    def _slice(self, at: int) -> Habits:
        """The entity at an index, as views."""
        places = slice(self.place_offsets[at], self.place_offsets[at + 1])
        visits = slice(self.visit_offsets[places.start], self.visit_offsets[places.stop])
        changes: dict[str, Any] = {}
        for f in fields(self):
            for prefix, part in (("entity_", slice(at, at + 1)), ("place_", places), ("visit_", visits)):
                if f.name.startswith(prefix):
                    changes[f.name] = getattr(self, f.name)[part]
        changes["place_offsets"] = np.array([0, places.stop - places.start])
        changes["visit_offsets"] = self.visit_offsets[places.start : places.stop + 1] - visits.start
        return replace(self, **changes)

    def with_entities(self, entities: np.ndarray) -> Habits:
        """Of some entities alone (bool [E])."""
        changes = {f.name: getattr(self, f.name)[entities] for f in fields(self) if f.name.startswith("entity_")}
        changes["place_offsets"] = np.r_[0, np.cumsum(np.diff(self.place_offsets)[entities])]
        return replace(self.with_places(np.repeat(entities, np.diff(self.place_offsets))), **changes)

    def with_places(self, places: np.ndarray) -> Habits:
        """Of some places alone (bool [P]), of the same entities."""
        visits = np.repeat(places, np.diff(self.visit_offsets))
        changes = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, values in changes.items():
            if name == "place_offsets":
                changes[name] = np.r_[0, np.cumsum(places)][values]
            elif name == "visit_offsets":
                changes[name] = np.r_[0, np.cumsum(np.diff(values)[places])]
            elif name.startswith("place_"):
                changes[name] = values[places]
            elif name.startswith("visit_"):
                changes[name] = values[visits]
        return replace(self, **changes)

    # ---------------------------------------------------------------------------------------- storing
    def to_table(self, entity: str = "entity_id") -> pa.Table:
        """One row per own place; visits are lists."""
        owner = np.repeat(np.arange(len(self.entity_ids)), np.diff(self.place_offsets))
        columns: dict[str, Any] = {entity: pa.array(self.entity_ids[owner])}
        for f in fields(self):
            values = getattr(self, f.name)
            if f.name.startswith("place_") and f.name != "place_offsets":
                columns[f.name] = pa.array(values)
            elif f.name.startswith("visit_") and f.name != "visit_offsets":
                columns[f.name] = pa.LargeListArray.from_arrays(self.visit_offsets, pa.array(values))
        if self.entity_unseen.any():
            columns |= {n: pa.array(getattr(self, n)[owner]) for n in _UNSEEN_DAYS}
        span = {"first_day": str(self.first_day), "last_day": str(self.last_day), "entity": entity}
        days = {"days_off": json.dumps(self.days_off)} if self.days_off else {}
        return pa.table(columns).replace_schema_metadata(span | days)

    @classmethod
    def from_table(cls, table: pa.Table) -> Habits:
        """The inverse of `to_table`."""
        span = {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}
        if "entity" not in span or "place_key" not in table.column_names:
            raise DataError("habits: this table was not written as habits (no place_key, or no span of days)")
        ids = table[span["entity"]].to_numpy()
        change = np.r_[True, ids[1:] != ids[:-1]] if len(ids) else np.zeros(0, bool)
        starts = np.flatnonzero(change)
        # Copies: loops are compiled once for arrays that may be written to, not a second time for Arrow's.
        arrays = {n: np.array(table[n]) for n in table.column_names if n.startswith("place_")}
        lists = {n: table[n].combine_chunks() for n in table.column_names if n.startswith("visit_")}
        lengths = next(iter(lists.values())).value_lengths().to_numpy(zero_copy_only=False)
        if any(not v.value_lengths().equals(pa.array(lengths)) for v in lists.values()):
            raise DataError("habits: columns of visits differ in length; the table is damaged")
        gaps = {n: np.zeros(int(lengths.sum()), np.float32) for n in _GAPS if n not in lists}  # an older table
        unseen, back = (table[n].to_numpy()[starts] if n in table.column_names else None for n in _UNSEEN_DAYS)
        return cls(
            entity_ids=ids[starts],
            entity_key=identity_hash(ids[starts]),
            entity_unseen=np.zeros(len(starts), np.int64) if unseen is None else unseen,
            entity_back=np.full(len(starts), int(span["first_day"])) if back is None else back,
            place_offsets=np.r_[starts, len(ids)].astype(np.int64),
            visit_offsets=np.r_[0, np.cumsum(lengths)].astype(np.int64),
            first_day=int(span["first_day"]),
            last_day=int(span["last_day"]),
            days_off=tuple(json.loads(span.get("days_off", "[]"))),
            **arrays,
            **gaps,
            **{n: np.array(v.flatten()) for n, v in lists.items()},
        )


def once_per_history(tell: Callable[[Habits], Fact]) -> Callable[[Habits], Fact]:
    """The same function, which remembers with each history what it said of it."""
    name = f"{tell.__module__}.{tell.__name__}"

    def tell_once(habits: Habits) -> Fact:
        if name not in habits.__dict__:
            habits.__dict__[name] = tell(habits)
        return habits.__dict__[name]

    return tell_once


def _weeks_apart(day: np.ndarray, offsets: np.ndarray, last_day: int) -> np.ndarray:
    """Days of whole weeks between days in order, and after the last of them, by group: what an entity can have been
    away for since the first. int64 [G]."""
    if not len(day):
        return np.zeros(len(offsets) - 1, np.int64)
    following = np.append(day[1:], last_day + 1)
    following[offsets[1:] - 1] = last_day + 1
    return np.add.reduceat(np.maximum(following - day - 1, 0) // 7 * 7, offsets[:-1])


def own_keys(visits: Visits, habits: Habits | None) -> np.ndarray:
    """The key of each visit's place, also where the habitat is missing: uint64 [N].

    Such a visit belongs to the nearest own place in the history, if one is close, else to the cluster of unnamed
    visits around the first of them. A named place that is not in the history belongs to an own place next door.
    """
    key = visits.key.copy()
    has_no_name = key == 0
    if habits is not None:
        owner = habits.owners(visits)
        is_new = find_known(owner, key, habits.place_offsets, habits.place_key) < 0
        place, distance = nearest_place(
            np.where(is_new, owner, -1), visits.x, visits.y, habits.place_offsets, habits.place_x, habits.place_y
        )
        close = is_new & (distance <= raised(np.where(has_no_name, SAME_PLACE_KM, NEXT_DOOR_KM)))
        key[close] = habits.place_key[place[close]]
        has_no_name &= ~close
    if not has_no_name.any():
        return key
    leader = lead(visits.entity, has_no_name, visits.x, visits.y, SAME_PLACE_KM)[has_no_name]
    spot = spot_names(visits.x[leader], visits.y[leader])
    key[has_no_name] = place_keys(visits.entity_key[visits.entity[has_no_name]], spot)
    return key


def collect(visits: Visits, key: np.ndarray, previous: np.ndarray, most: int) -> Habits:
    """Habits of visits with the keys of their places and of the places before: uint64 [N] each."""
    rank = np.argsort(visits.entity_key, kind="stable")
    position = np.empty(len(rank), np.int64)
    position[rank] = np.arange(len(rank))
    owner = position[visits.entity]
    order = np.lexsort((visits.time, key, owner))
    owner, key, previous = owner[order], key[order], previous[order]
    starts = np.flatnonzero(np.r_[True, (owner[1:] != owner[:-1]) | (key[1:] != key[:-1])])
    stops = np.r_[starts[1:], len(key)]
    count = stops - starts
    age = np.repeat(stops, count) - np.arange(len(key))  # 1 is the latest visit to its place
    is_recent = age <= most
    day, x, y = visits.day[order], visits.x[order], visits.y[order]
    recent_rows, first_day = order[is_recent], int(visits.day.min())
    return Habits(
        entity_ids=visits.entity_ids[rank],
        entity_key=visits.entity_key[rank],
        entity_unseen=np.zeros(len(rank), np.int64),
        entity_back=np.full(len(rank), first_day),
        place_offsets=np.searchsorted(owner[starts], np.arange(len(rank) + 1)).astype(np.int64),
        place_key=key[starts],
        place_x=_means(x, starts, count),
        place_y=_means(y, starts, count),
        place_category=visits.category[order][stops - 1],
        place_count=count.astype(np.int64),
        place_first=day[starts],
        place_last=day[stops - 1],
        visit_offsets=np.r_[0, np.cumsum(np.minimum(count, most))].astype(np.int64),
        visit_time=visits.time[recent_rows],
        visit_minute=visits.minute[recent_rows],
        visit_weekday=visits.weekday[recent_rows],
        visit_duration=visits.duration[recent_rows],
        visit_previous=previous[is_recent],
        visit_early=visits.early[recent_rows].astype(np.float32),
        visit_late=visits.late[recent_rows].astype(np.float32),
        visit_silent=visits.silent[recent_rows].astype(np.float32),
        first_day=first_day,
        last_day=int(visits.day.max()),
        days_off=visits.days_off,
    )


def _means(values: np.ndarray, starts: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Means of runs; NaN where every value of a run is."""
    is_finite = np.isfinite(values)
    number = np.add.reduceat(is_finite, starts, dtype=np.int64)
    total = np.add.reduceat(np.where(is_finite, values, 0.0), starts)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)
