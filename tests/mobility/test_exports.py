"""Exports: each kind of file is known by its content, gives what it holds, and never a traceback."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from export_samples import ANDROID, RECORDS, SAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.mobility.columns import Reading, as_fixes, as_stays
from ustad.mobility.exports import google_records, kind_of, read_given_stays
from ustad.mobility.extraction import extract
from ustad.mobility.formats import expand, pieces
from ustad.mobility.readers import open_data
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
    assert reading.dropped == 1
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
    assert any("1 visits without a position or a time, or inside another" in n for n in data.meta["notes"])
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
    name = data.draw(st.sampled_from([n for n in SAMPLES if n.endswith(".json")]))
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
    from ustad.mobility.exports.order import untangle

    ours = untangle(table, Reading()).to_pylist()
    for before, after in pairwise(ours):
        if before["agent_id"] == after["agent_id"]:
            assert before["started_at"] < after["started_at"]
            assert before["finished_at"] <= after["started_at"]
    assert {(r["agent_id"], r["started_at"]) for r in ours} == {
        (r["agent_id"], r["started_at"]) for r in table.to_pylist()
    }
