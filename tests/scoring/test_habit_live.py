"""Live scores by habits equal batch scores, in any interleaving."""

import re
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import FIRST_DAY, between, insert_visit, make_routine, with_gaps
from whole_scores import fit_judge, score_by_habits, with_history

from ustad.config import Config, ConfigError
from ustad.events.encoder import Encoder
from ustad.habits.habit_source import HabitSource
from ustad.habits.questions import LOOKS
from ustad.live.habit_live import HabitLive
from ustad.live.habit_state import MOST_PLACES, HabitState
from ustad.network.live import memory_live
from ustad.schema import mobility_schema
from ustad.tables import DataError

SMALL = {
    "model.width": 8, "model.heads": 2, "model.event_blocks": 1, "training.epochs": 1, "training.batch_size": 128,
    "scoring.samples": 2, "window.mode": "past",
}  # fmt: skip
PERIOD = (FIRST_DAY + 28, FIRST_DAY + 34)


def make(network, named=True, seen=True, **changes):
    life = make_routine(seed=1, agents=5, days=35, named=named)
    life = life if seen else with_gaps(life)
    config = Config.preset("best").replace({**SMALL, "model.network": network, **changes})
    train, validation = between(life, 0, 21), between(life, 21, 28)
    encoder = Encoder.fit(train, mobility_schema("none", 16, True, config.model.ends_seen))
    week = between(life, 28, 32)
    for day in (29, 30, 31):
        week = insert_visit(week, 2, day, 1350, minutes=40)
    return (
        fit_judge(train, validation, encoder, config, torch.device("cpu")),
        pa.concat_tables([train, validation]),
        week,
    )


@pytest.fixture(
    scope="module",
    params=[("none", True), ("none", False), ("none", True, False, True), ("memory", True, False)],
    ids=["named", "unnamed", "gaps and silence", "memory"],
)
def world(request):
    network, named, seen, silence = (*request.param, True, False)[:4]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HabitSource, "looks", {**LOOKS, **({"silence": ("silence",)} if silence else {})})
        model, before, week = make(network, named, seen)
    events, _ = score_by_habits(model, week, before, period=PERIOD, reasons="all")
    return model, before, week, {r["stay_id"]: r for r in events.to_pylist()}


def played(world, seed):
    """Rows by stay, when the agents' events come mixed with each other's."""
    model, before, week, _ = world
    live = HabitLive(model, since=PERIOD[0], reasons="all")
    live.warm(before)
    waiting = {}
    for row in week.sort_by([("agent_id", "ascending"), ("started_at", "ascending")]).to_pylist():
        waiting.setdefault(row["agent_id"], []).append(row)
    rows = {}
    turns = [agent for agent, rows in waiting.items() for _ in rows]
    np.random.default_rng(seed).shuffle(turns)
    for agent in turns:
        row = waiting[agent].pop(0)
        rows[row["stay_id"]] = live.update(row)
    return rows


@settings(max_examples=3, deadline=None)
@given(st.integers(0, 2**32))
def test_live_equals_batch_in_any_interleaving(world, seed):
    rows, batch = played(world, seed), world[3]
    assert set(rows) == set(batch)
    for stay, row in rows.items():
        assert row["score"] == pytest.approx(batch[stay]["score"], rel=1e-4, abs=1e-4)
        assert row["final"] is batch[stay]["final"] is True
        assert row["kind"] == batch[stay]["kind"]
        assert row["reason"] == batch[stay]["reason"]
        for name in ("uncertainty_noise", "uncertainty_model"):
            known = batch[stay][name]
            assert row[name] == (None if known is None else pytest.approx(known, rel=1e-3, abs=1e-6))
        live, bulk = ({e["name"]: e for e in one["evidence"]} for one in (row, batch[stay]))
        assert set(live) == set(bulk)
        for name, entry in live.items():
            known = [what for what, value in bulk[name].items() if value is not None and what != "name"]
            assert known == [what for what, value in entry.items() if value is not None and what != "name"]
            wanted = [bulk[name][what] for what in known]
            assert [entry[what] for what in known] == pytest.approx(wanted, rel=1e-3, abs=1e-4), name


