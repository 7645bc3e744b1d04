"""Visit rate: how often an agent goes somewhere now, against how often it went there in training.

For agent i and place p the score is |n_train − n_test| / √n_train over equal spans, with n_train = 0.5 where the
place was never visited: NUMOSIM's published baseline. Each stay then takes the maximum of itself, the one before and
the one after, which an inserted visit shortens; an agent takes the maximum of its stays. It looks at the whole scored
period, so it sees recurrence; the causal variant counts up to the event only.

Where we had to decide:
- Training and validation are counted together, and the counts are scaled where the spans differ.
- Stays without a named place are counted by cells of about 100 m.
- The causal variant expects visits in proportion to the days gone by and takes no maximum with the stay that follows.
- By category, and by category and hour of the week, the same formula counts kinds of place instead of places.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import LocalTime, local_time
from ustad.config import ConfigError, setting
from ustad.dataset import zone_of
from ustad.lab.baselines.base import Baseline, State
from ustad.lab.baselines.protocol import Abilities, neighbours_maximum
from ustad.schema import EventSchema
from ustad.tables import DataError, agent_codes

By = Literal["place", "category", "category-hour"]
NEVER_VISITED = 0.5
CELLS_PER_DEGREE = 1000  # stays without a named place are counted by cells of about 100 m


@dataclass(frozen=True)
class _Visits:
    """What is counted: agent, place and (for the hour of the week) time. Arrow columns keep identities."""

    agents: pa.ChunkedArray
    places: pa.ChunkedArray  # strings
    hours: np.ndarray  # 0 … 167, zeros where hours are not counted
    days: np.ndarray  # local days


@dataclass(frozen=True)
class VisitRateSettings:
    """What can be chosen."""

    by: By | None = setting(None, "count by place, category or category-hour; none: what the method's name says")
    spread: bool = setting(True, "a stay takes the maximum of itself and its neighbours, which an insertion shortens")
    span_days: float | None = setting(None, "length of the scored period where the table alone does not tell it")


class VisitRate(Baseline):
    """NUMOSIM's visit rate: visits to each place now against visits in training, neighbours' maximum."""

    name: ClassVar[str] = "visit-rate"
    abilities: ClassVar[Abilities] = Abilities(scores_events=True, scores_agents=True, predicts=False, causal=False)
    settings_class: ClassVar[type] = VisitRateSettings
    needs_validation: ClassVar[bool] = False
    default_by: ClassVar[By] = "place"
    visits: _Visits

    def __init__(self, schema: EventSchema | None = None, seed: int = 7, device: str = "auto", **settings: Any) -> None:
        super().__init__(schema, seed, device, **settings)
        self.by = self.settings.by or self.default_by
        if self.by not in By.__args__:  # type: ignore[attr-defined]  # Literal keeps its members there
            raise ConfigError(f"visit rate: by must be one of place, category, category-hour, got {self.by!r}")

    def _learn(self, train: pa.Table, validation: pa.Table) -> None:
        """Counts over train and, where given, validation: the two together are the span compared with."""
        parts = [self._visits(part) for part in (train, validation) if part.num_rows]
        self.visits = _Visits(
            agents=pa.chunked_array([chunk for part in parts for chunk in part.agents.chunks]),
            places=pa.chunked_array([chunk for part in parts for chunk in part.places.chunks]),
            hours=np.concatenate([part.hours for part in parts]),
            days=np.concatenate([part.days for part in parts]),
        )

    def _rate(self, events: pa.Table, context: pa.Table | None) -> np.ndarray:
        """Every event against the training counts; `context` is not needed."""
        visits = self._visits(events)
        key, n_trained = self._joint(self.visits, visits)
        ratio = self._span(visits.days) / _span(self.visits.days)
        time = events[self.schema.time].cast(pa.int64()).to_numpy()
        order = np.lexsort((time, agent_codes(events[self.schema.entity])[0]))
        score = self._deviations(key, n_trained, ratio, visits.days, order=order)
        if not self.settings.spread:
            return score
        entity, when = self.schema.entity, self.schema.time
        return neighbours_maximum(score, events, entity, when, later=not self.abilities.causal)

    def _state(self) -> State:
        visits = self.visits
        table = pa.table({"agent": visits.agents, "place": visits.places, "hour": visits.hours, "day": visits.days})
        return State(tables={"visits": table})

    def _restore(self, state: State) -> None:
        table = state.tables["visits"]
        hours, days = (table[name].to_numpy() for name in ("hour", "day"))
        self.visits = _Visits(table["agent"], table["place"], hours, days)

    # ----------------------------------------------------------------------------------------- the formula
    def _deviations(
        self, key: np.ndarray, n_trained: np.ndarray, ratio: float, days: np.ndarray, *, order: np.ndarray
    ) -> np.ndarray:
        """|n_train − n_test| / √n_train of each event's (agent, place) `key`; `trained` counts by key."""
        n_test = np.bincount(key, minlength=len(n_trained))[key]
        return _deviation(n_trained[key] * ratio, n_test)

    # ------------------------------------------------------------------------------------------- counting
    def _visits(self, table: pa.Table) -> _Visits:
        local = local_time(table[self.schema.time], zone_of(table, self.schema))
        places = self._places(table) if self.by == "place" else self._categories(table)
        hours = _hour_of_week(local) if self.by == "category-hour" else np.zeros(table.num_rows, np.int64)
        entity = table[self.schema.entity]
        return _Visits(entity, places, hours, local.day.astype(np.int64))

    def _places(self, table: pa.Table) -> pa.ChunkedArray:
        """The habitat's name; where it is missing the cell of about 100 m; where there is no place, `unknown`."""
        habitat = self.schema.habitat
        words = table[habitat].cast(pa.string()) if habitat in table.column_names else None
        if words is not None and words.null_count == 0:
            return words
        cells = self._cells(table)
        if words is None and cells is None:
            reason = f"no column '{habitat}'" if habitat else f"the schema '{self.schema.name}' names no habitat"
            raise DataError(f"{self.name}: {reason}, and there are no coordinates to count visits by")
        if words is None:
            return cells
        return pc.fill_null(words, "unknown") if cells is None else pc.coalesce(words, cells)

    def _cells(self, table: pa.Table) -> pa.ChunkedArray | None:
        place = next((f for f in self.schema.features if f.kind == "place"), None)
        if place is None or not set(place.source) <= set(table.column_names):
            return None
        lat, lon = (pc.round(pc.multiply(table[c], CELLS_PER_DEGREE)).cast(pa.int64()) for c in place.source)
        return pc.binary_join_element_wise("cell", lat.cast(pa.string()), lon.cast(pa.string()), " ")

    def _categories(self, table: pa.Table) -> pa.ChunkedArray:
        feature = next((f for f in self.schema.features if f.kind == "categorical" and f.columns), None)
        if feature is None or feature.columns[0] not in table.column_names:
            raise DataError("visit rate by category: the events have no categorical column")
        return pc.fill_null(table[feature.columns[0]].cast(pa.string()), "unknown")

    def _joint(self, train: _Visits, test: _Visits) -> tuple[np.ndarray, np.ndarray]:
        """A dense code of each test event's (agent, place, hour), and the training count of every code."""
        split = len(train.agents)
        agents = agent_codes(_join(train.agents, test.agents))[0]
        places, names = agent_codes(_join(train.places, test.places))
        hours = np.concatenate([train.hours, test.hours])
        whole = (agents * len(names) + places) * 168 + hours
        codes, inverse = np.unique(whole, return_inverse=True)
        return inverse[split:], np.bincount(inverse[:split], minlength=len(codes)).astype(np.float64)

    def _span(self, days: np.ndarray) -> float:
        return _span(days) if self.settings.span_days is None else float(self.settings.span_days)


