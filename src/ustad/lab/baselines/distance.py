"""Distance from the agent's own places: how far a stay is from anywhere the agent was in training.

Not published as a method: trivial, and hard to beat where anomalies are visits to new places (NUMOSIM). The score is
in kilometres. An agent without training stays is measured against everybody's places.

Where we had to decide:
- Training and validation places both count as the agent's own, those within about 10 m as one.
- As for the visit rate, a stay takes the maximum of itself and its two neighbours (`spread`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from ustad.config import setting
from ustad.geo import EARTH_RADIUS_KM
from ustad.lab.baselines.base import Baseline, State, place_feature
from ustad.lab.baselines.protocol import Abilities, neighbours_maximum
from ustad.tables import agent_codes

_ROUNDING = 1e4  # places closer than about 10 m are one


@dataclass(frozen=True)
class DistanceSettings:
    """What can be chosen."""

    spread: bool = setting(True, "a stay takes the maximum of itself and its two neighbours, as the visit rate does")


class OwnPlaceDistance(Baseline):
    """Kilometres to the nearest place that the agent visited in training."""

    name: ClassVar[str] = "distance"
    abilities: ClassVar[Abilities] = Abilities(scores_events=True, scores_agents=True, predicts=False, causal=False)
    settings_class: ClassVar[type] = DistanceSettings
    needs_validation: ClassVar[bool] = False
    places: pa.Table  # entity, lat, lon: each agent's distinct places

    def _learn(self, train: pa.Table, validation: pa.Table) -> None:
        """Both periods are history by the time the test begins."""
        columns = [self.schema.entity, *place_feature(self.schema, self.name).source]
        both = pa.concat_tables([train.select(columns), validation.select(columns)])
        agent, ids = agent_codes(both[columns[0]])
        lat, lon = (np.round(both[c].to_numpy() * _ROUNDING) / _ROUNDING for c in columns[1:])
        has_place = np.isfinite(lat) & np.isfinite(lon)
        rows = np.unique(np.stack([agent, lat, lon], axis=1)[has_place], axis=0)
        owner = pa.array(ids, both[columns[0]].type).take(pa.array(rows[:, 0].astype(np.int64)))
        self.places = pa.table({columns[0]: owner, "lat": rows[:, 1], "lon": rows[:, 2]})

    def _rate(self, events: pa.Table, context: pa.Table | None) -> np.ndarray:
        entity = self.schema.entity
        lat, lon = (np.radians(events[c].to_numpy()) for c in place_feature(self.schema, self.name).source)
        owner, ids = agent_codes(self.places[entity])
        order = np.argsort(owner, kind="stable")
        offsets = np.searchsorted(owner[order], np.arange(len(ids) + 1))
        place_lat, place_lon = (np.radians(self.places[c].to_numpy()[order]) for c in ("lat", "lon"))
        entity_ids = pa.array(ids, self.places[entity].type)
        agent = (
            pc.fill_null(pc.index_in(events[entity].cast(entity_ids.type), entity_ids), -1).to_numpy().astype(np.int64)
        )
        score = _nearest(lat, lon, agent, place_lat, place_lon, offsets) * EARTH_RADIUS_KM
        score = np.where(np.isfinite(score), score, 0.0)  # an event without a place is no distance away
        return neighbours_maximum(score, events, entity, self.schema.time) if self.settings.spread else score

    def _state(self) -> State:
        return State(tables={"places": self.places})

    def _restore(self, state: State) -> None:
        self.places = state.tables["places"]


@njit(cache=True)
def _nearest(
    lat: np.ndarray,
    lon: np.ndarray,
    agent: np.ndarray,
    place_lat: np.ndarray,
    place_lon: np.ndarray,
    offsets: np.ndarray,
) -> np.ndarray:
    """Smallest great-circle angle to the agent's places (to any place for agent −1): radians [n]."""
    best = np.full(len(lat), np.inf)
    for i in range(len(lat)):
        first, last = (0, len(place_lat)) if agent[i] < 0 else (offsets[agent[i]], offsets[agent[i] + 1])
        for j in range(first, last):
            a = np.sin((lat[i] - place_lat[j]) / 2) ** 2
            b = np.cos(lat[i]) * np.cos(place_lat[j]) * np.sin((lon[i] - place_lon[j]) / 2) ** 2
            best[i] = min(best[i], 2 * np.arcsin(min(1.0, np.sqrt(a + b))))
    return best
