"""Habits: what is counted, what is remembered, what is forgotten, against plain loops."""

import math
from collections import Counter
from dataclasses import fields, replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from routine_stays import between, insert_visit, make_routine

from ustad.dataset import event_days
from ustad.events.visits import Frame, read_visits
from ustad.habits import kernels as kernels
from ustad.habits.history import Habits, own_keys
from ustad.habits.one_comparison import compare_alone
from ustad.habits.population import LONGEST, Population
from ustad.habits.questions import compare
from ustad.habits.recurrence import Recurrence
from ustad.schema import mobility_schema
from ustad.tables import TIMESTAMP, DataError

SCHEMA = mobility_schema()


def visits_of(table, frame=None):
    return read_visits(table, SCHEMA, frame or Frame.fit(table, SCHEMA))


def same(first, second):
    for f in fields(first):
        a, b = getattr(first, f.name), getattr(second, f.name)
        if isinstance(a, np.ndarray) and a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=1e-12, err_msg=f.name)
        else:
            np.testing.assert_array_equal(a, b, err_msg=f.name)


def test_counts_are_those_of_a_plain_counter():
    table = make_routine(seed=1)
    habits = Habits.fit(visits_of(table))
    plain = Counter(zip(table["agent_id"].to_pylist(), table["poi_id"].to_pylist(), strict=True))
    assert sorted(habits.place_count.tolist()) == sorted(plain.values())
    assert habits.place_count.sum() == table.num_rows
    for agent, first, last in zip(habits.entity_ids, habits.place_offsets[:-1], habits.place_offsets[1:], strict=True):
        assert sorted(habits.place_count[first:last]) == sorted(c for (a, _), c in plain.items() if a == agent)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000))
def test_the_order_of_rows_changes_nothing(seed):
    table = make_routine(seed=2, agents=3, days=8)
    shuffled = table.take(pa.array(np.random.default_rng(seed).permutation(table.num_rows)))
    frame = Frame.fit(table, SCHEMA)
    same(Habits.fit(visits_of(table, frame)), Habits.fit(visits_of(shuffled, frame)))


def test_stored_habits_come_back_as_they_were():
    habits = Habits.fit(visits_of(make_routine(seed=3, agents=4, days=9)))
    same(Habits.from_table(habits.to_table("agent_id")), habits)


def test_a_table_that_is_no_habits_is_refused():
    with pytest.raises(DataError, match="not written as habits"):
        Habits.from_table(pa.table({"a": [1]}))


def test_a_forgotten_agent_leaves_no_trace_and_the_others_are_untouched():
    table = make_routine(seed=4, agents=5, days=9)
    habits = Habits.fit(visits_of(table))
    without = Habits.fit(visits_of(table.filter(pa.array(table["agent_id"].to_numpy() != 2)), Frame.fit(table, SCHEMA)))
    same(habits.forget([2]), without)
    assert len(habits.forget(range(5)).place_key) == 0


def test_memory_is_bounded_and_keeps_the_latest_visits():
    visits = visits_of(make_routine(seed=5, agents=2, days=30))
    habits = Habits.fit(visits, most=4)
    assert np.diff(habits.visit_offsets).max() == 4
    whole = Habits.fit(visits)
    np.testing.assert_array_equal(habits.place_count, whole.place_count)
    for p in range(len(habits.place_key)):
        kept = habits.visit_time[habits.visit_offsets[p] : habits.visit_offsets[p + 1]]
        every = whole.visit_time[whole.visit_offsets[p] : whole.visit_offsets[p + 1]]
        np.testing.assert_array_equal(kept, every[-4:])


def test_stays_without_a_name_become_the_same_places():
    named, unnamed = make_routine(seed=6), make_routine(seed=6, named=False)
    a, b = Habits.fit(visits_of(named)), Habits.fit(visits_of(unnamed))
    for first, second in zip(_counts(a), _counts(b), strict=True):
        assert first == second


def _counts(habits):
    return [
        sorted(habits.place_count[i:j]) for i, j in zip(habits.place_offsets, habits.place_offsets[1:], strict=False)
    ]


@pytest.mark.parametrize("named", [True, False])
def test_known_places_are_found_again_and_new_ones_are_new(named):
    table = make_routine(seed=7, named=named)
    frame = Frame.fit(table, SCHEMA)
    habits = Habits.fit(read_visits(between(table, 0, 28), SCHEMA, frame))
    later = insert_visit(between(table, 28, 35), agent=3, day=30, minute=700)
    visits = read_visits(later, SCHEMA, frame)
    place, key = habits.locate(visits)
    new = visits.row == later.num_rows - 1
    assert place[new] == -1
    assert (place[~new] >= 0).all()
    assert len(np.unique(key[new])) == 1
    assert key[new][0] not in habits.place_key


