"""Aleatoric uncertainty finds the noise that was put in; epistemic uncertainty falls with more data.

The task: a window of two events with one number each. The first, x, is seen; the second is masked and is sin(2x)
plus noise, which may be larger where x > 0. As in the paper, more data means as many passes over more examples.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ustad.config import ModelConfig, TrainingConfig
from ustad.events.windows import Batch, Features
from ustad.network.dual_transformer import DualTransformer
from ustad.network.losses import masked_loss
from ustad.network.training.optimise import make_optimizer
from ustad.schema import Field

FIELDS = (Field("value", "number"),)
BATCH = 128


def make_pairs(x: Tensor, noise: tuple[float, float], generator: torch.Generator) -> Tensor:
    """The deviation of the noise is noise[0] where x < 0, else noise[1]."""
    error = torch.where(x < 0, *noise) * torch.randn(len(x), generator=generator)
    return torch.stack([x, torch.sin(2 * x) + error], dim=1)


def as_batch(pairs: Tensor) -> tuple[Batch, Tensor]:
    B, L = pairs.shape
    place = torch.arange(L).expand(B, L)
    nothing = torch.zeros(B, L, 0)
    features = Features(pairs[..., None], nothing.long(), nothing, torch.zeros(B, L, 1, dtype=torch.bool))
    return Batch(features, torch.zeros(B, L, dtype=torch.bool), place, place, place), place == 1


def train(examples: int, epochs: int, noise: tuple[float, float]) -> DualTransformer:
    """A tiny network fitted to so many examples of the task, by the product's own optimiser."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(examples)
    pairs = make_pairs(torch.rand(examples, generator=generator) * 4 - 2, noise, generator)
    network = DualTransformer(FIELDS, ModelConfig(width=16, event_blocks=1), max_events=2).train()
    optimizer = make_optimizer(network, TrainingConfig(learning_rate=5e-3))
    steps = epochs * examples // BATCH
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    for _ in range(steps):
        batch, masked = as_batch(pairs[torch.randint(examples, (BATCH,), generator=generator)])
        loss = masked_loss(network(batch, masked), batch.features, masked, FIELDS, config=TrainingConfig()).total
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return network


@torch.no_grad()
def ask(network: DualTransformer, samples: int = 50) -> tuple[Tensor, Tensor, Tensor]:
    """x on a grid, the standard deviation of the noise (from AU) and the variance of the mean (EU) there."""
    x = torch.linspace(-1.9, 1.9, 77)
    batch, masked = as_batch(torch.stack([x, torch.zeros_like(x)], dim=1))
    answers = [network(batch, masked) for _ in range(samples)]
    mean = torch.stack([a.mean[:, 1, 0] for a in answers])
    variance = torch.stack([a.log_variance[:, 1, 0].exp() for a in answers]).mean(dim=0)
    return x, variance.sqrt(), mean.var(dim=0, correction=0)


def test_aleatoric_uncertainty_recovers_the_noise() -> None:
    x, deviation, _ = ask(train(examples=3_200, epochs=10, noise=(0.1, 0.5)))
    assert deviation[x < -0.4].mean().item() == pytest.approx(0.1, rel=0.6)
    assert deviation[x > 0.4].mean().item() == pytest.approx(0.5, rel=0.25)
    assert deviation[x > 0.4].min() > 1.5 * deviation[x < -0.4].max()


def test_epistemic_uncertainty_falls_with_more_data() -> None:
    """After enough passes that both have learned the task: a network that has not is sure of its one answer."""
    few, many = (ask(train(examples, epochs=30, noise=(0.05, 0.05))) for examples in (640, 2_560))
    assert few[1].mean() < 0.25  # the sine itself has a deviation of 0.7
    assert many[2].mean() < 0.5 * few[2].mean()
