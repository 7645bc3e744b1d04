"""Weights of the terms: one each, or chosen on anomalies injected into the validation week, never on labels."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import between, insert_visit, make_routine

from ustad.config import Config, ScoringConfig
from ustad.events.encoder import Encoder
from ustad.habit_judge import fit_habit_judge, load_habit_judge
from ustad.habits.habit_model import HabitModel
from ustad.habits.injected import SHARE, injected_week
from ustad.habits.weights import choose_weights, unit_weights
from ustad.schema import EventSchema, Feature, mobility_schema
from ustad.tables import TIMESTAMP

SCHEMA = mobility_schema()


@pytest.fixture(scope="module")
def life():
    return make_routine(seed=1, agents=12, days=35)


def test_each_kind_changes_what_it_says_and_nothing_else(life):
    week = between(life, 21, 28)
    odd, done = injected_week(week, SCHEMA, 7)
    assert odd.num_rows == week.num_rows
    assert {kind: int((done == kind).sum()) for kind in ("place", "time", "length")} == dict.fromkeys(
        ("place", "time", "length"), max(1, round(SHARE * week.num_rows))
    )
    same = {name: np.array(week[name].to_pylist()) == np.array(odd[name].to_pylist()) for name in week.column_names}
    for name in week.column_names:
        assert same[name][done == ""].all(), name
    assert not same["started_at"][done == "time"].any()
    assert same["started_at"][done == "length"].all()
    assert not same["finished_at"][done == "length"].any()
    assert same["started_at"][done == "place"].all()
    assert not (same["lat"] & same["lon"])[done == "place"].any()


def test_the_same_seed_injects_the_same_and_any_schema_has_something_to_change():
    kind = Feature("kind", "categorical", ("kind",))
    schema = EventSchema("cards", (kind,), entity="card", time="time", habitat="merchant")
    rng = np.random.default_rng(0)
    table = pa.table({
        "card": rng.integers(0, 5, 300), "time": pa.array(np.arange(300) * 3_600_000_000, TIMESTAMP),
        "kind": pa.array(rng.choice(["food", "fuel"], 300)), "merchant": rng.integers(0, 40, 300),
    })  # fmt: skip
    first, second = (injected_week(table, schema, 3) for _ in range(2))
    assert first[0].equals(second[0])
    assert set(first[1]) == {"", "place", "time"}  # nothing has a length here


def test_a_term_of_noise_loses_its_weight_and_a_telling_one_keeps_it():
    rng = np.random.default_rng(0)
    N = 4000
    kinds = np.where(np.arange(N) < 60, "place", "").astype(object)
    normal = {name: rng.exponential(0.43, N) for name in ("recurrence", "distance")}
    odd = {name: rng.exponential(0.43, N) for name in ("recurrence", "distance")}
    odd["distance"] += np.where(kinds == "place", 2.0, 0.0)
    weights = choose_weights(normal, odd, kinds)
    assert weights["visit"]["recurrence"] == 0.0
    assert weights["visit"]["distance"] > 0.0
    assert weights["stay"] == unit_weights()["stay"]


def test_chosen_weights_are_kept_with_the_model_and_still_find_an_inserted_visit(life, tmp_path, monkeypatch):
    monkeypatch.setattr(ScoringConfig, "weights", "injected")
    config = Config.preset("best", **{"model.network": "none"})
    train, validation = between(life, 0, 21), between(life, 21, 28)
    encoder = Encoder.fit(train, mobility_schema("none", 16, True))
    model = fit_habit_judge(train, validation, encoder, config, torch.device("cpu"))
    model.save(tmp_path)
    again = load_habit_judge(tmp_path, encoder, config, torch.device("cpu"))
    assert again.habits.weights == model.habits.weights
    week = insert_visit(between(life, 28, 35), 4, 30, 1350, minutes=40)
    judged = model.habits.judge(week)
    assert week["poi_id"].to_numpy()[np.argmax(judged.score)] == 999
    np.testing.assert_array_equal(again.habits.judge(week).score, judged.score)


def test_weights_do_not_see_the_scored_weeks(life):
    """Choosing takes the validation week alone: the same weights, whatever comes later and whoever is labelled."""
    train, validation = between(life, 0, 21), between(life, 21, 28)
    told = validation.append_column("anomaly", pa.array(np.arange(validation.num_rows) % 9 == 0))
    plain, labelled = (HabitModel.fit(train, week, SCHEMA, weighing="injected") for week in (validation, told))
    assert plain.weights == labelled.weights
    assert HabitModel.fit(train, validation, SCHEMA).weights == unit_weights()
