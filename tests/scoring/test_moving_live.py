"""Live, an entity's history moves on as in bulk: the same scores over weeks, also from bytes, in bounded size."""

import json
import re
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from moving_world import DAYS, KNOWN, SCHEMA, disorderly, make, moved_job
from routine_stays import DAY_US, FIRST_DAY, MINUTE_US, between, days_of, make_routine
from whole_scores import score_by_habits, with_history

from ustad.events.visits import Frame, read_visits
from ustad.geo import Projection
from ustad.habits.habit_source import HabitSource
from ustad.habits.history import VISITS_A_PLACE, Habits
from ustad.habits.moving import PLACES_AN_ENTITY
from ustad.live.absorbing import AT_ONCE, MOST_VISITS
from ustad.live.habit_live import LOOKED_AT, HabitLive
from ustad.live.habit_state import MOST_PLACES, HabitState, model_mark
from ustad.live.visit_log import as_visits, log_rows, pack_habits, unpack_habits
from ustad.tables import TIMESTAMP, DataError

SINCE = FIRST_DAY + KNOWN


@pytest.fixture(scope="module", params=[("none", True), ("none", False), ("memory", True)])
def world(request):
    model, before, later = make(*request.param, agents=3)
    agent, day = later["agent_id"].to_numpy(), days_of(later)
    away = (agent == 0) & (day >= KNOWN + 24) & (day < KNOWN + 42)  # for more than two weeks
    fewer = (request.param[0] == "memory") & ((agent == 0) | (day % 2 == 1))  # the network takes its time
    later = later.filter(pa.array(~away & ~fewer))
    events, _ = score_by_habits(model, later, before, reasons="all")
    return model, before, later, {row["stay_id"]: row for row in events.to_pylist()}


@pytest.fixture(scope="module")
def plain():
    return make(agents=3)


def live_of(world, **options):
    live = HabitLive(world[0], since=SINCE, reasons="all", **options)
    live.warm(world[1])
    return live


def rows_of(table, agent=None):
    table = table.sort_by([("agent_id", "ascending"), ("started_at", "ascending")])
    return [row for row in table.to_pylist() if agent is None or row["agent_id"] == agent]


def check(row, batch):
    assert row["score"] == pytest.approx(batch["score"], rel=1e-4, abs=1e-4)
    assert row["reason"] == batch["reason"]
    for name in ("kind", "visits_now", "new_place"):
        assert row[name] == batch[name], name


def test_live_scores_are_those_of_bulk_over_eleven_weeks(world):
    model, _, later, batch = world
    live = live_of(world)
    for row in sorted(rows_of(later), key=lambda row: row["started_at"]):
        check(live.update(row), batch[row["stay_id"]])
    ends = [known.history.habits.last_day for known in live._entries.values()]
    assert min(ends) > model.history.habits.last_day + 28  # all of them have moved


@pytest.mark.parametrize(("seed", "absorb_after"), [(0, 28), (1, 1)])
def test_live_scores_are_those_of_bulk_for_disorderly_lives(plain, seed, absorb_after):
    model = with_history(plain[0], absorb_after=absorb_after)
    table = disorderly(seed)
    events, _ = score_by_habits(model, table, period=(SINCE, SINCE + 90), reasons="all")
    batch = {row["stay_id"]: row for row in events.to_pylist()}
    live = HabitLive(model, since=SINCE, reasons="all")
    for row in rows_of(table):
        check(live.update(row), batch[row["stay_id"]])


@pytest.fixture(scope="module")
def nameless():
    return make(named=False, agents=3)


