"""LSTM: a recurrent network reads the window and decodes the masked event from its hidden vector.

Published (Hochreiter and Schmidhuber, 1997) for sequences of any kind; the paper reads the stays of a window with it
and uses it for masked prediction only. Scoring by its errors is the same as for the Transformer.

Where we had to decide:
- It reads the window from both ends, because a window shows what came after a masked event too and every other network
  may use it.
- The two hidden vectors are joined by a linear map.
- The search space is USTAD's, because the paper names none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from ustad.lab.baselines.deep import MaskedPredictor
from ustad.lab.baselines.networks import DeepSettings, SequenceNetwork
from ustad.schema import Field


class EventLstm(SequenceNetwork):
    """One LSTM from the left, one from the right."""

    def __init__(self, fields: Sequence[Field], settings: DeepSettings) -> None:
        super().__init__(fields, settings)
        D = settings.width
        self.onward = nn.LSTM(D, D, settings.blocks, batch_first=True)
        self.backward_ = nn.LSTM(D, D, settings.blocks, batch_first=True)
        self.both = nn.Linear(2 * D, D)

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        back = _mirror(padding)[..., None].expand_as(x)
        right, _ = self.backward_(x.gather(1, back))
        left, _ = self.onward(x)
        return self.both(torch.cat([left, right.gather(1, back)], dim=-1))


class Lstm(MaskedPredictor):
    """LSTM: a recurrent network over a window's events, scored by prediction errors."""

    name: ClassVar[str] = "lstm"

    def _network(self) -> SequenceNetwork:
        return EventLstm(self.encoder.fields, self.settings)


def _mirror(padding: Tensor) -> Tensor:
    """Index that reverses the real events of each window and leaves padding at the end: [B, L]."""
    position = torch.arange(padding.shape[1], device=padding.device).expand_as(padding)
    last = (~padding).sum(1, keepdim=True) - 1
    return torch.where(padding, position, last - position).clamp(min=0)
