"""The time zone of each stay: given, or found from its coordinates. In: stays; out: stays with `timezone`."""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import check_zone
from ustad.mobility.columns import Reading

CELL_DEGREES = 0.02  # zones are looked up once per cell of about two kilometres


def with_timezone(stays: pa.Table, timezone: str | None, reading: Reading) -> pa.Table:
    """Fill the column `timezone` where it is missing: with the zone given, else from the coordinates, else UTC."""
    known = stays["timezone"] if "timezone" in stays.column_names else None
    if known is not None and known.null_count == 0:
        for name in pc.unique(known).to_pylist():
            check_zone(name)
        return stays
    if timezone is not None:
        zones: pa.Array = pa.array([check_zone(timezone)]).take(pa.array(np.zeros(stays.num_rows, np.int32)))
    else:
        zones = zones_of(stays["lat"].to_numpy(), stays["lon"].to_numpy(), reading)
    if known is None:
        return stays.append_column("timezone", zones)
    filled = pc.coalesce(known.combine_chunks(), zones)
    return stays.set_column(stays.column_names.index("timezone"), "timezone", filled)


def zones_of(lat: np.ndarray, lon: np.ndarray, reading: Reading) -> pa.Array:
    """IANA zones of points in degrees, by the cell of `CELL_DEGREES` that each lies in."""
    finder = _finder()
    if finder is None:
        reading.say(
            "time zone: UTC for all, because none was given (--timezone) and the library that finds it from "
            "coordinates is not installed (pip install 'ustad[geo]')"
        )
        return pa.array(["UTC"]).take(pa.array(np.zeros(len(lat), np.int32)))
    row = np.floor((np.asarray(lat) + 90.0) / CELL_DEGREES).astype(np.int64)
    column = np.floor((np.asarray(lon) + 180.0) / CELL_DEGREES).astype(np.int64)
    cells, which = np.unique(row * 1_000_000 + column, return_inverse=True)
    names = [_zone(finder, int(cell)) for cell in cells]
    reading.say("time zone: found from the coordinates")
    return pa.array(names, pa.string()).take(pa.array(which.astype(np.int64)))


def can_find_zones() -> bool:
    """Whether the library that knows zones by coordinates is installed."""
    return _finder() is not None


def _zone(finder: Any, cell: int) -> str:
    """The zone at the middle of a cell."""
    row, column = divmod(cell, 1_000_000)
    lat, lon = (row + 0.5) * CELL_DEGREES - 90.0, (column + 0.5) * CELL_DEGREES - 180.0
    return finder(round(min(lat, 90.0), 6), round(min(lon, 180.0), 6))


@lru_cache(maxsize=1)
def _finder() -> Any:
    """A cached lookup (lat, lon) → zone, or None where the library is absent."""
    try:
        from timezonefinder import TimezoneFinder
    except ImportError:
        return None
    finder, lock = TimezoneFinder(), Lock()

    @lru_cache(maxsize=1_000_000)
    def look_up(lat: float, lon: float) -> str:
        with lock:  # the library reads its files from one position at a time
            return finder.timezone_at(lat=lat, lng=lon) or "UTC"

    return look_up
