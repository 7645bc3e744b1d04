"""The encoder inverts, marks what is missing, and is fitted on training data alone."""

import json

import numpy as np
import pyarrow as pa
import pytest
from example_stays import make_stays
from hypothesis import given, settings
from hypothesis import strategies as st

from ustad.clock import DAY_NAMES, local_time
from ustad.events.encoder import LIMIT, Encoder
from ustad.schema import EventSchema, Feature, mobility_schema
from ustad.tables import TIMESTAMP, DataError

SCHEMA = mobility_schema(trips="summary", log_duration=True)


def column(arrays, kind, name):
    names = [f.name for f in arrays.fields if f.kind == kind]
    source = {"number": arrays.numbers, "category": arrays.categories}[kind]
    return source[:, names.index(name)]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_the_encoder_inverts(seed):
    table = make_stays(seed)
    encoder = Encoder.fit(table, SCHEMA)
    arrays = encoder.encode(table)
    table = table.take(pa.array(arrays.row))
    clock = local_time(table["started_at"], table["timezone"])

    start = encoder.decode_angle("start", column(arrays, "number", "start_x"), column(arrays, "number", "start_y"))
    away = np.abs(start - clock.minute)
    assert np.minimum(away, 1440 - away).max() < 1e-3
    minutes = (
        table["finished_at"].cast(pa.int64()).to_numpy() - table["started_at"].cast(pa.int64()).to_numpy()
    ) / 60e6
    assert np.allclose(encoder.decode_number("duration", column(arrays, "number", "duration")), minutes, rtol=1e-4)
    lat, lon = encoder.decode_place("place", column(arrays, "number", "x"), column(arrays, "number", "y"))
    assert np.allclose(lat, table["lat"].to_numpy(), atol=1e-5)
    assert np.allclose(lon, table["lon"].to_numpy(), atol=1e-5)
    words = encoder.decode_category("poi", column(arrays, "category", "poi"))
    assert words.tolist() == [w or "unknown" for w in table["poi_category"].to_pylist()]
    days = encoder.decode_category("weekday", column(arrays, "category", "weekday"))
    assert days.tolist() == [DAY_NAMES[w] for w in clock.weekday]
    trips = encoder.decode_vector("trip_summary", arrays.vectors)
    for row, seen in zip(trips, table["trip_summary"].to_pylist(), strict=True):
        assert seen is None or np.allclose(row, seen, atol=1e-4)


def test_what_is_missing_is_marked_and_not_a_number():
    table = make_stays(3)
    encoder = Encoder.fit(table, SCHEMA)
    arrays = encoder.encode(table)
    names = [f.name for f in arrays.fields]
    ordered = table.take(pa.array(arrays.row))
    assert arrays.missing[:, names.index("poi")].tolist() == [v is None for v in ordered["poi_category"].to_pylist()]
    assert arrays.missing[:, names.index("trip_summary")].tolist() == [
        v is None for v in ordered["trip_summary"].to_pylist()
    ]
    for values in (arrays.numbers, arrays.vectors):
        assert np.isfinite(values).all()


def test_a_category_never_seen_in_training_is_unknown():
    table = make_stays(1)
    encoder = Encoder.fit(table, SCHEMA)
    other = table.set_column(5, "poi_category", pa.array(["volcano"] * table.num_rows))
    assert (column(encoder.encode(other), "category", "poi") == 0).all()


