"""The demo's model finds the demo's anomalies: a floor over three seeds, far below what is usual."""

import numpy as np
import pytest

from ustad.config import Config
from ustad.detector import Detector
from ustad.lab.evaluation.detection_metrics import evaluate
from ustad.simulate import simulate_tables

#: Chance is 0.5. Towns this small, learned this briefly, usually give about 0.86 for events and 0.66 for agents.
EVENT_FLOOR, AGENT_FLOOR = 0.78, 0.58


@pytest.fixture(scope="module")
def figures():
    """Event and agent AUROC of three small towns."""
    found = []
    for seed in (1, 2, 3):
        town = simulate_tables("town", agents=80, seed=seed, days=28, anomalous_share=0.1)
        config = Config.preset("quick", seed=seed)
        scores = Detector(config, device="cpu").fit(town).score(town)
        measured = evaluate(scores.events, scores.agents, town.labels, town.agent_labels, bootstrap=0)
        found.append((measured["incidents"]["auroc"], measured["agents"]["auroc"]))
    return np.array(found)


def test_unusual_events_are_found_well_above_chance(figures):
    assert figures[:, 0].mean() > EVENT_FLOOR
    assert figures[:, 0].min() > 0.6


def test_unusual_agents_are_found_well_above_chance(figures):
    assert figures[:, 1].mean() > AGENT_FLOOR
    assert figures[:, 1].min() > 0.5