@pytest.mark.parametrize("all_lost", [False, True])
def test_live_scores_are_those_of_bulk_without_names_where_positions_are_missing(nameless, all_lost):
    model, _, later = nameless
    rows = rows_of(later, 0)[:40]
    for row, kind in zip(rows if all_lost else rows[10:40:5], ["Shop", "Home", "Work", None] * 10, strict=False):
        row.update(lat=None, lon=None, poi_category=kind)
    table = pa.Table.from_pylist(rows, schema=later.schema)
    events, _ = score_by_habits(model, table, period=(SINCE, SINCE + 90), reasons="all")
    live = HabitLive(model, since=SINCE, reasons="all")
    for row, batch in zip(rows, events.to_pylist(), strict=True):
        check(live.update(row), batch)


def test_an_event_without_place_and_length_is_unobserved_live_as_in_bulk(plain):
    model, _, later = plain
    lost = {**later.to_pylist()[0], "finished_at": None, "lat": None, "lon": None, "poi_id": None}
    live, batch = HabitLive(model, since=SINCE), score_by_habits(model, pa.Table.from_pylist([lost], later.schema))[0]
    assert live.update(lost)["kind"] == batch["kind"].to_pylist()[0] == "unobserved"


def test_an_agent_goes_on_from_its_bytes_wherever_it_was(world):
    _, _, later, batch = world
    live = live_of(world)
    for i, row in enumerate(rows_of(later, 1)):
        if i % 5 == 0:
            held = live.to_bytes(1)
            live = live_of(world)
            live.from_bytes(1, held)
            assert live.to_bytes(1) == held
        check(live.update(row), batch[row["stay_id"]])


def test_an_event_that_failed_while_the_history_moved_can_be_sent_again(world, monkeypatch):
    _, _, later, batch = world
    live = live_of(world)
    for i, row in enumerate(rows_of(later, 1)):
        with monkeypatch.context() as broken:
            broken.setattr(HabitSource, "explain_one", lambda *_, **__: 1 / 0)
            for _ in range(i % 4 == 0):
                with pytest.raises(ZeroDivisionError):
                    live.update(row)
        check(live.update(row), batch[row["stay_id"]])


def test_with_absorb_after_zero_nothing_is_held_for_a_history(plain):
    model, _, later = plain
    still = with_history(model, absorb_after=0)
    live = HabitLive(still, since=SINCE, reasons="all")
    events, _ = score_by_habits(still, later, reasons="all")
    batch = {row["stay_id"]: row for row in events.to_pylist()}
    for row in rows_of(later, 0):
        check(live.update(row), batch[row["stay_id"]])
    state = HabitState.from_bytes(live.to_bytes(0))
    assert len(state.log) == min(len(rows_of(later, 0)), LOOKED_AT)  # the latest, among which absences are looked for
    assert state.own is None


def test_who_changed_jobs_is_not_flagged_for_ever(plain):
    model, before, later = plain
    later, there = moved_job(later)
    live = live_of((model, before))
    at = {row["stay_id"]: live.update(row)["new_place"] for row in rows_of(later, 0)}
    day = days_of(later)
    stays = later["stay_id"].to_numpy()
    assert all(at[i] for i in stays[there & (day < KNOWN + 28)])
    assert not any(at[i] for i in stays[there & (day >= KNOWN + 56)])


def busy(days, events, places):
    """An agent with so many events of a minute, at so many places."""
    moment = np.linspace(0, days * 1440 - 2, events).astype(np.int64)
    start = (FIRST_DAY + KNOWN) * DAY_US + moment * MINUTE_US
    place = np.arange(events) % places
    return pa.table(
        {
            "stay_id": pa.array(np.arange(events) + 10**6),
            "agent_id": pa.array(np.zeros(events, np.int64)),
            "started_at": pa.array(start, TIMESTAMP),
            "finished_at": pa.array(start + MINUTE_US, TIMESTAMP),
            "lat": 34 + 0.001 * place,
            "lon": 34 + 0.001 * place,
            "poi_category": ["Shop"] * events,
            "timezone": ["UTC"] * events,
            "poi_id": pa.array(place + 100),
        }
    )


