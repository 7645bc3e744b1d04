"""How the baselines that do not predict masked events are trained: by the detector's own loop.

In go a network, the lengths of its items (windows, days or single events) and a function for the loss of some items.
Out comes the network with its best weights. Every learned method has the same loop, precision, recorded steps and rule
to stop, and says in the same words how its training went.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ustad.config import Config, setting
from ustad.events.windows import Windows
from ustad.network.training.loop import CHECKPOINT, FitResult, train
from ustad.network.training.optimise import compile_loss
from ustad.network.training.task import Validation

Network = TypeVar("Network", bound=nn.Module)
#: loss(0 for training items or 1 for held-out ones, indices [B], the length they are padded to, generator) -> a scalar
LossFunction = Callable[[int, Tensor, int, torch.Generator | None], Tensor]
#: However often an epoch shows each target, so many epochs without a better validation loss are waited for.
FEWEST_EPOCHS = 5
#: Held-out items whose loss is computed at once, on a CPU and on a GPU.
AT_ONCE, AT_ONCE_CUDA = 512, 4096


@dataclass(frozen=True)
class Budget:
    """How long and how fast any deep baseline learns. The paper gives every deep model the same search."""

    batch_size: int = setting(128, "windows (or trajectories) per step, as in the paper")
    learning_rate: float = setting(1e-3, "learning rate of Adam at the start, as in the paper")
    epochs: int = setting(300, "at most this many passes over the training windows, days or events")
    passes: float = setting(
        6.0, "stop after every event was a target so often without a better validation loss, at least after 5 epochs"
    )
    patience: int = setting(0, "stop after this many epochs without a better validation loss; 0: by passes")
    max_minutes: float = setting(0.0, "stop after this much wall time; 0: no limit")
    acceleration: str = setting("auto", "how the hardware is used: auto, compile or off, as `training.acceleration`")


def loop_settings(budget: Budget, targets_an_epoch: float) -> dict[str, Any]:
    """A budget as settings of the loop; `targets_an_epoch` is how often an epoch asks about each training event."""
    names = ("batch_size", "learning_rate", "epochs", "max_minutes", "acceleration")
    patience = budget.patience or max(FEWEST_EPOCHS, math.ceil(budget.passes / targets_an_epoch))
    return {**{f"training.{name}": getattr(budget, name) for name in names}, "training.patience": patience}


def describe_training(result: FitResult, targets: float) -> dict[str, Any]:
    """How training went, for result files; `targets` were asked about in each epoch."""
    return {
        "epochs": result.epochs,
        "steps": result.steps,
        "targets": round(targets * result.epochs),
        "best_loss": result.best_loss,
        "best_epoch": result.best_epoch,
        "curve": [round(loss, 5) for loss in result.losses],
        "seconds": round(result.seconds, 2),
        "stopped": result.stopped,
        "converged": result.stopped == "patience",
        "fields": {name: round(loss, 5) for name, loss in result.validation.fields.items()},
    }


def describe_facts(facts: dict[str, Any], targets: float | None = None) -> dict[str, Any]:
    """The same of a detector, by what it says of its own training; nothing where it has no network."""
    if "losses" not in facts:
        return {}
    losses = facts["losses"]
    return {
        "epochs": facts["epochs"],
        "steps": facts["steps"],
        **({} if targets is None else {"targets": round(targets * facts["epochs"])}),
        "best_loss": facts["validation_loss"],
        "best_epoch": int(np.argmin(losses)) if losses else 0,
        "curve": losses,
        "seconds": facts["seconds"],
        "stopped": facts["stopped"],
        "converged": facts["stopped"] == "patience",
        "fields": facts.get("validation_fields", {}),
        **({"unweighed": facts["validation_unweighed"]} if "validation_unweighed" in facts else {}),
        **({"left_out": facts["validation_left_out"]} if "validation_left_out" in facts else {}),
    }


def seed_generator(device: torch.device, *numbers: int) -> torch.Generator:
    """A generator that depends on these numbers only."""
    state = int(np.random.SeedSequence(numbers).generate_state(1, np.uint32)[0])
    return torch.Generator(device=device).manual_seed(state)


def drawn_by(noise: torch.Generator | None) -> dict[str, Any]:
    """The argument of torch's random functions; none for its own generator, which a compiled loss draws from."""
    return {} if noise is None else {"generator": noise}


