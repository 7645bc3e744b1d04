"""Lasting changes: ranks and evidence against slow loops, a p-value that holds at any time, a sentence with a date."""

from __future__ import annotations

import dataclasses
import re
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from plain_days import DAY, HISTORY, HOME, MONDAY, SCHEMA, as_events, day_of, learn, learn_town, lives, read

from ustad.habits.lasting import (
    LEAST_DAYS,
    LEVEL,
    PART_SLOTS,
    PARTS,
    bet_on,
    collect_days,
    find_changes,
    lay_out,
    rank_days,
)
from ustad.habits.lasting_words import describe_changes
from ustad.habits.moving import moved_on
from ustad.live.habit_live import HabitLive
from ustad.scoring.adding_judge import AddingJudge
from ustad.scoring.judge import worst_rows

NO_DAYS = np.zeros(0, np.int64)


def test_ranks_are_those_of_a_slow_and_obvious_loop() -> None:
    events = lives(1, range(HISTORY + 14), HISTORY + 3)
    days = (events["started_at"].cast(pa.int64()).to_numpy() // DAY - MONDAY).astype(int)
    frame, habits = learn(events.filter(pa.array(days < HISTORY)))
    life = collect_days(habits, read(frame, events.filter(pa.array(days >= HISTORY))))
    where, numbers = lay_out(
        life.place, life.day, life.minute, life.duration, life.x, life.y, MONDAY, MONDAY + HISTORY + 13
    )
    ranks = rank_days(where, numbers, MONDAY, MONDAY + HISTORY - 1, 7, NO_DAYS)
    for t in range(HISTORY, HISTORY + 14):
        same_kind = [d for d in range(t + 1) if (d % 7 >= 5) == (t % 7 >= 5)]
        for part in range(PARTS):
            slots = slice(part * PART_SLOTS, (part + 1) * PART_SLOTS)
            unlike = {
                d: np.mean([(where[d, slots] != where[o, slots]).mean() for o in same_kind if o != d])
                for d in same_kind
            }
            higher = sum(unlike[d] > unlike[t] + 1e-9 for d in same_kind)
            equal = sum(abs(unlike[d] - unlike[t]) <= 1e-9 for d in same_kind)
            assert higher / len(same_kind) <= ranks[t, part] <= (higher + equal) / len(same_kind)
    assert np.isinf(ranks[:HISTORY]).all()


def test_ranks_of_exchangeable_days_are_uniform_and_evidence_keeps_its_word_looked_at_daily() -> None:
    """Days that are drawn anew from the same places: of 2,000 lives, at most so many are ever told changed."""
    rng = np.random.default_rng(5)
    first, rest = LEAST_DAYS + 9, 42
    ranks, evidence = [], []
    for key in range(2000):
        where = rng.choice(np.array([1, 2, 3], np.uint64), (first + rest, PARTS), p=(0.6, 0.3, 0.1))
        where = np.repeat(where, PART_SLOTS, axis=1)
        numbers = np.stack([rng.integers(3, 7, first + rest), rng.random(first + rest)]).astype(float)
        own = rank_days(where, numbers, MONDAY, MONDAY + first - 1, key, NO_DAYS)
        ranks.append(own[first:])
        evidence.append(bet_on(own, MONDAY, NO_DAYS, np.zeros(4, np.int64)))
    pooled = np.concatenate(ranks)
    pooled = pooled[np.isfinite(pooled[:, 0])]
    for share in (0.05, 0.2, 0.5, 0.8):
        np.testing.assert_allclose((pooled <= share).mean(axis=0), share, atol=0.006)
    # Ville: the chance of ever reaching 1 / p is at most p; three standard errors of 2,000 on top.
    for level in (0.2, 0.05, 0.01):
        share = np.mean(np.array(evidence) >= -np.log10(level))
        assert share <= level + 3 * np.sqrt(level * (1 - level) / len(evidence))
    assert max(evidence) > 0.5  # it is a test, not a constant


def test_a_change_is_told_once_with_its_day_and_does_not_vanish() -> None:
    frame, habits = learn(lives(3, range(HISTORY), None))
    for change in (HISTORY, HISTORY + 7):
        told = set()
        before = 0.0
        for end in (change + 14, change + 28, change + 70):
            later = find_changes(habits, read(frame, lives(3, range(HISTORY, end), change)))
            assert (abs(later.since - MONDAY - change) <= 3).all()
            assert (later.told_day > 0).all()
            assert later.evidence.min() >= before
            before = float(later.evidence.min())
            told.add(tuple(later.told_day.tolist()))
        assert len(told) == 1


def test_nobody_is_told_changed_who_goes_on_as_before_and_history_alone_says_nothing() -> None:
    frame, habits = learn(lives(40, range(HISTORY), None))
    same = find_changes(habits, read(frame, lives(40, range(HISTORY, HISTORY + 42), None)))
    assert (same.told_day > 0).mean() <= LEVEL
    assert not find_changes(habits, read(frame, lives(3, range(HISTORY), None))).evidence.any()


def test_positions_that_scatter_around_own_places_are_no_change() -> None:
    """The history knows the middle of a place; stays at it lie tens of metres around, on every new day."""
    frame, habits = learn(lives(40, range(HISTORY), None))
    later = lives(40, range(HISTORY, HISTORY + 14), None)
    metres = np.random.default_rng(3).normal(0, 20, (2, len(later)))
    for name, values in zip(("lat", "lon"), metres / 111_000, strict=True):
        column = pa.array(later[name].to_numpy() + values)
        later = later.set_column(later.column_names.index(name), name, column)
    scattered = find_changes(habits, read(frame, later))
    plain = find_changes(habits, read(frame, lives(40, range(HISTORY, HISTORY + 14), None)))
    np.testing.assert_array_equal(scattered.evidence, plain.evidence)
    assert (scattered.told_day > 0).mean() <= LEVEL


def test_a_day_that_nobody_observed_is_no_evidence() -> None:
    frame, habits = learn(lives(1, range(HISTORY), None))
    events = lives(1, range(HISTORY, HISTORY + 14), HISTORY)
    assert find_changes(habits, read(frame, events)).told_day[0] > 0
    mornings = events["started_at"].cast(pa.int64()).to_numpy() % DAY == 0
    assert find_changes(habits, read(frame, events.filter(pa.array(mornings)))).told_day[0] == 0


def test_a_history_that_has_moved_on_says_the_same() -> None:
    frame, habits = learn(lives(2, range(HISTORY), None))
    visits = read(frame, lives(2, range(HISTORY, HISTORY + 42), HISTORY + 3))
    early = visits.day < MONDAY + HISTORY + 14
    moved = moved_on(habits, visits.take(early), MONDAY + HISTORY + 13)
    whole = find_changes(habits, visits)
    later = find_changes(moved, visits.take(~early), habits.last_day)
    for field in dataclasses.fields(whole):
        np.testing.assert_array_equal(getattr(later, field.name), getattr(whole, field.name))


def test_more_visits_are_told_with_medians_of_the_days_that_were_observed() -> None:
    frame, habits = learn(lives(1, range(HISTORY), None, out=0.0))
    rows: list[dict[str, object]] = []
    for day in range(HISTORY, HISTORY + 21):
        morning, *rest = day_of(0, day, HOME)
        rows.append(morning)
        if day >= HISTORY + 2:  # of the first two days nothing else is known; from then on work comes in three pieces
            for start in range(9, 18, 3) if rest else ():
                at = (MONDAY + day) * DAY + start * DAY // 24
                rows.append({**rest[0], "started_at": at, "finished_at": at + DAY // 8})
            rows += rest[1:]
    visits = read(frame, as_events(rows))
    changes = find_changes(habits, visits)
    assert changes.told_day[0] > 0
    (text,) = describe_changes(SCHEMA, frame, habits, visits, changes=changes)
    words = r"Since \d November more stays on weekdays: 5 a day instead of 3 a day \(medians\)\."
    assert text is not None
    assert re.fullmatch(words, text), text


@pytest.fixture(scope="module")
def model() -> AddingJudge:
    return learn_town()


def test_the_table_of_agents_says_since_when_and_what(model: AddingJudge) -> None:
    events = lives(12, range(HISTORY, HISTORY + 21), HISTORY + 2, out=0.0)
    judged = model.judge(events)
    scored = events.append_column("incident_id", pa.nulls(len(events), pa.string()))
    scored = scored.append_column("reason", pa.nulls(len(events), pa.string())).append_column(
        "echo", pa.array([False] * len(events))
    )
    agents = model.agent_table(judged, scored, worst_rows(judged.score, judged.entity)).to_pylist()
    for agent in agents:
        day = (agent["changed_since"] - date(1970, 1, 1)).days - MONDAY
        assert abs(day - HISTORY - 2) <= 2
        assert agent["surprise_lasting"] >= -np.log10(LEVEL)
        weekdays = [sum(d % 7 < 5 for d in days) for days in (range(day, HISTORY + 21), range(day))]
        when = f"Since {agent['changed_since'].day} {agent['changed_since']:%B} weekday evenings"
        sentence = rf"{when} at a bar instead of at home: 1[23] of {weekdays[0]}, before (\d) of {weekdays[1]}\."
        assert re.fullmatch(sentence, agent["change"]), agent["change"]


def test_live_says_the_same_with_the_first_event_of_the_next_day(model: AddingJudge) -> None:
    live = HabitLive(model, MONDAY + HISTORY, reasons="none")
    events = lives(1, range(HISTORY, HISTORY + 36), HISTORY + 2)
    day = events["started_at"].cast(pa.int64()).to_numpy() // DAY - MONDAY
    told: dict[int, str] = {}
    for row, at in zip(events.to_pylist(), day.tolist(), strict=True):
        scores = live.update(row)
        if "change" in scores:
            told[at] = scores["change"]
    for at in (HISTORY + 12, HISTORY + 35):  # the second day is one whose history has moved on
        assert told[at] == model.judge(events.filter(pa.array(day < at))).answers[0].facts.change_words[0]
    first = min(told)
    assert first > HISTORY + 2
    assert sorted(told) == list(range(first, HISTORY + 36))
