"""The training loop: one linear pass over epochs and steps, exact on resume.

In go a `Task` (a network, new or one to carry on from, its loss and its validation), the training windows and a
configuration; the network comes out with its best weights, beside a `FitResult`. Every random choice follows from the
seed, the epoch and the step alone.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ustad.config import Config, ConfigError
from ustad.events.windows import Windows
from ustad.network.training.batches import EpochPlan, bucket_lengths, cut_windows, plan_epoch
from ustad.network.training.checkpoints import Progress, fingerprint, read_checkpoint, write_checkpoint
from ustad.network.training.optimise import (
    keep_generators,
    learning_rate,
    make_optimizer,
    seed_generators,
    set_rate,
    step_seed,
    use_compile,
    use_graphs,
)
from ustad.network.training.process_group import ProcessGroup
from ustad.network.training.task import Task, Validation
from ustad.network.training.update import GraphRecorder, ReplayedUpdate, Update
from ustad.progress import Advance, roughly, track
from ustad.tables import DataError

CHECKPOINT = "checkpoint.safetensors"
_SECONDS_BETWEEN_NOTES = 1.0
#: Settings that change when a run stops, what it writes or how it is launched, but not what it computes.
_TIMING = ("max_minutes", "checkpoint_minutes", "graphs")


@dataclass(frozen=True)
class FitResult:
    """What a run did. `best_loss` is on the epoch's share of the validation agents, `validation` on all of them."""

    history: list[dict[str, Any]]
    best_loss: float
    best_epoch: int
    epochs: int
    steps: int
    seconds: float
    windows_per_s: float
    stopped: Literal["patience", "epochs", "time"]
    validation: Validation

    @property
    def losses(self) -> list[float]:
        """Of validation, by epoch."""
        return [entry["validation"] for entry in self.history]

    def facts(self) -> dict[str, Any]:
        """What is said of it in a model's `facts.json` and on its card."""
        left_out, without_weights = self.validation.left_out, self.validation.without_weights
        return {
            "validation_loss": self.best_loss,
            "validation_fields": {name: round(loss, 5) for name, loss in self.validation.fields.items()},
            **({"validation_left_out": left_out} if left_out else {}),
            **({} if without_weights is None else {"validation_unweighed": round(without_weights, 5)}),
            "epochs": self.epochs,
            "steps": self.steps,
            "stopped": self.stopped,
            "losses": [round(loss, 5) for loss in self.losses],
            "seconds": round(self.seconds, 1),
        }


def train(
    task: Task,
    windows: Windows,
    config: Config,
    directory: Path | None = None,
    *,
    resume: bool = False,
) -> FitResult:
    """Train until validation stops improving (or epochs or time run out) and keep the best weights.

    With a directory, checkpoints and `log.jsonl` are written there; `resume` goes on from the last checkpoint, if
    there is one, to the same weights as a run that was never stopped.
    """
    run = _Run(task, windows, config, directory)
    if resume:
        run.restore()
    log = RunLog(directory if run.group.rank == 0 else None, run.progress.history)
    with keep_generators(run.device), track(task.label, run.total_steps) as advance:
        advance(run.progress.step)
        while run.stopped is None:
            run.epoch(advance)
            if run.stopped != "time":
                log.write(run.progress.history[-1])
    return run.result()


