"""Nov-Online: an MLP that tells real events from altered ones.

Published only in the paper's appendix: the features of one event (coordinates, start, duration, kind of place) are
embedded, concatenated and read by an 8-layer MLP that says how likely the event is real; altered events are made by
changing features of real ones at random; binary cross-entropy; the score is the negative probability. It knows no
agent and no window, so it can score the moment an event is known.

Where we had to decide:
- An altered event takes each feature with probability one half (at least one) from another random training event, so
  that every single value stays plausible and only combinations are wrong.
- The day of the week is embedded too, which the paper does not list: the network takes every feature of the schema.
- One altered event for each real one.
- Layer normalisation between the layers, without which eight of them do not train.
- The search space (widths of the embeddings and of the layers), because the paper names none.
- A vector, such as the way to a stay, is taken whole from the other event or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from ustad.config import setting
from ustad.events.encoder import Encoder
from ustad.events.windows import EventTensors, Features
from ustad.lab.baselines.base import search_field
from ustad.lab.baselines.deep import EncodedNetwork
from ustad.lab.baselines.fitting import Budget, drawn_by
from ustad.lab.baselines.protocol import Abilities
from ustad.network.tokenizer import FeatureTokenizer
from ustad.schema import Field


@dataclass(frozen=True)
class NovOnlineSettings(Budget):
    """What can be chosen."""

    batch_size: int = setting(1024, "real events per step")
    width: int = search_field(16, (8, 16, 32), "embedding size of each feature; the paper names no space, this is ours")
    hidden: int = search_field(128, (64, 128, 256), "width of the MLP; the paper names no space, this is ours")
    layers: int = setting(8, "linear layers of the MLP, as published")


class RealEventNetwork(nn.Module):
    """Fields of events -> logit of being real [...]."""

    def __init__(self, fields: tuple[Field, ...], settings: NovOnlineSettings) -> None:
        super().__init__()
        self.tokenizer = FeatureTokenizer(fields, settings.width)
        sizes = [len(fields) * settings.width, *([settings.hidden] * (settings.layers - 1))]
        layers: list[nn.Module] = []
        for size, following in pairwise(sizes):
            layers += [nn.Linear(size, following), nn.LayerNorm(following), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(sizes[-1], 1))

    def forward(self, features: Features) -> Tensor:
        return self.layers(self.tokenizer(features).flatten(-2))[..., 0]


class NovOnline(EncodedNetwork):
    """Nov-Online: an 8-layer MLP on real against altered events."""

    name: ClassVar[str] = "nov-online"
    abilities: ClassVar[Abilities] = Abilities(scores_events=True, scores_agents=True, predicts=False, causal=True)
    settings_class: ClassVar[type] = NovOnlineSettings
    network: RealEventNetwork

    def _learn(self, train: pa.Table, validation: pa.Table) -> None:
        self.encoder = Encoder.fit(train, self.schema)
        parts = [EventTensors(self.encoder.encode(t), self.device).features for t in (train, validation)]
        self.network = self._build()
        groups, sizes = feature_groups(self.encoder), vector_sizes(self.encoder)

        def loss(part: int, index: Tensor, length: int, noise: torch.Generator | None) -> Tensor:
            real = self.network(parts[part][index])
            fake = self.network(alter(parts[part][index], parts[0], groups, noise, sizes=sizes))
            return nn.functional.softplus(-real).mean() + nn.functional.softplus(fake).mean()

        lengths = (np.ones(train.num_rows, np.int64), np.ones(validation.num_rows, np.int64))
        self._fit_network(loss, lengths, train.num_rows)

    def _network(self) -> RealEventNetwork:
        return RealEventNetwork(self.encoder.fields, self.settings)

    @torch.no_grad()
    def _rate(self, events: pa.Table, context: pa.Table | None) -> np.ndarray:
        """−p(real); the log keeps events apart where p is 0 or 1 to rounding."""
        arrays = self.encoder.encode(events)
        features = EventTensors(arrays, self.device).features
        parts = torch.arange(len(arrays), device=self.device).split(65_536)
        logits = torch.cat([self.network(features[index]) for index in parts])
        score = np.empty(len(arrays))
        score[arrays.row] = -nn.functional.logsigmoid(logits.double()).cpu().numpy()
        return score


def feature_groups(encoder: Encoder) -> list[int]:
    """The feature that each field belongs to, so that both halves of a place are altered together: [F]."""
    owner = {n: i for i, f in enumerate(encoder.schema.features) for n in f.field_names}
    return [owner[f.name] for f in encoder.fields]


def vector_sizes(encoder: Encoder) -> list[int]:
    """How many numbers each vector field has."""
    return [f.size for f in encoder.fields if f.kind == "vector"]


def alter(
    features: Features, pool: Features, groups: list[int], noise: torch.Generator | None, *, sizes: Sequence[int] = ()
) -> Features:
    """Events [B] in which some features come from random events of `pool`, at least one feature each; vectors have
    `sizes`."""
    B, device = len(features.missing), features.missing.device
    n_groups = max(groups) + 1
    chance = torch.rand(B, n_groups, device=device, **drawn_by(noise))
    is_changed = (chance < 0.5) | (chance == chance.amin(dim=1, keepdim=True))  # [B, groups]
    fields = torch.stack([is_changed[:, group] for group in groups], dim=1)  # [B, F]; a list as index waits for the GPU
    donor = torch.randint(len(pool.missing), (B,), device=device, **drawn_by(noise))
    other = pool[donor]
    n, m = features.numbers.shape[1], len(groups) - len(sizes)
    of_vectors = [fields[:, m + i, None].expand(-1, size) for i, size in enumerate(sizes)]
    return Features(
        torch.where(fields[:, :n], other.numbers, features.numbers),
        torch.where(fields[:, n:m], other.categories, features.categories),
        torch.where(torch.cat(of_vectors, dim=1), other.vectors, features.vectors) if sizes else features.vectors,
        torch.where(fields, other.missing, features.missing),
    )
