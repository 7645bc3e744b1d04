"""Ways: what can be said of a trip from its path. How long a detour, how fast, by what mode, with which short stops.

In: a trips table with paths. Out: a row for each trip. These are facts; they have no part in scores.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.files import as_table
from ustad.mobility.sphere import sphere_points
from ustad.mobility.trips import _arc_km, _crossings, _paths

#: Slower than this nobody moves; walking and cycling end at these speeds (km/h).
STILL, WALK, BIKE = 1.5, 7.0, 22.0
#: A short stop lasts at least so many minutes; a way needs so many points, and its ends so many km between them.
STOP_MINUTES, POINTS, APART_KM = 2.0, 3, 0.1


def describe_ways(trips: Any) -> pa.Table:
    """Per trip `destination_stay_id`, `detour` (length by distance of its ends; null where they are within 100 m),
    `moving_kmh` (median speed of the legs that move), `mode` (walk, bike, drive) and `short_stops`.

    All null where the trip crosses a gap or has fewer than three points: silence says nothing of the way.
    """
    table = as_table(trips, "trips")
    offsets, time, lat, lon = _paths(table["path"])
    points, has_gap = sphere_points(lat, lon), _crossings(table)
    rows = [
        None if has_gap[i] or b - a < POINTS else _describe(time[a:b], points[a:b])
        for i, (a, b) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    ]
    kinds = {"detour": pa.float64(), "moving_kmh": pa.float64(), "mode": pa.string(), "short_stops": pa.int64()}
    columns = {name: pa.array([row and row[n] for row in rows], kind) for n, (name, kind) in enumerate(kinds.items())}
    return pa.table({"destination_stay_id": table["destination_stay_id"], **columns})


def _describe(time: np.ndarray, points: np.ndarray) -> tuple[float | None, float | None, str | None, int]:
    km = np.array([_arc_km(points, k, k + 1) for k in range(len(points) - 1)])
    hours = np.diff(time) / 3.6e9
    speed = km / np.maximum(hours, 1e-9)
    apart = _arc_km(points, 0, len(points) - 1)
    is_moving = speed >= STILL
    median = float(np.median(speed[is_moving])) if is_moving.any() else None
    mode = None if median is None else "walk" if median <= WALK else "bike" if median <= BIKE else "drive"
    return float(km.sum() / apart) if apart >= APART_KM else None, median, mode, _count_stops(is_moving, hours * 60)


def _count_stops(is_moving: np.ndarray, minutes: np.ndarray) -> int:
    """Runs of legs that do not move, between legs that do, as long as a short stop."""
    moving = np.flatnonzero(is_moving)
    spans = [minutes[a + 1 : b].sum() for a, b in pairwise(moving.tolist())]
    return sum(bool(span >= STOP_MINUTES) for span in spans)
