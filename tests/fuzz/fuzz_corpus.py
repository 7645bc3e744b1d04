"""The corpus: small files of every kind that is read, written by our own writers and tests. Nobody's data is in it."""

from __future__ import annotations

import gzip
import json
import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from export_samples import SAMPLES
from phone_requests import KEY, RECORDED
from service_example import a_stay, as_events, tiny_stays
from town import fixes, minutes, walks

from ustad.config import Config
from ustad.dataset import Dataset, save_directory
from ustad.detector import Detector
from ustad.mobility.tracker import StayTracker
from ustad.schema import EventSchema, Feature, mobility_schema
from ustad.scoring.adding_judge import AddingJudge
from ustad.scoring.alerts import AlertRule
from ustad.service.live_backends import make_backend

GPX = """<?xml version="1.0"?><gpx version="1.1" creator="ustad"><trk><trkseg>
<trkpt lat="52.52" lon="13.405"><time>2024-05-01T08:00:00Z</time></trkpt>
<trkpt lat="52.521" lon="13.406"><time>2024-05-01T08:01:00Z</time></trkpt></trkseg></trk></gpx>"""
PLT = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n" + "".join(
    f"39.98{i},116.31{i},0,492,39744.1,2008-10-23,02:5{i}:04\n" for i in range(4)
)
OSM = """<?xml version="1.0"?><osm version="0.6"><node id="1" lat="60.17" lon="24.94"><tag k="amenity" v="cafe"/></node>
<node id="2" lat="60.18" lon="24.95"/><way id="3"><nd ref="1"/><nd ref="2"/><tag k="shop" v="bakery"/></way></osm>"""
POIS = 'poi_id,lat,lon,category,name\n1,60.17,24.94,cafe,Café\n2,60.18,24.95,"work|shop",\n'
#: Each letter is nine of the one before: written out, more than there are atoms of memory.
LAUGHS = "[&a [x, y], " + ", ".join(
    f"&{after} [{', '.join([f'*{before}'] * 9)}]" for before, after in pairwise("abcdefghijkl")
) + "]"  # fmt: skip
SMALL = {
    "model.width": 8, "model.heads": 2, "model.event_blocks": 1, "model.trips": "none", "training.epochs": 1,
    "scoring.samples": 2, "scoring.neighbours": 5,
}  # fmt: skip
REQUESTS = {
    "events": ("POST v1/events", {"events": [a_stay("a", 0, 4), a_stay("b", 2, 1, poi_id="p", n_fixes=3)]}),
    "fixes": ("POST v1/fixes", {"fixes": [
        {"agent_id": "a", "time": f"2024-03-01T08:0{m}:00Z", "lat": 60.0, "lon": 25.0, "accuracy_m": 5}
        for m in range(4)
    ]}),
    "verdict": ("PUT v1/alerts/1/verdict", {"verdict": "expected", "reason": "known", "until": "2025-01-01T00:00:00Z"}),
    "alerts": ("GET v1/alerts?since=0&limit=10&order=score&min_score=1&agent=a&kind=novel", {}),
    "lanes": ("GET v1/lanes?first=2024-03-01&last=2024-03-02&limit=10&offset=0", {}),
    "agents": ("GET v1/agents?search=a&limit=5", {}),
    "movements": ("GET v1/agents/a/movements?first=2024-03-01T00:00:00Z&last=2024-03-02T00:00:00Z", {}),
    "event": ("GET v1/events/123456789", {}),
    "delete": ("DELETE v1/agents/%C3%A9", {}),
    "login": ("POST login", {"key": "ustad_x"}),
}  # fmt: skip


