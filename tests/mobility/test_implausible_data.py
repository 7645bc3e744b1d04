"""Ordinary faults of other people's data are refused, or dropped and counted, never taken as they are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pytest
from town import START, fixes, minutes, walks

from ustad.mobility.columns import as_fixes, as_stays
from ustad.mobility.extraction import extract, extract_tables
from ustad.mobility.readers import open_data
from ustad.mobility.reading import Reading
from ustad.progress import UstadWarning
from ustad.tables import TIMESTAMP, DataError


def with_times(values) -> pa.Table:
    table = fixes([1] * len(values), minutes(range(len(values))), [52.5] * len(values), [13.4] * len(values))
    return table.set_column(1, "time", pa.array(values))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([20240505220117, 20240505220217], "dates written as digits"),
        (["20240505220117", "20240505220217"], "dates written as digits"),
        ([20240505, 20240505], "dates written as digits"),
        ([202405052201, 202405052202], "dates written as digits"),
        ([-1_714_946_477, -1_714_946_400], "before 1980 or in the future"),
        ([0, 1, 2, 47], "before 1980 or in the future .* 1970-01-01"),
        (["2024-05-05T22:01:17Z", "2611-05-20T00:00:00Z"], "1 of 2 rows lie before 1980 or in the future"),
    ],
)
def test_times_that_cannot_be_meant_are_refused(values, says):
    with pytest.raises(DataError, match=says):
        as_fixes(with_times(values), reading=Reading())


@pytest.mark.parametrize("factor", [1, 1_000, 1_000_000, 1_000_000_000])
def test_epoch_numbers_of_these_years_are_no_dates_written_as_digits(factor):
    for second in range(1_000_000_000, 1_790_000_000, 86_400 * 991):
        table = as_fixes(with_times([second * factor]), reading=Reading())
        assert table["time"].cast(pa.int64())[0].as_py() == second * 1_000_000


def test_implausible_rows_are_dropped_and_counted_where_that_is_asked_for():
    reading = Reading(on_error="skip")
    kept = as_fixes(with_times([1_714_946_477, 0, 1_714_946_500]), reading=reading)
    assert kept.num_rows == 2
    assert reading.bad_rows == 1
    assert any("lie before 1980" in note for note in reading.notes)


def test_stays_of_another_century_are_refused():
    times = pa.array([START, START + 60_000_000], TIMESTAMP)
    late = pc.add(times, pa.scalar(600 * 365 * 86_400_000_000, pa.duration("us")))
    table = pa.table({"agent_id": [1, 1], "started_at": times, "finished_at": late, "lat": [1.0, 1], "lon": [1.0, 1]})
    with pytest.raises(DataError, match="column 'finished_at': 2 of 2 rows lie before 1980 or in the future"):
        open_data(table)


def test_one_day_that_does_not_exist_costs_one_row(tmp_path):
    times = [f"2024-02-{1 + i // 24:02d}T{i % 24:02d}:00:00Z" for i in range(240)]
    times[100] = "2024-02-30T04:00:00Z"
    table = with_times(times)
    pa_csv.write_csv(table, tmp_path / "fixes.csv")
    with pytest.raises(DataError, match=r"column 'time': 1 of 240 rows are not times \(first rows: 100\)"):
        extract(tmp_path / "fixes.csv", tmp_path / "out")
    summary = extract(tmp_path / "fixes.csv", tmp_path / "out", on_error="skip")
    assert summary.fixes == 239
    assert summary.dropped["bad rows"] == 1


@pytest.mark.parametrize("day", ["2023-02-29", "2024-04-31", "2024-00-10", "2024-01-00", "2100-02-29"])
def test_days_that_no_calendar_has_are_bad_rows(day):
    reading = Reading(on_error="skip")
    kept = as_fixes(with_times([f"{day}T10:00:00Z", "2024-02-29T10:00:00Z"]), reading=reading)
    assert kept["time"].to_pylist()[0].isoformat() == "2024-02-29T10:00:00+00:00"
    assert reading.bad_rows == 1


def test_a_few_times_without_a_zone_cost_those_rows_where_bad_rows_are_skipped():
    reading = Reading(on_error="skip")
    mixed = ["2024-02-01T10:00:00Z", "2024-02-01T10:01:00", "2024-02-01T10:02:00+01:00", "2024-02-01T10:03:00Z"]
    assert as_fixes(with_times(mixed), reading=reading).num_rows == 3
    assert reading.bad_rows == 1


def test_fixes_at_zero_zero_are_dropped_and_counted():
    good = walks(agents=1, hours=10)
    n = 40
    lost = fixes([0] * n, START + np.arange(n) * 600_000_000 + 7, [0.0] * n, [0.0] * n)
    both = pa.concat_tables([good, lost], promote_options="permissive")
    reading = Reading()
    assert as_fixes(both, reading=reading).num_rows == good.num_rows
    assert reading.bad_rows == n
    assert any(f"{n} of" in note and "(0, 0)" in note for note in reading.notes)
    found = extract_tables(both).events
    assert found.drop_columns(["poi_id"]).equals(extract_tables(good).events.drop_columns(["poi_id"]))


@pytest.mark.parametrize("how", ["file", "table"])
def test_bad_rows_are_warned_of_from_python(how, tmp_path):
    table = with_times(["2024-05-05T22:01:17Z", "2611-05-20T00:00:00Z", "2024-05-05T22:21:17Z"])
    pa_csv.write_csv(table, tmp_path / "fixes.csv")
    given = (table,) if how == "table" else (tmp_path / "fixes.csv", tmp_path / "out")
    with pytest.warns(UstadWarning, match="1 bad rows were left out .*lie before 1980 or in the future"):
        (extract_tables if how == "table" else extract)(*given, on_error="skip")


def test_the_hour_that_spring_skips_is_called_so_and_not_duplicates():
    wall = [np.datetime64("2024-03-31T01:50") + np.timedelta64(5 * i, "m") for i in range(20)]  # on to 03:25
    table = with_times(pa.array(np.array(wall, "datetime64[us]")))
    with pytest.raises(DataError, match=r"12 of 20 rows lie in the hour that daylight saving skips in Europe/Berlin"):
        as_fixes(table, reading=Reading("Europe/Berlin"))
    reading = Reading("Europe/Berlin", on_error="skip")
    kept = as_fixes(table, reading=reading)
    assert kept.num_rows == 8
    assert pc.count_distinct(kept["time"]).as_py() == 8
    assert as_fixes(table, reading=Reading("Etc/GMT-1")).num_rows == 20


# ------------------------------------------------------------------------------------------- swapped, zones
def swapped(table: pa.Table) -> pa.Table:
    return table.rename_columns({"lat": "lon", "lon": "lat"})


def test_swapped_coordinates_are_refused_where_the_zone_contradicts():
    pytest.importorskip("timezonefinder")
    table = walks(agents=1, hours=3)
    assert as_fixes(table, reading=Reading("Europe/Berlin")).num_rows == table.num_rows
    assert as_fixes(table, reading=Reading("Asia/Shanghai")).num_rows == table.num_rows  # somebody who travels
    with pytest.raises(DataError, match="swapped: only the other way round are the rows in Europe/Berlin"):
        as_fixes(swapped(table), reading=Reading("Europe/Berlin"))


def test_swapped_coordinates_are_refused_where_pois_contradict():
    table = walks(agents=1, hours=3)
    pois = pa.table({"poi_id": [1, 2], "lat": [52.4, 52.6], "lon": [13.3, 13.5], "category": ["bar", "shop"]})
    extract_tables(table, pois=pois)
    with pytest.raises(DataError, match="swapped: only the other way round are the rows near the POIs"):
        extract_tables(swapped(table), pois=pois)


def test_swapped_coordinates_at_sea_are_warned_of():
    pytest.importorskip("timezonefinder")
    table = walks(agents=1, hours=3)
    with pytest.warns(UstadWarning, match="swapped .* at sea"):
        as_fixes(swapped(table), reading=Reading())


def test_swapped_stays_are_refused_where_their_own_zone_contradicts():
    pytest.importorskip("timezonefinder")
    stays = extract_tables(walks(agents=1, hours=30)).events.drop_columns(["poi_id", "poi_category"])
    with pytest.raises(DataError, match="swapped"):
        as_stays(swapped(stays), reading=Reading())


def test_the_zone_of_naive_times_is_not_the_zone_of_stays_elsewhere(tmp_path):
    pytest.importorskip("timezonefinder")
    there, here = walks(agents=1, hours=30), walks(agents=1, hours=30, lat0=39.9, lon0=116.4)
    here = here.set_column(0, "agent_id", pc.add(here["agent_id"], 10))
    both = pa.concat_tables([there, here])
    wall = pc.local_timestamp(both["time"].cast(pa.timestamp("us", tz="Asia/Shanghai")))
    pa_csv.write_csv(both.set_column(1, "time", wall), tmp_path / "fixes.csv")
    extract(tmp_path / "fixes.csv", tmp_path / "out", timezone="Asia/Shanghai")
    ours = open_data(tmp_path / "out").events
    truth = extract_tables(both).events
    assert ours["started_at"].equals(truth["started_at"])
    zones = dict(zip(ours["agent_id"].to_pylist(), ours["timezone"].to_pylist(), strict=True))
    assert zones == {0: "Europe/Berlin", 10: "Asia/Shanghai"}
