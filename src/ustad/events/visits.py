"""Tables of events to plain arrays of visits: who, which own place, when, how long, what kind of place.

In goes a table that keeps a schema; out come arrays sorted by entity and time, which the habits are built from and
compared with. A visit's place is the schema's habitat (a POI, a merchant, a screen). Where it is missing, stays of one
entity that lie close together are one place.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import local_time
from ustad.dataset import zone_of
from ustad.events.encoder import UNKNOWN
from ustad.events.observed import DAY_MINUTES, read_gaps, read_silence
from ustad.geo import Projection
from ustad.schema import EventSchema, Feature
from ustad.tables import DataError, agent_codes, identity_hash, mix

#: The longest duration that has a bin of its own in histograms, log(1 + minutes): four days.
LONGEST = float(np.log1p(4 * 1440))
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Frame:
    """What is fitted on training events once: the flat projection and the kinds of places."""

    projection: Projection | None
    categories: tuple[str, ...]  # code 0 is `unknown`, code k is categories[k - 1]
    days_off: tuple[int, ...] = ()  # local dates that are like weekend days: holidays, and what somebody says

    @classmethod
    def fit(cls, events: pa.Table, schema: EventSchema, days_off: tuple[int, ...] = ()) -> Frame:
        place, kind = place_feature(events, schema), kind_feature(events, schema)
        projection = None
        if place is not None:
            lat, lon = (_floats(events[c]) for c in place.source)
            has_place = np.isfinite(lat) & np.isfinite(lon)
            projection = Projection.fit(lat[has_place], lon[has_place]) if has_place.any() else None
        words = pc.unique(_text(events[kind.columns[0]])).drop_null().to_pylist() if kind is not None else []
        return cls(projection, tuple(sorted(set(words) - {UNKNOWN})), days_off)

    def to_dict(self) -> dict[str, Any]:
        centre = None if self.projection is None else [self.projection.lat, self.projection.lon]
        days = {"days_off": list(self.days_off)} if self.days_off else {}
        return {"centre": centre, "categories": list(self.categories), **days}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Frame:
        centre = content["centre"]
        days = tuple(int(day) for day in content.get("days_off", ()))
        return cls(Projection(*centre) if centre else None, tuple(content["categories"]), days)


@dataclass(frozen=True)
class Visits:
    """N events of E entities, sorted by entity and time."""

    entity_ids: np.ndarray  # [E] as in the table
    entity_key: np.ndarray  # uint64 [E] hash of the identifier, the same on every machine
    entity: np.ndarray  # int64 [N] index into entity_ids, ascending
    key: np.ndarray  # uint64 [N] hash of entity and habitat; 0 where the habitat is missing
    time: np.ndarray  # int64 [N] microseconds UTC of the start
    day: np.ndarray  # int64 [N] local date of the start
    minute: np.ndarray  # float64 [N] local minute of the day
    weekday: np.ndarray  # int64 [N] 0 is Monday
    duration: np.ndarray  # float64 [N] minutes, NaN where unknown
    early: np.ndarray  # float64 [N] minutes that it may have begun earlier, see `observed`
    late: np.ndarray  # float64 [N] minutes that it may have ended later
    silent: np.ndarray  # float64 [N] minutes of it that there were no data for
    x: np.ndarray  # float64 [N] km, NaN where unknown
    y: np.ndarray
    category: np.ndarray  # int64 [N] code in the frame, 0 where unknown
    row: np.ndarray  # int64 [N] row of the table that each visit came from
    days_off: tuple[int, ...] = ()  # of the frame

    def __len__(self) -> int:
        return len(self.entity)

    def take(self, rows: np.ndarray) -> Visits:
        """Some of the visits, of the same entities."""
        of_all = ("entity_ids", "entity_key", "days_off")
        return replace(self, **{f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name not in of_all})

    @property
    def kinds(self) -> np.ndarray:
        """What weekday the day of the start and the three after it are like: int64 [N, 4]."""
        return day_kinds(self.day[:, None] + np.arange(4), self.days_off)

    @property
    def offsets(self) -> np.ndarray:
        """[E + 1]: visits of entity e are offsets[e] … offsets[e + 1]."""
        return np.searchsorted(self.entity, np.arange(len(self.entity_ids) + 1))


def read_visits(events: pa.Table, schema: EventSchema, frame: Frame) -> Visits:
    """The visits of all rows; `row` leads back to the table."""
    for name in (schema.entity, schema.time):
        if name not in events.column_names:
            raise DataError(f"{schema.name}: missing column {name}; found {', '.join(events.column_names)}")
    clock = local_time(events[schema.time], zone_of(events, schema))
    entity, ids = agent_codes(events[schema.entity])
    time = events[schema.time].cast(pa.int64()).to_numpy()
    order = np.lexsort((time, entity))
    owner = identity_hash(ids)
    x, y = _flat(events, schema, frame)
    category = _categories(events, schema, frame)
    duration, (early, late) = _durations(events, schema), read_gaps(events)
    return Visits(
        entity_ids=ids,
        entity_key=owner,
        entity=entity[order],
        key=_keys(events, schema, category, owner[entity], has_places=frame.projection is not None)[order],
        time=time[order],
        day=clock.day.astype(np.int64)[order],
        minute=clock.minute[order],
        weekday=clock.weekday.astype(np.int64)[order],
        duration=duration[order],
        early=early[order],
        late=late[order],
        silent=read_silence(events, duration)[order],
        x=x[order],
        y=y[order],
        category=category[order],
        row=order,
        days_off=frame.days_off,
    )


def day_kinds(days: np.ndarray, days_off: tuple[int, ...]) -> np.ndarray:
    """Weekdays of local dates, 0 is Monday; a day off is a Sunday, whatever day it falls on.

    >>> day_kinds(np.array([0, 1, 2]), (1,))  # 1970-01-01 was a Thursday
    array([3, 6, 5])
    """
    weekdays = (days + 3) % 7
    return np.where(np.isin(days, days_off), 6, weekdays) if days_off else weekdays


def ends_of(
    minute: np.ndarray, duration: np.ndarray, day: np.ndarray, days_off: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Minute of the day at which visits end, and whether on a weekend day or a day off: float64 [N], bool [N].

    NaN without a length, and where the table is cut.

    >>> ends_of(np.array([1380.0, 1380.0]), np.array([90.0, 60.0]), np.array([0, 0]), (1,))
    (array([30., nan]), array([ True,  True]))
    """
    end = minute + duration
    days = np.floor(np.nan_to_num(end) / DAY_MINUTES).astype(np.int64)
    end = np.where(are_cut(minute, duration), np.nan, end - days * DAY_MINUTES)
    return end, day_kinds(day + days, days_off) >= 5


