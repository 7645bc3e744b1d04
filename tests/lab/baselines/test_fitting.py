"""Networks of the baselines go through the detector's own loop: who stops when, and what a full batch holds."""

import numpy as np
import pytest
import torch
from torch import nn

from ustad.config import Config
from ustad.lab.baselines.fitting import Budget, Items, ItemTask, fit_network, loop_settings
from ustad.lab.baselines.lightpath import LightPath
from ustad.lab.baselines.nov_online import NovOnline
from ustad.lab.baselines.sensitive_hue import SensitiveHue
from ustad.lab.baselines.transformer import Transformer
from ustad.network.training.optimise import count_plateaus, learning_rate


class OneWeight(nn.Module):
    """A number that is to become 3."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(()))


def config(**changes: object) -> Config:
    return Config().replace({"training.batch_size": 4, **changes})


def test_items_are_learned_until_their_loss_stands_still() -> None:
    network = OneWeight()

    def loss(part: int, index: torch.Tensor, length: int, noise: torch.Generator | None) -> torch.Tensor:
        return (network.value - 3.0) ** 2

    settings = config(**{"training.learning_rate": 0.5, "training.patience": 4, "training.epochs": 300})
    result = fit_network(
        network, loss, (np.ones(8), np.ones(3)), settings, device=torch.device("cpu"), label="one weight"
    )
    assert result.stopped == "patience"
    assert result.epochs - 1 - result.best_epoch == 4
    assert network.value.item() == pytest.approx(3.0, abs=0.05)
    assert result.best_loss == min(result.losses)


def test_an_epoch_shows_every_item_once_and_real_ones_fill_a_batch_up() -> None:
    network, met = OneWeight(), []

    def loss(part: int, index: torch.Tensor, length: int, noise: torch.Generator | None) -> torch.Tensor:
        if part == 0:
            met.append(index.tolist())
        return network.value**2

    task = ItemTask(network, loss, Items(torch.device("cpu"), 9), np.ones(1), config(), "items")
    task.loss(torch.tensor([7, 5, 0, 0]), torch.tensor([9, 6, 0, 0]), 2)  # two of four are empty
    assert met.pop() == [7, 5, 7, 5]
    fit_network(
        network,
        loss,
        (np.arange(1, 10), np.ones(2)),
        config(**{"training.epochs": 1}),
        device=task.events.device,
        label="",
    )
    assert sorted(i for batch in met for i in batch) == list(range(9))


@pytest.mark.parametrize(
    ("method", "times"), [(Transformer, 0.6), (SensitiveHue, 4.0), (LightPath, 0.6), (NovOnline, 1.0)]
)
def test_patience_counts_how_often_an_event_was_asked_about(method: type, times: float) -> None:
    """Three days before its own and a mask ratio of 0.15: an event is a target 0.6 times an epoch."""
    model = method(device="cpu", passes=6.0)
    assert model.targets_an_epoch() == pytest.approx(times)
    assert model.loop_config().training.patience == max(5, round(6 / times))
    assert loop_settings(Budget(patience=3), times)["training.patience"] == 3


def test_the_rate_is_halved_where_validation_stands_still() -> None:
    training = config(**{"training.patience": 6}).training  # a third of it is waited for
    losses = [5.0, 4.0, 4.5, 4.2, 3.0, 3.1, 3.2, 3.3, 3.4]
    rates = [learning_rate(training, 0, 10, losses[:n]) for n in range(len(losses) + 1)]
    assert [round(rate / training.learning_rate, 3) for rate in rates] == [1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25, 0.25, 0.125]
    assert count_plateaus([], 1) == 0
