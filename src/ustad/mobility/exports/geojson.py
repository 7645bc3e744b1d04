"""GeoJSON points with a time (Overland, Dawarich, GPSLogger, QGIS), as fixes. In: the path; out: one table.

Times, agents and accuracies are properties by any of the names that columns may have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ustad.mobility.columns import FIX_NAMES, match_names
from ustad.mobility.exports.content import file_agent, read_json_whole, times, to_microseconds
from ustad.mobility.reading import Reading
from ustad.tables import DataError

_NAMES = {
    **{ours: FIX_NAMES[ours] for ours in ("agent_id", "accuracy_m")},
    "time": (*FIX_NAMES["time"], "when", "date"),
}
Row = tuple[str, int, float, float, float | None]


def is_geojson(head: bytes, path: Path) -> bool:
    return head.lstrip()[:1] in (b"{", b"[") and b'"Feature' in head and b'"coordinates"' in head


def read_geojson(path: Path, reading: Reading) -> Iterator[pa.Table]:
    """Points that have a time; the others, and lines and areas, are left out and counted."""
    content = read_json_whole(path)
    device = content.get("device_id") if isinstance(content, dict) else None
    agent = device if isinstance(device, str) and device else file_agent(path)
    features = _features(content)
    rows = [row for feature in features if (row := _row(feature, agent)) is not None]
    if not rows:
        raise DataError(f"{path}: the GeoJSON file holds no point with a time; a property has to say when")
    reading.say("GeoJSON: points with a time are fixes; the agent is a property, else the name of the file")
    if len(features) > len(rows):
        reading.say(f"GeoJSON: {len(features) - len(rows):,} features without a point or a time were left out")
    whose, time, lat, lon, accuracy = zip(*rows, strict=True)
    columns = {"agent_id": pa.array(whose), "time": times(time), "lat": pa.array(lat), "lon": pa.array(lon)}
    yield pa.table({**columns, "accuracy_m": pa.array(accuracy, pa.float64())})


def _features(content: Any) -> list[Any]:
    if isinstance(content, dict):
        content = content.get("features", content.get("locations", [content]))
    return content if isinstance(content, list) else []


def _row(feature: Any, agent: str) -> Row | None:
    geometry = feature.get("geometry") if isinstance(feature, dict) else None
    properties = feature.get("properties") if isinstance(feature, dict) else None
    if not isinstance(geometry, dict) or not isinstance(properties, dict) or geometry.get("type") != "Point":
        return None
    degrees = geometry.get("coordinates")
    if not isinstance(degrees, list) or len(degrees) < 2 or not all(_is_number(v) for v in degrees[:2]):
        return None
    names = match_names([name for name in properties if isinstance(properties[name], (str, int, float))], _NAMES)
    time = to_microseconds(properties.get(names.get("time", "")))
    if time is None:
        return None
    whose: Any = properties.get(names.get("agent_id", ""))
    accuracy: Any = properties.get(names.get("accuracy_m", ""))
    accuracy_m = float(accuracy) if _is_number(accuracy) and accuracy >= 0 else None
    return str(whose) if whose not in (None, "") else agent, time, float(degrees[1]), float(degrees[0]), accuracy_m


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e12
