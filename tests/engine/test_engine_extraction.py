"""Extraction and simulation on a cluster: the tables of a local run, whatever the workers, also when they die."""

from __future__ import annotations

import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
import pytest
from same_tables import Deadly, assert_same

from ustad.engine.extract_job import extract
from ustad.engine.folder import Place
from ustad.engine.simulate_job import simulate
from ustad.files import find_table, read_table
from ustad.mobility.extraction import extract as extract_here
from ustad.simulate import simulate as simulate_here

KEYS = {"stays": ["stay_id"], "trips": ["trip_id"], "gaps": ["agent_id", "started_at"], "quality": ["agent_id"]}


@pytest.fixture(scope="module")
def fixes(tmp_path_factory):
    """A town of 230 people with raw fixes, in three files."""
    path = tmp_path_factory.mktemp("fixes") / "town"
    simulate_here("town", 230, 5, path, fixes="300s", days=5)
    return path


@pytest.fixture(scope="module")
def local(fixes, tmp_path_factory):
    path = tmp_path_factory.mktemp("local") / "data"
    return path, extract_here(fixes, path, workers=1)


def assert_same_data(place, other):
    for name, keys in KEYS.items():
        assert_same(read_table(find_table(place, name)), read_table(find_table(other, name)), keys)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_stays_are_those_of_a_local_run_on_any_number_of_workers(cluster, fixes, local, tmp_path, workers):
    path, expected = local
    summary = extract(fixes, tmp_path / "data", workers=workers)
    assert_same_data(path, tmp_path / "data")
    for count in ("files", "agents", "fixes", "stays", "trips", "gaps", "unfinished", "dropped", "span", "notes"):
        assert getattr(summary, count) == getattr(expected, count), count
    assert not (tmp_path / "data" / ".extract-job").exists()
    parts = sorted((tmp_path / "data" / "stays").glob("*.parquet"))
    owners = [set(pq.read_table(p, columns=["agent_id"])["agent_id"].to_pylist()) for p in parts]
    assert len(parts) > 1
    assert sum(map(len, owners)) == len(set().union(*owners))  # no agent in two parts


def test_a_worker_killed_during_the_extraction_changes_nothing(cluster, fixes, local, tmp_path, monkeypatch):
    deadly = Deadly(monkeypatch, "stays", tmp_path / "traces")
    extract(fixes, tmp_path / "data", workers=1, partitions=8)
    assert deadly.killed
    assert deadly.calls == 8 + 1  # what it had done and could not say was done again
    assert_same_data(local[0], tmp_path / "data")


def test_fixes_and_results_may_lie_on_another_file_system(cluster, fixes, local, tmp_path):
    inner = pa_fs.SubTreeFileSystem(str(tmp_path), pa_fs.LocalFileSystem())
    (tmp_path / "bucket").mkdir()
    pa_fs.copy_files(str(fixes), "bucket/in", pa_fs.LocalFileSystem(), inner)
    place = Place(inner, "bucket/in")
    assert not place.local
    summary = extract(f"file://{fixes}", tmp_path / "by-uri", workers=2)
    assert summary.stays == local[1].stays
    remote = extract([place], Place(inner, "bucket/out"), workers=2)
    assert remote.stays == local[1].stays
    assert_same_data(local[0], tmp_path / "bucket" / "out")
    assert not (tmp_path / "bucket" / "out" / ".extract-job").exists()


def test_a_bad_file_is_named_in_one_line(cluster, tmp_path):
    (tmp_path / "bad.csv").write_text("agent_id,time,lat\n1,2024-01-01T00:00:00Z,52\n")
    with pytest.raises(ValueError, match=r"lon") as caught:
        extract(tmp_path / "bad.csv", tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_simulated_tables_are_those_of_a_local_run_file_by_file(cluster, tmp_path):
    kept = {"fixes": "600s", "days": 4, "anomalous_share": 0.5, "agents_a_part": 10}
    mine = simulate_here("town", 30, 3, tmp_path / "local", **kept)
    theirs = simulate("town", 30, 3, tmp_path / "ray", workers=2, **kept)
    assert mine == theirs
    files = sorted(p.relative_to(tmp_path / "local") for p in (tmp_path / "local").rglob("*.parquet"))
    assert files == sorted(p.relative_to(tmp_path / "ray") for p in (tmp_path / "ray").rglob("*.parquet"))
    for name in files:
        assert pq.read_table(tmp_path / "local" / name).equals(pq.read_table(tmp_path / "ray" / name)), name
