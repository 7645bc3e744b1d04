"""Like with like: a holiday is compared with weekend days, in bulk, in parts and live, where holidays are known."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import between, make_routine
from whole_scores import score_by_habits

from ustad.calendar_days import CalendarEvent, find_days_off
from ustad.events.visits import Frame, day_kinds
from ustad.habits.habit_model import HabitModel
from ustad.live.habit_live import HabitLive
from ustad.schema import mobility_schema
from ustad.scoring.habit_judge import HabitJudge
from ustad.tables import TIMESTAMP

FIRST = 19_723  # of the routine, a Monday
HOLIDAY = FIRST + 30  # the Wednesday of the scored week
DAY = 86_400_000_000


@pytest.fixture(scope="module")
def life():
    return make_routine(seed=5)


@pytest.fixture(scope="module")
def judge(life):
    return HabitJudge(HabitModel.fit(between(life, 0, 21), between(life, 21, 28), mobility_schema("none", 16, True)))


@pytest.fixture(scope="module")
def week(life):
    """The week after: on its Wednesday everybody stays at home, from the evening before to the next morning."""
    table = between(life, 28, 35).sort_by([("agent_id", "ascending"), ("started_at", "ascending")])
    start, end = (table[name].cast(pa.int64()).to_numpy() for name in ("started_at", "finished_at"))
    agent, middle = table["agent_id"].to_numpy(), (start + end) // 2 // DAY
    home = np.array(table["poi_category"].to_pylist()) == "Home"
    keep, new_end = np.ones(len(agent), bool), end.copy()
    for who in np.unique(agent):
        before = np.flatnonzero((agent == who) & home & (start // DAY < HOLIDAY))[-1]
        after = np.flatnonzero((agent == who) & (start // DAY > HOLIDAY))[0]
        keep[before + 1 : after] = False
        new_end[before] = (HOLIDAY + 1) * DAY + 8 * 3_600_000_000
    assert (keep & (middle != HOLIDAY)).sum() > 40
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


def test_a_worker_at_home_on_a_holiday_is_unusual_only_where_nobody_knows_of_it(judge, week):
    plain, _ = score_by_habits(judge, week, reasons="all")
    aware, _ = score_by_habits(judge.with_days_off([HOLIDAY]), week, reasons="all")
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


def test_a_day_off_is_compared_alike_in_bulk_in_parts_and_live(judge, week):
    causal = HabitJudge(replace(judge.with_days_off([HOLIDAY]).habits, counting="past"))
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


def test_the_frame_keeps_days_off_and_older_models_have_none():
    frame = Frame(None, ("home",), (3, 9))
    assert Frame.from_dict(frame.to_dict()) == frame
    assert Frame.from_dict({"centre": None, "categories": []}).days_off == ()
    assert "days_off" not in Frame(None, ()).to_dict(), "live states of older models stay valid"


def test_days_off_are_holidays_and_days_of_events_that_are_of_no_one_place():
    events = [CalendarEvent(10, 11, "bridge"), CalendarEvent(20, 20, "fair", 60.0, 25.0)]
    assert find_days_off(None, [], events, 0, 30) == [10, 11]
    assert day_kinds(np.array([[10, 11], [12, 13]]), (11,)).tolist() == [[6, 6], [1, 2]]
