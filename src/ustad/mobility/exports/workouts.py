"""Workouts of watches and sports services: FIT (Garmin, Wahoo, Strava) and TCX (Garmin, Strava, Google Fit), as fixes.

FIT is read from its public layout: messages that a definition describes, of which only those of positions matter.
In: the path; out: one table. Neither format says whose workout it is: the path does.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ustad.mobility.exports.content import file_agent, read_whole, repeat, times
from ustad.mobility.exports.xml_events import walk_xml
from ustad.mobility.reading import Reading
from ustad.tables import DataError

LARGEST = 1 << 30  # bytes of one workout
_RECORD = 20  # the message that holds positions
_TIME, _LAT, _LON, _ACCURACY = 253, 0, 1, 31  # its fields
_EPOCH_S = 631_065_600  # 1989-12-31, when FIT's clock begins
_EARLIEST = 0x10000000  # smaller times count from when the device was switched on
_NO_DEGREE, _NO_TIME, _NO_METRE = 0x7FFFFFFF, 0xFFFFFFFF, 0xFF
_DEGREE = 180.0 / 2**31
Row = tuple[int, float, float, float | None]


# ---------------------------------------------------------------------------------------------------------- FIT
@dataclass(frozen=True)
class _Layout:
    """How the messages of one local type are laid out."""

    message: int
    size: int  # bytes
    fields: dict[int, tuple[int, int]]  # number → offset, size
    order: str  # of bytes, as struct says it


def is_fit(head: bytes, path: Path) -> bool:
    return len(head) > 12 and head[0] in (12, 14) and head[8:12] == b".FIT"


def read_fit(path: Path, reading: Reading) -> Iterator[pa.Table]:
    """The positions of a workout; records without one (indoors, before the first fix) are left out and counted."""
    rows: list[Row] = []
    try:
        without = _read_messages(read_whole(path, LARGEST), rows)
    except (struct.error, IndexError, KeyError) as error:
        if reading.on_error == "fail":
            raise DataError(
                f"{path}: the FIT file is cut off or damaged; take what is there with --on-error skip"
            ) from error
        reading.say(f"dropped: {path}: the FIT file is cut off or damaged after {len(rows):,} positions")
        without = 0
    if not rows:
        raise DataError(f"{path}: the FIT file holds no position; was it recorded indoors?")
    if without:
        reading.say(f"FIT: {without:,} records without a position were left out")
    time, lat, lon, accuracy = zip(*rows, strict=True)
    yield _one_agent(
        path,
        reading,
        "FIT",
        {"time": times(time), "lat": lat, "lon": lon, "accuracy_m": pa.array(accuracy, pa.float64())},
    )


def _read_messages(content: bytes, rows: list[Row]) -> int:
    """Append all positions to `rows`; how many records had none. Files may be chained one after another."""
    begin, without = 0, 0
    while begin + 12 <= len(content):
        if content[begin + 8 : begin + 12] != b".FIT":
            raise IndexError("no header where one should be")
        at = begin + content[begin]
        end = at + struct.unpack_from("<I", content, begin + 4)[0]
        if end > len(content):
            without += _read_part(content, at, len(content), rows)
            raise IndexError("the file ends before its data does")
        without += _read_part(content, at, end, rows)
        begin = end + 2  # a checksum
    return without


def _read_part(content: bytes, at: int, end: int, rows: list[Row]) -> int:
    layouts: dict[int, _Layout] = {}
    clock, without = 0, 0
    while at < end:
        head = content[at]
        at += 1
        if head & 0x80:  # five bits of the time are in the header
            layout, low = layouts[(head >> 5) & 3], head & 31
            clock += (low - clock) & 31
        elif head & 0x40:
            layouts[head & 15], at = _read_layout(content, at, bool(head & 0x20))
            continue
        else:
            layout = layouts[head & 15]
            clock = _field(content, at, layout, _TIME, form="I") or clock
        if layout.message == _RECORD:
            row = _row(content, at, layout, clock)
            if row is None:
                without += 1
            else:
                rows.append(row)
        at += layout.size
    return without


def _read_layout(content: bytes, at: int, has_own_fields: bool) -> tuple[_Layout, int]:
    order = ">" if content[at + 1] else "<"
    message, count = struct.unpack_from(f"{order}HB", content, at + 2)
    at, size, fields = at + 5, 0, dict[int, tuple[int, int]]()
    for _ in range(count):
        number, length = content[at], content[at + 1]
        fields[number] = (size, length)
        size, at = size + length, at + 3
    if has_own_fields:  # fields of the developer of an app: only their length matters
        more, at = content[at], at + 1
        for _ in range(more):
            size, at = size + content[at + 1], at + 3
    return _Layout(message, size, fields, order), at


def _field(content: bytes, at: int, layout: _Layout, number: int, *, form: str) -> int | None:
    """A field's value as a number of the form's size, or None where the message has none of that size."""
    offset, size = layout.fields.get(number, (0, 0))
    if size != struct.calcsize(form):
        return None
    return int(struct.unpack_from(layout.order + form, content, at + offset)[0])


def _row(content: bytes, at: int, layout: _Layout, clock: int) -> Row | None:
    lat, lon = _field(content, at, layout, _LAT, form="i"), _field(content, at, layout, _LON, form="i")
    if lat in (None, _NO_DEGREE) or lon in (None, _NO_DEGREE) or not _EARLIEST <= clock < _NO_TIME:
        return None
    accuracy = _field(content, at, layout, _ACCURACY, form="B")
    metres = None if accuracy in (None, _NO_METRE) else float(accuracy or 0)
    return (_EPOCH_S + clock) * 1_000_000, (lat or 0) * _DEGREE, (lon or 0) * _DEGREE, metres


# ---------------------------------------------------------------------------------------------------------- TCX
def is_tcx(head: bytes, path: Path) -> bool:
    return b"<TrainingCenterDatabase" in head[:4096]


def read_tcx(path: Path, reading: Reading) -> Iterator[pa.Table]:
    """The track points that have a position and a time."""
    columns: dict[str, list[str]] = {"time": [], "lat": [], "lon": []}
    point: dict[str, str] = {}
    names = {"Time": "time", "LatitudeDegrees": "lat", "LongitudeDegrees": "lon"}
    without = 0

    def close(open_names: list[str], text: str) -> None:
        nonlocal without
        if open_names[-1] in names and "Trackpoint" in open_names:
            point[names[open_names[-1]]] = text
        elif open_names[-1] == "Trackpoint":
            if len(point) == len(names):
                for name, value in point.items():
                    columns[name].append(value)
            else:
                without += 1
            point.clear()

    walk_xml(read_whole(path, LARGEST), path, close)
    if not columns["time"]:
        raise DataError(f"{path}: the TCX file holds no track point with a position; was it recorded indoors?")
    if without:
        reading.say(f"TCX: {without:,} track points without a position were left out")
    yield _one_agent(path, reading, "TCX", columns)


def _one_agent(path: Path, reading: Reading, title: str, columns: Mapping[str, Any]) -> pa.Table:
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    agent = file_agent(path)
    reading.say(f"{title}: one workout per file")
    return table.add_column(0, "agent_id", repeat(agent, table.num_rows))