@pytest.mark.parametrize("places", [3, 700])
def test_what_is_held_is_bounded_and_nothing_is_lost_of_a_busy_agent(plain, places):
    live = HabitLive(plain[0], since=SINCE, reasons="none")
    table = busy(49, 5000, places)
    visits = read_visits(table, SCHEMA, plain[0].history.frame)
    known = live._at_hand(0)
    before = int(known.history.habits.place_count.sum())
    for i in range(len(visits)):
        live._move_on(known, visits.take(np.array([i])))
    habits, state = known.history.habits, known.state
    assert len(state.log) <= MOST_VISITS + 1
    assert state.early > habits.last_day > live.history.habits.last_day  # it moved, and then some entered early
    assert np.diff(habits.visit_offsets).max() <= VISITS_A_PLACE
    assert len(habits.place_key) <= PLACES_AN_ENTITY
    assert len(state.counts) <= MOST_PLACES
    if places == 3:
        assert habits.place_count.sum() + len(state.log) == before + len(visits)
        assert sum(state.counts.values()) >= len(state.log) - AT_ONCE
    assert habits.entity_unseen.tolist() == [0]  # it was there all the time
    assert len(live.to_bytes(0)) < 150_000
    last = table.slice(4999).to_pylist()[0]
    assert np.isfinite(live.update({**last, "stay_id": 10**8})["score"])


def test_of_a_busy_newcomer_no_days_are_told_until_a_week_has_entered_its_history(plain):
    live = HabitLive(plain[0], since=SINCE, reasons="all")
    table = busy(20, MOST_VISITS + 2, 3)
    table = table.set_column(1, "agent_id", pa.array(np.full(table.num_rows, 77)))
    visits = read_visits(table, SCHEMA, plain[0].history.frame)
    known = live._at_hand(77)
    for i in range(len(visits) - 1):
        live._move_on(known, visits.take(np.array([i])))
    last = table.slice(len(visits) - 1).to_pylist()[0]
    reason = live.update(last)["reason"]
    assert re.search(rf" Here {-(-AT_ONCE // 3):,} times before[.,]", reason), reason  # not "in the 3 days before"
    elsewhere = {**last, "poi_id": 5, "lat": 35.0}
    assert " First time here: never before, " in live.update(elsewhere)["reason"]


