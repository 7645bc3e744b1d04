"""Training on a cluster: one worker gives the local model, several give one that is as good, of any events."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from same_tables import assert_same

from ustad.config import ConfigError
from ustad.detector import Detector
from ustad.engine.training import train


@pytest.fixture(scope="module")
def config(tiny_config):
    return tiny_config.replace({"training.epochs": 2, "scoring.method": "paper"})


@pytest.fixture(scope="module")
def local(town, config):
    return Detector(config, device="cpu").fit(town)


def test_one_worker_gives_the_weights_reference_and_calibration_of_a_local_run(
    cluster, town, town_directory, config, local, tmp_path
):
    made = train(town_directory, tmp_path / "model", config, workers=1)
    for name, value in local.model.network.state_dict().items():
        assert torch.allclose(made.model.network.state_dict()[name], value, atol=1e-6), name
    mine, theirs = local.model.calibration, made.model.calibration
    assert np.array_equal(mine.entity, theirs.entity)
    for name in ("error", "loss", "au", "eu", "knn"):
        a, b = getattr(mine.parts, name), getattr(theirs.parts, name)
        assert np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True), name
    a, b = local.model.neighbours, made.model.neighbours
    assert np.allclose(np.sort(a.embeddings, axis=0), np.sort(b.embeddings, axis=0), atol=1e-5)
    stored = Detector.load(tmp_path / "model", "cpu").score(town)
    assert_same(local.score(town).events, stored.events, ["stay_id"], tolerance=1e-3)
    assert not (tmp_path / "model" / ".train-job").exists()


def test_two_workers_share_every_batch_and_learn_as_well(cluster, town_directory, config, local, tmp_path):
    made = train(town_directory, tmp_path / "model", config, workers=2)
    assert made.facts["epochs"] == local.facts["epochs"]
    assert made.facts["validation_loss"] == pytest.approx(local.facts["validation_loss"], rel=0.1)


def test_more_workers_than_there_are_cores_are_refused_in_seconds(cluster, town_directory, config, tmp_path):
    with pytest.raises(ConfigError, match="8 workers need 8 CPU, the cluster has 3"):
        train(town_directory, tmp_path / "model", config, workers=8)
