"""A first schema for a table of events, with a reason for every choice, and what is wrong with a given one.

In goes a table or a path. `infer` gives a `Proposal`, which writes itself as commented YAML for the user to edit.
`check` gives lines about what the table lacks, or holds against the schema.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import yaml

from ustad.clock import is_zone
from ustad.files import as_table
from ustad.frames import without_index
from ustad.schema import MOBILITY, EventSchema, Feature
from ustad.tables import DataError

#: At most this many rows are looked at, evenly spread.
LOOKED_AT = 200_000
#: A text column with more different values than this share of the rows is free text or an identifier.
MOSTLY_DIFFERENT = 0.5
#: Whole numbers with at most this many different values are read as codes, not as amounts.
FEW_CODES = 12
#: The mean this far beyond the middle half of the values makes a long tail.
LONG_TAIL = 1.5
ENTITY_WORDS = ("agent", "user", "card", "customer", "visitor", "account", "client", "device", "member", "person")
END_WORDS = ("finished", "end", "closed", "left", "until", "stop", "departure", "leaving")
LATITUDES, LONGITUDES = ("lat", "latitude"), ("lon", "lng", "long", "longitude")
HABITATS = ("merchant", "place", "poi", "shop", "screen", "page", "venue", "site", "location", "store")


@dataclass
class Proposal:
    """A schema and why: `reasons` by key of the file or name of the feature, `left_out` by column."""

    schema: EventSchema
    reasons: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def to_yaml(self) -> str:
        """The file with a comment for every choice."""
        lines = ["# Proposed by `ustad schema infer`. Every line is yours to change; `ustad schema check` checks it."]
        for key in ("entity", "time", "end", "event_id", "timezone", "habitat"):
            value = getattr(self.schema, key)
            if value is not None:
                lines += [f"{key}: {_plain(value)}  # {self.reasons.get(key, '')}".rstrip(" #")]
            elif key in self.reasons:
                lines.append(f"# {key}: none; {self.reasons[key]}")
        lines.append(f"entity_word: {_plain(self.schema.entity_word)}  # how reasons and pages call them")
        lines.append(f"event_word: {_plain(self.schema.event_word)}")
        lines.append("features:")
        for feature in self.schema.features:
            lines.append(f"  # {feature.name}: {self.reasons[feature.name]}")
            lines.append(f"  - {_plain(_settings(feature))}")
        lines += [f"# left out: {name}: {why}" for name, why in self.left_out.items()]
        return "\n".join(lines) + "\n"


def infer(source: Any, name: str = "events") -> Proposal:
    """Propose a schema for a table of events."""
    table = without_index(as_table(source))
    if table.num_rows == 0:
        raise DataError(f"{name}: the table is empty; there is nothing to infer from")
    return _Inference(_sample(table), name).proposal()


@dataclass
class _Inference:
    """Columns are taken one after the other; what is taken is not looked at again."""

    table: pa.Table
    name: str
    reasons: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    used_columns: set[str] = field(default_factory=set)

    def proposal(self) -> Proposal:
        time, end = self._times()
        entity = self._entity()
        event_id = self._event_id()
        features = [*self._clock_features(end), *self._places()]
        features += [f for f in map(self._feature, self._free()) if f is not None]
        schema = EventSchema(
            "events" if self.name == MOBILITY else self.name,
            tuple(features), entity, time, end, event_id, self._timezone(), self._habitat(features),
            _word(entity) or "entity", _word(event_id or "") or "event",
        )  # fmt: skip
        return Proposal(schema, self.reasons, self.left_out)

    def _free(self) -> list[str]:
        return [c for c in self.table.column_names if c not in self.used_columns]

    # ---------------------------------------------------------------------------------- who and when
    def _times(self) -> tuple[str, str | None]:
        times = [c for c in self._free() if _is_time(self.table[c])]
        if not times:
            raise DataError(f"{self.name}: no column holds times; found {', '.join(self.table.column_names)}")
        ends = [c for c in times[1:] if any(word in c.lower() for word in END_WORDS)]
        start, end = times[0], (ends[0] if ends else None)
        self.reasons["time"] = f"the first column of times ({self.table[start].type})"
        if end is not None:
            self.reasons["end"] = "a second column of times, named like an end"
        for column in times:
            self.used_columns.add(column)
            if column not in (start, end):
                self.left_out[column] = "another column of times; `@duration` and `@elapsed` come from time and end"
        return start, end

    def _entity(self) -> str:
        """An identifier that repeats: by its name, else the one that repeats most evenly."""
        ids = [c for c in self._free() if _is_identifier(self.table[c]) and 1 < _distinct(self.table[c]) < len(self)]
        candidates = [c for c in ids if any(word in c.lower() for word in ENTITY_WORDS)]
        candidates = candidates or [c for c in ids if c.lower().endswith("id")]
        if not candidates:
            columns = ", ".join(self.table.column_names)
            raise DataError(f"{self.name}: no column looks like who an event belongs to; found {columns}")
        best = max(candidates, key=lambda c: _distinct(self.table[c]))
        self.used_columns.add(best)
        count = _distinct(self.table[best])
        self.reasons["entity"] = f"{count:,} different values in {len(self):,} rows, named like somebody"
        return best

    def _event_id(self) -> str | None:
        for column in self._free():
            if column.lower().endswith("id") and _is_identifier(self.table[column]) and self._all_different(column):
                self.used_columns.add(column)
                self.reasons["event_id"] = "every row has its own value"
                return column
        self.reasons["event_id"] = "no column has a value of its own in every row, so entity and time identify an event"
        return None

    def _all_different(self, column: str) -> bool:
        return self.table[column].null_count == 0 and _distinct(self.table[column]) == len(self)

    def _timezone(self) -> str:
        for column in self._free():
            if column.lower() in ("timezone", "time_zone", "tz", "zone"):
                self.reasons["timezone"] = "a column of zones"
                self.left_out.pop(column, None)
                return column
        self.reasons["timezone"] = "hours and weekdays are of this zone: write the one your people live in"
        return "UTC"

    # ---------------------------------------------------------------------------------------- features
    def _clock_features(self, end: str | None) -> list[Feature]:
        hour, weekday = self._new("hour"), self._new("weekday")
        self.reasons[hour] = "when an event happens is part of a habit; on a circle, so that 23:59 is near 00:01"
        self.reasons[weekday] = "tells the days apart; not scored, because the date is not the entity's choice"
        features = [
            Feature(hour, "cyclic", ("@minute_of_day",), period=1440.0, display="clock"),
            Feature(weekday, "categorical", ("@weekday",), display="weekday", scored=False),
        ]
        if end is not None:
            name, source = self._new("duration"), "@duration"
            self.reasons[name] = "from time to end, in minutes; log, because durations have long tails"
        else:
            name, source = self._new("waited"), "@elapsed"
            self.reasons[name] = "minutes since the entity's previous event; log, because waits have long tails"
        return [*features, Feature(name, "numeric", (source,), transform="log", display="duration")]

    def _new(self, name: str) -> str:
        """A name for a derived feature that no column has."""
        return self._new(f"event_{name}") if name in self.table.column_names else name

    def _places(self) -> list[Feature]:
        names = {c.lower(): c for c in self._free()}
        lat = next((names[n] for n in LATITUDES if n in names), None)
        lon = next((names[n] for n in LONGITUDES if n in names), None)
        if lat is None or lon is None:
            return []
        self.used_columns |= {lat, lon}
        name = self._new("position" if {"x", "y"} & set(names) else "place")  # a `place` has the fields x and y
        self.reasons[name] = "latitude and longitude in degrees: one place, in kilometres"
        return [Feature(name, "place", (lat, lon), unit="km", display="distance")]

    def _feature(self, column: str) -> Feature | None:
        values = self.table[column]
        if values.null_count == len(self):
            return self._without(column, "holds no value")
        kind = values.type
        if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind):
            return self._vector(column, values)
        if _is_text(kind) or pa.types.is_boolean(kind):
            return self._category(column, values)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return self._number(column, values)
        return self._without(column, f"{kind} is not a number, a category or a vector")

    def _category(self, column: str, values: pa.ChunkedArray) -> Feature | None:
        count = _distinct(values)
        if column.lower() in ("timezone", "time_zone", "tz", "zone"):
            return None
        if count < 2:
            return self._without(column, "has one value only")
        if count > max(50, MOSTLY_DIFFERENT * (len(self) - values.null_count)):
            return self._without(column, f"{count:,} different texts in {len(self):,} rows: free text or an identifier")
        rare = "; the rarest are read as unknown" if count > 10_000 else ""
        self.reasons[column] = f"{count:,} different values{rare}{self._missing(values)}"
        return Feature(column, "categorical", display="category")

    def _number(self, column: str, values: pa.ChunkedArray) -> Feature | None:
        numbers = pc.drop_null(values).cast(pa.float64(), safe=False).to_numpy()
        numbers = numbers[np.isfinite(numbers)]
        if len(numbers) == 0 or numbers.min() == numbers.max():
            return self._without(column, "has one value only")
        if pa.types.is_integer(values.type):
            if self._all_different(column):
                return self._without(column, "a different whole number in every row: an identifier")
            if _distinct(values) <= FEW_CODES:
                self.reasons[column] = f"whole numbers with {_distinct(values)} values: codes{self._missing(values)}"
                return Feature(column, "categorical", display="category")
        if _long_tailed(numbers):
            self.reasons[column] = f"a number with a long tail and nothing below 0: log{self._missing(values)}"
            return Feature(column, "numeric", transform="log")
        self.reasons[column] = f"a number without a long tail{self._missing(values)}"
        return Feature(column, "numeric")

    def _vector(self, column: str, values: pa.ChunkedArray) -> Feature | None:
        lengths = pc.unique(pc.list_value_length(values).drop_null()).to_pylist()
        if len(lengths) != 1 or lengths[0] < 1 or not _holds_numbers(values.type):
            return self._without(column, "lists of different lengths, or not of numbers")
        self.reasons[column] = f"lists of {lengths[0]} numbers{self._missing(values)}"
        return Feature(column, "vector", size=int(lengths[0]))

    def _habitat(self, features: list[Feature]) -> str | None:
        """The column that says where an entity is at home."""
        words = [f.name for f in features if f.kind == "categorical" and f.columns]
        candidates = [c for c in words if any(word in c.lower() for word in HABITATS)]
        if candidates:
            self.reasons["habitat"] = "named like a place; an entity's own history is counted by it"
            return candidates[0]
        if words:
            richest = max(words, key=lambda c: _distinct(self.table[c]))
            self.reasons["habitat"] = "the category with most values; an entity's own history is counted by it"
            return richest
        self.reasons["habitat"] = "no category to count an entity's own history by"
        return None

    def _missing(self, values: pa.ChunkedArray) -> str:
        share = values.null_count / max(len(values), 1)
        return f"; {share:.1%} are missing and stay so" if share else ""

    def _without(self, column: str, why: str) -> Feature | None:
        """No feature, and why."""
        self.left_out[column] = why
        return None

    def __len__(self) -> int:
        return int(self.table.num_rows)


# ---------------------------------------------------------------------------------------------- checking
def check(schema: EventSchema, source: Any = None) -> list[str]:
    """What is wrong, one line each, with what to do; empty where all is well. Without a table: the schema alone."""
    if source is None:
        return _check_zone_name(schema, ())
    table = as_table(source)
    if table.num_rows == 0:
        return ["the table is empty"]
    problems = _check_zone_name(schema, table.column_names)
    for column in schema.columns:
        if column not in table.column_names:
            columns = ", ".join(table.column_names)
            problems.append(f"column '{column}' is not in the table; found {columns}")
    for column in filter(None, (schema.time, schema.end)):
        if column in table.column_names:
            problems += _check_time(table[column], column, schema)
    if schema.entity in table.column_names and table[schema.entity].null_count:
        problems.append(f"entity '{schema.entity}': {table[schema.entity].null_count:,} rows are missing; drop them")
    if schema.event_id in table.column_names and _distinct(table[schema.event_id]) < table.num_rows:
        problems.append(f"event_id '{schema.event_id}' repeats values; leave it out, and entity and time identify")
    for feature in schema.features:
        if set(feature.columns) <= set(table.column_names):
            problems += [f"feature '{feature.name}': {text}" for text in _check_feature(table, feature)]
    if schema.habitat is not None and schema.habitat not in table.column_names:
        problems.append(f"habitat '{schema.habitat}' is not in the table; leave it out or name a column")
    return problems


def _check_zone_name(schema: EventSchema, columns: tuple[str, ...] | list[str]) -> list[str]:
    """The zone is a column, or a name that the zone data knows."""
    name = schema.timezone
    if name in columns or is_zone(name) or not (columns or "/" in name):  # without a table it may be a column
        return []
    return [f"timezone '{name}' is neither a column nor a known zone; use an IANA name such as Europe/Helsinki"]


def _check_time(column: pa.ChunkedArray, name: str, schema: EventSchema) -> list[str]:
    if not _is_time(column):
        return [f"column '{name}' is {column.type}; expected times, or text like 2024-01-31T08:15:00+00:00"]
    if column.null_count:
        return [f"column '{name}': {column.null_count:,} of {len(column):,} rows have no time; drop them"]
    if pa.types.is_timestamp(column.type) and column.type.tz is None and not is_zone(schema.timezone):
        return [f"column '{name}' has times without a zone; say which with --timezone, or as the schema's timezone"]
    return []


def _check_feature(table: pa.Table, feature: Feature) -> list[str]:
    problems = []
    for column in feature.columns:
        values = table[column]
        if values.null_count == len(values):
            problems.append(f"column '{column}' holds no value; leave the feature out")
        elif feature.kind in ("numeric", "cyclic", "place") and not _is_number(values.type):
            problems.append(f"column '{column}' is {values.type}, not a number; make it categorical")
        elif feature.kind == "vector" and not pa.types.is_nested(values.type):
            problems.append(f"column '{column}' is {values.type}, not lists of numbers")
        elif feature.kind == "categorical" and _distinct(values) > feature.max_categories:
            limit = f"only the {feature.max_categories:,} most frequent are kept"
            problems.append(f"column '{column}' has {_distinct(values):,} values; {limit} (max_categories)")
        elif feature.transform == "log" and _lowest(values) < 0:
            problems.append(f"column '{column}' has values below 0, which log cannot take; use transform: none")
    return problems


# --------------------------------------------------------------------------------------- looking at columns
def _sample(table: pa.Table) -> pa.Table:
    if table.num_rows <= LOOKED_AT:
        return table
    return table.take(pa.array(np.linspace(0, table.num_rows - 1, LOOKED_AT).astype(np.int64)))


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _is_identifier(column: pa.ChunkedArray) -> bool:
    return _is_text(column.type) or pa.types.is_integer(column.type)


def _is_time(column: pa.ChunkedArray) -> bool:
    """Timestamps, or text whose first values are times."""
    if pa.types.is_timestamp(column.type):
        return True
    if not _is_text(column.type):
        return False
    first = pc.drop_null(column).slice(0, 20).cast(pa.string())
    for kind in (pa.timestamp("us", tz="UTC"), pa.timestamp("us")):
        try:
            return len(first.cast(kind)) > 0
        except pa.ArrowInvalid:
            continue
    return False


def _word(column: str) -> str:
    """What an identifier's column says it names: `card_id` a card, `userId` a user, `id` nothing."""
    return re.sub(r"(?i:[_ ](id|key|number)|^id)$|(?<=[a-z])I[dD]$", "", column).replace("_", " ").strip().lower()


