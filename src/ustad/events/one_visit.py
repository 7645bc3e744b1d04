"""One event as a visit, without making a table: what habits are compared with a hundred times a second.

In goes a row as a mapping; out comes what `events.visits.read_visits` makes of a table with that row (a property test
compares them). Values of types that a table would convert are left to the table: `read` then answers None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ustad.clock import MICROSECONDS_PER_DAY
from ustad.events.encoded_row import ConversionError, as_microseconds, utc_offset, zone_named
from ustad.events.observed import GAP_COLUMNS, OBSERVED, gap_minutes
from ustad.events.visits import Frame, Visits, kind_feature, place_feature, place_keys
from ustad.schema import EventSchema, Feature
from ustad.tables import identity_hash

_ONE = np.zeros(1, np.int64)
#: Hashes of entities and of their places that are remembered; then all are dropped.
MOST_IDENTITIES = 32_768


class RowColumns:
    """Which columns an event would have in a table."""

    def __init__(self, event: Mapping[str, Any]) -> None:
        self.column_names = list(event)


class VisitReader:
    """Reads single events of one schema and frame."""

    def __init__(self, schema: EventSchema, frame: Frame) -> None:
        self.schema, self.frame = schema, frame
        self._features: dict[tuple[str, ...], tuple[Feature | None, Feature | None]] = {}
        self._identities: dict[int | str, tuple[np.ndarray, np.ndarray]] = {}
        self._places: dict[tuple[int | str, str], np.ndarray] = {}
        self._codes = {word: code for code, word in enumerate(frame.categories, 1)}

    def read(self, event: Mapping[str, Any]) -> Visits | None:
        """The visit, or None where a table has to look at the event (or to refuse it)."""
        try:
            return self._read(event)
        except ConversionError:
            return None

    def _read(self, event: Mapping[str, Any]) -> Visits:
        schema, entity = self.schema, event[self.schema.entity]
        if type(entity) not in (int, str):
            raise ConversionError
        time = as_microseconds(event[schema.time])
        day, within = divmod(time + utc_offset(event[schema.time], zone_named(schema, event)), MICROSECONDS_PER_DAY)
        ids, owner = self._identity(entity)
        kind, place = self.features_in(event)
        category, (x, y), duration = self._category(event, kind), self._flat(event, place), self._length(event)
        early, late = self._gaps(event)
        return Visits(
            entity_ids=ids,
            entity_key=owner,
            entity=_ONE,
            key=self._key(event, owner, category),
            time=np.array([time]),
            day=np.array([day]),
            minute=np.array([within / 60e6]),
            weekday=np.array([(day + 3) % 7]),
            duration=np.array([duration]),
            early=np.array([early]),
            late=np.array([late]),
            silent=np.array([_silence(event, duration)]),
            x=np.array([x]),
            y=np.array([y]),
            category=np.array([category]),
            row=_ONE,
            days_off=self.frame.days_off,
        )

    def _identity(self, entity: int | str) -> tuple[np.ndarray, np.ndarray]:
        """The only entity of a visit, and its hash."""
        if entity not in self._identities:
            ids = np.empty(1, dtype=object if isinstance(entity, str) else np.int64)
            ids[0] = entity
            self._make_room()
            self._identities[entity] = ids, identity_hash([entity])
        return self._identities[entity]

    def _named_place(self, entity: int | str, name: str) -> np.ndarray:
        if (entity, name) not in self._places:
            self._make_room()
            self._places[entity, name] = place_keys(self._identity(entity)[1], identity_hash([name]))
        return self._places[entity, name]

    def _make_room(self) -> None:
        if len(self._identities) + len(self._places) >= MOST_IDENTITIES:
            self.forget()

    def forget(self) -> None:
        """Drop the hashes that are remembered, and whose they are."""
        self._identities.clear()
        self._places.clear()

    def features_in(self, event: Mapping[str, Any]) -> tuple[Feature | None, Feature | None]:
        """The features that say what kind of place it is and where; most events have the same columns."""
        names = tuple(event)
        if names not in self._features:
            columns = RowColumns(event)
            self._features[names] = kind_feature(columns, self.schema), place_feature(columns, self.schema)
        return self._features[names]

    def _category(self, event: Mapping[str, Any], kind: Feature | None) -> int:
        return 0 if kind is None else self._codes.get(_as_text(event[kind.columns[0]]) or "", 0)

    def _flat(self, event: Mapping[str, Any], place: Feature | None) -> tuple[float, float]:
        if place is None or self.frame.projection is None:
            return math.nan, math.nan
        lat, lon = (_as_float(event[name]) for name in place.source)
        x, y = self.frame.projection.forward(lat, lon)  # type: ignore[arg-type]  # floats do as well; to the last bit
        return float(x), float(y)

    def _length(self, event: Mapping[str, Any]) -> float:
        end = event.get(self.schema.end) if self.schema.end is not None else None
        if end is None:
            return math.nan
        return (float(as_microseconds(end)) - float(as_microseconds(event[self.schema.time]))) / 60e6

    def _gaps(self, event: Mapping[str, Any]) -> tuple[float, float]:
        if any(type(event.get(name)) not in (int, float, type(None)) for name in GAP_COLUMNS):
            raise ConversionError
        return gap_minutes(event)

    def _key(self, event: Mapping[str, Any], owner: np.ndarray, category: int) -> np.ndarray:
        """As `visits._keys`: hash of entity and habitat, 0 where it is missing."""
        habitat = self.schema.habitat
        if habitat is not None and habitat in event:
            name = _as_text(event[habitat])
            return np.zeros(1, np.uint64) if name is None else self._named_place(event[self.schema.entity], name)
        if self.frame.projection is not None:
            return np.zeros(1, np.uint64)
        return place_keys(owner, np.array([category], np.uint64))


def _silence(event: Mapping[str, Any], duration: float) -> float:
    observed = event.get(OBSERVED)
    silent = math.nan if observed is None else duration - observed / 60.0
    return max(silent, 0.0) if silent == silent else 0.0


def _as_text(value: Any) -> str | None:
    """A word as a table would have it."""
    if type(value) is int:
        return str(value)
    if value is not None and type(value) is not str:
        raise ConversionError
    return value


def _as_float(value: Any) -> float:
    if value is None:
        return math.nan
    if type(value) not in (int, float):
        raise ConversionError
    return float(value)
