"""What trackers send, read as they send it: OwnTracks, Overland, GPSLogger, the Traccar client and the Traccar server.

In: the body and the parameters of one request. Out: a `Report` with the positions in it. A request that is not of its
app's form is refused (`InvalidError`); a position that the app itself calls invalid is left out and counted.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import pyarrow as pa

from ustad.clock import microseconds
from ustad.service.errors import InvalidError
from ustad.tables import TIMESTAMP

FARTHEST = 2.0**62  # microseconds: no time is farther from 1970
MILLISECONDS_FROM = 2**31  # a larger number of seconds lies beyond 2038
Fields = Mapping[str, Any]


class Position(NamedTuple):
    """One fix: microseconds since 1970, degrees, metres (none where the app does not know)."""

    time: int
    lat: float
    lon: float
    accuracy: float | None


def fix_table(agents: Sequence[str], positions: Sequence[Position]) -> pa.Table:
    """Positions as the table of fixes that stays are extracted from; `agents` says whose each is."""
    times, lats, lons, accuracies = ([position[i] for position in positions] for i in range(4))
    return pa.table(
        {
            "agent_id": pa.array(agents, pa.string()),
            "time": pa.array(times, pa.int64()).cast(TIMESTAMP),
            "lat": pa.array(lats, pa.float64()),
            "lon": pa.array(lons, pa.float64()),
            "accuracy_m": pa.array(accuracies, pa.float64()),
        }
    )


@dataclass(frozen=True)
class Report:
    """What one request said. `device` is what a server that passes on for many calls the device."""

    positions: list[Position]
    left_out: int = 0
    battery: float | None = None  # percent
    device: str | None = None

    @classmethod
    def of(cls, read: Sequence[Position | None], battery: float | None = None, device: str | None = None) -> Report:
        """In order of time; those that are none were left out."""
        positions = sorted((p for p in read if p is not None), key=lambda p: p.time)
        return cls(positions, len(read) - len(positions), battery, device)


@dataclass(frozen=True)
class Protocol:
    """How an app's requests are read, and the answer after which it deletes what it has sent."""

    read: Callable[[bytes, Fields], Report]
    methods: tuple[str, ...] = ("POST",)
    answer: bytes = b""
    media: str = "text/plain"


# ------------------------------------------------------------------------------------------------ the apps
def read_owntracks(body: bytes, parameters: Fields) -> Report:
    """One message as JSON, or several in a list. Only those of the type `location` hold a fix."""
    if not body.strip():
        return Report([])  # a friend was deleted in the app
    content = _json(body)
    messages = [_object(m) for m in (content if isinstance(content, list) else [content])]
    if any("_type" not in m for m in messages):
        raise InvalidError("an OwnTracks message needs its '_type'")
    if any(m["_type"] == "encrypted" for m in messages):
        raise InvalidError("encrypted messages cannot be read; clear the encryption key in the app and use https")
    fixes = [m for m in messages if m["_type"] == "location"]
    positions = [_position(m, time="tst", lat="lat", lon="lon", accuracy="acc") for m in fixes]
    return Report.of(positions, _battery([m.get("batt") for m in fixes]))


def read_overland(body: bytes, parameters: Fields) -> Report:
    """A batch of GeoJSON points under `locations`. Trips, visits and other notes among them are no fixes."""
    locations = _object(_json(body)).get("locations")
    if not isinstance(locations, list):
        raise InvalidError("an Overland batch needs a list of 'locations'")
    positions, levels = [], []
    for number, feature in enumerate(locations):
        properties = _object(_object(feature).get("properties"))
        if "action" in properties or properties.get("type") in ("trip", "visit"):
            continue
        place = _object(feature.get("geometry")).get("coordinates")
        if not isinstance(place, list) or len(place) < 2:
            raise InvalidError("a location needs a point with longitude and latitude", [{"row": number}])
        fields = {**properties, "lon": place[0], "lat": place[1]}
        positions.append(_position(fields, time="timestamp", lat="lat", lon="lon", accuracy="horizontal_accuracy"))
        levels.append(properties.get("battery_level"))
    return Report.of(positions, _battery(levels, full=1.0))


def read_gpslogger(body: bytes, parameters: Fields) -> Report:
    """`lat`, `lon`, `time` (or `timestamp`), `acc` and `batt` in the address, in a form, or in a flat JSON object."""
    return _read_parameters(_flat(body, parameters), needs_place=True)


def read_osmand(body: bytes, parameters: Fields) -> Report:
    """The Traccar client and OsmAnd: parameters, or since version 9 of the client JSON. A request without a place is a
    sign of life."""
    content = _json(body) if body.lstrip()[:1] == b"{" else None
    if isinstance(content, dict) and isinstance(content.get("location"), dict | list):
        return _read_client(content["location"])
    return _read_parameters(_flat(body, parameters), needs_place=False)


