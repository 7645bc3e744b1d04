"""How long training will take, roughly: two small steps on a copy of the network, scaled up."""

from __future__ import annotations

import copy
import time

import numpy as np
import torch

from ustad.config import Config
from ustad.events.windows import EventTensors, Windows
from ustad.model.network import DualTransformer
from ustad.training.step import Stepper, capacity

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
