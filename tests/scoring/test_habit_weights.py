"""Weights of the terms: one each; those of a stored model are kept and used."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import between, insert_visit, make_routine

from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.habit_judge import fit_habit_judge, load_habit_judge
from ustad.habits.weights import unit_weights
from ustad.schema import mobility_schema


@pytest.fixture(scope="module")
def life():
    return make_routine(seed=1, agents=12, days=35)


def test_weights_of_a_stored_model_are_kept_and_used(life, tmp_path):
    config = Config.preset("best", **{"model.network": "none"})
    train, validation = between(life, 0, 21), between(life, 21, 28)
    encoder = Encoder.fit(train, mobility_schema("none", 16, True))
    model = fit_habit_judge(train, validation, encoder, config, torch.device("cpu"))
    assert model.habits.weights == unit_weights()
    week = insert_visit(between(life, 28, 35), 4, 30, 1350, minutes=40)
    plain = model.habits.judge(week).score
    assert week["poi_id"].to_numpy()[np.argmax(plain)] == 999
    other = unit_weights() | {"visit": {**unit_weights()["visit"], "distance": 0.0}}
    changed = dataclasses.replace(model, habits=dataclasses.replace(model.habits, weights=other))
    changed.save(tmp_path)
    again = load_habit_judge(tmp_path, encoder, config, torch.device("cpu"))
    assert again.habits.weights == other
    scores = again.habits.judge(week).score
    np.testing.assert_array_equal(scores, changed.habits.judge(week).score)
    assert (scores <= plain + 1e-12).all()
    assert scores[np.argmax(plain)] < plain.max()