def read_traccar(body: bytes, parameters: Fields) -> Report:
    """A Traccar server that passes on (`forward.type` json): one position and its device. Events may have none."""
    content = _object(_json(body))
    device = _object(content.get("device")).get("uniqueId")
    if not isinstance(device, str) or not device:
        raise InvalidError("a forwarded position needs its device's 'uniqueId'; set forward.type to json")
    if content.get("position") is None:
        return Report([], device=device)
    position = _object(content["position"])
    attributes = position.get("attributes")
    level = attributes.get("batteryLevel") if isinstance(attributes, dict) else None
    fix = None
    if position.get("valid") is not False and position.get("outdated") is not True:
        fix = _position(position, time="fixTime", lat="latitude", lon="longitude", accuracy="accuracy")
    return Report.of([fix], _battery([level]), device)


PROTOCOLS = {
    "owntracks": Protocol(read_owntracks, answer=b"[]", media="application/json"),
    "overland": Protocol(read_overland, answer=b'{"result":"ok"}', media="application/json"),
    "gpslogger": Protocol(read_gpslogger, ("GET", "POST")),
    "osmand": Protocol(read_osmand, ("GET", "POST")),
    "traccar": Protocol(read_traccar),
}


# ------------------------------------------------------------------------------------------ their parts
def _read_client(locations: Any) -> Report:
    """The JSON of the Traccar client: one location, or several in a list."""
    objects = [_object(one) for one in (locations if isinstance(locations, list) else [locations])]
    positions = []
    for one in objects:
        fields = {**_object(one.get("coords")), "timestamp": one.get("timestamp")}
        positions.append(_position(fields, time="timestamp", lat="latitude", lon="longitude", accuracy="accuracy"))
    batteries = [one["battery"] for one in objects if isinstance(one.get("battery"), dict)]
    return Report.of(positions, _battery([b.get("level") for b in batteries], full=1.0))


def _read_parameters(fields: Fields, needs_place: bool) -> Report:
    if "location" in fields:
        lat, _, lon = str(fields["location"]).partition(",")
        fields = {**fields, "lat": lat, "lon": lon}
    names = {
        "time": ("timestamp", "time"), "lat": ("lat", "latitude"), "lon": ("lon", "lng", "long", "longitude"),
        "accuracy": ("accuracy", "acc"),
    }  # fmt: skip
    columns = {ours: next((n for n in theirs if n in fields), theirs[0]) for ours, theirs in names.items()}
    battery = _battery([fields.get("batt", fields.get("battery"))])
    if columns["lat"] not in fields and columns["lon"] not in fields:
        if needs_place:
            raise InvalidError("lat, lon and time are needed: …?lat=%LAT&lon=%LON&time=%TIME&acc=%ACC&batt=%BATT")
        return Report([], battery=battery)
    valid = str(fields.get("valid", "true")).lower() in ("true", "1")
    return Report.of([_position(fields, **columns) if valid else None], battery)


def _position(fields: Fields, *, time: str, lat: str, lon: str, accuracy: str) -> Position | None:
    """The fix in these fields, by their names. An accuracy below zero says that there is no position: none then; one of
    zero says that it is not known."""
    metres = _number(fields, accuracy) if fields.get(accuracy) not in (None, "") else 0.0
    if metres < 0:
        return None
    degrees = _number(fields, lat), _number(fields, lon)
    if abs(degrees[0]) > 90 or abs(degrees[1]) > 180:
        raise InvalidError(f"'{lat}' lies between -90 and 90, '{lon}' between -180 and 180")
    return Position(read_time(fields.get(time), time), *degrees, metres or None)


def read_time(value: Any, name: str = "time") -> int:
    """Microseconds since 1970 from seconds, milliseconds or ISO 8601; without a zone it is UTC."""
    try:
        seconds = float(value) if not isinstance(value, bool) else math.nan
    except OverflowError:
        seconds = math.inf
    except (TypeError, ValueError):
        try:
            moment = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            raise InvalidError(f"'{name}' is needed, as seconds since 1970 or as ISO 8601 with its zone") from None
        return microseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    if not math.isfinite(seconds):
        raise InvalidError(f"'{name}' must be a finite number")
    moment_us = seconds * (1e6 if seconds < MILLISECONDS_FROM else 1e3)
    # A number of any size is taken: then the clock is wrong, and the answer says so.
    return round(max(-FARTHEST, min(moment_us, FARTHEST)))


def _number(fields: Fields, name: str) -> float:
    value = fields.get(name)
    try:
        number = math.nan if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidError(f"'{name}' must be a number")
    return number


def _battery(levels: list[Any], full: float = 100.0) -> float | None:
    """Percent, of the last one that says something: apps send -1 where they do not know."""
    for level in reversed(levels):
        try:
            percent = 100.0 * float(level) / full
        except (TypeError, ValueError, OverflowError):
            continue
        if 0 <= percent <= 100:
            return percent
    return None


def _flat(body: bytes, parameters: Fields) -> Fields:
    """Parameters of the address, and those of the body: a form or a JSON object."""
    if body.lstrip()[:1] == b"{":
        return {**_object(_json(body)), **parameters}
    return {**dict(parse_qsl(body.decode("utf-8", "replace"))), **parameters}


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidError("the body is not valid JSON") from None


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidError("the request does not have the form of this app: a JSON object is missing")
    return value
