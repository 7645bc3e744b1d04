"""Trips: the way between two consecutive stays, as a table with its path and as arrays of fixed size.

In: trips that the stay kernel found, or a trips table. Out: the trips table (with `length_km`, `minutes`,
`straightness`, `speed_kmh` and `crosses_gap` beside the contract's columns) and `TripArrays` for the embedding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.files import as_table
from ustad.geo import EARTH_RADIUS_KM
from ustad.mobility.sphere import sphere_points
from ustad.tables import PATH_POINT, TIMESTAMP, TRIPS, DataError, event_keys


@dataclass(frozen=True)
class TripArrays:
    """n trips, each resampled to P points."""

    destination_stay_id: np.ndarray  # [n]
    shape: np.ndarray  # float32 [n, P, 2]: east and north, centred on 0, root mean square radius 1
    speed: np.ndarray  # float32 [n, P]: km/h, averaged over P equal parts of the trip's duration
    summary: np.ndarray  # float32 [n, 3]: km, minutes, straightness in 0 … 1
    crosses_gap: np.ndarray  # bool [n]


def trip_table(
    trips: np.ndarray, agents: pa.Array, time: np.ndarray, lat: np.ndarray, *, lon: np.ndarray, points: np.ndarray
) -> pa.Table:
    """The trips table of the kernel's `TRIP` records; `agents` are the identifiers that the records number.

    A trip lasts from the end of one stay to the start of the next. Its path also holds the last fix inside the
    first stay, where the way really begins.
    """
    offsets, rows = _path_rows(trips["first"], trips["last"])
    path_time = time[rows]
    km, minutes, straightness = _summaries(offsets, path_time, points[rows])
    agent = agents.take(pa.array(trips["agent"]))
    starts = pa.array(trips["start"], TIMESTAMP)
    columns = {
        "trip_id": pa.array(event_keys(agent, starts)),
        "agent_id": agent,
        "started_at": starts,
        "finished_at": pa.array(trips["end"], TIMESTAMP),
        "origin_stay_id": pa.array(event_keys(agent, pa.array(trips["origin_start"], TIMESTAMP))),
        "destination_stay_id": pa.array(event_keys(agent, pa.array(trips["destination_start"], TIMESTAMP))),
        "path": path_column(offsets, path_time, lat[rows], lon[rows]),
        "length_km": pa.array(km),
        "minutes": pa.array(minutes),
        "straightness": pa.array(straightness),
        "speed_kmh": pa.array(_speed(km, minutes)),
        "crosses_gap": pa.array(trips["crosses_gap"].astype(bool)),
    }
    return pa.table(columns)


def path_column(offsets: np.ndarray, time: np.ndarray, lat: np.ndarray, lon: np.ndarray) -> pa.ListArray:
    """Lists of (time, lat, lon): list i holds points offsets[i] … offsets[i + 1]."""
    points = pa.StructArray.from_arrays(
        [pa.array(time, TIMESTAMP), pa.array(lat), pa.array(lon)], fields=list(PATH_POINT)
    )
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), points)


def trip_arrays(trips: Any, points: int = 16) -> TripArrays:
    """Each trip as a normalised shape, a speed profile and a summary, for the trip embedding and the features.

    The shape is resampled at equal steps along the way, the speeds over equal parts of the time. Both say nothing
    of where and how large: that is in the stays and in the summary. A trip without points is all zeros.
    """
    table = as_table(trips, "trips")
    missing = [name for name in ("destination_stay_id", "path") if name not in table.column_names]
    if missing:
        raise DataError(f"trips: missing column {missing[0]}; expected {', '.join(TRIPS.required)}")
    offsets, time, lat, lon = _paths(table["path"])
    sphere = sphere_points(lat, lon)
    km, minutes, straightness = _summaries(offsets, time, sphere)
    shape, speed = _resample(offsets, time, lat, lon, sphere, points)
    return TripArrays(
        destination_stay_id=table["destination_stay_id"].to_numpy(),
        shape=shape,
        speed=speed,
        summary=np.stack([km, minutes, straightness], axis=1).astype(np.float32),
        crosses_gap=_crossings(table),
    )


def _crossings(table: pa.Table) -> np.ndarray:
    if "crosses_gap" not in table.column_names:
        return np.zeros(table.num_rows, bool)
    return pc.fill_null(table["crosses_gap"], False).to_numpy(zero_copy_only=False)


def _paths(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Offsets [n + 1] and the points' times (µs), latitudes and longitudes of a column of paths."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    flat = pc.list_flatten(column)
    flat = flat.combine_chunks() if isinstance(flat, pa.ChunkedArray) else flat
    if len(flat) == 0:
        return offsets, np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
    time, lat, lon = (pc.struct_field(flat, name) for name in ("time", "lat", "lon"))
    return offsets, time.cast(TIMESTAMP).cast(pa.int64()).to_numpy(), np.array(lat), np.array(lon)


def _path_rows(first: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of all paths one after the other, and where each begins."""
    lengths = last - first + 1
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return offsets, np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], lengths)


def _speed(km: np.ndarray, minutes: np.ndarray) -> np.ndarray:
    return np.where(minutes > 0, km / np.maximum(minutes / 60.0, 1e-12), 0.0)


