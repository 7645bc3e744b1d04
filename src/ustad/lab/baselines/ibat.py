"""IBAT: how few random cells of a trajectory tell it apart from all others.

Published (Zhang et al., UbiComp 2011) for taxi rides between one origin and one destination: a ride is the set of
grid cells it crosses; cells of the tested ride are drawn at random and rides that do not cross them are dropped;
an odd ride is alone after few cells. Adapted to stays: a ride is an agent's local day, its cells are those of its
stays, and the others are days of training. Agents only: an agent is as unusual as its most unusual day.

Where we had to decide:
- The cells' size (the paper is silent).
- Reference days are drawn from all agents, as published, not from the agent's own.
- Days that are still not alone after their last cell count the expected remaining cells of an isolation tree, so that
  short days are not taken for odd ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numba import njit

from ustad.config import setting
from ustad.lab.baselines.base import State, search_field
from ustad.lab.baselines.trajectory_grid import Days, Grid, TrajectoryBaseline
from ustad.progress import track
from ustad.tables import mix


@dataclass(frozen=True)
class IbatSettings:
    """What can be chosen."""

    trials: int = search_field(100, (50, 100, 200, 300), "isolations per trajectory, averaged")
    subsample: int = search_field(256, (64, 128, 256, 512), "reference days per trial")
    cell_km: float = setting(1.0, "side of a grid cell, km")


class Ibat(TrajectoryBaseline):
    """IBAT: isolation of an agent's days by the grid cells they visit."""

    name: ClassVar[str] = "ibat"
    settings_class: ClassVar[type] = IbatSettings
    grid: Grid

    def _learn_days(self, train: Days, validation: Days) -> None:
        """Keep the days of training; validation is not needed."""
        self.grid = Grid.fit(train.x, train.y, self.settings.cell_km)
        self.cells, self.offsets = distinct_cells(train, self.grid)

    def rate_days(self, days: Days) -> np.ndarray:
        """2^(−mean cells needed / c(subsample)), as in an isolation forest: near 1 is odd."""
        cells, offsets = distinct_cells(days, self.grid)
        size = min(self.settings.subsample, len(self.offsets) - 1)
        total = np.zeros(len(days))
        with track("isolating days", self.settings.trials) as advance:
            for trial in range(self.settings.trials):
                rng = np.random.default_rng([self.seed, trial])
                sample = rng.choice(len(self.offsets) - 1, size, replace=False)
                members = _membership(self.cells, self.offsets, sample, self.grid.size)
                salt = mix(np.array([self.seed * 1_000_003 + trial], np.uint64))[0]
                total += _isolate(cells, offsets, days.key ^ salt, members, size)
                advance()
        return 2.0 ** (-total / self.settings.trials / _path_length(float(max(size, 2))))

    def _state(self) -> State:
        state = super()._state()
        names = {"known": self.grid.keys_in_training, "cells": self.cells, "offsets": self.offsets}
        state.tensors = {k: torch.from_numpy(v) for k, v in names.items()}
        return state

    def _restore(self, state: State) -> None:
        super()._restore(state)
        self.grid = Grid(self.settings.cell_km, state.tensors["known"].numpy())
        self.cells, self.offsets = (state.tensors[k].numpy() for k in ("cells", "offsets"))


def distinct_cells(days: Days, grid: Grid) -> tuple[np.ndarray, np.ndarray]:
    """Each day's cells once: codes int64 [M] and offsets int64 [D + 1]."""
    day = np.repeat(np.arange(len(days)), days.length)
    pairs = np.unique(day * grid.size + grid.codes(days.x, days.y))
    return pairs % grid.size, np.searchsorted(pairs // grid.size, np.arange(len(days) + 1))


@njit(cache=True)
def _membership(cells: np.ndarray, offsets: np.ndarray, sample: np.ndarray, n_cells: int) -> np.ndarray:
    """Which of the chosen days visit a cell, as bits: uint64 [cells, words]."""
    members = np.zeros((n_cells, (len(sample) + 63) // 64), np.uint64)
    for place, day in enumerate(sample):
        for i in range(offsets[day], offsets[day + 1]):
            members[cells[i], place // 64] |= np.uint64(1) << np.uint64(place % 64)
    members[0, :] = 0  # an unknown cell is in no day
    return members


@njit(cache=True)
def _isolate(cells: np.ndarray, offsets: np.ndarray, keys: np.ndarray, members: np.ndarray, size: int) -> np.ndarray:
    """Random cells needed until no chosen day has them all: float64 [D]."""
    steps = np.zeros(len(offsets) - 1)
    words = members.shape[1]
    alive = np.empty(words, np.uint64)
    for day in range(len(offsets) - 1):
        order = cells[offsets[day] : offsets[day + 1]].copy()
        state = keys[day]
        alive[:] = np.uint64(0xFFFFFFFFFFFFFFFF)
        left = size
        for i in range(len(order)):
            state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
            j = i + np.int64((state >> np.uint64(33)) % np.uint64(len(order) - i))
            order[i], order[j] = order[j], order[i]
            steps[day] += 1.0
            left = 0
            for w in range(words):
                alive[w] &= members[order[i], w]
                left += _count_bits(alive[w])
            if left == 0:
                break
        if left > 1:
            steps[day] += _path_length(float(left))
    return steps


@njit(cache=True)
def _count_bits(word: np.uint64) -> int:
    count = 0
    while word:
        word &= word - np.uint64(1)
        count += 1
    return count


@njit(cache=True)
def _path_length(n: float) -> float:
    """c(n): the mean depth at which a random tree isolates one of n."""
    if n <= 2.0:
        return 1.0
    return 2.0 * (np.log(n - 1.0) + 0.5772156649015329) - 2.0 * (n - 1.0) / n
