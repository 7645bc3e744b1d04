"""Requests as trackers make them, written after the public descriptions of their protocols, and what each says.

Places and names are made up. `KEY` stands where the app puts the key of its device.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

KEY = "KEY"


def at(text: str) -> int:
    """Microseconds since 1970 of a moment with its zone."""
    return round(datetime.fromisoformat(text).timestamp() * 1e6)


@dataclass(frozen=True)
class Recorded:
    """One request: where the app sends it, what, and the fixes in it (time, lat, lon, accuracy)."""

    name: str
    app: str
    path: str
    fixes: list[tuple[int, float, float, float | None]]
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    battery: float | None = None
    answer: bytes = b""

    def send(self, client: Any, key: str) -> Any:
        """The request with this key where the app has it."""
        headers = dict(self.headers)
        if headers.get("Authorization") == f"Basic {KEY}":
            headers["Authorization"] = "Basic " + base64.b64encode(f"anna:{key}".encode()).decode()
        headers = {name: value.replace(f"Bearer {KEY}", f"Bearer {key}") for name, value in headers.items()}
        return client.request(
            self.method, self.path.replace(KEY, key), headers=headers, content=self.body.encode() or None
        )


OWNTRACKS = {
    "Authorization": f"Basic {KEY}", "Content-Type": "application/json; charset=utf-8", "X-Limit-U": "anna",
    "X-Limit-D": "pixel", "User-Agent": "Owntracks-Android/gms/420500",
}  # fmt: skip
OVERLAND = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
JSON = {"Content-Type": "application/json"}
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def point(lon: float, lat: float, **properties: Any) -> dict[str, Any]:
    """A feature of Overland."""
    geometry = {"type": "Point", "coordinates": [lon, lat]}
    return {"type": "Feature", "geometry": geometry, "properties": {"device_id": "", "wifi": "", **properties}}


BATCH = {
    "locations": [
        point(24.9384, 60.1699, timestamp="2024-03-04T09:15:00+0200", altitude=12, speed=0, horizontal_accuracy=30,
              vertical_accuracy=-1, motion=["stationary"], battery_state="unplugged", battery_level=0.89),
        point(24.9501, 60.1712, timestamp="2024-03-04T07:20:00Z", altitude=9, speed=4, horizontal_accuracy=8,
              vertical_accuracy=3, motion=["walking"], battery_state="unplugged", battery_level=0.87),
        point(24.9501, 60.1712, timestamp="2024-03-04T07:21:00Z", action="paused_location_updates"),
        {"type": "Feature", "properties": {"timestamp": "2024-03-04T07:21:30Z", "action": "exited_pause_region"}},
        point(24.9384, 60.1699, type="trip", mode="walk", start="2024-03-04T07:15:00Z", end="2024-03-04T07:20:00Z",
              timestamp="2024-03-04T07:20:00Z", distance=700, duration=300, steps=800),
        point(24.9502, 60.1713, timestamp="2024-03-04T07:22:00Z", horizontal_accuracy=-1, battery_level=0.87),
    ],
    "current": point(24.99, 60.2, timestamp="2024-03-04T07:30:00Z", horizontal_accuracy=5),
    "trip": {"distance": 700, "mode": "walk", "start": "2024-03-04T07:15:00Z"},
}  # fmt: skip
CLIENT = {
    "location": {
        "timestamp": "2024-03-04T07:15:12.862Z",
        "coords": {"latitude": 60.1699, "longitude": 24.9384, "accuracy": 5, "speed": 0, "heading": -1, "altitude": 5},
        "is_moving": False, "odometer": 0, "event": "motionchange", "battery": {"level": 0.79, "is_charging": False},
        "activity": {"type": "still"}, "extras": {},
        "_": "&id=48241179&lat=60.1699&lon=24.9384&timestamp=2024-03-04T07:15:12.862Z&",
    },
    "device_id": "48241179",
}  # fmt: skip
FORWARDED = {
    "position": {
        "id": 12345, "attributes": {"batteryLevel": 85.0, "distance": 15.4, "motion": True}, "deviceId": 10,
        "protocol": "osmand", "serverTime": "2024-03-04T07:15:05.000+00:00",
        "deviceTime": "2024-03-04T07:15:00.000+00:00",
        "fixTime": "2024-03-04T07:15:00.000+00:00", "outdated": False, "valid": True, "latitude": 60.1699,
        "longitude": 24.9384, "altitude": 12.0, "speed": 1.3, "course": 180.0, "address": None, "accuracy": 0.0,
        "network": None, "geofenceIds": None,
    },
    "device": {
        "id": 10, "attributes": {}, "groupId": 0, "name": "Anna's phone", "uniqueId": "anna", "status": "online",
        "lastUpdate": "2024-03-04T07:15:05.000+00:00", "positionId": 12344, "phone": None, "model": None,
        "category": "person", "disabled": False,
    },
}  # fmt: skip

RECORDED = [
    Recorded(
        "OwnTracks, Android", "owntracks", "/device/owntracks", [(at("2024-03-04T07:15:00Z"), 60.1699, 24.9384, 12.0)],
        headers=OWNTRACKS, battery=64.0, answer=b"[]",
        body=json.dumps({
            "_type": "location", "BSSID": "00:00:00:00:00:00", "acc": 12, "alt": 20, "batt": 64, "bs": 1, "conn": "w",
            "created_at": 1709536503, "lat": 60.1699, "lon": 24.9384, "m": 1, "t": "p", "tid": "an",
            "topic": "owntracks/http/an", "tst": 1709536500, "vac": 3, "vel": 0,
        }),
    ),
    Recorded(
        "OwnTracks, iOS", "owntracks", "/device/owntracks", [(at("2024-03-04T07:15:00Z"), 60.1699, 24.9384, None)],
        headers=OWNTRACKS, answer=b"[]",
        body=json.dumps({
            "_type": "location", "tid": "AN", "lat": 60.1699, "lon": 24.9384, "tst": 1709536500, "cog": 0, "vac": 4,
            "inregions": ["Home"], "topic": "owntracks/anna/iphone",
        }),
    ),
    Recorded(
        "OwnTracks, a region left", "owntracks", "/device/owntracks", [], headers=OWNTRACKS, answer=b"[]",
        body=json.dumps({
            "_type": "transition", "acc": 20.0, "desc": "Home", "event": "leave", "lat": 60.17, "lon": 24.93, "t": "c",
            "tid": "an", "tst": 1709536560, "wtst": 1700000000,
        }),
    ),
    Recorded("OwnTracks, a friend deleted", "owntracks", "/device/owntracks", [], headers=OWNTRACKS, answer=b"[]"),
    Recorded(
        "Overland, a batch", "overland", "/device/overland",
        [(at("2024-03-04T07:15:00Z"), 60.1699, 24.9384, 30.0), (at("2024-03-04T07:20:00Z"), 60.1712, 24.9501, 8.0)],
        headers=OVERLAND, body=json.dumps(BATCH), battery=87.0, answer=b'{"result":"ok"}',
    ),
    Recorded(
        "GPSLogger, in the address", "gpslogger",
        "/device/gpslogger?lat=60.1699&lon=24.9384&time=2024-03-04T07:15:00.000Z&acc=10.618999481201172&batt=57.0",
        [(at("2024-03-04T07:15:00Z"), 60.1699, 24.9384, 10.618999481201172)],
        method="GET", headers={"Authorization": f"Basic {KEY}"}, battery=57.0,
    ),
    Recorded(
        "GPSLogger, a form", "gpslogger", "/device/gpslogger", [(at("2024-03-04T07:15:00Z"), 60.1699, 24.9384, None)],
        headers={"Authorization": f"Bearer {KEY}"}, battery=57.0,  # its body has a type only where one is set
        body="lat=60.1699&lon=24.9384&sat=0&desc=&alt=12.0&acc=0.0&dir=0.0&prov=network&spd=0.0&timestamp=1709536500"
        "&time=2024-03-04T07:15:00.000Z&batt=57.0&aid=ab&ser=cd",
    ),
    Recorded(
        "Traccar client to 8, Android", "osmand",
        f"/device/osmand/{KEY}?id=123456&timestamp=1709536500&lat=60.1699&lon=24.9384&speed=0.0&bearing=0.0&altitude=12.0"
        "&accuracy=14.5&batt=87.0",
        [(at("2024-03-04T07:15:00Z"), 60.1699, 24.9384, 14.5)], battery=87.0,
    ),
    Recorded(
        "OsmAnd, milliseconds", "osmand",
        f"/device/osmand/{KEY}?id=anna&lat=60.1699&lon=24.9384&timestamp=1709536500579&hdop=6.0&altitude=22.0&speed=0.0",
        [(at("2024-03-04T07:15:00.579Z"), 60.1699, 24.9384, None)], method="GET",
    ),
    Recorded(
        "OsmAnd, a form with one place", "osmand", f"/device/osmand/{KEY}",
        [(at("2024-03-04T07:15:00Z"), 60.1699, 24.9384, None)], headers=FORM,
        body="deviceid=123456&timestamp=2024-03-04+07%3A15%3A00&location=60.1699,24.9384&valid=true",
    ),
    Recorded(
        "OsmAnd, antennas instead of a place", "osmand",
        f"/device/osmand/{KEY}?id=123456&timestamp=1709536500&cell=257,02,16,2224&batt=50", [], method="GET",
        battery=50.0,
    ),
    Recorded(
        "Traccar client from 9", "osmand", f"/device/osmand/{KEY}",
        [(at("2024-03-04T07:15:12.862Z"), 60.1699, 24.9384, 5.0)], headers=JSON, body=json.dumps(CLIENT), battery=79.0,
    ),
    Recorded(
        "Traccar server", "traccar", "/device/traccar", [(at("2024-03-04T07:15:00Z"), 60.1699, 24.9384, None)],
        headers={**JSON, "Authorization": f"Bearer {KEY}"}, body=json.dumps(FORWARDED), battery=85.0,
    ),
    Recorded(
        "Traccar server, an address for each device", "traccar", f"/device/traccar/{KEY}",
        [(at("2024-03-04T07:15:00Z"), 60.1699, 24.9384, None)], headers=JSON, body=json.dumps(FORWARDED), battery=85.0,
    ),
]  # fmt: skip
