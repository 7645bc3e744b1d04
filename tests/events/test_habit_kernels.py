"""The compiled loops of habits against scipy, the calendar and plain searches; widths and weights as numbers of their
own, so that a changed constant is noticed here and not in a stored file."""

import math
from collections import Counter
from datetime import date, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ustad.events.visits import day_kinds
from ustad.habits import kernels
from ustad.habits.elsewhere import expected_elsewhere

NOBODY = 0.0  # what the population says, where a test asks for the entity's own history alone
minutes_of_day = st.floats(0.0, 1439.9)
kilometres = st.floats(-50.0, 50.0).map(lambda value: round(value, 3))


def times(visits, asked, population=(NOBODY, NOBODY)):
    """-log start and duration at one place. `visits`: rows of minute, minutes there, weekend, weight of
    the start, weight of the length; `asked`: rows of minute, minutes there, weekend."""
    minute, length, weekend, start_weight, length_weight = (np.array(c, float) for c in zip(*visits, strict=True))
    at, stayed, then = (np.array(c, float) for c in zip(*asked, strict=True))
    said = (np.full(len(asked), value) for value in population)
    return kernels.times_at_place(
        np.zeros(len(asked), np.int64), at, np.log1p(stayed), then > 0, *said, np.array([0, len(visits)]), minute,
        np.log1p(length), weekend > 0, start_weight, length_weight,
    )  # fmt: skip


# --------------------------------------------------------------------------------------------- hours of the day
@given(first=minutes_of_day, second=minutes_of_day)
def test_two_hours_are_apart_by_the_shorter_way_round_the_clock(first, second):
    turned = min(abs(first - second + turn) for turn in (-1440.0, 0.0, 1440.0))
    assert kernels.apart(first, second) == pytest.approx(turned, abs=1e-9)


visits_strategy = st.lists(
    st.tuples(minutes_of_day, st.floats(0.0, 2000.0), st.booleans(), st.floats(0.05, 1.0), st.floats(0.05, 1.0)),
    min_size=1, max_size=6,
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(visits=visits_strategy, weekend=st.booleans())
def test_the_chances_of_all_starts_of_a_day_add_up_to_one(visits, weekend):
    """Also around midnight: what falls on the other side of it is not lost."""
    grid = [(minute + 0.5, 60.0, weekend) for minute in range(1440)]
    start = np.exp(-times(visits, grid, (1 / 1440, 1.0))[:, 0])
    assert start.sum() == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=20, deadline=None)
@given(visits=visits_strategy, minute=minutes_of_day)
def test_the_chances_of_all_durations_add_up_to_one(visits, minute):
    step = 0.01
    logarithm = np.arange(-4.0, 12.0, step)
    uniform = 1.0 / 16.0
    asked = [(minute, math.expm1(value), False) for value in logarithm]
    duration = np.exp(-times(visits, asked, (1 / 1440, uniform))[:, 1])
    assert duration.sum() * step == pytest.approx(1.0, abs=1e-6)


def test_a_start_forty_minutes_off_is_one_standard_deviation_off():
    """On either side of midnight too. A bell curve has fallen to exp(-1/2) there, and to half at 1.1774 of it."""
    for usual in (600.0, 1430.0, 5.0):
        off = [0.0, 40.0, -40.0, 40.0 * math.sqrt(2 * math.log(2))]
        start = np.exp(-times([(usual, 60.0, False, 1.0, 1.0)], [((usual + by) % 1440, 60.0, False) for by in off]))
        np.testing.assert_allclose(start[:, 0] / start[0, 0], [1.0, math.exp(-0.5), math.exp(-0.5), 0.5])


def test_a_stay_a_third_longer_is_about_one_standard_deviation_off():
    usual = 60.0
    longer = [math.expm1(math.log1p(usual) + by) for by in (0.0, 0.3, -0.3)]
    duration = np.exp(-times([(600.0, usual, False, 1.0, 1.0)], [(600.0, length, False) for length in longer]))
    np.testing.assert_allclose(duration[:, 1] / duration[0, 1], [1.0, math.exp(-0.5), math.exp(-0.5)])


