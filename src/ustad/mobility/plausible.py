"""Values that are well formed and yet cannot be meant: times of another century, (0, 0), swapped coordinates.

In: columns as they were read. Out: which rows are implausible and how to say it, or a DataError for a whole table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import is_zone
from ustad.mobility.reading import Box
from ustad.mobility.timezones import find_zones, is_sea
from ustad.tables import DataError

FIRST_YEAR = 1980  # satellite navigation is younger
AHEAD_S = 86_400.0  # clocks may be ahead of ours, and zones may be mistaken, by a day
SAMPLE_ROWS = 24  # points of a table that are looked at for swapped coordinates
NEARLY_ALL, HARDLY_ANY = 0.9, 0.1
MARGIN_DEGREES = 1.0  # around the POIs
NULL_ISLAND = "are at (0, 0), which devices report when they have no position"
#: How many digits a date has that is written as one number, and its format. No epoch of a plausible year looks so.
DIGITS = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}


# --------------------------------------------------------------------------------------------------- times
def implausible_times(moments: pa.ChunkedArray, ahead_s: float = AHEAD_S) -> tuple[np.ndarray, str]:
    """Rows before 1980 or more than a day (`ahead_s`) ahead of now, and how to say it."""
    micro = pc.fill_null(moments.cast(pa.int64()), _micro(FIRST_YEAR)).to_numpy()
    bad = (micro < _micro(FIRST_YEAR)) | (micro > (time.time() + ahead_s) * 1e6)
    what = f"lie before {FIRST_YEAR} or in the future"
    if bad.any():
        first = np.datetime64(int(micro[np.argmax(bad)]), "us").astype("datetime64[s]")
        what += f" as they were read (the first as {str(first).replace('T', ' ')} UTC)"
    return bad, what


def refuse_digits(numbers: np.ndarray, where: str, name: str) -> None:
    """A DataError for numbers that are dates written without separators: 20240505220117."""
    middle = int(np.partition(numbers, len(numbers) // 2)[len(numbers) // 2]) if len(numbers) else 0
    form = DIGITS.get(len(str(middle)))
    if form is None or not FIRST_YEAR <= int(str(middle)[:4]) <= datetime.now(UTC).year + 1:
        return
    try:
        moment = datetime.strptime(str(middle), form)
    except ValueError:
        return
    raise DataError(
        f"{where}: column '{name}' holds dates written as digits (such as {middle} for {moment}); "
        "write them as ISO 8601, such as 2024-01-31T08:15:00Z"
    )


def _micro(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1e6)


# ------------------------------------------------------------------------------------------------- places
def at_null_island(table: pa.Table) -> np.ndarray:
    """Rows at exactly (0, 0): bool [n]."""
    return (table["lat"].to_numpy() == 0.0) & (table["lon"].to_numpy() == 0.0)


def check_swapped(table: pa.Table, where: str, zone: str | None, area: Box | None) -> str | None:
    """A DataError where latitude and longitude are swapped: POIs or the known zone fit the other way round alone.

    Returns a warning where nothing is known but that as given nearly all rows are at sea, and swapped none is.
    """
    rows = np.unique(np.linspace(0, table.num_rows - 1, SAMPLE_ROWS).astype(np.int64))
    lat, lon = (np.asarray(table[n].take(pa.array(rows)), float) for n in ("lat", "lon"))
    if np.any(np.abs(lon) > 90.0):
        return None
    hint = "lat and lon seem to be swapped"
    if area is not None and _only_swapped(lambda a, b: _inside(a, b, area), lat, lon):
        raise DataError(f"{where}: {hint}: only the other way round are the rows near the POIs; swap the columns")
    this_way, other_way = find_zones(lat, lon), find_zones(lon, lat)
    if this_way is None or other_way is None:
        return None
    if zone is not None and not is_sea(zone) and zone != "UTC":
        fits = [np.mean([_same_zone(z, zone) for z in zones]) for zones in (this_way, other_way)]
        if fits[0] < HARDLY_ANY and fits[1] > NEARLY_ALL:
            raise DataError(f"{where}: {hint}: only the other way round are the rows in {zone}; swap the columns")
    at_sea = [np.mean([is_sea(z) for z in zones]) for zones in (this_way, other_way)]
    if len(rows) == SAMPLE_ROWS and at_sea[0] > NEARLY_ALL and at_sea[1] < HARDLY_ANY:
        return f"{hint} in {where}: as given the rows are at sea or in Antarctica, the other way round on land"
    return None


def _only_swapped(fits: Callable[[np.ndarray, np.ndarray], np.ndarray], lat: np.ndarray, lon: np.ndarray) -> bool:
    return bool(fits(lat, lon).mean() < HARDLY_ANY and fits(lon, lat).mean() > NEARLY_ALL)


def _inside(lat: np.ndarray, lon: np.ndarray, area: Box) -> np.ndarray:
    south, north, west, east = area
    m = MARGIN_DEGREES
    return (lat >= south - m) & (lat <= north + m) & (lon >= west - m) & (lon <= east + m)


def box_of(table: pa.Table) -> Box:
    """South, north, west and east of a table's points."""
    ends = [pc.min_max(table[name]).as_py() for name in ("lat", "lon")]
    return ends[0]["min"], ends[0]["max"], ends[1]["min"], ends[1]["max"]


@cache
def _same_zone(one: str, other: str) -> bool:
    """Whether two zones on land have the same clock, in winter and in summer."""
    if not (is_zone(one) and is_zone(other)):
        return True  # a zone that does not exist says nothing of the place, and is refused for itself
    days = (datetime(2024, 1, 1), datetime(2024, 7, 1))
    return one == other or (
        not is_sea(one) and all(ZoneInfo(one).utcoffset(d) == ZoneInfo(other).utcoffset(d) for d in days)
    )
