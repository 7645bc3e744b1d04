"""The presets find the simulator's anomalies, from true stays and from raw GPS: floors far below what is usual."""

import numpy as np
import pytest

from ustad.config import Config
from ustad.detector import Detector
from ustad.lab.evaluation.detection_metrics import evaluate
from ustad.lab.evaluation.gps import compare_scores
from ustad.lab.evaluation.sources import Source, open_source
from ustad.simulate import simulate_tables

#: Chance is 0.5. Towns this small, learned this briefly, usually give about 0.86 for events and 0.66 for agents.
EVENT_FLOOR, AGENT_FLOOR = 0.78, 0.58


@pytest.fixture(scope="module")
def figures():
    """Event and agent AUROC of three small towns, then their average precision over that of chance."""
    found = []
    for seed in (1, 2, 3):
        town = simulate_tables("town", agents=80, seed=seed, days=28, anomalous_share=0.1)
        config = Config.preset("quick", seed=seed)
        scores = Detector(config, device="cpu").fit(town).score(town)
        measured = evaluate(scores.events, scores.agents, town.labels, town.agent_labels, bootstrap=0)
        share = town.labels.num_rows / scores.events.num_rows, town.agent_labels.num_rows / scores.agents.num_rows
        both = measured["incidents"], measured["agents"]
        found.append([m["auroc"] for m in both] + [m["ap"] / s for m, s in zip(both, share, strict=True)])
    return np.array(found)


def test_unusual_events_are_found_well_above_chance(figures):
    assert figures[:, 0].mean() > EVENT_FLOOR
    assert figures[:, 0].min() > 0.6


def test_unusual_agents_are_found_well_above_chance(figures):
    assert figures[:, 1].mean() > AGENT_FLOOR
    assert figures[:, 1].min() > 0.5


def test_the_most_unusual_are_true_many_times_more_often_than_by_chance(figures):
    assert figures[:, 2].mean() > 5
    assert figures[:, 3].mean() > 1.5


#: A network that is trained in seconds.
SMALL = {"model.width": 16, "model.event_blocks": 1, "training.epochs": 2, "scoring.samples": 2}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Two small towns as a GPS logger recorded them."""
    place = tmp_path_factory.mktemp("towns")
    towns = [Source("town", agents=60, seed=seed, days=24, anomalous_share=0.1, phone="logger") for seed in (111, 112)]
    return [open_source(town, place) for town in towns]


@pytest.mark.parametrize(("preset", "changes"), [("quick", {}), ("best", SMALL)])
def test_from_raw_gps_the_most_unusual_are_true_many_times_more_often_than_by_chance(recorded, preset, changes):
    """Average precision; by chance it is the share of what is unusual."""
    better = []
    for town in recorded:
        scores = Detector(Config.preset(preset, seed=1).replace(changes), device="cpu").fit(town).score(town)
        found = compare_scores(town, scores)
        share = town.labels.num_rows / scores.events.num_rows, town.agent_labels.num_rows / scores.agents.num_rows
        better.append((found["incidents"]["ap"] / share[0], found["agents"]["ap"] / share[1]))
    events, agents = np.mean(better, axis=0)
    assert events > 5
    assert agents > 1.5
