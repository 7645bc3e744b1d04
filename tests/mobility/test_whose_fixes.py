"""Who a fix belongs to where a file does not say so: the file, the folder, the path or a column, never by accident."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from town import walks

from ustad.mobility.extraction import extract, extract_tables
from ustad.mobility.readers import open_data
from ustad.mobility.whose import agent_of
from ustad.tables import DataError


def write_gpx(path, day: int = 1, lat: float = 60.1) -> None:
    """Two hours at one place, a fix every ten minutes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    points = "".join(
        f'<trkpt lat="{lat}" lon="24.9"><time>2024-05-{day:02d}T{8 + i // 6:02d}:{i % 6}0:00Z</time></trkpt>'
        for i in range(12)
    )
    path.write_text(
        '<gpx version="1.1" creator="x" xmlns="http://www.topografix.com/GPX/1/1">'
        f"<trk><trkseg>{points}</trkseg></trk></gpx>"
    )


def agents(summary) -> list[str]:
    return sorted(pc.unique(open_data(summary.out).events["agent_id"]).to_pylist())


def test_days_of_two_people_in_two_folders_are_two_agents(tmp_path):
    pytest.importorskip("gpxpy")
    for name, lat in (("anna", 60.1), ("bob", 60.3)):
        for day in (1, 2):
            write_gpx(tmp_path / "in" / name / f"2024-05-{day:02d}.gpx", day, lat)
    summary = extract(tmp_path / "in", tmp_path / "out", agent="folder")
    assert agents(summary) == ["anna", "bob"]
    assert summary.dropped == {}
    assert summary.fixes == 48
    by_default = extract(tmp_path / "in", tmp_path / "out")
    assert agents(by_default) == ["anna", "bob"]
    assert any("GPX: the agent is the name of the folder" in note for note in by_default.notes)
    with pytest.raises(DataError, match=r"2024-05-01\.gpx.* and .*2024-05-01\.gpx: one name .* --agent folder"):
        extract(tmp_path / "in", tmp_path / "out", agent="file")


def test_one_persons_daily_files_are_one_agent(tmp_path):
    pytest.importorskip("gpxpy")
    for day in (1, 2, 3):
        write_gpx(tmp_path / "carla" / f"Track_2024-05-{day:02d}T080000Z.gpx", day)
    assert agents(extract(tmp_path / "carla", tmp_path / "out")) == ["carla"]


def test_files_named_after_people_are_one_agent_each(tmp_path):
    pytest.importorskip("gpxpy")
    for name in ("anna", "bob"):
        write_gpx(tmp_path / "in" / f"{name}.gpx")
    assert agents(extract(tmp_path / "in", tmp_path / "out")) == ["anna", "bob"]
    assert agents(extract(tmp_path / "in", tmp_path / "out", agent="folder")) == ["in"]


def test_files_that_may_be_named_after_people_and_days_are_asked_about(tmp_path):
    pytest.importorskip("gpxpy")
    for name in ("anna", "bob"):
        write_gpx(tmp_path / "in" / f"{name}-2024-05-01.gpx")
    with pytest.raises(DataError, match="say whose they are with --agent file, --agent folder"):
        extract(tmp_path / "in", tmp_path / "out")
    assert agents(extract(tmp_path / "in", tmp_path / "out", agent=r"in/(\w+)-")) == ["anna", "bob"]


def test_other_files_of_one_name_in_two_folders_are_refused(tmp_path):
    pytest.importorskip("gpxpy")
    for name in ("anna", "bob"):
        write_gpx(tmp_path / "in" / name / "ride.gpx")
    with pytest.raises(DataError, match="one name by --agent file"):
        extract(tmp_path / "in", tmp_path / "out")
    for name in ("anna", "bob"):
        write_gpx(tmp_path / "nested" / name / "2024" / "ride.gpx")
    with pytest.raises(DataError, match="one name by --agent folder"):
        extract(tmp_path / "nested", tmp_path / "out", agent="folder")
    assert agents(extract(tmp_path / "nested", tmp_path / "out", agent=r"nested/([^/]+)/")) == ["anna", "bob"]


def test_a_column_or_the_file_may_say_who(tmp_path):
    table = walks(agents=2, hours=5)
    told = table.append_column("phone", pc.add(table["agent_id"], 70)).append_column("user", pa.array([1] * len(table)))
    for name, write in (("fixes.csv", pa_csv.write_csv), ("fixes.parquet", pq.write_table)):
        (tmp_path / name.partition(".")[2]).mkdir()
        path = tmp_path / name.partition(".")[2] / name
        write(told, path)
        assert agents(extract(path, tmp_path / "out", agent="phone")) == [70, 71]
        assert agents(extract(path, tmp_path / "out")) == [0, 1]
        write(told.drop_columns(["agent_id", "user", "phone"]), path)
        assert agents(extract(path, tmp_path / "out", agent="file")) == ["fixes"]
        if name == "fixes.csv":  # tables of text are of one person where they name none
            assert agents(extract(path, tmp_path / "out")) == ["fixes"]
        else:
            with pytest.raises(DataError, match="agent_id"):
                extract(path, tmp_path / "out")
        with pytest.raises(DataError, match=r"phone|agent_id"):
            extract(path, tmp_path / "out", agent="phone")
    assert sorted(pc.unique(extract_tables(told, agent="phone").events["agent_id"]).to_pylist()) == [70, 71]


def test_a_pattern_that_fits_no_path_is_an_error_that_names_it(tmp_path):
    with pytest.raises(DataError, match="does not match this path"):
        agent_of(tmp_path / "a.gpx", r"user-(\d+)")
    with pytest.raises(DataError, match="regular expression"):
        agent_of(tmp_path / "a.gpx", r"user-(\d+")
