"""The drift alarm is a fair bet against the calibration: seldom raised in vain, soon raised after a change."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ustad.scoring.drift_alarm import (
    EDGES,
    EXPONENTS,
    LEVEL,
    LOG_PAYOFFS,
    TOLERANCE,
    DriftAlarm,
    alarm_words,
    count_p_values,
    join_counts,
)


def watch(p_values: np.ndarray, days: np.ndarray) -> DriftAlarm:
    return DriftAlarm().add(count_p_values(days, p_values))


def mean_payoffs(p_values: np.ndarray) -> np.ndarray:
    """Mean payoff of each bet over equally likely p-values: [exponents]."""
    return np.power(10.0, LOG_PAYOFFS)[:, np.searchsorted(EDGES, p_values)].mean(axis=1)


def test_a_bet_is_fair_where_small_p_values_are_as_frequent_as_is_tolerated():
    grid = (np.arange(200_000) + 0.5) / 200_000 / TOLERANCE
    assert mean_payoffs(grid) == pytest.approx(np.ones(len(EXPONENTS)), abs=1e-4)


@pytest.mark.parametrize("reference", [1, 2, 5, 19, 20, 99, 150, 999])
def test_a_bet_loses_where_p_values_come_in_the_steps_of_a_small_reference(reference):
    steps = np.arange(1, reference + 2) / (reference + 1)  # what conformal p-values of so many reference events are
    assert (mean_payoffs(steps) <= 1 + 1e-12).all()


def slow_evidence(counts: np.ndarray) -> np.ndarray:
    """After each day, of counts [days, bins]: a bet begun on day k with 1 / (k (k + 1)) is multiplied ever after."""
    factors = np.minimum(np.power(10.0, counts @ LOG_PAYOFFS.T), 10.0)  # [days, exponents]
    evidence = []
    for end in range(1, len(counts) + 1):
        bets = [factors[k:end].prod(axis=0).mean() / ((k + 1) * (k + 2)) for k in range(end)]
        evidence.append(sum(bets) + 1 - sum(1 / ((k + 1) * (k + 2)) for k in range(end)))
    return np.array(evidence)


def test_the_evidence_is_the_sum_of_bets_begun_on_each_day():
    rng = np.random.default_rng(3)
    days, p_values = np.repeat(np.arange(40) + 19_000, 12), rng.random(480) / 1.7
    counts = count_p_values(days, p_values)
    alarm, evidence = DriftAlarm(), []
    for day in sorted(counts):
        alarm = alarm.add({day: counts[day]})
        evidence.append(alarm.log_evidence)
    slow = np.log10(slow_evidence(np.array([counts[day] for day in sorted(counts)])))
    assert evidence == pytest.approx(slow.tolist(), abs=1e-9)
    assert alarm.log_peak == pytest.approx(max(0.0, slow.max()), abs=1e-9)


@pytest.mark.parametrize("steps", [0, 30, 500])
def test_the_chance_of_an_alarm_in_vain_is_at_most_its_level(steps):
    """4,000 towns for 60 days, small p-values as frequent as is tolerated, exact or in the steps of a reference."""
    rng = np.random.default_rng(steps)
    uniform = rng.random((60, 4_000, 8))
    p_values = (np.ceil(uniform * (steps + 1)) / (steps + 1) if steps else uniform) / TOLERANCE
    gains = LOG_PAYOFFS.T[np.searchsorted(EDGES, p_values)]  # [days, towns, events, exponents]
    bets, raised = np.zeros((4_000, len(EXPONENTS))), np.zeros(4_000, bool)
    for day in range(60):
        bets += 1 / ((day + 1) * (day + 2))
        for event in range(8):  # the alarm may be looked at after every event
            bets *= np.power(10.0, gains[day, :, event])
            raised |= bets.mean(axis=1) + 1 / (day + 2) >= 1 / LEVEL
    assert raised.mean() <= LEVEL + 3 * np.sqrt(LEVEL / 4_000)
    assert steps or raised.any()  # it is not a bet that nobody can win


def test_a_change_is_noticed_within_days_also_after_quiet_years():
    rng = np.random.default_rng(5)
    days = np.repeat(np.arange(2_000), 20)
    p_values = rng.random(len(days))
    quiet = watch(p_values, days)
    assert quiet.raised_on is None
    assert quiet.log_evidence >= -np.log10(quiet.days + 1)
    later = np.repeat(np.arange(2_000, 2_014), 20)
    changed = np.where(rng.random(len(later)) < 0.4, rng.random(len(later)) * 0.05, rng.random(len(later)))
    alarm = quiet.add(count_p_values(later, changed))
    assert alarm.raised_on is not None
    assert 2_000 <= alarm.raised_on < 2_010
    assert alarm_words(alarm.describe()["raised_on"])[0].startswith("drift alarm since 1975-")


def test_one_wild_event_among_usual_ones_is_an_anomaly_and_no_drift():
    usual = np.random.default_rng(7).permutation(np.linspace(0.01, 1.0, 100))
    alarm = watch(np.append(usual, [1e-12]), np.append(np.repeat(np.arange(10), 10), [9]))
    assert alarm.raised_on is None
    assert alarm_words(None) == []


def test_a_holiday_is_no_drift_and_a_week_of_such_days_is():
    rng = np.random.default_rng(9)
    days = np.repeat(np.arange(28), 300)
    for odd, rings in ((1, False), (7, True)):
        strange = (days >= 20) & (days < 20 + odd)
        p_values = np.where(strange & (rng.random(len(days)) < 0.3), 0.005, rng.random(len(days)))
        assert (watch(p_values, days).raised_on is not None) == rings


def test_parts_say_together_what_the_whole_says_and_a_restart_changes_nothing():
    rng = np.random.default_rng(6)
    days, p_values = np.sort(rng.integers(100, 130, 900)), rng.random(900) ** 1.5
    whole = watch(p_values, days)
    part = rng.integers(0, 3, 900)
    counts = [json.loads(json.dumps(count_p_values(days[part == i], p_values[part == i]))) for i in range(3)]
    assert DriftAlarm().add(join_counts(counts)) == whole
    live = DriftAlarm()
    for i in range(0, 900, 7):  # in the middle of days
        live = DriftAlarm.from_json(json.loads(json.dumps(live.to_json())))
        live = live.add(count_p_values(days[i : i + 7], p_values[i : i + 7]))
    assert live.describe()["share_05"] == pytest.approx((p_values <= 0.05).mean())
    assert live.log_evidence == pytest.approx(whole.log_evidence, abs=1e-9)
    assert live.log_peak >= whole.log_peak - 1e-9  # it was looked at within days too


def test_what_comes_late_counts_to_the_latest_day():
    alarm = watch(np.full(3, 0.3), np.array([10, 11, 11]))
    late = alarm.add({7: [2, 0, 0, 0, 0, 0, 0]})
    assert (late.day, late.days, sum(late.counts)) == (11, 2, 4)
