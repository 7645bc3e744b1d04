"""How many people were where, hour by hour, and never fewer than `least` of them: nobody can be told from it.

In: an open connection, local days, the width of a cell and the least number of people. Out: rows of day, hour, cell and
people. Cells and hours are fixed and do not overlap, so views of other days are made of the same cells. Counts are
rounded down to multiples of `least`. Two views of a cell therefore differ by nothing, or by at least `least` people.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, select

from ustad.clock import iso_date, local_time
from ustad.geo import snap_to_grid
from ustad.page.queries import E
from ustad.tables import TIMESTAMP

HOURS, MICROSECONDS_PER_HOUR = 24, 3_600_000_000
ZONES_H = 15  # a local day begins and ends within so many hours of the day in UTC


def count_people(
    connection: Connection, first: int, last: int, *, metres: float, least: int
) -> Iterator[dict[str, Any]]:
    """Rows of the local days from `first` to `last` (since 1970-01-01), in order. Memory is that of a day."""
    for day in range(first, last + 1):
        for (hour, lat, lon), people in _count_day(connection, day, metres):
            if people >= least:
                yield {
                    "day": iso_date(day), "hour": int(hour), "lat": lat if metres > 0 else None,
                    "lon": lon if metres > 0 else None, "people": people // least * least,
                }  # fmt: skip


def _count_day(connection: Connection, day: int, metres: float) -> Iterator[tuple[tuple[int, float, float], int]]:
    """Each hour and cell with how many people had an event there then."""
    begin, end = (day * HOURS - ZONES_H) * MICROSECONDS_PER_HOUR, ((day + 1) * HOURS + ZONES_H) * MICROSECONDS_PER_HOUR
    columns = (E.agent, E.started_at, E.finished_at, E.timezone, E.lat, E.lon)
    query = select(*columns).where(E.started_at < end, E.finished_at >= begin, E.lat.is_not(None), E.lon.is_not(None))
    rows = connection.execute(query).all()
    if not rows:
        return
    agents, starts, ends, zones, lats, lons = zip(*rows, strict=True)
    clock = local_time(pa.array(starts, pa.int64()).cast(TIMESTAMP), pa.array(zones, pa.string()))
    start = (clock.day - day) * float(HOURS) + clock.minute / 60
    length = (np.array(ends, np.int64) - np.array(starts, np.int64)) / MICROSECONDS_PER_HOUR
    opens = np.clip(np.floor(start), 0, HOURS).astype(int)
    closes = np.clip(np.maximum(np.ceil(start + length), np.floor(start) + 1), 0, HOURS).astype(int)
    lat, lon = snap_to_grid(np.array(lats), np.array(lons), metres) if metres > 0 else np.zeros((2, len(rows)))
    row = np.repeat(np.arange(len(rows)), np.maximum(closes - opens, 0))
    hour = np.concatenate([np.arange(a, b) for a, b in zip(opens, closes, strict=True)]) if len(row) else row
    person = np.unique(np.array(agents), return_inverse=True)[1]
    visits = np.unique(np.stack([hour, lat[row], lon[row], person[row]], axis=1), axis=0)
    cells, people = np.unique(visits[:, :3], axis=0, return_counts=True)
    yield from zip(cells.tolist(), people.tolist(), strict=True)
