"""The time zone of each stay: given, or found from its coordinates. In: stays; out: stays with `timezone`."""

from __future__ import annotations

from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import check_zone
from ustad.mobility.reading import Reading

CELL_DEGREES = 0.02  # zones are looked up once per cell of about two kilometres


def with_timezone(stays: pa.Table, timezone: str | None, reading: Reading) -> pa.Table:
    """Fill the column `timezone` where it is missing: with the zone given, else from the coordinates.

    Where the coordinates tell none (at sea, or without the library) it is the zone of naive times, else UTC.
    """
    zone_names = stays["timezone"] if "timezone" in stays.column_names else None
    if zone_names is not None and zone_names.null_count == 0:
        for name in pc.unique(zone_names).to_pylist():
            check_zone(name)
        return stays
    if timezone is not None:
        zones: pa.Array = _same_for_all(check_zone(timezone), stays.num_rows)
    else:
        zones = zones_of(stays["lat"].to_numpy(), stays["lon"].to_numpy(), reading)
    if zone_names is None:
        return stays.append_column("timezone", zones)
    all_zones = pc.coalesce(zone_names.combine_chunks(), zones)
    return stays.set_column(stays.column_names.index("timezone"), "timezone", all_zones)


def zones_of(lat: np.ndarray, lon: np.ndarray, reading: Reading) -> pa.Array:
    """IANA zones of points in degrees, by the cell of `CELL_DEGREES` that each lies in."""
    naive = reading.timezone
    names = find_zones(lat, lon)
    if names is None:
        why = f"{naive}, that of the times," if naive else "UTC"
        reading.warn(
            f"time zone: {why} for all, because {'' if naive else 'none was given (--timezone) and '}the library that "
            "finds it from coordinates is not installed (pip install 'ustad[geo]')"
        )
        return _same_for_all(naive or "UTC", len(lat))
    reading.say("time zone: found from the coordinates")
    zones = pa.array(names, pa.string())
    if naive is None:
        return zones
    return pc.if_else(pc.starts_with(zones, "Etc/"), pa.scalar(naive), zones)  # a cell whose middle is at sea


def find_zones(lat: np.ndarray, lon: np.ndarray) -> np.ndarray | None:
    """IANA zones of points in degrees: object [n]. None where the library that knows them is absent."""
    finder = _finder()
    if finder is None:
        return None
    row = np.floor((np.asarray(lat) + 90.0) / CELL_DEGREES).astype(np.int64)
    column = np.floor((np.asarray(lon) + 180.0) / CELL_DEGREES).astype(np.int64)
    cells, which = np.unique(row * 1_000_000 + column, return_inverse=True)
    return np.array([_zone(finder, int(cell)) for cell in cells], object)[which]


def is_sea(zone: str) -> bool:
    """Whether a zone is one of the sea or of Antarctica, where hardly anybody lives."""
    return zone.startswith(("Etc/", "Antarctica/"))


def _same_for_all(zone: str, n: int) -> pa.Array:
    return pa.array([zone]).take(pa.array(np.zeros(n, np.int32)))


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
