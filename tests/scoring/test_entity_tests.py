"""Tests of entities against plain loops: the mean of their scores, their profile of visits, and what joins them."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import FIRST_DAY, between, insert_visit, make_routine

from ustad.distribution import Distribution
from ustad.events.visits import Frame, Visits, read_visits
from ustad.habits.history import Habits
from ustad.habits.profile import profile_change
from ustad.schema import mobility_schema
from ustad.scoring.entity_tests import AGREEMENT, AgentReference, Period, combine_tests, strongest, top_mean

SCHEMA = mobility_schema()
Known = tuple[Habits, Visits]


@pytest.fixture(scope="module")
def known() -> Known:
    """Two weeks of history, and the two weeks after them with a few visits to new places and a stranger."""
    life = make_routine(seed=4, agents=5, days=28)
    frame = Frame.fit(life, SCHEMA)
    later = between(life, 14, 28)
    for agent, day, poi in ((0, 15, 900), (1, 16, 900), (2, 15, 901), (2, 16, 902), (2, 24, 901), (3, 17, 900)):
        later = insert_visit(later, agent, day, 1200, poi=poi)
    history = between(life, 0, 14)
    history = history.filter(np.array(history["agent_id"]) != 4)  # nothing is known of the last one
    return Habits.fit(read_visits(history, SCHEMA, frame)), read_visits(later, SCHEMA, frame)


def week_of(visits: Visits, last: int | None = None) -> Period:
    """The visits as tests of entities see them, tested until their last day or another."""
    last = int(visits.day.max()) if last is None else last
    return Period(visits.entity, visits.entity_key, visits.day, (int(visits.day.min()), last))


def profiles(known: Known) -> dict[str, np.ndarray]:
    return {"profile": profile_change(*known, int(known[1].day.min()))}


def test_a_profile_is_the_g_of_counted_visits_on_average_over_weeks(known: Known) -> None:
    habits, visits = known
    place, owner, since = habits.locate(visits)[0], habits.owners(visits), FIRST_DAY + 14
    for entity, got in enumerate(profile_change(habits, visits, since)):
        mine = visits.entity == entity
        who = owner[mine][0]
        first, last = (habits.place_offsets[who], habits.place_offsets[who + 1]) if who >= 0 else (0, 0)
        before = {p: habits.place_count[p] for p in range(first, last)}
        weeks = []
        for week in range(2):
            seen = Counter(np.maximum(place[mine & ((visits.day - since) // 7 == week)], -1).tolist())
            total, cells = sum(seen.values()), sum(before.values()) + 0.5 * (len(before) + 1)
            weeks.append(sum(2 * n * math.log(n / (total * (before.get(p, 0) + 0.5) / cells)) for p, n in seen.items()))
        assert got == pytest.approx(np.mean(weeks))


def test_a_shift_is_the_difference_of_two_means_in_standard_errors(known: Known) -> None:
    """Scores count up to two; the reference of a stranger is the typical score, with an error of its own."""
    visits = known[1]
    rng = np.random.default_rng(3)
    then, now = rng.exponential(0.8, len(visits)), rng.exponential(1.0, len(visits))
    reference = AgentReference.fit(then, week_of(visits), np.ones(5, bool), profiles(known))
    capped = np.minimum(then, 2.0)
    assert (reference.typical, reference.spread) == pytest.approx((capped.mean(), capped.std()))
    assert reference.days == 14
    gone = int(np.argmax(visits.entity_key))
    one_less = reference.forget([visits.entity_ids[gone]])
    assert len(one_less.entity_key) == 4
    judged = one_less.judge(now, week_of(visits, FIRST_DAY + 27), profiles(known))
    for entity in range(5):
        mine = visits.entity == entity
        n, mean = mine.sum(), capped[mine].mean()
        reference_mean, error = (capped.mean(), 0.1) if entity == gone else (mean, 1 / n)
        z = (np.minimum(now[mine], 2.0).mean() - reference_mean) / (capped.std() * math.sqrt(1 / n + error))
        assert judged["shift"][entity] == pytest.approx(shown(reference.tests["shift"], z))


def shown(normal: Distribution, value: float) -> float:
    """-log10 p; beyond one in as many as there are, and one more, hardly anything is added."""
    surprise, limit = -normal.log10_tail(np.array([value]))[0], math.log10(normal.count + 1)
    return surprise if surprise <= limit else limit + 0.01 * math.log1p(surprise - limit)


def test_the_reference_compares_the_two_halves_of_its_own_period(known: Known) -> None:
    visits = known[1]
    score = np.random.default_rng(5).exponential(0.8, len(visits))
    capped = np.minimum(score, 2.0)
    reference = AgentReference.fit(score, week_of(visits), np.array([True, True, False, True, True]), profiles(known))
    late, shifts = visits.day >= FIRST_DAY + 21, []
    for entity in (0, 1, 3, 4):
        before, after = (capped[(visits.entity == entity) & part] for part in (~late, late))
        error = capped.std() * math.sqrt(1 / len(before) + 1 / len(after))
        shifts.append((after.mean() - before.mean()) / error)
    expected = Distribution.fit(np.array(shifts))
    np.testing.assert_allclose(reference.tests["shift"].values, expected.values)
    assert reference.tests["top"].count == 4


def test_the_highest_scores_of_twice_as_many_days_are_as_rare_as_those_of_a_tenth_of_log_two_less(known: Known) -> None:
    visits = known[1]
    score = np.random.default_rng(6).exponential(0.8, len(visits))
    reference = AgentReference.fit(score, week_of(visits), np.ones(5, bool), profiles(known))
    for days in (1, 14, 28):
        judged = reference.judge(score, week_of(visits, FIRST_DAY + 13 + days), profiles(known))
        top = top_mean(score, visits.entity, 5) - math.log10(days / 14)
        np.testing.assert_allclose(judged["top"], -reference.tests["top"].log10_tail(top))


def test_an_entitys_p_value_is_the_smallest_by_the_shares_of_the_tests() -> None:
    tests = {
        "top": np.array([3.0, -0.1, 2.0]),
        "shift": np.array([1.0, 0.2, 2.2]),
        "profile": np.array([1.0, 0.1, 3.5]),
    }
    agree = math.log10(AGREEMENT)
    expected = [3 + math.log10(7 / 9) + agree, 0.0, 3.5 + math.log10(1 / 9) + agree]
    np.testing.assert_allclose(combine_tests(tests), np.array(expected) + 1e-6 * np.array([3.0, 0.2, 3.5]), rtol=1e-12)
    assert strongest(tests).tolist() == ["top", "top", "profile"]
    two = {name: tests[name] for name in ("shift", "profile")}  # the shares of those that were asked make one
    np.testing.assert_allclose(combine_tests(two)[2], 3.5 + math.log10(0.5) + agree, atol=1e-5)
    four = {**tests, "lasting": np.array([3.0, 0.0, 4.0])}
    np.testing.assert_allclose(
        combine_tests(four)[[0, 2]] - agree, [3 + math.log10(0.7), 4 + math.log10(0.1)], atol=1e-5
    )
    assert combine_tests({"top": tests["top"]})[0] == pytest.approx(3, abs=1e-5)  # a test alone agrees with none
