"""What each entity did in training, counted: how often at which place (or merchant, or screen), at which hours.

In goes the training table, out come facts about events of any table: how often the entity was seen there, at this
hour, on this weekday, and in how many days. Kept as one small Parquet table beside the model, for reasons in words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import LocalTime, local_time
from ustad.dataset import zone_of
from ustad.files import read_table, write_table
from ustad.schema import EventSchema
from ustad.tables import agent_codes, identity_hash, mix

_COLUMNS = ("entity", "habitat", "count", "hours", "weekdays", "first_day", "last_day")
_SALT = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Facts:
    """What training knows about n events; all int64 or bool [n]."""

    visits: np.ndarray  # times the entity was at this habitat
    hour_seen: np.ndarray  # … ever in this hour of the day (or the ones beside it)
    weekday_seen: np.ndarray  # … ever on this day of the week
    days: np.ndarray  # days from the entity's first to its last event in training; 0: never seen

    def row(self, i: int) -> dict[str, int | bool]:
        return {
            "seen": int(self.visits[i]),
            "hour_seen": bool(self.hour_seen[i]),
            "weekday_seen": bool(self.weekday_seen[i]),
            "days": int(self.days[i]),
        }


@dataclass(frozen=True)
class VisitCounts:
    """Rows by (entity, habitat); a row without habitat sums up the entity. Hours and weekdays are bit masks."""

    table: pa.Table
    schema: EventSchema

    @classmethod
    def fit(cls, events: pa.Table, schema: EventSchema) -> VisitCounts:
        """Count the training events."""
        clock = local_time(events[schema.time], zone_of(events, schema))
        entity, entities = agent_codes(events[schema.entity])
        habitat, habitats = _habitat(events, schema)
        per_place = _summary(entity, habitat, clock)
        whole = _summary(entity, np.full(len(entity), -1), clock)
        names = np.array([*habitats, None], dtype=object)
        columns = {k: np.concatenate([per_place[k], whole[k]]) for k in per_place}
        columns["entity"] = entities.astype(object)[columns["entity"]].astype(str)
        columns["habitat"] = names[columns["habitat"]]
        table = pa.table(
            {k: pa.array(columns[k], pa.string() if k in ("entity", "habitat") else None) for k in _COLUMNS}
        )
        return cls(table, schema)

    def facts(self, events: pa.Table) -> Facts:
        """What training knows about these events' entities, places and hours."""
        clock = local_time(events[self.schema.time], zone_of(events, self.schema))
        entity = _hashes(events[self.schema.entity])
        habitat, names = _habitat(events, self.schema)
        place = identity_hash(names)[habitat] if len(names) else np.zeros(len(entity), np.uint64)
        row, is_known = self._find(entity, place, habitat >= 0)
        total, familiar = self._find(entity, np.zeros(len(entity), np.uint64), np.ones(len(entity), bool))
        hour = np.floor(clock.minute / 60).astype(np.int64)
        hours, weekdays = self._column("hours")[row], self._column("weekdays")[row]
        nearby = sum((hours >> ((hour + step) % 24)) & 1 for step in (-1, 0, 1))
        span = self._column("last_day")[total] - self._column("first_day")[total] + 1
        return Facts(
            np.where(is_known, self._column("count")[row], 0),
            is_known & (nearby > 0),
            is_known & (((weekdays >> clock.weekday.astype(np.int64)) & 1) > 0),
            np.where(familiar, span, 0),
        )

    def forget(self, entities: Iterable[Any]) -> VisitCounts:
        """Without the rows of some entities."""
        is_gone = np.isin(_hashes(self.table["entity"]), identity_hash(entities))
        return VisitCounts(self.table.filter(pa.array(~is_gone)), self.schema)

    @property
    def entity_key(self) -> np.ndarray:
        """Hashes of the entities that were counted."""
        return identity_hash(pc.unique(self.table["entity"]).to_pylist())

    def save(self, path: Path) -> None:
        write_table(self.table, path)

    @classmethod
    def load(cls, path: Path, schema: EventSchema) -> VisitCounts:
        return cls(read_table(path), schema)

    @cached_property
    def _keys(self) -> tuple[np.ndarray, np.ndarray]:
        """Sorted keys of the rows and the rows they lead to."""
        places = self.table["habitat"].combine_chunks()
        codes, names = agent_codes(pc.fill_null(places, ""))
        places_hash = np.where(pc.is_null(places).to_numpy(zero_copy_only=False), 0, identity_hash(names)[codes])
        keys = _join(_hashes(self.table["entity"]), places_hash.astype(np.uint64))
        order = np.argsort(keys)
        return keys[order], order

    def _find(self, entity: np.ndarray, place: np.ndarray, usable: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Row of each (entity, place), and whether there is one."""
        keys, order = self._keys
        pairs = _join(entity, place)
        at = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)
        return order[at], (keys[at] == pairs) & usable

    def _column(self, name: str) -> np.ndarray:
        return self.table[name].to_numpy()


def _join(entity: np.ndarray, place: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return mix(entity * _SALT + place)


def _hashes(column: pa.ChunkedArray) -> np.ndarray:
    codes, names = agent_codes(column)
    return identity_hash(names)[codes]


def _habitat(events: pa.Table, schema: EventSchema) -> tuple[np.ndarray, np.ndarray]:
    """Codes and names of where each event was, −1 where unknown: the schema's habitat, else its first category."""
    columns = [f.source[0] for f in schema.features if f.kind == "categorical" and f.columns]
    column = next((c for c in (schema.habitat, *columns) if c is not None and c in events.column_names), None)
    if column is None or events[column].null_count == len(events):
        return np.full(len(events), -1), np.array([], dtype=object)
    text = events[column]
    text = text.cast(text.type.value_type) if pa.types.is_dictionary(text.type) else text
    missing = pc.is_null(text).to_numpy()
    codes, names = agent_codes(pc.fill_null(text.cast(pa.string()), ""))
    return np.where(missing, -1, codes), names


def _summary(entity: np.ndarray, habitat: np.ndarray, clock: LocalTime) -> dict[str, np.ndarray]:
    """Counts, masks and first and last day of every (entity, habitat)."""
    order = np.lexsort((habitat, entity))
    who, where = entity[order], habitat[order]
    hour, weekday, day = np.floor(clock.minute / 60).astype(np.int64), clock.weekday, clock.day
    first = np.flatnonzero(np.append(True, (np.diff(who) != 0) | (np.diff(where) != 0)))
    return {
        "entity": who[first],
        "habitat": where[first],
        "count": np.diff(np.append(first, len(who))),
        "hours": np.bitwise_or.reduceat(np.left_shift(1, hour[order]), first),
        "weekdays": np.bitwise_or.reduceat(np.left_shift(1, weekday[order].astype(np.int64)), first),
        "first_day": np.minimum.reduceat(day[order], first).astype(np.int64),
        "last_day": np.maximum.reduceat(day[order], first).astype(np.int64),
    }