def build(make: Callable[[], Network], seed: int, device: torch.device) -> Network:
    """A network whose initial weights depend on the seed only; torch's own generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().to(device)


@dataclass(frozen=True)
class Items:
    """The training items as the loop sees events: where they are, and how many."""

    device: torch.device
    count: int

    def __len__(self) -> int:
        return self.count


@dataclass
class ItemTask:
    """A `Task` of items; the loop's window i … i + length is item i, padded to that length."""

    network: nn.Module
    loss_of: LossFunction
    events: Any  # `Items`, which answer what the loop asks of events
    held_out: np.ndarray  # int64 [n] lengths of the items that are validated on
    config: Config
    label: str
    checkpoint: str = CHECKPOINT
    parts: tuple[str, ...] = ("loss",)

    def __post_init__(self) -> None:
        self.questions = len(self.held_out)
        self._training_loss = self.loss_of

    def copy(self) -> ItemTask:
        return replace(self, network=deepcopy(self.network))

    def prepare(self, dense: bool, is_compiled: bool) -> None:
        """Shapes depend on the length alone, dense or not."""
        self._training_loss = compile_loss(self.loss_of, self.network) if is_compiled else self.loss_of

    def loss(self, start: Tensor, stop: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """Items `start`; where empty ones fill a batch up, its real ones take their places once more."""
        real = (stop > start).sum().clamp(min=1)
        index = start[torch.arange(len(start), device=start.device) % real]
        loss = self._training_loss(0, index, length, None)
        return loss, loss.detach()[None]

    @torch.no_grad()
    def validate(self, every: bool = False) -> Validation:
        """The loss over all held-out items, with the same noise every time."""
        was_training = self.network.training
        self.network.eval()
        device = self.events.device
        noise = seed_generator(device, self.config.seed, 2)
        total = torch.zeros((), dtype=torch.float64, device=device)
        order = np.argsort(self.held_out, kind="stable")
        size = AT_ONCE_CUDA if device.type == "cuda" else AT_ONCE
        for rows in np.split(order, range(size, len(order), size)):
            index = torch.from_numpy(rows).to(device)
            total += self.loss_of(1, index, int(self.held_out[rows].max()), noise).double() * len(rows)
        self.network.train(was_training)
        mean = float(total) / max(len(order), 1)
        return Validation(mean, {"loss": mean}, len(order))

    def describe_data(self) -> dict[str, object]:
        return {"items": len(self.events)}


def fit_network(
    network: nn.Module,
    loss: LossFunction,
    lengths: tuple[np.ndarray, np.ndarray],
    config: Config,
    *,
    device: torch.device,
    label: str,
) -> FitResult:
    """Train on items of the lengths[0], stop early by those of lengths[1]; the network keeps its best weights."""
    start = np.arange(len(lengths[0]))
    windows = Windows(start, start, start + np.asarray(lengths[0], np.int64))
    items = Items(device, len(start))
    return train(ItemTask(network, loss, items, np.asarray(lengths[1]), config, label), windows, config)


def pack(network: nn.Module) -> dict[str, Tensor]:
    """The weights, to be stored beside other tensors."""
    return {f"network.{name}": value for name, value in network.state_dict().items()}


def unpack(network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Take weights over from what `pack` gave; the network is ready to score."""
    own = {k.removeprefix("network."): v for k, v in tensors.items() if k.startswith("network.")}
    network.load_state_dict(own)
    network.eval()
