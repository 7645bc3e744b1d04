"""One stay stays one stay: pieces at a place that nothing contradicts are joined, and what nobody saw is said."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from town import fixes, minutes

from ustad.config import ExtractionConfig
from ustad.mobility.extraction import extract_tables

METRE = 1 / 111_195.0


def run(places_m, times, **changes):
    """Stays of an agent seen at metres north of a point, at minutes."""
    lat = 52.5 + np.asarray(places_m, float) * METRE
    table = fixes(np.zeros(len(lat), int), minutes(times), lat, np.full(len(lat), 13.4))
    return extract_tables(table, ExtractionConfig(**changes), timezone="UTC")


def spans(data) -> list[tuple[float, float]]:
    """Start and end of each stay, minutes."""
    start, end = (data.events[c].cast(pa.int64()).to_numpy() for c in ("started_at", "finished_at"))
    first = minutes([0])[0]
    return [((a - first) / 60e6, (b - first) / 60e6) for a, b in zip(start, end, strict=True)]


def test_silence_that_ends_where_it_began_is_part_of_the_stay_but_not_observed():
    data = run([0] * 6 + [5000], [0, 5, 10, 490, 495, 500, 501])
    assert spans(data) == [(0, 501)]
    assert data.events["observed_s"].to_pylist() == [21 * 60]
    assert data.gaps["cause"].to_pylist() == ["bridged"]
    assert data.trips.num_rows == 0


def test_silence_that_ends_elsewhere_is_a_gap_and_start_and_end_lie_in_it():
    data = run([0] * 3 + [5000] * 3, [0, 5, 10, 310, 315, 320])
    assert spans(data) == [(0, 10), (310, 320)]
    assert data.events["end_gap_s"].to_pylist() == [300 * 60, None]
    assert data.events["start_gap_s"].to_pylist() == [None, 300 * 60]
    assert data.gaps["cause"].to_pylist() == ["moved"]
    assert data.trips["crosses_gap"].to_pylist() == [True]


def test_silence_below_the_gap_limit_says_when_a_stay_may_have_begun():
    data = run([0] * 3 + [5000] * 3, [0, 5, 10, 40, 45, 50])
    assert spans(data) == [(0, 10), (40, 50)]
    assert data.events["start_gap_s"].to_pylist() == [None, 30 * 60]
    assert data.events["end_gap_s"].to_pylist() == [30 * 60, None]
    assert data.gaps.num_rows == 0


@pytest.mark.parametrize(("away", "end_gap"), [([61], None), ([61, 64], None), ([61, 64, 67, 70], 0.0)])
def test_a_last_fix_away_does_not_say_that_they_left(away, end_gap):
    """Data that ends with a fix or two elsewhere may end with a GPS error; five minutes elsewhere were seen."""
    data = run([0] * 21 + [5000] * len(away), [*range(0, 61, 3), *away])
    assert data.events["end_gap_s"].to_pylist()[0] == end_gap


def test_after_days_of_silence_being_there_is_no_evidence_of_having_been_there():
    times = [0, 5, 10, 10 + 72 * 60, 15 + 72 * 60, 20 + 72 * 60]
    apart = run([0] * 6, times)
    assert apart.events.num_rows == 2
    assert apart.gaps["cause"].to_pylist() == ["unbridged"]
    assert run([0] * 6, times, bridge_hours=80).events.num_rows == 1


def test_a_short_excursion_of_gps_error_does_not_cut_a_stay():
    places = [0] * 30 + [160, 170, 150] + [0] * 30 + [5000] * 10
    data = run(places, np.arange(len(places)))
    assert spans(data) == [(0, 63), (63, 72)]
    assert run(places, np.arange(len(places)), join=False).events.num_rows == 3


def test_an_imprecise_fix_does_not_say_that_the_agent_left():
    places, times = [0] * 30 + [120] * 15 + [0] * 30, np.arange(75)
    claims = pa.array([8.0] * 30 + [45.0] * 15 + [8.0] * 30)
    assert run(places, times).events.num_rows == 3
    lat = 52.5 + np.asarray(places) * METRE
    table = fixes(np.zeros(75, int), minutes(times), lat, np.full(75, 13.4), accuracy_m=claims)
    stays = extract_tables(table, ExtractionConfig(), timezone="UTC").events
    assert stays["n_fixes"].to_pylist() == [75]
    assert abs(stays["lat"][0].as_py() - 52.5) < 10 * METRE


@pytest.mark.parametrize("metres", [130, 210])
def test_one_stray_fix_of_coarse_data_does_not_cut_a_stay(metres):
    times = np.r_[np.arange(0, 60, 5), 65, np.arange(80, 140, 5)]
    places = np.where(times == 65, metres, 0)
    assert spans(run(places, times)) == [(0, 135)]
    assert run(places, np.where(times > 65, times + 60, times)).events.num_rows > 1


def test_a_stay_in_between_is_no_excursion():
    places = [0] * 30 + [400] * 8 + [0] * 30
    assert run(places, np.arange(len(places))).events.num_rows == 3


def test_going_away_for_longer_than_a_stay_takes_ends_a_stay():
    places = [0] * 30 + [500, 1000, 1500, 2000, 1500, 1000, 500] + [0] * 30
    data = run(places, np.arange(len(places)))
    assert spans(data) == [(0, 30), (37, 66)]


def test_an_off_centre_first_fix_does_not_cut_a_stay():
    rng = np.random.default_rng(0)
    places = np.r_[5000, 2000, -92, rng.normal(0, 9, 60), 3000, 6000, 9000, 12000, 15000, 18000, 21000]
    data = run(places, np.arange(len(places)))
    assert data.events.num_rows == 1
    assert run(places, np.arange(len(places)), join=False, drop_outliers=False).events.num_rows > 1


def test_a_phone_that_reports_only_while_moving_still_has_its_stays():
    places = [0, 400, 800, 960, 1100, 1600, 2400, 2500, 2600, 3000]
    data = run(places, [0, 1, 2, 3, 483, 484, 485, 486, 786, 787])
    assert spans(data)[0] == pytest.approx((3, 483), abs=1)
    assert spans(data)[1] == pytest.approx((485, 786), abs=2)
    assert data.gaps["cause"].to_pylist() == ["left", "left"]


def test_silence_that_ends_at_another_stay_was_not_spent_here():
    there = [0] * 10 + [180] * 10
    data = run(there, [*range(10), *range(120, 130)])
    assert spans(data) == [(0, 9), (120, 129)]
    assert data.events["end_gap_s"].to_pylist() == [111 * 60, None]
    assert data.events["start_gap_s"].to_pylist() == [None, 111 * 60]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), share=st.floats(0.05, 0.7), off=st.booleans())
def test_true_times_lie_between_what_was_seen_and_what_was_not(seed, share, off):
    """Fixes deleted at random, or for hours: true starts and ends lie in the intervals that the stays say."""
    rng = np.random.default_rng(seed)
    stay, way = rng.uniform(20, 200, 12), 6.0  # minutes; 3 km at 30 km/h
    arrived = np.cumsum(np.r_[0.0, stay[:-1] + way])
    true = np.stack([arrived, arrived + stay], axis=1)
    clock = np.arange(true[-1, 1]) + rng.uniform(0, 0.5)
    places = np.interp(clock, true.ravel(), np.repeat(3000.0 * np.arange(12), 2)) + rng.normal(0, 5, len(clock))
    keep = np.abs(clock - rng.choice(clock)) > 150 if off else rng.random(len(clock)) > share
    data = run(places[keep], clock[keep])
    slack = 5 + 2  # what counts as observed, and the rule of the end
    for (a, b), row in zip(spans(data), data.events.to_pylist(), strict=True):
        assert 0 <= row["observed_s"] <= 60 * (b - a) + 1e-6
        place = round((row["lat"] - 52.5) / METRE / 3000)
        assert abs((row["lat"] - 52.5) / METRE - 3000 * place) < 250  # where silence may end on the way
        if row["start_gap_s"] is not None:
            assert a - row["start_gap_s"] / 60 - slack <= true[place, 0] <= a + slack
        if row["end_gap_s"] is not None:
            assert b - slack <= true[place, 1] <= b + row["end_gap_s"] / 60 + slack
    if off:
        assert data.events.num_rows >= 12 - 300 // 26
