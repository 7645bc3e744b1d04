"""One event as the encoder would give it, without making a table: what live scoring needs a hundred times a second.

In goes a row as a mapping and the row before it of the same entity; out come its arrays, equal to those of
`Encoder.encode` (a property test compares them). Values of types that a table would convert are left to the encoder:
`encode` then answers None.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from ustad.clock import DAY_NAMES, EPOCH, MICROSECONDS_PER_DAY, is_zone, microseconds
from ustad.events.encoder import LIMIT, Encoder, EventArrays
from ustad.events.observed import GAP_COLUMNS, ends_seen
from ustad.schema import EventSchema, Feature

_MICROSECOND = timedelta(microseconds=1)
_WORD = (1 << 64) - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


class ConversionError(Exception):
    """A value that only a table knows how to convert."""


class RowEncoder:
    """Encodes single events of one fitted encoder."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder, self.schema = encoder, encoder.schema
        self._columns = frozenset(self.schema.columns)
        self._codes = {name: {w: i for i, w in enumerate(words, 1)} for name, words in encoder.categories.items()}
        self._scales = {n: (s.centre[0], s.scale[0]) for n, s in encoder.scales.items() if len(s.scale) == 1}
        self._kinds = {kind: [f for f in encoder.fields if f.kind == kind] for kind in ("number", "category", "vector")}

    def encode(self, event: Mapping[str, Any], previous: Mapping[str, Any] | None) -> EventArrays | None:
        """Arrays of this one event, or None where the encoder has to look at it (or to refuse it)."""
        if not self._columns <= event.keys():
            return None
        try:
            return self._encode(event, previous)
        except ConversionError:
            return None

    def _encode(self, event: Mapping[str, Any], previous: Mapping[str, Any] | None) -> EventArrays:
        schema, entity = self.schema, event[self.schema.entity]
        if type(entity) not in (int, str):
            raise ConversionError
        time = as_microseconds(event[schema.time])
        wall = time + utc_offset(event[schema.time], zone_named(schema, event))
        day, within = divmod(wall, MICROSECONDS_PER_DAY)
        values: dict[str, Any] = {}
        for feature in schema.features:
            self._feature(values, feature, event, previous, day=day, within=within)
        numbers = [values[f.name] for f in self._kinds["number"]]
        codes = [values[f.name] for f in self._kinds["category"]]
        vectors = [values[f.name] for f in self._kinds["vector"]]
        missing = [
            *(math.isnan(v) for v in numbers),
            *(c == 0 for c in codes),
            *(bool(np.isnan(v[0])) for v in vectors),
        ]
        ids = np.empty(1, dtype=object if isinstance(entity, str) else np.int64)
        ids[0] = entity
        vector_row = np.nan_to_num(np.concatenate(vectors), nan=0.0) if vectors else np.zeros(0)
        return EventArrays(
            fields=self.encoder.fields,
            entity_ids=ids,
            entity=np.zeros(1, np.int32),
            time=np.array([time]),
            day=np.array([day], np.int32),
            key=np.array([event_key(entity, time)]),
            numbers=np.array([[0.0 if math.isnan(v) else v for v in numbers]], np.float32).reshape(1, -1),
            categories=np.array([codes], np.int32).reshape(1, -1),
            vectors=vector_row[None].astype(np.float32),
            missing=np.array([missing]),
            row=np.zeros(1, np.int64),
        )

    def _feature(
        self,
        values: dict[str, Any],
        feature: Feature,
        event: Mapping[str, Any],
        previous: Mapping[str, Any] | None,
        *,
        day: int,
        within: int,
    ) -> None:
        """Field name → value in network units: NaN, 0 or a vector of NaN where missing."""
        names = feature.field_names
        if feature.kind == "categorical":
            word = self._word(feature, event, day)
            values[names[0]] = 0 if word is None else self._codes[feature.name].get(word, 0)
        elif feature.kind == "vector":
            values[names[0]] = self._vector(feature, event[feature.source[0]])
        elif feature.kind == "place":
            lat, lon = (_number(event[c]) for c in feature.source)
            for name, flat in zip(names, self.encoder.projections[feature.name].forward_one(lat, lon), strict=True):
                values[name] = self._scale(name, flat)
        else:
            value = self._value(feature, event, previous, day, within=within)
            if feature.transform == "log":
                value = math.log1p(max(value, 0.0)) if value == value else value
            if feature.kind == "cyclic":
                angle = value / feature.period * 2 * math.pi
                values[names[0]], values[names[1]] = math.cos(angle), math.sin(angle)
            else:
                values[names[0]] = self._scale(names[0], value)

    def _word(self, feature: Feature, event: Mapping[str, Any], day: int) -> str | None:
        source = feature.source[0]
        if source == "@weekday":
            return DAY_NAMES[(day + 3) % 7]
        if source == "@month":
            return f"{_month(day):02d}"
        if source == "@ends_seen":
            if any(type(event.get(name)) not in (int, float, type(None)) for name in GAP_COLUMNS):
                raise ConversionError
            return ends_seen(event)
        word = event[source]
        if type(word) is int:
            return str(word)
        if word is not None and type(word) is not str:
            raise ConversionError
        return word

    def _value(
        self, feature: Feature, event: Mapping[str, Any], previous: Mapping[str, Any] | None, day: int, *, within: int
    ) -> float:
        source, schema = feature.source[0], self.schema
        if source == "@minute_of_day":
            return within / 60e6
        if source == "@weekday":
            return float((day + 3) % 7)
        if source == "@month":
            return float(_month(day) - 1)
        start = as_microseconds(event[schema.time])
        if source == "@duration":
            end = event[schema.end] if schema.end else None
            return math.nan if end is None else (as_microseconds(end) - start) / 60e6
        if source == "@elapsed":
            if previous is None:
                return math.nan
            return (start - as_microseconds(previous[schema.end or schema.time])) / 60e6
        return _number(event[source])

    def _vector(self, feature: Feature, value: Any) -> np.ndarray:
        if value is None:
            return np.full(feature.size, np.nan)
        if not isinstance(value, (list, np.ndarray)) or len(value) != feature.size:
            raise ConversionError
        plain = np.asarray(value, np.float64)
        if np.isnan(plain).any():
            raise ConversionError
        return self.encoder.scales[feature.name].apply(plain)

    def _scale(self, name: str, value: float) -> float:
        if value != value:
            return value
        centre, scale = self._scales[name]
        return min(max((value - centre) / scale, -LIMIT), LIMIT)


