"""Weights of the terms: one each; those of a stored model are kept and used."""

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "events"))
from routine_stays import between, insert_visit, make_routine
from whole_scores import fit_judge

from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.habits.habit_source import HabitSource
from ustad.judges import load_judge
from ustad.schema import mobility_schema
from ustad.scoring.looks import unit_weights


@pytest.fixture(scope="module")
def life():
    return make_routine(seed=1, agents=12, days=35)


def test_weights_of_a_stored_model_are_kept_and_used(life, tmp_path):
    config = Config.preset("best", **{"model.network": "none"})
    train, validation = between(life, 0, 21), between(life, 21, 28)
    encoder = Encoder.fit(train, mobility_schema("none", 16, True))
    model = fit_judge(train, validation, encoder, config, torch.device("cpu"))
    weights = unit_weights([HabitSource.looks])
    assert model.looks.weights == weights
    week = insert_visit(between(life, 28, 35), 4, 30, 1350, minutes=40)
    plain = model.judge(week).score
    assert week["poi_id"].to_numpy()[np.argmax(plain)] == 999
    other = {look: {name: float(name == "recurrence") for name in own} for look, own in weights.items()}
    changed = dataclasses.replace(model, looks=dataclasses.replace(model.looks, weights=other))
    changed.save(tmp_path)
    again = load_judge(tmp_path, encoder, config, torch.device("cpu"), whole=True, files=())
    assert again.looks.weights == other
    scores = again.judge(week).score
    np.testing.assert_array_equal(scores, changed.judge(week).score)
    assert (scores <= plain + 1e-12).all()
    assert scores[np.argmax(plain)] < plain.max() - 0.1, "a first visit is not unusual by how often one comes"
