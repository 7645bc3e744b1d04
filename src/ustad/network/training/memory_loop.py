"""Training of the memory network: the loop over epochs and steps, its checkpoints, and early stopping.

In go the network, the training events with their own places, and questions of the early-stopping agents; the
network comes out with its best weights. Every random choice follows from the seed, the epoch and the step, so a run
that was killed goes on from its checkpoint to the same weights.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ustad.config import Config
from ustad.events.windows import Queries, Windows
from ustad.network.place_memory import MemoryTransformer
from ustad.network.training.batches import bucket_lengths, plan_epoch
from ustad.network.training.checkpoints import Progress, fingerprint, read_checkpoint, write_checkpoint
from ustad.network.training.estimate import rough_memory_seconds
from ustad.network.training.memory_step import Data, MemoryUpdate, validate
from ustad.network.training.optimise import learning_rate, make_optimizer, set_rate, step_seed, use_graphs
from ustad.network.training.team import Team
from ustad.network.training.update import GraphRecorder, Replayed
from ustad.progress import Advance, roughly, say, shown, track

CHECKPOINT = "memory-checkpoint.safetensors"
#: Questions that each epoch is validated on, drawn once.
MOST_QUESTIONS = 4096


@dataclass(frozen=True)
class MemoryFit:
    """What a run did: mean validation loss by epoch, the best of them, seconds."""

    losses: list[float]
    best_loss: float
    best_epoch: int
    seconds: float
    parts: dict[str, float] = field(default_factory=dict)  # of the best epoch, by part

    @property
    def epochs(self) -> int:
        return len(self.losses)


def fit_memory(
    network: MemoryTransformer,
    data: Data,
    windows: Windows,
    validation: tuple[Data, Queries],
    config: Config,
    directory: Path | None = None,
    resume: bool = False,
) -> MemoryFit:
    """Train until the validation loss stops falling; the network keeps its best weights.

    With a directory checkpoints are written there; `resume` goes on from the last one, if there is one.
    """
    validation = (validation[0], _some(validation[1], config.seed))
    if shown():
        seconds = rough_memory_seconds(network, data, windows, validation, config)
        say(f"training the memory network on {len(windows):,} windows: {roughly(seconds)}, less if it stops early")
    run = _Run(network, data, windows, validation, config, directory)
    if resume:
        run.restore()
    device = data.events.device
    forked = [device.index or 0] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=forked), track("training the memory network", run.total_steps) as advance:
        advance(run.progress.step)
        while not run.progress.finished and not run.late:
            run.epoch(advance)
    return run.result()


@dataclass
class _Run:
    """The state of one run."""

    network: MemoryTransformer
    data: Data
    windows: Windows
    validation: tuple[Data, Queries]
    config: Config
    directory: Path | None
    progress: Progress = field(default_factory=Progress)
    best: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        training, device = self.config.training, self.data.events.device
        self.team = Team.current()
        recorded = use_graphs(training, device) and self.team.size == 1
        self.full = device.type == "cuda"  # every step has a full batch: one shape for each length
        self.optimizer = make_optimizer(self.network, training, recorded)
        self.batch_size = min(training.batch_size, len(self.windows))
        self.lengths = bucket_lengths(self.windows.length)
        self.total_steps = training.epochs * -(-len(self.windows) // self.batch_size)
        update = MemoryUpdate(self.network, self.data, self.optimizer, training, dense=self.full)
        self.update: MemoryUpdate | Replayed = update
        if recorded:
            self.update = Replayed(update, self.batch_size, GraphRecorder(device))  # type: ignore[arg-type]  # has all that is asked of an update
        self.late = False
        self.started = self.saved = time.monotonic()
        self.before = 0.0

    def epoch(self, advance: Advance) -> None:
        """One pass over the windows (the rest of one, after a resume), then validation."""
        progress, config = self.progress, self.config
        plan = plan_epoch(
            self.windows, self.lengths, self.batch_size, config.training.past_share, config.seed, progress.epoch
        )
        self.network.train()
        start, stop = (torch.from_numpy(ends).to(self.data.events.device) for ends in (plan.start, plan.stop))
        for i in range(progress.done, len(plan)):
            torch.manual_seed(self.team.seed(step_seed(config.seed, progress.step)))
            set_rate(self.optimizer, learning_rate(config.training, progress.step, self.total_steps))
            rows = slice(int(plan.first[i]), int(plan.last[i]))
            mine = (self.team.share(ends[rows]) for ends in (start, stop))
            self.update(*self._filled(*mine), int(plan.length[i]))
            progress.done, progress.step = i + 1, progress.step + 1
            advance(1)
            self.late = self.team.size == 1 and self._over()
            if self.late or self._due():
                self.save()
            if self.late:
                break
        self._judge()
        if not self.late:
            self.late = self.team.agree(self._over(), self.data.events.device)
            progress.epoch, progress.done = progress.epoch + 1, 0
            patient = progress.epoch - 1 - progress.best_epoch < config.training.patience
            progress.finished = progress.epoch >= config.training.epochs or not patient
            self.save()

    def _filled(self, start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
        """A full batch where shapes have to stay: windows without events make up the last one."""
        lacking = self.team.largest_share(self.batch_size) - len(start)
        if not self.full or not lacking:
            return start, stop
        return torch.nn.functional.pad(start, (0, lacking)), torch.nn.functional.pad(stop, (0, lacking))

    def _judge(self) -> None:
        progress = self.progress
        parts = validate(self.network, *self.validation)
        loss = sum(parts.values())
        if not self.late:
            progress.history.append({"epoch": progress.epoch, "validation": loss, "parts": parts})
        if loss < progress.best_loss or not self.best:
            progress.best_loss, progress.best_epoch = loss, progress.epoch
            self.best = {name: value.detach().clone() for name, value in self.network.state_dict().items()}

    # ----------------------------------------------------------------------------------- time and disk
    def _over(self) -> bool:
        limit = self.config.training.max_minutes * 60
        return 0 < limit <= time.monotonic() - self.started

    def _due(self) -> bool:
        minutes = self.config.training.checkpoint_minutes
        return self.directory is not None and time.monotonic() - self.saved >= minutes * 60

    def save(self) -> None:
        if self.directory is None or self.team.rank > 0:
            return
        self.progress.seconds = self._elapsed()
        path = self.directory / CHECKPOINT
        write_checkpoint(path, self.network, self.optimizer, self.best, self.progress, self._identity())
        self.saved = time.monotonic()

    def restore(self) -> None:
        path = self.directory / CHECKPOINT if self.directory is not None else None
        if path is None or not path.exists():
            return
        device = self.data.events.device
        self.best, self.progress = read_checkpoint(path, self.network, self.optimizer, device, self._identity())
        self.before = self.progress.seconds

    def _identity(self) -> str:
        settings, windows = self.config.to_dict(), self.windows
        timing = ("max_minutes", "checkpoint_minutes")
        settings["training"] = {k: v for k, v in settings["training"].items() if k not in timing}
        data = [len(windows), int(windows.start.sum()), int(windows.stop.sum()), len(self.data.events)]
        return fingerprint({k: settings[k] for k in ("seed", "window", "model", "training")} | {"windows": data})

    def _elapsed(self) -> float:
        return self.before + time.monotonic() - self.started

    def result(self) -> MemoryFit:
        self.network.load_state_dict(self.best)
        self.network.eval()
        self.optimizer.zero_grad(set_to_none=True)  # gradients of recorded steps would keep the recordings' memory
        history = self.progress.history
        parts: dict[str, float] = next((h["parts"] for h in history if h["epoch"] == self.progress.best_epoch), {})
        losses = [h["validation"] for h in history]
        return MemoryFit(losses, self.progress.best_loss, self.progress.best_epoch, self._elapsed(), parts)


def _some(queries: Queries, seed: int) -> Queries:
    if len(queries) <= MOST_QUESTIONS:
        return queries
    return queries.take(np.sort(np.random.default_rng(seed).permutation(len(queries))[:MOST_QUESTIONS]))
