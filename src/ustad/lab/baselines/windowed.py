"""Windows as items of the small loop, for baselines whose loss is not masked prediction alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ustad.config import WindowConfig
from ustad.dataset import event_days
from ustad.events.encoder import Encoder
from ustad.events.windows import Batch, EventTensors, Windows, make_windows
from ustad.lab.baselines.fitting import drawn_by


@dataclass(frozen=True)
class WindowItems:
    """Windows of one period on a device; an item is a window. Its loss is of the events from `first` on."""

    tensors: EventTensors
    start: Tensor  # int64 [W]
    first: Tensor  # int64 [W]
    stop: Tensor  # int64 [W]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> np.ndarray:
        """Of each window: int64 [W]."""
        return (self.stop - self.start).cpu().numpy()

    def batch(self, index: Tensor, length: int) -> Batch:
        """Some windows, padded to a length that none of them exceeds."""
        return self.tensors.batch(self.start[index], self.stop[index], length)

    def targets(self, index: Tensor, batch: Batch) -> Tensor:
        """Which events of those windows the loss is of: bool [B, L]."""
        return (batch.position >= (self.first - self.start)[index][:, None]) & ~batch.padding


def window_items(
    encoder: Encoder, train: pa.Table, validation: pa.Table, window: WindowConfig, *, device: torch.device
) -> tuple[WindowItems, WindowItems]:
    """Training windows, and validation windows that look back into training; their loss is of their own day alone, so
    that it is of every validation event once and of no training event."""
    arrays = encoder.encode(train)
    both = encoder.encode(pa.concat_tables([train, validation], promote_options="default"))
    first = int(event_days(validation, encoder.schema).min())
    training, held_out = make_windows(arrays, window), make_windows(both, window, first_day=first)
    return (
        _items(EventTensors(arrays, device), training, training.start),
        _items(EventTensors(both, device), held_out, held_out.target),
    )


def random_masks(padding: Tensor, ratio: float, noise: torch.Generator | None) -> Tensor:
    """Each real event with probability `ratio`, at least one per window: bool [B, L]."""
    chance = torch.rand(padding.shape, device=padding.device, **drawn_by(noise)).masked_fill(padding, 2.0)
    return (chance < ratio) | ((chance == chance.amin(dim=1, keepdim=True)) & ~padding)


def _items(tensors: EventTensors, windows: Windows, first: np.ndarray) -> WindowItems:
    edges = (windows.start, first, windows.stop)
    return WindowItems(tensors, *(torch.from_numpy(np.ascontiguousarray(a)).to(tensors.device) for a in edges))
