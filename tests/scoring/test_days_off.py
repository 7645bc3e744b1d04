"""Like with like: a holiday is compared with weekend days, in bulk, in parts and live, where holidays are known."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import between, make_routine
from whole_scores import score_by_habits, with_history

from ustad.calendar_days import Calendar, CalendarEvent
from ustad.events.visits import Frame, day_kinds, read_visits
from ustad.habits.history import Habits
from ustad.habits.usual import remembered_days, usual
from ustad.judges import learn_from
from ustad.live.habit_live import HabitLive
from ustad.schema import mobility_schema
from ustad.tables import TIMESTAMP

FIRST = 19_723  # of the routine, a Monday
HOLIDAY = FIRST + 30  # the Wednesday of the scored week
DAY = 86_400_000_000


@pytest.fixture(scope="module")
def life():
    return make_routine(seed=5)


def learn(life, *days_off):
    parts = (between(life, 0, 21), between(life, 21, 28))
    return learn_from(*parts, mobility_schema("none", 16, True), days_off=days_off)


@pytest.fixture(scope="module")
def judge(life):
    return learn(life)


@pytest.fixture(scope="module")
def aware_judge(life):
    return learn(life, HOLIDAY)


@pytest.fixture(scope="module")
def week(life):
    """The week after, with its Wednesday at home."""
    return stay_at_home(between(life, 28, 35), HOLIDAY)


def stay_at_home(table, holiday):
    """On one day everybody stays at home, from the evening before to the next morning."""
    table = table.sort_by([("agent_id", "ascending"), ("started_at", "ascending")])
    start, end = (table[name].cast(pa.int64()).to_numpy() for name in ("started_at", "finished_at"))
    agent, middle = table["agent_id"].to_numpy(), (start + end) // 2 // DAY
    home = np.array(table["poi_category"].to_pylist()) == "Home"
    keep, new_end = np.ones(len(agent), bool), end.copy()
    for who in np.unique(agent):
        before = np.flatnonzero((agent == who) & home & (start // DAY < holiday))[-1]
        after = np.flatnonzero((agent == who) & (start // DAY > holiday))[0]
        keep[before + 1 : after] = False
        new_end[before] = (holiday + 1) * DAY + 8 * 3_600_000_000
    assert (keep & (middle != holiday)).sum() > 40
    table = table.set_column(table.column_names.index("finished_at"), "finished_at", pa.array(new_end).cast(TIMESTAMP))
    return table.filter(pa.array(keep))


def at_home_that_day(events):
    """Which rows are the stays at home over the holiday."""
    start, end = (events[name].cast(pa.int64()).to_numpy() // DAY for name in ("started_at", "finished_at"))
    return (start < HOLIDAY) & (end > HOLIDAY)


def elsewhere(events):
    """How surprising each event is by where the person is at that hour (−log10 p)."""
    return np.array(
        [next(e["surprise"] for e in one if e["name"] == "elsewhere") for one in events["evidence"].to_pylist()]
    )


def test_a_worker_at_home_on_a_holiday_is_unusual_only_where_nobody_knows_of_it(judge, aware_judge, week):
    plain, _ = score_by_habits(judge, week, reasons="all")
    aware, _ = score_by_habits(aware_judge, week, reasons="all")
    rows = at_home_that_day(week)
    assert rows.sum() == 6
    before, after = (elsewhere(table)[rows] for table in (plain, aware))
    assert (before > 2).all(), "at home at working hours: one usual event in a hundred or fewer"
    assert np.median(after) < 0.75, "as on a weekend day"
    assert (after < 1.5).all()
    assert (plain["score"].to_numpy()[rows] > aware["score"].to_numpy()[rows]).all()
    other = week["started_at"].cast(pa.int64()).to_numpy() // DAY > HOLIDAY + 1
    assert other.sum() > 10
    np.testing.assert_array_equal(plain["score"].to_numpy()[other], aware["score"].to_numpy()[other])


def test_a_day_off_is_compared_alike_in_bulk_in_parts_and_live(judge, aware_judge, week):
    causal = with_history(aware_judge, counting="past")
    period = (FIRST + 28, FIRST + 34)
    whole = score_by_habits(causal, week, period=period)[0]["score"].to_numpy()
    agent = week["agent_id"].to_numpy()
    for part in (agent < 3, agent >= 3):
        alone = score_by_habits(causal, week.filter(pa.array(part)), period=period)[0]["score"].to_numpy()
        np.testing.assert_allclose(alone, whole[part], atol=1e-9)
    live = HabitLive(causal, period[0], reasons="none")
    scores = [live.update(row)["score"] for row in week.to_pylist()]
    np.testing.assert_allclose(scores, whole, atol=1e-6)
    assert np.abs(whole - score_by_habits(judge, week, period=period)[0]["score"].to_numpy()).max() > 0.5


@pytest.mark.parametrize("is_known", [False, True])
def test_a_holiday_in_the_weeks_learnt_from_counts_as_a_weekend_day_where_it_is_known(life, is_known):
    """Everybody is at home on a Wednesday of the second week: 19 days at work, of 19 or of 20 weekdays."""
    holiday = FIRST + 9
    judge = learn(stay_at_home(life, holiday), *([holiday] if is_known else []))
    habits = Habits.from_table(judge.history.habits.to_table())  # as it is stored
    weekdays = [day for day in range(FIRST, FIRST + 28) if (day + 3) % 7 < 5 and not (is_known and day == holiday)]
    assert (remembered_days(habits) == [len(weekdays), 28 - len(weekdays)]).all()
    visits = read_visits(between(life, 28, 29), judge.schema, judge.history.frame)
    at_work = visits.take((visits.minute > 500) & (visits.minute < 600))
    found = usual(habits, at_work, habits.locate(at_work)[0], judge.history.widths)
    assert len(at_work) == 6
    np.testing.assert_allclose(found.share, 19 / len(weekdays))
    np.testing.assert_array_equal(found.of_days, len(weekdays))
    kinds = day_kinds(habits.visit_day, (holiday,) if is_known else ())
    np.testing.assert_array_equal(habits.visit_weekend, kinds >= 5)
    assert (habits.visit_weekday == (habits.visit_day + 3) % 7).all(), "the weekday itself stays what it is"


def test_who_stays_at_home_is_odder_where_the_holiday_learnt_from_is_no_weekday(life, week):
    """One Wednesday at home is known: it excuses the next one only where it counts as a Wednesday."""
    past = stay_at_home(life, FIRST + 9)
    plain, aware = (score_by_habits(learn(past, *days), week)[0] for days in ((), (FIRST + 9,)))
    rows = at_home_that_day(week)
    assert (elsewhere(aware)[rows] > elsewhere(plain)[rows]).all()


def test_live_goes_on_with_days_off_after_its_state_was_stored(aware_judge, week):
    causal = with_history(aware_judge, counting="past")
    whole, stored = (HabitLive(causal, FIRST + 28, reasons="none") for _ in range(2))
    for row in week.filter(pa.array(week["agent_id"].to_numpy() == 2)).to_pylist():
        assert whole.update(row)["score"] == stored.update(row)["score"]
        stored.from_bytes(2, stored.to_bytes(2))


def test_the_frame_keeps_days_off_and_older_models_have_none():
    frame = Frame(None, ("home",), (3, 9))
    assert Frame.from_dict(frame.to_dict()) == frame
    assert Frame.from_dict({"centre": None, "categories": []}).days_off == ()
    assert "days_off" not in Frame(None, ()).to_dict(), "live states of older models stay valid"


def test_days_off_are_holidays_and_days_of_events_that_are_of_no_one_place():
    events = [CalendarEvent(10, 11, "bridge"), CalendarEvent(20, 20, "fair", 60.0, 25.0)]
    assert Calendar(None, tuple(events)).days_off([], 0, 30) == (10, 11)
    assert day_kinds(np.array([[10, 11], [12, 13]]), (11,)).tolist() == [[6, 6], [1, 2]]
