"""Exports that hold stays already: what lies between the stays, how good the data is, and archives as downloaded."""

from __future__ import annotations

import json
import zipfile

import export_samples
import numpy as np
import pyarrow as pa
import pytest

from ustad.config import ExtractionConfig
from ustad.dataset import load_directory
from ustad.mobility import archives
from ustad.mobility.extraction import extract
from ustad.mobility.given_stays import describe_between
from ustad.mobility.parameters import Wish
from ustad.mobility.preview import preview
from ustad.mobility.quality import QUALITY_COLUMNS
from ustad.mobility.reading import Reading
from ustad.tables import GAPS, TIMESTAMP, TRIPS, DataError, event_keys, validate

HOUR = 3_600_000_000


def stays_of(rows: list[tuple[int, float, float, float]]) -> pa.Table:
    """Stays of (agent, first and last hour, latitude)."""
    agent, start, end, lat = zip(*rows, strict=True)
    started = pa.array([round(1_700_000_000e6 + h * HOUR) for h in start], TIMESTAMP)
    finished = pa.array([round(1_700_000_000e6 + h * HOUR) for h in end], TIMESTAMP)
    columns = {"agent_id": pa.array(agent), "started_at": started, "finished_at": finished, "lat": pa.array(lat)}
    ids = pa.array(event_keys(columns["agent_id"], started))
    return pa.table({"stay_id": ids, **columns, "lon": [13.4] * len(rows)})


@pytest.fixture
def archive(tmp_path):
    """A Takeout of anna's, as it is downloaded: an export beside files of other products."""
    path = tmp_path / "anna" / "takeout-20240601T000000Z-001.zip"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("Takeout/Location History (Timeline)/Timeline.json", json.dumps(export_samples.ANDROID))
        file.writestr("Takeout/Location History (Timeline)/Settings.json", "{}")
        file.writestr("Takeout/YouTube/subscriptions.csv", "channel,title\n1,cats\n")
        file.writestr("Takeout/archive_browser.html", "<html></html>")
    return path


def test_trips_and_gaps_fill_the_time_between_stays_of_one_agent():
    stays = stays_of([(1, 0, 2, 52.5), (1, 2.5, 4, 52.6), (1, 9, 10, 52.6), (1, 11, 12, 52.6), (2, 1, 3, 52.5)])
    tables = describe_between(stays, ExtractionConfig())
    trips, gaps, quality = (tables[name] for name in ("trips", "gaps", "quality"))
    validate(trips, TRIPS, "trips", "fail")
    validate(gaps, GAPS, "gaps", "fail")
    ids = stays["stay_id"].to_pylist()
    assert trips["origin_stay_id"].to_pylist() == ids[:3]
    assert trips["destination_stay_id"].to_pylist() == ids[1:4]
    assert trips["minutes"].to_pylist() == pytest.approx([30, 300, 60])
    assert trips["crosses_gap"].to_pylist() == [False, True, False]
    assert trips["length_km"].to_pylist() == pytest.approx([11.12, 0, 0], abs=0.01)
    assert gaps.select(["agent_id", "cause"]).to_pylist() == [{"agent_id": 1, "cause": "unbridged"}]
    assert quality.column_names == list(QUALITY_COLUMNS)
    assert quality["n_stays"].to_pylist() == [4, 1]
    assert quality["gap_hours"].to_pylist() == [5, 0]
    assert quality["coverage"].to_pylist() == pytest.approx([7 / 12, 1])
    assert quality["n_fixes"].to_pylist() == [0, 0]


def test_check_ins_have_no_trips_because_nobody_knows_when_they_ended():
    tables = describe_between(stays_of([(1, 0, 0, 52.5), (1, 30, 30, 52.6), (1, 40, 40, 52.5)]), ExtractionConfig())
    assert tables["trips"].num_rows == tables["gaps"].num_rows == 0
    assert tables["quality"]["coverage"].to_pylist() == [0]
    assert tables["quality"]["n_stays"].to_pylist() == [3]


