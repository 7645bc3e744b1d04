"""The history that events are compared with moves on, some weeks behind them: against models fitted anew for each week,
against fixed ones, and in parts."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from moving_world import DAYS, KNOWN, SCHEMA, SMALL, make, moved_job
from routine_stays import FIRST_DAY, between, days_of, insert_visit, make_routine
from whole_scores import score_by_habits, with_history

from ustad.config import Config, ConfigError
from ustad.detector import Detector
from ustad.events.encoder import Encoder
from ustad.events.visits import read_visits
from ustad.habits.history import Habits
from ustad.habits.stages import MovingHistory, history_end
from ustad.judges import load_judge


@pytest.fixture(scope="module", params=[("none", True), ("none", False), ("memory", True)])
def world(request):
    return make(*request.param)


@pytest.fixture(scope="module")
def plain():
    return make()


@pytest.fixture(scope="module")
def people():
    """Enough of them for small p-values."""
    return make(agents=24)


def test_the_end_of_a_history_lies_behind_by_whole_weeks():
    for day in range(100, 400):
        end = history_end(100, day, 28)
        assert (end - 100) % 7 == 0
        assert end == 100 or 28 < day - end <= 35
        assert history_end(100, day, 0) == 100
    assert {history_end(100, day, 28) for day in range(136)} == {100}  # nothing changes for 35 days


def test_each_week_is_judged_as_by_a_history_fitted_up_to_its_end(plain):
    """An oracle: habits of everything up to the end, visits counted since. But for who was seen late."""
    model, before, later = plain
    old = pa.array(later["agent_id"].to_numpy() != 3)
    before, later = pa.concat_tables([before, later.filter(old)]), later.filter(old)
    found = model.judge(later)
    trained = model.history.habits.last_day
    day = days_of(later) + FIRST_DAY
    for end in np.unique([history_end(trained, int(d), 28) for d in day]):
        known = Habits.fit(read_visits(between(before, 0, end + 1 - FIRST_DAY), SCHEMA, model.history.frame))
        still = with_history(model, habits=replace(known, last_day=int(end)), absorb_after=0)
        counted = later.filter(pa.array(day > end))
        expected = still.judge(counted, count_days=(int(end) + 1, int(day.max())))
        rows = np.flatnonzero([history_end(trained, int(d), 28) == end for d in day])
        among = np.searchsorted(np.flatnonzero(day > end), rows)
        assert len(rows)
        np.testing.assert_allclose(found.score[rows], expected.score[among], rtol=1e-9, atol=1e-9)
        for name, values in found.surprise.items():
            np.testing.assert_allclose(values[rows], expected.surprise[name][among], rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(found.kind[rows], expected.kind[among])


def test_within_five_weeks_nothing_moves_and_nothing_changes(world):
    model, before, later = world
    later = between(later, KNOWN, KNOWN + 35)
    still = with_history(model, absorb_after=0)
    moving, fixed = (score_by_habits(m, later, before, reasons="all") for m in (model, still))
    for one, other in zip(moving, fixed, strict=True):
        assert one.equals(other)


def test_a_history_that_is_never_to_move_stays_as_trained(plain):
    model, _, later = plain
    still = with_history(model, absorb_after=0)
    assert not MovingHistory.of(still.history.habits, read_visits(later, SCHEMA, still.history.frame), 0, 0).moves
    first, every = (still.judge(between(later, KNOWN, last)) for last in (KNOWN + 21, DAYS))
    np.testing.assert_array_equal(first.score, every.score[days_of(later) < KNOWN + 21])
    whole = with_history(model, counting="whole")
    np.testing.assert_array_equal(whole.judge(later).score, with_history(whole, absorb_after=0).judge(later).score)


def test_what_comes_later_changes_no_score(world):
    model, before, later = world
    day = KNOWN + 63
    early, _ = score_by_habits(model, between(later, KNOWN, day), before, reasons="all")
    changed = between(later, day, DAYS)
    where = changed.schema.get_field_index("lat")
    changed = changed.set_column(where, "lat", pa.array(changed["lat"].to_numpy() + 1.0))
    if "poi_id" in changed.column_names:
        changed = changed.set_column(
            changed.schema.get_field_index("poi_id"), "poi_id", pa.array(np.arange(changed.num_rows) + 10**6)
        )
    late, _ = score_by_habits(model, pa.concat_tables([between(later, KNOWN, day), changed]), before, reasons="all")
    by_stay = {row["stay_id"]: row for row in late.to_pylist()}
    for row in early.to_pylist():
        other = by_stay[row["stay_id"]]
        assert row["score"] == pytest.approx(other["score"], rel=1e-5, abs=1e-5)
        assert row["kind"] == other["kind"]
        assert row["visits_now"] == other["visits_now"]


def test_weeks_that_nobody_observed_are_no_evidence(plain):
    model, _, later = plain
    late = between(later, KNOWN + 49, KNOWN + 63)
    moving, fixed = (m.judge(late) for m in (model, with_history(model, absorb_after=0)))
    np.testing.assert_array_equal(moving.score, fixed.score)
    np.testing.assert_array_equal(moving.score, fixed.score)


def test_context_enters_the_history_and_is_asked_about_no_more_than_needed(plain):
    model, before, later = plain
    last, whole = between(later, DAYS - 7, DAYS), model.judge(later)
    context = pa.concat_tables([before, between(later, KNOWN, DAYS - 7)])
    found = model.judge(last, context)
    rows = np.flatnonzero(days_of(later) >= DAYS - 7)
    np.testing.assert_allclose(found.score, whole.score[rows], rtol=1e-12)
    count, of_whole = (one.answers[0].facts.comparison.count for one in (found, whole))
    np.testing.assert_array_equal(count, of_whole[rows])


def test_parts_of_the_entities_are_judged_as_the_whole(world):
    model, before, later = world
    period = (int(days_of(later).min()) + FIRST_DAY, int(days_of(later).max()) + FIRST_DAY)
    events, agents = score_by_habits(model, later, before, reasons="all")
    by_stay = {row["stay_id"]: row for row in events.to_pylist()}
    by_agent = {row["agent_id"]: row for row in agents.to_pylist()}
    for own in ([0, 2], [1, 3]):
        part, context = (t.filter(pa.array(np.isin(t["agent_id"].to_numpy(), own))) for t in (later, before))
        rows, people = score_by_habits(model, part, context, period=period, reasons="all", tested=period)
        for row in rows.to_pylist():
            other = by_stay[row["stay_id"]]
            assert row["reason"] == other["reason"]
            assert row["score"] == pytest.approx(other["score"], rel=1e-5, abs=1e-5)
            assert row.keys() == other.keys()
        for row in people.to_pylist():
            assert row["score"] == pytest.approx(by_agent[row["agent_id"]]["score"], rel=1e-5, abs=1e-5)


def test_a_part_of_people_without_any_history_is_judged_as_within_the_whole(plain):
    model, _, later = plain
    whole = model.judge(later)
    nobody = with_history(model, habits=model.history.habits.only([3]))
    assert len(nobody.history.entity_key) == 0
    rows = later["agent_id"].to_numpy() == 3
    period = (int(days_of(later).min()) + FIRST_DAY, int(days_of(later).max()) + FIRST_DAY)
    found = nobody.judge(later.filter(pa.array(rows)), count_days=period, test_days=period)
    np.testing.assert_allclose(found.score, whole.score[rows], rtol=1e-12)
    np.testing.assert_array_equal(found.kind, whole.kind[rows])


def test_a_detector_scores_months_in_parts_as_at_once():
    life = make_routine(seed=1, agents=4, days=DAYS)
    life = life.filter(pc.greater(life["finished_at"], life["started_at"]))
    small = {"model.width": 8, "model.heads": 2, "model.event_blocks": 1, "training.epochs": 1, "scoring.samples": 2}
    detector = Detector(Config.preset("quick").replace(small), device="cpu").fit(between(life, 0, KNOWN))
    later = between(life, KNOWN, DAYS)
    whole = detector.score(later, reasons="all")
    parts = list(detector.score_parts(later, reasons="all", entities=3))
    assert len(parts) == 2
    for what, name in (("events", "stay_id"), ("agents", "agent_id")):
        rows = pa.concat_tables([getattr(part, what) for part in parts]).sort_by(name).to_pylist()
        for one, other in zip(rows, getattr(whole, what).sort_by(name).to_pylist(), strict=True):
            assert one["score"] == pytest.approx(other["score"], rel=1e-6, abs=1e-6)
            assert one["reason"] == other["reason"]
            assert one.get("incident_id") == other.get("incident_id")
    still = with_history(detector.judge, absorb_after=0)
    detector.judge = still
    fixed = detector.score(later).events.sort_by("stay_id")
    changed = fixed["score"].to_numpy() != whole.events.sort_by("stay_id")["score"].to_numpy()
    late = days_of(fixed) >= KNOWN + 35
    assert changed[late].mean() > 0.5
    assert not changed[days_of(fixed) < KNOWN + 34].any()  # of a stay on the last day the next one is scored anew


def test_somebody_first_seen_later_has_a_history_of_their_own_after_some_weeks(plain):
    model, before, later = plain
    events, _ = score_by_habits(model, later, before, reasons="all")
    own = [row for row in events.to_pylist() if row["agent_id"] == 3]
    early, late = (
        [row for row in own if first <= (row["started_at"].timestamp() // 86400 - FIRST_DAY) < last]
        for first, last in ((0, KNOWN + 48), (KNOWN + 62, DAYS))
    )
    assert all(row["new_place"] for row in early)
    assert np.mean([row["new_place"] for row in late]) < 0.1
    assert any("Here " in row["reason"] and re.search("in the 14 days (before|until)", row["reason"]) for row in own)
    assert np.mean([row["p_value"] <= 0.01 for row in late]) < 0.1


def test_weeks_away_do_not_lower_how_often_somebody_is_said_to_be_at_work():
    life = make_routine(seed=1, agents=4, days=DAYS)
    agent, day = life["agent_id"].to_numpy(), days_of(life)
    there = (day >= 14) & ((day < 35) | (day >= 49))  # first seen in the middle of training, then two weeks away
    model, before, later = make(life=life.filter(pa.array((agent != 0) | there)))
    later = insert_visit(later, 0, DAYS - 4, 600, minutes=60)
    events, _ = score_by_habits(model, later, before, reasons="all")
    odd = next(row for row in events.to_pylist() if row["stay_id"] >= 100_000)
    assert re.search(r"Always at Work at this hour \((\d+) of \1 weekdays\)", odd["reason"])


def test_who_changed_jobs_is_flagged_in_the_first_weeks_and_no_more_after_some(people):
    model, before, later = people
    later, there = moved_job(later)
    still = with_history(model, absorb_after=0)
    day = days_of(later)
    share = {}
    for name, one in (("moving", model), ("still", still)):
        events, _ = score_by_habits(one, later, before)
        small = events["p_value"].to_numpy() <= 0.02
        share[name] = [
            small[there & (day >= a) & (day < b)].mean() for a, b in ((KNOWN, KNOWN + 28), (KNOWN + 56, DAYS))
        ]
    assert share["moving"][0] > 0.9
    assert share["still"][0] > 0.9
    assert share["moving"][1] < 0.1
    assert share["still"][1] > 0.9


def test_an_anomaly_that_recurs_for_four_weeks_stays_one(people):
    model, before, later = people
    first = KNOWN + 35
    for day in range(first, first + 28, 2):
        later = insert_visit(later, 2, day, 170, minutes=60, poi=888)
    events, _ = score_by_habits(model, later, before)
    own = pa.array(np.isin(events["poi_id"].to_numpy(), [888]))
    assert (events.filter(own)["p_value"].to_numpy() <= 0.02).all()


def test_the_setting_is_kept_with_a_model(tmp_path):
    model, _, _ = make(days=KNOWN + 7, **{"scoring.absorb_after": 14})
    assert model.history.absorb_after == 14
    config = Config.preset("best").replace({**SMALL, "model.network": "none", "scoring.absorb_after": 14})
    model.save(tmp_path)
    encoder = Encoder.fit(make_routine(days=21), SCHEMA)
    again = load_judge(tmp_path, encoder, config, torch.device("cpu"), whole=True, files=())
    assert again.history.absorb_after == 14
    with pytest.raises(ConfigError, match=r"absorb_after must be 0 or more"):
        Config.preset("best", **{"scoring.absorb_after": -1})
