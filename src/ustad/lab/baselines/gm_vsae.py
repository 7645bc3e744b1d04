"""GM-VSAE: how probable a trajectory is under a few learned kinds of routes.

Published (Liu et al., ICDE 2020) for taxi rides as sequences of grid cells: a GRU encodes the sequence into a latent
vector whose prior is a mixture of Gaussians (kinds of routes); a GRU decodes it cell by cell; a ride is scored by
the probability of generating it from the nearest kind's mean, without encoding it. Adapted to stays: a ride is the
sequence of cells of an agent's local day. Agents only: an agent is as unusual as its most unusual day.

Where we had to decide:
- Days of everybody are learned together, kinds of routes weigh the same, cells are 1 km wide.
- The score is −(mean log-probability per cell), which ranks as the published 1 − p^(1/n).
- Cells that training never saw (or saw least, beyond `max_cells`) share one code that the decoder never learns to give,
  and count as less probable than any known cell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from ustad.config import setting
from ustad.lab.baselines.base import State, search_field
from ustad.lab.baselines.fitting import Budget, build, pack, unpack
from ustad.lab.baselines.sequences import PaddedDays, pad_days
from ustad.lab.baselines.trajectory_grid import Days, Grid, TrajectoryBaseline
from ustad.progress import track


@dataclass(frozen=True)
class GmVsaeSettings(Budget):
    """What can be chosen."""

    width: int = search_field(256, (256, 512), "size of the recurrent states, as the paper searches it")
    latent: int = setting(32, "size of the latent vector")
    clusters: int = search_field(5, (5, 10), "Gaussians of the prior, kinds of routes, as the paper searches them")
    cell_km: float = setting(1.0, "side of a grid cell, km")
    max_cells: int = setting(4000, "the most visited cells have a code of their own")
    max_length: int = setting(24, "a day's first cells that are read")


class RouteMixture(nn.Module):
    """Cells of a day -> latent with a mixture prior -> cells of a day."""

    def __init__(self, n_cells: int, settings: GmVsaeSettings) -> None:
        super().__init__()
        D, Z = settings.width, settings.latent
        self.cells = nn.Embedding(n_cells + 1, D // 4)  # the last one starts a sequence
        self.encoder = nn.GRU(D // 4, D, batch_first=True)
        self.to_latent = nn.Linear(D, 2 * Z)
        self.cluster_mean = nn.Parameter(torch.randn(settings.clusters, Z))
        self.cluster_log_variance = nn.Parameter(torch.zeros(settings.clusters, Z))
        self.from_latent = nn.Linear(Z, D)
        self.decoder = nn.GRU(D // 4, D, batch_first=True)
        self.head = nn.Linear(D, n_cells)

    def encode(self, cells: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance of q(z | cells): [B, L], last [B] -> [B, Z] each."""
        states, _ = self.encoder(self.cells(cells))
        mean, log_variance = self.to_latent(states[torch.arange(len(last), device=last.device), last]).chunk(2, -1)
        return mean, log_variance.clamp(-9, 4)

    def log_probability(self, z: Tensor, cells: Tensor, real: Tensor) -> Tensor:
        """log p(cells | z), added up over a day: [B, Z], [B, L] -> [B]."""
        start = torch.full_like(cells[:, :1], self.head.out_features)
        inputs = self.cells(torch.cat([start, cells[:, :-1]], dim=1))
        states, _ = self.decoder(inputs, torch.tanh(self.from_latent(z))[None])
        log_p = -nn.functional.cross_entropy(self.head(states).transpose(1, 2), cells, reduction="none")  # [B, L]
        return (log_p * real).sum(1)

    def divergence(self, z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
        """KL of q(z, cluster | cells) from the mixture prior, clusters by their posterior at z: [B]."""
        gap = z[:, None] - self.cluster_mean  # [B, K, Z]
        prior = self.cluster_log_variance.clamp(-4, 4)
        log_density = -0.5 * (gap**2 / prior.exp() + prior).sum(-1)
        cluster = log_density.log_softmax(-1)  # [B, K], equal weights
        squares = (mean[:, None] - self.cluster_mean) ** 2
        each = 0.5 * (prior - log_variance[:, None] + (log_variance[:, None].exp() + squares) / prior.exp() - 1).sum(-1)
        uniform = cluster + math.log(len(self.cluster_mean))
        return (cluster.exp() * (each + uniform)).sum(-1)


class GmVsae(TrajectoryBaseline):
    """GM-VSAE: generation probability of an agent's days under a Gaussian-mixture sequence auto-encoder."""

    name: ClassVar[str] = "gm-vsae"
    settings_class: ClassVar[type] = GmVsaeSettings
    grid: Grid
    network: RouteMixture

    def _learn_days(self, train: Days, validation: Days) -> None:
        self.grid = Grid.fit(train.x, train.y, self.settings.cell_km, self.settings.max_cells)
        parts = [self._pad(days) for days in (train, validation)]
        self.network = self._build()
        network = self.network

        def loss(part: int, index: Tensor, length: int, noise: torch.Generator | None) -> Tensor:
            cells, real, last = parts[part].take(index, length)
            mean, log_variance = network.encode(cells, last)
            z = mean + (0.5 * log_variance).exp() * torch.randn(mean.shape, generator=noise, device=mean.device)
            fit = network.log_probability(z, cells, real * (cells > 0))
            return (network.divergence(z, mean, log_variance) - fit).mean()

        lengths = (parts[0].length.cpu().numpy(), parts[1].length.cpu().numpy())
        self._fit_network(loss, lengths, len(train))

    def _build(self) -> RouteMixture:
        return build(lambda: RouteMixture(self.grid.size, self.settings), self.seed, self.device)

    def _pad(self, days: Days) -> PaddedDays:
        return pad_days(days, self.grid.codes(days.x, days.y), self.settings.max_length, self.device)

    @torch.no_grad()
    def rate_days(self, days: Days) -> np.ndarray:
        """−mean log p per cell from the most probable kind's mean: float64 [D]."""
        batch, scores = self._pad(days), []
        index = torch.arange(len(days), device=self.device)
        with track("generating days", len(days)) as advance:
            for part in index.split(2 * self.settings.batch_size):
                cells, real, _ = batch.take(part)
                by_kind = [
                    self.network.log_probability(mean.expand(len(part), -1), cells, real)
                    for mean in self.network.cluster_mean
                ]
                scores.append(-torch.stack(by_kind).amax(0) / real.sum(1))
                advance(len(part))
        return torch.cat(scores).double().cpu().numpy()

    def _state(self) -> State:
        state = super()._state()
        state.tensors = {"known": torch.from_numpy(self.grid.keys_in_training), **pack(self.network)}
        return state

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self.grid = Grid(self.settings.cell_km, state.tensors["known"].cpu().numpy())
        self.network = self._build()
        unpack(self.network, state.tensors)
