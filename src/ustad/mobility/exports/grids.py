"""YJMob100K: who was in which cell of 500 m in which half hour, as stays. In: the path; out: one table.

The data set hides its town and its dates. Cells are laid out from a point on the equator, where a degree is equally
long in both directions. Day 0 is a Monday. So distances, hours and weeks are true; the map and the dates are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from ustad.geo import EARTH_RADIUS_KM
from ustad.mobility.exports.content import open_bytes, repeat, times
from ustad.mobility.reading import Reading
from ustad.tables import DataError

CELL_DEGREES = 0.5 / (EARTH_RADIUS_KM * np.pi / 180.0)
ORIGIN_LAT, ORIGIN_LON = 0.0, 140.0  # of the corner; y counts southwards
FIRST_DAY = 1_672_585_200_000_000  # day 0: Monday 2023-01-02, 0:00 in Japan, in microseconds
HALF_HOUR = 1_800_000_000
ZONE = "Asia/Tokyo"
_NAMES = ("uid", "d", "t", "x", "y")


def is_yjmob(head: bytes, path: Path) -> bool:
    return head.partition(b"\n")[0].strip().replace(b'"', b"") == b"uid,d,t,x,y"


def read_yjmob(path: Path, reading: Reading) -> Iterator[pa.Table]:
    """Half hours in one cell that follow on each other are one stay. Cells that are masked (-999) are left out."""
    uid, day, slot, x, y = _columns(path)
    masked = (x < 0) | (y < 0)
    if masked.any():
        reading.bad_rows += int(masked.sum())
        reading.say(f"dropped: {path}: {int(masked.sum()):,} rows whose cell is masked")
    bad = ~masked & ((day < 0) | (slot < 0) | (slot > 47) | (day > 10_000) | (x > 4_000) | (y > 4_000))
    if bad.any():
        raise DataError(f"{path}: {int(bad.sum()):,} rows are no day, half hour or cell (d ≥ 0, t 0 … 47, x, y ≥ 1)")
    uid, slot, x, y = (a[~masked] for a in (uid, day * 48 + slot, x, y))
    if not len(uid):
        raise DataError(f"{path}: holds no row with a cell")
    order = np.lexsort((slot, uid))
    uid, slot, x, y = uid[order], slot[order], x[order], y[order]
    new = np.ones(len(uid), bool)
    new[1:] = (np.diff(uid) != 0) | (np.diff(slot) > 1) | (np.diff(x) != 0) | (np.diff(y) != 0)
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(uid)) - 1
    reading.say(
        "YJMob100K: half hours in one cell are stays; cells are laid out from the equator at 140° E and day 0 is a "
        "Monday, because the data hides both"
    )
    yield pa.table(
        {
            "agent_id": uid[first].astype(np.int64),
            "started_at": times(FIRST_DAY + slot[first].astype(np.int64) * HALF_HOUR),
            "finished_at": times(FIRST_DAY + (slot[last].astype(np.int64) + 1) * HALF_HOUR),
            "lat": ORIGIN_LAT - (y[first] - 0.5) * CELL_DEGREES,
            "lon": ORIGIN_LON + (x[first] - 0.5) * CELL_DEGREES,
            "timezone": repeat(ZONE, len(first)),
        }
    )


def _columns(path: Path) -> list[np.ndarray]:
    kinds = pa_csv.ConvertOptions(column_types=dict.fromkeys(_NAMES, pa.int32()))
    try:
        with open_bytes(path) as stream:
            table = pa_csv.read_csv(stream, convert_options=kinds)
        return [table[name].to_numpy() for name in _NAMES]
    except (pa.ArrowInvalid, pa.ArrowKeyError, KeyError, OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({str(error).splitlines()[0]})") from error
