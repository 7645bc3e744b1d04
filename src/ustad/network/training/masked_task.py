"""The dual Transformer's task: predict masked events of a window, field by field."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from ustad.config import Config
from ustad.events.windows import EventTensors, Queries, Windows
from ustad.network.dual_transformer import DualTransformer
from ustad.network.training.loop import CHECKPOINT, FitResult, train
from ustad.network.training.masked_step import Stepper, capacity
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

    def prepare(self, dense: bool, compile_blocks: bool) -> None:
        self.step = Stepper(self.network, self.config.training, dense)
        if compile_blocks:
            self.step.blocks = CompiledBlocks(self.network)

    def loss(self, start: Tensor, stop: Tensor, length: int) -> tuple[Tensor, Tensor]:
        batch = self.events.batch(start, stop, length)
        loss = self.step(batch, capacity(len(start), length, self.config.training.mask_ratio))
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


class CompiledBlocks(AbstractContextManager[None]):
    """While entered, the blocks of a network run compiled; outside (validation, scoring) they are as they were.

    A compiled block serves every block of its level and every window length, so compiling takes less than a minute
    once, not for each shape of a whole step."""

    def __init__(self, network: DualTransformer, backend: str | Callable[..., Any] = "inductor") -> None:
        parts = [(block, "forward") for block in (*network.feature_blocks[:-1], *network.event_blocks[:-1])]
        parts += [(network.feature_blocks[-1], "total"), (network.event_blocks[-1], "where")]
        self.methods: list[tuple[nn.Module, str, Callable[..., torch.Tensor]]] = [
            (block, name, torch.compile(getattr(block, name), dynamic=True, backend=backend)) for block, name in parts
        ]

    def __enter__(self) -> None:
        for block, name, method in self.methods:
            block.__dict__[name] = method

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for block, name, _ in self.methods:
            del block.__dict__[name]
