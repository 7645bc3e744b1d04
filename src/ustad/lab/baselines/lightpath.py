"""LightPath: two masked views of one sequence, to be recovered and to be recognised as the same.

Published (Yang et al., KDD 2023) for paths on a road network: a sparse encoder sees only the events that are left,
a decoder recovers the others, and a contrastive loss tells two views of one path from views of different paths. The
paper uses it for masked prediction with mask ratios 0.05 and 0.1, without categories. Scoring by its errors is the
same as for the Transformer.

Where we had to decide:
- Categories are left out as input too.
- The representation of a view is the mean over its visible events.
- Binary classification by the scaled product of two representations, positives and negatives weighing the same.
- The published distillation into a lighter model is left out, because speed is not compared.
- Width and blocks are searched as USTAD's are, because the paper names no space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import torch
from torch import Tensor, nn

from ustad.config import setting
from ustad.events.windows import Batch
from ustad.lab.baselines.deep import MaskedPredictor, share_asked
from ustad.lab.baselines.networks import DeepSettings, SequenceNetwork
from ustad.lab.baselines.windowed import random_masks, window_items
from ustad.network.blocks import HIDDEN, Block
from ustad.network.heads import Predictions
from ustad.network.losses import masked_loss
from ustad.schema import Field


@dataclass(frozen=True)
class LightPathSettings(DeepSettings):
    """What can be chosen."""

    mask_ratio: float = setting(0.15, "not used: the two views have ratios of their own")
    first_ratio: float = setting(0.05, "share of events masked in the first view, as in the paper")
    second_ratio: float = setting(0.1, "share of events masked in the second view, as in the paper")
    contrast_weight: float = setting(0.1, "weight of the contrastive loss beside the reconstruction")


class SparseEncoder(SequenceNetwork):
    """Blocks over visible events, then one block over all places with masked ones to be filled."""

    def __init__(self, fields: Sequence[Field], settings: LightPathSettings) -> None:
        super().__init__(fields, settings)
        D = settings.width
        self.blocks = nn.ModuleList(Block(D, settings.heads) for _ in range(settings.blocks))
        self.decoder = Block(D, settings.heads)
        self.relation = nn.Sequential(nn.Linear(D, D), nn.GELU(), nn.Linear(D, D))

    def visible(
        self, events: Tensor, masked: Tensor, padding: Tensor, position: Tensor, *, day_position: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Encoded visible events (others are not to be used), and positions of all: [B, L, D] each."""
        nothing = torch.zeros_like(masked)
        blank = torch.zeros_like(events)
        places = self.enter(blank, nothing, position, day_position)
        x = events.masked_fill(masked[..., None], 0.0) + places
        bias = ((padding | masked).to(x.dtype) * HIDDEN)[:, None, None, :]
        for block in self.blocks:
            x = block(x, bias)
        return x, places

    def contextualise(
        self, events: Tensor, masked: Tensor, padding: Tensor, position: Tensor, *, day_position: Tensor
    ) -> Tensor:
        x, places = self.visible(events, masked, padding, position, day_position=day_position)
        return self.recover(x, places, masked, padding)

    def recover(self, x: Tensor, places: Tensor, masked: Tensor, padding: Tensor) -> Tensor:
        """All events, masked ones filled in from the visible: [B, L, D] -> [B, L, D]."""
        x = torch.where(masked[..., None], self.masked_token + places, x)
        return self.norm(self.decoder(x, (padding.to(x.dtype) * HIDDEN)[:, None, None, :]))

    def view(self, batch: Batch, events: Tensor, masked: Tensor) -> tuple[Predictions, Tensor]:
        """What a view recovers, and the view as one unit vector [B, D]."""
        x, places = self.visible(events, masked, batch.padding, batch.position, day_position=batch.day_position)
        is_seen = (~(batch.padding | masked)).to(x.dtype)[..., None]
        mean = (x * is_seen).sum(1) / is_seen.sum(1).clamp(min=1)
        vector = nn.functional.normalize(self.relation(mean), dim=-1)
        return self.decode(self.recover(x, places, masked, batch.padding)), vector


class LightPath(MaskedPredictor):
    """LightPath: reconstruction and contrast of two masked views; numbers only."""

    name: ClassVar[str] = "lightpath"
    settings_class: ClassVar[type] = LightPathSettings
    kinds_left_out: ClassVar[tuple[str, ...]] = ("categorical",)
    network: SparseEncoder

    def targets_an_epoch(self) -> float:
        return share_asked(self.settings, self.settings.first_ratio + self.settings.second_ratio)

    def _network(self) -> SequenceNetwork:
        return SparseEncoder(self.encoder.fields, self.settings)

    def _train(self, train: pa.Table, validation: pa.Table) -> None:
        config = self.loop_config()
        parts = window_items(self.encoder, train, validation, config.window, device=self.device)
        network, settings = self.network, self.settings

        def loss(part: int, index: Tensor, length: int, noise: torch.Generator | None) -> Tensor:
            batch = parts[part].batch(index, length)
            events, targets = network.embed(batch.features), parts[part].targets(index, batch)
            errors, vectors = [], []
            for ratio in (settings.first_ratio, settings.second_ratio):
                masked = random_masks(batch.padding, ratio, noise)
                recovery, vector = network.view(batch, events, masked)
                errors.append(
                    masked_loss(
                        recovery, batch.features, masked & targets, network.fields, config=config.training
                    ).total
                )
                vectors.append(vector)
            return errors[0] + errors[1] + settings.contrast_weight * contrast(vectors[0], vectors[1])

        self._fit_network(loss, (parts[0].length, parts[1].length), train.num_rows)


def contrast(first: Tensor, second: Tensor, temperature: float = 0.2) -> Tensor:
    """Binary classification of pairs [B, D] × [B, D]: the same sequence or not, both kinds weighing the same."""
    alike = first @ second.T / temperature  # [B, B]
    same = torch.eye(len(alike), dtype=torch.bool, device=alike.device)
    positive = nn.functional.softplus(-alike.diagonal()).mean()
    if len(alike) == 1:
        return positive
    others = nn.functional.softplus(alike).masked_fill(same, 0.0).sum() / (len(alike) * (len(alike) - 1))
    return positive + others