def are_cut(minute: np.ndarray, duration: np.ndarray) -> np.ndarray:
    """Which visits end at midnight to the second: there a table is cut, and nobody leaves. bool [N]."""
    end = np.round((minute + duration) * 60.0)
    return (duration >= 0) & np.isfinite(duration) & (np.nan_to_num(end) % (60.0 * DAY_MINUTES) == 0)


class HasColumns(Protocol):
    """A table, or a single event that knows which columns it would have in one."""

    @property
    def column_names(self) -> list[str]: ...


def place_feature(events: HasColumns, schema: EventSchema) -> Feature | None:
    """The feature that says where an event is, where the table has its columns."""
    names = events.column_names
    return next((f for f in schema.features if f.kind == "place" and all(c in names for c in f.columns)), None)


def kind_feature(events: HasColumns, schema: EventSchema) -> Feature | None:
    """The first category that is read from a column: the kind of place, of merchant, of screen."""
    names = events.column_names
    kinds = (f for f in schema.features if f.kind == "categorical" and f.columns)
    return next((f for f in kinds if all(c in names for c in f.columns)), None)


def place_keys(owner: np.ndarray, name: np.ndarray) -> np.ndarray:
    """One 64-bit key of an entity's hash and a place's hash; never 0."""
    with np.errstate(over="ignore"):
        return np.maximum(mix(owner.astype(np.uint64) * _GOLDEN + name.astype(np.uint64)), np.uint64(1))


def spot_names(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What places without a name are called: their position to the millimetre, the same on every machine. uint64."""
    east, north = (np.round(np.nan_to_num(v) * 1e6).astype(np.int64).view(np.uint64) for v in (x, y))
    with np.errstate(over="ignore"):
        return east * np.uint64(31) + north


def _keys(
    events: pa.Table, schema: EventSchema, category: np.ndarray, owner: np.ndarray, *, has_places: bool
) -> np.ndarray:
    """Hash of entity and habitat, 0 where it is missing. Without habitats and places the category is the key. What
    training had decides this, not what these rows have, so that an event has the same key in any table."""
    if schema.habitat in events.column_names:
        column = events[schema.habitat]
        codes, names = agent_codes(pc.fill_null(_text(column), ""))
        null = pc.is_null(column).to_numpy()
        return np.where(null, np.uint64(0), place_keys(owner, identity_hash(names)[codes]))
    if has_places:
        return np.zeros(len(owner), np.uint64)
    return place_keys(owner, category.astype(np.uint64))


def _flat(events: pa.Table, schema: EventSchema, frame: Frame) -> tuple[np.ndarray, np.ndarray]:
    place = place_feature(events, schema)
    if place is None or frame.projection is None:
        nothing = np.full(events.num_rows, np.nan)
        return nothing, nothing
    lat, lon = (_floats(events[c]) for c in place.source)
    return frame.projection.forward(lat, lon)


def _categories(events: pa.Table, schema: EventSchema, frame: Frame) -> np.ndarray:
    kind = kind_feature(events, schema)
    if kind is None:
        return np.zeros(events.num_rows, np.int64)
    words = pa.array(frame.categories, pa.string())
    codes = pc.fill_null(pc.index_in(_text(events[kind.columns[0]]), words), -1)
    return codes.to_numpy().astype(np.int64) + 1


def _durations(events: pa.Table, schema: EventSchema) -> np.ndarray:
    if schema.end is None or schema.end not in events.column_names:
        return np.full(events.num_rows, np.nan)
    start, end = (_floats(events[c].cast(pa.int64())) for c in (schema.time, schema.end))
    return (end - start) / 60e6


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    column = column.cast(pa.float64())
    return (pc.fill_null(column, np.nan) if column.null_count else column).to_numpy()


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return column.cast(pa.string())
