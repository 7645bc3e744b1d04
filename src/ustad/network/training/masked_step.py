"""One step of training: mask some events of a batch, predict them, measure the loss.

In go a network and padded windows; out comes the loss with its parts. There are two ways that compute the same:
`packed` spends nothing on padding and on events nobody sees (best where shapes may change: a CPU), `dense` has
one shape per window length (best where the step is recorded or compiled: a GPU).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ustad.config import TrainingConfig
from ustad.events.windows import Batch, Features
from ustad.network.dual_transformer import DualTransformer
from ustad.network.losses import Loss, field_losses, field_means, masked_mean, weigh


def draw_masks(padding: Tensor, ratio: float) -> Tensor:
    """Each real event with probability `ratio`, at least one (a departure) per window that has any: bool [B, L]."""
    chance = torch.rand(padding.shape, device=padding.device).masked_fill(padding, 2.0)
    lowest = chance.amin(dim=1, keepdim=True)
    return (chance < ratio) | ((chance == lowest) & ~padding)


def capacity(batch_size: int, length: int, ratio: float) -> int:
    """How many masked events a batch can have, but for a chance of about one in a billion."""
    # Of a window of n events n·ratio + (1 - ratio)ⁿ are masked on average: the most is at one end, 1 or the length.
    expected = max(1.0, length * ratio + (1 - ratio) ** length) * batch_size
    bound = math.ceil(expected + 6 * math.sqrt(expected) + 8)
    return min(batch_size * length, -(-bound // 64) * 64)


def places(masked: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Where masked [B, L] is true, as places in the flattened batch: int64 [size], and which of them are real.

    The shape does not depend on the data, so nothing waits for the device to count.
    """
    flat = masked.flatten()
    rank = flat.cumsum(dim=0) - 1
    slot = torch.where(flat & (rank < size), rank, size)
    index = torch.zeros(size + 1, dtype=torch.int64, device=flat.device)
    index = index.scatter(0, slot, torch.arange(len(flat), device=flat.device))[:size]
    return index, torch.arange(size, device=flat.device) < flat.sum()


def embed_shown(network: DualTransformer, batch: Batch, masked: Tensor, *, dense: bool) -> Tensor:
    """Feature-level vectors [B, L, D]; unless dense, only of the events that are shown: the others are zeros."""
    if dense:
        return network.embed(batch.features)
    visible = (~batch.padding & ~masked).flatten().nonzero()[:, 0]
    embeddings = network.embed(_flatten(batch.features)[visible])  # [visible, D]
    events = embeddings.new_zeros(masked.numel(), embeddings.shape[-1]).index_copy(0, visible, embeddings)
    return events.view(*masked.shape, -1)


@dataclass
class Stepper:
    """The loss of a batch under one configuration."""

    network: DualTransformer
    config: TrainingConfig
    dense: bool

    def __call__(self, batch: Batch, size: int) -> Loss:
        """Masks drawn from torch's own generator, which the loop seeds for each step; `size` is the capacity."""
        masked = draw_masks(batch.padding, self.config.mask_ratio)
        return self.dense_loss(batch, masked, size) if self.dense else self.packed_loss(batch, masked)

    def dense_loss(self, batch: Batch, masked: Tensor, size: int) -> Loss:
        flat, real = places(masked, size)
        return self._finish(batch, masked, embed_shown(self.network, batch, masked, dense=True), flat, real=real)

    def packed_loss(self, batch: Batch, masked: Tensor) -> Loss:
        flat = masked.flatten().nonzero()[:, 0]
        events = embed_shown(self.network, batch, masked, dense=False)
        return self._finish(batch, masked, events, flat, real=torch.ones_like(flat, dtype=torch.bool))

    def _finish(self, batch: Batch, masked: Tensor, events: Tensor, flat: Tensor, *, real: Tensor) -> Loss:
        """The loss of the masked events at the places `flat`, of which some are `real`: both [M]."""
        network = self.network
        hidden = network.contextualise_where(
            events, masked, batch.padding, batch.position, day_position=batch.day_position, flat=flat
        )  # [M, D]
        targets = _flatten(batch.features)[flat]
        losses = field_losses(network.decode(hidden), targets, network.fields, self.config)  # [M, F]
        weighed_losses = losses if batch.weight is None else losses * batch.weight.flatten(0, 1)[flat]
        values = weigh(weighed_losses, network.fields, self.config)
        return Loss(masked_mean(values, real), field_means(losses, targets.missing, real))


def _flatten(features: Features) -> Features:
    """[B, L, …] -> [B·L, …]."""
    return Features(
        features.numbers.flatten(0, 1),
        features.categories.flatten(0, 1),
        features.vectors.flatten(0, 1),
        features.missing.flatten(0, 1),
    )
