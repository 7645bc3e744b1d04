"""The values that are remembered of each entity: of its latest events, in the order of their times.

They are those of the days that were learnt from and do not move on. In go values by question; out come ragged arrays,
and a table with a row for each event that is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ustad.schema import EventSchema
from ustad.tables import agent_codes, identity_hash

#: Events remembered of an entity, the latest.
MOST_EVENTS = 200
#: The column with a hash of the entity, in the table.
KEY = "@entity"


@dataclass(frozen=True)
class OwnEvents:
    """M remembered events of E entities."""

    entity_key: np.ndarray  # uint64 [E] hash of the identifier, ascending
    offsets: np.ndarray  # int64 [E + 1]
    values: Mapping[str, np.ndarray]  # question → float64 [M] or [M, size], NaN where missing; words as codes

    @classmethod
    def fit(cls, events: pa.Table, schema: EventSchema, values: Mapping[str, np.ndarray]) -> OwnEvents:
        """From training events; `values` are by row of them."""
        codes, ids = agent_codes(events[schema.entity])
        key = identity_hash(ids)[codes]
        order = np.lexsort((events[schema.time].cast(pa.int64()).to_numpy(), key))
        _, first = np.unique(key[order], return_index=True)
        counts = np.diff(np.r_[first, len(order)])
        latest = np.repeat(first + counts, counts) - np.arange(len(order)) <= MOST_EVENTS
        return cls.of(key[order][latest], {name: column[order][latest] for name, column in values.items()})

    @classmethod
    def of(cls, key: np.ndarray, values: Mapping[str, np.ndarray]) -> OwnEvents:
        """From rows that stand together by entity, in the order of keys."""
        entity_key, first = np.unique(key, return_index=True)
        return cls(entity_key, np.r_[first, len(key)].astype(np.int64), values)

    def owners(self, key: np.ndarray) -> np.ndarray:
        """Index of each entity by its hash, -1 where nothing is remembered: int64 [N]."""
        if not len(self.entity_key):
            return np.full(len(key), -1)
        at = np.minimum(np.searchsorted(self.entity_key, key), len(self.entity_key) - 1)
        return np.where(self.entity_key[at] == key, at, -1)

    @cached_property
    def row_owner(self) -> np.ndarray:
        """Index of each remembered event's entity: int64 [M]."""
        return np.repeat(np.arange(len(self.entity_key)), np.diff(self.offsets))

    def forget(self, entities: Sequence[Any]) -> OwnEvents:
        """Without these entities."""
        keep = ~np.isin(self.entity_key[self.row_owner], identity_hash(list(entities)))
        return self.of(
            self.entity_key[self.row_owner][keep], {name: column[keep] for name, column in self.values.items()}
        )

    # --------------------------------------------------------------------------------------- storing
    def to_table(self) -> pa.Table:
        columns: dict[str, Any] = {KEY: self.entity_key[self.row_owner]}
        for name, column in self.values.items():
            flat = pa.array(column.ravel())
            columns[name] = pa.FixedSizeListArray.from_arrays(flat, column.shape[1]) if column.ndim > 1 else flat
        return pa.table(columns)

    @classmethod
    def from_table(cls, table: pa.Table) -> OwnEvents:
        columns = {name: table[name].combine_chunks() for name in table.column_names}
        values = {
            name: column.flatten().to_numpy().reshape(len(column), -1)
            if pa.types.is_fixed_size_list(column.type)
            else column.to_numpy()
            for name, column in columns.items()
            if name != KEY
        }
        return cls.of(columns[KEY].to_numpy(), values)
