"""The task of the network with place memory: predict masked events, alone or with their neighbours, from a memory
without their weeks."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor

from ustad.config import Config
from ustad.events.windows import EventTensors, Queries, Windows
from ustad.network.place_memory import MemoryTransformer
from ustad.network.training.estimate import rough_seconds
from ustad.network.training.loop import FitResult, train
from ustad.network.training.masked_step import capacity
from ustad.network.training.memory_step import SPAN_RATIO, Data, training_loss, validate
from ustad.network.training.task import Validation
from ustad.progress import roughly, say, shown

CHECKPOINT = "memory-checkpoint.safetensors"
#: Questions that each epoch is validated on, drawn once.
MOST_QUESTIONS = 4096


@dataclass
class MemoryTask:
    """A `Task`; `queries` are about the events of the early-stopping agents, `held`."""

    network: MemoryTransformer
    data: Data
    held: Data
    queries: Queries
    config: Config
    label: str = "training the memory network"
    checkpoint: str = CHECKPOINT
    parts: tuple[str, ...] = ()
    dense: bool = False

    def __post_init__(self) -> None:
        self.questions = len(self.queries)

    @property
    def events(self) -> EventTensors:
        return self.data.events

    def copy(self) -> MemoryTask:
        return replace(self, network=deepcopy(self.network))

    def prepare(self, dense: bool, compiled: bool) -> None:
        self.dense = dense

    def loss(self, start: Tensor, stop: Tensor, length: int) -> tuple[Tensor, Tensor]:
        ratio = self.config.training.mask_ratio
        size = capacity(len(start), length, SPAN_RATIO * ratio) if self.dense else None
        loss = training_loss(self.network, self.data, start, stop, length, ratio, size)
        return loss, loss.new_zeros(0)

    def validate(self, every: bool = False) -> Validation:
        fields = validate(self.network, self.held, self.queries)
        return Validation(sum(fields.values()), fields, self.questions)

    def describe_data(self) -> dict[str, object]:
        return {}


def fit_memory(
    network: MemoryTransformer,
    data: Data,
    windows: Windows,
    validation: tuple[Data, Queries],
    config: Config,
    directory: Path | None = None,
    resume: bool = False,
) -> FitResult:
    """Train a network with place memory until the validation loss stops falling; it keeps its best weights."""
    task = MemoryTask(network, data, validation[0], _some(validation[1], config.seed), config)
    if shown():
        seconds = rough_seconds(task, windows, config)
        say(f"training on {len(windows):,} windows: {roughly(seconds)}, less if it stops early")
    return train(task, windows, config, directory, resume)


def _some(queries: Queries, seed: int) -> Queries:
    if len(queries) <= MOST_QUESTIONS:
        return queries
    return queries.take(np.sort(np.random.default_rng(seed).permutation(len(queries))[:MOST_QUESTIONS]))
