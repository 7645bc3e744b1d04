"""`open_data`: directories, NUMOSIM, files of stays with anybody's names, tables of any events; and exports."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from town import walks

from ustad.config import SplitConfig
from ustad.dataset import save_directory
from ustad.events.observed import read_gaps
from ustad.mobility.extraction import extract_tables
from ustad.mobility.readers import open_data
from ustad.mobility.writers import export, write_csv, write_geoparquet
from ustad.schema import EventSchema, Feature
from ustad.tables import STAYS, DataError, event_keys


@pytest.fixture(scope="module")
def extracted():
    return extract_tables(walks(agents=3, hours=96, step_s=120, gaps=True), timezone="Europe/Berlin")


def test_a_directory_that_was_extracted_opens_as_it_was(extracted, tmp_path):
    save_directory(extracted, tmp_path / "d")
    data = open_data(tmp_path / "d")
    for name in extracted.events.column_names:
        assert data.events[name].equals(extracted.events[name]), name
    assert data.trips.num_rows == extracted.trips.num_rows


def test_stays_with_other_names_get_keys_zone_and_category(tmp_path):
    theirs = pa.table(
        {
            "uid": ["b", "a", "a"],
            "datetime": ["2024-07-01 08:00:00", "2024-07-01 12:00:00", "2024-07-01 08:00:00"],
            "leaving_datetime": ["2024-07-01 09:00:00", "2024-07-01 13:00:00", "2024-07-01 09:00:00"],
            "lat": [52.5, 52.5, 52.4],
            "lng": [13.4, 13.4, 13.3],
        }
    )
    pa_csv.write_csv(theirs, tmp_path / "stays.csv")
    data = open_data(tmp_path / "stays.csv", timezone="Europe/Berlin")
    stays = data.events
    assert stays["agent_id"].to_pylist() == ["a", "a", "b"]
    assert [t.hour for t in stays["started_at"].to_pylist()] == [6, 10, 6]
    assert np.array_equal(stays["stay_id"].to_numpy(), event_keys(stays["agent_id"], stays["started_at"]))
    assert set(stays["poi_category"].to_pylist()) == {"unknown"}
    assert set(stays["timezone"].to_pylist()) == {"Europe/Berlin"}
    assert "column 'leaving_datetime' was taken for finished_at" in data.meta["notes"]


def test_geoparquet_opens_in_trackintel_and_comes_back(extracted, tmp_path):
    geopandas, trackintel = pytest.importorskip("geopandas"), pytest.importorskip("trackintel")
    write_geoparquet(extracted.events, tmp_path / "stays.parquet")
    frame = geopandas.read_parquet(tmp_path / "stays.parquet")
    staypoints = trackintel.Staypoints(frame)
    assert len(staypoints) == extracted.events.num_rows
    assert frame.crs.to_epsg() in (4326, None)
    assert np.allclose(frame.geometry.y, extracted.events["lat"].to_numpy())
    back = open_data(tmp_path / "stays.parquet").events
    assert back["stay_id"].equals(extracted.events["stay_id"])
    assert np.allclose(back["lon"].to_numpy(), extracted.events["lon"].to_numpy())
    write_geoparquet(extracted.trips, tmp_path / "trips.parquet")
    lines = geopandas.read_parquet(tmp_path / "trips.parquet")
    assert set(lines.geometry.geom_type) == {"LineString"}
    assert [len(g.coords) for g in lines.geometry] == [len(p) for p in extracted.trips["path"].to_pylist()]


def test_csv_comes_back_the_same(extracted, tmp_path):
    for name in ("stays.csv", "stays.csv.gz"):
        write_csv(extracted.events, tmp_path / name)
        back = open_data(tmp_path / name).events
        assert back["stay_id"].equals(extracted.events["stay_id"])
        assert np.allclose(back["lat"].to_numpy(), extracted.events["lat"].to_numpy())
    written = export({"trips": extracted.trips, "gaps": extracted.gaps, "pois": None}, tmp_path / "x", "csv")
    assert [p.name for p in written] == ["trips.csv", "gaps.csv"]
    assert (tmp_path / "x" / "trips.csv").read_text().count("LINESTRING (") == extracted.trips.num_rows


def test_ndjson_of_stays_opens(extracted, tmp_path):
    rows = extracted.events.slice(0, 5).to_pylist()
    lines = [
        json.dumps({**r, "started_at": r["started_at"].isoformat(), "finished_at": r["finished_at"].isoformat()})
        for r in rows
    ]
    (tmp_path / "s.ndjson").write_text("\n".join(lines))
    assert open_data(tmp_path / "s.ndjson").events["stay_id"].to_pylist() == [r["stay_id"] for r in rows]


def test_agents_of_a_csv_of_stays_keep_their_leading_zeros(tmp_path):
    rows = [f"{agent},2024-07-01T08:00:00Z,2024-07-01T09:00:00Z,52.5,13.4" for agent in ("007", "7")]
    head = "agent_id,started_at,finished_at,lat,lon"
    (tmp_path / "s.csv").write_text("\n".join([head, *rows]))
    assert open_data(tmp_path / "s.csv", timezone="UTC").events["agent_id"].to_pylist() == ["007", "7"]
    (tmp_path / "s.csv").write_text("\n".join([head, rows[1]]))
    assert open_data(tmp_path / "s.csv", timezone="UTC").events["agent_id"].to_pylist() == [7]


def test_overlaps_fail_or_are_dropped_and_counted(extracted):
    doubled = pa.concat_tables([extracted.events, extracted.events.slice(0, 1)])
    with pytest.raises(DataError, match="begin before the agent's previous stay"):
        open_data(doubled)
    data = open_data(doubled, on_error="skip")
    assert data.events.num_rows == extracted.events.num_rows
    assert any("begin before" in note for note in data.meta["notes"])


def test_identifiers_that_repeat_are_replaced(extracted):
    same = extracted.events.set_column(0, "stay_id", pa.array([1] * extracted.events.num_rows))
    data = open_data(same)
    assert data.events["stay_id"].equals(extracted.events["stay_id"])
    assert any("repeats values" in note for note in data.meta["notes"])


def test_fixes_are_sent_to_extract(tmp_path):
    table = walks(agents=1, hours=1)
    pq.write_table(table, tmp_path / "fixes.parquet")
    for path in (tmp_path / "fixes.parquet", tmp_path):
        with pytest.raises(DataError, match="ustad extract"):
            open_data(path)


def test_what_is_not_there_or_empty_is_said(tmp_path, extracted):
    with pytest.raises(DataError, match="no such file"):
        open_data(tmp_path / "none.parquet")
    with pytest.raises(DataError, match="empty"):
        open_data(extracted.events.slice(0, 0))
    with pytest.raises(DataError, match="missing columns lat, lon"):
        open_data(extracted.events.drop_columns(["lat", "lon"]))
    with pytest.raises(DataError, match="Nowhere/Land"):
        open_data(extracted.events, timezone="Nowhere/Land")


SHOP = EventSchema("cards", (Feature("amount", "numeric"), Feature("merchant", "categorical")), "card", "paid_at")


def test_any_events_need_only_the_columns_of_their_schema():
    table = pa.table(
        {"card": [2, 1], "paid_at": ["2024-01-02T00:00:00", "2024-01-01T00:00:00"], "amount": [1.0, 2.0],
         "merchant": ["x", "y"], "note": ["", ""]}
    )  # fmt: skip
    data = open_data(table, schema=SHOP, timezone="Europe/Paris")
    assert data.events["card"].to_pylist() == [1, 2]
    assert data.events["paid_at"].type.tz == "UTC"
    assert data.events["paid_at"].to_pylist()[0].hour == 23
    with pytest.raises(DataError, match="missing column merchant of schema 'cards'"):
        open_data(table.drop_columns(["merchant"]), schema=SHOP)


def test_entities_of_a_csv_of_any_events_keep_their_leading_zeros(tmp_path):
    rows = [f"{card},2024-01-01T00:00:00Z,1.5,x" for card in ("007", "7")]
    (tmp_path / "cards.csv").write_text("\n".join(["card,paid_at,amount,merchant", *rows]))
    data = open_data(tmp_path / "cards.csv", schema=SHOP, timezone="UTC")
    assert data.events["card"].to_pylist() == ["007", "7"]


# ------------------------------------------------------------------------------------------------ NUMOSIM
def numosim(path, naive: bool = False, truth_only: bool = False) -> None:
    """Two agents, train and test days, in the files and types that NUMOSIM publishes."""
    path.mkdir()
    kind = pa.timestamp("us") if naive else pa.timestamp("us", tz="-08:00")

    def times(*texts):
        naive_times = pa.array(texts).cast(pa.timestamp("us"))
        return naive_times if naive else pa.compute.assume_timezone(naive_times, "-08:00").cast(kind)

    train = pa.table(
        {"agent_id": [1, 1, 2], "poi_id": [10, 11, 10],
         "start_datetime": times("2024-01-01 00:00:00", "2024-01-03 20:00:00", "2024-01-01 00:00:00"),
         "end_datetime": times("2024-01-03 19:00:00", "2024-01-04 02:00:00", "2024-01-03 23:59:59")}
    )  # fmt: skip
    test = pa.table(
        {"agent_id": [1, 2], "poi_id": [12, 10],
         "start_datetime": times("2024-01-04 03:00:00", "2024-01-04 00:00:00"),
         "end_datetime": times("2024-01-05 23:00:00", "2024-01-05 23:59:59")}
    )  # fmt: skip
    pois = pa.table(
        {"poi_id": [10, 11, 12], "name": ["a", "b", "c"], "latitude": [34.0, 34.1, 34.2],
         "longitude": [-118.0, -118.1, -118.2],
         "act_types": [["DropOff", "Home", "Visit"], ["DropOff", "Visit", "Work"], ["Visit"]]}
    )  # fmt: skip
    pq.write_table(train, path / "stay_points_train.parquet")
    pq.write_table(test, path / "stay_points_test_truth.parquet")
    if not truth_only:
        labelled = test.append_column("anomaly", pa.array([True, False]))
        labelled = labelled.append_column("anomaly_type", pa.array([2, None], pa.int32()))
        pq.write_table(labelled, path / "stay_points_test_anomalous.parquet")
    pq.write_table(pois, path / "poi.parquet")


@pytest.mark.parametrize("naive", [False, True])
def test_a_numosim_directory_opens_as_published(tmp_path, naive):
    numosim(tmp_path / "numosim", naive)
    data = open_data(tmp_path / "numosim")
    assert set(STAYS.required) <= set(data.events.column_names)
    assert data.events["poi_category"].to_pylist() == ["Home", "Work", "Visit", "Home", "Home"]
    assert data.events["lat"].to_pylist() == [34.0, 34.1, 34.2, 34.0, 34.0]
    assert data.events["started_at"].to_pylist()[0].isoformat() == "2024-01-01T08:00:00+00:00"
    assert set(data.events["timezone"].to_pylist()) == {"America/Los_Angeles"}
    assert data.meta["split"] == {"test_first": "2024-01-04"}
    assert data.split(SplitConfig()).describe().startswith("train 2024-01-01 … 2024-01-02")
    labels = {r["stay_id"]: (r["anomaly"], r["kind"], r["role"]) for r in data.labels.to_pylist()}
    in_order = [labels.get(i) for i in data.events["stay_id"].to_pylist()]
    assert in_order == [None, None, (True, "inserted stay", "inserted"), None, (False, None, None)]
    assert data.agent_labels.to_pylist() == [{"agent_id": 1, "anomaly": True}, {"agent_id": 2, "anomaly": False}]


def test_numosim_without_anomalies_has_no_labels_and_without_pois_is_refused(tmp_path):
    numosim(tmp_path / "numosim", truth_only=True)
    assert open_data(tmp_path / "numosim").labels is None
    (tmp_path / "numosim" / "poi.parquet").unlink()
    with pytest.raises(DataError, match=r"needs poi\.parquet"):
        open_data(tmp_path / "numosim")


def test_a_stay_at_a_poi_that_does_not_exist_is_named(tmp_path):
    numosim(tmp_path / "numosim")
    pois = pq.read_table(tmp_path / "numosim" / "poi.parquet")
    pq.write_table(pois.slice(0, 2), tmp_path / "numosim" / "poi.parquet")
    with pytest.raises(DataError, match="1 of 2 rows name a POI"):
        open_data(tmp_path / "numosim")
    assert open_data(tmp_path / "numosim", on_error="skip").events.num_rows == 4


def test_a_geodataframe_is_taken_by_its_points():
    geopandas = pytest.importorskip("geopandas")
    table = walks(agents=1, hours=20)
    frame = table.to_pandas()
    points = geopandas.points_from_xy(frame["lon"], frame["lat"], crs=4326)
    geo = geopandas.GeoDataFrame(frame.drop(columns=["lat", "lon"]), geometry=points).rename_geometry("geom")
    expected = extract_tables(table).events
    for source in (geo, geo.to_crs(3857)):
        found = extract_tables(source).events
        assert found["started_at"].equals(expected["started_at"])
        assert np.allclose(found["lat"].to_numpy(), expected["lat"].to_numpy(), atol=1e-6)


# ------------------------------------------------------------------------------------------- cut at midnight
def _nights(last_end: str, **columns: list[float]) -> pa.Table:
    """Two people in Helsinki (UTC+2): the first's data are cut at local midnights, the second's are not."""
    times = [
        ("2024-01-31T22:00:00", "2024-02-01T06:00:00"), ("2024-02-01T15:00:00", last_end),
        ("2024-02-01T07:00:00", "2024-02-01T15:00:00"), ("2024-02-01T16:00:00", "2024-02-02T05:00:00"),
    ]  # fmt: skip
    starts, ends = (
        [dt.datetime.fromisoformat(t).replace(tzinfo=dt.UTC) for t in side] for side in zip(*times, strict=True)
    )
    given = {"lat": [60.2] * 4, "lon": [24.9] * 4, "timezone": ["Europe/Helsinki"] * 4, **columns}
    return pa.table({"agent_id": [1, 1, 2, 2], "started_at": starts, "finished_at": ends, **given})


def test_stays_that_the_data_cut_at_midnight_are_not_known_to_begin_or_end_there():
    early, late = read_gaps(open_data(_nights("2024-02-02T22:00:00")).events)
    assert early.tolist() == [np.inf, 0, 0, 0]
    assert late.tolist() == [0, np.inf, 0, 0]


def test_a_stay_that_ends_within_a_day_ended_there_and_tables_that_say_so_are_believed():
    _, late = read_gaps(open_data(_nights("2024-02-02T21:59:00")).events)
    assert late.tolist() == [0, 0, 0, 0]
    told = _nights("2024-02-02T22:00:00", start_gap_s=[0.0] * 4, end_gap_s=[60.0] * 4)
    assert [gap.tolist() for gap in read_gaps(open_data(told).events)] == [[0] * 4, [1] * 4]
