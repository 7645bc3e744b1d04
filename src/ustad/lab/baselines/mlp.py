"""MLP: linear layers read the whole window at once and decode the masked event from the last layer.

Published long before (Rumelhart, Hinton and Williams, 1986); the paper's simplest deep model of masked prediction, and
used by it for that only: linear layers encode the sequence of stays, the last one's vector gives the masked features.
Scoring by its errors is the same as for the Transformer.

Where we had to decide:
- The window is cut or padded to `max_events` places laid side by side.
- The layers squeeze it into one vector, and an event is decoded from that vector and the embedding of its position.
- The search space is USTAD's, because the paper names none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ustad.config import setting
from ustad.lab.baselines.deep import MaskedPredictor
from ustad.lab.baselines.networks import DeepSettings, SequenceNetwork
from ustad.schema import Field


@dataclass(frozen=True)
class MlpSettings(DeepSettings):
    """What can be chosen."""

    hidden: int = setting(256, "width of the layers over the whole window")


class WindowMlp(SequenceNetwork):
    """All events side by side through linear layers; each position asks the result."""

    def __init__(self, fields: Sequence[Field], settings: MlpSettings) -> None:
        super().__init__(fields, settings)
        D, H = settings.width, settings.hidden
        layers: list[nn.Module] = [nn.Linear(settings.max_events * D, H), nn.GELU()]
        for _ in range(settings.blocks - 1):
            layers += [nn.Linear(H, H), nn.GELU()]
        self.layers = nn.Sequential(*layers)
        self.asked = nn.Embedding(settings.max_events, D)
        self.answer = nn.Sequential(nn.Linear(H + D, H), nn.GELU(), nn.Linear(H, D))

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        B, L, _ = x.shape
        room = self.settings.max_events - L
        flat = nn.functional.pad(x.masked_fill(padding[..., None], 0.0), (0, 0, 0, room)).flatten(1)  # [B, max·D]
        summary = self.layers(flat)[:, None].expand(B, L, -1)
        position = self.asked.weight[:L].expand(B, L, -1)
        return self.answer(torch.cat([summary, position], dim=-1))


class Mlp(MaskedPredictor):
    """MLP: linear layers over the whole window, scored by prediction errors."""

    name: ClassVar[str] = "mlp"
    settings_class: ClassVar[type] = MlpSettings

    def _network(self) -> SequenceNetwork:
        return WindowMlp(self.encoder.fields, self.settings)
