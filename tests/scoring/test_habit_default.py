"""Scores by habits: what is written, what is said, and that a stored model scores as before."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import between, insert_visit, make_routine, odd_week, with_gaps
from whole_scores import fit_judge, score_by_habits

from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.habits.habit_source import HabitSource
from ustad.habits.habit_words import ordinal
from ustad.habits.questions import LOOKS
from ustad.judges import load_judge
from ustad.network.training.memory_task import CHECKPOINT
from ustad.schema import mobility_schema
from ustad.scoring.alerts import AlertRule
from ustad.scoring.entity_tests import strongest

CPU = torch.device("cpu")
SMALL = {
    "model.width": 8, "model.heads": 2, "model.event_blocks": 1, "training.epochs": 2, "training.batch_size": 128,
    "training.learning_rate": 5e-3, "training.recipe": "paper", "scoring.samples": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def life():
    return make_routine(seed=1, agents=10, days=35)


@pytest.fixture(scope="module")
def week(life):
    return odd_week(life)


def fitted(life, network, **changes):
    config = Config.preset("best").replace({**SMALL, "model.network": network, **changes})
    train, validation = between(life, 0, 21), between(life, 21, 28)
    encoder = Encoder.fit(train, mobility_schema("none", 16, True))
    return config, encoder, fit_judge(train, validation, encoder, config, CPU)


@pytest.fixture(scope="module", params=["none", "memory"])
def model(request, life):
    return fitted(life, request.param)


def test_the_inserted_visits_lead_with_a_reason_that_counts_them(model, life, week):
    events, agents = score_by_habits(model[2], week, between(life, 0, 28), AlertRule("top", 9))
    inserted = week["poi_id"].to_numpy() == 999
    alone = events["score"].to_numpy()
    assert alone[inserted].min() >= np.sort(alone[~inserted])[-3]
    assert events.num_rows == week.num_rows
    assert agents["agent_id"].to_pylist()[int(np.argmax(agents["score"].to_numpy()))] == 4
    reasons = [r for r in events["reason"].to_pylist() if r is not None]
    assert any(
        "Third time here; never in the 28 days until 28 January" in r and "km from anywhere usual" in r for r in reasons
    )
    assert all("suspicious" not in r for r in reasons)


def test_every_column_is_finite_and_shares_add_up(model, life, week):
    events, agents = score_by_habits(model[2], week, between(life, 0, 28))
    for name in ("score", "p_value"):
        assert np.isfinite(events[name].to_numpy()).all(), name
    evidence = [{one["name"]: one for one in row} for row in events["evidence"].to_pylist()]
    shares = np.array([sum(one["share"] for one in row.values()) for row in evidence])
    assert ((shares < 1 + 1e-9) & ((shares > 1 - 1e-6) | (shares < 1e-6))).all()
    judged = model[2].judge(week, between(life, 0, 28))
    first = np.array(list(judged.looks))[np.argmax(list(judged.looks.values()), axis=0)]
    for name in judged.surprise:
        outside = np.array([name not in model[2].looks.weights[look] for look in first])
        assert all(evidence[i][name]["share"] == 0 for i in np.flatnonzero(outside))
    assert ((agents["p_value"].to_numpy() > 0) & (agents["p_value"].to_numpy() <= 1)).all()


def test_the_kind_agrees_with_the_reason(model, life, week):
    marked = week.append_column("kind", pa.array(["novel"] * week.num_rows))  # of an earlier score: written anew
    events, _ = score_by_habits(model[2], marked, between(life, 0, 28), reasons="all")
    for row in events.to_pylist():
        counts = re.search(
            r"Here (\w+)(?: times)? in the 28 days (?:before|until 28 January)(?:, (\w+)(?: times)? since)?",
            row["reason"],
        )
        times = [int({"once": 1, "twice": 2}.get(n, n)) for n in counts.groups() if n] if counts else None
        if times is None:
            again = row["visits_now"] > 1
            assert row["kind"] == "novel" or (row["kind"] == "routine" and again)
            assert ("time here; never" in row["reason"]) == again
        elif row["kind"] == "routine":
            assert times[0] < times[1] == row["visits_now"]
        else:
            assert row["kind"] in ("predictable", "unsure")
    assert {"novel", "predictable"} <= set(events["kind"].to_pylist()) - {"routine"}


def test_a_start_that_nobody_saw_makes_an_odd_start_unobserved(model, life, week):
    gap = np.full(week.num_rows, 7200.0)
    blind, _ = score_by_habits(model[2], week.append_column("start_gap_s", pa.array(gap)), between(life, 0, 28))
    leads = np.array([row[0]["name"] for row in blind["evidence"].to_pylist()])
    seen = ["recurrence", "distance", "end", "elsewhere", "memory_place"]  # of the time that was seen
    timed = ~np.isin(leads, seen)
    assert timed.any()
    assert (np.array(blind["kind"].to_pylist())[timed] == "unobserved").all()
    assert not (np.array(blind["kind"].to_pylist())[~timed] == "unobserved").any()


def test_silence_makes_an_event_unusual_only_where_asked_for(life, tmp_path, monkeypatch):
    life = with_gaps(life).drop_columns(["end_gap_s", "observed_s"])
    week = between(life, 28, 35)
    at = week.column_names.index("start_gap_s")
    silent = int(np.flatnonzero(week["agent_id"].to_numpy() == 3)[8])
    gap = week["start_gap_s"].to_numpy(zero_copy_only=False).copy()
    gap[silent] = 3 * 86_400
    week = week.set_column(at, "start_gap_s", pa.array(gap, from_pandas=True))
    scores = {}
    for asked in (False, True):
        monkeypatch.setattr(HabitSource, "looks", {**LOOKS, **({"silence": ("silence",)} if asked else {})})
        config, encoder, model = fitted(life, "none")
        model.save(tmp_path)
        model = load_judge(tmp_path, encoder, config, CPU, whole=True, files=())
        assert ("silence" in model.looks.looks) is asked
        scores[asked] = score_by_habits(model, week, between(life, 0, 28), reasons="all")[0].to_pylist()
    off, on = scores[False][silent], scores[True][silent]
    quiet, asked_for = ({e["name"]: e for e in row["evidence"]}["silence"] for row in (off, on))
    assert quiet["surprise"] == asked_for["surprise"] > 2
    assert (quiet["share"], asked_for["share"]) == (0, 1)
    assert on["score"] > off["score"] + 0.5
    assert "No data at hours that usually have some." in on["reason"]
    assert "No data" not in off["reason"]


def test_what_comes_next_changes_no_score(model, life, week):
    week = week.take(pa.array(np.random.default_rng(2).permutation(week.num_rows)))
    time, before = week["started_at"].cast(pa.int64()).to_numpy(), between(life, 0, 28)
    known = time < time[week["poi_id"].to_numpy() == 999].max()
    first, _ = score_by_habits(model[2], week.filter(pa.array(known)), before)
    whole, _ = score_by_habits(model[2], week, before)
    later = dict(zip(whole["stay_id"].to_pylist(), whole["score"].to_pylist(), strict=True))
    np.testing.assert_allclose([later[s] for s in first["stay_id"].to_pylist()], first["score"].to_numpy(), atol=1e-6)


def test_an_agent_of_the_context_alone_gets_no_row(model, life, week):
    late, early = between(week, 31, 35), between(week, 28, 31)
    present = late.filter(pa.array(late["agent_id"].to_numpy() % 3 == 0))
    alone = score_by_habits(model[2], present, pa.concat_tables([between(life, 0, 28), early]))
    assert alone[1]["agent_id"].to_pylist() == sorted(set(present["agent_id"].to_pylist()))
    counts = dict(zip(*np.unique(present["agent_id"].to_numpy(), return_counts=True), strict=True))
    assert alone[1]["n_events"].to_pylist() == [counts[a] for a in alone[1]["agent_id"].to_pylist()]
    owners = dict(zip(present["stay_id"].to_pylist(), present["agent_id"].to_pylist(), strict=True))
    assert [owners[stay] for stay in alone[1]["worst_stay_id"].to_pylist()] == alone[1]["agent_id"].to_pylist()


def test_an_anomaly_in_the_context_does_not_make_its_agent_unusual_now(model, life):
    late, early = between(life, 31, 35), between(life, 28, 31)
    odd = insert_visit(early, 4, 29, 1350, minutes=40)
    scores = [
        score_by_habits(model[2], late, pa.concat_tables([between(life, 0, 28), context]))[1]["surprise_top"].to_numpy()
        for context in (early, odd)
    ]
    if model[2].source("network") is None:  # the network's window of the first day shows what came before
        np.testing.assert_allclose(scores[1], scores[0], rtol=1e-12)
    np.testing.assert_allclose(scores[1], scores[0], atol=0.2)


def test_a_stored_model_scores_as_it_did(model, life, week, tmp_path):
    config, encoder, made = model
    made.save(tmp_path)
    again = load_judge(tmp_path, encoder, config, CPU, whole=True, files=())
    before = score_by_habits(made, week, between(life, 0, 28))
    after = score_by_habits(again, week, between(life, 0, 28))
    for first, second in zip(before, after, strict=True):
        np.testing.assert_allclose(first["score"].to_numpy(), second["score"].to_numpy(), rtol=1e-9)
    assert not [p for p in tmp_path.iterdir() if p.suffix in {".pkl", ".pt"}]


def test_words_for_counts():
    assert (ordinal(1), ordinal(11)) == ("first", "11th")


def test_the_memory_network_is_resumed_from_the_directory_of_the_model(life, week, tmp_path):
    config = Config.preset("best", **SMALL)
    train, validation = between(life, 0, 21), between(life, 21, 28)
    encoder = Encoder.fit(train, mobility_schema("none", 16, True))
    first = fit_judge(train, validation, encoder, config, CPU, directory=tmp_path)
    assert (tmp_path / CHECKPOINT).exists()
    again = fit_judge(train, validation, encoder, config, CPU, directory=tmp_path, resume=True)
    assert again.source("network").result.losses == first.source("network").result.losses
    np.testing.assert_array_equal(again.judge(week).score, first.judge(week).score)


def test_several_events_of_an_agent_are_called_by_the_schemas_word():
    model = SimpleNamespace(schema=replace(mobility_schema(), event_word="entry"))
    tests = {"top": np.array([0.0, 9.0]), "shift": np.array([9.0, 0.0])}
    answers = SimpleNamespace(facts=SimpleNamespace(change_words=[None, None]))
    changed, same = HabitSource.explain_entities(model, answers, strongest(tests), ["this one.", "this one."])
    assert changed.startswith("Many of their entries are a little more unusual")
    assert same == "this one."
