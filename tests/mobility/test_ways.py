"""Facts about ways against ways whose detour, speed and stops are known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ustad.mobility.trips import path_column
from ustad.mobility.ways import describe_ways

KM = 180 / np.pi / 6371.0088  # degrees of latitude


def trip(legs: list[tuple[float, float, float]], crosses_gap: bool = False) -> pa.Table:
    """Legs of km north, km east and minutes, from the equator."""
    steps = np.array([(0.0, 0.0, 0.0), *legs]).cumsum(axis=0)
    path = path_column(
        np.array([0, len(steps)]), (steps[:, 2] * 60e6).astype(np.int64), steps[:, 0] * KM, steps[:, 1] * KM
    )
    return pa.table({"destination_stay_id": [7], "path": path, "crosses_gap": [crosses_gap]})


@pytest.mark.parametrize(("kmh", "mode"), [(4.5, "walk"), (15.0, "bike"), (50.0, "drive")])
def test_two_sides_of_a_square_are_a_detour_at_a_known_speed(kmh: float, mode: str) -> None:
    minutes = 60 / kmh
    (way,) = describe_ways(trip([(1, 0, minutes)] * 3 + [(0, 1, minutes)] * 3)).to_pylist()
    assert way["detour"] == pytest.approx(2**0.5, rel=1e-3)
    assert way["moving_kmh"] == pytest.approx(kmh, rel=1e-3)
    assert (way["destination_stay_id"], way["mode"], way["short_stops"]) == (7, mode, 0)


def test_stops_are_counted_between_moves_and_do_not_slow_the_way() -> None:
    move, wait, moment = (1.0, 0.0, 2.0), (0.0, 0.0, 1.5), (0.0, 0.0, 1.0)
    (way,) = describe_ways(trip([wait, wait, move, wait, wait, move, moment, move, wait, wait, move, wait])).to_pylist()
    assert way["short_stops"] == 2  # neither the moment at a light nor the waits at both ends
    assert way["moving_kmh"] == pytest.approx(30, rel=1e-3)


def test_nothing_is_said_of_ways_that_nobody_saw_and_no_detour_of_round_trips() -> None:
    nothing = {"destination_stay_id": 7, "detour": None, "moving_kmh": None, "mode": None, "short_stops": None}
    assert describe_ways(trip([(1, 0, 5)] * 4, crosses_gap=True)).to_pylist() == [nothing]
    assert describe_ways(trip([(1, 0, 5)])).to_pylist() == [nothing]
    (way,) = describe_ways(trip([(1, 0, 5), (-1, 0, 5)])).to_pylist()
    assert (way["detour"], way["mode"]) == (None, "bike")