def test_bytes_of_the_version_before_are_read_and_their_weeks_say_nothing(plain):
    model, before, later = plain
    rows = rows_of(later, 1)
    live = live_of((model, before))
    day = {row["stay_id"]: row["started_at"].timestamp() // 86400 - FIRST_DAY for row in rows}
    early = [row for row in rows if day[row["stay_id"]] < KNOWN + 30]
    for row in early:
        live.update(row)
    again = live_of((model, before))
    again.from_bytes(1, as_before(live.to_bytes(1)))
    first, *rest = [row for row in rows if day[row["stay_id"]] >= KNOWN + 30]
    assert again.update(first)["visits_now"] == live.update(first)["visits_now"]
    for row in rest:
        live.update(row)
        again.update(row)
    whole, part = (one._entries[1].history.habits for one in (live, again))
    assert part.last_day == whole.last_day
    assert part.entity_unseen.tolist() == [28]  # the weeks before the change were not held one by one
    assert whole.entity_unseen.tolist() == [0]


def as_before(content, **more):
    """As it was written before histories moved on, or with `more` of it."""
    with pa.ipc.open_stream(pa.BufferReader(content)) as reader:
        table = reader.read_all()
    held = json.loads(table.schema.metadata[b"ustad.habits"])
    kept = {name: held[name] for name in ("counts", "spots")} | {"alone": [], "pending": None}
    table = table.replace_schema_metadata({b"ustad.habits": json.dumps(kept | more).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def other_models(judge):
    """Trained a week longer; of the same day with other kinds of places; of the same day with another centre."""
    frame, habits = judge.history.frame, judge.history.habits
    yield with_history(judge, habits=replace(habits, last_day=habits.last_day + 7))
    yield with_history(judge, frame=replace(frame, categories=("Airport", *frame.categories[1:])))
    yield with_history(judge, frame=replace(frame, projection=Projection(frame.projection.lat + 0.05, 34.0)))


@pytest.mark.parametrize("absorb_after", [28, 0])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_of_another_models_bytes_only_the_recent_events_are_taken_over(plain, which, absorb_after):
    judge, rows = with_history(plain[0], absorb_after=absorb_after), rows_of(plain[2], 1)
    other = list(other_models(judge))[which]
    live = HabitLive(judge, since=SINCE, reasons="all")
    for row in rows[:60]:
        live.update(row)
    since = other.history.habits.last_day + 1
    taken, anew = (HabitLive(other, since=since, reasons="all") for _ in range(2))
    taken.from_bytes(1, live.to_bytes(1))
    with pytest.raises(DataError, match="arrived before"):
        taken.update(rows[10])
    for i, row in enumerate(rows[60:90]):
        found, right = taken.update(row), anew.update(row)
        assert found == right, i
    own = HabitLive(judge, since=SINCE, reasons="all")
    own.from_bytes(1, live.to_bytes(1))
    assert own.update(rows[60]) == live.update(rows[60])


def test_bytes_that_know_their_models_day_alone_are_told_apart_by_it(plain):
    model, _, later = plain
    live = HabitLive(model, since=SINCE)
    for row in rows_of(later, 1)[:40]:
        live.update(row)
    last = model.history.habits.last_day
    by_day = HabitState.from_bytes(as_before(live.to_bytes(1), trained=last))
    assert by_day.counts == live._entries[1].state.counts
    assert by_day.of(live._mark) is by_day
    other = by_day.of(model_mark(last + 7, model.history.frame))
    assert (other.counts, other.recent) == ({}, by_day.recent)


def test_damaged_bytes_are_refused(plain):
    live = HabitLive(plain[0], since=SINCE)
    content = HabitState().to_bytes(lambda rows: pa.Table.from_pylist(rows))
    with pa.ipc.open_stream(pa.BufferReader(content)) as reader:
        table = reader.read_all()
    for name in (b"ustad.visits", b"ustad.own"):
        broken = table.replace_schema_metadata({**table.schema.metadata, name: b"\x00nothing"})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, broken.schema) as writer:
            writer.write_table(broken)
        with pytest.raises(DataError, match="not written by to_bytes"):
            live.from_bytes(0, sink.getvalue().to_pybytes())


def test_forgetting_leaves_nothing_of_what_was_learnt_live(plain):
    model, _, later = plain
    live = HabitLive(model, since=SINCE)
    rows = rows_of(later, 1)
    for row in rows:
        live.update(row)
    assert not live.update({**rows[-1], "stay_id": 10**8})["new_place"]
    live.forget(1)
    assert 1 not in live._entries
    stranger = live.update({**rows[-1], "stay_id": 10**8 + 1})
    assert stranger["new_place"]
    assert len(live._entries[1].history.habits.place_key) == 0


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "America/St_Johns"])
def test_a_log_and_a_history_come_back_from_bytes_as_they_were(zone):
    table = make_routine(seed=3, agents=1, days=9)
    table = table.set_column(table.schema.get_field_index("timezone"), "timezone", pa.array([zone] * table.num_rows))
    visits = read_visits(table, SCHEMA, Frame.fit(table, SCHEMA))
    again = as_visits(log_rows(visits), 0)
    for f in fields(visits):
        if f.name != "row":
            np.testing.assert_array_equal(getattr(again, f.name), getattr(visits, f.name), err_msg=f.name)
    habits = Habits.fit(visits)
    back = unpack_habits(pack_habits(habits), 0)
    for f in fields(habits):
        np.testing.assert_array_equal(getattr(back, f.name), getattr(habits, f.name), err_msg=f.name)
    nobody = unpack_habits(pack_habits(habits.forget([0])), 0)
    assert len(nobody.entity_key) == 0
    assert between(table, 0, DAYS).num_rows == len(visits)
