"""Visit rate: how often an agent goes somewhere now, against how often it went there in training.

For agent i and place p the score is |n_train − n_test| / √n_train over equal spans, with n_train = 0.5 where the
place was never visited: NUMOSIM's published baseline. It looks at the whole scored period, so it sees recurrence;
the causal variant counts up to the event only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.baselines.protocol import Abilities, Scores, agents_by_worst, event_table, events_of
from ustad.clock import LocalTime, local_time
from ustad.config import ConfigError
from ustad.dataset import zone_of
from ustad.schema import EventSchema, mobility_schema
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


class VisitRate:
    """NUMOSIM's visit rate: visits to each place now against visits in training, neighbours' maximum."""

    abilities: ClassVar[Abilities] = Abilities(scores_events=True, scores_agents=True, predicts=False, causal=False)
    default_by: ClassVar[By] = "place"

    def __init__(
        self,
        schema: EventSchema | None = None,
        seed: int = 7,
        by: By | None = None,
        spread: bool = True,
        span_days: float | None = None,
    ) -> None:
        """`spread`: a stay takes the maximum of itself and its neighbours, because an inserted visit shortens
        them. `span_days`: length of the scored period where the table alone does not tell it."""
        self.schema = schema or mobility_schema()
        self.by = by or self.default_by
        if self.by not in By.__args__:  # type: ignore[attr-defined]  # Literal keeps its members there
            raise ConfigError(f"visit rate: by must be one of place, category, category-hour, got {by!r}")
        self.spread, self.span_days = spread, span_days
        self._train: _Visits | None = None

    def fit(self, train: Any, validation: Any = None) -> VisitRate:
        """Counts over train and, where given, validation: the two together are the span compared with."""
        parts = [self._visits(events_of(part, self.schema)) for part in (train, validation) if part is not None]
        self._train = _Visits(
            agents=pa.chunked_array([chunk for part in parts for chunk in part.agents.chunks]),
            places=pa.chunked_array([chunk for part in parts for chunk in part.places.chunks]),
            hours=np.concatenate([part.hours for part in parts]),
            days=np.concatenate([part.days for part in parts]),
        )
        return self

    def score(self, events: Any, context: Any = None) -> Scores:
        """Every event against the training counts; `context` is not needed."""
        if self._train is None:
            raise DataError("visit rate: fit it on training events before scoring")
        table = events_of(events, self.schema)
        visits = self._visits(table)
        key, trained = self._joint(self._train, visits)
        ratio = self._span(visits.days) / _span(self._train.days)
        time = table[self.schema.time].cast(pa.int64()).to_numpy()
        agents = agent_codes(table[self.schema.entity])[0]
        order = np.lexsort((time, agents))
        score = self._rate(key, trained, ratio, visits.days, order)
        if self.spread:
            score = self._spread(score, agents, order)
        return Scores(event_table(table, self.schema, score), agents_by_worst(table, self.schema, score))

    # ----------------------------------------------------------------------------------------- the formula
    def _rate(
        self, key: np.ndarray, trained: np.ndarray, ratio: float, days: np.ndarray, order: np.ndarray
    ) -> np.ndarray:
        """|n_train − n_test| / √n_train of each event's (agent, place) `key`; `trained` counts by key."""
        n_test = np.bincount(key, minlength=len(trained))[key]
        return _deviation(trained[key] * ratio, n_test)

    def _spread(self, score: np.ndarray, agents: np.ndarray, order: np.ndarray) -> np.ndarray:
        """The maximum of each event, the one before and the one after of the same agent."""
        ranked, owner = score[order], agents[order]
        same = owner[1:] == owner[:-1]
        widest = ranked.copy()
        widest[1:] = np.where(same, np.maximum(widest[1:], ranked[:-1]), widest[1:])
        if not self.abilities.causal:
            widest[:-1] = np.where(same, np.maximum(widest[:-1], ranked[1:]), widest[:-1])
        result = np.empty_like(score)
        result[order] = widest
        return result

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
        named = table[habitat].cast(pa.string()) if habitat in table.column_names else None
        if named is not None and named.null_count == 0:
            return named
        cells = self._cells(table)
        if named is None and cells is None:
            raise DataError(f"visit rate: no column '{habitat}' and no coordinates to count visits by")
        if named is None:
            return cells
        return pc.fill_null(named, "unknown") if cells is None else pc.coalesce(named, cells)

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
        agents = agent_codes(_joined(train.agents, test.agents))[0]
        places, names = agent_codes(_joined(train.places, test.places))
        hours = np.concatenate([train.hours, test.hours])
        whole = (agents * len(names) + places) * 168 + hours
        codes, inverse = np.unique(whole, return_inverse=True)
        return inverse[split:], np.bincount(inverse[:split], minlength=len(codes)).astype(np.float64)

    def _span(self, days: np.ndarray) -> float:
        return _span(days) if self.span_days is None else float(self.span_days)


class CausalVisitRate(VisitRate):
    """Visit rate with counts up to the event: usable live."""

    abilities: ClassVar[Abilities] = Abilities(scores_events=True, scores_agents=True, predicts=False, causal=True)

    def _rate(
        self, key: np.ndarray, trained: np.ndarray, ratio: float, days: np.ndarray, order: np.ndarray
    ) -> np.ndarray:
        """Visits so far, this one included, against what training expects of the days so far."""
        ranked = key[order]
        by_key = np.argsort(ranked, kind="stable")
        grouped = ranked[by_key]
        starts = np.r_[0, np.flatnonzero(grouped[1:] != grouped[:-1]) + 1]
        sizes = np.diff(np.r_[starts, len(grouped)])
        so_far = np.empty(len(key), np.float64)
        so_far[order[by_key]] = np.arange(len(grouped)) - np.repeat(starts, sizes) + 1
        elapsed = (days - days.min() + 1) / self._span(days)
        return _deviation(trained[key] * ratio * elapsed, so_far)


class CategoryVisitRate(VisitRate):
    """Visit rate by kind of place instead of by place."""

    default_by: ClassVar[By] = "category"


class CategoryHourVisitRate(VisitRate):
    """Visit rate by kind of place and hour of the week."""

    default_by: ClassVar[By] = "category-hour"


def _deviation(expected: np.ndarray, seen: np.ndarray) -> np.ndarray:
    expected = np.maximum(expected, NEVER_VISITED)
    return np.abs(expected - seen) / np.sqrt(expected)


def _span(days: np.ndarray) -> float:
    return float(days.max() - days.min() + 1)


def _hour_of_week(local: LocalTime) -> np.ndarray:
    return local.weekday.astype(np.int64) * 24 + (local.minute // 60).astype(np.int64)


def _joined(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([*first.chunks, *second.cast(first.type).chunks], first.type)
