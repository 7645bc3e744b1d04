"""How long training will take, roughly: a few steps on a copy of the network, scaled up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ustad.config import Config
from ustad.events.windows import Windows
from ustad.network.training.optimise import keep_generators, make_optimizer
from ustad.network.training.task import Task
from ustad.network.training.update import Update
from ustad.progress import is_shown, roughly, say


def announce(task: Task, windows: Windows, config: Config) -> None:
    """Say how long training will take at most; on a GPU the progress line does, seconds later and better."""
    if not is_shown():
        return
    duration = ""
    if task.events.device.type == "cpu":
        duration = f": {roughly(rough_seconds(task, windows, config))}, less if it stops early"
    say(f"training on {len(windows):,} windows{duration}")


def rough_seconds(task: Task, windows: Windows, config: Config) -> float:
    """Seconds for all epochs, validation included, if none is saved by early stopping.

    Windows are trained on by length: one step is timed with short, one with middling and one with long ones, after one
    that warms up. Leaves the network and the generators alone. On a GPU it is a bound: recorded steps are faster.
    """
    device, size = task.events.device, min(config.training.batch_size, len(windows))
    twin = task.copy()
    twin.network.train()
    twin.prepare(dense=device.type == "cuda", is_compiled=False)
    update = Update(twin, make_optimizer(twin.network, config.training), config.training)
    order = np.argsort(windows.length, kind="stable")
    batches = [windows.take(order[round(at * (len(order) - size)) :][:size]) for at in (1.0, 0.0, 0.5, 1.0)]
    with keep_generators(device):
        seconds = [_time(lambda part=part: _step(update, part)) for part in batches]  # type: ignore[misc]  # bound now
        validation = _time(twin.validate)
    steps = -(-len(windows) // size) if device.type == "cuda" else len(windows) / size  # on a GPU the last is filled up
    return config.training.epochs * (steps * float(np.mean(seconds[1:])) + validation)


def _step(update: Update, windows: Windows) -> None:
    start, stop = (torch.from_numpy(ends).to(update.device) for ends in (windows.start, windows.stop))
    update(start, stop, int(windows.length.max()))


def _time(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began
