"""Several processes that train one network: each takes its share of every batch, and gradients are averaged.

Who is there comes from torch.distributed, which whoever starts the processes has set up. Without it a group is one
process, and nothing here does anything. All members have the same windows, and the same weights after every step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

_STRIDE = 0x9E3779B97F4A7C15
_LARGEST = (1 << 63) - 1


@dataclass(frozen=True)
class ProcessGroup:
    """One member of `size`."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> ProcessGroup:
        if not (dist.is_available() and dist.is_initialized()):
            return cls()
        return cls(dist.get_rank(), dist.get_world_size())

    def share(self, windows: Tensor) -> Tensor:
        """This member's part of a batch [B]; a batch of fewer windows than members is everybody's."""
        return windows if len(windows) < self.size else windows[self.rank :: self.size]

    def largest_share(self, batch_size: int) -> int:
        return -(-batch_size // self.size)

    def seed(self, seed: int) -> int:
        """Masks, dropout and noise of a step differ between members."""
        return (seed + self.rank * _STRIDE) & _LARGEST

    def average(self, network: nn.Module, start: Tensor, stop: Tensor) -> None:
        """The gradients of all members, weighted by how many windows start … stop [B] (but empty ones) each had."""
        if self.size == 1:
            return
        parameters = [p for p in network.parameters() if p.requires_grad]
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        weight = (stop > start).sum().to(grads[0].dtype)
        flat = torch.cat([*(g.flatten() * weight for g in grads), weight.reshape(1)])
        dist.all_reduce(flat)
        pieces = (flat[:-1] / flat[-1]).split([p.numel() for p in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.grad = piece.view_as(parameter)

    def agree(self, flag: bool, device: torch.device) -> bool:
        """Whether any member says so: a run must not stop for one of them alone."""
        if self.size == 1:
            return flag
        vote = torch.tensor(float(flag), device=device)
        dist.all_reduce(vote, dist.ReduceOp.MAX)
        return bool(vote.item())
