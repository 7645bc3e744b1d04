"""Times that nobody saw are intervals: scored by their most usual point, and hardly learnt from."""

import zlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from routine_stays import between, make_routine, with_gaps

from ustad.events.encoder import Encoder
from ustad.events.observed import ENDS_SEEN, ends_seen, gap_minutes, read_ends_seen, read_gaps
from ustad.events.visits import Frame, are_cut, read_visits
from ustad.habits.history import Habits
from ustad.habits.population import Population
from ustad.habits.questions import LOOKS, compare
from ustad.habits.recurrence import Recurrence
from ustad.live.visit_log import as_visits, log_rows, pack_habits, pack_log, unpack_habits, unpack_log
from ustad.network.inference.memory_terms import at_most_usual
from ustad.network.place_counts import MemoryTensors, OwnPlaces, _bins
from ustad.network.place_memory import Outlook
from ustad.schema import mobility_schema

SCHEMA = mobility_schema("none", 16, True)
TIMES = ("start", "duration", "end")
NO_GAPS = dict.fromkeys(("early", "late", "silent"), 0.0)


@pytest.fixture(scope="module")
def world():
    life = make_routine(seed=3, agents=2, days=28)
    frame = Frame.fit(life, SCHEMA)
    before = read_visits(between(life, 0, 21), SCHEMA, frame)
    habits, population = Habits.fit(before), Population.fit(before, len(frame.categories) + 1)
    visits = read_visits(between(life, 21, 28), SCHEMA, frame)
    visits = visits.take(np.flatnonzero(~are_cut(visits.minute, visits.duration)))  # the last night of the table is
    return habits, population, Recurrence.fit_halves(before), visits


def terms_of(world, visits):
    habits, population, recurrence, _ = world
    return compare(habits, population, recurrence, visits, period=(0, 10**6)).terms


def moved(visits, start, end, **unseen):
    """Visits with their starts and ends so many minutes later."""
    minute = visits.minute + start
    days = np.floor(minute / 1440).astype(np.int64)
    times = {"minute": minute - 1440 * days, "weekday": (visits.weekday + days) % 7, "day": visits.day + days}
    gaps = {name: np.full(len(visits), unseen.get(name, 0.0)) for name in NO_GAPS}
    return replace(visits, **times, duration=visits.duration - start + end, **gaps)


def test_a_null_is_unbounded_only_where_the_other_end_is_known():
    table = pa.table({"start_gap_s": [None, None, 120.0], "end_gap_s": pa.array([None, 60.0, None], pa.float64())})
    early, late = read_gaps(table)
    assert early.tolist() == [0.0, np.inf, 2.0]
    assert late.tolist() == [0.0, 1.0, np.inf]
    assert [gap_minutes(row) for row in table.to_pylist()] == list(zip(early, late, strict=True))
    nothing = read_gaps(pa.table({"n": [1]}))
    assert [values.tolist() for values in nothing] == [[0.0], [0.0]]
    assert read_gaps(table.select(["start_gap_s"]))[1].tolist() == [0.0] * 3
    assert gap_minutes({"start_gap_s": 120.0}) == (2.0, 0.0)


def test_which_ends_were_seen_is_told_of_a_table_as_of_each_row():
    gaps = [None, 0.0, 1800.0, 1801.0]
    pairs = [(start, end) for start in gaps for end in gaps]
    table = pa.table({"start_gap_s": [p[0] for p in pairs], "end_gap_s": [p[1] for p in pairs]})
    words = [ENDS_SEEN[code] for code in read_ends_seen(table)]
    assert words == [ends_seen(row) for row in table.to_pylist()]
    told = dict(zip(pairs, words, strict=True))
    assert {told[None, None], told[0.0, 0.0], told[1800.0, 0.0]} == {"both"}
    assert (told[0.0, 1801.0], told[0.0, None], told[1801.0, 0.0]) == ("start", "start", "end")
    assert (told[1801.0, 1801.0], told[None, 1801.0]) == ("neither", "neither")
    assert read_ends_seen(pa.table({"n": [1]})).tolist() == [0]


def test_the_field_is_not_scored_and_says_both_where_no_column_tells_otherwise():
    life = between(make_routine(seed=3, agents=2, days=7), 0, 7)
    schema = mobility_schema("none", 16, True, ends_seen=True)
    assert not schema.feature("ends_seen").scored
    encoder = Encoder.fit(life, schema)
    arrays = encoder.encode(life)
    assert set(encoder.decode_category("ends_seen", arrays.categories[:, -1])) == {"both"}
    assert arrays.weight is None
    assert set(encoder.decode_category("ends_seen", encoder.encode(with_gaps(life)).categories[:, -1])) == {*ENDS_SEEN}


