"""The frame of a network that predicts masked events; a baseline fills in how events see each other.

It has the methods that training and scoring ask of a network: `embed`, `contextualise_at`, `contextualise_where`,
`decode`. So a new baseline is one `encode` and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ustad.config import ModelConfig, setting
from ustad.events.windows import Batch, Features
from ustad.lab.baselines.base import search_field
from ustad.lab.baselines.fitting import Budget
from ustad.network.heads import Heads, Predictions
from ustad.network.tokenizer import FeatureTokenizer
from ustad.schema import Field


@dataclass(frozen=True)
class DeepSettings(Budget):
    """What every baseline that predicts masked events can choose."""

    width: int = search_field(64, (32, 64, 128), "D, the embedding size, as the paper searches it")
    blocks: int = search_field(3, (3, 4, 5), "layers or blocks, as the paper searches them")
    heads: int = setting(4, "attention heads, where there is attention")
    mask_ratio: float = search_field(
        0.15, (0.05, 0.1, 0.15, 0.2, 0.3), "share of a window's events that are masked; the paper searches 0.05 … 0.3"
    )
    window_days: int = setting(3, "days before the event's own day that are shown, as for the detector")
    max_events: int = setting(48, "windows longer than this keep the latest events")


class SequenceNetwork(nn.Module):
    """Fields of an event side by side → one vector → positions → `encode` → heads. Shapes as in the paper."""

    def __init__(self, fields: Sequence[Field], settings: DeepSettings, aleatoric: bool = False) -> None:
        super().__init__()
        self.fields = tuple(fields)
        self.settings = settings
        D = settings.width
        self.config = ModelConfig(width=D, heads=1, uncertainty="aleatoric" if aleatoric else "none")
        self.tokenizer = FeatureTokenizer(self.fields, D)
        self.join = nn.Linear(len(self.fields) * D, D)
        self.masked_token = nn.Parameter(torch.randn(D) * 0.02)
        self.position = nn.Embedding(settings.max_events, D)
        self.day_position = nn.Embedding(settings.max_events, D)
        self.norm = nn.LayerNorm(D)
        self.heads = Heads(self.fields, D, aleatoric)
        for table in (self.position, self.day_position):
            nn.init.normal_(table.weight, std=0.02)

    def encode(self, x: Tensor, padding: Tensor) -> Tensor:
        """How events of a window see each other: [B, L, D], padding [B, L] -> [B, L, D]."""
        raise TypeError(f"{type(self).__name__} does not say how it encodes a window")

    def embed(self, features: Features) -> Tensor:
        """Events one by one: [...] events of F fields -> [..., D]."""
        return self.join(self.tokenizer(features).flatten(-2))

    def enter(self, events: Tensor, masked: Tensor, position: Tensor, day_position: Tensor) -> Tensor:
        """Masked events replaced by one learned token, positions added: [B, L, D] -> [B, L, D]."""
        x = torch.where(masked[..., None], self.masked_token.to(events.dtype), events)
        limit = self.position.num_embeddings - 1
        return x + self.position(position.clamp(max=limit)) + self.day_position(day_position.clamp(max=limit))

    def contextualise(
        self, events: Tensor, masked: Tensor, padding: Tensor, position: Tensor, *, day_position: Tensor
    ) -> Tensor:
        """Events in their windows: [B, L, D] -> [B, L, D]."""
        return self.norm(self.encode(self.enter(events, masked, position, day_position), padding))

    def contextualise_at(
        self, events: Tensor, masked: Tensor, padding: Tensor, position: Tensor, *, day_position: Tensor, at: Tensor
    ) -> Tensor:
        """The same for one event of each window, at [B] -> [B, D]."""
        hidden = self.contextualise(events, masked, padding, position, day_position=day_position)
        return hidden[torch.arange(len(at), device=at.device), at]

    def contextualise_where(
        self, events: Tensor, masked: Tensor, padding: Tensor, position: Tensor, *, day_position: Tensor, flat: Tensor
    ) -> Tensor:
        """The same for some events, by their place in the flattened batch, flat [M] -> [M, D]."""
        return self.contextualise(events, masked, padding, position, day_position=day_position).flatten(0, 1)[flat]

    def decode(self, hidden: Tensor) -> Predictions:
        """[..., D] -> Predictions, in fp32."""
        with torch.autocast(hidden.device.type, enabled=False):
            return self.heads(hidden.to(self.heads.linear.weight.dtype))

    def forward(self, batch: Batch, masked: Tensor) -> Predictions:
        """Predictions of every event of every window: leading dimensions [B, L]."""
        events = self.embed(batch.features)
        return self.decode(
            self.contextualise(events, masked, batch.padding, batch.position, day_position=batch.day_position)
        )