@pytest.mark.parametrize(("metres", "is_known"), [(0, True), (40, True), (60, False), (500, False)])
def test_an_unknown_name_next_door_to_an_own_place_is_that_place(metres, is_known):
    """GPS takes one of two doors for the other; what is farther away is new."""
    table = make_routine(seed=6, agents=1, days=8)
    frame = Frame.fit(table, SCHEMA)
    habits = Habits.fit(visits_of(table, frame))
    home = int(np.argmax(habits.place_count))
    lat, lon = frame.projection.backward(habits.place_x[home : home + 1], habits.place_y[home : home + 1])
    row = table.slice(0, 1)
    for name, value in (("lat", lat[0] + metres / 111_195), ("lon", lon[0])):
        row = row.set_column(row.column_names.index(name), name, pa.array([value]))
    row = row.set_column(row.column_names.index("poi_id"), "poi_id", pa.array([987_654], row["poi_id"].type))
    place, _ = habits.locate(visits_of(row, frame))
    assert place[0] == (home if is_known else -1)


def test_what_comes_later_never_changes_the_place_of_a_visit():
    table = make_routine(seed=8, named=False, agents=2, days=12)
    frame = Frame.fit(table, SCHEMA)
    whole, early = visits_of(table, frame), visits_of(between(table, 0, 6), frame)
    keys = own_keys(whole, None)
    np.testing.assert_array_equal(keys[whole.time < early.time.max() + 1], own_keys(early, None))


def test_an_empty_history_is_refused():
    visits = visits_of(make_routine(agents=1, days=3))
    with pytest.raises(DataError, match="no events"):
        Habits.fit(type(visits)(*(getattr(visits, f.name)[:0] for f in fields(visits))))


def test_counts_so_far_are_those_of_a_loop():
    rng = np.random.default_rng(9)
    entity = np.sort(rng.integers(0, 5, 300))
    key = (entity * 7 + rng.integers(0, 4, 300)).astype(np.uint64)
    seen: Counter = Counter()
    expected = []
    for k in key:
        seen[k] += 1
        expected.append(seen[k])
    np.testing.assert_array_equal(kernels.count_so_far(entity, key), expected)


def test_start_and_duration_terms_are_those_of_a_loop():
    table = make_routine(seed=10, agents=3, days=20)
    frame = Frame.fit(table, SCHEMA)
    habits = Habits.fit(read_visits(between(table, 0, 14), SCHEMA, frame))
    visits = read_visits(between(table, 14, 20), SCHEMA, frame)
    population = Population.fit(visits, len(frame.categories) + 1)
    place, _ = habits.locate(visits)
    before = habits.visits_at(place)
    starts, density = population.starts(visits, before), population.durations(visits, before)
    got = kernels.times_at_place(
        place, visits.minute, np.log1p(visits.duration), visits.weekday >= 5, starts, density,
        habits.visit_offsets, habits.visit_minute, habits.visit_log_duration, habits.visit_weekend,
        habits.visit_start_weight, habits.visit_length_weight,
    )  # fmt: skip
    for i in range(0, len(visits), 5):
        assert got[i] == pytest.approx(_naive_times(i, habits, visits, starts, density, place))


def test_the_term_of_ends_is_that_of_a_loop():
    table = make_routine(seed=10, agents=3, days=20)
    frame = Frame.fit(table, SCHEMA, days_off=(event_days(table, SCHEMA)[0] + 15,))
    habits = Habits.fit(read_visits(between(table, 0, 14), SCHEMA, frame))
    visits = read_visits(between(table, 14, 20), SCHEMA, frame)
    population = Population.fit(visits, len(frame.categories) + 1)
    found = compare(habits, population, Recurrence(), visits, period=(0, 0))
    moved = (np.where(np.arange(len(visits)) == 3, -1, found.place), found.key)
    elsewhere = compare(habits, population, Recurrence(), visits, period=(0, 0), places=moved)
    assert np.isnan(elsewhere.terms["end"][3]), "nobody has left a new place before"
    for i in range(len(visits)):
        expected = _naive_end(i, habits, visits, population, found.place)
        assert found.terms["end"][i] == pytest.approx(expected, nan_ok=True)