class CausalVisitRate(VisitRate):
    """Visit rate with counts up to the event: usable live."""

    name: ClassVar[str] = "visit-rate-causal"
    abilities: ClassVar[Abilities] = Abilities(scores_events=True, scores_agents=True, predicts=False, causal=True)

    def _deviations(
        self, key: np.ndarray, n_trained: np.ndarray, ratio: float, days: np.ndarray, *, order: np.ndarray
    ) -> np.ndarray:
        """Visits so far, this one included, against what training expects of the days so far."""
        by_time = key[order]
        by_key = np.argsort(by_time, kind="stable")
        by_place = by_time[by_key]
        starts = np.r_[0, np.flatnonzero(by_place[1:] != by_place[:-1]) + 1]
        sizes = np.diff(np.r_[starts, len(by_place)])
        so_far = np.empty(len(key), np.float64)
        so_far[order[by_key]] = np.arange(len(by_place)) - np.repeat(starts, sizes) + 1
        share = (days - days.min() + 1) / self._span(days)
        return _deviation(n_trained[key] * ratio * share, so_far)


class CategoryVisitRate(VisitRate):
    """Visit rate by kind of place instead of by place."""

    name: ClassVar[str] = "visit-rate-category"
    default_by: ClassVar[By] = "category"


class CategoryHourVisitRate(VisitRate):
    """Visit rate by kind of place and hour of the week."""

    name: ClassVar[str] = "visit-rate-category-hour"
    default_by: ClassVar[By] = "category-hour"


def _deviation(expected: np.ndarray, count: np.ndarray) -> np.ndarray:
    expected = np.maximum(expected, NEVER_VISITED)
    return np.abs(expected - count) / np.sqrt(expected)


def _span(days: np.ndarray) -> float:
    return float(days.max() - days.min() + 1)


def _hour_of_week(local: LocalTime) -> np.ndarray:
    return local.weekday.astype(np.int64) * 24 + (local.minute // 60).astype(np.int64)


def _join(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([*first.chunks, *second.cast(first.type).chunks], first.type)
