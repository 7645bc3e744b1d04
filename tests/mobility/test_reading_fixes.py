"""Readers of fixes: every format and everybody's column names give the same fixes, and bad rows are named."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from town import fixes, minutes, walks

from ustad.detector import Detector
from ustad.mobility.columns import as_fixes, match_names
from ustad.mobility.extraction import extract
from ustad.mobility.formats import expand, pieces
from ustad.mobility.geometry import point_degrees, points_to_wkb
from ustad.mobility.readers import open_data
from ustad.mobility.reading import Reading
from ustad.tables import DataError

COLUMNS = ["agent_id", "time", "lat", "lon"]


@pytest.fixture
def table() -> pa.Table:
    full = walks(agents=2, hours=1)
    whole_seconds = full["time"].cast(pa.timestamp("s", tz="UTC"), safe=False).cast(full["time"].type)
    return full.set_column(1, "time", whole_seconds)


def read(path, **how) -> tuple[pa.Table, Reading]:
    reading = Reading(**how)
    tables = [as_fixes(p.table, p.where, reading) for f in expand([path]) for p in pieces(f, reading)]
    return pa.concat_tables(tables).select(COLUMNS), reading


def same(ours: pa.Table, theirs: pa.Table) -> bool:
    return ours["time"].equals(theirs["time"]) and all(
        np.allclose(ours[c].to_numpy(), theirs[c].to_numpy(), atol=1e-6) for c in ("lat", "lon")
    )


def test_parquet_and_csv_and_ndjson_hold_the_same_fixes(table, tmp_path):
    pq.write_table(table, tmp_path / "a.parquet")
    pa_csv.write_csv(table, tmp_path / "a.csv")
    with pa.output_stream(str(tmp_path / "b.csv.gz"), compression="gzip") as stream:
        pa_csv.write_csv(table, stream)
    lines = [json.dumps({**row, "time": row["time"].isoformat()}) for row in table.to_pylist()]
    (tmp_path / "a.ndjson").write_text("\n".join(lines) + "\n")
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    for name in ("a.parquet", "a.csv", "b.csv.gz", "a.ndjson", "b.jsonl.gz"):
        ours, _ = read(tmp_path / name)
        assert same(ours, table), name
        assert ours["agent_id"].equals(table["agent_id"]), name


def test_trackintel_positionfixes_are_taken_as_they_are(table, tmp_path):
    geopandas = pytest.importorskip("geopandas")
    frame = table.to_pandas().rename(columns={"agent_id": "user_id", "time": "tracked_at"})
    points = geopandas.GeoDataFrame(
        frame[["user_id", "tracked_at"]], geometry=geopandas.points_from_xy(frame.lon, frame.lat), crs="EPSG:4326"
    ).rename_geometry("geom")
    points.to_parquet(tmp_path / "wkb.parquet")
    points.to_parquet(tmp_path / "arrow.parquet", geometry_encoding="geoarrow", schema_version="1.1.0")
    points.to_wkt().to_csv(tmp_path / "wkt.csv", index_label="id")
    for name in ("wkb.parquet", "arrow.parquet", "wkt.csv"):
        ours, reading = read(tmp_path / name)
        assert same(ours, table), name
        assert "column 'tracked_at' was taken for time" in reading.notes
        assert "lat and lon were read from the points in column 'geom'" in reading.notes


def test_objects_of_trackintel_are_taken_as_fixes_and_as_stays():
    """Staypoints open as they are; position fixes are no stays, and one line says so."""
    ti, geopandas = pytest.importorskip("trackintel"), pytest.importorskip("geopandas")
    frame = walks(agents=2, hours=10).to_pandas().rename(columns={"agent_id": "user_id", "time": "tracked_at"})
    geometry = geopandas.points_from_xy(frame.lon, frame.lat)
    points = ti.Positionfixes(
        geopandas.GeoDataFrame(frame[["user_id", "tracked_at"]], geometry=geometry, crs="EPSG:4326")
    )
    found, stays = points.generate_staypoints(method="sliding", dist_threshold=100, time_threshold=5)
    assert same(as_fixes(points), as_fixes(found.to_crs(3857)))
    np.testing.assert_allclose(as_fixes(points)["lat"].to_numpy(), frame.lat)
    opened = open_data(stays).events
    assert opened["agent_id"].to_pylist() == stays.user_id.tolist()
    np.testing.assert_allclose(opened["lon"].to_numpy(), stays.geometry.x)
    for read_points in (open_data, Detector("quick").fit):
        with pytest.raises(DataError, match=r"looks like fixes.*extract") as refused:
            read_points(points)
        assert "\n" not in str(refused.value)


def test_scikit_mobility_names_and_naive_times_are_taken_with_the_zone_given(table, tmp_path):
    frame = table.to_pandas().rename(columns={"agent_id": "uid", "time": "datetime", "lon": "lng"})
    frame["datetime"] = frame["datetime"].dt.tz_convert("Europe/Berlin").dt.tz_localize(None)
    frame.to_csv(tmp_path / "t.csv", index=False)
    ours, reading = read(tmp_path / "t.csv", timezone="Europe/Berlin")
    assert same(ours, table)
    assert any("no time zone" in note for note in reading.notes)
    with pytest.raises(DataError, match=r"without a time zone.*--timezone"):
        read(tmp_path / "t.csv")


@pytest.mark.parametrize(("unit", "factor"), [("s", 1e-6), ("ms", 1e-3), ("µs", 1.0), ("ns", 1e3)])
def test_epoch_numbers_are_read_in_the_unit_of_their_size(table, unit, factor):
    numbers = np.round(table["time"].cast(pa.int64()).to_numpy() * factor).astype(np.int64)
    reading = Reading()
    ours = as_fixes(table.set_column(1, "t", pa.array(numbers)), reading=reading)
    assert ours["time"].equals(table["time"])
    assert any(f"taken as {unit} since 1970" in note for note in reading.notes)


def test_epoch_numbers_may_count_the_local_wall_clock(table):
    local = table["time"].cast(pa.int64()).to_numpy() // 1_000_000 - 5 * 3600  # New York in winter
    theirs = pa.table(
        {
            "agent": table["agent_id"], "t": pa.array(local),
            "lat_e6": pa.array(np.round(table["lat"].to_numpy() * 1e6).astype(np.int32)),
            "lon_e6": pa.array(np.round(table["lon"].to_numpy() * 1e6).astype(np.int32)),
        }
    )  # fmt: skip
    assert same(as_fixes(theirs, reading=Reading("America/New_York", "local")), table)
    with pytest.raises(DataError, match="counts local time"):
        as_fixes(theirs, reading=Reading(times="local"))


def test_the_geolife_tree_gives_one_agent_per_folder(tmp_path):
    head = "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track,0,0,2,8421376\n0\n"
    for agent, hour in (("000", 2), ("017", 5)):
        folder = tmp_path / "Data" / agent / "Trajectory"
        folder.mkdir(parents=True)
        row = f"39.984702,116.318417,0,492,39744.1201851852,2008-10-23,{hour:02d}:53:04\n"
        (folder / "20081023025304.plt").write_text(head + row)
    ours, _ = read(tmp_path)
    assert ours["agent_id"].to_pylist() == ["000", "017"]
    assert [t.isoformat() for t in ours["time"].to_pylist()] == [
        "2008-10-23T02:53:04+00:00",
        "2008-10-23T05:53:04+00:00",
    ]
    assert ours["lon"].to_pylist() == [116.318417, 116.318417]


def test_gpx_gives_one_agent_per_file(tmp_path):
    pytest.importorskip("gpxpy")
    point = '<trkpt lat="60.1{0}" lon="24.9"><time>2024-05-01T08:0{0}:00Z</time></trkpt>'
    body = "".join(point.format(i) for i in range(3))
    (tmp_path / "ride.gpx").write_text(
        f'<gpx version="1.1" creator="x" xmlns="http://www.topografix.com/GPX/1/1"><trk><trkseg>{body}</trkseg></trk></gpx>'
    )
    ours, _ = read(tmp_path / "ride.gpx")
    assert ours["agent_id"].to_pylist() == ["ride"] * 3
    assert ours["lat"].to_pylist() == [60.10, 60.11, 60.12]
    (tmp_path / "broken.gpx").write_text("<gpx>")
    with pytest.raises(DataError, match=r"broken\.gpx: not valid GPX"):
        read(tmp_path / "broken.gpx")


def test_bad_rows_of_a_csv_are_named_or_dropped_and_counted(tmp_path):
    rows = [
        "user,time,latitude,longitude",
        "1,2024-01-01T00:00:00Z,50.0,8.0",
        "1,not a time,50.0,8.0",
        "1,2024-01-01T00:02:00Z,north,8.0",
        "1,2024-01-01T00:03:00Z,50.0,8.0,extra",
        "1,2024-01-01T00:04:00Z,95.0,8.0",
        "1,2024-01-01T00:05:00Z,50.0,",
        "1,2024-01-01T00:06:00Z,50.0,8.0",
    ]
    (tmp_path / "bad.csv").write_text("\n".join(rows) + "\n")
    ours, reading = read(tmp_path / "bad.csv", on_error="skip")
    assert [t.minute for t in ours["time"].to_pylist()] == [0, 6]
    assert reading.bad_rows == 5
    assert sum("dropped" in note for note in reading.notes) == 5
    (tmp_path / "bad.csv").write_text("\n".join(rows[:2] + rows[3:4]) + "\n")
    with pytest.raises(DataError, match=r"bad\.csv: column 'lat': 1 of 2 rows are not numbers \(first rows: 1\)"):
        read(tmp_path / "bad.csv")


def test_rows_keep_their_number_when_others_were_dropped_before_them(tmp_path):
    rows = ["user,time,lat,lon", "1,2024-01-01T00:00:00Z,south,8", "1,noon,50,8", "1,2024-01-01T00:02:00Z,95,8"]
    (tmp_path / "f.csv").write_text("\n".join([*rows, "1,2024-01-01T00:03:00Z,50,8"]) + "\n")
    _, reading = read(tmp_path / "f.csv", on_error="skip")
    said = " | ".join(reading.notes)
    assert "column 'lat': 1 of 4 rows are not numbers (first rows: 0)" in said
    assert "column 'time': 1 of 3 rows are not times (first rows: 1)" in said
    assert "column 'lat': 1 of 2 rows are beyond ±90° (first rows: 2)" in said
    assert reading.bad_rows == 3


def test_scaled_degrees_of_a_csv_are_numbers_before_they_are_divided(tmp_path):
    rows = ["user,t,lat_e7,lon_e6", "1,1704067200,525000001,13400000", "1,1704067260,north,13400000"]
    (tmp_path / "f.csv").write_text("\n".join(rows) + "\n")
    ours, reading = read(tmp_path / "f.csv", on_error="skip")
    assert ours["lat"].to_pylist() == [52.5000001]
    assert ours["lon"].to_pylist() == [13.4]
    assert any("are not numbers (first rows: 1)" in note for note in reading.notes)


@pytest.mark.parametrize("text", [True, False])
def test_one_time_in_another_unit_is_a_bad_row_and_does_not_shift_the_rest(table, text):
    numbers = table["time"].cast(pa.int64()).to_numpy() // 1_000_000
    numbers[3] *= 1000
    theirs = table.set_column(1, "t", pa.array(numbers).cast(pa.string()) if text else pa.array(numbers))
    with pytest.raises(DataError, match=r"column 'time': 1 of 120 rows are not times in the unit .*first rows: 3"):
        as_fixes(theirs)
    reading = Reading(on_error="skip")
    ours = as_fixes(theirs, reading=reading)
    assert ours["time"].equals(table.filter(pa.array(np.arange(table.num_rows) != 3))["time"])
    assert reading.bad_rows == 1


def test_times_with_nanoseconds_are_cut_to_microseconds():
    table = fixes(["a", "a"], minutes([0, 1]), [50.0, 50.0], [8.0, 8.0])
    for zone in ("Z", "+00:00", ""):
        texts = pa.array([f"2024-01-01T00:00:00.123456789{zone}", f"2024-01-01 00:01:00.5{zone}"])
        ours = as_fixes(table.set_column(1, "time", texts), reading=Reading("UTC"))
        assert [t.microsecond for t in ours["time"].to_pylist()] == [123456, 500000]


def test_longitudes_from_0_to_360_are_recognised():
    table = fixes([1, 1], minutes([0, 1]), [50.0, 50.0], [8.0, 8.0]).set_column(3, "lon", pa.array([241.5, 241.6]))
    with pytest.raises(DataError, match="subtract 360"):
        as_fixes(table)


def test_the_repeated_hour_is_read_twice_where_the_clock_steps_back():
    moments = pa.array(np.arange(0, 240, 10) * 60_000_000 + 1_730_606_400_000_000)  # around 2024-11-03 06:00Z
    utc = moments.cast(pa.timestamp("us", tz="UTC"))
    wall = pa.compute.local_timestamp(utc.cast(pa.timestamp("us", tz="America/New_York")))
    n = len(wall)
    both = pa.table(
        {"agent_id": ["a"] * n + ["b"] * n, "time": pa.concat_arrays([wall, wall]), "lat": [1.0] * (2 * n),
         "lon": [1.0] * (2 * n)}
    )  # fmt: skip
    reading = Reading("America/New_York")
    ours = as_fixes(both, reading=reading)
    assert ours["time"].to_pylist() == utc.to_pylist() * 2
    assert any("24 times lie in an hour" in note and "12 were read as the later" in note for note in reading.notes)
    mixed = both.take(pa.array(np.random.default_rng(1).permutation(2 * n)))
    reading = Reading("America/New_York")
    as_fixes(mixed, reading=reading)
    assert any("0 were read as the later" in note for note in reading.notes)


def test_swapped_coordinates_are_refused():
    table = fixes([1, 1], minutes([0, 1]), [50.0, 50.0], [8.0, 8.0])
    swapped = table.set_column(2, "lat", pa.array([139.0, 139.0]))
    with pytest.raises(DataError, match="swapped"):
        as_fixes(swapped)


def test_times_with_and_without_a_zone_do_not_mix():
    table = fixes(["a", "a"], minutes([0, 1]), [50.0, 50.0], [8.0, 8.0])
    mixed = table.set_column(1, "time", pa.array(["2024-01-01T00:00:00Z", "2024-01-01T00:01:00"]))
    with pytest.raises(DataError, match="mixes times with and without a time zone"):
        as_fixes(mixed)


def test_a_missing_column_is_named_with_what_was_found():
    with pytest.raises(DataError, match="missing column lon; found agent_id, time, lat, weather"):
        as_fixes(pa.table({"uid": [1], "t": [1704067200], "lat": [1.0], "weather": ["fine"]}))


def test_what_cannot_be_found_or_read_is_an_error_that_names_it(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        expand([tmp_path / "nothing.csv"])
    with pytest.raises(DataError, match="holds no file that can be read"):
        expand([tmp_path])
    (tmp_path / "x.docx").write_text("no")
    with pytest.raises(DataError, match=r"x\.docx: unknown kind of file"):
        expand([tmp_path / "x.docx"])
    (tmp_path / "x.parquet").write_text("no")
    with pytest.raises(DataError, match=r"x\.parquet: cannot be read"):
        read(tmp_path / "x.parquet")


def test_parquet_of_other_names_is_refused_with_the_names_it_has(tmp_path):
    pq.write_table(pa.table({"who": [1], "when": [2], "y": [3.0]}), tmp_path / "f.parquet")
    with pytest.raises(DataError, match="missing columns agent_id, time, lat, lon; found who, when, y"):
        read(tmp_path / "f.parquet")


def test_a_heading_without_rows_is_said(tmp_path):
    (tmp_path / "f.csv").write_text("user,time,lat,lon\n")
    with pytest.raises(DataError, match=r"no usable fix in 1 file\(s\); they hold no row$"):
        extract(tmp_path / "f.csv", tmp_path / "out")


def test_our_own_name_wins_over_the_neighbours():
    assert match_names(["uid", "agent_id", "time", "timestamp"], {"agent_id": ("uid",), "time": ("timestamp",)}) == {
        "agent_id": "agent_id",
        "time": "time",
    }


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(-90, 90), st.floats(-180, 180)), min_size=1, max_size=20))
def test_points_survive_wkb(points):
    lat, lon = np.array(points).T
    back = point_degrees(pa.chunked_array([points_to_wkb(lat, lon)]))
    assert np.array_equal(back[0], lat)
    assert np.array_equal(back[1], lon)


def test_tables_of_polars_and_pandas_are_taken(table):
    polars = pytest.importorskip("polars")
    named = table.set_column(0, "agent_id", pa.array(["zoe", "abe"]).take(table["agent_id"].combine_chunks()))
    for source in (polars.from_arrow(named), named.to_pandas()):
        assert as_fixes(source).select(COLUMNS).equals(as_fixes(named).select(COLUMNS))


def test_a_piece_without_one_good_row_does_not_lose_the_rest_of_its_file(tmp_path, monkeypatch):
    from ustad.mobility import formats

    good = walks(agents=1, hours=6, step_s=60)
    bad = good.set_column(2, "lat", pa.array([99.0] * good.num_rows))
    pq.write_table(pa.concat_tables([bad, good]), tmp_path / "f.parquet")
    monkeypatch.setattr(formats, "PIECE_ROWS", good.num_rows)
    summary = extract(tmp_path / "f.parquet", tmp_path / "out", timezone="UTC", on_error="skip")
    assert summary.fixes == good.num_rows
    assert summary.dropped["bad rows"] == good.num_rows
