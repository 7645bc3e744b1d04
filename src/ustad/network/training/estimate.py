"""How long training will take, roughly: a few steps on a copy of the network, scaled up."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ustad.config import Config
from ustad.events.windows import EventTensors, Queries, Windows
from ustad.network.dual_transformer import DualTransformer
from ustad.network.place_memory import MemoryTransformer
from ustad.network.training.masked_step import Stepper, capacity
from ustad.network.training.memory_step import Data, MemoryUpdate, validate
from ustad.network.training.optimise import make_optimizer

_PILOT = 64  # windows in a timed step on a CPU; a GPU takes hardly longer for a whole batch


def rough_seconds(network: DualTransformer, tensors: EventTensors, windows: Windows, config: Config) -> float:
    """Seconds for all epochs, if none is saved by early stopping. Leaves the network and the generators alone.

    On a GPU it is a bound: recorded steps are faster than the one that is timed here.
    """
    pilot = min(len(windows), config.training.batch_size if tensors.device.type == "cuda" else _PILOT)
    chosen = windows.take(np.linspace(0, len(windows) - 1, pilot).astype(np.int64))
    start, stop = (torch.from_numpy(a).to(tensors.device) for a in (chosen.start, chosen.stop))
    batch = tensors.batch(start, stop, int(chosen.length.max()))
    step = Stepper(copy.deepcopy(network).train(), config.training, dense=tensors.device.type == "cuda")
    size = capacity(len(chosen), batch.padding.shape[1], config.training.mask_ratio)
    devices = [tensors.device] if tensors.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        for timed in (False, True):  # the first call warms up
            began = time.perf_counter()
            step(batch, size).total.backward()
            if devices:
                torch.cuda.synchronize()
            seconds = time.perf_counter() - began if timed else 0.0
    return seconds * config.training.epochs * len(windows) / len(chosen)


def rough_memory_seconds(
    network: MemoryTransformer, data: Data, windows: Windows, validation: tuple[Data, Queries], config: Config
) -> float:
    """Seconds for all epochs of the memory network, validation included, if none is saved by early stopping.

    Windows are trained on by length: one step is timed with short, one with middling and one with long ones.
    """
    device, size = data.events.device, min(config.training.batch_size, len(windows))
    forked = [device] if device.type == "cuda" else []
    twin = copy.deepcopy(network).train()
    update = MemoryUpdate(twin, data, make_optimizer(twin, config.training), config.training, dense=bool(forked))
    order = np.argsort(windows.length, kind="stable")
    batches = [windows.take(order[round(at * (len(order) - size)) :][:size]) for at in (1.0, 0.0, 0.5, 1.0)]
    asking = min(8 * _PILOT, len(validation[1]))
    questions = validation[1].take(np.linspace(0, len(validation[1]) - 1, asking).astype(np.int64))
    with torch.random.fork_rng(devices=forked):
        seconds = [_time(lambda part=part: _step(update, part)) for part in batches]  # type: ignore[misc]  # bound now
        asked = [_time(lambda: validate(twin, validation[0], questions)) for _ in range(2)]
    steps = -(-len(windows) // size) if forked else len(windows) / size  # on a GPU the last one is filled up
    return config.training.epochs * (
        steps * float(np.mean(seconds[1:])) + min(asked) * len(validation[1]) / len(questions)
    )


def _step(update: MemoryUpdate, windows: Windows) -> None:
    start, stop = (torch.from_numpy(ends).to(update.tensors.device) for ends in (windows.start, windows.stop))
    update(start, stop, int(windows.length.max()))


def _time(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began
