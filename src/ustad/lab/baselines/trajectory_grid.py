"""Stays as trajectories: the places of an agent's local day, in order, and the grid of cells they fall into.

In go stays. Out come `Days`, the common input of the baselines that were made for trajectories (IBAT, GM-VSAE, ATROM).
`Grid` gives every place the code of its cell, 0 for a cell that training never saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from ustad.clock import local_time
from ustad.dataset import zone_of
from ustad.events.encoder import Scale
from ustad.geo import Projection
from ustad.lab.baselines.base import Baseline, State, place_feature
from ustad.lab.baselines.protocol import Abilities
from ustad.schema import EventSchema
from ustad.tables import DataError, agent_codes, identity_hash, mix

HALF = 1 << 20  # cells to either side of the projection's centre


@dataclass(frozen=True)
class Days:
    """D days of some agents; day d holds places offsets[d] … offsets[d + 1]."""

    agent: np.ndarray  # int64 [D] index into agents
    agents: pa.Array  # identifiers, sorted
    key: np.ndarray  # uint64 [D] identity of agent and day, the same wherever it is processed
    offsets: np.ndarray  # int64 [D + 1]
    x: np.ndarray  # float64 [N] km
    y: np.ndarray  # float64 [N] km
    minute: np.ndarray  # float64 [N] local minute of day of the start

    def __len__(self) -> int:
        return len(self.agent)

    @property
    def length(self) -> np.ndarray:
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Grid:
    """Square cells of `size_km`; `keys_in_training` are the keys of the cells seen in training, sorted."""

    size_km: float
    keys_in_training: np.ndarray  # int64 [V]

    @classmethod
    def fit(cls, x: np.ndarray, y: np.ndarray, size_km: float, at_most: int | None = None) -> Grid:
        """The cells of these places; the most visited ones where there are more than `at_most`."""
        keys, counts = np.unique(cell_keys(x, y, size_km), return_counts=True)
        if at_most is not None and len(keys) > at_most:
            keys = np.sort(keys[np.lexsort((keys, -counts))[:at_most]])
        return cls(size_km, keys)

    @property
    def size(self) -> int:
        """Number of codes, the unknown one included."""
        return len(self.keys_in_training) + 1

    def codes(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """int64 [n]: 1 … V, or 0 for a cell that is not known."""
        keys = cell_keys(x, y, self.size_km)
        at = np.minimum(np.searchsorted(self.keys_in_training, keys), len(self.keys_in_training) - 1)
        return np.where(self.keys_in_training[at] == keys, at + 1, 0)


def cell_keys(x: np.ndarray, y: np.ndarray, size_km: float) -> np.ndarray:
    """One integer per cell: int64 [n]."""
    column, row = (np.clip(np.floor(v / size_km), -HALF, HALF - 1).astype(np.int64) + HALF for v in (x, y))
    return column * (2 * HALF) + row


class CellLookup(nn.Module):
    """The grid on a device, for places in network units: [..., 2] -> codes [...]."""

    keys_in_training: Tensor
    to_km: Tensor

    def __init__(self, grid: Grid, scales: Sequence[Scale]) -> None:
        super().__init__()
        self.size_km = grid.size_km
        self.register_buffer("keys_in_training", torch.from_numpy(grid.keys_in_training), persistent=False)
        units = [[s.scale[0] for s in scales], [s.centre[0] for s in scales]]
        self.register_buffer("to_km", torch.tensor(units, dtype=torch.float64), persistent=False)

    def forward(self, places: Tensor) -> Tensor:
        km = places.double() * self.to_km[0] + self.to_km[1]
        index = torch.floor(km / self.size_km).clamp(-HALF, HALF - 1).long() + HALF
        keys = index[..., 0] * (2 * HALF) + index[..., 1]
        return _codes_on_device(self.keys_in_training, keys)


@torch.library.custom_op("ustad::cell_codes", mutates_args=())
def _codes_on_device(sorted_keys: Tensor, keys: Tensor) -> Tensor:
    """As `Grid.codes`. The compiler must not look into it: what it makes of a search in sorted keys stops at false
    alarms of bounds on a GPU (pytorch issue 186536)."""
    at = torch.searchsorted(sorted_keys, keys).clamp(max=len(sorted_keys) - 1)
    return torch.where(sorted_keys[at] == keys, at + 1, 0)


@_codes_on_device.register_fake
def _shape_of_codes(sorted_keys: Tensor, keys: Tensor) -> Tensor:
    return torch.empty_like(keys)


def fit_projection(events: pa.Table, schema: EventSchema, name: str) -> Projection:
    """The flat map of the training events."""
    lat, lon = (events[c].to_numpy() for c in place_feature(schema, name).source)
    return Projection.fit(lat, lon)


def agent_days(events: pa.Table, schema: EventSchema, projection: Projection, name: str) -> Days:
    """Every agent's local days with at least one stay, by agent and time."""
    lat, lon = (events[c].to_numpy() for c in place_feature(schema, name).source)
    if not (np.isfinite(lat).all() and np.isfinite(lon).all()):
        raise DataError(f"{name}: some events have no place; leave them out first")
    clock = local_time(events[schema.time], zone_of(events, schema))
    agent, ids = agent_codes(events[schema.entity])
    time = events[schema.time].cast(pa.int64()).to_numpy()
    order = np.lexsort((time, clock.day, agent))
    x, y = (v[order] for v in projection.forward(lat, lon))
    agent, day = agent[order], clock.day[order].astype(np.int64)
    first = np.flatnonzero(np.r_[True, (agent[1:] != agent[:-1]) | (day[1:] != day[:-1])])
    with np.errstate(over="ignore"):
        key = mix(identity_hash(ids)[agent[first]] + day[first].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    return Days(
        agent=agent[first],
        agents=pa.array(ids, events[schema.entity].type),
        key=key,
        offsets=np.append(first, len(order)),
        x=x,
        y=y,
        minute=clock.minute[order],
    )


class TrajectoryBaseline(Baseline):
    """A baseline that rates days by their places; an agent is as unusual as its most unusual day."""

    abilities: ClassVar[Abilities] = Abilities(scores_events=False, scores_agents=True, predicts=False, causal=False)
    projection: Projection

    def _learn(self, train: pa.Table, validation: pa.Table) -> None:
        self.projection = fit_projection(train, self.schema, self.name)
        self._learn_days(*(agent_days(t, self.schema, self.projection, self.name) for t in (train, validation)))

    def _learn_days(self, train: Days, validation: Days) -> None:
        raise TypeError(f"{type(self).__name__} does not say how it learns")

    def rate_days(self, days: Days) -> np.ndarray:
        """A score per day: float64 [D]."""
        raise TypeError(f"{type(self).__name__} does not say how it rates a day")

    def _rate_agents(self, events: pa.Table) -> pa.Table:
        days = agent_days(events, self.schema, self.projection, self.name)
        worst = np.full(len(days.agents), -np.inf)
        np.maximum.at(worst, days.agent, self.rate_days(days))
        counts = np.bincount(days.agent, weights=days.length, minlength=len(worst)).astype(np.int64)
        return pa.table({self.schema.entity: days.agents, "score": worst, "n_events": counts})

    def _state(self) -> State:
        return State(facts={"projection": {"lat": self.projection.lat, "lon": self.projection.lon}})

    def _restore(self, state: State) -> None:
        self.projection = Projection(**state.facts["projection"])
