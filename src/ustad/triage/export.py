"""Alerts for other tools: CSV for anything, GeoJSON for maps (only where the events have a place)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from ustad.schema import EventSchema
from ustad.tables import DataError


def write_alerts(events: pa.Table, schema: EventSchema, place: Path) -> None:
    """Flagged events as `alerts.csv` and, where events have a place, as `alerts.geojson`."""
    write_alerts_csv(events, place / "alerts.csv")
    if any(feature.kind == "place" for feature in schema.features):
        write_alerts_geojson(events, schema, place / "alerts.geojson")


def alert_table(events: pa.Table) -> pa.Table:
    """The flagged events, the most unusual first."""
    return events.filter(events["alert"]).sort_by([("score", "descending")])


def write_alerts_csv(events: pa.Table, path: Path) -> int:
    """Flagged events as CSV; returns how many. Columns of lists are left out: CSV has no lists."""
    table = alert_table(events)
    write_csv(table.select([f.name for f in table.schema if not pa.types.is_nested(f.type)]), path)
    return len(table)


def write_csv(table: pa.Table, path: Path) -> None:
    """A CSV file that appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    pa_csv.write_csv(table, temporary)
    temporary.replace(path)


def write_alerts_geojson(events: pa.Table, schema: EventSchema, path: Path) -> int:
    """Flagged events as a GeoJSON FeatureCollection of points (RFC 7946); returns how many."""
    place = next((f for f in schema.features if f.kind == "place"), None)
    if place is None:
        raise DataError(f"schema '{schema.name}' has no place, so its alerts have no GeoJSON; write CSV instead")
    table = alert_table(events)
    features = [_feature(row, *place.source) for row in _texts(table).to_pylist()]
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    temporary.write_text(json.dumps({"type": "FeatureCollection", "features": features}, ensure_ascii=False))
    temporary.replace(path)
    return len(features)


def _feature(row: dict[str, Any], lat: str, lon: str) -> dict[str, Any]:
    y, x = row.pop(lat), row.pop(lon)
    point = None if x is None or y is None else {"type": "Point", "coordinates": [round(x, 7), round(y, 7)]}
    return {"type": "Feature", "geometry": point, "properties": row}


def _texts(table: pa.Table) -> pa.Table:
    """Times as ISO 8601 text, so that JSON can hold them."""
    for i, column in enumerate(table.schema):
        if pa.types.is_timestamp(column.type):
            text = pc.strftime(table[column.name], "%Y-%m-%dT%H:%M:%SZ")
            table = table.set_column(i, column.name, text)
    return table
