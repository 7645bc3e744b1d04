"""The service's scorer by habits over weeks: as in bulk, after restarts, and from the store's events alone."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "scoring"))
sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from moving_world import DAYS, KNOWN, make, make_life
from routine_stays import FIRST_DAY, between, days_of
from whole_scores import score_by_habits

from ustad.live.live_judges import make_live
from ustad.service.live_backends import StateBackend


@pytest.fixture(scope="module")
def world():
    life = make_life(agents=3)
    at = life.schema.get_field_index("agent_id")
    life = life.set_column(at, "agent_id", life["agent_id"].cast(pa.string()))
    return make(life=life.sort_by([("agent_id", "ascending"), ("started_at", "ascending")]))


def own(table, agent):
    return table.filter(pa.array(np.array(table["agent_id"].to_pylist()) == agent))


def scorer_of(model):
    return StateBackend(make_live(model, device="cpu", p_value=0.001, most=10), model.schema)


def weeks_later(world, agent):
    """The events of an agent, week by week, as rows."""
    _, _, later = world
    for first in range(KNOWN, DAYS, 7):
        yield own(between(later, first, first + 7), agent)


def test_an_agent_is_scored_over_weeks_as_in_bulk_whatever_restarts(world):
    model, before, later = world
    events, _ = score_by_habits(model, later, before, period=(scorer_of(model).since, FIRST_DAY + DAYS))
    batch = {row["stay_id"]: row for row in events.to_pylist()}
    state = None
    for week in weeks_later(world, "1"):
        scorer = scorer_of(model)  # a restart
        scorer.remember("1", own(before, "1"), state)
        made = scorer.score(week.to_pylist())
        state = made.states["1"]
        for stay, row in zip(week["stay_id"].to_pylist(), made.rows, strict=True):
            assert row["score"] == pytest.approx(batch[stay]["score"], rel=1e-6, abs=1e-6)
            assert row["visits_now"] == batch[stay]["visits_now"]
    assert not any(row["new_place"] for row in made.rows)  # what was new in the first weeks is known by now


def test_without_a_state_the_stores_events_are_looked_through_again(world):
    model, before, later = world
    straight, replayed = scorer_of(model), scorer_of(model)
    straight.remember("1", own(before, "1"), None)
    early, last = own(between(later, KNOWN, DAYS - 7), "1"), own(between(later, DAYS - 7, DAYS), "1").to_pylist()
    straight.score(early.to_pylist())
    replayed.remember("1", early, None)
    for one, other in zip(straight.score(last).rows, replayed.score(last).rows, strict=True):
        assert one["score"] == other["score"]


def test_weeks_that_the_store_no_longer_has_are_no_evidence_of_absence(world):
    model, _, later = world
    scorer = scorer_of(model)
    part = own(between(later, KNOWN + 49, DAYS), "0")  # the service began seven weeks late
    scorer.remember("0", part.slice(0, 0), None)
    rows = scorer.score(part.to_pylist()).rows
    habits = scorer._live._entries["0"].history.habits
    assert habits.last_day > model.history.habits.last_day + 28
    assert habits.days_of(np.array([0]))[0] == 28 + (habits.last_day + 1 - FIRST_DAY - KNOWN - 49)
    known = scorer_of(model)
    known.remember("0", part.slice(0, 0), None)
    first = own(between(later, KNOWN, KNOWN + 14), "0")
    usual = np.mean([row["score"] for row in known.score(first.to_pylist()).rows])
    assert np.mean([row["score"] for row in rows]) == pytest.approx(usual, abs=0.25)
    assert days_of(part).min() >= KNOWN + 49


def test_erasing_an_agent_leaves_nothing_of_its_history(world):
    model, before, _ = world
    scorer = scorer_of(model)
    scorer.remember("1", own(before, "1"), None)
    rows = [row for week in weeks_later(world, "1") for row in week.to_pylist()]
    scorer.score(rows[:-1])
    scorer.erase("1")
    assert scorer.score(rows[-1:]).rows[0]["new_place"]
    assert len(scorer._live._entries["1"].history.habits.place_key) == 0
