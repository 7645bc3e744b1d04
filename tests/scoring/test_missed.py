"""A visit that was expected and did not come: which, against a slow count, and told in bulk and live with counts."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from plain_days import BAR, DAY, HISTORY, HOME, MONDAY, OFFICE, as_events, day_of, learn, learn_town, lives, read
from whole_scores import facts_of

from ustad.habits import habit_words
from ustad.habits.habit_words import sentences
from ustad.habits.missed import find_missed
from ustad.live.habit_live import HabitLive
from ustad.scoring.adding_judge import AddingJudge

TUESDAY = HISTORY + 1


def at_home(day: int, first: int, last: int) -> dict[str, object]:
    """Home from an hour of a day to another one."""
    start = (MONDAY + day) * DAY
    times = {"started_at": start + first * DAY // 24, "finished_at": start + last * DAY // 24}
    return {"agent_id": 0, "lon": 9.5, **HOME, **times}


def test_the_surest_place_is_that_of_a_slow_count_of_days() -> None:
    history = lives(1, range(HISTORY), None)
    frame, habits = learn(history)
    visits = read(frame, as_events([at_home(TUESDAY, 0, 24)]))
    home = int(habits.locate(visits)[0][0])
    missed = find_missed(habits, visits, 0, home)
    assert missed is not None
    starts, ends = (history[c].cast(pa.int64()).to_numpy() for c in ("started_at", "finished_at"))
    kinds, counts = np.array(history["poi_category"].to_pylist()), {}
    for slot in range(48):
        for kind in ("office", "bar"):
            moments = [(MONDAY + d) * DAY + (2 * slot + 1) * DAY // 96 for d in range(HISTORY) if d % 7 < 5]
            counts[slot, kind] = sum(bool(((starts <= m) & (ends > m) & (kinds == kind)).any()) for m in moments)
    slot, kind = max(counts, key=lambda key: counts[key])
    assert frame.categories[habits.place_category[missed.place] - 1] == kind
    assert (missed.weekday, missed.minute, missed.days) == (1, 30 * slot + 15, 20)
    assert round(missed.share * missed.days) == counts[slot, kind]


def test_nothing_is_missed_by_strangers_at_usual_hours_or_without_a_length() -> None:
    frame, habits = learn(lives(1, range(HISTORY), None))
    usual = read(frame, as_events([at_home(TUESDAY, 0, 9)]))
    assert find_missed(habits, usual, 0, int(habits.locate(usual)[0][0])) is None
    stranger = read(frame, as_events([{**at_home(TUESDAY, 0, 24), "agent_id": 77}]))
    assert find_missed(habits, stranger, 0, -1) is None


@pytest.fixture(scope="module")
def model() -> AddingJudge:
    return learn_town()


def test_an_absence_is_told_with_its_day_and_counts_in_bulk_and_live(model: AddingJudge) -> None:
    events = as_events([*day_of(0, HISTORY, HOME), at_home(TUESDAY, 0, 24)])
    judged = model.judge(events)
    (reason,) = sentences(model.history, *facts_of(judged), events, rows=np.array([3]))
    sentence = "Not at an office on Tuesday; there at 09:15 on 20 of 20 weekdays, 1.1 km away."
    assert sentence in reason
    live = HabitLive(model, MONDAY + HISTORY, reasons="all")
    assert [live.update(row)["reason"] for row in events.to_pylist()][3] == reason
    assert datetime.fromtimestamp((MONDAY + TUESDAY) * 86_400, UTC).strftime("%A") == "Tuesday"


def test_how_sure_counts_the_days_that_the_sentence_counts(model: AddingJudge, monkeypatch) -> None:
    """From Friday morning into Sunday somewhere new: a weekday was missed, the middle of the stay is at a weekend."""
    events = as_events([*day_of(0, HISTORY, HOME), {**at_home(HISTORY + 4, 8, 60), "lat": 51.45, "poi_id": 991}])
    monkeypatch.setattr(habit_words, "find_leaders", lambda *_: ["elsewhere"])
    (reason,) = sentences(model.history, *facts_of(model.judge(events)), events, rows=np.array([3]))
    assert "on 20 of 20 weekdays" in reason
    assert reason.endswith("Sure: 20 weekdays known.")


@pytest.mark.parametrize(("visits", "words"), [(1, "Here once in"), (6, "Usually here from 18:00")])
def test_one_visit_does_not_say_what_is_usual(visits: int, words: str) -> None:
    others = lives(12, range(HISTORY), None)
    mine = as_events([row for day in range(HISTORY) for row in day_of(0, day, BAR if day < visits else HOME)])
    known = pa.concat_tables(
        [others.filter(pa.array(others["agent_id"].to_numpy() > 0)), mine.select(others.column_names)]
    )
    model, events = learn_town(known), as_events(day_of(0, HISTORY, BAR))
    (reason,) = sentences(model.history, *facts_of(model.judge(events)), events, rows=np.array([2]))
    assert words in reason
    assert ("Usually here" in reason or "They come here" in reason) == (visits > 1)


def test_a_first_visit_to_a_kind_that_people_seldom_begin_with_is_said_in_bulk_and_live(
    model: AddingJudge, monkeypatch
) -> None:
    """An office that nobody goes to for the first time; at their own office nothing is said of it."""
    first = {**at_home(HISTORY, 18, 20), **OFFICE, "lat": 51.45, "poi_id": 991}
    events = as_events([*day_of(0, HISTORY, HOME)[:2], first])
    judged = model.judge(events)
    assert np.flatnonzero(judged.surprise["new_kind"] > 0).tolist() == [2]
    monkeypatch.setattr(habit_words, "find_leaders", lambda *_: ["distance", "new_kind"])
    reasons = sentences(model.history, *facts_of(judged), events, rows=np.arange(3))
    assert ["People seldom go to an office for the first time." in text for text in reasons] == [False, False, True]
    live = HabitLive(model, MONDAY + HISTORY, reasons="all")
    assert [live.update(row)["reason"] for row in events.to_pylist()] == reasons
