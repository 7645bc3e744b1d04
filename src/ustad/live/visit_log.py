"""One entity's visits since the end of its history, and its own history once it has moved on, in few bytes.

In go visits and habits of a single entity; out come plain arrays and compressed columns, and the same back from them,
to the bit. Reading executes nothing.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from ustad.clock import MICROSECONDS_PER_DAY
from ustad.events.visits import Visits
from ustad.habits.history import Habits
from ustad.tables import DataError, identity_hash

#: What was not seen of a visit, minutes; the last columns of a row, written only where something was not seen.
_GAPS = np.dtype([("early", "<f4"), ("late", "<f4"), ("silent", "<f4")])
_GAP_NAMES = ("early", "late", "silent")
#: A visit: when (UTC, and how far the wall clock was ahead, seconds), how long (minutes), where (km), what kind.
LOG_ROW = np.dtype(
    [
        ("time", "<i8"),
        ("ahead", "<i4"),
        ("key", "<u8"),
        ("duration", "<f8"),
        ("x", "<f8"),
        ("y", "<f8"),
        ("category", "<i4"),
        *_GAPS.descr,
    ]
)
_HEAD = ("first_day", "last_day", "unseen", "back", "places", "visits")
_PLACE = np.dtype(
    [
        ("key", "<u8"),
        ("x", "<f8"),
        ("y", "<f8"),
        ("category", "<i4"),
        ("count", "<i8"),
        ("first", "<i4"),
        ("last", "<i4"),
        ("held", "<i4"),
    ]
)
_VISIT = np.dtype(
    [
        ("time", "<i8"),
        ("ahead", "<i4"),
        ("duration", "<f8"),
        ("previous", "<u8"),
        *_GAPS.descr,
    ]
)
#: How hard to compress: a log is written with every event, a history once a week.
QUICK, SMALL = 1, 6


def empty_log() -> np.ndarray:
    return np.zeros(0, LOG_ROW)


def log_rows(visits: Visits) -> np.ndarray:
    """Visits of one entity as rows of its log."""
    rows = np.zeros(len(visits), LOG_ROW)
    rows["ahead"] = _ahead(visits.time, visits.day, visits.minute)
    for name in ("time", "key", "duration", "x", "y", "category", *_GAP_NAMES):
        rows[name] = getattr(visits, name)
    return rows


def with_visit(log: np.ndarray, visits: Visits) -> np.ndarray:
    """The log with the only visit behind it; joining structured arrays would compare their columns first."""
    rows = np.empty(len(log) + 1, LOG_ROW)
    rows[:-1] = log
    time, day, minute = int(visits.time[0]), int(visits.day[0]), float(visits.minute[0])
    ahead = round((day * MICROSECONDS_PER_DAY + round(minute * 60e6) - time) / 1e6)
    rows[-1] = (time, ahead, *(getattr(visits, name)[0] for name in LOG_ROW.names[2:]))  # type: ignore[index]  # it has
    return rows


def log_days(log: np.ndarray) -> np.ndarray:
    """Local days of a log, never falling: int64 [n]."""
    return np.maximum.accumulate(_wall(log) // MICROSECONDS_PER_DAY)


def log_ends(log: np.ndarray) -> tuple[float, float]:
    """Minutes of the local clock since 1970-01-01: by when all but the last visit end, and the end of the last one."""
    begin = _wall(log) / 60e6
    duration = log["duration"]
    end = begin + np.where(np.isnan(duration), 0.0, duration)
    return float(max(begin[0], *end[:-1].tolist())) if len(log) > 1 else float(begin[0]), float(end[-1])


def as_visits(log: np.ndarray, entity: Any) -> Visits:
    """The inverse of `log_rows`."""
    day, minute = _clock(log)
    ids = np.empty(1, object)
    ids[0] = entity
    return Visits(
        entity_ids=ids,
        entity_key=identity_hash([entity]),
        entity=np.zeros(len(log), np.int64),
        day=day,
        minute=minute,
        weekday=(day + 3) % 7,
        row=np.arange(len(log)),
        days_off=(),
        category=log["category"].astype(np.int64),
        **{name: np.ascontiguousarray(log[name]) for name in ("key", "time", "duration", "x", "y")},
        **{name: log[name].astype(np.float64) for name in _GAP_NAMES},
    )


def pack_log(log: np.ndarray) -> bytes:
    return zlib.compress(np.array([len(log)], "<i8").tobytes() + _columns(log), QUICK)


def unpack_log(content: bytes, with_length: bool = True) -> np.ndarray:
    """The inverse of `pack_log`; logs that do not begin with their length (`with_length`) know nothing of gaps."""
    plain = zlib.decompress(content)
    if not with_length:
        return _rows(plain, LOG_ROW, len(plain) // (LOG_ROW.itemsize - _GAPS.itemsize))
    return _rows(plain[8:], LOG_ROW, int(np.frombuffer(plain[:8], "<i8")[0]))


def pack_habits(habits: Habits) -> bytes:
    """The history of at most one entity."""
    places, visits = np.zeros(len(habits.place_key), _PLACE), np.zeros(len(habits.visit_time), _VISIT)
    for name in ("key", "x", "y", "category", "count", "first", "last"):
        places[name] = getattr(habits, f"place_{name}")
    places["held"] = np.diff(habits.visit_offsets)
    for name in ("time", "duration", "previous", *_GAP_NAMES):
        visits[name] = getattr(habits, f"visit_{name}")
    visits["ahead"] = _ahead(habits.visit_time, habits.visit_day, habits.visit_minute)
    has_entity = len(habits.entity_key) > 0
    absence = (int(habits.entity_unseen[0]), int(habits.entity_back[0])) if has_entity else (-1, -1)
    head = np.array([habits.first_day, habits.last_day, *absence, len(places), len(visits)], "<i8")
    return zlib.compress(head.tobytes() + _columns(places) + _columns(visits), SMALL)


def unpack_habits(content: bytes, entity: Any) -> Habits:
    """The inverse of `pack_habits`."""
    try:
        plain, start = zlib.decompress(content), 8 * len(_HEAD)
        head = dict(zip(_HEAD, np.frombuffer(plain[:start], "<i8").tolist(), strict=True))
        middle = start + head["places"] * _PLACE.itemsize
        places = _rows(plain[start:middle], _PLACE, head["places"])
        visits = _rows(plain[middle:], _VISIT, head["visits"])
        if (places["held"] < 0).any() or places["held"].sum() != len(visits):
            raise ValueError("visits of no place")
    except (zlib.error, ValueError, OverflowError) as error:
        raise DataError("live state: these bytes were not written by to_bytes") from error
    n_entities = int(head["unseen"] >= 0)
    ids = np.empty(n_entities, object)
    ids[:] = [entity][:n_entities]
    day, minute = _clock(visits)
    return Habits(
        entity_ids=ids,
        entity_key=identity_hash([entity])[:n_entities],
        entity_unseen=np.array([head["unseen"]])[:n_entities],
        entity_back=np.array([head["back"]])[:n_entities],
        place_offsets=np.array([0, len(places)])[: n_entities + 1],
        visit_offsets=np.r_[0, np.cumsum(places["held"])].astype(np.int64),
        visit_minute=minute,
        visit_weekday=(day + 3) % 7,
        first_day=head["first_day"],
        last_day=head["last_day"],
        days_off=(),  # those of the model
        **{f"place_{n}": np.ascontiguousarray(places[n]) for n in ("key", "x", "y")},
        **{f"place_{n}": places[n].astype(np.int64) for n in ("category", "count", "first", "last")},
        **{f"visit_{n}": np.ascontiguousarray(visits[n]) for n in ("time", "duration", "previous", *_GAP_NAMES)},
    )


def _ahead(time: np.ndarray, day: np.ndarray, minute: np.ndarray) -> np.ndarray:
    """Seconds that the wall clock was ahead of UTC."""
    wall = day * MICROSECONDS_PER_DAY + np.round(minute * 60e6).astype(np.int64)
    return np.round((wall - time) / 1e6).astype(np.int64)


def _wall(rows: np.ndarray) -> np.ndarray:
    return rows["time"] + rows["ahead"].astype(np.int64) * 1_000_000


def _clock(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Local day and minute of the day."""
    wall = _wall(rows)
    day = wall // MICROSECONDS_PER_DAY
    return day, (wall - day * MICROSECONDS_PER_DAY) / 60e6


def _columns(rows: np.ndarray) -> bytes:
    """One column after the other, which compresses better; without the gaps where there are none."""
    whole = any(rows[name].any() for name in _GAP_NAMES if name in (rows.dtype.names or ()))
    names = [name for name in rows.dtype.names or () if whole or name not in _GAP_NAMES]
    return b"".join(np.ascontiguousarray(rows[name]).tobytes() for name in names)


def _rows(content: bytes, dtype: np.dtype, number: int) -> np.ndarray:
    """The inverse of `_columns`."""
    names, gaps = dtype.names or (), number * _GAPS.itemsize if _GAP_NAMES[0] in (dtype.names or ()) else 0
    if len(content) == number * dtype.itemsize - gaps:
        names = tuple(name for name in names if name not in _GAP_NAMES)
    elif len(content) != number * dtype.itemsize:
        raise ValueError(f"{len(content)} bytes are not {number} rows")
    rows, at = np.zeros(number, dtype), 0
    for name in names:
        size = number * dtype[name].itemsize
        rows[name] = np.frombuffer(content[at : at + size], dtype[name])
        at += size
    return rows
