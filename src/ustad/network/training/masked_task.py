"""The dual Transformer's task: predict masked events of a window, field by field."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ustad.config import Config
from ustad.events.windows import EventTensors, Queries, Windows
from ustad.network.dual_transformer import DualTransformer
from ustad.network.training.loop import CHECKPOINT, FitResult, train
from ustad.network.training.masked_step import Stepper, capacity
from ustad.network.training.optimise import compile_loss
from ustad.network.training.task import Validation
from ustad.network.training.validation import choose_queries, validate


@dataclass
class MaskedTask:
    """A `Task`; `queries` are about the events of the early-stopping agents, `stopping_events`."""

    network: DualTransformer
    events: EventTensors
    stopping_events: EventTensors
    queries: Queries
    config: Config
    label: str = "training"
    checkpoint: str = CHECKPOINT

    def __post_init__(self) -> None:
        self.parts = tuple(f.name for f in self.network.fields)
        self.questions = len(self.queries)
        self.asked: Queries | None = None

    def copy(self) -> MaskedTask:
        return replace(self, network=deepcopy(self.network))

    def prepare(self, dense: bool, is_compiled: bool) -> None:
        self.step = Stepper(self.network, self.config.training, dense)
        self._sized_loss = compile_loss(self.loss_with_room, self.network) if is_compiled else self.loss_with_room

    def loss(self, start: Tensor, stop: Tensor, length: int) -> tuple[Tensor, Tensor]:
        return self._sized_loss(start, stop, length, capacity(len(start), length, self.config.training.mask_ratio))

    def loss_with_room(self, start: Tensor, stop: Tensor, length: int, size: int) -> tuple[Tensor, Tensor]:
        """The loss, with room for so many masked events where shapes may not depend on the data."""
        loss = self.step(self.events.batch(start, stop, length), size)
        return loss.total, loss.fields

    def validate(self, every: bool = False) -> Validation:
        if self.asked is None:
            share, seed = self.config.training.validation_share, self.config.seed
            self.asked = choose_queries(self.queries, self.stopping_events.entity, share, seed)
        return validate(self.network, self.stopping_events, self.queries if every else self.asked, self.config)

    def describe_data(self) -> dict[str, object]:
        return {"fields": [(f.name, f.kind, f.size) for f in self.network.fields]}


def fit(
    network: DualTransformer,
    tensors: EventTensors,
    windows: Windows,
    validation: tuple[EventTensors, Queries],
    *,
    config: Config,
    device: torch.device | str = "cpu",
    directory: Path | None = None,
    resume: bool = False,
) -> FitResult:
    """Train a dual Transformer until validation stops improving; it keeps its best weights. See `loop.train`."""
    task = MaskedTask(network.to(torch.device(device)), tensors, *validation, config)
    return train(task, windows, config, directory, resume=resume)
