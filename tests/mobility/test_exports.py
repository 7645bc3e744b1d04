"""Exports: each kind of file is known by its content, gives what it holds, and never a traceback."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from export_samples import ANDROID, FIT_CLOCK, GEOJSON, KML, RECORDS, SAMPLES, WORKOUT, fit, kmz
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.geo import haversine_km
from ustad.mobility.columns import as_fixes, as_stays
from ustad.mobility.exports import KINDS, google_records, kind_of, kml, read_given_stays
from ustad.mobility.extraction import extract
from ustad.mobility.formats import expand, pieces
from ustad.mobility.readers import open_data
from ustad.mobility.reading import Reading
from ustad.tables import DataError


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.fixture
def anna(tmp_path) -> Path:
    folder = tmp_path / "anna"
    folder.mkdir()
    return folder


def write(folder: Path, name: str, content: bytes | None = None) -> Path:
    path = folder / name
    path.write_bytes(SAMPLES[name] if content is None else content)
    return path


def fixes_of(path: Path, **how) -> tuple[pa.Table, Reading]:
    reading = Reading(**how)
    return pa.concat_tables([as_fixes(p.table, p.where, reading) for p in pieces(path, reading)]), reading


# ------------------------------------------------------------------------------------------------------ Google
def test_records_of_a_takeout_are_the_fixes_of_one_person(anna):
    ours, reading = fixes_of(write(anna, "Records.json"))
    assert ours["agent_id"].to_pylist() == ["anna"] * 3
    assert ours["time"].to_pylist() == [
        at("2024-05-01T08:00:00.250Z"), at("2024-05-01T08:01:00Z"), at("2024-05-01T08:03:00Z")
    ]  # fmt: skip
    assert ours["lat"].to_pylist() == [52.52, 52.521, -33.87]
    assert ours["lon"].to_pylist() == [13.405, -0.001, 151.2]
    assert ours["accuracy_m"].to_pylist() == [12.0, 30.0, None]
    assert reading.bad_rows == 1
    assert any("1 entries without a position" in note for note in reading.notes)
    assert any("2 devices recorded" in note for note in reading.notes)


def test_records_do_not_depend_on_where_blocks_end(anna, monkeypatch):
    path = write(anna, "Records.json")
    whole, _ = fixes_of(path)
    for size in (40, 61, 97, 250):
        monkeypatch.setattr(google_records, "BLOCK_BYTES", size)
        parts, _ = fixes_of(path)
        assert parts.equals(whole), size


@settings(max_examples=30, deadline=None)
@given(st.datetimes(datetime(1971, 1, 1), datetime(2090, 1, 1)), st.integers(-14 * 60, 14 * 60))
def test_times_of_records_are_read_as_python_reads_them(tmp_path_factory, moment, offset):
    sign = "+" if offset >= 0 else "-"
    text = f"{moment.isoformat()}{sign}{abs(offset) // 60:02d}:{abs(offset) % 60:02d}"
    path = tmp_path_factory.mktemp("t") / "Records.json"
    path.write_text(json.dumps({"locations": [{"latitudeE7": 1, "longitudeE7": 2, "timestamp": text}]}))
    (table,) = google_records.read_records(path, Reading())
    assert table["time"].to_pylist() == [at(text)]


def test_records_that_are_cut_off_are_refused_or_taken_as_far_as_they_go(anna):
    path = write(anna, "Records.json", SAMPLES["Records.json"][:-60])
    with pytest.raises(DataError, match=r"Records\.json: ends or is damaged after 3 entries"):
        fixes_of(path)
    ours, reading = fixes_of(path, on_error="skip")
    assert ours.num_rows == 2
    assert any("damaged after 3 entries" in note for note in reading.notes)


def test_a_takeout_folder_is_read_whole_with_its_settings_and_months_beside(anna, tmp_path):
    folder = anna / "Takeout" / "Location History"
    months = folder / "Semantic Location History" / "2022"
    months.mkdir(parents=True)
    many = [{**RECORDS["locations"][0], "timestamp": f"2024-05-01T08:{i:02d}:00Z"} for i in range(30)]
    write(folder, "Records.json", json.dumps({"locations": many}).encode())
    write(folder, "Settings.json", b'{"createdTime": "2012-01-01T00:00:00Z", "deviceSettings": []}')
    write(months, "2022_JANUARY.json")
    summary = extract(anna, tmp_path / "out", timezone="Europe/Berlin")
    assert (summary.fixes, summary.stays, summary.agents) == (30, 1, 1)
    assert any("left out: 1 files that hold stays" in note for note in summary.notes)
    assert open_data(tmp_path / "out").events["agent_id"].to_pylist() == ["anna"]


def test_visits_of_a_phones_timeline_are_stays(anna, tmp_path):
    path = write(anna, "Timeline.json")
    data = open_data(path, timezone="Europe/Berlin")
    assert data.events["started_at"].to_pylist() == [
        at("2024-05-01T06:00:00Z"), at("2024-05-01T10:30:00Z"), at("2024-05-01T14:50:00Z")
    ]  # fmt: skip
    ends = [at("2024-05-01T10:00:00Z"), at("2024-05-01T14:50:00Z"), at("2024-05-01T18:00:00Z")]
    assert data.events["finished_at"].to_pylist() == ends  # the second was cut where the third begins
    assert data.events["lat"].to_pylist() == [52.5200066, 52.4, 52.41]
    assert data.events["poi_id"].to_pylist() == ["PHOME", "PWORK", "PUNKNOWN"]
    assert data.events["poi_category"].to_pylist() == ["home", "work", "other"]
    assert any("1 visits inside another were left out" in n for n in data.meta["notes"])
    summary = extract(path, tmp_path / "out", timezone="Europe/Berlin")
    assert (summary.stays, summary.agents) == (3, 1)
    assert open_data(tmp_path / "out").events.select(data.events.column_names).equals(data.events)


def test_the_timeline_of_an_iphone_and_months_of_a_takeout_give_stays_too(anna):
    phone = open_data(write(anna, "location-history.json"), timezone="Europe/Berlin").events
    assert phone["lon"].to_pylist() == [13.405]
    assert phone["poi_category"].to_pylist() == ["home"]
    month = open_data(write(anna, "2022_JANUARY.json"), timezone="Europe/Berlin").events
    assert month["lat"].to_pylist() == [52.52, 52.4]
    assert month["started_at"].to_pylist() == [at("2022-01-01T08:00:00Z"), at("2022-01-01T10:00:00Z")]
    assert month["poi_category"].to_pylist() == ["home", "other"]


def test_months_of_one_person_are_joined_and_a_visit_in_two_of_them_counts_once(anna):
    later = json.loads(SAMPLES["2022_JANUARY.json"])
    later["timelineObjects"] = later["timelineObjects"][2:]
    files = [write(anna, "2022_JANUARY.json"), write(anna, "2022_FEBRUARY.json", json.dumps(later).encode())]
    reading = Reading()
    assert read_given_stays(files, reading).num_rows == 2
    assert any("1 stays that start at the same moment" in note for note in reading.notes)


def test_a_timeline_without_visits_gives_its_positions(anna):
    ours, _ = fixes_of(write(anna, "raw.json"))
    assert ours["lat"].to_pylist() == [52.52]
    assert ours["accuracy_m"].to_pylist() == [13.0]
    paths = {"semanticSegments": ANDROID["semanticSegments"][:1]}
    ours, _ = fixes_of(write(anna, "paths.json", json.dumps(paths, ensure_ascii=False).encode()))
    assert ours["time"].to_pylist() == [at("2024-05-01T04:30:00Z")]


# ----------------------------------------------------------------------------------- workouts, tracks, trackers
@pytest.mark.parametrize("how", [{}, {"order": ">"}, {"compressed": True}])
def test_positions_of_a_fit_file_are_fixes_whatever_its_layout(how, tmp_path):
    ours, _ = fixes_of(write(tmp_path, "ride.fit", fit(WORKOUT, **how)))
    moments = [datetime.fromtimestamp(631065600 + second, UTC) for second, _, _ in WORKOUT]
    assert ours["time"].to_pylist() == moments
    assert moments[0] == at("2024-05-01T08:10:00Z")
    assert np.allclose(ours["lat"].to_numpy(), [p[1] for p in WORKOUT], atol=1e-7)
    assert np.allclose(ours["lon"].to_numpy(), [p[2] for p in WORKOUT], atol=1e-7)
    assert ours["accuracy_m"].to_pylist() == [None, 4.0, 4.0]
    assert ours["agent_id"].to_pylist() == ["ride"] * 3


def test_fit_files_may_be_chained_and_one_that_is_cut_off_gives_what_it_has(tmp_path):
    both = fit(WORKOUT) + fit([(FIT_CLOCK + 600, 1.0, 2.0)])
    ours, _ = fixes_of(write(tmp_path, "ride.fit", both))
    assert ours.num_rows == 4
    cut = write(tmp_path, "ride.fit", fit(WORKOUT)[:-25])
    with pytest.raises(DataError, match=r"ride\.fit: the FIT file is cut off or damaged"):
        fixes_of(cut)
    assert 0 < fixes_of(cut, on_error="skip")[0].num_rows < 4
    with pytest.raises(DataError, match="holds no position"):
        fixes_of(write(tmp_path, "indoors.fit", fit([])))


@pytest.mark.filterwarnings("ignore:.*dev_data_index")
def test_fit_is_read_as_a_library_for_it_reads_it(tmp_path):
    fitdecode = pytest.importorskip("fitdecode")
    ours, _ = fixes_of(write(tmp_path, "ride.fit"))
    with fitdecode.FitReader(str(tmp_path / "ride.fit"), check_crc=fitdecode.CrcCheck.DISABLED) as reader:
        frames = [f for f in reader if isinstance(f, fitdecode.FitDataMessage) and f.name == "record"]
    theirs = [f for f in frames if f.get_value("position_lat") is not None]
    assert ours["time"].to_pylist() == [f.get_value("timestamp") for f in theirs]
    assert np.allclose(ours["lat"].to_numpy(), [f.get_value("position_lat") * 180 / 2**31 for f in theirs])


def test_track_points_of_tcx_with_a_position_are_fixes(tmp_path):
    ours, reading = fixes_of(write(tmp_path, "ride.tcx"))
    assert ours["time"].to_pylist() == [at("2024-05-01T08:00:00Z"), at("2024-05-01T08:00:10.5Z")]
    assert ours["lon"].to_pylist() == [13.405, -0.5]
    assert any("1 track points without a position" in note for note in reading.notes)


def test_tracks_and_moments_of_kml_and_kmz_are_fixes(tmp_path):
    ours, reading = fixes_of(write(tmp_path, "track.kml"))
    assert [t.minute for t in ours["time"].to_pylist()] == [0, 1, 2]
    assert ours["lat"].to_pylist() == [52.52, 52.521, 52.522]
    assert any("1 placemarks without a time" in note for note in reading.notes)
    packed, _ = fixes_of(write(tmp_path, "track.kmz"))
    assert packed.equals(ours)


def test_places_of_kml_with_a_span_of_time_are_stays(tmp_path):
    ours = open_data(write(tmp_path, "visits.kml"), timezone="Europe/Berlin").events
    assert ours["started_at"].to_pylist() == [at("2024-05-01T09:00:00Z")]
    assert ours["finished_at"].to_pylist() == [at("2024-05-01T17:00:00Z")]
    assert ours["lon"].to_pylist() == [13.405]


def test_xml_with_a_document_type_is_refused_before_anything_expands(tmp_path):
    bomb = b'<!DOCTYPE kml [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    for name, sample in (("bomb.kml", KML), ("bomb.tcx", SAMPLES["ride.tcx"].strip())):
        head, _, rest = sample.partition(b"?>")
        with pytest.raises(DataError, match="declares a document type"):
            fixes_of(write(tmp_path, name, head + b"?>" + bomb + rest))


def test_a_kmz_that_unpacks_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(kml, "LARGEST", 5000)
    with pytest.raises(DataError, match="unpacks to more than"):
        list(kml.read_tracks(write(tmp_path, "big.kmz", kmz(KML + b" " * 10_000)), Reading()))


def test_points_of_geojson_with_a_time_are_fixes(tmp_path):
    ours, reading = fixes_of(write(tmp_path, "points.geojson"))
    assert ours["agent_id"].to_pylist() == ["phone", "points"]
    assert ours["time"].to_pylist() == [at("2024-05-01T08:00:00Z"), at("2024-05-01T08:01:00Z")]
    assert ours["lat"].to_pylist() == [52.52, 52.521]
    assert ours["accuracy_m"].to_pylist() == [8.0, None]
    assert any("2 features without a point or a time" in note for note in reading.notes)
    batch = {"locations": GEOJSON["features"][1:2], "device_id": "overland"}
    ours, _ = fixes_of(write(tmp_path, "batch.json", json.dumps(batch).encode()))
    assert ours["agent_id"].to_pylist() == ["overland"]


def test_locations_of_owntracks_are_fixes_of_the_topics_device(tmp_path):
    ours, _ = fixes_of(write(tmp_path, "2024-05.rec"))
    assert ours["agent_id"].to_pylist() == ["jane/phone"] * 2
    assert ours["time"].to_pylist() == [at("2024-05-01T08:00:00Z"), at("2024-05-01T08:01:00Z")]
    assert ours["accuracy_m"].to_pylist() == [14.0, None]
    older = SAMPLES["2024-05.rec"].replace(b"\t", b"  ").replace(b'"topic":"owntracks/jane/phone",', b"")
    (tmp_path / "phone7").mkdir()
    ours, _ = fixes_of(write(tmp_path / "phone7", "2024-05.rec", older))
    assert ours["agent_id"].to_pylist()[0] == "phone7"


# ------------------------------------------------------------------------------------------------ public data sets
def test_check_ins_are_stays_of_no_length_at_their_venue(tmp_path):
    ours = open_data(write(tmp_path, "dataset_TSMC2014_NYC.txt"), timezone="America/New_York").events
    assert ours["agent_id"].to_pylist() == [470, 470, 979]
    assert ours["started_at"].to_pylist()[0] == at("2012-04-03T18:00:09Z")
    assert ours["started_at"].equals(ours["finished_at"])
    assert ours["poi_category"].to_pylist()[2] == "Café"
    assert ours["poi_id"].to_pylist()[2] == "4a43c0aef964a520c6a61fe3"
    table = "userId,venueId,venueCategoryId,venueCategory,latitude,longitude,timezoneOffset,utcTimestamp\n"
    rows = SAMPLES["dataset_TSMC2014_NYC.txt"].decode("latin-1").replace("\t", ",").encode("latin-1")
    named = open_data(write(tmp_path, "nyc.csv", table.encode() + rows), timezone="America/New_York").events
    assert named.equals(ours)
    gowalla = open_data(write(tmp_path, "gowalla.txt"), timezone="America/Chicago").events
    assert gowalla["agent_id"].to_pylist() == [0, 0, 1]
    assert gowalla["poi_id"].to_pylist() == ["420315", "22847", "316637"]


def test_half_hours_in_one_cell_are_one_stay_and_cells_lie_500_m_apart(tmp_path):
    ours = open_data(write(tmp_path, "yjmob100k.csv")).events
    length = (np.array(ours["finished_at"].cast(pa.int64())) - np.array(ours["started_at"].cast(pa.int64()))) / 60e6
    assert length.tolist() == [60.0, 30.0, 30.0, 60.0]  # the last goes on over midnight
    assert ours["agent_id"].to_pylist() == [0, 0, 0, 1]
    assert set(ours["timezone"].to_pylist()) == {"Asia/Tokyo"}
    apart = haversine_km(*(ours[c].to_numpy()[i] for i in (1, 2) for c in ("lat", "lon")))
    assert float(apart) == pytest.approx(1.0, abs=1e-3)
    local = ours["started_at"].to_pylist()[0].astimezone(ZoneInfo("Asia/Tokyo"))
    assert (local.weekday(), local.hour, local.minute) == (0, 0, 30)


def test_points_of_a_taxis_line_are_fixes_every_fifteen_seconds(tmp_path):
    ours, reading = fixes_of(write(tmp_path, "porto.csv"))
    assert ours["agent_id"].to_pylist() == [20000589, 20000589, 20000596]
    assert [int(t.timestamp()) for t in ours["time"].to_pylist()] == [1372636858, 1372636873, 1372637303]
    assert ours["lon"].to_pylist() == [-8.618643, -8.618499, -8.639847]
    assert any("1 trips without a point" in note for note in reading.notes)


def test_t_drive_has_no_heading_and_beijings_clock(tmp_path):
    ours, _ = fixes_of(write(tmp_path, "1.txt"))
    assert ours["time"].to_pylist()[0] == at("2008-02-02T15:36:08+08:00")
    assert ours["lat"].to_pylist() == [39.92123, 39.93883]
    assert ours["agent_id"].to_pylist() == [1, 1]


def test_moving_points_of_mobilitydb_are_fixes(tmp_path):
    ours, reading = fixes_of(write(tmp_path, "trips.csv"))
    assert ours["agent_id"].to_pylist() == [7, 7, 8, 8]
    assert ours["time"].to_pylist()[:2] == [at("2024-05-01T08:00:00Z"), at("2024-05-01T08:01:00.5Z")]
    assert any("the agent is column vehicle_id" in note for note in reading.notes)
    line = b"[POINT(13.405 52.52)@2024-05-01 08:00:00+00, POINT(13.406 52.521)@2024-05-01 08:01:00+00]\n"
    alone, _ = fixes_of(write(tmp_path, "ship.txt", line))
    assert alone["agent_id"].to_pylist() == ["ship"] * 2
    with pytest.raises(DataError, match="SRID 25832; transform"):
        fixes_of(write(tmp_path, "metres.csv", SAMPLES["trips.csv"].replace(b"4326", b"25832")))


# --------------------------------------------------------------------------------------------------- any kind
@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_is_known_by_its_content_and_says_what_was_understood(name, tmp_path):
    path = write(tmp_path, name)
    kind = kind_of(path)
    assert kind is not None, name
    reading = Reading()
    tables = list(kind.read(path, reading))
    assert sum(t.num_rows for t in tables) > 0
    assert any(note.startswith(kind.title) for note in reading.notes), reading.notes
    assert expand([path]) == [path]


def test_the_page_about_data_names_every_kind_and_every_option():
    page = (Path(__file__).parents[2] / "docs" / "your-data.md").read_text()
    assert [kind.title for kind in KINDS if kind.title not in page] == []
    for option in ("--columns", "--sep", "--decimal", "--time-format", "--dry-run", "--agent"):
        assert option in page, option
    assert len(page.split()) <= 1500


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sample_may_be_compressed(name, tmp_path):
    path, packed = write(tmp_path, name), tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(SAMPLES[name]))
    kind, other = kind_of(path), kind_of(packed)
    assert kind is other
    assert kind is not None
    theirs = [t.drop_columns("agent_id") for t in kind.read(packed, Reading())]
    assert theirs == [t.drop_columns("agent_id") for t in kind.read(path, Reading())]


def read_somehow(path: Path) -> str:
    """What a user's run does with a file: only a DataError may come of it, and this is what it says."""
    kind = kind_of(path)
    reading = Reading(on_error="skip")
    try:
        for table in kind.read(path, reading) if kind is not None else ():
            (as_fixes if kind is None or kind.gives == "fixes" else as_stays)(table, str(path), reading)
    except DataError as error:
        return str(error)
    return ""


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_files_are_refused_in_one_line_or_read_in_part(tmp_path_factory, data):
    name = data.draw(st.sampled_from(sorted(SAMPLES)))
    content = bytearray(SAMPLES[name])
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(content))))
    path = tmp_path_factory.mktemp("damaged") / name
    path.write_bytes(bytes(content[:cut]))
    said = read_somehow(path)
    assert "\n" not in said
    assert not said or name in said


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_values_of_another_type_are_refused_or_left_out(tmp_path_factory, data):
    name = data.draw(st.sampled_from([n for n in SAMPLES if n.endswith("json")]))
    content = json.loads(SAMPLES[name])
    node = content
    while isinstance(node, (dict, list)) and node:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[key], (dict, list)) or data.draw(st.booleans()):
            node[key] = data.draw(st.sampled_from([None, "", "x", 7, -1.5, [], {}, True, 1e300, "9" * 30]))
            break
        node = node[key]
    path = tmp_path_factory.mktemp("types") / name
    path.write_text(json.dumps(content))
    assert "\n" not in read_somehow(path)


