"""ATROM: which kind of anomaly a trajectory looks like, by distances between distributions.

Published (Gao et al., IJCAI 2023) for rides with labelled kinds of anomalies and some that are not known:
a variational encoder turns a ride's coordinates into a Gaussian, every kind has a Gaussian of its own, and the
probabilistic metric rule turns the distances between them into the probability of each kind. Adapted to stays: a
ride is the coordinates of an agent's local day. Agents only: an agent is as unusual as its most unusual day.

Where we had to decide: we have no labelled kinds of anomalies. The kinds are made from training days, as the
published work makes its own: a *detour* (one place moved to another training place), a *switch* (the rest of the day
taken from another day) and a *shuffle* (the places in another order). The score is −log of the probability that a
day is of none of these kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ustad.config import setting
from ustad.events.encoder import Scale
from ustad.lab.baselines.base import State, search_field
from ustad.lab.baselines.fitting import Budget, build, pack, unpack
from ustad.lab.baselines.sequences import PaddedDays, pad_days
from ustad.lab.baselines.trajectory_grid import Days, TrajectoryBaseline

KINDS = ("usual", "detour", "switch", "shuffle")


@dataclass(frozen=True)
class AtromSettings(Budget):
    """What can be chosen."""

    width: int = search_field(128, (64, 128, 512), "size of the recurrent state, as the paper searches it")
    latent: int = setting(16, "size of the latent Gaussian")
    kl_weight: float = setting(0.1, "weight of the divergence from the Gaussian of the day's kind")
    max_length: int = setting(24, "a day's first places that are read")


class MetricRule(nn.Module):
    """Coordinates of a day -> a Gaussian -> log-probability of each kind."""

    def __init__(self, settings: AtromSettings) -> None:
        super().__init__()
        D, Z = settings.width, settings.latent
        self.embed = nn.Linear(4, D)
        self.encoder = nn.GRU(D, D, batch_first=True)
        self.to_latent = nn.Linear(D, 2 * Z)
        self.kind_mean = nn.Parameter(torch.randn(len(KINDS), Z))
        self.kind_log_variance = nn.Parameter(torch.zeros(len(KINDS), Z))

    def forward(self, places: Tensor, real: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """log p(kind) and KL from each kind's Gaussian: [B, L, 2] -> [B, K] each."""
        steps = nn.functional.pad(places.diff(dim=1), (0, 0, 1, 0))
        tokens = torch.relu(self.embed(torch.cat([places, steps * real[..., None]], dim=-1)))
        states, _ = self.encoder(tokens)
        at = torch.arange(len(last), device=last.device)
        mean, log_variance = self.to_latent(states[at, last]).chunk(2, dim=-1)
        log_variance = log_variance.clamp(-9, 4)[:, None]
        kind = self.kind_log_variance.clamp(-4, 4)
        squares = (mean[:, None] - self.kind_mean) ** 2
        divergence = 0.5 * (kind - log_variance + (log_variance.exp() + squares) / kind.exp() - 1).sum(-1)  # [B, K]
        return (-divergence).log_softmax(-1), divergence


class Atrom(TrajectoryBaseline):
    """ATROM: a variational encoder and a probabilistic metric rule over made kinds of anomalies."""

    name: ClassVar[str] = "atrom"
    settings_class: ClassVar[type] = AtromSettings
    network: MetricRule
    scale: Scale

    def _learn_days(self, train: Days, validation: Days) -> None:
        self.scale = Scale.fit(np.stack([train.x, train.y], axis=1))
        parts = [self._pad(days) for days in (train, validation)]
        self.network = self._build()

        def loss(part: int, index: Tensor, length: int, noise: torch.Generator | None) -> Tensor:
            places, real, last = parts[part].take(index, length)
            draw = torch.randint(len(KINDS), (len(index),), generator=noise, device=self.device)
            result = disturb(places, last, draw, noise)
            kind = kinds_made(draw, places, result)
            log_p, divergence = self.network(result, real, last)
            weight = torch.where(kind == 0, len(KINDS) - 1.0, 1.0)  # a usual day counts as one of each other kind
            own = log_p.gather(1, kind[:, None])[:, 0]
            near = divergence.gather(1, kind[:, None])[:, 0]
            return ((self.settings.kl_weight * near - own) * weight).sum() / weight.sum()

        lengths = (parts[0].length.cpu().numpy(), parts[1].length.cpu().numpy())
        self._fit_network(loss, lengths, len(train))

    def _build(self) -> MetricRule:
        return build(lambda: MetricRule(self.settings), self.seed, self.device)

    def _pad(self, days: Days) -> PaddedDays:
        places = self.scale.apply(np.stack([days.x, days.y], axis=1)).astype(np.float32)
        return pad_days(days, places, self.settings.max_length, self.device)

    @torch.no_grad()
    def rate_days(self, days: Days) -> np.ndarray:
        """−log p(usual): float64 [D]."""
        batch = self._pad(days)
        parts = torch.arange(len(days), device=self.device).split(8 * self.settings.batch_size)
        scores = [-self.network(*batch.take(index))[0][:, 0] for index in parts]
        return torch.cat(scores).double().cpu().numpy()

    def _state(self) -> State:
        state = super()._state()
        state.facts["scale"] = {"centre": self.scale.centre, "scale": self.scale.scale}
        state.tensors = pack(self.network)
        return state

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self.scale = Scale(**state.facts["scale"])
        self.network = self._build()
        unpack(self.network, state.tensors)


def kinds_made(kind: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """The kinds [B] that days were made into: one that came out as it was, such as a single place in another order, is
    usual."""
    return torch.where((after == before).flatten(1).all(1), 0, kind)


def disturb(places: Tensor, last: Tensor, kind: Tensor, noise: torch.Generator | None) -> Tensor:
    """Days [B, L, 2] made into their kinds [B]; donors are other days of the same batch."""
    B, L, _ = places.shape
    device = places.device
    donor = (torch.arange(B, device=device) + torch.randint(1, max(B, 2), (B,), generator=noise, device=device)) % B
    position = torch.arange(L, device=device)
    cut = (torch.rand(B, generator=noise, device=device) * (last + 1)).long()[:, None]  # [B, 1]
    stranger = places[donor].gather(1, torch.minimum(position, last[donor][:, None])[..., None].expand(B, L, 2))
    inside = position <= last[:, None]
    order = torch.rand(B, L, generator=noise, device=device).masked_fill(~inside, 2.0).argsort(dim=1)
    permutation = places.gather(1, order[..., None].expand(B, L, 2))
    is_replaced = torch.where(kind[:, None] == 1, position == cut, (kind[:, None] == 2) & (position >= cut)) & inside
    result = torch.where(is_replaced[..., None], stranger, places)
    return torch.where((kind == 3)[:, None, None], permutation, result)