def _naive_end(i, habits, visits, population, place):
    """Ends as moments: the minute of the day, and whether that day is a weekend day or a day off."""

    def told(minute, duration, day):
        end = minute + duration
        day += int(end // 1440)
        return end % 1440, (day + 3) % 7 >= 5 or day in visits.days_off

    end, weekend = told(visits.minute[i], visits.duration[i], visits.day[i])
    if place[i] < 0 or end == 0:  # the last midnight cuts
        return math.nan
    total = mass = 0.0
    for v in range(habits.visit_offsets[place[i]], habits.visit_offsets[place[i] + 1]):
        other, then = told(habits.visit_minute[v], habits.visit_duration[v], int(habits.visit_day[v]))
        weight = 1.0 if then == weekend else kernels.OTHER_DAY
        gap = min(abs(other - end), 1440 - abs(other - end)) / kernels.START_WIDTH
        total += weight
        mass += weight * math.exp(-0.5 * gap * gap) / kernels.START_WIDTH / math.sqrt(2 * math.pi) if gap <= 6 else 0.0
    seldom = int(habits.place_count[place[i]] < 4)
    share = population.end[seldom, int(weekend), visits.category[i], int(end / 30)]
    return -math.log((mass + kernels.POPULATION_VISITS * share) / (total + kernels.POPULATION_VISITS))


def test_an_end_at_midnight_to_the_second_says_nothing_and_one_a_second_later_does():
    table = make_routine(seed=10, agents=1, days=20)
    frame = Frame.fit(table, SCHEMA)
    visits = visits_of(table, frame)
    cut = replace(visits, duration=1440.0 - visits.minute)
    later = replace(visits, duration=1440.0 + 1 / 60 - visits.minute)
    habits, population = Habits.fit(visits), Population.fit(visits, len(frame.categories) + 1)
    ends = [compare(habits, population, Recurrence(), v, period=(0, 0)).terms["end"] for v in (cut, later)]
    assert np.isnan(ends[0]).all()
    assert np.isfinite(ends[1]).all()


def test_a_stay_that_midnight_cuts_is_not_odd_for_being_short():
    table = make_routine(seed=10, agents=1, days=20)
    frame = Frame.fit(table, SCHEMA)
    visits = visits_of(table, frame)
    habits, population = Habits.fit(visits), Population.fit(visits, len(frame.categories) + 1)
    start = table["started_at"].cast(pa.int64()).to_numpy()
    midnight = start - (visits_of(table, frame).minute * 60e6).astype(np.int64) + 1440 * 60_000_000

    def length_of(end):
        cut = table.set_column(table.column_names.index("finished_at"), "finished_at", pa.array(end).cast(TIMESTAMP))
        return compare(habits, population, Recurrence(), visits_of(cut, frame), period=(0, 0)).terms["duration"]

    least, given = length_of(midnight), length_of(midnight - 1_000_000)
    assert (least <= given + 1e-3).all()
    home = visits.minute > 1000  # nights at home, which usually last until the morning
    assert (given[home] - least[home] > 1.0).mean() > 0.9


def test_one_event_that_midnight_cuts_is_compared_as_among_many():
    table = make_routine(seed=10, agents=1, days=20)
    frame = Frame.fit(table, SCHEMA)
    visits = visits_of(table, frame)
    habits, population, recurrence = Habits.fit(visits), Population.fit(visits, len(frame.categories) + 1), Recurrence()
    cut = replace(visits, duration=1440.0 - visits.minute)
    many = compare(habits, population, recurrence, cut, period=(0, 0))
    for i in range(0, len(cut), 5):
        known = (int(many.place[i]), int(many.key[i]))
        one = compare_alone(
            habits, population, recurrence, cut.take(np.array([i])), since=0, count=1, place_and_key=known, earlier=None
        )
        for name in ("start", "duration", "end"):
            assert one.terms[name][0] == pytest.approx(many.terms[name][i], nan_ok=True), name


def _naive_times(i, habits, visits, starts, density, place):
    total = begun = lasted = known = 0.0
    norm = math.sqrt(2 * math.pi)
    own = range(habits.visit_offsets[place[i]], habits.visit_offsets[place[i] + 1]) if place[i] >= 0 else ()
    for v in own:
        weight = 1.0 if (habits.visit_weekday[v] >= 5) == (visits.weekday[i] >= 5) else kernels.OTHER_DAY
        gap = abs(habits.visit_minute[v] - visits.minute[i])
        gap = min(gap, 1440 - gap) / kernels.START_WIDTH
        near = weight * math.exp(-0.5 * gap * gap) if gap <= 6 else 0.0
        total, begun = total + weight, begun + near
        if near:
            known += near
            step = (math.log1p(visits.duration[i]) - math.log1p(habits.visit_duration[v])) / kernels.DURATION_WIDTH
            lasted += near * math.exp(-0.5 * step * step) if abs(step) <= 6 else 0.0
    k = kernels.POPULATION_VISITS
    return [
        -math.log((begun / kernels.START_WIDTH / norm + k * starts[i]) / (total + k)),
        -math.log((lasted / kernels.DURATION_WIDTH / norm + k * density[i]) / (known + k)),
    ]


def test_being_home_all_through_a_working_day_is_unlikely_and_at_night_is_not():
    table = make_routine(seed=11, agents=1, days=28)
    frame = Frame.fit(table, SCHEMA)
    habits = Habits.fit(visits_of(table, frame))
    home = np.array([np.argmax(habits.place_count)] * 3)
    got = kernels.presence(
        home, np.array([0.0, 600.0, 600.0]), np.array([300.0, 300.0, 300.0]), np.array([1, 1, 5]), np.zeros(3),
        habits.place_since, habits.last_day,
        habits.visit_offsets, habits.visit_minute, habits.visit_duration, habits.visit_weekday,
    )  # fmt: skip
    night, working, saturday = got
    assert working > 5 * night
    assert working > 5 * saturday


def test_on_a_long_history_presence_counts_the_days_whose_visits_are_remembered():
    table = make_routine(seed=11, agents=1, days=280)
    visits = visits_of(table, Frame.fit(table, SCHEMA))
    found = []
    for most in (96, 10_000):
        habits = Habits.fit(visits, most)
        home = int(np.argmax(habits.place_count))
        found.append(
            kernels.presence(
                np.array([home] * 2), np.array([0.0, 600.0]), np.array([300.0, 300.0]), np.array([1, 1]), np.zeros(2),
                habits.place_since, habits.last_day,
                habits.visit_offsets, habits.visit_minute, habits.visit_duration, habits.visit_weekday,
            )
        )  # fmt: skip
        short = habits.place_count > most
        assert (habits.place_since[~short] == habits.first_day).all()
        assert short[home] == (most == 96)
    short, whole = found
    assert short[0] == pytest.approx(whole[0], abs=0.1)  # a night at home is as usual as ever
    assert short[1] > 10 * short[0]


def test_population_densities_sum_to_one():
    visits = visits_of(make_routine(seed=12))
    population = Population.fit(visits, 4)
    np.testing.assert_allclose(population.start.sum(axis=-1) * 1440 / population.start.shape[-1], 1.0)
    np.testing.assert_allclose(population.end.sum(axis=-1) * 1440 / population.end.shape[-1], 1.0)
    np.testing.assert_allclose(population.duration.sum(axis=-1) * LONGEST / population.duration.shape[-1], 1.0)


def test_what_people_do_is_counted_apart_at_places_that_they_seldom_visit():
    """Starts, lengths and ends by kind, smoothed as the module says; first visits of the later half of the days."""
    visits = visits_of(with_outings(make_routine(seed=12, agents=6, days=20)))
    kinds = int(visits.category.max()) + 1
    population, expected = Population.fit(visits, kinds), _naive_population(visits, kinds)
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(population, name), values, rtol=1e-12, err_msg=name)
    assert not np.allclose(population.start[0], population.start[1])
    for before, seldom in ((0, 1), (3, 1), (4, 0), (40, 0)):
        asked = np.full(len(visits), before)
        for i in range(0, len(visits), 7):
            weekend, kind, minute = int(visits.weekday[i] >= 5), visits.category[i], int(visits.minute[i] / 30)
            assert population.starts(visits, asked)[i] == expected["start"][seldom, weekend, kind, minute]


