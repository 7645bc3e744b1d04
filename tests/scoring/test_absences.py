"""Visits that were nearly certain and did not come: which, and which not; silence is none; parts as the whole."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from plain_days import BAR, DAY, HISTORY, HOME, MONDAY, OFFICE, as_events, day_of, learn_town, lives
from whole_scores import with_history

from ustad.live.habit_live import HabitLive
from ustad.scoring.adding_judge import AddingJudge
from ustad.scoring.judge import Request
from ustad.scoring.scored_parts import ScoredParts, score_whole
from ustad.tables import ABSENCES, validate

TUESDAY = HISTORY + 1
HOUR = DAY // 24


def stay(day: int, first: float, last: float, place: dict[str, object] = HOME, agent: int = 0) -> dict[str, object]:
    start = (MONDAY + day) * DAY
    times = {"started_at": start + int(first * HOUR), "finished_at": start + int(last * HOUR)}
    return {"agent_id": agent, "lon": 9.5, **place, **times}


def two_days(tuesday: list[dict[str, object]]) -> pa.Table:
    """A plain Monday, this Tuesday and a plain Wednesday of agent 0."""
    return as_events([*day_of(0, HISTORY, HOME), *tuesday, *day_of(0, TUESDAY + 1, HOME)])


@pytest.fixture(scope="module")
def model() -> AddingJudge:
    return learn_town()


def find_absences(model: AddingJudge, events: pa.Table) -> list[dict[str, object]]:
    return score_whole(model, events).absences.to_pylist()


def test_a_day_at_home_is_an_absence_from_work_with_its_day_counts_and_the_stay_that_took_its_place(
    model: AddingJudge,
) -> None:
    (absence,) = find_absences(model, two_days([stay(TUESDAY, 0, 24)]))
    assert absence["reason"] == "Not at an office on Tuesday; there at about 13:30 on 20 of 20 weekdays."
    assert (absence["share"], absence["days"], absence["poi_category"]) == (1.0, 20, "office")
    start = (MONDAY + TUESDAY) * DAY
    assert absence["expected_from"].timestamp() * 1e6 == start + 9 * HOUR
    assert absence["expected_until"].timestamp() * 1e6 == start + 18 * HOUR
    assert absence["instead_stay_id"] == 3
    assert absence["p_value"] < 0.05
    assert absence["surprise"] == pytest.approx(-np.log10(absence["p_value"]))


@pytest.mark.parametrize(
    "tuesday",
    [
        day_of(0, TUESDAY, BAR),
        [stay(TUESDAY, 0, 12), stay(TUESDAY, 12, 13, OFFICE), stay(TUESDAY, 13, 24)],
        [stay(TUESDAY, 0, 17.5), stay(TUESDAY, 18.5, 19, OFFICE), stay(TUESDAY, 19, 24)],
        [stay(TUESDAY, 0, 9)],
        [stay(TUESDAY, 0, 9), stay(TUESDAY, 17, 24)],
        [{**stay(TUESDAY, 0, 24), "observed_s": 8 * 3600.0}],
        [{**stay(TUESDAY, 0, 9), "end_gap_s": 9 * 3600.0}, {**stay(TUESDAY, 12, 24), "start_gap_s": 7 * 3600.0}],
    ],
    ids=["usual", "for an hour", "late", "no data", "no data at work", "a silent stay", "unseen ends"],
)
def test_a_visit_that_came_or_may_have_come_unseen_is_no_absence(
    model: AddingJudge, tuesday: list[dict[str, object]]
) -> None:
    unseen = dict.fromkeys(("observed_s", "start_gap_s", "end_gap_s"))
    events = as_events([{**unseen, **row} for row in (*day_of(0, HISTORY, HOME), *tuesday, stay(TUESDAY + 1, 0, 9))])
    assert find_absences(model, events) == []


def test_an_absence_is_raised_with_the_event_that_shows_it_and_never_changes(model: AddingJudge) -> None:
    events = as_events([*day_of(0, HISTORY, HOME), stay(TUESDAY, 0, 11), stay(TUESDAY, 11, 18, BAR),
                        stay(TUESDAY, 18, 24), *day_of(0, TUESDAY + 1, HOME)])  # fmt: skip
    raised = [find_absences(model, events.slice(0, n)) for n in range(1, len(events) + 1)]
    assert [len(rows) for rows in raised] == [0] * 5 + [1] * 4
    assert all(rows == raised[5] for rows in raised[5:])
    assert raised[5][0]["instead_stay_id"] == 4


def test_strangers_and_models_without_absences_have_none(model: AddingJudge) -> None:
    stranger = as_events([stay(TUESDAY + day, 0, 24, agent=77) for day in range(3)])
    assert find_absences(model, stranger) == []
    older = replace(model, beside={})
    assert score_whole(older, stranger).absences is None


def test_parts_and_any_order_of_events_have_the_absences_of_the_whole(model: AddingJudge) -> None:
    days = range(HISTORY, HISTORY + 60)  # histories move on
    events = lives(5, days, None)
    skipped = (np.arange(len(events)) % 13 == 0) & (np.array(events["poi_category"].to_pylist()) == "office")
    events = events.filter(pa.array(~skipped))
    whole = score_whole(model, events).absences
    assert whole.num_rows == 0  # nobody was seen elsewhere
    at_bar = pa.array(np.where(skipped, 3, lives(5, days, None)["poi_id"].to_numpy()))
    table = lives(5, days, None)
    table = table.set_column(table.column_names.index("poi_id"), "poi_id", at_bar)
    whole = score_whole(model, table).absences
    assert whole.num_rows >= 5
    validate(whole, ABSENCES)
    parts = ScoredParts(model, table, None, Request(), entities=2)
    assert pa.concat_tables([part.absences for part in parts]).equals(whole)
    mixed = table.take(pa.array(np.random.default_rng(3).permutation(len(table))))
    assert score_whole(model, mixed).absences.equals(whole)


@pytest.mark.parametrize(("absorb_after", "days"), [(28, 42), (0, 14)])
def test_live_raises_the_absences_of_a_batch_with_the_events_that_show_them(
    model: AddingJudge, absorb_after: int, days: int
) -> None:
    judge = with_history(model, absorb_after=absorb_after)
    table = lives(1, range(HISTORY, HISTORY + days), None)
    at_bar = (np.arange(len(table)) % 11 == 1) & (table["poi_id"].to_numpy() == 2)
    table = table.set_column(
        table.column_names.index("poi_id"), "poi_id", pa.array(np.where(at_bar, 3, table["poi_id"].to_numpy()))
    )
    bulk = score_whole(judge, table).absences
    live, rows = HabitLive(judge, MONDAY + HISTORY, reasons="none"), []
    for number, event in enumerate(table.sort_by("started_at").to_pylist()):
        if number % 7 == 0:  # a restart
            live.from_bytes(event["agent_id"], live.to_bytes(event["agent_id"]))
        absences = live.update(event).get("absences", [])
        assert all(absence["expected_until"] < event["finished_at"] for absence in absences)
        rows += [{"agent_id": event["agent_id"], **absence} for absence in absences]
    assert len(rows) == bulk.num_rows > 0
    told = sorted(rows, key=lambda row: (row["agent_id"], row["expected_from"]))
    for one, other in zip(told, bulk.to_pylist(), strict=True):
        for name in one.keys() - {"instead_stay_id"}:
            assert one[name] == pytest.approx(other[name]) if isinstance(one[name], float) else one[name] == other[name]
