"""Histories that move on: as if fitted on everything, in one step or several, in bounded size."""

import itertools
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routine_stays import FIRST_DAY, between, insert_visit, make_routine

from ustad.events.visits import Frame, read_visits
from ustad.habits.history import Habits
from ustad.habits.moving import moved_on, with_end
from ustad.schema import mobility_schema

SCHEMA = mobility_schema()
#: Which weeks an entity was seen in is known only of histories that moved on.
OBSERVED = ("entity_unseen", "entity_back")


def weeks_of(table, *days):
    """Visits of the periods between these days."""
    frame = Frame.fit(table, SCHEMA)
    return [read_visits(between(table, a, b), SCHEMA, frame) for a, b in itertools.pairwise(days)]


def fitted(table, days):
    return Habits.fit(weeks_of(table, 0, days)[0])


def same(first, second, without=(), rtol=1e-12):
    for f in fields(first):
        if f.name in without:
            continue
        a, b = getattr(first, f.name), getattr(second, f.name)
        if isinstance(a, np.ndarray) and a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=rtol, err_msg=f.name)
        else:
            np.testing.assert_array_equal(a, b, err_msg=f.name)


def life(seed=1, named=True, agents=4, days=35):
    """With an agent who comes late, and a place that is visited in the last weeks alone."""
    table = make_routine(seed=seed, agents=agents, days=days, named=named)
    agent, day = table["agent_id"].to_numpy(), table["started_at"].cast(pa.int64()).to_numpy() // 86_400_000_000
    table = table.filter(pa.array((agent != agents - 1) | (day >= FIRST_DAY + 20)))
    for day in (23, 25, 30):
        table = insert_visit(table, 1, day, 1350, minutes=40)
    return table


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([2, 5, 96]))
def test_a_history_that_moved_on_is_one_that_was_fitted_on_everything(seed, most):
    table = life(seed)
    first, later = weeks_of(table, 0, 14, 35)
    whole = Habits.fit(weeks_of(table, 0, 35)[0], most)
    same(moved_on(Habits.fit(first, most), later, whole.last_day, most), whole, OBSERVED)


def test_ways_lead_across_the_seam():
    table = life()
    first, later = weeks_of(table, 0, 14, 21)
    habits = moved_on(Habits.fit(first), later, FIRST_DAY + 20)
    for agent in range(3):
        own = habits.only([agent])
        at = np.flatnonzero(own.visit_time == later.time[later.offsets[agent]])[0]
        assert own.visit_previous[at] == first.key[first.offsets[agent + 1] - 1]


def test_several_steps_of_weeks_are_one():
    table = life(2)
    first, *weeks = weeks_of(table, 0, 14, 21, 28, 35)
    steps = Habits.fit(first)
    for i, week in enumerate(weeks):
        steps = moved_on(steps, week, FIRST_DAY + 20 + 7 * i)
    same(steps, moved_on(Habits.fit(first), weeks_of(table, 14, 35)[0], FIRST_DAY + 34))


def test_places_without_a_name_are_gathered_as_in_a_fit_of_everything():
    table = life(3, named=False)
    first, later = weeks_of(table, 0, 14, 35)
    found, whole = moved_on(Habits.fit(first), later, FIRST_DAY + 34), fitted(table, 35)
    for one, other in ((found, whole), (whole, found)):
        for name in ("place_count", "place_first", "place_last"):
            assert sorted(getattr(one, name)) == sorted(getattr(other, name))
    assert len(found.place_key) == len(np.unique(found.place_key))


def test_days_before_somebody_was_first_seen_and_weeks_without_a_visit_say_nothing_of_them():
    table = life(4)
    agent, day = table["agent_id"].to_numpy(), table["started_at"].cast(pa.int64()).to_numpy() // 86_400_000_000
    away = (agent == 0) & (day >= FIRST_DAY + 21) & (day < FIRST_DAY + 28)
    first, later = weeks_of(table.filter(pa.array(~away)), 0, 14, 35)
    habits = moved_on(Habits.fit(first), later, FIRST_DAY + 34)
    unseen = dict(zip(habits.entity_ids.tolist(), habits.entity_unseen.tolist(), strict=True))
    back = dict(zip(habits.entity_ids.tolist(), (habits.entity_back - FIRST_DAY).tolist(), strict=True))
    assert unseen == {0: 7, 1: 0, 2: 0, 3: 14}  # the third came on day 20, in the first week of three
    assert back == {0: 28, 1: 0, 2: 0, 3: 14}
    everyone = np.arange(4)
    np.testing.assert_array_equal(habits.days_of(everyone), 35 - habits.entity_unseen)
    nobody = with_end(habits, FIRST_DAY + 48)
    np.testing.assert_array_equal(nobody.days_of(everyone), habits.days_of(everyone))


