"""OwnTracks recorder's `.rec` files: a line per message, of which those of type `location` are fixes.

In: the path; out: tables. The agent is the topic's user and device, else the folder, which is the device's.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ustad.mobility.exports.content import open_bytes
from ustad.mobility.reading import Reading
from ustad.tables import DataError

ROWS = 1 << 18  # of one table
_LINE = re.compile(rb'^\d{4}-\d\d-\d\dT[\d:.]+Z\s+\S+\s+(?:\S+\s+)?\{.*"_type"', re.DOTALL)
Row = tuple[str, int | float, float, float, float | None]


def is_owntracks(head: bytes, path: Path) -> bool:
    return _LINE.match(head[:8192].partition(b"\n")[0]) is not None


def read_owntracks(path: Path, reading: Reading) -> Iterator[pa.Table]:
    reading.say("OwnTracks: messages of type location are fixes; the agent is the topic's user and device")
    rows, bad, count = list[Row](), 0, 0
    try:
        with open_bytes(path) as stream:
            for line in stream:
                row = _row(line, path)
                if row is None:
                    bad += b'"location"' in line
                    continue
                rows.append(row)
                if len(rows) == ROWS:
                    yield _table(rows)
                    count, rows = count + len(rows), []
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be unpacked ({error})") from error
    if bad and reading.on_error == "fail":
        raise DataError(f"{path}: {bad:,} locations are damaged; fix them or drop them with --on-error skip")
    if bad:
        reading.bad_rows += bad
        reading.say(f"dropped: {path}: {bad:,} locations that are damaged")
    if not rows and not count:
        raise DataError(f"{path}: the OwnTracks file holds no location")
    if rows:
        yield _table(rows)


def _row(line: bytes, path: Path) -> Row | None:
    """One location, or None where the line is of another kind or damaged."""
    try:
        message = json.loads(line[line.index(b"{") :])
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("_type") != "location":
        return None
    time, lat, lon, accuracy = (_number(message.get(name)) for name in ("tst", "lat", "lon", "acc"))
    if time is None or lat is None or lon is None:
        return None
    return _agent(message.get("topic"), path), time, lat, lon, accuracy


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12 else None


def _agent(topic: Any, path: Path) -> str:
    parts = topic.split("/") if isinstance(topic, str) else []
    return "/".join(parts[1:3]) if len(parts) >= 3 else path.resolve().parent.name or path.stem


def _table(rows: list[Row]) -> pa.Table:
    agent, time, lat, lon, accuracy = zip(*rows, strict=True)
    return pa.table(
        {
            "agent_id": pa.array(agent),
            "time": pa.array(time, pa.float64()),
            "lat": pa.array(lat, pa.float64()),
            "lon": pa.array(lon, pa.float64()),
            "accuracy_m": pa.array(accuracy, pa.float64()),
        }
    )
