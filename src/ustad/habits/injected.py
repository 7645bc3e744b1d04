"""Anomalies made out of a normal week, to choose weights on: no label of anybody's is needed.

In goes a table of normal events; out comes the same table with a few events changed, and which ones. Three kinds, for
whatever the schema has: somebody else's place (`place`), another time (`time`), a much longer stay (`length`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from ustad.events.visits import kind_feature, place_feature
from ustad.schema import EventSchema
from ustad.tables import TIMESTAMP, agent_codes

#: Share of the events that is changed by each kind.
SHARE = 0.01
#: By how many hours a time is moved, and how many times as long a stay becomes.
HOURS, TIMES = (3.0, 10.0), (3.0, 8.0)
_HOUR_US = 3_600_000_000


def injected_week(week: pa.Table, schema: EventSchema, seed: int) -> tuple[pa.Table, np.ndarray]:
    """The week with changed events, and what was done to each: object [n], "" where nothing."""
    rng = np.random.default_rng([seed, 71])
    number = max(1, round(SHARE * week.num_rows))
    rows_to_change = rng.permutation(week.num_rows)[: 3 * number]
    kinds = np.full(week.num_rows, "", dtype=object)
    table = week
    for kind, rows in zip(("place", "time", "length"), np.array_split(rows_to_change, 3), strict=True):
        altered_table = {"place": _elsewhere, "time": _another_time, "length": _longer}[kind](table, schema, rows, rng)
        if altered_table is not None:
            table, kinds[rows] = altered_table, kind
    return table, kinds


def _elsewhere(table: pa.Table, schema: EventSchema, rows: np.ndarray, rng: np.random.Generator) -> pa.Table | None:
    """The place, habitat and kind of an event of another entity."""
    features = [f for f in (place_feature(table, schema), kind_feature(table, schema)) if f is not None]
    columns = {c for f in features for c in f.columns} | ({schema.habitat} if schema.habitat else set())
    columns &= set(table.column_names)
    owner = agent_codes(table[schema.entity])[0]
    if not columns or len(np.unique(owner)) < 2:
        return None
    source = np.arange(table.num_rows)
    for row in rows:
        other = rng.integers(table.num_rows)
        while owner[other] == owner[row]:
            other = rng.integers(table.num_rows)
        source[row] = other
    for name in columns:
        table = table.set_column(table.column_names.index(name), name, table[name].take(pa.array(source)))
    return table


def _another_time(table: pa.Table, schema: EventSchema, rows: np.ndarray, rng: np.random.Generator) -> pa.Table:
    """Start and end some hours earlier or later."""
    microseconds = np.zeros(table.num_rows, np.int64)
    sign = rng.choice([-1, 1], len(rows))
    microseconds[rows] = (sign * rng.uniform(*HOURS, len(rows)) * _HOUR_US).astype(np.int64)
    for name in (schema.time, schema.end):
        if name is not None and name in table.column_names:
            table = _shift_times(table, name, microseconds)
    return table


def _longer(table: pa.Table, schema: EventSchema, rows: np.ndarray, rng: np.random.Generator) -> pa.Table | None:
    """The end a multiple of the duration after the start."""
    if schema.end is None or schema.end not in table.column_names:
        return None
    start, end = (table[c].cast(pa.int64()).to_numpy() for c in (schema.time, schema.end))
    more = np.zeros(table.num_rows, np.int64)
    more[rows] = ((rng.uniform(*TIMES, len(rows)) - 1) * (end - start)[rows]).astype(np.int64)
    return _shift_times(table, schema.end, more)


def _shift_times(table: pa.Table, name: str, microseconds: np.ndarray) -> pa.Table:
    values = table[name].cast(pa.int64()).to_numpy() + microseconds
    return table.set_column(table.column_names.index(name), name, pa.array(values).cast(TIMESTAMP))
