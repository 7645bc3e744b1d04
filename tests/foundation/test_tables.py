"""Validation: what comes in is right or is refused with one line that says what to do."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ustad.files import as_table, read_json, read_table, write_table
from ustad.tables import (
    FIXES,
    STAYS,
    Complaints,
    DataError,
    agent_codes,
    check_overlaps,
    event_keys,
    sort_events,
    take_rows,
    validate,
)

UTC = dt.UTC


def fixes(**changes):
    columns = {
        "agent_id": [1, 1, 2],
        "time": pa.array([dt.datetime(2024, 1, 1, h, tzinfo=UTC) for h in (1, 2, 3)], pa.timestamp("us", "UTC")),
        "lat": [34.0, 34.1, 34.2],
        "lon": [-118.0, -118.1, -118.2],
    }
    return pa.table({**columns, **changes})


def stays(starts, ends, agents):
    at = lambda hours: pa.array([dt.datetime(2024, 1, 1, tzinfo=UTC) + dt.timedelta(hours=h) for h in hours])  # noqa: E731 - a table literal
    n = len(starts)
    return pa.table(
        {"agent_id": agents, "started_at": at(starts), "finished_at": at(ends), "lat": [0.0] * n, "lon": [0.0] * n}
    )


def test_a_good_table_passes_unchanged():
    table, complaints = validate(fixes(), FIXES)
    assert table["lat"].to_pylist() == [34.0, 34.1, 34.2]
    assert table["time"].type == pa.timestamp("us", "UTC")
    assert complaints.messages == []


def test_missing_columns_are_named_with_what_was_found():
    with pytest.raises(DataError, match=r"missing columns lat, lon; found agent_id, time"):
        validate(fixes().drop(["lat", "lon"]), FIXES)


def test_an_empty_table_is_refused():
    with pytest.raises(DataError, match="empty"):
        validate(fixes().slice(0, 0), FIXES)


def test_times_without_a_zone_are_refused_and_the_cure_is_named():
    naive = pa.array([dt.datetime(2024, 1, 1)] * 3, pa.timestamp("us"))
    with pytest.raises(DataError, match="--timezone"):
        validate(fixes(time=naive), FIXES)


def test_text_times_are_read_when_they_carry_a_zone():
    table, _ = validate(fixes(time=["2024-01-01T00:00:00+02:00"] * 3), FIXES)
    assert table["time"].to_pylist()[0] == dt.datetime(2023, 12, 31, 22, tzinfo=UTC)


def test_text_times_that_mix_zones_and_none_are_refused():
    with pytest.raises(DataError, match="mixes times"):
        validate(fixes(time=["2024-01-01T00:00:00Z", "2024-01-01T00:00:00", "yesterday"]), FIXES)


def test_swapped_coordinates_are_recognised():
    with pytest.raises(DataError, match="swapped"):
        validate(fixes(lat=[-118.0, -118.1, -118.2], lon=[34.0, 34.1, 34.2]), FIXES)


@pytest.mark.parametrize(
    ("column", "value"), [("lat", float("nan")), ("lat", None), ("lon", float("inf")), ("lon", 200.0)]
)
def test_bad_rows_fail_by_default_and_are_dropped_and_counted_on_request(column, value):
    bad = fixes(**{column: pa.array([1.0, value, 2.0], pa.float64())})
    with pytest.raises(DataError, match=f"column '{column}': 1 of 3 rows .*first rows: 1.*--on-error skip"):
        validate(bad, FIXES)
    table, complaints = validate(bad, FIXES, on_error="skip")
    assert table.num_rows == 2
    assert complaints.bad_rows == 1


def test_when_every_row_is_bad_nothing_is_left_and_that_is_said():
    with pytest.raises(DataError, match="no usable row"):
        validate(fixes(lat=[float("nan")] * 3), FIXES, on_error="skip")


def test_stays_that_end_before_they_start_are_refused():
    with pytest.raises(DataError, match="end before they start"):
        validate(stays([5], [4], [1]), STAYS)


def test_overlapping_stays_of_one_agent_are_refused_but_not_of_two():
    with pytest.raises(DataError, match="previous stay"):
        check_overlaps(stays([0, 1], [2, 3], [1, 1]), Complaints("stays"))
    assert check_overlaps(stays([0, 1], [2, 3], [1, 2]), Complaints("stays")).num_rows == 2


def test_a_long_stay_is_compared_with_all_that_begin_inside_it():
    nested = stays([0, 1, 3], [10, 2, 4], [1, 1, 1])
    complaints = Complaints("stays", "skip")
    assert check_overlaps(nested, complaints).num_rows == 1
    assert complaints.bad_rows == 2


def test_overlapping_rows_are_numbered_as_they_were_given():
    with pytest.raises(DataError, match=r"first rows: 0\)"):  # sorted by agent and time, it would be row 2
        check_overlaps(stays([1, 0, 5], [3, 2, 6], [2, 2, 1]), Complaints("stays"))


def test_unknown_kinds_of_sources_are_refused():
    with pytest.raises(DataError, match="Arrow C stream"):
        as_table([1, 2, 3])
    with pytest.raises(DataError, match="no such file"):
        as_table("nowhere.parquet")


def test_pandas_and_polars_tables_are_taken():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    assert as_table(pandas.DataFrame({"a": [1, 2]}))["a"].to_pylist() == [1, 2]
    assert as_table(polars.DataFrame({"a": [1, 2]}))["a"].to_pylist() == [1, 2]


def test_a_broken_file_is_named(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"not parquet")
    with pytest.raises(DataError, match=r"x\.parquet: cannot be read"):
        read_table(tmp_path / "x.parquet")
    (tmp_path / "x.json").write_text("{not json")
    with pytest.raises(DataError, match=r"x\.json: not valid JSON"):
        read_json(tmp_path / "x.json")


def test_a_table_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    write_table(fixes(), path)

    def broken(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(pq, "write_table", broken)
    with pytest.raises(KeyboardInterrupt):
        write_table(fixes().slice(0, 1), path)
    monkeypatch.undo()
    assert read_table(path).num_rows == 3


def test_event_keys_depend_on_agent_and_start_alone():
    table = fixes()
    keys = event_keys(table["agent_id"], table["time"])
    shuffled = table.take(pa.array([2, 0, 1]))
    assert len(set(keys.tolist())) == 3
    assert event_keys(shuffled["agent_id"], shuffled["time"]).tolist() == keys[[2, 0, 1]].tolist()
    alone = table.slice(2, 1)
    assert event_keys(alone["agent_id"], alone["time"])[0] == keys[2]


def test_integer_and_text_identifiers_of_the_same_name_share_keys():
    table = fixes()
    text = table["agent_id"].cast(pa.string())
    assert np.array_equal(event_keys(text, table["time"]), event_keys(table["agent_id"], table["time"]))


def test_codes_follow_the_sorted_identifiers_whatever_the_chunks():
    column = pa.chunked_array([["b", "a"], ["c", "a"]])
    codes, values = agent_codes(column)
    assert values.tolist() == ["a", "b", "c"]
    assert codes.tolist() == [1, 0, 2, 0]


def test_sorting_puts_agents_together_in_order_of_time():
    table = sort_events(fixes(agent_id=[2, 1, 2]), "agent_id", "time")
    assert table["agent_id"].to_pylist() == [1, 2, 2]
    assert table["time"].to_pylist()[1] < table["time"].to_pylist()[2]


@pytest.mark.parametrize("rows", [[], [2], [1, 2, 3], [3, 2, 1], [1, 1, 2], [1, 3, 2, 4], [0, 1, 3]])
def test_rows_that_follow_each_other_are_taken_like_any_others(rows):
    table = pa.table({"x": pa.chunked_array([["a", "b"], ["c", None, "e"]]), "y": [1, 2, 3, 4, 5]})
    rows = np.array(rows, np.int64)
    assert take_rows(table, rows).to_pylist() == [table.to_pylist()[i] for i in rows]


@pytest.mark.parametrize("value", ["a-17", 17, 2.5, "", True])
@pytest.mark.parametrize("make", [pa.array, lambda values: pa.chunked_array([values])], ids=["array", "chunks"])
def test_one_identifier_alone_is_coded_as_among_others(value, make):
    codes, names = agent_codes(make([value]))
    many_codes, many_names = agent_codes(make([value, value]))
    assert codes.tolist() == many_codes.tolist()[:1] == [0]
    assert names.tolist() == many_names.tolist() == [value]
    assert (codes.dtype, names.dtype) == (many_codes.dtype, many_names.dtype)
