"""The task of the network with place memory: predict masked events, alone or with their neighbours, from a memory
without their weeks."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ustad.config import Config
from ustad.events.windows import EventTensors, Queries, Windows
from ustad.network.dual_transformer import DualTransformer
from ustad.network.training.estimate import announce
from ustad.network.training.loop import FitResult, train
from ustad.network.training.masked_step import capacity
from ustad.network.training.memory_step import SPAN_RATIO, Data, training_loss, validate
from ustad.network.training.task import Validation

CHECKPOINT = "memory-checkpoint.safetensors"
#: Questions that each epoch is validated on, drawn once.
MOST_QUESTIONS = 4096
#: Steps that a run on a GPU keeps at least when its batches grow, and how often they double.
STEPS, MOST_DOUBLINGS = 3_500, 4
#: Windows that a run sees at most, in as many passes as that makes, but so many at least: 20 passes of 20,000 people.
MOST_SEEN, FEWEST_PASSES = 8_000_000, 2
#: Steps under which batches of little data shrink, to the smallest size.
FEWEST_STEPS, SMALLEST_BATCH = 2_000, 32


@dataclass
class MemoryTask:
    """A `Task`; `queries` are about the events of the early-stopping agents, `stopping_data`."""

    network: DualTransformer
    data: Data
    stopping_data: Data
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

    def prepare(self, dense: bool, is_compiled: bool) -> None:
        self.dense = dense

    def loss(self, start: Tensor, stop: Tensor, length: int) -> tuple[Tensor, Tensor]:
        ratio = self.config.training.mask_ratio
        size = capacity(len(start), length, SPAN_RATIO * ratio) if self.dense else None
        loss = training_loss(self.network, self.data, start, stop, length=length, ratio=ratio, size=size)
        return loss, loss.new_zeros(0)

    def validate(self, every: bool = False) -> Validation:
        fields = validate(self.network, self.stopping_data, self.queries)
        return Validation(sum(fields.values()), fields, self.questions)

    def describe_data(self) -> dict[str, object]:
        return {}


def fit_memory(
    network: DualTransformer,
    data: Data,
    windows: Windows,
    validation: tuple[Data, Queries],
    *,
    config: Config,
    directory: Path | None = None,
    resume: bool = False,
) -> FitResult:
    """Train a network with place memory until the validation loss stops falling; it keeps its best weights."""
    config = fit_batch(fit_passes(config, len(windows)), len(windows), data.events.device)
    task = MemoryTask(network, data, validation[0], _some(validation[1], config.seed), config)
    announce(task, windows, config)
    return train(task, windows, config, directory, resume=resume)


def fit_passes(config: Config, windows: int) -> Config:
    """Fewer passes over much data: what a network of this size can learn it has learnt after MOST_SEEN windows."""
    passes = max(round(MOST_SEEN / windows), FEWEST_PASSES)
    return config.replace({"training.epochs": min(config.training.epochs, passes)})


def fit_batch(config: Config, windows: int, device: torch.device) -> Config:
    """Batches of the size that the data ask for.

    Little data: batches halve as long as the run has fewer than FEWEST_STEPS steps; an eighth of the batch has half the
    rate. Much data on a GPU: batches double as long as the run keeps STEPS steps, and rates grow with their root, to
    twice at most. A GPU does four times the windows in little more than twice the time; with fewer steps the same
    passes teach less (docs/evidence/scaling.md).
    """
    training = config.training
    steps = training.epochs * windows / training.batch_size
    if steps < FEWEST_STEPS:
        most = max(int(math.log2(training.batch_size / SMALLEST_BATCH)), 0)
        halvings = min(math.ceil(math.log2(FEWEST_STEPS / max(steps, 1.0))), most)
        rate = training.learning_rate * 0.5 ** (halvings / 3)
        return config.replace({"training.batch_size": training.batch_size >> halvings, "training.learning_rate": rate})
    doublings = min(int(math.log2(max(steps / STEPS, 1.0))), MOST_DOUBLINGS) if device.type == "cuda" else 0
    rate = training.learning_rate * min(2.0 ** (doublings / 2), 2.0)
    return config.replace({"training.batch_size": training.batch_size << doublings, "training.learning_rate": rate})


def _some(queries: Queries, seed: int) -> Queries:
    if len(queries) <= MOST_QUESTIONS:
        return queries
    return queries.take(np.sort(np.random.default_rng(seed).permutation(len(queries))[:MOST_QUESTIONS]))
