"""Worker processes have the scores and leave the states of one process; what one of them refuses, none has counted."""

import math
import os
import random
import signal
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moving_world import FIRST_DAY, KNOWN, assert_same, disorderly, make

from ustad import artefact, model_files
from ustad.config import ConfigError
from ustad.live.habit_live import HabitLive
from ustad.live.live_judges import share_live
from ustad.live.sharded_live import ShardedLive
from ustad.live.worker_messages import from_plain, to_plain
from ustad.tables import DataError
from ustad.trip_features import TripFeatures

SINCE = FIRST_DAY + KNOWN
AGENTS = 3


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A small model with a network, in memory and on disk, and what came before it went live."""
    judge, before, _ = make("memory", agents=AGENTS, **{"scoring.absorb_after": 7})
    (network,) = judge.others
    path = tmp_path_factory.mktemp("sharded") / "model"
    with artefact.writing(path) as place:
        model_files.write_encoder(place, network.encoder, network.config, TripFeatures("none"))
        judge.save(place)
        (place / "facts.json").write_text("{}")
    return judge, before, path


@pytest.fixture(scope="module", params=[1, 2])
def sharded(world, request):
    """So many worker processes. Each start takes seconds, so what starts some again is tested with two alone."""
    live = ShardedLive(world[2], world[0], request.param, SINCE, reasons="all", most=1000)
    live.warm(world[1])
    yield live
    live.close()


TWO = pytest.mark.parametrize("sharded", [2], indirect=True)


@pytest.fixture
def both(world, sharded):
    """One process and workers, where nobody has come yet."""
    alone = HabitLive(world[0], since=SINCE, reasons="all")
    alone.warm(world[1])
    for agent in range(100):
        if agent in sharded._states or sharded.missing(agent):
            sharded.from_bytes(agent, alone.to_bytes(50))
    return alone, sharded


def rows_of(seed, events=24):
    """Stays of three people and of a stranger, in the order of their times."""
    rows = disorderly(seed, AGENTS, events).to_pylist()
    rows += [{**row, "agent_id": 77} for row in disorderly(seed + 9, 1, events).to_pylist()]
    return sorted(rows, key=lambda row: row["started_at"])


def assert_same_states(alone, sharded):
    for agent in (*range(AGENTS), 77):
        assert alone.to_bytes(agent) == sharded.to_bytes(agent)


def test_scores_and_states_are_those_of_one_process(both):
    alone, sharded = both
    rows, sizes, at = rows_of(1), random.Random(3), 0
    while at < len(rows):
        batch = rows[at : at + sizes.randint(1, 20)]
        assert_same(sharded.update_many(batch), alone.update_many(batch))
        at += len(batch)
    assert_same_states(alone, sharded)
    assert any(alone._entries[agent].state.own for agent in range(AGENTS))  # histories moved on


def test_where_one_event_is_refused_no_process_has_counted_any(both):
    alone, sharded = both
    rows = rows_of(2)
    first, later = rows[:20], rows[20:]
    assert_same(sharded.update_many(first), alone.update_many(first))
    with pytest.raises(DataError, match="in order"):
        sharded.update_many([*later[:10], {**first[0], "agent_id": first[-1]["agent_id"]}])
    assert_same_states(alone, sharded)
    with pytest.raises(DataError, match="needs 'agent_id'"):
        sharded.update({"started_at": later[0]["started_at"]})
    assert_same(sharded.update_many(later), alone.update_many(later))


@TWO
def test_a_process_that_was_killed_goes_on_where_it_was(both):
    alone, sharded = both
    rows = rows_of(3)
    sharded.update_many(rows[:30]), alone.update_many(rows[:30])
    before = sharded.pids
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    with pytest.warns(UserWarning, match="ended and is started again"):
        again = sharded.update_many(rows[30:])
    assert_same(again, alone.update_many(rows[30:]))
    assert_same_states(alone, sharded)
    assert not set(before) & set(sharded.pids)


@TWO
def test_a_forgotten_agent_is_a_stranger_after_a_new_start_too(world, both):
    alone, sharded = both
    rows = rows_of(4)
    alone.forget(0)
    sharded.forget(0)
    assert_same(sharded.update_many(rows[:20]), alone.update_many(rows[:20]))
    os.kill(sharded.pids[0], signal.SIGKILL)
    with pytest.warns(UserWarning, match="started again"):
        again = sharded.update_many(rows[20:])
    assert_same(again, alone.update_many(rows[20:]))


def test_the_quietest_are_let_go_and_come_back_from_their_bytes(both):
    alone, sharded = both
    rows = [row for row in rows_of(5) if row["agent_id"] in (1, 2)]
    agent = rows[0]["agent_id"]
    first, others = [r for r in rows if r["agent_id"] == agent], [r for r in rows if r["agent_id"] != agent]
    assert_same(sharded.update_many(first[:5]), alone.update_many(first[:5]))
    content, sharded.most = sharded.to_bytes(agent), 1
    sharded.update_many(others)
    sharded.most = 1000
    assert sharded.missing(agent)
    assert len(sharded) == 1
    for refused in (lambda: sharded.update(first[5]), lambda: sharded.to_bytes(agent)):
        with pytest.raises(DataError, match="was let go"):
            refused()
    sharded.from_bytes(agent, content)
    assert_same(sharded.update_many(first[5:]), alone.update_many(first[5:]))


def test_bytes_of_others_are_refused(sharded):
    with pytest.raises(DataError, match="not written by to_bytes"):
        sharded.from_bytes(0, b"something")


def test_only_models_of_habits_and_one_process_or_more(world):
    with pytest.raises(ConfigError, match="1 or more, got 0"):
        ShardedLive(world[2], world[0], 0)
    with pytest.raises(ConfigError, match="presets best and quick"):
        share_live(object(), world[2], 2, p_value=0.001, most=9)


SPAN = datetime(1900, 1, 1), datetime(2100, 1, 1)
PLAIN = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.dates()
    | st.datetimes(*SPAN)
    | st.datetimes(*SPAN, timezones=st.just(UTC))
)  # fmt: skip


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8))
def test_values_come_back_as_they_were(value):
    assert from_plain(to_plain(value)) == value


def test_what_numpy_has_arrives_as_plain_values_and_other_things_are_refused():
    assert from_plain(to_plain(np.array([1.5, 2.5]))) == [1.5, 2.5]
    assert from_plain(to_plain(np.int64(3))) == 3
    assert math.isnan(from_plain(to_plain(math.nan)))
    assert from_plain(to_plain(date(2026, 5, 1))) == date(2026, 5, 1)
    with pytest.raises(DataError, match="'lat': a Decimal cannot be sent"):
        to_plain(Decimal(1), "lat")
