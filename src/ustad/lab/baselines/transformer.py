"""Transformer: plain self-attention over the events of a window.

Published (Vaswani et al., 2017); the paper uses it for masked prediction and, scored by |error| of numbers and 1 − p of
categories, as its strongest competitor in detection. Against the dual Transformer it lacks attention between the
features of an event and both uncertainties.

Where we had to decide:
- An event is the linear map of its features' embeddings side by side.
- Blocks are the same pre-norm blocks as the detector's, so that only the idea differs.
- How errors of features become one score, which the paper does not say: each becomes a percentile among the events
  scored together, and an event takes the maximum over its features.
- The search space is USTAD's, because the paper names none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import Tensor, nn

from ustad.lab.baselines.deep import MaskedPredictor
from ustad.lab.baselines.networks import DeepSettings, SequenceNetwork
from ustad.network.blocks import HIDDEN, Block
from ustad.schema import Field


class EventTransformer(SequenceNetwork):
    """Blocks of self-attention over events."""

    def __init__(self, fields: Sequence[Field], settings: DeepSettings) -> None:
        super().__init__(fields, settings)
        self.blocks = nn.ModuleList(Block(settings.width, settings.heads) for _ in range(settings.blocks))

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        bias = (padding.to(x.dtype) * HIDDEN)[:, None, None, :]
        for block in self.blocks:
            x = block(x, bias)
        return x


class Transformer(MaskedPredictor):
    """Transformer: self-attention over a window's events, scored by prediction errors."""

    name: ClassVar[str] = "transformer"

    def _network(self) -> SequenceNetwork:
        return EventTransformer(self.encoder.fields, self.settings)