def _holds_numbers(kind: pa.DataType) -> bool:
    return _is_number(kind.value_type)


def _distinct(column: pa.ChunkedArray) -> int:
    return int(pc.count_distinct(column).as_py())


def _lowest(column: pa.ChunkedArray) -> float:
    value = pc.min(column).as_py()
    return 0.0 if value is None else float(value)


def _long_tailed(values: np.ndarray) -> bool:
    """Nothing below 0, and the highest 1 % far beyond the middle half, measured from the median."""
    if values.min() < 0:
        return False
    low, middle, high, top = np.quantile(values, [0.25, 0.5, 0.75, 0.99])
    return bool(top - middle > 2 * LONG_TAIL * max(high - low, 1e-12))


def _settings(feature: Feature) -> dict[str, Any]:
    """What has to be written of a feature: everything that is not its default."""
    plain = Feature(feature.name, feature.kind, feature.source, feature.period, size=feature.size)
    content: dict[str, Any] = {"name": feature.name, "kind": feature.kind}
    if feature.source != (feature.name,):
        content["source"] = list(feature.source)
    content |= {key: getattr(feature, key) for key in ("period", "size") if getattr(feature, key)}
    for key in ("transform", "scored", "unit", "display"):
        if getattr(feature, key) != getattr(plain, key):
            content[key] = getattr(feature, key)
    return content


def _plain(value: Any) -> str:
    """One line of YAML."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000).replace("\n...", "").strip()
