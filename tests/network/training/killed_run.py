"""A training run that is killed and taken up again, over and over: `python killed_run.py DIRECTORY`.

The run checkpoints after every step. Children of this process train; each is killed (SIGKILL) a few milliseconds after
it has written some checkpoints, at the latest when it has written three more. Prints at which step each of them was
killed, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from safetensors import safe_open
from small_world import FIELDS, SMALL, make_arrays

from ustad.config import Config, TrainingConfig
from ustad.events.windows import EventTensors, make_queries, make_windows
from ustad.network.dual_transformer import DualTransformer, build_network
from ustad.network.training import loop
from ustad.network.training.loop import CHECKPOINT
from ustad.network.training.masked_task import fit

CONFIG = Config.preset("paper", **{**SMALL, "training.epochs": 8})
TrainingConfig.checkpoint_minutes = 0.0
#: Checkpoints that a child may write, and seconds after the last of them, until it is killed.
MOMENTS = ((1, 0.0), (1, 0.004), (3, 0.009), (5, 0.0), (2, 0.015))


def run(directory: Path | None, config: Config = CONFIG) -> DualTransformer:
    """The whole run, or what is left of it."""
    torch.set_num_threads(1)
    arrays = make_arrays()
    tensors, windows = EventTensors(arrays), make_windows(arrays, config.window)
    asked = tensors, make_queries(arrays, windows, config.window).take(np.arange(100))
    network = build_network(FIELDS, config)
    fit(
        network, tensors, windows, asked, config=config, device="cpu", directory=directory, resume=directory is not None
    )
    return network


def step_of(path: Path) -> int:
    with safe_open(str(path), framework="pt") as file:
        return int(json.loads(file.metadata()["progress"])["step"])


def killed_after(directory: Path, checkpoints: int, seconds: float) -> int:
    """Train in a child until it has written so many checkpoints and a little longer; the step it got to."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        train_and_tell(directory, checkpoints, tell)
    os.close(tell)
    assert os.read(told, 1), "the child ended before it had written them"
    os.close(told)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return step_of(directory / CHECKPOINT)


def train_and_tell(directory: Path, checkpoints: int, tell: int) -> NoReturn:
    """Say when so many checkpoints are written, go on, and wait for the end where that is late on a busy machine."""
    write, written = loop.write_checkpoint, count(1)

    def write_and_count(*arguments: Any, **named: Any) -> None:
        write(*arguments, **named)
        number = next(written)
        if number == checkpoints:
            os.write(tell, b".")
        while number >= checkpoints + 3:
            signal.pause()

    loop.write_checkpoint = write_and_count
    run(directory)
    os._exit(1)


if __name__ == "__main__":
    where = Path(sys.argv[1])
    run(None, CONFIG.replace({"training.epochs": 1}))  # what is imported late is then there for every child
    print(json.dumps([killed_after(where, *moment) for moment in MOMENTS]))
