"""Micro-batches have the scores and leave the states of one event at a time, whatever the order and the sizes."""

import random
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moving_world import FIRST_DAY, KNOWN, assert_same, disorderly, make
from whole_scores import with_history

from ustad.events.visits import read_visits
from ustad.habits.history import Habits
from ustad.habits.leaving import visit_ends
from ustad.habits.side_by_side import side_by_side
from ustad.live.habit_live import HabitLive
from ustad.tables import DataError

SINCE = FIRST_DAY + KNOWN
AGENTS = 3


@pytest.fixture(scope="module", params=["none", "memory"])
def world(request):
    model, before, _ = make(request.param, agents=AGENTS)
    return with_history(model, absorb_after=7), before


def begin(world):
    live = HabitLive(world[0], since=SINCE, reasons="all")
    live.warm(world[1])
    return live


def in_any_order(seed, interleaving, events=60):
    """Stays of three people and of a stranger, each in order, interleaved."""
    rows = disorderly(seed, AGENTS, events).to_pylist()
    rows += [{**row, "agent_id": 77} for row in disorderly(seed + 9, 1, events // 3).to_pylist()]
    waiting = {agent: [row for row in rows if row["agent_id"] == agent] for agent in (*range(AGENTS), 77)}
    ordered = []
    while any(waiting.values()):
        ordered.append(waiting[interleaving.choice([a for a, own in waiting.items() if own])].pop(0))
    return ordered


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 3), chance=st.integers(0, 99), most=st.sampled_from([2, 7, 40, 400]))
def test_scores_and_states_are_those_of_one_at_a_time(world, seed, chance, most):
    order = random.Random(chance)
    rows, alone, together = in_any_order(seed, order), begin(world), begin(world)
    expected, scores = [alone.update(row) for row in rows], []
    while len(scores) < len(rows):
        scores += together.update_many(rows[len(scores) : len(scores) + order.randint(1, most)])
    for one, other in zip(expected, scores, strict=True):
        assert_same(one, other)
    for agent in (*range(AGENTS), 77):
        assert alone.to_bytes(agent) == together.to_bytes(agent)
    assert max(len(entry.state.own or b"") for entry in together._entries.values()) > 0  # histories moved on


def test_where_one_event_is_refused_none_of_the_batch_was_counted(world):
    rows, live, untouched = in_any_order(1, random.Random(5)), begin(world), begin(world)
    first, batch = rows[:30], rows[30:60]
    assert len(live.update_many(first)) == len(untouched.update_many(first)) == 30
    late = next(row for row in rows if row["agent_id"] == batch[-1]["agent_id"])
    with pytest.raises(DataError, match="send them in order"):
        live.update_many([*batch, late])
    agents = {row["agent_id"] for row in first}
    assert all(live.to_bytes(agent) == untouched.to_bytes(agent) for agent in agents)
    for one, other in zip(untouched.update_many(batch), live.update_many(batch), strict=True):
        assert_same(one, other)


def test_nothing_to_score_is_no_rows(world):
    assert begin(world).update_many([]) == []


def test_histories_side_by_side_are_the_history_of_all(world):
    judge, before = world
    model = judge.history
    whole = Habits.fit(read_visits(before, model.schema, model.frame))
    parts = [whole.only([entity]) for entity in (*whole.entity_ids.tolist(), "a stranger")]
    joined = side_by_side(parts[::-1])
    for field in fields(Habits):
        np.testing.assert_array_equal(getattr(joined, field.name), getattr(whole, field.name), err_msg=field.name)
    worked_out = [name for name in joined.__dict__ if name not in {field.name for field in fields(Habits)}]
    assert len(worked_out) == 10
    for name in worked_out[:-1]:
        np.testing.assert_array_equal(joined.__dict__[name], getattr(whole, name), err_msg=name)
    for one, other in zip(joined.__dict__[worked_out[-1]], visit_ends(whole), strict=True):
        np.testing.assert_array_equal(one, other)