@settings(max_examples=60, deadline=None)
@given(visits=visits_strategy, minute=minutes_of_day, length=st.floats(0.0, 2000.0), weekend=st.booleans())
def test_start_and_duration_are_mixtures_of_scipys_distributions(visits, minute, length, weekend):
    """Normal around earlier starts (40 min) and lengths (0.3); a visit on the other kind of day
    counts 0.35, the population two visits."""
    population = (1 / 1440, 0.1)
    got = times(visits, [(minute, length, weekend)], population)[0]
    day = np.array([1.0 if other == weekend else 0.35 for _, _, other, _, _ in visits])
    begun, known = (np.array(column) for column in list(zip(*visits, strict=True))[3:])
    away = np.min([[abs(minute - v[0] + turn) for turn in (-1440, 0, 1440)] for v in visits], axis=1)
    gap = np.log1p(length) - np.log1p([v[1] for v in visits])
    near = np.where(away <= 240.0, np.exp(-((away / 40.0) ** 2) / 2), 0.0)
    lasted = np.where(np.abs(gap) <= 1.8, stats.norm.pdf(gap, scale=0.3), 0.0)
    start = (day * begun * near).sum() * stats.norm.pdf(0, scale=40.0) + 2 * population[0]
    weight = day * near * known
    expected = [
        start / ((day * begun).sum() + 2),
        ((weight * lasted).sum() + 2 * population[1]) / (weight.sum() + 2),
    ]
    np.testing.assert_allclose(np.exp(-got), expected, rtol=1e-6)


# ------------------------------------------------------------------------------------------------------ places
@settings(max_examples=60, deadline=None)
@given(
    places=st.lists(st.tuples(kilometres, kilometres), min_size=1, max_size=8),
    asked=st.tuples(kilometres, kilometres),
)
def test_the_nearest_place_and_its_distance_in_kilometres_are_those_of_a_full_search(places, asked):
    x, y = np.array(places).T
    owner = np.array([1, 1, -1])
    offsets = np.array([0, 0, len(places)])  # the first entity has no place, the second all of them
    where = (np.array([asked[0], math.nan, 0.0]), np.array([asked[1], 0.0, 0.0]))
    place, distance = kernels.nearest_place(owner, *where, offsets, x, y)
    assert distance[0] == pytest.approx(min(math.dist(asked, p) for p in places), abs=1e-6)
    assert math.dist(asked, places[place[0]]) == pytest.approx(distance[0], abs=1e-6)
    assert place[1:].tolist() == [-1, -1]
    assert np.isnan(distance[1:]).all()
    alone = kernels.nearest_place(np.array([0]), where[0][:1], where[1][:1], np.array([0, len(places)]), x, y)
    assert (alone[0][0], alone[1][0]) == (place[0], distance[0]), "the first entity is one like any other"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=25))
def test_unnamed_visits_join_the_nearest_leader_within_the_radius(rows):
    """Positions on a grid of 10 m and a radius of 155 m, which no distance on the grid is equal to."""
    rows.sort(key=lambda row: row[0])
    entity, x, y = np.array([r[0] for r in rows]), *(np.array([r[i] for r in rows]) / 100.0 for i in (1, 2))
    leader = kernels.lead(entity, np.ones(len(rows), bool), x, y, 0.155)
    leaders: list[int] = []
    for i in range(len(rows)):
        near = {j: math.hypot(x[j] - x[i], y[j] - y[i]) for j in leaders if entity[j] == entity[i]}
        near = {j: distance for j, distance in near.items() if distance <= 0.155}
        if not near:
            leaders.append(i)
            assert leader[i] == i
        else:
            assert near[leader[i]] == pytest.approx(min(near.values()), abs=1e-9)


# ---------------------------------------------------------------------------------------------------- presence
@given(first=st.integers(-30_000, 30_000), length=st.integers(0, 60))
def test_days_by_weekday_are_those_of_the_calendar(first, length):
    """From 1887 on: also before 1970."""
    days = [date(1970, 1, 1) + timedelta(first + k) for k in range(length + 1)]
    counted = Counter(day.weekday() for day in days)
    assert kernels.days_by_weekday(first, first + length).tolist() == [counted[k] for k in range(7)]