def test_an_empty_file_is_refused_by_its_name(tmp_path):
    (tmp_path / "Records.json").write_bytes(b"")
    with pytest.raises(DataError, match=r"Records\.json: unknown kind of file"):
        expand([tmp_path / "Records.json"])


def test_stays_of_one_agent_do_not_overlap_once_in_order():
    rng = np.random.default_rng(3)
    start = rng.integers(0, 1000, 300) * 1_000_000
    table = pa.table(
        {
            "agent_id": rng.integers(0, 3, 300),
            "started_at": pa.array(start).cast(pa.timestamp("us", tz="UTC")),
            "finished_at": pa.array(start + rng.integers(0, 90, 300) * 1_000_000).cast(pa.timestamp("us", tz="UTC")),
        }
    )
    from ustad.mobility.exports import untangle

    ours = untangle(table, Reading()).to_pylist()
    for before, after in pairwise(ours):
        if before["agent_id"] == after["agent_id"]:
            assert before["started_at"] < after["started_at"]
            assert before["finished_at"] <= after["started_at"]
    assert {(r["agent_id"], r["started_at"]) for r in ours} == {
        (r["agent_id"], r["started_at"]) for r in table.to_pylist()
    }


def test_the_folder_may_say_whose_workouts_and_visits_they_are(tmp_path):
    for who, lon in (("anna", 13.4), ("bob", 13.5)):
        folder = tmp_path / "people" / who
        folder.mkdir(parents=True)
        for k in range(2):
            points = [(FIT_CLOCK + 3600 * k + 30 * i, 52.5, lon) for i in range(30)]
            write(folder, f"{k}.fit.gz", gzip.compress(fit(points)))
        write(folder, "visits.kml")
    with pytest.raises(DataError, match=r"one name by --agent file.*--agent folder"):
        extract(tmp_path / "people", tmp_path / "out", timezone="Europe/Berlin")
    extract(tmp_path / "people", tmp_path / "out", timezone="Europe/Berlin", agent="folder")
    stays = open_data(tmp_path / "out").events
    assert set(zip(stays["agent_id"].to_pylist(), np.round(stays["lon"].to_numpy(), 3).tolist(), strict=True)) == {
        ("anna", 13.4),
        ("bob", 13.5),
    }
    visits = sorted((tmp_path / "people").glob("*/visits.kml"))
    extract(visits, tmp_path / "visits", timezone="Europe/Berlin", agent="folder")
    assert open_data(tmp_path / "visits").events["agent_id"].to_pylist() == ["anna", "bob"]
