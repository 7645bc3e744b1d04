"""Histories that are longer than in calibration, and people judged over more days than calibrated: p-values keep
their word."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ustad.distribution import Distribution
from ustad.habits.exploring import FALL, share_new, share_remaining
from ustad.scoring.entity_tests import AgentReference, Period
from ustad.scoring.looks import Looks

PEOPLE, EVENTS, DAYS = 3_000, 20, 7


# ------------------------------------------------------------------------------------------- what is new
@pytest.mark.parametrize(("known", "ahead"), [(7, 7), (21, 7), (28, 28), (200, 28)])
def test_what_is_new_is_what_explorers_who_return_by_habit_find(known: int, ahead: int) -> None:
    """A slow sum over small steps: what was found since the history ended draws visits in proportion to its share."""
    steps = 20_000
    step = ahead / steps
    found, total = 0.0, 0.0
    for i in range(steps):
        now = known + (i + 0.5) * step
        rate = now**-FALL + found / now
        found += rate * step
        total += rate
    assert share_new(known, ahead) == pytest.approx(total / steps, rel=1e-3)


def test_twice_the_history_leaves_as_much_as_the_law_says_whatever_its_length() -> None:
    for days in (7, 14, 70):
        assert share_remaining(days, days, 2 * days, 0) == pytest.approx(2**-FALL)


def test_a_longer_history_never_makes_more_unusual_and_none_says_nothing() -> None:
    shares = [share_remaining(7, 7, known, 28) for known in (7, 14, 28, 56)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1.0
    assert share_remaining(0, 7, 7, 28) == share_remaining(7, 0, 7, 28) == 1.0


# ------------------------------------------------------------------------------------------------ events
@pytest.fixture(scope="module")
def looks() -> Looks:
    rng = np.random.default_rng(1)
    tail = Distribution.fit(rng.exponential(size=5_000))
    look = Distribution.fit(-tail.log10_tail(rng.exponential(size=5_000)))
    events = Distribution.fit(-look.log10_tail(-tail.log10_tail(rng.exponential(size=5_000))))
    return Looks({"odd": tail}, {"visit": look}, events, {"visit": {"odd": 1.0}}, remaining=0.7)


def test_where_fewer_events_remain_unusual_their_p_values_are_uniform(looks: Looks) -> None:
    """Of 40,000 events 30 % are such as nothing is unusual about any more; 4 binomial errors, and those of the 5,000
    that calibrate."""
    rng = np.random.default_rng(2)
    raw = np.where(rng.random(40_000) < 0.7, rng.exponential(size=40_000), 0.0)
    p_value = 10.0 ** -looks.weigh({"odd": raw})[2]
    for level in (0.05, 0.01):
        error = np.sqrt(level * (1 / 40_000 + 3 / 5_000))
        # The odds are multiplied, not the p-value: at a level of 5 % the two differ by 1.5 % of it.
        assert (p_value <= level).mean() == pytest.approx(level, abs=4 * error + 0.3 * level**2)
        plain = 10.0 ** -replace(looks, remaining=1.0).weigh({"odd": raw})[2]
        assert (plain <= level).mean() < 0.8 * level


def test_the_order_of_events_stays_and_one_event_scores_as_many_do(looks: Looks) -> None:
    raw = np.r_[np.random.default_rng(3).exponential(size=500), 0.0, 30.0]
    _, heights, score = looks.weigh({"odd": raw})
    plain = replace(looks, remaining=1.0).weigh({"odd": raw})[2]
    np.testing.assert_array_equal(np.argsort(score, kind="stable"), np.argsort(plain, kind="stable"))
    assert (score >= plain).all()
    assert score[-2] == pytest.approx(0.0, abs=1e-3)
    np.testing.assert_allclose([looks.weigh_highest(one) for one in heights["visit"]], score, rtol=1e-12, atol=1e-12)


# ------------------------------------------------------------------------------------------------ people
def _period(weeks: int) -> Period:
    entity = np.repeat(np.arange(PEOPLE), EVENTS * weeks)
    day = np.tile(np.arange(EVENTS * weeks) * DAYS // EVENTS, PEOPLE)
    return Period(entity, np.arange(PEOPLE, dtype=np.uint64), day, (0, DAYS * weeks - 1))


def _scores(rng: np.random.Generator, weeks: int, lives: np.ndarray) -> np.ndarray:
    """-log10 p of people who differ: what is unusual is likelier by 10 to the power of `lives` [PEOPLE]."""
    return np.maximum(-np.log10(rng.random((PEOPLE, EVENTS * weeks))) + lives[:, None], 0.0).ravel()


def _share_flagged(lives: np.ndarray, weeks: int) -> float:
    """How many people have p ≤ 0.05 by their highest events over so many weeks, where one week calibrated."""
    rng = np.random.default_rng(4)
    everybody = np.ones(PEOPLE, bool)
    reference = AgentReference.fit(_scores(rng, 1, lives), _period(1), everybody, {})
    top = reference.judge(_scores(rng, weeks, lives), _period(weeks), {})["top"]
    return float((10.0**-top <= 0.05).mean())


#: 4 binomial errors of the people who calibrate and of those who are judged.
ERROR = 4 * np.sqrt(2 * 0.05 * 0.95 / PEOPLE)


@pytest.mark.parametrize("weeks", [1, 2, 4])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_over_more_days_people_are_flagged_as_often_whether_or_not_they_differ(weeks: int, spread: float) -> None:
    """Everybody's highest scores rise by the logarithm of the days, whoever stands out again and again."""
    lives = spread * np.random.default_rng(5).normal(size=PEOPLE)
    assert _share_flagged(lives, weeks) == pytest.approx(0.05, abs=ERROR)
