"""Alerts a day as a threshold: the model stores how many incidents the unusual events of normal people make."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import between, make_routine

from ustad.habits.habit_source import HabitSource
from ustad.judges import learn_from
from ustad.lessons import calibrating
from ustad.schema import mobility_schema
from ustad.scoring.alerts import LeastRate
from ustad.scoring.incidents import (
    LEVELS,
    count_incidents,
    find_incidents,
    incident_share,
    leading_share,
    threshold_for,
)
from ustad.scoring.looks import Groups, Looks, unit_weights

COUNTS = [(0.05, 1000, 600), (0.02, 400, 280), (0.01, 200, 160), (0.005, 10, 1), (0.002, 0, 0), (0.001, 0, 0)]
SCHEMA = mobility_schema()


def test_events_in_a_row_are_counted_as_the_one_incident_that_they_make() -> None:
    start = datetime(2024, 5, 6, 8)
    times = [start + timedelta(hours=hour) for hour in (0, 1, 2, 100, 200)]
    stays = pa.table(
        {"stay_id": [*"abcde"], "agent_id": [1] * 5, "started_at": pa.array(times, pa.timestamp("us", "UTC"))}
    )
    counts = count_incidents(stays, SCHEMA, np.array([1.5, 2.5, 1.8, 0.1, 3.5]))
    assert {level: (events, incidents) for level, events, incidents in counts} == {
        0.05: (4, 2), 0.02: (3, 2), 0.01: (2, 2), 0.005: (2, 2), 0.002: (1, 1), 0.001: (1, 1),
    }  # fmt: skip


def test_the_share_that_leads_is_read_between_the_levels_that_hold_enough_events() -> None:
    assert leading_share(0.05, COUNTS) == pytest.approx(0.6)
    assert leading_share(np.sqrt(0.05 * 0.02), COUNTS) == pytest.approx(0.65)
    assert leading_share(1e-6, COUNTS) == pytest.approx(0.8)  # ten events do not say it
    assert leading_share(0.01, []) == 1.0  # a model of before


def correlated_days(seed: int, people: int = 300, days: int = 60) -> tuple[pa.Table, np.ndarray]:
    """Four stays a day, and normal p-values that stay high or low for a while; float64 [n]."""
    drawn = np.random.default_rng(seed).normal(size=(people, days * 4))
    for i in range(1, drawn.shape[1]):
        drawn[:, i] = 0.7 * drawn[:, i - 1] + np.sqrt(1 - 0.7**2) * drawn[:, i]
    times = datetime(2024, 5, 6).timestamp() * 1e6 + np.arange(days * 4) * 6 * 3600e6
    who, when = np.repeat(np.arange(people), days * 4), np.tile(times.astype(np.int64), people)
    stays = pa.table({"agent_id": who, "started_at": pa.array(when).cast(pa.timestamp("us", "UTC"))})
    return stays, norm.sf(drawn.ravel())


@pytest.mark.parametrize("reference", [100, 499])
def test_the_least_rate_counts_incidents_of_events_that_are_so_rare(reference: int) -> None:
    """Against the incidents of other normal people, one by one; their events come in runs, so there are fewer."""
    stays, p_values = correlated_days(seed=1)
    least = LeastRate.of(reference, len(p_values) / 60, count_incidents(stays, SCHEMA, -np.log10(p_values)))
    stays, p_values = correlated_days(seed=2)
    is_rare = p_values * (reference + 1) <= 1
    incidents = find_incidents(stays, SCHEMA, p_values, -np.log10(p_values))
    counted = len(set(incidents.incident_id[is_rare].tolist()))
    assert counted < 0.9 * is_rare.sum()
    assert abs(60 * least.per_day - counted) < 4 * np.sqrt(2 * counted)


@pytest.mark.parametrize("share", [1e-6, 1e-3, 0.0123, 0.03, 0.2])
def test_the_threshold_gives_the_share_of_incidents_that_is_asked_for(share: float) -> None:
    for counts in (COUNTS, []):
        assert incident_share(threshold_for(share, counts), counts) == pytest.approx(share)
    assert threshold_for(share, []) == pytest.approx(share)
    assert threshold_for(share, COUNTS) > share


def test_five_a_day_come_in_the_week_that_the_model_was_calibrated_on() -> None:
    life = make_routine(seed=5, agents=60, days=28)
    week = between(life, 21, 28)
    for half in (None, calibrating(week, SCHEMA.entity)):
        model = learn_from(between(life, 0, 21), week, SCHEMA, half)
        mine = week if half is None else week.filter(pa.array(half))
        mask = np.ones(week.num_rows, bool) if half is None else half
        _, inquiry, answers = HabitSource.learn(between(life, 0, 21), week, SCHEMA, mask)
        groups = Groups.of(inquiry.entity, inquiry.visits.entity_key, mask)
        score = Looks.of_week(answers.raw, None, groups, unit_weights([HabitSource.looks]))[1][mask]
        assert len(score) == mine.num_rows
        assert [count[0] for count in model.counts] == list(LEVELS)
        rare = threshold_for(5 * 7 / mine.num_rows, model.counts)
        p_value = np.power(10.0, -score)
        leads = ~find_incidents(mine, SCHEMA, p_value, score).echo
        assert (p_value[leads] <= rare).sum() / 7 == pytest.approx(5, abs=1)
