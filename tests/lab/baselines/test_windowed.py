"""Windows of the small loop: what a loss is of, in training and in validation."""

import numpy as np
import pytest
import torch
from example_towns import town

from ustad.events.encoder import Encoder
from ustad.lab.baselines.ctle import Ctle
from ustad.lab.baselines.deep import loop_config
from ustad.lab.baselines.lightpath import LightPath
from ustad.lab.baselines.networks import DeepSettings
from ustad.lab.baselines.sensitive_hue import SensitiveHue
from ustad.lab.baselines.windowed import WindowItems, window_items
from ustad.schema import mobility_schema

TRAIN, VALIDATION = town(agents=6, days=8), town(agents=6, days=3, first_day=8)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def parts():
    encoder = Encoder.fit(TRAIN, mobility_schema())
    return window_items(encoder, TRAIN, VALIDATION, loop_config(DeepSettings(), 7).window, device=CPU)


def count_targets(items):
    """How often the loss over all windows is of each event."""
    index = torch.arange(len(items))
    batch = items.batch(index, int(items.length.max()))
    events = batch.index[items.targets(index, batch)]
    return np.bincount(events.numpy(), minlength=len(items.tensors))


def test_validation_asks_about_every_validation_event_once_and_about_no_training_event(parts):
    counts = count_targets(parts[1])
    assert len(counts) == TRAIN.num_rows + VALIDATION.num_rows  # its windows show training events too
    assert sorted(counts) == [0] * TRAIN.num_rows + [1] * VALIDATION.num_rows


def test_training_asks_about_every_event_of_every_window(parts):
    assert count_targets(parts[0]).sum() == parts[0].length.sum()


@pytest.mark.parametrize("method", [SensitiveHue, LightPath, Ctle])
def test_a_method_stops_by_its_loss_of_validation_events_alone(method, monkeypatch):
    counts, targets = [], WindowItems.targets

    def count(items, index, batch):
        mask = targets(items, index, batch)
        if bool((items.first > items.start).any()):
            counts.append(int(mask.sum()))
        return mask

    monkeypatch.setattr(WindowItems, "targets", count)
    method(width=8, epochs=1, batch_size=32, device="cpu").fit(TRAIN, VALIDATION)
    assert counts
    assert sum(counts) % VALIDATION.num_rows == 0
