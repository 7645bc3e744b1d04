"""Small files of each kind of export, made for the tests: what the products write, with invented places."""

from __future__ import annotations

import json

RECORDS = {
    "locations": [
        {"latitudeE7": 525200000, "longitudeE7": 134050000, "accuracy": 12, "deviceTag": 7, "source": "WIFI",
         "activity": [{"activity": [{"type": "STILL", "confidence": 62}], "timestamp": "1999-01-01T00:00:00Z"}],
         "timestamp": "2024-05-01T08:00:00.250Z"},
        {"latitudeE7": 525210000, "longitudeE7": 4294967295 - 9999, "accuracy": 30, "timestampMs": "1714550460000"},
        {"source": "UNKNOWN", "timestamp": "2024-05-01T08:02:00Z"},
        {"latitudeE7": -338700000, "longitudeE7": 1512000000, "note": 'a "quoted" } word', "deviceTag": -8,
         "timestamp": "2024-05-01T10:03:00+02:00"},
    ]
}  # fmt: skip


def _android_visit(start: str, end: str, position: str, kind: str = "HOME", level: int = 0) -> dict:
    place = {"placeId": f"P{kind}", "semanticType": kind, "placeLocation": {"latLng": position}}
    return {"startTime": start, "endTime": end, "visit": {"hierarchyLevel": level, "topCandidate": place}}


ANDROID = {
    "semanticSegments": [
        {"startTime": "2024-05-01T06:00:00.000+02:00", "endTime": "2024-05-01T08:00:00.000+02:00",
         "timelinePath": [{"point": "52.5°, 13.4°", "time": "2024-05-01T06:30:00.000+02:00"}]},
        _android_visit("2024-05-01T08:00:00.000+02:00", "2024-05-01T12:00:00.000+02:00", "52.5200066°, 13.404954°"),
        _android_visit("2024-05-01T09:00:00.000+02:00", "2024-05-01T10:00:00.000+02:00", "52.6°, 13.5°", "UNKNOWN", 1),
        {"startTime": "2024-05-01T12:00:00.000+02:00", "endTime": "2024-05-01T12:30:00.000+02:00",
         "activity": {"start": {"latLng": "52.5°, 13.4°"}, "end": {"latLng": "52.4°, 13.3°"}}},
        _android_visit("2024-05-01T12:30:00.000+02:00", "2024-05-01T17:00:00.000+02:00", "52.4°, 13.3°", "WORK"),
        _android_visit("2024-05-01T16:50:00.000+02:00", "2024-05-01T20:00:00.000+02:00", "52.41°, 13.3°", "UNKNOWN"),
    ],
    "rawSignals": [
        {"position": {"LatLng": "52.52°, 13.40°", "accuracyMeters": 13, "timestamp": "2024-05-01T08:05:00.000+02:00"}},
        {"wifiScan": {"deliveryTime": "2024-05-01T08:05:00.000+02:00"}},
    ],
}  # fmt: skip

IOS = [
    {"startTime": "2024-05-01T08:00:00.000+02:00", "endTime": "2024-05-01T12:00:00.000+02:00",
     "visit": {"hierarchyLevel": "0", "probability": "0.7",
               "topCandidate": {"semanticType": "Home", "placeID": "X", "placeLocation": "geo:52.52,13.405"}}},
    {"startTime": "2024-05-01T10:00:00.000Z", "endTime": "2024-05-01T12:00:00.000Z",
     "timelinePath": [{"point": "geo:52.5,13.4", "durationMinutesOffsetFromStartTime": "49"}]},
]  # fmt: skip

MONTH = {
    "timelineObjects": [
        {"placeVisit": {"location": {"latitudeE7": 525200000, "longitudeE7": 134050000, "placeId": "H",
                                     "semanticType": "TYPE_HOME"},
                        "duration": {"startTimestamp": "2022-01-01T08:00:00Z",
                                     "endTimestamp": "2022-01-01T09:00:00Z"}}},
        {"activitySegment": {"duration": {"startTimestamp": "2022-01-01T09:00:00Z"}}},
        {"placeVisit": {"location": {"placeId": "W"}, "centerLatE7": 524000000, "centerLngE7": 133000000,
                        "duration": {"startTimestampMs": "1641031200000", "endTimestampMs": "1641038400000"}}},
    ]
}  # fmt: skip

#: File name → content, of every kind.
SAMPLES: dict[str, bytes] = {
    "Records.json": json.dumps(RECORDS, indent=2).encode(),
    "Timeline.json": json.dumps(ANDROID, indent=2, ensure_ascii=False).encode(),
    "location-history.json": json.dumps(IOS, indent=2).encode(),
    "2022_JANUARY.json": json.dumps(MONTH, indent=2).encode(),
    "raw.json": json.dumps({"rawSignals": ANDROID["rawSignals"], "semanticSegments": []}).encode(),
}
