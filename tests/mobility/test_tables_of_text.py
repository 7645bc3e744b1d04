"""Tables of text: whatever separates, names or writes their columns, the fixes are the same."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from export_samples import SAMPLES
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ustad.cli import app
from ustad.mobility.columns import as_fixes, match_names
from ustad.mobility.delimited import form_of
from ustad.mobility.extraction import extract
from ustad.mobility.formats import expand, pieces
from ustad.mobility.layout import Layout
from ustad.mobility.preview import draw_map
from ustad.mobility.readers import open_data
from ustad.mobility.reading import Reading
from ustad.mobility.whose import choose_agents
from ustad.tables import DataError

ROWS = [("7", "2024-05-01T08:00:00Z", "52.52", "13.405"), ("8", "2024-05-01T08:01:00Z", "-33.87", "151.2")]


def read(path: Path, timezone: str | None = None, **layout) -> tuple[list[tuple], Reading]:
    """Agent, time, lat and lon of all rows, read as `extract` reads them."""
    reading = Reading(timezone, layout=Layout.of(**layout))
    files = expand([path])
    choose_agents(files, None, reading)
    tables = [as_fixes(p.table, p.where, reading) for f in files for p in pieces(f, reading)]
    table = pa.concat_tables(tables) if tables else pa.table({c: [] for c in ("agent_id", "time", "lat", "lon")})
    return list(zip(*(table[c].to_pylist() for c in ("agent_id", "time", "lat", "lon")), strict=True)), reading


EXPECTED = [
    (7, datetime(2024, 5, 1, 8, 0, tzinfo=UTC), 52.52, 13.405),
    (8, datetime(2024, 5, 1, 8, 1, tzinfo=UTC), -33.87, 151.2),
]


def write(path: Path, heading: str, separator: str = ",", rows=ROWS, **change) -> Path:
    lines = [heading] if heading else []
    lines += [separator.join(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("name", ["f.csv", "f.txt"])
def test_the_separator_is_found(separator, name, tmp_path):
    path = write(tmp_path / name, separator.join(["user", "time", "lat", "lon"]), separator)
    assert read(path)[0] == EXPECTED


def test_the_separator_may_be_said(tmp_path):
    path = write(tmp_path / "f.csv", "user time lat lon", " ")
    assert read(path, separator="space")[0] == EXPECTED
    with pytest.raises(DataError, match="expected one sign"):
        Layout.of(separator="commas")


def test_a_decimal_comma_is_found_or_said(tmp_path):
    rows = [tuple(v.replace(".", ",") if i > 1 else v for i, v in enumerate(row)) for row in ROWS]
    path = write(tmp_path / "f.csv", "user;time;lat;lon", ";", rows)
    assert read(path)[0] == EXPECTED
    assert read(path, decimal=",")[0] == EXPECTED
    with pytest.raises(DataError, match="are not numbers"):
        read(path, decimal=".")


def test_columns_are_said_by_name_by_number_or_put_together(tmp_path):
    assert read(write(tmp_path / "f.csv", "a,b,c,d"), columns="agent_id=a,time=b,lat=c,lon=d")[0] == EXPECTED
    assert read(write(tmp_path / "g.csv", ""), columns="agent_id=1,time=2,lat=3,lon=4")[0] == EXPECTED
    apart = [(a, *t.removesuffix("Z").split("T"), lat, lon) for a, t, lat, lon in ROWS]
    path = write(tmp_path / "h.csv", "who,day,hour,lat,lon", rows=apart)
    assert read(path, "UTC", columns="agent_id=who,time=day+hour")[0] == EXPECTED
    with pytest.raises(DataError, match=r"no column 'when' .*found who, day, hour, lat, lon"):
        read(path, columns="time=when")
    with pytest.raises(DataError, match="'latitude' is no column of ours"):
        Layout.of(columns="latitude=y")
    with pytest.raises(DataError, match="expected NAME=COLUMN"):
        Layout.of(columns="lat")


def test_what_was_said_wins_over_a_column_by_our_name(tmp_path):
    rows = [(*row, "somebody", "2001-01-01T00:00:00Z") for row in ROWS]
    path = write(tmp_path / "f.csv", "device,ts,y,x,agent_id,time", rows=rows)
    assert read(path, columns="agent_id=device,time=ts")[0] == EXPECTED
    assert read(path)[0][0][0] == "somebody"


def test_columns_of_parquet_and_ndjson_are_said_too(tmp_path):
    names = ("a", "b", "c", "d")
    kinds = (int, str, float, float)
    values = [tuple(kind(v) for kind, v in zip(kinds, row, strict=True)) for row in ROWS]
    columns = {name: list(column) for name, column in zip(names, zip(*values, strict=True), strict=True)}
    pq.write_table(pa.table(columns), tmp_path / "f.parquet")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in values]
    (tmp_path / "f.ndjson").write_text("\n".join(lines))
    for name in ("f.parquet", "f.ndjson"):
        assert read(tmp_path / name, columns="agent_id=a,time=b,lat=c,lon=d")[0] == EXPECTED, name


def test_a_file_without_a_heading_is_refused_with_what_its_columns_look_like(tmp_path):
    path = write(tmp_path / "f.csv", "")
    with pytest.raises(DataError, match=r"no heading; its columns are 1 \(a number\), 2 \(a time\)") as error:
        read(path)
    assert "--columns agent_id=1" in str(error.value)
    assert "52.52" not in str(error.value)


@pytest.mark.parametrize(
    ("form", "written"),
    [
        ("%d.%m.%Y %H:%M", ["01.05.2024 08:00", "01.05.2024 08:01"]),
        ("%Y%m%d%H%M%S", ["20240501080000", "20240501080100"]),
        ("%d/%b/%Y:%H:%M:%S %z", ["01/May/2024:10:00:00 +0200", "01/May/2024:08:01:00 +0000"]),
    ],
)
def test_times_are_read_as_their_format_says(form, written, tmp_path):
    rows = [(row[0], text, *row[2:]) for row, text in zip(ROWS, written, strict=True)]
    path = write(tmp_path / "f.csv", "user,time,lat,lon", rows=rows)
    assert read(path, "UTC", time_format=form)[0] == EXPECTED


def test_a_time_that_does_not_fit_its_format_is_a_bad_row(tmp_path):
    rows = [("7", "01.05.2024", "52.52", "13.405"), ("7", "2024-05-02", "52.52", "13.405")]
    path = write(tmp_path / "f.csv", "user,time,lat,lon", rows=rows)
    with pytest.raises(DataError, match=r"column 'time': 1 of 2 rows are not times \(first rows: 1\)"):
        read(path, "UTC", time_format="%d.%m.%Y")
    with pytest.raises(DataError, match="expected a pattern such as"):
        Layout.of(time_format="dd.mm.yyyy")


def test_text_that_is_no_time_names_the_option_that_would_read_it(tmp_path):
    rows = [(row[0], "01.05.2024 08:00", *row[2:]) for row in ROWS]
    with pytest.raises(DataError, match=r"not a time.*--time-format"):
        read(write(tmp_path / "f.csv", "user,time,lat,lon", rows=rows), "UTC")


@pytest.mark.parametrize(
    "heading",
    [
        "deviceId,fixTime,latitude,longitude",  # Traccar
        "caid,utc_timestamp,latitude,longitude",  # ad-id tables
        "ad_id,utc_timestamp,lat,lng",
        "msisdn,event_time,Latitude,Longitude",  # CDR
        "tracker,t,Y,X",  # MovingPandas
        "individual-local-identifier,timestamp,location-lat,location-long",  # Movebank
        "Device ID,Date Time,GPS Lat,GPS Lon",
    ],
)
def test_names_of_trackers_ad_tables_and_movebank_are_known(heading, tmp_path):
    assert read(write(tmp_path / "f.csv", heading))[0] == EXPECTED


def test_a_table_of_one_person_is_named_after_its_file_or_after_its_folder_where_files_are_dates(tmp_path):
    one = [row[1:] for row in ROWS]
    heading = "time,lat,lon,elevation,accuracy,bearing"  # GPSLogger
    rows = [(*row, "34.0", "8", "90") for row in one]
    ours, reading = read(write(tmp_path / "walk.csv", heading, rows=rows))
    assert [row[0] for row in ours] == ["walk", "walk"]
    assert any("no column says whose the fixes are" in note for note in reading.notes)
    folder = tmp_path / "anna"
    folder.mkdir()
    for day in ("20240501", "20240502"):
        write(folder / f"{day}.csv", heading, rows=rows)
    assert {row[0] for row in read(folder)[0]} == {"anna"}


def test_dates_and_clocks_apart_slashes_and_sides_of_the_world_are_read(tmp_path):
    rows = [("2024/05/01", "08:00:00", "52.52N", "13.405E"), ("2024/05/01", "08:01:00", "33.87S", "151.2W")]
    ours, _ = read(write(tmp_path / "log.csv", "DATE,TIME,LATITUDE N/S,LONGITUDE E/W", rows=rows), "UTC")
    assert [row[1:] for row in ours] == [EXPECTED[0][1:], (EXPECTED[1][1], -33.87, -151.2)]


def test_missing_columns_name_what_was_seen_and_the_option(tmp_path):
    path = write(tmp_path / "f.csv", "user,moment,lat,lon")
    with pytest.raises(DataError, match=r"missing column time; found .*moment.*--columns time=NAME"):
        read(path)


def test_our_own_name_and_an_exact_one_win_whatever_stands_between_words():
    names = {"agent_id": ("device_id",), "time": ("fix_time",)}
    assert match_names(["deviceId", "Fix Time"], names) == {"agent_id": "deviceId", "time": "Fix Time"}


def test_stays_separated_by_semicolons_are_read(tmp_path):
    (tmp_path / "stays.csv").write_text(
        "id;user_id;started_at;finished_at;geom\n"
        "1;0;2024-05-01T08:00:00+00:00;2024-05-01T09:00:00+00:00;POINT (13.4 52.5)\n"
    )
    ours = open_data(tmp_path / "stays.csv", timezone="UTC").events
    assert ours["lon"].to_pylist() == [13.4]


def test_the_form_of_a_file_survives_quotes_blank_lines_and_other_encodings(tmp_path):
    path = tmp_path / "f.csv"
    path.write_bytes(
        '\n"user";"time";"lat";"lon";"Straße"\n7;2024-05-01T08:00:00Z;52.52;13.405;Süd\n'.encode("latin-1")
    )
    assert form_of(path, Layout()).names[:4] == ["user", "time", "lat", "lon"]
    assert read(path)[0] == EXPECTED[:1]


TABLES = (
    "user;time;lat;lon\n7;2024-05-01T08:00:00Z;52,52;13,405\n8;2024-05-01T08:01:00Z;-33,87;151,2\n",
    "DATE,TIME,LATITUDE N/S,LONGITUDE E/W\n2024/05/01,08:00:00,52.52N,13.4E\n2024/05/01,08:01:00,52.53N,13.4W\n",
    "user_id|tracked_at|geom\n0|2024-05-01T08:00:00+00:00|POINT (13.4 52.5)\n",
)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damaged_tables_are_refused_in_one_line_that_names_the_file_or_read_in_part(tmp_path_factory, data):
    content = bytearray(data.draw(st.sampled_from(TABLES)).encode())
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from(b'0,;|"\n\t-N \xff'))
    path = tmp_path_factory.mktemp("damaged") / "f.csv"
    path.write_bytes(bytes(content[: data.draw(st.one_of(st.none(), st.integers(0, len(content))))]))
    said = ""
    try:
        read(path, "UTC")
    except DataError as error:
        said = str(error)
    assert "\n" not in said
    assert not said or "f.csv" in said


# ------------------------------------------------------------------------------------------------------ dry run
def run(*arguments: str):
    return CliRunner().invoke(app, ["extract", *arguments])


def test_a_dry_run_says_what_would_be_read_and_writes_nothing(tmp_path):
    rows = [("7", f"2024-05-01T08:{m:02d}:00Z", f"{52.5 + m / 1000}", "13.4") for m in range(0, 60, 2)]
    path = write(tmp_path / "f.csv", "device|ts|y|x", "|", [*rows, ("7", "noon", "52.5", "13.4")])
    before = sorted(tmp_path.iterdir())
    result = run(str(path), "--dry-run", "--out", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    for part in ("column 'ts' was taken for time", "30 fixes of 1 agent in 1 file", "one every 2 min", "1 bad rows",
                 "from 2024-05-01 08:00:00 to 2024-05-01 08:58:00", "52.50 … 52.56° N",
                 "columns are separated by pipes"):  # fmt: skip
        assert part in result.output, part
    assert sorted(tmp_path.iterdir()) == before


def test_a_dry_run_of_stays_and_for_a_program(tmp_path):
    (tmp_path / "Timeline.json").write_bytes(SAMPLES["Timeline.json"])
    result = run(str(tmp_path / "Timeline.json"), "--dry-run", "--json")
    content = json.loads(result.stdout)
    assert (content["rows"], content["gives"], content["agents"]) == (3, "stays", 1)
    assert "Google timeline (stays)" in content["kinds"].values()
    assert "lat" not in content


def test_a_map_shows_positions_where_they_are():
    rng = np.random.default_rng(1)
    lat = np.concatenate([52.0 + rng.normal(0, 1e-3, 500), 52.2 + rng.normal(0, 1e-3, 50)])
    lon = np.concatenate([13.0 + rng.normal(0, 1e-3, 500), 13.5 + rng.normal(0, 1e-3, 50)])
    lines = draw_map(lat, lon).splitlines()[1:-2]
    low = [i for i, line in enumerate(lines) if "#" in line]
    assert min(low) > len(lines) / 2  # the many lie south …
    assert max(line.index("#") for line in lines if "#" in line) < 10  # … and west
    assert any(line.rstrip("| ") and len(line.rstrip("| ")) > 40 for line in lines[: len(lines) // 2])
    assert draw_map(np.array([52.0]), np.array([13.0])).count("#") == 1


def test_the_verb_takes_a_table_said_in_one_line(tmp_path):
    rows = [("7", f"01.05.2024 08:{m:02d}", "52,5", "13,4") for m in range(30)]
    path = write(tmp_path / "f.dat.csv", "", ";", rows)
    result = run(str(path), "--columns", "agent_id=1,time=2,lat=3,lon=4", "--time-format", "%d.%m.%Y %H:%M",
                 "--timezone", "Europe/Berlin", "--out", str(tmp_path / "out"))  # fmt: skip
    assert result.exit_code == 0, result.output
    assert open_data(tmp_path / "out").events.num_rows == 1
    summary = extract(path, tmp_path / "again", timezone="Europe/Berlin",
                      layout=Layout.of("agent_id=1,time=2,lat=3,lon=4", time_format="%d.%m.%Y %H:%M"))  # fmt: skip
    assert summary.fixes == 30