def test_a_pause_changes_neither_the_days_of_a_place_nor_what_is_remembered():
    habits = fitted(make_routine(seed=5, agents=2, days=28), 28)
    later = with_end(habits, habits.last_day + 70)
    np.testing.assert_array_equal(
        later.last_day - later.place_since, habits.last_day - habits.place_since
    )  # and whole weeks, so the weekdays are as many as before
    seen = with_end(habits, habits.last_day + 70, is_seen=True)
    np.testing.assert_array_equal(seen.place_since, habits.place_since)


@pytest.mark.parametrize("came", [0, 14])  # the second is first seen when the history has moved on
def test_a_week_away_costs_a_place_with_many_visits_no_more_than_that_week(came):
    table = make_routine(seed=5, agents=2, days=63)
    day = table["started_at"].cast(pa.int64()).to_numpy() // 86_400_000_000 - FIRST_DAY
    own = table["agent_id"].to_numpy() == 0
    table = table.filter(pa.array(~own | ((day >= came) & ((day < 49) | (day >= 56)))))
    for late in range(56, 63):  # often enough there for older visits to be let go
        table = insert_visit(table, 0, late, 300, poi=0)
    first, *weeks = weeks_of(table, 0, 14, 21, 28, 35, 42, 49, 56, 63)
    most = 30
    habits = Habits.fit(first, most)
    for i, week in enumerate(weeks):
        habits = moved_on(habits, week, FIRST_DAY + 20 + 7 * i, most)
    habits = habits.only([0])
    held = np.diff(habits.visit_offsets)
    home = int(np.argmax(habits.place_count))
    assert habits.place_count[home] > held[home] == most
    oldest = habits.visit_day[habits.visit_offsets[home]]
    assert oldest < FIRST_DAY + 42 < habits.entity_back[0]
    assert habits.place_since[home] == oldest + 7
    later = with_end(habits, habits.last_day + 14)
    assert later.place_since[home] == oldest + 21


def test_days_since_somebody_was_first_seen_are_without_the_weeks_away():
    table = make_routine(seed=5, agents=5, days=63)
    agent, day = table["agent_id"].to_numpy(), table["started_at"].cast(pa.int64()).to_numpy() // 86_400_000_000
    day -= FIRST_DAY
    came = np.array([0, 8, 8, 28, 28])[agent]  # the third and fourth when the history has moved on
    away = np.isin(agent, [2, 4]) & (day >= 42) & (day < 56)
    first, *weeks = weeks_of(table.filter(pa.array((day >= came) & ~away)), 0, 14, 21, 28, 35, 42, 49, 56, 63)
    habits = Habits.fit(first)
    for i, week in enumerate(weeks):
        habits = moved_on(habits, week, FIRST_DAY + 20 + 7 * i)
    for number, telling in enumerate([63, 55, 41, 35, 21]):
        own = habits.only([number])
        assert set(own.last_day + 1 - own.known_since) == {telling}, number
        later = with_end(own, own.last_day + 21)
        assert set(later.last_day + 1 - later.known_since) == {telling}, number


def test_a_history_is_bounded_and_lets_go_of_places_not_visited_for_longest():
    table = make_routine(seed=6, agents=2, days=14)
    for n in range(60):
        table = insert_visit(table, 1, 14 + n // 3, 300 + 60 * (n % 3), minutes=20, poi=5000 + n)
    first, later = weeks_of(table, 0, 14, 35)
    habits = moved_on(Habits.fit(first), later, FIRST_DAY + 34, limit=10)
    number = dict(zip(habits.entity_ids.tolist(), np.diff(habits.place_offsets).tolist(), strict=True))
    assert number[1] == 10
    assert number[0] == np.diff(Habits.fit(first).place_offsets)[list(habits.entity_ids).index(0)]
    own = slice(*habits.place_offsets[list(habits.entity_ids).index(1) :][:2])
    assert habits.place_last[own].min() >= FIRST_DAY + 30
    assert len(habits.visit_time) == habits.visit_offsets[-1]


def test_moved_habits_are_stored_and_forgotten_like_any():
    table = life(4)
    first, later = weeks_of(table, 0, 14, 35)
    habits = moved_on(Habits.fit(first), later, FIRST_DAY + 34)
    same(Habits.from_table(habits.to_table("agent_id")), habits)
    assert habits.forget([3]).entity_unseen.tolist() == [0, 0, 0]
    assert habits.only([3]).entity_unseen.tolist() == [14]
    assert 3 not in habits.forget([3]).entity_ids


def test_somebody_without_any_history_gets_one():
    table = make_routine(seed=8, agents=1, days=14)
    visits = weeks_of(table, 0, 14)[0]
    nobody = Habits.fit(visits).forget([0])
    nobody = replace(nobody, first_day=FIRST_DAY - 28, last_day=FIRST_DAY - 1)
    habits = moved_on(nobody, visits, FIRST_DAY + 13)
    same(habits, Habits.fit(visits), ("first_day", "last_day", *OBSERVED))
    assert habits.days_of(np.array([0])).tolist() == [14]
    assert habits.place_since.tolist() == pytest.approx([FIRST_DAY] * len(habits.place_key))
