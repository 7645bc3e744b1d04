"""One small training loop for the baselines that do not predict masked events.

In go a network, a number of items and a function that gives the loss of some of them; out comes the network with
its best weights. The budget (epochs, patience, batch, learning rate) is the same for every deep baseline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ustad.config import setting
from ustad.progress import track

Network = TypeVar("Network", bound=nn.Module)
#: loss(0 for training items or 1 for held-out ones, indices [B], generator) -> a scalar
LossFunction = Callable[[int, Tensor, torch.Generator], Tensor]


@dataclass(frozen=True)
class Budget:
    """How long and how fast any deep baseline learns. The paper gives every deep model the same search."""

    batch_size: int = setting(128, "windows (or trajectories) per step, as in the paper")
    learning_rate: float = setting(1e-3, "learning rate of Adam, as in the paper")
    weight_decay: float = setting(1e-5, "weight decay of Adam, as in the paper")
    epochs: int = setting(12, "at most this many passes over the training data")
    patience: int = setting(3, "stop after this many epochs without a better validation loss")


@dataclass(frozen=True)
class Fitted:
    """How training went."""

    best_loss: float
    epochs: int
    seconds: float


def seeded(device: torch.device, *numbers: int) -> torch.Generator:
    """A generator that depends on these numbers only."""
    state = int(np.random.SeedSequence(numbers).generate_state(1, np.uint32)[0])
    return torch.Generator(device=device).manual_seed(state)


def build(make: Callable[[], Network], seed: int, device: torch.device) -> Network:
    """A network whose initial weights depend on the seed only; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().to(device)


def fit_network(
    network: nn.Module,
    loss: LossFunction,
    items: tuple[int, int],
    budget: Budget,
    seed: int,
    device: torch.device,
    label: str,
) -> Fitted:
    """Adam on `items[0]` training items, early stopping on `items[1]` held-out ones, best weights at the end."""
    began = time.monotonic()
    optimiser = torch.optim.Adam(
        network.parameters(), lr=budget.learning_rate, weight_decay=budget.weight_decay, fused=True
    )
    best, best_loss, best_epoch = _copy(network), float("inf"), -1
    epoch = 0
    with track(label, budget.epochs) as advance:
        for epoch in range(budget.epochs):
            network.train()
            order = torch.randperm(items[0], generator=seeded(torch.device("cpu"), seed, epoch)).to(device)
            noise = seeded(device, seed, epoch, 1)
            for index in order.split(budget.batch_size):
                optimiser.zero_grad(set_to_none=True)
                loss(0, index, noise).backward()
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimiser.step()
            value = mean_loss(network, loss, items[1], budget.batch_size, seed, device)
            advance(1, f"validation loss {value:.4f}")
            if value < best_loss:
                best, best_loss, best_epoch = _copy(network), value, epoch
            elif epoch - best_epoch >= budget.patience:
                break
    network.load_state_dict(best)
    network.eval()
    return Fitted(best_loss, epoch + 1, time.monotonic() - began)


@torch.no_grad()
def mean_loss(
    network: nn.Module, loss: LossFunction, items: int, batch_size: int, seed: int, device: torch.device
) -> float:
    """The loss over all held-out items, with the same noise every time."""
    network.eval()
    noise = seeded(device, seed, 2)
    parts = torch.arange(items, device=device).split(4 * batch_size)
    total = sum((loss(1, index, noise) * len(index) for index in parts), torch.zeros((), device=device))
    return float(total) / max(items, 1)


def pack(network: nn.Module) -> dict[str, Tensor]:
    """The weights, to be stored beside other tensors."""
    return {f"network.{name}": value for name, value in network.state_dict().items()}


def unpack(network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Take weights over from what `pack` gave; the network is ready to score."""
    own = {k.removeprefix("network."): v for k, v in tensors.items() if k.startswith("network.")}
    network.load_state_dict(own)
    network.eval()


def _copy(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}
