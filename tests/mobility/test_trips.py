"""Trips as arrays: lengths, shapes and speeds against closed forms, whatever the place and size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from town import minutes, walks

from ustad.geo import Projection, haversine_km
from ustad.mobility.extraction import extract_tables
from ustad.mobility.trips import path_column, trip_arrays
from ustad.tables import DataError


def trips(*paths) -> pa.Table:
    """Trips of (minutes, lat, lon) arrays."""
    offsets = np.concatenate([[0], np.cumsum([len(p[0]) for p in paths])])
    time, lat, lon = (np.concatenate([np.asarray(p[i], float) for p in paths]) for i in range(3))
    return pa.table(
        {"destination_stay_id": np.arange(len(paths)), "path": path_column(offsets, minutes(time), lat, lon)}
    )


def around(lat0: float, lon0: float, x_km, y_km):
    return Projection(lat0, lon0).backward(np.asarray(x_km, float), np.asarray(y_km, float))


def test_a_straight_ride_has_its_length_duration_and_even_speed():
    lat, lon = around(48.0, 11.0, np.linspace(0, 10, 21), np.zeros(21))
    arrays = trip_arrays(trips((np.linspace(0, 30, 21), lat, lon)))
    assert arrays.summary[0] == pytest.approx([10.0, 30.0, 1.0], rel=1e-4)
    assert arrays.speed[0] == pytest.approx(np.full(16, 20.0), rel=1e-3)
    steps = np.diff(arrays.shape[0], axis=0)
    assert np.allclose(steps, steps[0], atol=1e-4)  # even steps
    assert abs(steps[0, 1]) < 1e-3 < steps[0, 0]  # to the east


def test_a_detour_is_less_straight():
    lat, lon = around(48.0, 11.0, [0, 3, 3], [0, 0, 4])
    assert trip_arrays(trips(([0, 10, 20], lat, lon))).summary[0] == pytest.approx([7.0, 20.0, 5 / 7], rel=1e-3)


def test_speeds_average_to_length_over_duration():
    lat, lon = around(48.0, 11.0, [0, 1, 1, 9], [0, 0, 0, 0])  # walks, waits, rides
    speed = trip_arrays(trips(([0, 12, 40, 60], lat, lon))).speed[0]
    assert speed.mean() == pytest.approx(9.0, rel=1e-3)
    assert speed.min() < 0.1
    assert speed.max() == pytest.approx(24.0, rel=0.02)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 9999), scale=st.floats(0.05, 5), lat0=st.floats(-85, 85), lon0=st.floats(-180, 180),
)  # fmt: skip
def test_shapes_do_not_depend_on_place_and_size(seed, scale, lat0, lon0):
    rng = np.random.default_rng(seed)
    xy, clock = np.cumsum(rng.normal(0, 0.3, (12, 2)), axis=0), np.arange(12.0)
    here = around(10.0, 20.0, *xy.T)
    there = around(lat0, lon0, *(xy * scale + [0.0, 0.0]).T)
    a, b = trip_arrays(trips((clock, *here))), trip_arrays(trips((clock, *there)))
    if abs(lat0) < 60:  # nearer to a pole north turns along the way
        assert np.allclose(a.shape, b.shape, atol=0.02)
    assert np.allclose(b.shape.mean(axis=1), 0, atol=1e-5)
    assert np.allclose((b.shape**2).sum(axis=2).mean(axis=1), 1, atol=1e-4)
    assert np.allclose(b.speed, a.speed * scale, rtol=1e-2, atol=1e-3)


def test_a_trip_over_the_antimeridian_is_short():
    lat, lon = around(-17.0, 179.99, np.linspace(0, 5, 9), np.zeros(9))
    assert lon.min() < 0 < lon.max()
    assert trip_arrays(trips((np.arange(9), lat, lon))).summary[0, 0] == pytest.approx(5.0, rel=1e-3)


def test_trips_without_points_or_movement_are_zeros_and_not_nan():
    still = ([0, 5], [50.0, 50.0], [8.0, 8.0])
    arrays = trip_arrays(trips(still, ([], [], []), ([3], [50.0], [8.0])))
    for values in (arrays.shape, arrays.speed, arrays.summary):
        assert np.isfinite(values).all()
    assert arrays.summary[:, 0].tolist() == [0, 0, 0]
    assert arrays.summary[:, 2].tolist() == [1, 1, 1]


def test_the_arrays_say_the_same_as_the_table():
    found = extract_tables(walks(agents=3, gaps=True), timezone="UTC").trips
    arrays = trip_arrays(found, points=8)
    assert arrays.shape.shape == (found.num_rows, 8, 2)
    assert np.allclose(arrays.summary[:, 0], found["length_km"].to_numpy(), rtol=1e-5)
    assert np.array_equal(arrays.destination_stay_id, found["destination_stay_id"].to_numpy())
    assert np.array_equal(arrays.crosses_gap, found["crosses_gap"].to_numpy(zero_copy_only=False))
    assert arrays.crosses_gap.any()
    for row in found.slice(0, 10).to_pylist():
        lat, lon = (np.array([p[c] for p in row["path"]]) for c in ("lat", "lon"))
        assert row["length_km"] == pytest.approx(haversine_km(lat[1:], lon[1:], lat[:-1], lon[:-1]).sum(), rel=1e-6)
        assert row["path"][0]["time"] <= row["started_at"] <= row["finished_at"] == row["path"][-1]["time"]


def test_slices_and_chunks_of_a_table_give_the_same_arrays():
    found = extract_tables(walks(agents=2), timezone="UTC").trips
    whole = trip_arrays(found)
    cut = pa.concat_tables([found.slice(0, 3), found.slice(3)])
    assert np.array_equal(trip_arrays(cut).shape, whole.shape)
    assert np.array_equal(trip_arrays(found.slice(2, 4)).speed, whole.speed[2:6])


def test_a_table_without_paths_is_refused():
    with pytest.raises(DataError, match="missing column path"):
        trip_arrays(pa.table({"destination_stay_id": [1]}))