def test_an_event_that_failed_can_be_sent_again_and_counts_once(world, monkeypatch):
    model, before, week, _ = world
    rows = week.filter(pa.array(week["agent_id"].to_numpy() == 2)).sort_by("started_at").to_pylist()
    straight, shaken = (HabitLive(model, since=PERIOD[0], reasons="all") for _ in range(2))
    straight.warm(before)
    shaken.warm(before)
    for row in rows:
        with monkeypatch.context() as broken:
            broken.setattr(HabitSource, "explain_one", lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                shaken.update(row)
        expected, found = straight.update(row), shaken.update(row)
        assert found["visits_now"] == expected["visits_now"]
        assert found["score"] == pytest.approx(expected["score"], rel=1e-5, abs=1e-5)


def test_the_compiled_network_answers_as_the_tensors_of_any_device_do(world):
    model, before, week, _ = world
    if model.source("network") is None:
        return
    compiled, by_tensors = (HabitLive(model, since=PERIOD[0]) for _ in range(2))
    by_tensors.others[0].compiled = None
    rows = week.sort_by("started_at").to_pylist()
    stranger = [{**row, "agent_id": 99, "stay_id": -1 - i} for i, row in enumerate(rows[:3])]
    nowhere = {**rows[-1], "stay_id": -9, "lat": None, "lon": None, "poi_id": None, "finished_at": None}
    for live in (compiled, by_tensors):
        live.warm(before)
    for row in [*rows, *stranger, nowhere]:
        answer, expected = (
            {e["name"]: e["surprise"] for e in live.update(row)["evidence"]} for live in (compiled, by_tensors)
        )
        assert answer == pytest.approx(expected, abs=1e-5)


def test_threads_answer_for_a_micro_batch_as_one_does(world):
    model, before, week, _ = world
    if model.source("network") is None:
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    in_threads = HabitLive(model, since=PERIOD[0])
    torch.set_num_threads(1)
    in_one = HabitLive(model, since=PERIOD[0])
    torch.set_num_threads(threads)
    rows = week.sort_by("started_at").to_pylist()
    for live in (in_threads, in_one):
        live.warm(before)
    answer, same = ([row["score"] for row in live.update_many(rows)] for live in (in_one, in_threads))
    assert same == answer


def test_maps_of_own_places_are_kept_of_the_entities_asked_about_last(world, monkeypatch):
    model, _, week, _ = world
    if model.source("network") is None:
        return
    monkeypatch.setattr(memory_live, "MOST_MAPS", 2)
    live, all_kept = (HabitLive(model, since=PERIOD[0]) for _ in range(2))
    for row in week.sort_by("started_at").to_pylist():
        score = live.update(row)["score"]
        with monkeypatch.context() as more:
            more.setattr(memory_live, "MOST_MAPS", 512)
            assert score == pytest.approx(all_kept.update(row)["score"], abs=1e-6)
    assert sum(entry.windows[0].maps is not None for entry in live._entries.values()) == 2
    assert all(entry.windows[0].maps is not None for entry in all_kept._entries.values())


def test_the_network_is_asked_without_a_table_and_with_one_to_the_same_score(world, monkeypatch):
    model, before, week, _ = world
    if model.source("network") is None:
        return
    rows = week.filter(pa.array(week["agent_id"].to_numpy() == 2)).sort_by("started_at").to_pylist()
    plain, by_table = (HabitLive(model, since=PERIOD[0]) for _ in range(2))
    monkeypatch.setattr(by_table.others[0]._rows, "encode", lambda *_: None)
    for live in (plain, by_table):
        live.warm(before)
        live.update(rows[0])  # the window is begun from a table of earlier events
    for row in rows[1:]:
        expected = by_table.update(row)["score"]
        with monkeypatch.context() as without:
            without.setattr(Encoder, "encode", lambda *_: 1 / 0)
            assert plain.update(row)["score"] == pytest.approx(expected, abs=1e-6)


def test_each_agent_is_warmed_with_its_own_latest_events(world):
    live = HabitLive(world[0], since=PERIOD[0])
    live.warm(world[1])
    if not live.others:
        assert not live._context
        return
    most = live.others[0].most_events
    for agent in range(5):
        own = world[1].filter(pa.array(world[1]["agent_id"].to_numpy() == agent)).sort_by("started_at")
        assert live._context[agent]["stay_id"].to_pylist() == own["stay_id"].to_pylist()[-most:]


def test_events_out_of_order_and_without_an_agent_are_refused(world):
    live = HabitLive(world[0], since=PERIOD[0])
    first, second = world[2].filter(pa.array(world[2]["agent_id"].to_numpy() == 1)).slice(0, 2).to_pylist()
    live.update(second)
    with pytest.raises(DataError, match="before its agent's previous one"):
        live.update(first)
    with pytest.raises(DataError, match="needs 'agent_id'"):
        live.update({k: v for k, v in first.items() if k != "agent_id"})


def test_a_forgotten_agent_is_a_stranger(world):
    live = HabitLive(world[0], since=PERIOD[0])
    row = world[2].to_pylist()[0]
    known = live.update(row)
    live.forget(row["agent_id"])
    assert len(live) == 0
    assert not known["new_place"]
    assert live.update(row)["new_place"]


def test_state_is_bounded(world):
    live = HabitLive(world[0], since=PERIOD[0], most=2)
    rows = world[2].sort_by([("agent_id", "ascending"), ("started_at", "ascending")]).to_pylist()
    held = {}
    for row in rows:
        live.update(row)
        held[row["agent_id"]] = live.to_bytes(row["agent_id"])
    assert len(live) == 2
    assert max(len(content) for content in held.values()) < 20_000
    assert live.missing(0)
    with pytest.raises(DataError, match="was let go; bring it back"):
        live.update(rows[0])
    live.from_bytes(0, held[0])
    assert not live.missing(0)
    again = live.update({**[r for r in rows if r["agent_id"] == 0][-1], "stay_id": 10**9})
    assert again["visits_now"] > 1  # it did not start from zero
    state = HabitState()
    for key in range(2 * MOST_PLACES):
        state.count(key)
    assert len(state.counts) == MOST_PLACES
    assert state.count(2 * MOST_PLACES - 1) == 2  # the latest are kept, the oldest went


def test_an_agent_goes_on_from_its_bytes_as_if_nothing_had_happened(world):
    model, before, week, _ = world
    rows = week.filter(pa.array(week["agent_id"].to_numpy() == 2)).sort_by("started_at").to_pylist()
    straight, broken = (HabitLive(model, since=PERIOD[0], reasons="all") for _ in range(2))
    straight.warm(before)
    broken.warm(before)
    for row in rows:
        held = broken.to_bytes(2)
        broken = HabitLive(model, since=PERIOD[0], reasons="all")
        broken.warm(before)
        broken.from_bytes(2, held)
        expected, found = straight.update(row), broken.update(row)
        assert expected["reason"] == found["reason"]
        assert expected["score"] == pytest.approx(found["score"], rel=1e-5, abs=1e-5)
    with pytest.raises(DataError, match="not written by to_bytes"):
        broken.from_bytes(2, b"something else")


def test_reasons_come_with_alerts(world):
    model, before, week, _ = world
    live = HabitLive(model, since=PERIOD[0], p_value=0.02)
    live.warm(before)
    rows = week.filter(pa.array(week["agent_id"].to_numpy() == 2)).sort_by("started_at").to_pylist()
    updates = [live.update(row) for row in rows]
    new = [u for u in updates if u["new_place"]]
    assert all(u["alert"] == (u["p_value"] <= 0.02) for u in updates)
    assert any(re.search("First time here: never in the 28 days (before|until)", row["reason"] or "") for row in new)
    assert all(u["reason"] is None for u in updates if not u["alert"])
    assert [u["stay_id"] for u in updates] == [row["stay_id"] for row in rows]


def test_counts_over_the_whole_period_cannot_be_live():
    model = with_history(make("none")[0], counting="whole")
    with pytest.raises(ConfigError, match="up to the event; learn the judge with counting='past'"):
        HabitLive(model, since=PERIOD[0])
