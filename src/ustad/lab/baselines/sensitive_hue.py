"""SensitiveHUE: reconstruct every channel with its own uncertainty, and score by both.

Published (Feng et al., KDD 2024) for multivariate time series: a probabilistic network reconstructs each channel
and estimates its heteroscedastic uncertainty; what a channel's own statistics would give away is removed, so that
the reconstruction depends on the other times. The score of a channel is (μ − x)² / 2σ² + ½ ln σ², centred by its
median and divided by its interquartile range; an event takes the maximum over channels. The paper takes every
numeric feature as a channel; categories are not supported.

Where we had to decide:
- An event's own values are removed altogether (it asks with its position and attends to the others' values only), which
  is the strictest form of the published removal and keeps a network from copying.
- The loss is the plain Gaussian likelihood instead of the weighted one.
- Median and range come from the validation period, so that a score does not depend on what it is scored with.
- A vector, such as the way to a stay, is one channel: the mean of S over its numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from ustad.config import setting
from ustad.events.windows import EventTensors
from ustad.lab.baselines.base import State, search_field
from ustad.lab.baselines.deep import MaskedPredictor, ask, in_rows, loop_config, masked_predictions, share_asked
from ustad.lab.baselines.networks import DeepSettings, SequenceNetwork
from ustad.lab.baselines.windowed import window_items
from ustad.network.blocks import HIDDEN
from ustad.network.losses import field_losses, masked_loss
from ustad.schema import Field


@dataclass(frozen=True)
class SensitiveHueSettings(DeepSettings):
    """What can be chosen."""

    width: int = search_field(64, (64, 128), "embedding size, as the paper searches it")
    blocks: int = search_field(2, (1, 2), "layers, as the paper searches them")
    mask_ratio: float = setting(0.15, "not used: nothing is masked in training")


class OthersBlock(nn.Module):
    """Each place asks the values of all other events: places [B, L, D], values [B, L, D] -> [B, L, D]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm_places, self.norm_values = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.forward_part = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, places: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        values = self.norm_values(values)
        answer, _ = self.attention(self.norm_places(places), values, values, attn_mask=bias, need_weights=False)
        places = places + answer
        return places + self.forward_part(places)


class OthersTell(SequenceNetwork):
    """Reconstructs each event from the others, with a variance per channel."""

    def __init__(self, fields: Sequence[Field], settings: SensitiveHueSettings) -> None:
        super().__init__(fields, settings, aleatoric=True)
        self.blocks = nn.ModuleList(OthersBlock(settings.width, settings.heads) for _ in range(settings.blocks))

    def contextualise(
        self, events: Tensor, masked: Tensor, padding: Tensor, position: Tensor, *, day_position: Tensor
    ) -> Tensor:
        nothing = torch.zeros_like(masked)
        places = self.enter(torch.zeros_like(events), nothing, position, day_position) + self.masked_token
        values = self.enter(events, masked, position, day_position)
        L = padding.shape[1]
        itself = torch.eye(L, dtype=torch.bool, device=padding.device)
        alone = (padding.logical_not().sum(1) <= 1)[:, None, None]  # its only key is itself: see nothing of it
        values = torch.where(alone, torch.zeros_like(values), values)
        bias = (padding[:, None, :] | itself).to(values.dtype) * HIDDEN  # [B, L, L]
        bias = bias.repeat_interleave(self.settings.heads, dim=0)
        for block in self.blocks:
            places = block(places, values, bias)
        return self.norm(places)


class SensitiveHue(MaskedPredictor):
    """SensitiveHUE: reconstruction and heteroscedastic uncertainty; numbers only, maximum over channels."""

    name: ClassVar[str] = "sensitive-hue"
    settings_class: ClassVar[type] = SensitiveHueSettings
    kinds_left_out: ClassVar[tuple[str, ...]] = ("categorical",)
    centre: np.ndarray  # [channels] median of each channel's score in validation
    spread: np.ndarray  # [channels] interquartile range

    def targets_an_epoch(self) -> float:
        return share_asked(self.settings, 1.0)

    def _network(self) -> SequenceNetwork:
        return OthersTell(self.encoder.fields, self.settings)

    def _train(self, train: pa.Table, validation: pa.Table) -> None:
        config = self.loop_config()
        parts = window_items(self.encoder, train, validation, config.window, device=self.device)

        def loss(part: int, index: Tensor, length: int, noise: torch.Generator | None) -> Tensor:
            batch = parts[part].batch(index, length)
            predictions = self.network(batch, torch.zeros_like(batch.padding))
            targets = parts[part].targets(index, batch)
            return masked_loss(predictions, batch.features, targets, self.network.fields, config=config.training).total

        self._fit_network(loss, (parts[0].length, parts[1].length), train.num_rows)
        raw, _ = self.channels(validation, train)
        low, self.centre, high = np.nanquantile(raw, [0.25, 0.5, 0.75], axis=0)
        self.spread = np.maximum(high - low, 1e-6)

    def channels(self, events: pa.Table, context: pa.Table | None) -> tuple[np.ndarray, np.ndarray]:
        """S(t, s) of every question and channel, NaN where missing [Q, channels], and the rows asked about."""
        config = loop_config(self.settings, self.seed)
        questions = ask(self.encoder, events, context, config.window)
        fields, parts = self.network.fields, []
        for predictions, truth, _ in masked_predictions(
            self.network, EventTensors(questions.arrays, self.device), questions.queries
        ):
            # Without categories nothing is drawn.
            score = field_losses(predictions.map(Tensor.double), truth, fields, config.training)
            parts.append(score.masked_fill(truth.missing, torch.nan))
        return torch.cat(parts).cpu().numpy(), questions.row

    def _rate(self, events: pa.Table, context: pa.Table | None) -> np.ndarray:
        raw, row = self.channels(events, context)
        errors = (raw - self.centre) / self.spread
        return in_rows(np.where(np.isnan(errors), -np.inf, errors).max(axis=1, initial=-1e6), row)

    def _state(self) -> State:
        state = super()._state()
        state.facts |= {"centre": self.centre.tolist(), "spread": self.spread.tolist()}
        return state

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self.centre, self.spread = (np.array(state.facts[k]) for k in ("centre", "spread"))