def with_outings(table):
    """The same, with visits to other places that somebody goes to once or twice."""
    names, more = table.column_names, []
    for row in range(0, table.num_rows, 5):
        visit = table.slice(row, 1).to_pylist()[0]
        more.append({**visit, "poi_id": 9_000 + row // 10, "lat": visit["lat"] + 0.05})
    return pa.concat_tables([table, pa.Table.from_pylist(more, table.schema)]).select(names)


def _naive_population(visits, kinds):
    count = Counter((int(e), int(k)) for e, k in zip(visits.entity, visits.key, strict=True))
    middle = visits.day.min() + (visits.day.max() - visits.day.min()) // 2
    start, end, length = np.zeros((2, 2, kinds, 48)), np.zeros((2, 2, kinds, 48)), np.zeros((2, kinds, 8, 44))
    first, whole, known = np.zeros(kinds), np.zeros(kinds), set()
    for i in range(len(visits)):
        place, kind, minute = (int(visits.entity[i]), int(visits.key[i])), visits.category[i], visits.minute[i]
        seldom, last = int(count[place] <= 4), minute + visits.duration[i]
        start[seldom, int(visits.weekday[i] >= 5), kind, int(minute / 30)] += 1
        if round(last * 60) % 86_400:
            end[seldom, int((visits.weekday[i] + last // 1440) % 7 >= 5), kind, int(last % 1440 / 30)] += 1
        length[seldom, kind, int(minute / 180), min(int(math.log1p(visits.duration[i]) / LONGEST * 44), 43)] += 1
        whole[kind] += 1
        first[kind] += place not in known and visits.day[i] > middle
        known.add(place)

    def smooth(counts, towards):
        return (counts + 30 * towards / towards.sum(-1, keepdims=True)) / (counts.sum(-1, keepdims=True) + 30)

    by_kind = smooth(length.sum(axis=2), smooth(length.sum(axis=(0, 1, 2)), np.ones(44)))
    share = (whole + 1) / (whole.sum() + kinds)
    return {
        "start": smooth(start, smooth(start.sum(axis=(0, 1, 2)), np.ones(48))) * 48 / 1440,
        "end": smooth(end, smooth(end.sum(axis=(0, 1, 2)), np.ones(48))) * 48 / 1440,
        "duration": smooth(length, by_kind[:, :, None]) * 44 / LONGEST,
        "new_kind": (first + 5 * share) / (first.sum() + 5),
    }


def test_the_kind_of_a_place_is_asked_where_the_place_is_new():
    table = make_routine(seed=10, agents=3, days=20)
    frame = Frame.fit(table, SCHEMA)
    habits = Habits.fit(read_visits(between(table, 0, 14), SCHEMA, frame))
    visits = read_visits(between(with_outings(table), 14, 20), SCHEMA, frame)
    visits.category[1::12] = 0
    population = Population.fit(visits, len(frame.categories) + 1)
    found = compare(habits, population, Recurrence(), visits, period=(0, 0))
    is_asked = (found.place < 0) & (visits.category > 0)
    assert 0 < is_asked.sum() < (found.place < 0).sum() < len(visits)
    for i in range(len(visits)):
        expected = -math.log(population.new_kind[visits.category[i]]) if is_asked[i] else math.nan
        assert found.terms["new_kind"][i] == pytest.approx(expected, nan_ok=True)
    strangers = replace(visits, entity_key=visits.entity_key + np.uint64(1))
    nobody = compare(habits, population, Recurrence(), strangers, period=(0, 0))
    assert np.isnan(nobody.terms["new_kind"]).all(), "nothing is new to whom nothing is known of"


def test_places_hold_what_a_loop_over_their_visits_finds():
    """First and last day, position, and of the latest visits when, how long, on what day and from where."""
    table = make_routine(seed=5, agents=3, days=16)
    visits, most = visits_of(table), 4
    habits, found, before = Habits.fit(visits, most), {}, {}
    for i in range(len(visits)):
        owner, key = int(visits.entity_key[visits.entity[i]]), int(visits.key[i])
        found.setdefault((owner, key), []).append((i, before.get(owner, 0)))
        before[owner] = key
    assert len(found) == len(habits.place_key)
    for p, (owner, key) in enumerate(zip(habits.place_owner, habits.place_key.tolist(), strict=True)):
        rows = found[int(habits.entity_key[owner]), key]
        at = [i for i, _ in rows]
        assert (habits.place_first[p], habits.place_last[p]) == (visits.day[at].min(), visits.day[at].max())
        assert habits.place_count[p] == len(rows)
        assert habits.place_x[p] == pytest.approx(visits.x[at].mean())
        assert habits.place_y[p] == pytest.approx(visits.y[at].mean())
        assert habits.place_category[p] == visits.category[at[-1]]
        held, latest = slice(habits.visit_offsets[p], habits.visit_offsets[p + 1]), rows[-most:]
        for name in ("time", "minute", "weekday", "duration"):
            expected = [getattr(visits, name)[i] for i, _ in latest]
            np.testing.assert_array_equal(getattr(habits, f"visit_{name}")[held], expected, err_msg=name)
        np.testing.assert_array_equal(habits.visit_day[held], [visits.day[i] for i, _ in latest])
        assert habits.visit_previous[held].tolist() == [previous for _, previous in latest]
