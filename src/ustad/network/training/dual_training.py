"""Training of the paper's network: lessons go in, a network with its best weights comes out.

A cluster takes over the long step (`engine/train_job.py`).
"""

from __future__ import annotations

import math

import torch

from ustad import progress
from ustad.config import Config
from ustad.events.encoder import Encoder
from ustad.events.windows import EventTensors, Queries, Windows, make_windows
from ustad.evidence_source import Training
from ustad.lessons import Lessons
from ustad.network.dual_transformer import DualTransformer
from ustad.network.training.estimate import announce
from ustad.network.training.loop import FitResult
from ustad.network.training.masked_task import MaskedTask, fit

#: Below this many steps of training the losses, which then are the score, have hardly begun to fall.
FEW_STEPS = 200


def new_network(
    encoder: Encoder, config: Config, device: torch.device | str, start: DualTransformer | None = None
) -> DualTransformer:
    """A network whose first weights follow from the seed, or are those of `start`."""
    torch.manual_seed(config.seed)
    network = DualTransformer(encoder.fields, config.model, config.window.max_events)
    if start is not None:
        network.load_state_dict(start.state_dict())
    return network.to(device)


def training_tensors(
    lessons: Lessons, config: Config, device: torch.device | str
) -> tuple[EventTensors, Windows, tuple[EventTensors, Queries]]:
    """Training windows and, one at a time, the questions of the early-stopping entities."""
    arrays = lessons.encoder.encode(lessons.train)
    stopping, questions = lessons.stopping_questions(config)
    windows = make_windows(arrays, config.window)
    return EventTensors(arrays, device), windows, (EventTensors(stopping, device), questions)


def train_network(network: DualTransformer, lessons: Lessons, training: Training) -> FitResult:
    """Train; with a directory, checkpoints are written there, and `resume` goes on from the last one."""
    config, device = training.config, training.device
    tensors, windows, validation = training_tensors(lessons, config, device)
    epochs, batch = config.training.epochs, config.training.batch_size
    steps = epochs * math.ceil(len(windows) / batch)
    if steps < FEW_STEPS:
        progress.warn(
            f"{len(windows):,} windows are at most {steps:,} steps, too few to learn much in; lower "
            f"training.batch_size ({batch}) or raise training.epochs ({epochs})"
        )
    announce(MaskedTask(network, tensors, *validation, config), windows, config)
    return fit(
        network, tensors, windows, validation, config=config, device=device, directory=training.directory,
        resume=training.resume,
    )  # fmt: skip
