"""Between tables and the store's rows: score tables in, rows and details out; rows in, a table of events out.

Which column is the agent, the time, the place and the category follows from the schema, so that any events that a
model was trained on can be served. What has no column of its own in the store is kept in the detail (`given`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ustad.dataset import event_days, zone_of
from ustad.schema import EventSchema
from ustad.service import records
from ustad.service.store import Row
from ustad.tables import TIMESTAMP, event_keys

PARTS = ("expected", "observed", "loss", "error", "au", "eu", "pct", "spread")
#: Columns of the score table that belong to the event as a whole.
WHOLE = ("knn", "pct_knn", "history_days", "expected_lat", "expected_lon")
_TEXTS = ("event_id", "poi_id", "category")
_SCORES = ("score", "p_value", "kind", "reason")
_COLUMNS = tuple(c.name for c in records.events.columns if c.name not in ("verdict", "marked_by"))


@dataclass(frozen=True)
class Layout:
    """Which columns of an event table stand in which columns of the store."""

    schema: EventSchema
    lat: str | None
    lon: str | None
    category: str | None

    @classmethod
    def of(cls, schema: EventSchema) -> Layout:
        place = next((f for f in schema.features if f.kind == "place"), None)
        category = next((f for f in schema.features if f.kind == "categorical" and f.columns), None)
        lat, lon = place.source if place else (None, None)
        return cls(schema, lat, lon, category.columns[0] if category else None)

    @property
    def columns(self) -> dict[str, str]:
        """Column of the store → column of the table."""
        named = {
            "event_id": self.schema.event_id, "lat": self.lat, "lon": self.lon, "category": self.category,
            "poi_id": "poi_id", "n_fixes": "n_fixes", "start_gap_s": "start_gap_s", "end_gap_s": "end_gap_s",
        }  # fmt: skip
        return {ours: theirs for ours, theirs in named.items() if theirs}

    @property
    def given(self) -> tuple[str, ...]:
        """Columns the model reads that have no column of their own in the store."""
        own = {*self.columns.values(), self.schema.entity, self.schema.time, self.schema.end}
        return tuple(c for c in self.schema.columns if c not in own)


def keys_of(events: pa.Table, schema: EventSchema) -> list[int]:
    return event_keys(events[schema.entity], events[schema.time]).tolist()


def store_rows(
    events: pa.Table, layout: Layout, scored: Sequence[Mapping[str, Any]] | None = None
) -> tuple[list[Row], dict[int, str]]:
    """Rows for the store and, by key, details as JSON.

    `scored` holds the columns of scores for each event; without it they are looked for in `events` itself.
    """
    schema, own = layout.schema, set(events.column_names)
    found = events.drop_columns([n for n in (schema.time, schema.end) if n]).to_pylist()
    values: Sequence[Mapping[str, Any]] = [{**e, **s} for e, s in zip(found, scored, strict=True)] if scored else found
    parts = _parts_of({*own, *(scored[0] if scored else ())}, schema)
    rows, details = [], {}
    for value, fixed in zip(values, _fixed(events, schema), strict=True):
        row = {**fixed, "term": _driver(value, parts), "alert": bool(value.get("alert"))}
        for ours, theirs in layout.columns.items():
            row[ours] = _finite(value.get(theirs))
        for name in _TEXTS:
            row[name] = None if row.get(name) is None else str(row[name])
        for name in _SCORES:
            row[name] = _finite(value.get(name))
        rows.append({name: row.get(name) for name in _COLUMNS})
        details[row["key"]] = _detail(value, parts, layout)
    return rows, details


def _fixed(events: pa.Table, schema: EventSchema) -> Iterator[Row]:
    """What follows from an event's agent, times and zone."""
    zones = zone_of(events, schema)
    finished = events[schema.end] if schema.end else events[schema.time]
    columns: dict[str, list[Any]] = {
        "key": keys_of(events, schema),
        "agent": [str(a) for a in events[schema.entity].to_pylist()],
        "started_at": events[schema.time].cast(pa.int64()).to_pylist(),
        "finished_at": finished.cast(pa.int64()).to_pylist(),
        "day": event_days(events, schema).tolist(),
        "timezone": [zones] * events.num_rows if isinstance(zones, str) else zones.to_pylist(),
    }
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _parts_of(names: set[str], schema: EventSchema) -> dict[str, list[str]]:
    """Which parts the score table has of each term; the expected value of a vector says nobody anything."""
    parts = {t.name: [p for p in PARTS if f"{p}_{t.name}" in names] for t in schema.terms()}
    vectors = {t.name for t in schema.terms() if t.kind == "vector"}
    return {t: [p for p in found if p != "expected" or t not in vectors] for t, found in parts.items() if found}


def _driver(value: Mapping[str, Any], parts: dict[str, list[str]]) -> str | None:
    """The term with the highest percentile; `knn` where that is the distance to known events."""
    shares = [(value.get(f"pct_{term}"), term) for term in (*parts, "knn")]
    known = [(share, term) for share, term in shares if share is not None and share == share]
    return max(known, key=lambda pair: pair[0])[1] if known else None


def _detail(value: Mapping[str, Any], parts: dict[str, list[str]], layout: Layout) -> str:
    content = {
        "terms": {t: {p: _finite(value.get(f"{p}_{t}")) for p in found} for t, found in parts.items()},
        "given": {n: _plain(value[n]) for n in layout.given if n in value},
        **{n: _finite(value[n]) for n in WHOLE if n in value},
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def event_table(rows: Sequence[Mapping[str, Any]], layout: Layout) -> pa.Table:
    """Events as the model reads them, from rows of the store (with `given`, a mapping, where there is more)."""
    schema = layout.schema
    table: dict[str, pa.Array] = {
        schema.entity: pa.array([row["agent"] for row in rows], pa.string()),
        schema.time: pa.array([row["started_at"] for row in rows], pa.int64()).cast(TIMESTAMP),
    }
    if schema.end:
        table[schema.end] = pa.array([row["finished_at"] for row in rows], pa.int64()).cast(TIMESTAMP)
    types = {"lat": pa.float64(), "lon": pa.float64(), "n_fixes": pa.int32(), "start_gap_s": pa.float64(),
             "end_gap_s": pa.float64()}  # fmt: skip
    for ours, theirs in layout.columns.items():
        table[theirs] = pa.array([row.get(ours) for row in rows], types.get(ours, pa.string()))
    vectors = {c for f in schema.features if f.kind == "vector" for c in f.columns}
    texts = {c for f in schema.features if f.kind == "categorical" for c in f.columns}
    for name in layout.given:
        kind = pa.list_(pa.float32()) if name in vectors else pa.string() if name in texts else pa.float64()
        table[name] = pa.array([(row.get("given") or {}).get(name) for row in rows], kind)
    if "/" not in schema.timezone and schema.timezone != "UTC":
        table[schema.timezone] = pa.array([row["timezone"] for row in rows], pa.string())
    return pa.table(table)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value if isinstance(value, (int, str, bool, type(None))) else str(value)


def _finite(value: Any) -> Any:
    """The value; none instead of NaN and infinity, which JSON does not have."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
