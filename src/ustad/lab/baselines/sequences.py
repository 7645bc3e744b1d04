"""Days as padded tensors, for the recurrent baselines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ustad.lab.baselines.trajectory_grid import Days


@dataclass(frozen=True)
class PaddedDays:
    """D days of at most L values each, on a device."""

    values: Tensor  # [D, L, ...]
    length: Tensor  # int64 [D], at least 1

    def take(self, index: Tensor, longest: int | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Values of some days cut to the longest of them, which are real [B, L] as numbers, and the last [B]."""
        length = self.length[index]
        longest = int(length.max()) if longest is None else longest
        real = (torch.arange(longest, device=length.device) < length[:, None]).float()
        return self.values[index, :longest], real, length - 1


def pad_days(days: Days, values: np.ndarray, max_length: int, device: torch.device) -> PaddedDays:
    """Values [N, ...] of the days' places as a tensor [D, L, ...], zeros after each day's end."""
    length = np.minimum(days.length, max_length)
    place = np.arange(int(length.max()))
    index = np.minimum(days.offsets[:-1, None] + place, len(values) - 1)
    rows = values[index] * (place < length[:, None]).reshape(*index.shape, *([1] * (values.ndim - 1)))
    return PaddedDays(torch.from_numpy(rows).to(device), torch.from_numpy(length).to(device))