def test_scaling_comes_from_training_alone():
    train, test = make_stays(1), make_stays(2)
    encoder = Encoder.fit(train, SCHEMA)
    before = json.dumps(encoder.to_dict(), sort_keys=True)
    encoder.encode(test)
    assert json.dumps(encoder.to_dict(), sort_keys=True) == before
    whole, half = encoder.encode(test), encoder.encode(test.slice(0, test.num_rows // 2))
    shared = np.isin(whole.key, half.key)
    assert np.array_equal(whole.numbers[shared], half.numbers)


def test_an_encoder_survives_json():
    table = make_stays(5)
    encoder = Encoder.fit(table, SCHEMA)
    again = Encoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    a, b = encoder.encode(table), again.encode(table)
    assert np.array_equal(a.numbers, b.numbers)
    assert np.array_equal(a.categories, b.categories)
    assert np.array_equal(a.vectors, b.vectors)


def test_constant_and_absurd_values_stay_finite():
    schema = EventSchema("s", (Feature("a", "numeric"), Feature("b", "numeric", transform="log")), entity="e", time="t")
    table = pa.table(
        {
            "e": ["x"] * 4,
            "t": pa.array([0, 1, 2, 3], TIMESTAMP),
            "a": [1.0, 1.0, 1.0, 1e300],
            "b": [-5.0, float("nan"), float("inf"), 2.0],
        }
    )
    arrays = Encoder.fit(table, schema).encode(table)
    assert np.isfinite(arrays.numbers).all()
    assert np.abs(arrays.numbers).max() <= LIMIT
    assert arrays.missing[:, 1].tolist() == [False, True, True, False]


def test_events_are_sorted_by_entity_and_time_and_lead_back_to_their_rows():
    stays = make_stays()
    arrays = Encoder.fit(stays, SCHEMA).encode(stays)
    assert (np.diff(arrays.entity) >= 0).all()
    same = np.diff(arrays.entity) == 0
    assert (np.diff(arrays.time)[same] >= 0).all()
    assert (np.diff(arrays.day)[same] >= 0).all()
    assert np.array_equal(stays["started_at"].cast(pa.int64()).to_numpy()[arrays.row], arrays.time)


def test_elapsed_time_is_that_since_the_previous_end():
    schema = EventSchema("s", (Feature("gap", "numeric", ("@elapsed",)),), entity="e", time="t", end="u")
    minute = 60_000_000
    table = pa.table(
        {
            "e": ["x", "y", "x"],
            "t": pa.array([0, 5 * minute, 10 * minute], TIMESTAMP),
            "u": pa.array([4 * minute, 6 * minute, 11 * minute], TIMESTAMP),
        }
    )
    encoder = Encoder.fit(table, schema)
    arrays = encoder.encode(table)
    assert arrays.missing[:, 0].tolist() == [True, False, True]
    assert encoder.decode_number("gap", arrays.numbers[1, 0]) == pytest.approx(6)


def test_only_the_most_frequent_categories_are_kept():
    schema = EventSchema("s", (Feature("c", "categorical", max_categories=2),), entity="e", time="t")
    table = pa.table({"e": ["x"] * 6, "t": pa.array(range(6), TIMESTAMP), "c": ["a", "b", "b", "c", "c", "c"]})
    encoder = Encoder.fit(table, schema)
    assert encoder.categories["c"] == ["b", "c"]
    assert encoder.encode(table).categories[:, 0].tolist() == [0, 1, 1, 2, 2, 2]


def test_missing_columns_and_naive_times_are_refused():
    stays = make_stays()
    with pytest.raises(DataError, match="missing column poi_category"):
        Encoder.fit(stays.drop(["poi_category"]), SCHEMA)
    naive = stays.set_column(1, "started_at", stays["started_at"].cast(pa.timestamp("us")))
    with pytest.raises(DataError, match="time zone"):
        Encoder.fit(naive, SCHEMA)
    with pytest.raises(DataError, match="empty"):
        Encoder.fit(stays.slice(0, 0), SCHEMA)


def test_a_vector_of_the_wrong_length_is_refused():
    stays = make_stays()
    encoder = Encoder.fit(stays, SCHEMA)
    short = stays.set_column(7, "trip_summary", pa.array([[1.0, 2.0]] * stays.num_rows))
    with pytest.raises(DataError, match="expected 3 numbers"):
        encoder.encode(short)
