"""Live, the event before is known: what is said of leaving it is what bulk says, alone, together and from bytes."""

import re
import sys
from pathlib import Path

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from moving_world import KNOWN, SCHEMA, disorderly, make
from routine_stays import FIRST_DAY, between, make_routine, with_gaps
from whole_scores import score_by_habits

from ustad.judges import learn_from
from ustad.live.habit_live import HabitLive

SINCE = FIRST_DAY + KNOWN


def by_time(table):
    return sorted(table.to_pylist(), key=lambda row: (row["started_at"], row["agent_id"]))


def surprise_of(row):
    return {one["name"]: one["surprise"] for one in row["evidence"]}


def check(row, batch):
    assert row["score"] == pytest.approx(batch["score"], abs=1e-6)
    assert surprise_of(row)["left_before"] == pytest.approx(surprise_of(batch)["left_before"], abs=1e-6)
    assert row["reason"] == batch["reason"]


@pytest.fixture(scope="module", params=["plain", "gaps", "disorderly"])
def world(request):
    if request.param == "disorderly":
        model, _, _ = make(agents=3)
        later = disorderly(3)
    else:
        life = make_routine(seed=1, agents=3, days=70, named=request.param == "plain")
        life = with_gaps(life, seed=2) if request.param == "gaps" else life
        days_off = (SINCE + 8,)  # a Tuesday
        model = learn_from(between(life, 0, 21), between(life, 21, KNOWN), SCHEMA, days_off=days_off)
        later = between(life, KNOWN, 70)
    events = score_by_habits(model, later, period=(SINCE, SINCE + 90), reasons="all")[0]
    batch = {row["stay_id"]: row for row in events.to_pylist()}
    assert sum(surprise_of(row)["left_before"] > 0 for row in batch.values()) > 20
    return model, later, batch


def test_one_at_a_time(world):
    model, later, batch = world
    live = HabitLive(model, since=SINCE, reasons="all")
    for row in by_time(later):
        check(live.update(row), batch[row["stay_id"]])


@pytest.mark.parametrize("size", [17, 64])
def test_several_at_once_with_events_of_one_person_behind_one_another(world, size):
    model, later, batch = world
    live, rows = HabitLive(model, since=SINCE, reasons="all"), by_time(later)
    for first in range(0, len(rows), size):
        some = rows[first : first + size]
        for row, found in zip(some, live.update_many(some), strict=True):
            check(found, batch[row["stay_id"]])


def test_from_bytes_after_every_event(world):
    model, later, batch = world
    held = {}
    for row in by_time(later)[:90]:
        live, agent = HabitLive(model, since=SINCE, reasons="all"), row["agent_id"]
        if agent in held:
            live.from_bytes(agent, held[agent])
        check(live.update(row), batch[row["stay_id"]])
        held[agent] = live.to_bytes(agent)


def test_an_event_that_failed_is_not_the_one_before(world, monkeypatch):
    model, later, batch = world
    live = HabitLive(model, since=SINCE, reasons="all")
    for i, row in enumerate(by_time(later)[:60]):
        if i % 3 == 0:
            with monkeypatch.context() as broken:
                broken.setattr("ustad.live.one_judgement.judge_one", lambda *_: 1 / 0)
                with pytest.raises(ZeroDivisionError):
                    live.update({**row, "finished_at": row["started_at"]})
        check(live.update(row), batch[row["stay_id"]])


def test_the_place_and_hour_that_a_reason_says_was_left_are_those_of_the_stay_before(world):
    _, later, batch = world
    before, told = {}, 0
    for row in by_time(later):
        reason, earlier = batch[row["stay_id"]]["reason"], before.get(row["agent_id"])
        said = re.match(r"Left (.+?) at (\d\d:\d\d) and was (.+?) at (\d\d:\d\d)(?: for|\.)", reason)
        if said and row["timezone"] == earlier["timezone"] == "UTC":
            assert said.group(2) == f"{earlier['finished_at']:%H:%M}"
            assert said.group(4) == f"{row['started_at']:%H:%M}"
            assert said.group(1) in {"home", earlier["poi_category"]}, reason
            told += 1
        before[row["agent_id"]] = row
    assert told > 0
    assert pa.Table.from_pylist(list(batch.values()))["kind"].null_count == 0
