"""Tables of events to arrays and back: fitted on training data once, stored with the model, invertible.

In goes a table that keeps a schema; out come arrays sorted by entity and time, in the network's units. Numbers
are centred and scaled robustly, a cyclic value becomes a point on the unit circle, a place becomes kilometres
from one fitted centre, a category becomes a code (0 is `unknown`). What is missing is marked, never imputed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import DAY_NAMES, LocalTime, local_time
from ustad.dataset import zone_of
from ustad.events.observed import ENDS_SEEN, length_weight, read_ends_seen, read_gaps, start_weight
from ustad.geo import Projection
from ustad.schema import EventSchema, Feature, Field, Term
from ustad.tables import DataError, agent_codes, event_keys

UNKNOWN = "unknown"
#: Encoded numbers saturate here, so that one absurd value cannot overflow a loss.
LIMIT = 1e4


@dataclass(frozen=True)
class EventArrays:
    """N events of E entities, sorted by entity and time. Columns of `missing` follow `fields`."""

    fields: tuple[Field, ...]
    entity_ids: np.ndarray  # [E] as in the table
    entity: np.ndarray  # int32 [N] index into entity_ids, ascending
    time: np.ndarray  # int64 [N] microseconds UTC of the start
    day: np.ndarray  # int32 [N] local date; never falls within an entity
    key: np.ndarray  # int64 [N] identity of the event (tables.event_keys)
    numbers: np.ndarray  # float32 [N, number fields]
    categories: np.ndarray  # int32 [N, category fields]
    vectors: np.ndarray  # float32 [N, sum of vector sizes]
    missing: np.ndarray  # bool [N, F]
    row: np.ndarray  # int64 [N] row of the table that each event came from
    early: np.ndarray | None = None  # float32 [N] minutes that each may have begun earlier; None: all was observed
    late: np.ndarray | None = None  # float32 [N] minutes that each may have ended later
    weight: np.ndarray | None = None  # float32 [N, F] how much each field counts in what is learned; None: 1

    def __len__(self) -> int:
        return len(self.entity)

    @property
    def offsets(self) -> np.ndarray:
        """[E + 1]: events of entity e are offsets[e] … offsets[e + 1]."""
        return np.searchsorted(self.entity, np.arange(len(self.entity_ids) + 1))


@dataclass
class Scale:
    """Centre and scale of one number (or of each channel of a vector)."""

    centre: list[float] = field(default_factory=lambda: [0.0])
    scale: list[float] = field(default_factory=lambda: [1.0])

    @classmethod
    def fit(cls, values: np.ndarray, how: str = "spread") -> Scale:
        """Median and half the central 68 %, falling back to the standard deviation, then to 1. values [n, k].

        With `minmax` the smallest value and the range, so that what is learned from lies between 0 and 1.
        """
        centre, scale = [], []
        for column in values.T:
            column = column[np.isfinite(column)]
            low, middle, high = np.quantile(column, [0.16, 0.5, 0.84]) if len(column) else (0.0, 0.0, 0.0)
            spread = (high - low) / 2 or (float(column.std()) if len(column) else 0.0)
            if how == "minmax" and len(column):
                middle, spread = column.min(), np.ptp(column)
            centre.append(float(middle))
            scale.append(float(spread) if np.isfinite(spread) and spread > 1e-9 else 1.0)
        return cls(centre, scale)

    def apply(self, values: np.ndarray) -> np.ndarray:
        ratio = (values - np.array(self.centre)) / np.array(self.scale)
        return np.clip(np.nan_to_num(ratio, nan=0.0, posinf=LIMIT, neginf=-LIMIT), -LIMIT, LIMIT)

    def undo(self, values: np.ndarray) -> np.ndarray:
        return values * np.array(self.scale) + np.array(self.centre)


class Encoder:
    """Fitted on training events; turns any events of the same schema into arrays, and numbers back."""

    def __init__(
        self,
        schema: EventSchema,
        scales: dict[str, Scale],
        categories: dict[str, list[str]],
        projections: dict[str, Projection],
    ) -> None:
        self.schema, self.scales, self.categories, self.projections = schema, scales, categories, projections
        self.fields = _fields(schema, categories)
        self.terms: tuple[Term, ...] = schema.terms()

    # ---------------------------------------------------------------------------------------- fitting
    @classmethod
    def fit(cls, events: pa.Table, schema: EventSchema, scaling: str = "spread") -> Encoder:
        """Learn centres, scales (`Scale.fit`), categories and the projection from training events."""
        check_columns(events, schema)
        clock = local_time(events[schema.time], zone_of(events, schema))
        scales, categories, projections = {}, {}, {}
        for feature in schema.features:
            if feature.kind == "categorical":
                categories[feature.name] = _fit_categories(read_words(events, feature, clock), feature)
            elif feature.kind == "place":
                lat, lon = (_floats(events[c]) for c in feature.source)
                has_place = np.isfinite(lat) & np.isfinite(lon)
                projection = Projection.fit(lat[has_place], lon[has_place]) if has_place.any() else Projection(0.0, 0.0)
                projections[feature.name] = projection
                for name, values in zip(feature.field_names, projection.forward(lat, lon), strict=True):
                    scales[name] = Scale.fit(values[:, None], scaling)
            elif feature.kind == "numeric":
                scales[feature.name] = Scale.fit(read_number(events, feature, schema, clock)[:, None], scaling)
            elif feature.kind == "vector":
                scales[feature.name] = Scale.fit(read_vector(events, feature), scaling)
        return cls(schema, scales, categories, projections)

    # --------------------------------------------------------------------------------------- encoding
    def encode(self, events: pa.Table) -> EventArrays:
        """Arrays of all rows, sorted by entity and time; `row` leads back to the table."""
        check_columns(events, self.schema)
        clock = local_time(events[self.schema.time], zone_of(events, self.schema))
        columns: dict[str, np.ndarray] = {}
        for feature in self.schema.features:
            columns.update(self._encode_feature(events, feature, clock))
        entity, ids = agent_codes(events[self.schema.entity])
        time = events[self.schema.time].cast(pa.int64()).to_numpy()
        order = np.lexsort((time, entity))
        missing = np.stack([_missing(columns[f.name], f) for f in self.fields], axis=1)
        return EventArrays(
            fields=self.fields,
            entity_ids=ids,
            entity=entity[order].astype(np.int32),
            time=time[order],
            day=_rising(clock.day[order], entity[order]),
            key=event_keys(events[self.schema.entity], events[self.schema.time])[order],
            numbers=self._stack(columns, "number", np.float32)[order],
            categories=self._stack(columns, "category", np.int32)[order],
            vectors=self._stack(columns, "vector", np.float32)[order],
            missing=missing[order],
            row=order,
            **self._gaps(events, order),
        )

    def _gaps(self, events: pa.Table, order: np.ndarray) -> dict[str, np.ndarray]:
        gaps = read_gaps(events)
        if not any(values.any() for values in gaps):
            return {}
        early, late = (values[order].astype(np.float32) for values in gaps)
        columns = {"early": early, "late": late}
        if any("@ends_seen" in feature.source for feature in self.schema.features):
            columns["weight"] = self._weight(early, late)
        return columns

    def _weight(self, early: np.ndarray, late: np.ndarray) -> np.ndarray:
        """How much each field of each event counts in what is learned: less where nobody saw the time. [N, F]."""
        weight = np.ones((len(early), len(self.fields)), np.float32)
        names = [f.name for f in self.fields]
        for feature in self.schema.features:
            weights = {"@minute_of_day": start_weight(early), "@duration": length_weight(early, late)}
            if feature.source[0] in weights:
                columns = [names.index(name) for name in feature.field_names]
                weight[:, columns] = weights[feature.source[0]][:, None]
        return weight

    def _encode_feature(self, events: pa.Table, feature: Feature, clock: LocalTime) -> dict[str, np.ndarray]:
        """Field name → values [n] or [n, size], NaN (or code 0) where missing."""
        names = feature.field_names
        if feature.kind == "categorical":
            words = pa.array(self.categories[feature.name], pa.string())
            codes = pc.fill_null(pc.index_in(read_words(events, feature, clock), words), -1).to_numpy() + 1
            return {names[0]: codes}
        if feature.kind == "cyclic":
            angle = read_number(events, feature, self.schema, clock) / feature.period * 2 * np.pi
            return {names[0]: np.cos(angle), names[1]: np.sin(angle)}
        if feature.kind == "place":
            lat, lon = (_floats(events[c]) for c in feature.source)
            flat = self.projections[feature.name].forward(lat, lon)
            return {n: _scale(self.scales[n], v[:, None])[:, 0] for n, v in zip(names, flat, strict=True)}
        if feature.kind == "vector":
            return {names[0]: _scale(self.scales[names[0]], read_vector(events, feature))}
        values = read_number(events, feature, self.schema, clock)
        return {names[0]: _scale(self.scales[names[0]], values[:, None])[:, 0]}

    def _stack(self, columns: dict[str, np.ndarray], kind: str, dtype: Any) -> np.ndarray:
        parts = [columns[f.name].reshape(-1, f.size if kind == "vector" else 1) for f in self.fields if f.kind == kind]
        n = len(next(iter(columns.values())))
        matrix = np.concatenate(parts, axis=1) if parts else np.zeros((n, 0))
        return np.nan_to_num(matrix, nan=0.0).astype(dtype)

    # --------------------------------------------------------------------------------------- decoding
    def decode_number(self, name: str, values: np.ndarray) -> np.ndarray:
        """Network units of one number field back to the feature's own (minutes, kilometres, …)."""
        plain = (
            self.scales[name].undo(np.asarray(values, np.float64)[..., None])[..., 0] if name in self.scales else values
        )
        return np.expm1(plain) if self._transform(name) == "log" else plain

    def encode_number(self, name: str, values: np.ndarray) -> np.ndarray:
        """The inverse of `decode_number`."""
        plain = np.log1p(np.maximum(values, 0.0)) if self._transform(name) == "log" else values
        return self.scales[name].apply(plain[..., None])[..., 0] if name in self.scales else plain

    def decode_spread(self, name: str, deviation: np.ndarray, at: np.ndarray) -> np.ndarray:
        """A standard deviation in network units around `at` (network units), in the feature's own units."""
        if self._transform(name) == "log":
            return (self.decode_number(name, at + deviation) - self.decode_number(name, at - deviation)) / 2
        scale = self.scales[name].scale[0] if name in self.scales else 1.0
        return deviation * scale

    def decode_angle(self, feature: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """A point near the circle back to the cyclic feature's unit, 0 ≤ value < period."""
        period = self.schema.feature(feature).period
        return (np.arctan2(y, x) / (2 * np.pi) * period) % period

    def decode_place(self, feature: str, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Network units of a place's two fields back to (lat, lon) degrees."""
        names = self.schema.feature(feature).field_names
        return self.projections[feature].backward(self.decode_number(names[0], x), self.decode_number(names[1], y))

    def decode_category(self, name: str, codes: np.ndarray) -> np.ndarray:
        """Codes back to words; 0 is `unknown`."""
        return np.array([UNKNOWN, *self.categories[name]], dtype=object)[np.asarray(codes)]

    def decode_vector(self, name: str, values: np.ndarray) -> np.ndarray:
        return self.scales[name].undo(np.asarray(values, np.float64))

    def _transform(self, name: str) -> str:
        feature = next((f for f in self.schema.features if f.name == name), None)
        return feature.transform if feature is not None else "none"

    # ---------------------------------------------------------------------------------------- storing
    def to_dict(self) -> dict[str, Any]:
        return {
            "schema": self.schema.to_dict(),
            "scales": {k: {"centre": v.centre, "scale": v.scale} for k, v in self.scales.items()},
            "categories": self.categories,
            "projections": {k: {"lat": v.lat, "lon": v.lon} for k, v in self.projections.items()},
        }

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Encoder:
        return cls(
            EventSchema.from_dict(content["schema"]),
            {k: Scale(**v) for k, v in content["scales"].items()},
            {k: list(v) for k, v in content["categories"].items()},
            {k: Projection(**v) for k, v in content["projections"].items()},
        )


def check_columns(events: pa.Table, schema: EventSchema) -> None:
    """A DataError that names what the table lacks."""
    lacking = [c for c in schema.columns if c not in events.column_names]
    if lacking:
        raise DataError(
            f"{schema.name}: missing column{'s' if len(lacking) > 1 else ''} {', '.join(lacking)}; "
            f"found {', '.join(events.column_names)}"
        )
    if events.num_rows == 0:
        raise DataError(f"{schema.name}: the table of events is empty")
    if not pa.types.is_timestamp(events[schema.time].type) or events[schema.time].type.tz is None:
        raise DataError(f"{schema.name}: column '{schema.time}' must hold times with a time zone")


def _fields(schema: EventSchema, categories: dict[str, list[str]]) -> tuple[Field, ...]:
    """Numbers, then categories, then vectors: the order of the network's tokens."""
    fields: list[Field] = []
    for feature in schema.features:
        for name in feature.field_names:
            if feature.kind == "categorical":
                fields.append(Field(name, "category", len(categories[feature.name]) + 1))
            elif feature.kind == "vector":
                fields.append(Field(name, "vector", feature.size))
            else:
                fields.append(Field(name, "number"))
    return tuple(sorted(fields, key=lambda f: ("number", "category", "vector").index(f.kind)))


def _fit_categories(values: pa.Array, feature: Feature) -> list[str]:
    """Every known word, the most frequent first where there are too many; then in alphabetical order."""
    if "@weekday" in feature.source:
        return list(DAY_NAMES)
    if "@ends_seen" in feature.source:
        return list(ENDS_SEEN)
    counts = pc.value_counts(values.drop_null())
    words = counts.field("values").to_pylist()
    by_count = sorted(zip(words, counts.field("counts").to_pylist(), strict=True), key=lambda p: (-p[1], p[0]))
    frequent = [word for word, _ in by_count if word != UNKNOWN][: feature.max_categories]
    return sorted(frequent)


def read_words(events: pa.Table, feature: Feature, clock: LocalTime) -> pa.Array:
    """The feature's values as text, null where missing."""
    source = feature.source[0]
    if source == "@weekday":
        return pa.array(DAY_NAMES, pa.string()).take(pa.array(clock.weekday))
    if source == "@month":
        return pa.array([f"{m:02d}" for m in range(1, 13)], pa.string()).take(pa.array(clock.month - 1))
    if source == "@ends_seen":
        return pa.array(ENDS_SEEN, pa.string()).take(pa.array(read_ends_seen(events)))
    column = events[source]
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    text = column.cast(pa.string())
    return text.combine_chunks() if isinstance(text, pa.ChunkedArray) else text


def read_number(events: pa.Table, feature: Feature, schema: EventSchema, clock: LocalTime) -> np.ndarray:
    """The feature's values before scaling, NaN where missing: float64 [n]."""
    source = feature.source[0]
    if source == "@minute_of_day":
        values = clock.minute
    elif source == "@weekday":
        values = clock.weekday.astype(np.float64)
    elif source == "@month":
        values = clock.month.astype(np.float64) - 1
    elif source == "@duration":
        values = _minutes(events[schema.time], events[schema.end])
    elif source == "@elapsed":
        values = _minutes_since_previous(events, schema)
    else:
        values = _floats(events[source])
    return np.log1p(np.maximum(values, 0.0)) if feature.transform == "log" else values


def _minutes(start: pa.ChunkedArray, end: pa.ChunkedArray) -> np.ndarray:
    difference = pc.subtract(end.cast(pa.int64()), start.cast(pa.int64()))
    return pc.fill_null(pc.divide(difference.cast(pa.float64()), 60e6), np.nan).to_numpy()


def _minutes_since_previous(events: pa.Table, schema: EventSchema) -> np.ndarray:
    entity, _ = agent_codes(events[schema.entity])
    start = events[schema.time].cast(pa.int64()).to_numpy()
    end = events[schema.end].cast(pa.int64()).to_numpy() if schema.end else start
    order = np.lexsort((start, entity))
    gap = np.full(len(order), np.nan)
    same = entity[order][1:] == entity[order][:-1]
    gap[order[1:][same]] = (start[order][1:] - end[order][:-1])[same] / 60e6
    return gap


def _floats(column: pa.ChunkedArray) -> np.ndarray:
    try:
        values = pc.fill_null(column.cast(pa.float64(), safe=False), np.nan).to_numpy().astype(np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(f"a numeric feature reads a column of {column.type}; expected numbers") from error
    values[~np.isfinite(values)] = np.nan
    return values


def read_vector(events: pa.Table, feature: Feature) -> np.ndarray:
    """float64 [n, size], a row of NaN where the vector is missing."""
    column = events[feature.source[0]]
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks)
    if pa.types.is_null(column.type):  # a table of rows that all lack it
        return np.full((len(column), feature.size), np.nan)
    present = ~pc.is_null(column).to_numpy(zero_copy_only=False)
    lengths = pc.fill_null(pc.list_value_length(column), feature.size).to_numpy(zero_copy_only=False)
    if (lengths != feature.size).any():
        raise DataError(f"vector '{feature.name}': expected {feature.size} numbers in each row, found {lengths.max()}")
    values = np.full((len(column), feature.size), np.nan)
    flat = pc.list_flatten(column.drop_null()).cast(pa.float64())
    values[present] = flat.to_numpy(zero_copy_only=False).reshape(-1, feature.size)
    return values


def _scale(scale: Scale, values: np.ndarray) -> np.ndarray:
    """Scaled values that stay NaN where they were missing."""
    return np.where(np.isnan(values), np.nan, scale.apply(values))


def _missing(values: np.ndarray, field: Field) -> np.ndarray:
    if field.kind == "category":
        return values == 0
    return np.isnan(values).any(axis=1) if field.kind == "vector" else np.isnan(values)


def _rising(day: np.ndarray, entity: np.ndarray) -> np.ndarray:
    """Local dates that never fall within an entity: a traveller over the date line stays on the later date."""
    keys = day.astype(np.int64) + entity.astype(np.int64) * (1 << 32)
    return (np.maximum.accumulate(keys) - entity.astype(np.int64) * (1 << 32)).astype(np.int32)
