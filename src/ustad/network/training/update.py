"""One update of the weights: cut a batch out of the events, mask, predict, go down the gradient.

In go the ends of some windows; the weights change and the losses come out. On a GPU a small step is mostly the
launching of hundreds of kernels: `ReplayedUpdate` records them once for each window length and launches them together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ustad.config import TrainingConfig
from ustad.network.out_of_memory import free_memory, is_out_of_memory
from ustad.network.training.optimise import take_step, use_bf16
from ustad.network.training.process_group import ProcessGroup
from ustad.network.training.task import Task
from ustad.progress import say

#: Takes work on fixed buffers; returns what does the same work again and hands out the same result tensor.
Recorder = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]


@dataclass
class Update:
    """Forward, backward, clip, step of the optimiser. Never waits for the device where the task is dense.

    Where memory does not hold a batch, it is computed in `pieces` whose gradients are added up: the same batch, with
    other masks than in one piece.
    """

    task: Task
    optimizer: torch.optim.Optimizer
    config: TrainingConfig
    group: ProcessGroup = field(default_factory=ProcessGroup.current)
    pieces: int = 1

    @property
    def device(self) -> torch.device:
        return self.task.events.device

    def __call__(self, start: Tensor, stop: Tensor, length: int) -> Tensor:
        """Windows start … stop [B], padded to `length` -> their loss and its parts' means, float64 [1 + P]."""
        network = self.task.network
        losses = self._losses(start, stop, length)
        self.group.average(network, start, stop)
        if self.config.clip_norm > 0:  # departure from the paper: rare windows have huge errors
            torch.nn.utils.clip_grad_norm_(network.parameters(), self.config.clip_norm)
        take_step(self.optimizer)
        return losses

    def _losses(self, start: Tensor, stop: Tensor, length: int) -> Tensor:
        """The losses, and their gradients in the network; in smaller pieces from the first time that memory is full."""
        while True:
            self.optimizer.zero_grad(set_to_none=True)
            try:
                if self.pieces == 1:
                    return self._go_back(start, stop, length)
                return self._in_pieces(start, stop, length)
            except Exception as error:
                if not is_out_of_memory(error) or self.pieces >= len(start):
                    raise
            self.pieces = min(2 * self.pieces, len(start))
            self.optimizer.zero_grad(set_to_none=True)
            free_memory(self.device)
            say(f"training: memory is full; every batch is now computed in {self.pieces} pieces")

    def _in_pieces(self, start: Tensor, stop: Tensor, length: int) -> Tensor:
        """Each piece weighs as many windows as it has; empty ones, which fill a batch, weigh nothing."""
        weights = (stop > start).to(torch.float64)
        total = weights.sum().clamp(min=1)
        pieces = zip(start.chunk(self.pieces), stop.chunk(self.pieces), weights.chunk(self.pieces), strict=True)
        return sum((self._go_back(a, b, length, w.sum() / total) for a, b, w in pieces), torch.zeros(()))

    def _go_back(self, start: Tensor, stop: Tensor, length: int, share: Tensor | None = None) -> Tensor:
        """Forward and backward; the gradients are added to those that are there."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=use_bf16(self.config, self.device)):
            loss, parts = self.task.loss(start, stop, length)
        (loss if share is None else loss * share.to(loss.dtype)).backward()
        losses = torch.cat([loss.detach()[None], parts]).to(torch.float64)
        return losses if share is None else losses * share


@dataclass
class ReplayedUpdate:
    """The same update from recordings, one per window length; every batch must have `batch_size` windows.

    A length that is met for the first time runs as it is (kernels are chosen, moments are made), the second time it
    is recorded, from then on replayed. Seeds set before a replay hold for it, so masks and dropout are those of an
    update that was not recorded. Where recording fails, everything runs as it is from then on.
    """

    update: Update
    batch_size: int
    record: Recorder
    recordings: dict[int, Callable[[], Tensor]] = field(default_factory=dict)
    met_lengths: set[int] = field(default_factory=set)
    has_failed: bool = False

    def __post_init__(self) -> None:
        places = torch.zeros(2, self.batch_size, dtype=torch.int64, device=self.update.device)
        self.start, self.stop = places

    def __call__(self, start: Tensor, stop: Tensor, length: int) -> Tensor:
        if self.has_failed:
            return self.update(start, stop, length)
        if length not in self.met_lengths:
            self.met_lengths.add(length)
            with warnings.catch_warnings():  # the optimiser of recorded steps wonders why this one is not
                warnings.filterwarnings("ignore", message=".*capturable=True.*")
                return self.update(start, stop, length)
        self.start.copy_(start)
        self.stop.copy_(stop)
        if length not in self.recordings and not self._try_recording(length):
            return self.update(start, stop, length)
        return self.recordings[length]()

    def _try_recording(self, length: int) -> bool:
        self.update.optimizer.zero_grad(set_to_none=True)  # gradients belong to the recording
        try:
            self.recordings[length] = self.record(lambda: self.update(self.start, self.stop, length))
        except RuntimeError as error:
            self.has_failed = True
            self.recordings.clear()
            self.update.optimizer.zero_grad(set_to_none=True)
            say(f"training: steps cannot be recorded on this GPU and run one by one ({str(error).splitlines()[0]})")
        return not self.has_failed


@dataclass
class GraphRecorder:
    """Records CUDA work as graphs that share their memory: they never run at the same time."""

    device: torch.device

    def __post_init__(self) -> None:
        self.pool, self.stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream(self.device)

    def __call__(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        graph, before = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self.device)
        try:
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                result = work()
        except RuntimeError:
            torch.cuda.set_stream(before)
            self._release_generator()
            raise

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay

    def _release_generator(self) -> None:
        """A recording that broke off leaves the device's generator waiting for its end: give it a new state."""
        torch.cuda.synchronize(self.device)
        generator = torch.cuda.default_generators[self.device.index or 0]
        generator.graphsafe_set_state(torch.Generator(self.device).graphsafe_get_state())
