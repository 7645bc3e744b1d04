"""Files to a data directory: the same result from memory or disk, with any workers, and nothing half-written."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from town import fixes, minutes, walks

from ustad.config import ExtractionConfig
from ustad.dataset import load_directory
from ustad.mobility import extraction, publish
from ustad.mobility.extraction import extract, extract_tables
from ustad.mobility.quality import QUALITY_COLUMNS, coverage_by_day
from ustad.tables import DataError, sort_events

CONFIG = ExtractionConfig(gap_minutes=30)
TABLES = ("events", "trips", "gaps", "quality")


@pytest.fixture
def table() -> pa.Table:
    return walks(agents=7, hours=24, step_s=120, gaps=True)


def ordered(data, name: str) -> pa.Table:
    found = getattr(data, name)
    return sort_events(found, "agent_id", "first_fix" if name == "quality" else "started_at").combine_chunks()


def assert_same(ours, theirs) -> None:
    for name in TABLES:
        assert ordered(ours, name).equals(ordered(theirs, name)), name


def shuffled_files(table: pa.Table, folder, parts: int = 3) -> None:
    rows = np.random.default_rng(5).permutation(table.num_rows)
    for number, own in enumerate(np.array_split(rows, parts)):
        pq.write_table(table.take(pa.array(own)), folder / f"{number}.parquet")


def test_a_directory_equals_the_tables_in_memory(table, tmp_path):
    shuffled_files(table, tmp_path)
    summary = extract(tmp_path, tmp_path / "out", CONFIG, timezone="UTC")
    data, expected = load_directory(tmp_path / "out"), extract_tables(table, CONFIG, timezone="UTC")
    for name in ("events", "trips", "gaps"):
        assert ordered(data, name).equals(ordered(expected, name)), name
    assert summary.stays == expected.events.num_rows
    assert summary.fixes == table.num_rows
    assert data.quality.column_names == list(QUALITY_COLUMNS)
    assert sum(data.quality["n_unsorted"].to_pylist()) > 0


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("memory", [True, False])
def test_neither_partitions_nor_workers_nor_the_disk_change_the_result(table, tmp_path, monkeypatch, workers, memory):
    pq.write_table(table, tmp_path / "f.parquet")
    whole = extract(tmp_path / "f.parquet", tmp_path / "a", CONFIG, timezone="UTC")
    monkeypatch.setattr(extraction, "PARTITION_ROWS", 1200)
    if not memory:
        monkeypatch.setattr(extraction, "MEMORY_ROWS", 0)
    parts = extract(tmp_path / "f.parquet", tmp_path / "b", CONFIG, timezone="UTC", workers=workers)
    assert (tmp_path / "b" / "stays").is_dir()
    assert (tmp_path / "a" / "stays.parquet").is_file()
    assert_same(load_directory(tmp_path / "a"), load_directory(tmp_path / "b"))
    assert (whole.stays, whole.trips, whole.gaps, whole.span) == (parts.stays, parts.trips, parts.gaps, parts.span)


def test_neither_blocks_nor_files_that_follow_each_other_change_the_result(table, tmp_path, monkeypatch):
    table = sort_events(table, "agent_id", "time")
    whole = extract_tables(table, CONFIG, timezone="UTC")
    monkeypatch.setattr(extraction, "BLOCK_ROWS", 900)
    monkeypatch.setattr(extraction, "PARTITION_ROWS", 2000)
    edges = np.linspace(0, table.num_rows, 5).astype(int)
    for number, (begin, end) in enumerate(pairwise(edges)):
        pq.write_table(table.slice(begin, end - begin), tmp_path / f"{number}.parquet")
    extract(tmp_path, tmp_path / "out", CONFIG, timezone="UTC")
    assert_same(load_directory(tmp_path / "out"), whole)
    extract([tmp_path / f"{n}.parquet" for n in (2, 0, 3, 1)], tmp_path / "mixed", CONFIG, timezone="UTC")
    mixed = load_directory(tmp_path / "mixed")
    for name in ("events", "trips", "gaps"):
        assert ordered(mixed, name).equals(ordered(whole, name)), name


def test_a_broken_file_among_many_does_not_lose_the_others(table, tmp_path):
    shuffled_files(table, tmp_path)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 nothing")
    with pytest.raises(DataError, match=r"broken\.parquet"):
        extract(tmp_path, tmp_path / "out", CONFIG, timezone="UTC")
    summary = extract(tmp_path, tmp_path / "out", CONFIG, timezone="UTC", on_error="skip")
    assert summary.fixes == table.num_rows
    assert summary.dropped["unreadable files"] == 1
    assert any("broken.parquet" in note for note in summary.notes)
    assert json.loads((tmp_path / "out" / "meta.json").read_text())["dropped"] == summary.dropped


def test_bad_rows_fail_or_are_counted_and_the_rest_is_used(table, tmp_path):
    lat = table["lat"].to_numpy().copy()
    lat[[5, 9]] = np.nan
    pq.write_table(table.set_column(2, "lat", pa.array(lat)), tmp_path / "f.parquet")
    with pytest.raises(DataError, match=r"f\.parquet: column 'lat': 2 of .* \(first rows: 5, 9\)"):
        extract(tmp_path / "f.parquet", tmp_path / "out", CONFIG, timezone="UTC")
    assert not (tmp_path / "out" / "stays.parquet").exists()
    summary = extract(tmp_path / "f.parquet", tmp_path / "out", CONFIG, timezone="UTC", on_error="skip")
    assert summary.dropped["bad rows"] == 2
    assert summary.fixes == table.num_rows - 2


def interrupt(*_):
    raise KeyboardInterrupt


def test_an_interrupted_run_leaves_the_older_tables_whole(table, tmp_path, monkeypatch):
    pq.write_table(table, tmp_path / "f.parquet")
    extract(tmp_path / "f.parquet", tmp_path / "out", CONFIG, timezone="UTC")
    before = sorted(p.name for p in (tmp_path / "out").iterdir())
    content = (tmp_path / "out" / "stays.parquet").read_bytes()

    monkeypatch.setattr(extraction, "extract_partition", interrupt)
    with pytest.raises(KeyboardInterrupt):
        extract(tmp_path / "f.parquet", tmp_path / "out", ExtractionConfig(minutes=30), timezone="UTC")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == before
    assert (tmp_path / "out" / "stays.parquet").read_bytes() == content


def test_new_tables_take_the_place_of_old_ones_in_any_form(table, tmp_path, monkeypatch):
    pq.write_table(table, tmp_path / "f.parquet")
    monkeypatch.setattr(extraction, "PARTITION_ROWS", 1200)
    extract(tmp_path / "f.parquet", tmp_path / "out", CONFIG, timezone="UTC")
    monkeypatch.setattr(extraction, "PARTITION_ROWS", 10**9)
    extract(tmp_path / "f.parquet", tmp_path / "out", CONFIG, timezone="UTC")
    assert not (tmp_path / "out" / "stays").exists()
    assert load_directory(tmp_path / "out").events.num_rows > 0


def test_companions_of_an_older_run_do_not_stay_beside_new_stays(table, tmp_path):
    out = tmp_path / "out"
    (out / "trips").mkdir(parents=True)
    for name in ("labels.parquet", "agent_labels.parquet", "pois.parquet", "trips/part-0.parquet", "mine.parquet"):
        pq.write_table(table.slice(0, 1), out / name)
    pq.write_table(table, tmp_path / "f.parquet")
    extract(tmp_path / "f.parquet", out, CONFIG, timezone="UTC")
    names = sorted(p.name for p in out.iterdir())
    assert names == ["gaps.parquet", "meta.json", "mine.parquet", "quality.parquet", "stays.parquet", "trips.parquet"]


def test_a_directory_is_not_extracted_into_itself(table, tmp_path):
    town = tmp_path / "town"
    (town / "fixes").mkdir(parents=True)
    shuffled_files(table, town / "fixes")
    (town / "meta.json").write_text(json.dumps({"made_by": "ustad simulate"}))
    pq.write_table(table, town / "stays.parquet")
    for source in (town, town / "fixes", town / "stays.parquet"):
        with pytest.raises(DataError, match="choose another --out"):
            extract(source, tmp_path / "x" / ".." / "town", CONFIG, timezone="UTC")
    assert pq.read_table(town / "stays.parquet").num_rows == table.num_rows


def test_what_a_run_wrote_inside_its_source_is_not_read_by_the_next(table, tmp_path):
    shuffled_files(table, tmp_path)
    for _ in range(2):
        assert extract(tmp_path, tmp_path / "out", CONFIG, timezone="UTC").files == 3


def test_an_interrupt_between_two_tables_puts_the_old_ones_back(table, tmp_path, monkeypatch):
    pq.write_table(table, tmp_path / "f.parquet")
    out = tmp_path / "out"
    extract(tmp_path / "f.parquet", out, CONFIG, timezone="UTC")
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    for last in range(1, 10):
        calls = iter(range(100))

        def move(source, target, moved, calls=calls, last=last, whole=publish._move):
            whole(source, target, moved)
            if next(calls) == last:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(publish, "_move", move)
            patch.setattr(publish, "write_json", interrupt)
            with pytest.raises(KeyboardInterrupt):
                extract(tmp_path / "f.parquet", out, ExtractionConfig(minutes=30), timezone="UTC")
        assert {p.name: p.read_bytes() for p in out.iterdir()} == before


def test_a_data_directory_gives_its_fixes_pois_zone_and_split(table, tmp_path):
    town = tmp_path / "town"
    (town / "fixes").mkdir(parents=True)
    shuffled_files(table, town / "fixes")
    first = table.slice(0, 1).to_pylist()[0]
    pois = pa.table({"poi_id": ["p"], "lat": [first["lat"]], "lon": [first["lon"]], "category": ["cafe"]})
    pq.write_table(pois, town / "pois.parquet")
    meta = {"name": "town", "timezone": "Asia/Tokyo", "split": {"test_first": "2024-01-02"}}
    (town / "meta.json").write_text(json.dumps(meta))
    extract(town, tmp_path / "out", CONFIG)
    data = load_directory(tmp_path / "out")
    assert data.meta["split"] == meta["split"]
    assert set(data.events["timezone"].to_pylist()) == {"Asia/Tokyo"}
    assert {"cafe", "unknown"} == set(data.events["poi_category"].to_pylist())
    assert data.pois.num_rows == 1


def test_the_quality_of_agents_without_a_gap_has_the_types_of_others(table):
    seamless, broken = (extract_tables(t, CONFIG, timezone="UTC") for t in (walks(agents=1, hours=3), table))
    assert seamless.gaps.num_rows == 0 < broken.gaps.num_rows
    assert seamless.quality.schema == broken.quality.schema


def agents_of(directory) -> list:
    return pq.read_table(directory / "quality.parquet")["agent_id"].to_pylist()


def written(path, agent: str, table: pa.Table) -> None:
    pa_csv.write_csv(table.set_column(0, "user", pa.array([agent] * table.num_rows)), path)


def test_agents_that_differ_by_leading_zeros_stay_apart(tmp_path):
    table = walks(agents=1, hours=3)
    for agent in ("007", "7"):
        written(tmp_path / f"{agent}.csv", agent, table)
    summary = extract(tmp_path, tmp_path / "out", timezone="UTC")
    assert summary.agents == 2
    assert agents_of(tmp_path / "out") == ["007", "7"]


def test_integers_in_one_file_and_text_in_another_are_all_text(tmp_path):
    table = walks(agents=1, hours=3)
    written(tmp_path / "m1.csv", "12", table)
    extract(tmp_path / "m1.csv", tmp_path / "alone", timezone="UTC")
    assert agents_of(tmp_path / "alone") == [12]
    written(tmp_path / "m2.csv", "ab", table)
    pq.write_table(table.set_column(0, "agent_id", pa.array([12] * table.num_rows)), tmp_path / "m3.parquet")
    files = [tmp_path / name for name in ("m1.csv", "m2.csv", "m3.parquet")]
    summary = extract(files, tmp_path / "out", timezone="UTC")
    assert agents_of(tmp_path / "out") == ["12", "ab"]
    assert summary.dropped["duplicates"] == table.num_rows
    assert any("taken as text" in note for note in summary.notes)


def test_fixes_without_any_stay_still_give_the_quality_table(tmp_path):
    sparse = walks(agents=2, hours=200, step_s=6 * 3600)
    pq.write_table(sparse, tmp_path / "f.parquet")
    summary = extract(tmp_path / "f.parquet", tmp_path / "out", ExtractionConfig(join=False), timezone="UTC")
    assert summary.stays == 0
    assert summary.too_sparse == 2
    assert any("no stay was found" in note for note in summary.notes)
    assert pq.read_table(tmp_path / "out" / "quality.parquet")["too_sparse"].to_pylist() == [True, True]


def test_home_is_where_the_nights_before_the_test_part_were_spent():
    days = 40
    hours = np.arange(0, days * 24, 0.25)
    moved = hours >= 12 * 24  # the default split tests from the 20th day on: 12 nights here, 8 there, then 20 more
    lat = np.where(hours % 24 < 8, np.where(moved, 52.7, 52.5), 52.6)
    table = fixes(np.zeros(len(hours), int), minutes(hours * 60), lat, np.full(len(hours), 13.4))
    data = extract_tables(table, timezone="UTC")
    home = data.events.filter(pa.compute.equal(data.events["poi_category"], "home"))
    assert np.allclose(home["lat"].to_numpy(), 52.5)
    assert any(note.startswith("home and work are what stays before 2024-01-") for note in data.meta["notes"])


def test_coverage_by_day_is_the_share_of_time_outside_gaps():
    data = extract_tables(walks(agents=3, hours=72, gaps=True), CONFIG, timezone="UTC")
    days, shares = coverage_by_day(data.quality, data.gaps)
    lost = sum(data.quality["gap_hours"].to_pylist())
    ends = zip(data.quality["first_fix"].to_pylist(), data.quality["last_fix"].to_pylist(), strict=True)
    spans = sum((last - first).total_seconds() / 3600 for first, last in ends)
    assert len(days) == len(shares) >= 3
    assert shares.sum() * 24 * 3 == pytest.approx(spans - lost, rel=1e-6)
    assert np.all((shares >= 0) & (shares <= 1))