def event_key(entity: int | str, time: int) -> int:
    """`tables.event_keys` of one event."""
    digest = hashlib.blake2b(str(entity).encode(), digest_size=8).digest()
    key = (int.from_bytes(digest, "little") + time * _GOLDEN) & _WORD
    key = ((key ^ (key >> 30)) * _FIRST) & _WORD
    key = ((key ^ (key >> 27)) * _SECOND) & _WORD
    return (key ^ (key >> 31)) >> 1


def as_microseconds(moment: Any) -> int:
    """A moment with a zone as microseconds since 1970, UTC."""
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ConversionError
    return microseconds(moment)


def _number(value: Any) -> float:
    """A plain number, NaN where it is missing or not finite."""
    if value is None:
        return math.nan
    if type(value) not in (int, float):
        raise ConversionError
    return float(value) if math.isfinite(value) else math.nan


def zone_named(schema: EventSchema, event: Mapping[str, Any]) -> tzinfo:
    """The zone of an event: its own, the schema's, or UTC."""
    name = schema.timezone
    if name in event:
        return _zone("UTC" if event[name] is None else event[name])
    return _zone(name if is_zone(name) or "/" in name else "UTC")


@cache
def _zone(name: str) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, TypeError, ValueError, OSError) as error:  # the encoder says it better
        raise ConversionError from error


def utc_offset(moment: datetime, zone: tzinfo) -> int:
    """Microseconds by which the wall clock of the zone is ahead of UTC."""
    if zone is UTC:
        return 0
    ahead = moment.astimezone(zone).utcoffset()
    return 0 if ahead is None else ahead // _MICROSECOND


@cache
def _month(day: int) -> int:
    return (EPOCH + timedelta(days=day)).month