@given(
    first=st.integers(-30_000, 30_000),
    length=st.integers(0, 30),
    off=st.sets(st.integers(-5, 35), min_size=1, max_size=9),
)
def test_days_off_are_counted_as_sundays(first, length, off):
    """Also those that are Sundays anyway; days off beyond the first and last day count nowhere."""
    days_off = np.array(sorted(first + day for day in off), np.int64)
    kinds = [6 if day in days_off else weekday_of(day) for day in range(first, first + length + 1)]
    assert kernels.days_by_kind(first, first + length, days_off).tolist() == [kinds.count(kind) for kind in range(7)]
    assert [kernels.day_kind(day, days_off) for day in range(first, first + length + 1)] == kinds


def weekday_of(day: int) -> int:
    return (date(1970, 1, 1) + timedelta(day)).weekday()


def half_hours(day, minute, length):
    """On one line from 1970 on, of at most two days."""
    begin = (day * 1440 + minute) / 30
    return range(math.floor(begin), max(math.floor(begin + min(length, 2880) / 30), math.floor(begin) + 1))


def naive_presence(visits, since, last, asked, hidden):
    """`visits` and `asked`: day, minute, minutes there."""
    seen: Counter = Counter()
    for visit in visits:
        for moment in half_hours(*visit):
            seen[weekday_of(moment // 48), moment % 48] += 1
    days = Counter(weekday_of(day) for day in range(since, last + 1))
    surprises = []
    for moment in half_hours(*asked):
        weekday, slot = weekday_of(moment // 48), moment % 48
        alike = [d for d in range(7) if (d >= 5) == (weekday >= 5)]
        weight = {d: 1.0 if d == weekday else 0.4 for d in alike}
        there = sum(weight[d] * min(seen[d, slot], days[d]) for d in alike)
        possible = sum(weight[d] * days[d] for d in alike)
        surprises.append(-math.log((there + 0.5) / (possible + 1.0)))
    kept = sorted(surprises)[: max(0, len(surprises) - math.ceil(hidden / 30))] if hidden else surprises
    return sum(kept) / 8  # four hours are one piece of evidence


a_visit = st.tuples(st.integers(0, 20), st.integers(0, 1439), st.integers(0, 3500))


@settings(max_examples=60, deadline=None)
@given(
    visits=st.lists(a_visit, min_size=1, max_size=12), asked=a_visit, first=st.integers(-9000, 20_000),
    since=st.integers(0, 20), hidden=st.sampled_from([0.0, 20.0, 30.0, 95.0, 5000.0]),
)  # fmt: skip
def test_presence_is_that_of_half_hours_counted_on_the_calendar(visits, asked, first, since, hidden):
    """Over midnight, over the end of a week and before 1970."""
    visits = [(first + day, minute, length) for day, minute, length in visits]
    asked = (first + 21 + asked[0], *asked[1:])
    day, minute, length = (np.array(column) for column in zip(*visits, strict=True))
    got = kernels.presence(
        np.array([0, -1]), np.array([asked[1], 0.0]), np.array([asked[2], 60.0]),
        np.array([weekday_of(asked[0]), 0]), np.array([hidden, 0.0]), np.array([first + since]), first + 20,
        np.array([0, len(visits)]), minute.astype(float), length.astype(float),
        np.array([weekday_of(int(d)) for d in day]),
    )  # fmt: skip
    assert got[0] == pytest.approx(naive_presence(visits, first + since, first + 20, asked, hidden))
    assert np.isnan(got[1])


# --------------------------------------------------------------------------------------------------- elsewhere
def naive_elsewhere(places, since, last, asked, at, hidden, days_off=(), near=()):
    """`places`: visits (day, minute, minutes there) by own place; `since`: the first day of each place, then of the
    history; `at`: the own place asked for, -1 a new one; `days_off` count as Sundays; own places `near` are
    as good as that one."""

    def kind_of(day):
        return 6 if day in days_off else weekday_of(day)

    def chance(visits, known, weekday, slot):
        alike = {d: 1.0 if d == weekday else 0.4 for d in range(7) if (d >= 5) == (weekday >= 5)}
        moments = [moment for visit in visits for moment in half_hours(*visit) if moment % 48 == slot]
        seen = Counter(kind_of(moment // 48) for moment in moments)
        days = Counter(kind_of(day) for day in range(known, last + 1))
        there, possible = (sum(weight * n[d] for d, weight in alike.items()) for n in (seen & days, days))
        shrink = min(1.0, 3.0 / possible) if possible else 1.0  # three such days are as sure as any number of them
        return (shrink * there + 0.5) / (shrink * possible + 1.0)

    once = [visit for visits in places if len(visits) == 1 for visit in visits]
    surer = []
    for moment in half_hours(*asked):
        then = (kind_of(moment // 48), moment % 48)
        chances = [chance(visits, known, *then) for visits, known in zip([*places, once], since, strict=True)]
        here = max(chances[at], *(chances[place] for place in near), 0.0)
        surer.append(math.log(max(*chances[:-1], here) / here))
    for _ in range(min(len(surer), math.ceil(hidden / 30))):
        surer[surer.index(max(surer))] = 0.0
    return max(sum(surer[first : first + 48]) for first in range(len(surer))) / 8


@settings(max_examples=40, deadline=None)
@given(
    places=st.lists(st.lists(a_visit, min_size=1, max_size=4), min_size=1, max_size=4), asked=a_visit,
    at=st.integers(-1, 3), first=st.integers(-9000, 20_000), hidden=st.sampled_from([0.0, 20.0, 95.0, 5000.0]),
    known=st.lists(st.integers(0, 20), min_size=4, max_size=4), start=st.integers(0, 9),
    days_off=st.sets(st.integers(-3, 26), max_size=4), x=st.integers(0, 3), reach=st.sampled_from([0.0, 0.5, 1.5]),
)  # fmt: skip
def test_elsewhere_is_the_likeliest_place_against_this_one_half_hour_by_half_hour(
    places, asked, at, first, hidden, known, start, days_off, x, reach
):
    """Of the second of two entities, whose places are a kilometre apart; the first has one place, with a visit of
    unknown length."""
    places = [[(first + day, minute, length) for day, minute, length in visits] for visits in places]
    asked, at = (first + 21 + asked[0], *asked[1:]), min(at, len(places) - 1)
    visits = [(first, 600, 60), (first, 0, np.nan), *(visit for own in places for visit in own)]
    day, minute, length = (np.array(column) for column in zip(*visits, strict=True))
    number, since = np.array([2, *map(len, places)]), first + np.array([0, *known[: len(places)]])
    off = np.array(sorted(first + day for day in days_off), np.int64)
    begun = np.array([first, *[first + start] * len(places)])
    kinds = day_kinds(np.array([asked[0], first, 4])[:, None] + np.arange(4), tuple(off))
    got = expected_elsewhere(
        first + 20, np.array([1, 0, -1]), np.array([at + 1 if at >= 0 else -1, 0, -1]), np.array([asked[1], 570.0, 0]),
        np.array([asked[2], 120.0, 60.0]), kinds,
        np.array([hidden, 0.0, 0.0]), np.array([x, 0.0, 0.0]), np.zeros(3), np.array([reach, 0.0, 0.0]),
        np.array([0, 1, 1 + len(places)]), np.array([0.0, *range(len(places))]), np.zeros(1 + len(places)),
        number, since, begun,
        np.r_[0, np.cumsum(number)], minute.astype(float), length.astype(float), day, off,
    )  # fmt: skip
    since = [*(max(first + day, first + start) for day in known[: len(places)]), first + start]
    near = [place for place in range(len(places)) if reach and abs(place - x) <= reach]
    assert got[0] == pytest.approx(naive_elsewhere(places, since, first + 20, asked, at, hidden, set(off), near))
    assert got[1] == 0.0, "nowhere is likelier than at the only place one has"
    assert np.isnan(got[2]), "of a stranger history says nothing"


NO_DAYS = np.zeros(0, np.int64)
NOWHERE = (np.zeros(1), np.zeros(1), np.zeros(1))  # a visit's position, and no reach around it


def following(weekdays):
    """The weekdays of each day and the three after it."""
    return (np.array(weekdays)[:, None] + np.arange(4)) % 7


def test_more_days_of_the_same_life_do_not_make_another_place_surer():
    """Home on every day, asked for somewhere new at noon: three weeks and a year say the same."""
    said = []
    for days in (21, 364):
        day = np.arange(4, 4 + days)
        times = (np.array([720.0]), np.array([240.0]), following([2]), np.zeros(1))
        asked = (np.array([0]), np.array([-1]), *times, *NOWHERE)
        places = (np.array([0, 1]), *NOWHERE[:2], np.array([days]), np.array([4]), np.array([4]))
        visits = (np.array([0, days]), np.zeros(days), np.full(days, 1439.0), day, NO_DAYS)
        said.append(expected_elsewhere(3 + days, *asked, *places, *visits)[0])
    assert said[0] == pytest.approx(said[1])
    assert said[0] == pytest.approx(math.log(3.5 / 0.5))


@settings(max_examples=60, deadline=None)
@given(
    known=st.lists(st.sets(st.integers(1, 12), max_size=6), min_size=1, max_size=4),
    asked=st.lists(st.tuples(st.integers(-1, 3), st.integers(0, 13)), min_size=1, max_size=12),
)
def test_a_known_place_is_found_by_its_key_among_the_owners_own(known, asked):
    """Key 0 has no name, owner -1 no history."""
    keys = [sorted(own) for own in known]
    offsets = np.cumsum([0, *map(len, keys)])
    asked = [(owner, key) for owner, key in asked if owner < len(known)] or [(-1, 1)]
    found = kernels.find_known(
        np.array([owner for owner, _ in asked]), np.array([key for _, key in asked]), offsets,
        np.array([key for own in keys for key in own], np.int64),
    )  # fmt: skip
    expected = [
        offsets[owner] + keys[owner].index(key) if owner >= 0 and key in keys[owner] else -1 for owner, key in asked
    ]
    np.testing.assert_array_equal(found, expected)


def test_the_times_of_a_place_are_those_of_its_own_visits_alone():
    first = [(480.0, 60.0, 0, 1.0, 1.0), (500.0, 70.0, 1, 1.0, 1.0)]
    second = [(1100.0, 20.0, 0, 1.0, 1.0)]
    third = [(60.0, 300.0, 1, 1.0, 1.0), (90.0, 310.0, 0, 0.5, 0.5)]
    minute, length, weekend, start_weight, length_weight = (
        np.array(c) for c in zip(*first, *second, *third, strict=True)
    )
    asked = (495.0, 65.0, 0)
    nobody = [np.full(3, NOBODY)] * 2
    found = kernels.times_at_place(
        np.arange(3), np.full(3, asked[0]), np.log1p(np.full(3, asked[1])), np.zeros(3, bool), *nobody,
        np.array([0, 2, 3, 5]), minute, np.log1p(length), weekend > 0, start_weight, length_weight,
    )  # fmt: skip
    for row, visits in zip(found, (first, second, third), strict=True):
        np.testing.assert_allclose(row, times(visits, [asked])[0])


def test_a_second_day_of_the_same_adds_nothing_to_being_elsewhere():
    """At work on every weekday, now at home from Sunday evening on: two days of that are as odd as one."""
    days = [day for day in range(4, 32) if weekday_of(day) < 5]
    minute, length = np.repeat([540.0, 1080.0], len(days)), np.repeat([540.0, 900.0], len(days))
    places = (np.array([0, 2]), np.zeros(2), np.zeros(2), np.array([len(days)] * 2), np.array([4, 4]), np.array([4, 4]))
    visits = (np.array([0, len(days), 2 * len(days)]), minute, length, np.array(days * 2), NO_DAYS)
    surprise = []
    for hours in (12.0, 24.0, 48.0):
        times = (np.array([1080.0]), np.array([60 * hours]), following([6]), np.zeros(1))
        asked = (np.array([0]), np.array([1]), *times, *NOWHERE)
        surprise.append(expected_elsewhere(31, *asked, *places, *visits)[0])
    assert surprise[0] < 0.1
    assert surprise[1] > 3
    assert surprise[2] == pytest.approx(surprise[1])


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=30))
def test_visits_so_far_are_counted_by_entity_and_place(visits):
    visits = sorted(visits, key=lambda visit: visit[0])
    counts = kernels.count_so_far(*(np.array([v[i] for v in visits], np.int64) for i in (0, 1)))
    assert counts.tolist() == [visits[: i + 1].count(visit) for i, visit in enumerate(visits)]