@numba.njit(cache=True, nogil=True)
def _arc_km(points, a, b):  # type: ignore[no-untyped-def]  # compiled
    """Great-circle distance of two rows of points on the unit sphere."""
    x, y, z = points[a, 0] - points[b, 0], points[a, 1] - points[b, 1], points[a, 2] - points[b, 2]
    return 2.0 * EARTH_RADIUS_KM * math.asin(min(1.0, math.sqrt(x * x + y * y + z * z) / 2.0))


@numba.njit(cache=True, nogil=True)
def _summaries(offsets, time, points):  # type: ignore[no-untyped-def]  # compiled
    """Length (km), duration (min) and straightness (distance of the ends / length; 1 where it never moved)."""
    n = len(offsets) - 1
    km, minutes, straightness = np.zeros(n), np.zeros(n), np.ones(n)
    for i in range(n):
        a, b = offsets[i], offsets[i + 1] - 1
        if b <= a:
            continue
        for k in range(a, b):
            km[i] += _arc_km(points, k, k + 1)
        minutes[i] = (time[b] - time[a]) / 60e6
        if km[i] > 0:
            straightness[i] = min(1.0, _arc_km(points, a, b) / km[i])
    return km, minutes, straightness


@numba.njit(cache=True, nogil=True)
def _resample(offsets, time, lat, lon, points, size):  # type: ignore[no-untyped-def]  # compiled
    """Normalised shapes [n, size, 2] and speeds [n, size] in km/h."""
    n, longest = len(offsets) - 1, 1
    for i in range(n):
        longest = max(longest, offsets[i + 1] - offsets[i])
    way, clock, plane = np.zeros(longest), np.zeros(longest), np.zeros((longest, 2))
    shapes, speeds = np.zeros((n, size, 2), np.float32), np.zeros((n, size), np.float32)
    for i in range(n):
        a, count = offsets[i], offsets[i + 1] - offsets[i]
        if count < 2:
            continue
        way[0], clock[0] = 0.0, 0.0
        for k in range(1, count):
            way[k] = way[k - 1] + _arc_km(points, a + k - 1, a + k)
            clock[k] = (time[a + k] - time[a]) / 3.6e9  # hours
        if way[count - 1] > 0:
            _local_plane(plane, points, a, count, lat[a], lon[a])
            _shape(shapes[i], way, plane, count)
        if clock[count - 1] > 0:
            _speeds(speeds[i], way, clock, count)
    return shapes, speeds


@numba.njit(cache=True, nogil=True)
def _shape(shape, way, plane, count):  # type: ignore[no-untyped-def]  # compiled
    """Points at equal steps along the way, centred, with a root mean square radius of 1."""
    size, k = len(shape), 1
    x, y = np.zeros(size), np.zeros(size)
    for step in range(size):
        at = way[count - 1] * step / max(size - 1, 1)
        while k < count - 1 and way[k] < at:
            k += 1
        length = way[k] - way[k - 1]
        share = min(1.0, (at - way[k - 1]) / length) if length > 0 else 0.0
        x[step] = plane[k - 1, 0] + share * (plane[k, 0] - plane[k - 1, 0])
        y[step] = plane[k - 1, 1] + share * (plane[k, 1] - plane[k - 1, 1])
    middle_x, middle_y, square = 0.0, 0.0, 0.0
    for step in range(size):
        middle_x += x[step] / size
        middle_y += y[step] / size
    for step in range(size):
        square += (x[step] - middle_x) ** 2 + (y[step] - middle_y) ** 2
    radius = math.sqrt(square / size)
    if radius > 0:
        for step in range(size):
            shape[step, 0], shape[step, 1] = (x[step] - middle_x) / radius, (y[step] - middle_y) / radius


@numba.njit(cache=True, nogil=True)
def _speeds(speed, way, clock, count):  # type: ignore[no-untyped-def]  # compiled
    """Kilometres covered in each of equal parts of the duration, per hour."""
    size, k, before = len(speed), 1, 0.0
    part = clock[count - 1] / size
    for step in range(size):
        at = part * (step + 1)
        while k < count - 1 and clock[k] < at:
            k += 1
        length = clock[k] - clock[k - 1]
        share = min(1.0, (at - clock[k - 1]) / length) if length > 0 else 1.0
        here = way[k - 1] + share * (way[k] - way[k - 1])
        speed[step] = (here - before) / part
        before = here


@numba.njit(cache=True, nogil=True)
def _local_plane(plane, points, first, count, lat, lon):  # type: ignore[no-untyped-def]  # compiled
    """Kilometres east and north of the first point, azimuthal equidistant: whole at ±180° and at the poles."""
    phi, lam = math.radians(lat), math.radians(lon)
    for k in range(count):
        x, y, z = points[first + k, 0], points[first + k, 1], points[first + k, 2]
        east = -math.sin(lam) * x + math.cos(lam) * y
        north = -math.sin(phi) * (math.cos(lam) * x + math.sin(lam) * y) + math.cos(phi) * z
        up = math.cos(phi) * (math.cos(lam) * x + math.sin(lam) * y) + math.sin(phi) * z
        sine = math.hypot(east, north)
        stretch = (math.atan2(sine, up) / sine if sine > 1e-12 else 1.0) * EARTH_RADIUS_KM
        plane[k, 0], plane[k, 1] = east * stretch, north * stretch
