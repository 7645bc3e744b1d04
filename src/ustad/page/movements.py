"""Trips, gaps and absences as rows of the store: paths thinned to what a map can show."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.events.visits import kind_feature
from ustad.page.store import Row
from ustad.schema import EventSchema

MAX_POINTS = 64  # of one trip's path


def trip_rows(trips: pa.Table) -> list[Row]:
    """Rows of `records.trips`; a path keeps at most `MAX_POINTS` points, its ends among them."""
    columns = ("agent_id", "started_at", "finished_at")
    agent, start, end = (_plain(trips[name]) for name in columns)
    paths = trips["path"].to_pylist()
    rows = zip(agent, start, end, paths, strict=True)
    return [
        {"agent": str(a), "started_at": s, "finished_at": e, "path": json.dumps(_thin(path or []))}
        for a, s, e, path in rows
    ]


def gap_rows(gaps: pa.Table) -> list[Row]:
    agent, start, end = (_plain(gaps[name]) for name in ("agent_id", "started_at", "finished_at"))
    return [{"agent": str(a), "started_at": s, "finished_at": e} for a, s, e in zip(agent, start, end, strict=True)]


def absence_rows(absences: pa.Table, schema: EventSchema) -> list[Row]:
    """Rows of `records.absences`."""
    kind = kind_feature(absences, schema)
    columns = {
        "agent": absences[schema.entity].cast(pa.string()),
        "started_at": absences["expected_from"],
        "finished_at": absences["expected_until"],
        "instead": absences[f"instead_{schema.time}"],
        "category": absences[kind.columns[0]] if kind is not None else pa.nulls(absences.num_rows),
        "p_value": absences["p_value"],
        "reason": absences["reason"],
    }
    values = [_plain(column) for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _plain(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def _thin(path: list[dict[str, Any]]) -> list[list[float]]:
    if len(path) > MAX_POINTS:
        path = [path[i] for i in np.linspace(0, len(path) - 1, MAX_POINTS).round().astype(int)]
    return [[round(point["lon"], 6), round(point["lat"], 6)] for point in path]
