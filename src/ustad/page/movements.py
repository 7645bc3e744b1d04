"""Trips and gaps as rows of the store: paths thinned to what a map can show."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.page.store import Row

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


def _plain(column: pa.ChunkedArray) -> list[Any]:
    return (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def _thin(path: list[dict[str, Any]]) -> list[list[float]]:
    if len(path) > MAX_POINTS:
        path = [path[i] for i in np.linspace(0, len(path) - 1, MAX_POINTS).round().astype(int)]
    return [[round(point["lon"], 6), round(point["lat"], 6)] for point in path]