@dataclass
class _Run:
    """The state of one run, and the pieces that `train` strings together."""

    task: Task
    windows: Windows
    config: Config
    directory: Path | None
    progress: Progress = field(default_factory=Progress)
    best: dict[str, Tensor] = field(default_factory=dict)
    stopped: Literal["patience", "epochs", "time"] | None = None

    def __post_init__(self) -> None:
        training, seed = self.config.training, self.config.seed
        if not len(self.windows):
            raise DataError("training: there is no window to learn from; are there events on the training days?")
        if not self.task.questions:
            raise DataError("training: there is no event to validate on; are there events on the validation days?")
        self.network, self.device = self.task.network, self.task.events.device
        self.compiled = use_compile(training, self.device, len(self.windows))
        self.group = ProcessGroup.current()
        self.recorded = use_graphs(training, self.device) and self.group.size == 1
        self.optimizer = make_optimizer(self.network, training, self.recorded)
        # On a GPU every step has a full batch: a length is one shape, whether or not it is recorded or compiled.
        self.full = self.device.type == "cuda" or self.compiled or self.recorded
        cut = cut_windows(self.windows, self.config.training.past_share, seed, 0)
        longest = self.windows.length.max()
        # Every length is one more shape to record; on a CPU more of them only spare padding.
        most, waste = (8, 0.05) if self.full else (16, 0.02)
        self.lengths = tuple(sorted({*bucket_lengths(cut - self.windows.start, most, waste), int(longest)}))
        self.batch_size = min(training.batch_size, len(self.windows))
        self.total_steps = training.epochs * -(-len(self.windows) // self.batch_size)
        self.update = self._make_update()
        self.started = self.saved = self.noted = time.monotonic()
        self.seconds_before, self.steps_before = 0.0, 0

    def _make_update(self) -> Update | ReplayedUpdate:
        self.task.prepare(self.full, self.compiled)
        update = Update(self.task, self.optimizer, self.config.training)
        return ReplayedUpdate(update, self.batch_size, GraphRecorder(self.device)) if self.recorded else update

    # ------------------------------------------------------------------------------------------- epochs
    def epoch(self, advance: Advance) -> None:
        """One pass over the windows (the rest of one, after a resume), then validation."""
        progress, config = self.progress, self.config
        plan = plan_epoch(
            self.windows,
            self.lengths,
            self.batch_size,
            config.training.past_share,
            seed=config.seed,
            epoch=progress.epoch,
        )
        began, first = time.monotonic(), progress.done
        self._train(plan, advance)
        if self.stopped == "time":
            self.save()
            self._judge(self.task.validate())
            return
        seconds = time.monotonic() - began
        share = (len(plan) - first) / len(plan)
        validation = self.task.validate()
        self._record(plan, validation, seconds, share * len(self.windows) / max(seconds, 1e-9))
        self._judge(validation)
        progress.epoch, progress.done = progress.epoch + 1, 0
        progress.loss_sum, progress.field_sums = 0.0, []
        if progress.epoch - 1 - progress.best_epoch >= config.training.patience:
            self.stopped = "patience"
        elif progress.epoch >= config.training.epochs:
            self.stopped = "epochs"
        progress.finished = self.stopped is not None
        if progress.finished or self._due():
            self.save()

    def _train(self, plan: EpochPlan, advance: Advance) -> None:
        """The steps of an epoch that are still to do. Nothing here waits for the device, but notes and saving."""
        progress = self.progress
        self.network.train()
        start, stop = (torch.from_numpy(a).to(self.device) for a in (plan.start, plan.stop))
        so_far = [progress.loss_sum, *(progress.field_sums or [0.0] * len(self.task.parts))]
        sums = torch.tensor(so_far, dtype=torch.float64, device=self.device)
        losses = [entry["validation"] for entry in progress.history]
        for i in range(progress.done, len(plan)):
            seed_generators(self.device, self.group.seed(step_seed(self.config.seed, progress.step)))
            rows = slice(int(plan.first[i]), int(plan.last[i]))
            mine = (self.group.share(ends[rows]) for ends in (start, stop))
            set_rate(self.optimizer, learning_rate(self.config.training, progress.step, self.total_steps, losses))
            sums += self.update(*self._fill_up(*mine), int(plan.length[i]))
            progress.done, progress.step = i + 1, progress.step + 1
            self._note(advance, sums)
            late, due = self._out_of_time(), self._due() and progress.done < len(plan)
            if late or due:
                progress.loss_sum, *progress.field_sums = sums.tolist()
            if late:
                self.stopped = "time"
                return
            if due:
                self.save()
        progress.loss_sum, *progress.field_sums = sums.tolist()

    def _fill_up(self, start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:
        """The ends of the windows [B]; where batches must be full, empty windows make up the last one."""
        lacking = self.group.largest_share(self.batch_size) - len(start)
        if not self.full or not lacking:
            return start, stop
        return torch.nn.functional.pad(start, (0, lacking)), torch.nn.functional.pad(stop, (0, lacking))

    # ---------------------------------------------------------------------------------------- judgement
    def _judge(self, validation: Validation) -> None:
        if not math.isfinite(validation.total):
            raise ConfigError(
                f"training diverged in epoch {self.progress.epoch + 1}: the validation loss is {validation.total}; "
                "lower training.learning_rate"
            )
        if validation.total < self.progress.best_loss:
            self.progress.best_loss, self.progress.best_epoch = validation.total, self.progress.epoch
            self.best = {k: v.detach().clone() for k, v in self.network.state_dict().items()}

    def _record(self, plan: EpochPlan, validation: Validation, seconds: float, rate: float) -> None:
        progress, steps = self.progress, max(self.progress.done, 1)
        progress.seconds = self._total_seconds()
        losses = [entry["validation"] for entry in progress.history]
        progress.history.append(
            {
                "epoch": progress.epoch,
                "step": progress.step,
                "loss": progress.loss_sum / steps,
                "fields": {n: s / steps for n, s in zip(self.task.parts, progress.field_sums, strict=True)},
                "validation": validation.total,
                "validation_fields": validation.fields,
                "learning_rate": learning_rate(self.config.training, progress.step - 1, self.total_steps, losses),
                "padding": round(plan.padding, 4),
                "windows_per_s": round(rate, 1),
                "epoch_seconds": round(seconds, 3),
                "seconds": round(progress.seconds, 3),
            }
        )

    def _note(self, advance: Advance, sums: Tensor) -> None:
        """The live line: epoch, loss so far, last validation, throughput of this process, the longest it can take."""
        now = time.monotonic()
        if now - self.noted < _SECONDS_BETWEEN_NOTES:
            advance(1)
            return
        self.noted = now
        progress = self.progress
        last = f", validation {progress.history[-1]['validation']:.3f}" if progress.history else ""
        loss = float(sums[0]) / max(progress.done, 1)
        pace = (progress.step - self.steps_before) / max(now - self.started, 1e-9)
        rate, left = pace * self.batch_size, roughly((self.total_steps - progress.step) / max(pace, 1e-9))
        advance(1, f"epoch {progress.epoch + 1}, loss {loss:.3f}{last}, {rate:,.0f} windows/s, at most {left} left")

    # ----------------------------------------------------------------------------------- time and disk
    def _total_seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def _out_of_time(self) -> bool:
        limit = self.config.training.max_minutes * 60
        return limit > 0 and self.group.agree(limit <= time.monotonic() - self.started, self.device)

    def _due(self) -> bool:
        return (
            self.directory is not None and time.monotonic() - self.saved >= self.config.training.checkpoint_minutes * 60
        )

    def save(self) -> None:
        if self.directory is None:
            return
        self.progress.seconds = self._total_seconds()
        path = self.directory / self.task.checkpoint
        if self.group.rank == 0:
            write_checkpoint(
                path, self.network, self.optimizer, self.best, progress=self.progress, identity=self.identity()
            )
        self.saved = time.monotonic()

    def restore(self) -> None:
        """Take up the last checkpoint, if there is one."""
        if self.directory is None:
            raise ConfigError("resume: a run can only be resumed from the directory it was written to")
        path = self.directory / self.task.checkpoint
        if not path.exists():
            return
        self.best, self.progress = read_checkpoint(
            path, self.network, self.optimizer, self.device, identity=self.identity()
        )
        self.seconds_before, self.steps_before = self.progress.seconds, self.progress.step
        if self.progress.finished:
            self.stopped = "patience" if self.progress.epoch < self.config.training.epochs else "epochs"

    def identity(self) -> str:
        settings = self.config.to_dict()
        settings["training"] = {k: v for k, v in settings["training"].items() if k not in _TIMING}
        windows = self.windows
        return fingerprint(
            {
                "settings": {k: settings[k] for k in ("seed", "window", "model", "training")},
                **self.task.describe_data(),
                **({"processes": self.group.size} if self.group.size > 1 else {}),
                "windows": [len(windows), int(windows.start.sum()), int(windows.stop.sum()), len(self.task.events)],
            }
        )

    def result(self) -> FitResult:
        self.network.load_state_dict(self.best)
        self.network.eval()
        self.optimizer.zero_grad(set_to_none=True)  # gradients of recorded steps would keep the recordings' memory
        progress = self.progress
        rates = [entry["windows_per_s"] for entry in progress.history]
        return FitResult(
            history=progress.history,
            best_loss=progress.best_loss,
            best_epoch=progress.best_epoch,
            epochs=progress.epoch,
            steps=progress.step,
            seconds=self._total_seconds(),
            windows_per_s=sorted(rates)[len(rates) // 2] if rates else 0.0,
            stopped=self.stopped or "epochs",
            validation=self.task.validate(every=True),
        )


class RunLog:
    """Writes `log.jsonl` into a directory; without a directory it writes nothing."""

    def __init__(self, directory: Path | None, history: list[dict[str, Any]]) -> None:
        self.path = directory / "log.jsonl" if directory is not None else None
        if self.path is not None:
            # A resumed run repeats what its checkpoint remembers, so that no epoch stands in the log twice.
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text("".join(_log_line(entry) for entry in history))

    def write(self, entry: dict[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(_log_line(entry))


def _log_line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True) + "\n"
