"""Masked prediction is measured by the same function for every baseline."""

import numpy as np
import pytest
from example_towns import town

from ustad.config import ConfigError
from ustad.lab.baselines import make
from ustad.lab.baselines.prediction_errors import prediction_errors

TRAIN, VALIDATION = town(agents=6, days=5), town(agents=6, days=2, first_day=5)
TEST, BEFORE = town(agents=6, days=1, first_day=7), town(agents=6, days=7)
TINY = {"device": "cpu", "epochs": 1, "width": 8, "blocks": 1, "heads": 2}


def test_the_errors_are_those_of_the_predicted_table():
    model = make("transformer", **TINY).fit(TRAIN, VALIDATION)
    told, found = model.predict(TEST, BEFORE), prediction_errors(model, TEST, BEFORE)
    rows = {row["term"]: row for row in found.to_pylist()}
    by_hand = np.abs(told["expected_duration"].to_numpy() - told["observed_duration"].to_numpy()).mean()
    assert rows["duration"]["mae"] == pytest.approx(by_hand, rel=1e-5)
    right = np.mean(np.array(told["expected_poi"].to_pylist()) == np.array(told["observed_poi"].to_pylist()))
    assert rows["poi"]["accuracy"] == pytest.approx(100 * right)
    assert rows["start"]["mae"] <= 720


def test_rejection_needs_an_uncertainty():
    sure = make("ustad-plain", samples=2, neighbours=3, **TINY).fit(TRAIN, VALIDATION)
    assert prediction_errors(sure, TEST, BEFORE, reject=0.5)["n_events"].to_pylist()[0] == 12
    with pytest.raises(ConfigError, match="no uncertainty"):
        prediction_errors(make("transformer", **TINY).fit(TRAIN, VALIDATION), TEST, BEFORE, reject=0.5)
    with pytest.raises(ConfigError, match="does not predict"):
        prediction_errors(make("ibat", device="cpu").fit(TRAIN), TEST)
