"""Between tables and the store's rows: score tables in, rows and details out; rows in, a table of events out.

Which column is the agent, the time, the place and the category follows from the schema, so that any events that a
model was trained on can be served. What has no column of its own in the store is kept in the detail (`given`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.dataset import event_days, zone_of
from ustad.schema import EventSchema
from ustad.service.store import Row
from ustad.tables import TIMESTAMP, event_keys

PARTS = ("expected", "loss", "error", "au", "eu", "pct", "spread")
#: Columns of the score table that belong to the event as a whole.
WHOLE = ("knn", "pct_knn", "history_days", "expected_lat", "expected_lon")


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


def store_rows(events: pa.Table, layout: Layout) -> tuple[list[Row], dict[int, str]]:
    """Rows for the store and, by key, details as JSON. Works with and without the columns of scores."""
    schema, names = layout.schema, events.column_names
    zones = zone_of(events, schema)
    finished = events[schema.end] if schema.end else events[schema.time]
    columns: dict[str, list[Any]] = {
        "key": keys_of(events, schema),
        "agent": [str(a) for a in events[schema.entity].to_pylist()],
        "started_at": events[schema.time].cast(pa.int64()).to_pylist(),
        "finished_at": finished.cast(pa.int64()).to_pylist(),
        "day": event_days(events, schema).tolist(),
        "timezone": [zones] * events.num_rows if isinstance(zones, str) else zones.to_pylist(),
        "term": _drivers(events),
        "alert": pc.fill_null(events["alert"], False).to_pylist() if "alert" in names else [False] * events.num_rows,
    }
    for ours, theirs in {**layout.columns, **{n: n for n in ("score", "p_value", "kind", "reason")}}.items():
        columns[ours] = events[theirs].to_pylist() if theirs in names else [None] * events.num_rows
    for ours in ("event_id", "poi_id", "category"):
        columns[ours] = [None if v is None else str(v) for v in columns.get(ours, [None] * events.num_rows)]
    for ours in ("lat", "lon", "score", "p_value", "start_gap_s", "end_gap_s"):
        columns[ours] = [_finite(v) for v in columns.get(ours, [None] * events.num_rows)]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return rows, dict(zip(columns["key"], _details(events, layout), strict=True))


def _drivers(events: pa.Table) -> list[str | None]:
    """The term with the highest percentile of each event."""
    names = [n for n in events.column_names if n.startswith("pct_")]
    if not names:
        return [None] * events.num_rows
    values = np.stack([np.nan_to_num(events[n].cast(pa.float64()).to_numpy(), nan=-1.0) for n in names], axis=1)
    return [names[i].removeprefix("pct_") for i in values.argmax(axis=1)]


def _details(events: pa.Table, layout: Layout) -> Iterable[str]:
    names = set(events.column_names)
    terms = {
        term.name: [p for p in PARTS if f"{p}_{term.name}" in names and not (p == "expected" and term.kind == "vector")]
        for term in layout.schema.terms()
    }
    wanted = [f"{p}_{t}" for t, parts in terms.items() for p in parts]
    wanted += [n for n in WHOLE if n in names] + [n for n in layout.given if n in names]
    for row in events.select(wanted).to_pylist():
        content = {
            "terms": {t: {p: _finite(row[f"{p}_{t}"]) for p in parts} for t, parts in terms.items() if parts},
            "given": {n: _plain(row[n]) for n in layout.given if n in row},
            **{n: _finite(row[n]) for n in WHOLE if n in row},
        }
        yield json.dumps(content, separators=(",", ":"), ensure_ascii=False)


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