def test_times_that_nobody_saw_count_less_in_the_losses_and_all_else_as_before():
    life = with_gaps(make_routine(seed=3, agents=2, days=7))
    encoder = Encoder.fit(life, mobility_schema("none", 16, True, ends_seen=True))
    arrays = encoder.encode(life)
    names = [f.name for f in arrays.fields]
    weight = {name: arrays.weight[:, names.index(name)] for name in names}
    early, late = arrays.early, arrays.late
    np.testing.assert_allclose(weight["start_x"], 40 / (40 + np.minimum(early, 1440)), rtol=1e-6)
    np.testing.assert_array_equal(weight["start_x"], weight["start_y"])
    np.testing.assert_array_equal(weight["duration"] == 1, (early == 0) & (late == 0))
    for name in set(names) - {"start_x", "start_y", "duration"}:
        assert (weight[name] == 1).all(), name
    assert Encoder.fit(life, SCHEMA).encode(life).weight is None, "without the field nothing is weighed"


def check_close(found, best):
    """To the steps between the times that are tried, but for bins of the population that meet for a minute or two."""
    assert np.array_equal(np.isnan(found), np.isnan(best))
    found, best = found[~np.isnan(found)], best[~np.isnan(best)]
    assert np.quantile(found - best, 0.9) < 0.25
    assert (np.abs(found - best) < 1).all()


def test_an_unseen_start_is_scored_at_the_most_usual_of_its_times(world):
    visits = world[3]
    found = terms_of(world, moved(visits, 15.0, 0.0, early=300.0))
    tried = [terms_of(world, moved(visits, 15.0 - back, 0.0)) for back in range(301)]
    for name in TIMES:
        check_close(found[name], np.fmin.reduce([t[name] for t in tried]))


def test_an_unseen_end_is_scored_at_the_most_usual_of_its_times(world):
    visits = world[3]
    found = terms_of(world, moved(visits, 0.0, -5.0, late=240.0))
    tried = [terms_of(world, moved(visits, 0.0, after - 5.0)) for after in range(241)]
    for name in TIMES:
        check_close(found[name], np.fmin.reduce([t[name] for t in tried]))


@settings(max_examples=20, deadline=None)
@given(st.floats(0, 600), st.floats(0, 600), st.floats(0, 2000), st.floats(0, 2000))
def test_what_was_not_observed_never_raises_a_term(world, start, end, early, late):
    visits = world[3]
    share = 0.9 * visits.duration / (start + end + 1e-9)
    start, end = np.minimum(start, start * share), np.minimum(end, end * share)
    seen = replace(moved(visits, start, -end), early=start + early, late=end + late)
    whole, part = terms_of(world, visits), terms_of(world, seen)
    for name in (*TIMES, "elsewhere"):
        known = np.isfinite(whole[name])
        raised = (part[name] - whole[name])[known]
        assert np.quantile(raised, 0.9) < 0.25, name
        assert raised.max() < 1, name


def test_silence_in_a_stay_may_hide_what_is_odd_about_it_unless_it_is_usual(world):
    habits, *others, visits = world
    long = moved(visits, 0.0, 1200.0)
    silent = replace(long, silent=np.full(len(visits), 1100.0))
    whole, hidden = terms_of(world, long), terms_of(world, silent)
    for name in ("duration", "elsewhere"):
        assert (hidden[name] <= whole[name] + 1e-9).all()
        assert (hidden[name] < whole[name] - 1).mean() > 0.5, name
    always = replace(habits, visit_silent=habits.visit_duration.astype(np.float32))
    evening = replace(long, silent=np.full(len(visits), 300.0))
    usual = terms_of((always, *others, visits), evening)
    for name in ("duration", "elsewhere"):
        np.testing.assert_array_equal(usual[name], whole[name])


def test_a_silent_phone_near_home_may_have_been_at_home_and_farther_away_not(world):
    """Nights at a new place, some hundred metres or some kilometres from where history has them."""
    habits, *_, visits = world
    night = np.flatnonzero((visits.minute > 900) & (visits.duration > 300))
    assert len(night)
    found = {}
    for metres in (600.0, 1500.0):
        for silent in (0.0, 300.0):
            away = visits.take(night)
            away = replace(away, key=away.key + 1, x=away.x + metres / 1000, silent=np.full(len(night), silent))
            always = replace(habits, visit_silent=habits.visit_duration.astype(np.float32))  # so that it hides nothing
            found[metres, silent] = terms_of((always, *world[1:]), away)["elsewhere"]
    assert (found[600.0, 300.0] < found[600.0, 0.0] - 1).all()
    np.testing.assert_array_equal(found[1500.0, 300.0], found[1500.0, 0.0])


def test_days_of_silence_hide_what_is_odd_about_a_stay_of_a_phone_that_is_silent_at_night(world):
    """A phone that says nothing while it lies still is usually silent for a whole stay, but never for two days."""
    habits, *others, visits = world
    always = replace(habits, visit_silent=habits.visit_duration.astype(np.float32))
    long = moved(visits, 0.0, 2880.0)
    whole, hidden = (
        terms_of((always, *others, visits), replace(long, silent=s)) for s in (0 * long.silent, long.duration)
    )
    assert (hidden["elsewhere"] < whole["elsewhere"] - 1).mean() > 0.5
    assert (hidden["duration"] <= whole["duration"] + 1e-9).all()


