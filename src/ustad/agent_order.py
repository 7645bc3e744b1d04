"""Who stands above whom: agents with an alert first, then by score; and why, where p-values say otherwise.

An alert is about one incident, an agent's p-value about the whole period, so both are right and may contradict: one
odd evening among hundreds of usual ones, or a life that changed without a striking event. Tables, page, report and
Python order agents by these functions and show the same sentence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.ties import raised, tied_ranks

#: Up to this p-value an agent is unusual over the whole period. Of two agents whose p-values contradict their order at
#: least one has a sentence about it, because one of them is on the wrong side of this.
UNUSUAL = 0.05


def order_agents(score: np.ndarray, n_alerts: np.ndarray) -> np.ndarray:
    """Rows in order: those with an alert, then by falling score, then as they stand: int64 [n]."""
    return np.lexsort((tied_ranks(-score), n_alerts == 0))


def order_note(n_alerts: int, p_value: float | None) -> str | None:
    """Why an agent stands where it does, where its p-value alone would put it elsewhere."""
    if p_value is None or np.isnan(p_value):
        return None
    is_unusual = p_value <= raised(UNUSUAL, floor=0.0)
    if n_alerts and not is_unusual:
        what = "their alert" if n_alerts == 1 else f"their {n_alerts:,} alerts"
        return f"Ordered by {what}; over the whole period not unusual (p = {p_value:.2g})."
    if not n_alerts and is_unusual:
        return f"No alert, so after everybody with one; over the whole period unusual (p = {p_value:.2g})."
    return None


def add_alerts(agents: pa.Table, alert_entities: pa.ChunkedArray, entity: str) -> pa.Table:
    """The table of agents with how many alerts each has and why it stands where it does. `alert_entities` has the
    agent of each alert; columns that are there are written anew."""
    pairs = pc.value_counts(alert_entities.cast(agents[entity].type))
    index = pc.index_in(agents[entity], pairs.field("values"))
    counts = pc.fill_null(pairs.field("counts").take(index), 0).cast(pa.int64())
    notes = [order_note(*row) for row in zip(counts.to_pylist(), agents["p_value"].to_pylist(), strict=True)]
    agents = _put_after(agents, "n_incidents", "n_alerts", counts)
    return _put_after(agents, "reason", "order_note", pa.array(notes, pa.string()))


def _put_after(table: pa.Table, before: str, name: str, column: Any) -> pa.Table:
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.add_column(table.column_names.index(before) + 1, name, column)