def write(corpus: Path) -> None:
    """Everything anew."""
    features = (Feature("host", "categorical"), Feature("bytes", "numeric"))
    anything = EventSchema("logins", features, entity="user", time="at")
    shutil.rmtree(corpus, ignore_errors=True)
    texts = {
        "config": {"laughs.yaml": f"model: {{width: {LAUGHS}}}\n", "short.yaml": "model:\n  width: 16\nseed: 7\n"},
        "schema": {"laughs.yaml": f"entity: user\ntime: at\nfeatures: {LAUGHS}\n"},
        "rules": {"rules.yaml": "cafe: [amenity=cafe, amenity=bar]\nshop: [shop=*]\n", "laughs.yaml": f"a: {LAUGHS}\n"},
        "pois": {"pois.csv": POIS, "places.osm": OSM},
    }
    for target, files in texts.items():
        (corpus / target).mkdir(parents=True)
        for name, text in files.items():
            (corpus / target / name).write_text(text)
    Config.preset("quick").to_yaml(corpus / "config" / "config.yaml")
    mobility_schema("none", 16, True).to_yaml(corpus / "schema" / "schema.yaml")
    anything.to_yaml(corpus / "schema" / "logins.yaml")
    _write_fixes(corpus / "fixes")
    _write_stays(corpus / "stays")
    _write_model(corpus)
    _write_requests(corpus / "http")


def _write_requests(place: Path) -> None:
    """Of programs, and of phones as their apps send; keys go into the header."""
    place.mkdir(exist_ok=True)
    for name, (head, body) in REQUESTS.items():
        (place / name).write_bytes(head.encode() + b"\n" + json.dumps(body).encode())
    for number, recorded in enumerate(RECORDED):
        head = f"{recorded.method} {recorded.path.replace(f'/{KEY}', '').lstrip('/')}\n"
        (place / f"device-{number:02}").write_bytes((head + recorded.body).encode())


def _write_fixes(place: Path) -> None:
    place.mkdir()
    for name, content in SAMPLES.items():
        (place / name).write_bytes(content)
    table = walks(agents=2, hours=2, step_s=300)
    text = table.set_column(1, "time", table["time"].cast(pa.string()))
    pa_csv.write_csv(text, place / "fixes.csv")
    (place / "fixes.csv.gz").write_bytes(gzip.compress((place / "fixes.csv").read_bytes(), mtime=0))
    (place / "local.tsv").write_text("user\tdate\ttime\tx\ty\n" + "7\t2024-05-01\t08:00\t13,4\t52,5\n" * 3)
    rows = [json.dumps({**r, "time": r["time"].isoformat()}) for r in table.slice(0, 6).to_pylist()]
    (place / "fixes.ndjson").write_text("\n".join(rows) + "\n")
    pq.write_table(table, place / "fixes.parquet")
    (place / "track.gpx").write_text(GPX)
    (place / "track.plt").write_text(PLT)


def _write_stays(place: Path) -> None:
    place.mkdir()
    table = tiny_stays(agents=2, days=3)
    pq.write_table(table, place / "stays.parquet")
    text = table.slice(0, 12)
    for name in ("started_at", "finished_at"):
        text = text.set_column(text.column_names.index(name), name, text[name].cast(pa.string()))
    pa_csv.write_csv(text, place / "stays.csv")
    (place / "stays.ndjson").write_text("\n".join(json.dumps(row) for row in as_events(table.slice(0, 6))) + "\n")


def _write_model(corpus: Path) -> None:
    """A data directory, a model of habits, its scores and the states that go with it."""
    stays = tiny_stays(agents=3, days=16)
    data = Dataset(stays, meta={"name": "tiny", "split": {"test_first": "2024-03-11"}})
    save_directory(data, corpus / "data")
    detector = Detector(Config.preset("quick"), device="cpu").fit(data)
    detector.save(corpus / "model")
    for preset in ("best", "paper"):
        Detector(Config.preset(preset).replace(SMALL), device="cpu").fit(data).save(corpus / f"model-{preset}")
    detector.score(data, rule=AlertRule("top", 5)).save(corpus / "scores")
    if not isinstance(detector.judge, AddingJudge):
        raise ValueError("the preset quick scores by habits")
    live = make_backend(detector, 0.01, 3)
    state = live.score(tiny_stays(agents=1, days=2, after=16).to_pylist()).states["agent 0"]
    (corpus / "live").mkdir()
    (corpus / "live" / "state").write_bytes(state)
    tracker = StayTracker()
    tracker.update(fixes([1, 1, 2, 2], minutes([0, 10, 0, 9]), [52.5, 52.5, 52.6, 52.61], [13.4, 13.4, 13.4, 13.4]))
    (corpus / "tracker").mkdir()
    (corpus / "tracker" / "state").write_bytes(tracker.to_bytes())
