"""Small files of each kind of export, made for the tests: what the products write, with invented places."""

from __future__ import annotations

import io
import json
import struct
import zipfile

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


def fit(points: list[tuple[int, float, float]], order: str = "<", compressed: bool = False) -> bytes:
    """A FIT file of (seconds since 1989-12-31, lat, lon), with a field of a developer and a record without position."""
    body = bytearray()
    fields = [(253, 4, 0x86), (0, 4, 0x85), (1, 4, 0x85), (31, 1, 0x02)][compressed:]
    body += bytes([0x60, 0, order == ">"]) + struct.pack(f"{order}HB", 20, len(fields))
    body += b"".join(bytes(f) for f in fields) + bytes([1, 0, 2, 0])  # and one of two bytes by a developer
    for i, (second, lat, lon) in enumerate(points):
        degrees = [round(v * 2**31 / 180) for v in (lat, lon)]
        head = bytes([0x80 | second & 31]) if compressed and i else bytes([0])
        if compressed and not i:  # the whole clock once, in a message of its own
            body += bytes([0x41, 0, order == ">"]) + struct.pack(f"{order}HB", 21, 1) + bytes([253, 4, 0x86])
            body += bytes([1]) + struct.pack(f"{order}I", second)
            head = bytes([0x80 | second & 31])
        moment = b"" if compressed else struct.pack(f"{order}I", second)
        body += head + moment + struct.pack(f"{order}iiB", *degrees, 4 if i else 255) + b"zz"
    if points and not compressed:
        body += bytes([0]) + struct.pack(f"{order}IiiB", points[-1][0] + 1, 0x7FFFFFFF, 0x7FFFFFFF, 255) + b"zz"
    head = struct.pack("<BBHI4s", 14, 32, 2100, len(body), b".FIT") + b"\0\0"
    return head + bytes(body) + b"\0\0"


FIT_CLOCK = 1083485400  # seconds since 1989-12-31: 2024-05-01T08:10:00Z
WORKOUT = [(FIT_CLOCK, 52.52, 13.405), (FIT_CLOCK + 20, -33.87, 151.2), (FIT_CLOCK + 45, 52.521, -0.25)]

TCX = b"""  <?xml version="1.0" encoding="UTF-8"?>
<TrainingCenterDatabase xmlns="http://www.garmin.com/xmlschemas/TrainingCenterDatabase/v2"><Activities>
<Activity Sport="Biking"><Id>2024-05-01T08:00:00Z</Id><Lap StartTime="2024-05-01T08:00:00Z"><Track>
<Trackpoint><Time>2024-05-01T08:00:00Z</Time><Position><LatitudeDegrees>52.52</LatitudeDegrees>
<LongitudeDegrees>13.405</LongitudeDegrees></Position><HeartRateBpm><Value>99</Value></HeartRateBpm></Trackpoint>
<Trackpoint><Time>2024-05-01T08:00:05Z</Time><HeartRateBpm><Value>101</Value></HeartRateBpm></Trackpoint>
<Trackpoint><Time>2024-05-01T08:00:10.500Z</Time><Position><LatitudeDegrees>52.53</LatitudeDegrees>
<LongitudeDegrees>-0.5</LongitudeDegrees></Position></Trackpoint>
</Track></Lap></Activity></Activities></TrainingCenterDatabase>"""

KML = b"""<?xml version="1.0" encoding="UTF-8"?>
<kml xmlns="http://www.opengis.net/kml/2.2" xmlns:gx="http://www.google.com/kml/ext/2.2"><Document>
<Placemark><gx:Track><when>2024-05-01T08:00:00Z</when><when>2024-05-01T08:01:00Z</when>
<gx:coord>13.405 52.52 34</gx:coord><gx:coord>13.406 52.521 35</gx:coord></gx:Track></Placemark>
<Placemark><TimeStamp><when>2024-05-01T08:02:00Z</when></TimeStamp><Point><coordinates> 13.407,52.522,0
</coordinates></Point></Placemark>
<Placemark><LineString><coordinates>1,2 3,4</coordinates></LineString></Placemark>
</Document></kml>"""

KML_SPANS = b"""<?xml version="1.0" encoding="UTF-8"?>
<kml xmlns="http://www.opengis.net/kml/2.2"><Document><Placemark><name>Work</name><TimeSpan>
<begin>2024-05-01T09:00:00Z</begin><end>2024-05-01T17:00:00Z</end></TimeSpan>
<Point><coordinates>13.405,52.52,10</coordinates></Point></Placemark></Document></kml>"""

