"""Mobility is one schema among others: its preset gives the same scores through the generic path, and those of a
seeded run that were stored with the tests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import stored_habits

from ustad.dataset import Dataset
from ustad.detector import Detector
from ustad.schema import mobility_schema
from ustad.scores import Scores

STORED = Path(__file__).with_name("mobility_scores.json")
#: Other processors and versions of torch round differently, and training carries that on.
TOLERANCE = 0.25
#: Habits are counted, not trained: only the order of sums and a library's last digits may differ.
HABITS_TOLERANCE = 1e-6


def by_stay(scores: Scores) -> np.ndarray:
    return scores.events.sort_by("stay_id")["score"].to_numpy()


@pytest.fixture(scope="module")
def paper_scores(town: Dataset, tiny_config) -> np.ndarray:
    config = tiny_config.replace({"model.network": "dual", "model.trips": "none"})
    return by_stay(Detector(config, device="cpu").fit(replace(town, trips=None)).score(replace(town, trips=None)))


def test_a_schema_written_out_by_hand_gives_the_scores_of_the_mobility_preset(town, tiny_config, paper_scores):
    """The same columns under another name take the generic path from end to end."""
    schema = replace(mobility_schema("none"), name="people")
    events = town.events
    data = Dataset(events, schema, meta=town.meta)
    config = tiny_config.replace({"model.network": "dual", "model.trips": "none"})
    assert np.allclose(by_stay(Detector(config, device="cpu").fit(data).score(data)), paper_scores, atol=1e-5)


def test_scores_of_the_mobility_preset_are_those_that_were_stored(paper_scores):
    stored = json.loads(STORED.read_text())
    assert len(paper_scores) == stored["events"]
    assert np.quantile(paper_scores, stored["levels"]) == pytest.approx(stored["quantiles"], abs=TOLERANCE)
    some = paper_scores[:: stored["every"]]
    assert np.corrcoef(some, stored["scores"])[0, 1] > 0.97
    assert np.median(np.abs(some - stored["scores"])) < TOLERANCE / 5


def test_scores_by_habits_of_the_preset_fast_are_those_that_were_stored(town, fitted):
    """After a change that is meant: `python tests/events/stored_habits.py`."""
    stored = json.loads(stored_habits.STORED.read_text())
    found = stored_habits.told(fitted.score(town))
    assert found["rows"] == stored["rows"]
    for table in ("events", "agents"):
        assert found[table].keys() == stored[table].keys()
        for name, values in stored[table].items():
            assert found[table][name] == pytest.approx(values, abs=HABITS_TOLERANCE, nan_ok=True), name