def test_time_in_stays_trips_and_gaps_adds_up_for_any_stays():
    rng = np.random.default_rng(4)
    rows = []
    for agent in range(20):
        edges = np.sort(rng.choice(2000, 2 * int(rng.integers(1, 12)), replace=False)) / 4
        rows += [(agent, a, b, 52 + rng.random()) for a, b in edges.reshape(-1, 2)]
    stays = stays_of(rows)
    tables = describe_between(stays, ExtractionConfig())

    def hours(table: pa.Table) -> float:
        ends = (table[name].cast(pa.int64()).to_numpy() for name in ("finished_at", "started_at"))
        return float(np.subtract(*ends).sum()) / HOUR

    quality = tables["quality"]
    first, last = (quality[name].cast(pa.int64()).to_numpy() for name in ("first_fix", "last_fix"))
    assert hours(stays) + hours(tables["trips"]) == pytest.approx((last - first).sum() / HOUR)
    assert hours(tables["gaps"]) == pytest.approx(sum(quality["gap_hours"].to_pylist()))
    crossing = tables["trips"].filter(tables["trips"]["crosses_gap"])
    assert hours(crossing) == pytest.approx(hours(tables["gaps"]))


def test_a_zipped_takeout_is_read_as_it_is_and_is_its_folders_person(archive, tmp_path):
    summary = extract(archive, tmp_path / "out", Wish(changes={"gap_minutes": 20.0}))
    data = load_directory(tmp_path / "out")
    assert (summary.stays, summary.trips, summary.agents, summary.files) == (3, 2, 1, 1)
    assert set(data.events["agent_id"].to_pylist()) == {"anna"}
    assert data.trips.num_rows == 2
    assert data.gaps["cause"].to_pylist() == ["moved"]
    assert data.quality["n_stays"].to_pylist() == [3]
    assert any("1 files were read from the archive" in note for note in summary.notes)
    assert preview([str(archive)], None, Reading()).rows == 3


def test_an_archive_that_unpacks_to_too_much_is_refused(archive, tmp_path, monkeypatch):
    with zipfile.ZipFile(archive, "a", zipfile.ZIP_DEFLATED) as file:
        file.writestr("Takeout/Location History (Timeline)/Records.json", bytes(1 << 20))
    monkeypatch.setattr(archives, "SMALL", 1000)
    monkeypatch.setattr(archives, "RATIO", 20)
    with pytest.raises(DataError, match=r"takeout-2024.*unpacks to more than"):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["../../outside.csv", "/outside.csv", "a/../../../outside.csv"])
def test_no_member_of_an_archive_is_written_outside_its_folder(tmp_path, name):
    path = tmp_path / "bad.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, "agent_id,time,lat,lon\n1,2024-05-01T08:00:00Z,52.5,13.4\n")
    before = set(tmp_path.parent.rglob("outside.csv"))
    with archives.unpack_archives([path], Reading()) as (folder,):
        files = [file for file in folder.rglob("*") if file.is_file()]
        assert [file.name for file in files] == ["outside.csv"]
        assert files[0].resolve().is_relative_to(folder.resolve())
    assert set(tmp_path.parent.rglob("outside.csv")) == before


def test_a_damaged_archive_and_one_without_data_are_one_line_each(tmp_path):
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(DataError, match=r"broken\.zip: cannot be unpacked"):
        extract(tmp_path / "broken.zip", tmp_path / "out")
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as file:
        file.writestr("photo.jpg", b"")
    with pytest.raises(DataError, match=r"empty\.zip: the archive holds no file"):
        extract(tmp_path / "empty.zip", tmp_path / "out")


def test_the_cluster_leaves_given_stays_and_archives_to_this_machine(archive, tmp_path):
    pytest.importorskip("ray")
    from ustad.engine.extract_job import extract as extract_on_ray

    assert extract_on_ray([archive], tmp_path / "out").stays == 3
    assert load_directory(tmp_path / "out").trips.num_rows == 2
