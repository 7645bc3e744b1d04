"""Phones that report significant changes only: their stays are found, live as in batch, and nobody else's change."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_joining import METRE, run, spans
from test_tracker import assert_same, batch, in_time_order, stream
from town import fixes, minutes, walks

from ustad.config import ExtractionConfig
from ustad.mobility import staypoints
from ustad.mobility.extraction import extract_tables
from ustad.mobility.parameters import PROFILES
from ustad.mobility.tracker import StayTracker

PHONE = PROFILES["phone"]
HOME, WORK, WAY_OUT, WAY_BACK = 0.0, 5000.0, 900.0, 4100.0


def report_days(days: int, notices=lambda day: True) -> tuple[list[float], list[float]]:
    """Metres north and minutes: at work from 8:10 to 16:00. Reports come from both ways out and on arrival; that at
    work is missing on days when the phone does not notice it."""
    places, times = [], []
    for day in range(days):
        for place, minute in ((WAY_OUT, 482), (WORK, 492), (WAY_BACK, 962), (HOME, 972)):
            if place != WORK or notices(day):
                places.append(place)
                times.append(1440.0 * day + minute)
    return places, times


def at(data, place: float) -> list[tuple[float, float]]:
    """Spans of the stays within 100 m of a place."""
    north = (data.events["lat"].to_numpy() - 52.5) / METRE
    return [span for span, n in zip(spans(data), north, strict=True) if abs(n - place) < 100]


def test_stays_of_a_phone_that_reports_changes_only_are_found():
    data = run(*report_days(10), **PHONE)
    work, home = at(data, WORK), at(data, HOME)
    assert len(work) >= 8
    assert len(home) >= 7
    assert len(work) + len(home) == data.events.num_rows
    for start, end in work:
        assert start % 1440 == 492
        assert 957 <= end % 1440 <= 962
    assert run(*report_days(10), **{**PHONE, "reach_m": 0}).events.num_rows == 0


def test_silence_after_the_first_report_of_a_way_was_spent_nobody_knows_where():
    data = run(*report_days(10, lambda day: day != 6), **PHONE)
    assert not at(data, WAY_OUT)
    assert not [start for start, _ in at(data, WORK) if start // 1440 == 6]


@pytest.mark.parametrize(("hours", "metres"), [(60, 900), (10, 8000)])
def test_silence_of_days_or_that_ends_far_away_is_no_stay(hours, metres):
    places, times = report_days(8)
    last = times[-1]
    data = run(
        [*places, HOME + metres, HOME + metres + 2000], [*times, last + hours * 60, last + hours * 60 + 6], **PHONE
    )
    assert spans(data)[-1][1] < last
    assert data.gaps["cause"].to_pylist()[-1] == "moved"


def test_earlier_stays_at_a_place_correct_one_imprecise_fix():
    places, times = report_days(12)
    rng = np.random.default_rng(3)
    lat = 52.5 + (np.array(places) + rng.normal(0, 40, len(places))) * METRE
    claims = pa.array(np.full(len(places), 60.0))
    table = fixes(np.zeros(len(lat), int), minutes(times), lat, np.full(len(lat), 13.4), accuracy_m=claims)
    stays = extract_tables(table, ExtractionConfig(**PHONE), timezone="UTC").events
    north = (stays["lat"].to_numpy() - 52.5) / METRE
    error = np.minimum(np.abs(north - HOME), np.abs(north - WORK))
    assert len(error) >= 18
    assert np.sqrt(np.mean(error[-8:] ** 2)) < 30  # of one fix: 40


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 500), step_s=st.sampled_from([60, 180]))
def test_nothing_changes_for_devices_that_report_while_they_lie_still(seed, step_s):
    table = walks(agents=2, hours=20, step_s=step_s, seed=seed, gaps=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staypoints, "CHANGES_REACH_M", 0.0)
        plain = batch(table, ExtractionConfig(**PHONE))
    assert_same(plain, batch(table, ExtractionConfig(**PHONE)))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), seed=st.integers(0, 500), restart=st.booleans())
def test_any_way_of_cutting_a_stream_of_change_reports_gives_the_batch_result(data, seed, restart):
    rng = np.random.default_rng(seed)
    tables = []
    for agent in range(2):
        places, times = report_days(8, lambda day: rng.random() < 0.8)
        keep = rng.random(len(places)) < 0.9
        lat = 52.5 + (np.array(places) + rng.normal(0, 60, len(places)))[keep] * METRE
        claims = pa.array(rng.choice([30.0, 100.0, np.nan], len(lat)))
        late = np.array(times)[keep] + rng.uniform(0, 3, len(lat))
        tables.append(fixes(np.full(len(lat), agent), minutes(late), lat, np.full(len(lat), 13.4), accuracy_m=claims))
    table, config = in_time_order(pa.concat_tables(tables)), ExtractionConfig(**PHONE)
    cuts = data.draw(st.lists(st.integers(0, table.num_rows), max_size=25))
    expected = batch(table, config)
    assert expected["stays"].num_rows > 6
    assert_same(stream(StayTracker(config), table, cuts, restart), expected)