def test_silence_at_hours_that_are_always_silent_is_less_odd_than_at_others(world):
    habits, *others, visits = world
    night = np.where(habits.visit_minute < 700, np.float32(400), np.float32(0))  # every night until the first visit
    habits = replace(habits, visit_early=night)
    found = []
    for minute in (500.0, 1000.0):
        at = replace(visits, minute=np.full(len(visits), minute), early=np.full(len(visits), 300.0))
        found.append(terms_of((habits, *others, visits), at)["silence"])
    weekday = visits.weekday < 5
    assert (found[1] > found[0] + 0.5)[weekday].all()
    assert not terms_of(world, visits)["silence"].any()
    hidden = replace(visits, silent=np.where(visits.duration > 100, 60.0, 0.0))
    assert ((terms_of(world, hidden)["silence"] > 0) == (visits.duration > 100)).all()


def test_silence_has_no_part_in_the_score():
    assert not any("silence" in terms for terms in LOOKS.values())


def test_unseen_starts_hardly_change_what_is_learnt(world):
    habits, population, recurrence, visits = world
    plain = terms_of(world, visits)
    odd = np.arange(len(habits.visit_minute)) % 3 == 0
    wrong = np.where(odd, (habits.visit_minute + 300) % 1440, habits.visit_minute)
    gaps = np.where(odd, np.float32(np.inf), np.float32(0))
    polluted = replace(habits, visit_minute=wrong)
    careful = replace(polluted, visit_early=gaps)
    rest = (population, recurrence, visits)
    away = [np.nanmean(np.abs(terms_of((h, *rest), visits)["start"] - plain["start"])) for h in (polluted, careful)]
    assert away[1] < 0.25 * away[0]


def test_what_was_observed_comes_back_from_tables_and_bytes():
    table = with_gaps(make_routine(seed=4, agents=1, days=10))
    visits = read_visits(table, SCHEMA, Frame.fit(table, SCHEMA))
    habits = Habits.fit(visits)
    log = unpack_log(pack_log(log_rows(visits)))
    for back in (Habits.from_table(habits.to_table()), unpack_habits(pack_habits(habits), 0)):
        for name in ("visit_early", "visit_late", "visit_silent"):
            np.testing.assert_array_equal(getattr(back, name), getattr(habits, name))
    for name in NO_GAPS:
        np.testing.assert_array_equal(getattr(as_visits(log, 0), name), getattr(visits, name).astype(np.float32))
    older = habits.to_table().drop_columns(["visit_early", "visit_late", "visit_silent"])
    assert not Habits.from_table(older).visit_early.any()


def test_logs_written_before_gaps_were_known_are_read():
    table = make_routine(seed=4, agents=1, days=5)
    log = log_rows(read_visits(table, SCHEMA, Frame.fit(table, SCHEMA)))
    names = [name for name in log.dtype.names if name not in NO_GAPS]
    old = zlib.compress(b"".join(np.ascontiguousarray(log[name]).tobytes() for name in names))
    np.testing.assert_array_equal(unpack_log(old, with_length=False), log)


def test_the_memory_network_takes_unseen_times_at_their_likeliest(world):
    habits, *_, visits = world
    rng = np.random.default_rng(5)
    seen = moved(visits, 0.0, 0.0)
    part = replace(seen, early=np.where(rng.random(len(visits)) < 0.5, 200.0, 0.0), late=np.full(len(visits), 90.0))
    data = MemoryTensors(OwnPlaces.fit(habits, 4), habits, part)
    logs = [torch.from_numpy(rng.normal(size=(3, len(visits), n))).log_softmax(-1) for n in (48, 32)]
    every = torch.arange(len(visits))
    start, duration = logs[0][:, every, data.start], logs[1][:, every, data.duration]
    outlook = Outlook(start, start, duration, start, start, *logs)
    found = at_most_usual(outlook, data, every)
    for i in range(len(visits)):
        first = [int((part.minute[i] - back) % 1440 // 30) for back in np.arange(0, part.early[i] + 1)]
        longest = [int(_bins(part.duration[i : i + 1] + m, 32)[0]) for m in np.arange(0, part.early[i] + 91)]
        for values, bins, got in ((logs[0], first, found.start), (logs[1], longest, found.duration)):
            best = max((float(values[:, i, b].exp().mean()), b) for b in bins)[1]
            assert got[:, i].tolist() == values[:, i, best].tolist()
    whole = MemoryTensors(OwnPlaces.fit(habits, 4), habits, seen)
    assert at_most_usual(outlook, whole, every) is outlook
