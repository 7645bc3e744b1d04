"""Local time: what a moment is on the wall clock of its zone. Zones are IANA names, one per row or one for all."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, cached_property
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.tables import TIMESTAMP, DataError, agent_codes

EPOCH = date(1970, 1, 1)
_START, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
MICROSECONDS_PER_DAY = 86_400_000_000
DAY_NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def day_number(text: str) -> int:
    """Days since 1970-01-01 of a date as 2024-05-20 or 20240520, or of a time that begins with one."""
    return (date.fromisoformat(text[:10]) - EPOCH).days


def iso_date(day: int) -> str:
    """
    >>> iso_date(day_number("2024-05-20"))
    '2024-05-20'
    """
    return (EPOCH + timedelta(days=int(day))).isoformat()


def microseconds(moment: datetime) -> int:
    """Of a moment with its zone, since 1970."""
    return (moment - _START) // _MICROSECOND


def moment_at(microseconds: int) -> datetime:
    """The inverse, in UTC."""
    return _START + timedelta(microseconds=microseconds)


@dataclass(frozen=True)
class LocalTime:
    """Local wall clock of n moments."""

    day: np.ndarray  # int32: days since 1970-01-01 of the local date
    minute: np.ndarray  # float64: minutes since local midnight, 0 ≤ m < 1440
    weekday: np.ndarray  # int8: 0 is Monday

    @cached_property
    def month(self) -> np.ndarray:
        """int8: 1 … 12."""
        return (self.day.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12 + 1).astype(np.int8)


def local_time(time: pa.ChunkedArray | pa.Array, zone: str | pa.ChunkedArray | pa.Array) -> LocalTime:
    """The wall clock in one zone, or in each row's own. Right across daylight saving: it asks the zone data."""
    wall = _wall_clocks(time, zone)
    day = np.floor_divide(wall, MICROSECONDS_PER_DAY)
    return LocalTime(
        day=day.astype(np.int32),
        minute=(wall - day * MICROSECONDS_PER_DAY) / 60e6,
        weekday=((day + 3) % 7).astype(np.int8),
    )


def local_days(time: pa.ChunkedArray | pa.Array, zone: str | pa.ChunkedArray | pa.Array) -> np.ndarray:
    """`local_time(time, zone).day` alone: int32 [n]."""
    return np.floor_divide(_wall_clocks(time, zone), MICROSECONDS_PER_DAY).astype(np.int32)


def _wall_clocks(time: pa.ChunkedArray | pa.Array, zone: str | pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Microseconds since 1970 by the clock on the wall: int64 [n]."""
    time = pa.chunked_array(time) if isinstance(time, pa.Array) else time
    if isinstance(zone, str):
        return _wall_clock(time, zone)
    codes, names = agent_codes(zone)
    if len(names) == 1:
        return _wall_clock(time, names[0])
    wall = np.empty(len(time), np.int64)
    for code, name in enumerate(names):
        rows = np.flatnonzero(codes == code)
        wall[rows] = _wall_clock(time.take(pa.array(rows)), name)
    return wall


def check_zone(name: str) -> str:
    """The name itself when the zone data knows it, else a DataError."""
    _wall_clock(pa.chunked_array([pa.array([0], TIMESTAMP)]), name)
    return name


@cache
def is_zone(name: str) -> bool:
    """Whether the zone data knows the name: Europe/Helsinki, and also EST, Japan, GMT."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return name == "UTC"
    return True


def localise(time: pa.ChunkedArray, zone: str) -> pa.ChunkedArray:
    """Naive wall-clock times of one zone as UTC. A moment that daylight saving repeats is taken as the earlier
    one, a moment that it skips is moved to the first that exists."""
    try:
        return pc.assume_timezone(time, zone, ambiguous="earliest", nonexistent="latest").cast(TIMESTAMP)
    except pa.ArrowInvalid as error:
        raise DataError(f"time zone '{zone}' is not known; use an IANA name such as Europe/Helsinki") from error


def _wall_clock(time: pa.ChunkedArray, zone: str) -> np.ndarray:
    try:
        local = pc.local_timestamp(time.cast(pa.timestamp("us", tz=zone)))
    except pa.ArrowInvalid as error:
        raise DataError(f"time zone '{zone}' is not known; use an IANA name such as Europe/Helsinki") from error
    return local.cast(pa.int64()).to_numpy().astype(np.int64, copy=False)
