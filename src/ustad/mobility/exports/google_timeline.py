"""Google's timeline: visits as stays, or, where an export holds no visits, its positions as fixes.

Three forms are read: the on-device export of Android (`semanticSegments`, `rawSignals`) and of iOS (a list with
`geo:` texts), and Takeout's months of `Semantic Location History` (`timelineObjects`). In: the path; out: one table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from ustad.mobility.exports.content import contains, person_of, read_json_whole, repeat, times, to_microseconds
from ustad.mobility.reading import Reading
from ustad.tables import DataError

_POSITION = re.compile(r"^\s*(?:geo:)?\s*(-?\d+(?:\.\d+)?)\s*°?\s*,\s*(-?\d+(?:\.\d+)?)\s*°?")
_KINDS = {"home": "home", "inferred_home": "home", "work": "work", "inferred_work": "work"}
Visit = tuple[int, int, float, float, str | None, str]  # start and end (µs), lat, lon, place, kind of place
Position = tuple[int, float, float, float | None]  # time (µs), lat, lon, accuracy (m)
_MINUTE = 60_000_000


def is_timeline(head: bytes) -> bool:
    """Whether a file begins as one of the three forms does."""
    start = head.lstrip()[:1]
    if start == b"{":
        return any(word in head for word in (b'"semanticSegments"', b'"timelineObjects"', b'"rawSignals"'))
    return start == b"[" and b'"startTime"' in head and b'"geo:' in head


def has_visits(head: bytes, path: Path) -> bool:
    """Whether a timeline holds visits, anywhere in the file."""
    return is_timeline(head) and contains(path, (b'"visit"', b'"placeVisit"'))


def has_positions(head: bytes, path: Path) -> bool:
    """Whether a timeline holds positions alone."""
    return is_timeline(head) and not has_visits(head, path)


def read_visits(path: Path, reading: Reading) -> Iterator[pa.Table]:
    """Visits as stays. Visits within a visit (a shop in a mall) are left out; the place outside is the stay."""
    segments = [s for s in _list(_segments(read_json_whole(path))) if isinstance(s, dict) and _content(s) is not None]
    outer = [s for s in segments if str((_content(s) or {}).get("hierarchyLevel", 0)) == "0"]
    visits = [visit for segment in outer if (visit := _visit(segment)) is not None]
    agent = person_of(path)
    if not visits:
        raise DataError(f"{path}: the timeline holds no visit with a position and a time; export it again")
    reading.say(f"Google timeline: visits are stays of one person, called after the folder '{agent}'")
    if len(segments) > len(outer):
        reading.say(f"Google timeline: {len(segments) - len(outer):,} visits inside another were left out")
    if len(outer) > len(visits):
        reading.bad_rows += len(outer) - len(visits)
        reading.say(f"dropped: {path}: {len(outer) - len(visits):,} visits without a position or a time")
    start, end, lat, lon, place, kind = zip(*visits, strict=True)
    yield pa.table(
        {
            "agent_id": repeat(agent, len(visits)),
            "started_at": times(start),
            "finished_at": times(end),
            "lat": pa.array(lat),
            "lon": pa.array(lon),
            "poi_id": pa.array(place, pa.string()),
            "poi_category": pa.array(kind, pa.string()),
        }
    )


def read_positions(path: Path, reading: Reading) -> Iterator[pa.Table]:
    """The positions of an export without visits: points of paths, and the raw ones of the last weeks."""
    content = read_json_whole(path)
    signals = content.get("rawSignals") if isinstance(content, dict) else None
    rows = [row for signal in _list(signals) if (row := _signal(signal)) is not None]
    segments = _list(_segments(content))
    rows += [row for segment in segments for row in _path_points(segment)]
    if not rows:
        raise DataError(f"{path}: the timeline holds neither visits nor positions")
    agent = person_of(path)
    reading.say(f"Google timeline: positions of one person, called after the folder '{agent}'")
    time, lat, lon, accuracy = zip(*rows, strict=True)
    yield pa.table(
        {
            "agent_id": repeat(agent, len(rows)),
            "time": times(time),
            "lat": pa.array(lat),
            "lon": pa.array(lon),
            "accuracy_m": pa.array(accuracy, pa.float64()),
        }
    )


def _segments(content: Any) -> Any:
    return content.get("semanticSegments", content.get("timelineObjects")) if isinstance(content, dict) else content


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _content(segment: dict[str, Any]) -> dict[str, Any] | None:
    """What a segment says of a visit, in either form."""
    visit = segment.get("visit", segment.get("placeVisit"))
    return visit if isinstance(visit, dict) else None


def _visit(segment: dict[str, Any]) -> Visit | None:
    """One visit, or None where it lacks something."""
    visit = _content(segment) or {}
    place = visit.get("topCandidate") or visit.get("location") or {}
    when = visit.get("duration") or segment
    if not isinstance(place, dict) or not isinstance(when, dict):
        return None
    start, end = (to_microseconds(_first(when, f"{side}Timestamp", f"{side}TimestampMs", f"{side}Time"))
                  for side in ("start", "end"))  # fmt: skip
    position = _degrees(place) or _degrees(visit)
    if start is None or end is None or position is None or end < start:
        return None
    kind = str(place.get("semanticType") or "").lower().removeprefix("type_")
    name = _first(place, "placeId", "placeID")
    return start, end, *position, name if isinstance(name, str) else None, _KINDS.get(kind, "other")


def _degrees(place: dict[str, Any]) -> tuple[float, float] | None:
    """Latitude and longitude, as numbers times 10⁷ or as text (`52.5°, 13.4°`, `geo:52.5,13.4`)."""
    lat, lon = _first(place, "latitudeE7", "centerLatE7"), _first(place, "longitudeE7", "centerLngE7")
    if isinstance(lat, (int, float)) and isinstance(lon, (int, float)):
        return lat / 1e7, lon / 1e7
    text = place.get("placeLocation")
    return _position(text.get("latLng") if isinstance(text, dict) else text)


def _position(text: Any) -> tuple[float, float] | None:
    match = _POSITION.match(text) if isinstance(text, str) else None
    return (float(match[1]), float(match[2])) if match else None


def _signal(signal: Any) -> Position | None:
    position = signal.get("position") if isinstance(signal, dict) else None
    if not isinstance(position, dict):
        return None
    time, degrees = to_microseconds(position.get("timestamp")), _position(_first(position, "LatLng", "latLng"))
    accuracy = position.get("accuracyMeters")
    if time is None or degrees is None:
        return None
    return time, *degrees, float(accuracy) if isinstance(accuracy, (int, float)) else None


def _path_points(segment: Any) -> Iterator[Position]:
    """Points along the way; iOS counts their minutes from the start of the segment."""
    start = to_microseconds(segment.get("startTime")) if isinstance(segment, dict) else None
    if start is None:
        return
    for point in _list(segment.get("timelinePath")):
        degrees = _position(point.get("point")) if isinstance(point, dict) else None
        if degrees is None:
            continue
        time, minutes = to_microseconds(point.get("time")), str(point.get("durationMinutesOffsetFromStartTime", ""))
        if time is None and minutes.isdigit() and len(minutes) < 7:
            time = start + int(minutes) * _MINUTE
        if time is not None:
            yield time, *degrees, None


def _first(content: dict[str, Any], *names: str) -> Any:
    """The value of the first name that is there."""
    return next((content[name] for name in names if content.get(name) is not None), None)