_MESSAGE = '{"_type":"location",%s"lat":%s,"lon":%s,"tst":%d,"topic":"owntracks/jane/phone","tid":"ja"}'
OWNTRACKS = "".join(
    f"{when}\t{what:<18}\t{message}\n"
    for when, what, message in (
        ("2024-05-01T08:00:00Z", "*", _MESSAGE % ('"acc":14,', 52.52, 13.405, 1714550400)),
        ("2024-05-01T08:00:30Z", "lwt", '{"_type":"lwt","tst":1714550430}'),
        ("2024-05-01T08:01:00Z", "*", _MESSAGE % ("", 52.521, 13.406, 1714550460)),
    )
).encode()

_SHOP = ("49bbd6c0f964a520f4531fe3", "4bf58dd8d48988d127951735", "Arts & Crafts Store", "40.71981", "-74.00258")
_CAFE = ("4a43c0aef964a520c6a61fe3", "4bf58dd8d48988d1df941735", "Caf\xe9", "40.6068", "-74.04417")
FOURSQUARE = "".join(
    "\t".join((user, *venue, "-240", when)) + "\n"
    for user, venue, when in (
        ("470", _SHOP, "Tue Apr 03 18:00:09 +0000 2012"),
        ("979", _CAFE, "Tue Apr 03 18:00:25 +0000 2012"),
        ("470", _SHOP, "Wed Apr 04 18:00:09 +0000 2012"),
    )
).encode("latin-1")

GOWALLA = b"""0\t2010-10-19T23:55:27Z\t30.2359091167\t-97.7951395833\t22847
0\t2010-10-18T22:17:43Z\t30.2691029532\t-97.7493953705\t420315
1\t2010-10-17T23:42:03Z\t30.2557309927\t-97.7633857727\t316637
"""

YJMOB = b"""uid,d,t,x,y
0,0,1,79,86
0,0,2,79,86
0,0,8,79,86
0,0,9,77,86
1,3,47,10,1
1,4,0,10,1
1,5,3,-999,-999
"""

PORTO = b""""TRIP_ID","CALL_TYPE","ORIGIN_CALL","ORIGIN_STAND","TAXI_ID","TIMESTAMP","DAY_TYPE","MISSING","POLYLINE"
"1372636858620000589","C","","","20000589","1372636858","A","False","[[-8.618643,41.141412],[-8.618499,41.141376]]"
"1372637303620000596","B","","7","20000596","1372637303","A","False","[[-8.639847,41.159826]]"
"1372636951620000320","C","","","20000320","1372636951","A","False","[]"
"""

TDRIVE = b"""1,2008-02-02 15:36:08,116.51172,39.92123
1,2008-02-02 15:46:08,116.51135,39.93883
"""

MOBILITYDB = b"""vehicle_id,trip
7,"SRID=4326;[POINT(13.405 52.52)@2024-05-01 08:00:00+00, POINT(13.406 52.521)@2024-05-01 10:01:00.5+02]"
8,"{[Point(13.4 52.5)@2024-05-01 08:00:00+00], [Point(13.41 52.5)@2024-05-01 09:00:00+00)}"
"""


def kmz(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("doc.kml", content)
    return packed.getvalue()


GEOJSON = {
    "type": "FeatureCollection",
    "features": [
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [13.405, 52.52, 34.0]},
         "properties": {"timestamp": "2024-05-01T08:00:00Z", "horizontal_accuracy": 8, "device_id": "phone"}},
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [13.406, 52.521]},
         "properties": {"tst": 1714550460}},
        {"type": "Feature", "geometry": {"type": "Point", "coordinates": [1, 2]}, "properties": {"name": "no time"}},
        {"type": "Feature", "geometry": None, "properties": {}},
    ],
}  # fmt: skip

#: File name → content, of every kind.
SAMPLES: dict[str, bytes] = {
    "Records.json": json.dumps(RECORDS, indent=2).encode(),
    "Timeline.json": json.dumps(ANDROID, indent=2, ensure_ascii=False).encode(),
    "location-history.json": json.dumps(IOS, indent=2).encode(),
    "2022_JANUARY.json": json.dumps(MONTH, indent=2).encode(),
    "points.geojson": json.dumps(GEOJSON).encode(),
    "ride.fit": fit(WORKOUT),
    "ride.tcx": TCX,
    "track.kml": KML,
    "track.kmz": kmz(KML),
    "visits.kml": KML_SPANS,
    "2024-05.rec": OWNTRACKS,
    "dataset_TSMC2014_NYC.txt": FOURSQUARE,
    "gowalla.txt": GOWALLA,
    "yjmob100k.csv": YJMOB,
    "porto.csv": PORTO,
    "1.txt": TDRIVE,
    "trips.csv": MOBILITYDB,
    "raw.json": json.dumps({"rawSignals": ANDROID["rawSignals"], "semanticSegments": []}).encode(),
}
