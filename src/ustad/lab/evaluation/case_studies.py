"""Case studies chosen by rule: the highest predictable and the highest novel anomalies, with the weeks around them.

A case holds kinds of place and times of day by day number – no coordinates, no identifiers – and what was expected
and observed. The picture (`figures.draw_case`) is made from that alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import local_time
from ustad.dataset import zone_of
from ustad.lab.baselines.deep import percentiles
from ustad.lab.evaluation.workshop import USTAD, Measured, Workshop
from ustad.scoring.calibration import combine

CASES_OF_A_KIND = 2
RULES = {
    "predictable": "highest loss score among the half of the events with the lowest EU (the lower EU among equals)",
    "novel": "largest distance to the training events",
}


def cases(shop: Workshop, **_: Any) -> dict[str, Any]:
    """The cases of both kinds, one per agent. No label is read in choosing; each case says what its label is."""
    measurement = shop.measured(USTAD)
    eu = percentiles(np.nansum(measurement.parts.eu.astype(np.float64), axis=1))
    loss = combine(measurement.parts, "loss")
    predictable = np.lexsort((eu, -np.where(eu <= 0.5, loss, -1.0)))
    novel = np.argsort(-np.nan_to_num(measurement.parts.knn, nan=-1.0), kind="stable")
    agents_shown: set[Any] = set()
    rows = []
    for kind, order in (("predictable", predictable), ("novel", novel)):
        for row in _first_of_agents(order, measurement.agents, agents_shown):
            rows.append({"kind": kind, "rule": RULES[kind], **_case(shop, measurement, row, eu)})
    return {"cases": rows}


def _first_of_agents(order: np.ndarray, agents: np.ndarray, agents_shown: set[Any]) -> list[int]:
    """The first rows of the order, each of another agent."""
    chosen: list[int] = []
    for row in order[:10_000]:
        if agents[row] not in agents_shown:
            agents_shown.add(agents[row])
            chosen.append(int(row))
        if len(chosen) == CASES_OF_A_KIND:
            break
    return chosen


def _case(shop: Workshop, found: Measured, row: int, eu: np.ndarray) -> dict[str, Any]:
    agent = found.events["agent_id"][row]
    parts, names = found.parts, found.parts.names
    train, test = (_own(table, agent) for table in (shop.before, shop.test))
    begin = _begin(shop, train, test)
    losses = {n: float(percentiles(parts.loss[:, i])[row]) for i, n in enumerate(names)}
    mark = _blocks(shop, found.events.slice(row, 1), begin)
    return {
        "train": _blocks(shop, train, begin),
        "test": _blocks(shop, test, begin),
        "event": mark,
        "expected": _words(found, row, "expected"),
        "observed": _words(found, row, "observed"),
        "loudest": max(losses, key=lambda name: losses[name]),
        "loss_percentiles": {k: round(v, 4) for k, v in losses.items()},
        "eu_percentile": round(float(eu[row]), 4),
        "knn_percentile": round(float(percentiles(parts.knn)[row]), 4),
        "labelled": _labelled(shop, found.events, row),
    }


def _own(table: pa.Table, agent: pa.Scalar) -> pa.Table:
    return table.filter(pc.equal(table["agent_id"], agent))


def _begin(shop: Workshop, train: pa.Table, test: pa.Table) -> int:
    """Local date that counts as day 0: the agent's first."""
    table = train if train.num_rows else test
    return int(local_time(table["started_at"], zone_of(table, shop.data.schema)).day.min())


def _blocks(shop: Workshop, stays: pa.Table, begin: int) -> list[list[Any]]:
    """Stays as [day, from minute, to minute, kind of place], cut at local midnight."""
    if not stays.num_rows:
        return []
    zone = zone_of(stays, shop.data.schema)
    start, end = (local_time(stays[c], zone) for c in ("started_at", "finished_at"))
    words = stays["poi_category"].to_pylist() if "poi_category" in stays.column_names else [None] * stays.num_rows
    blocks: list[list[Any]] = []
    for i in range(stays.num_rows):  # the stays of one agent
        for day in range(int(start.day[i]), int(end.day[i]) + 1):
            low = float(start.minute[i]) if day == start.day[i] else 0.0
            high = float(end.minute[i]) if day == end.day[i] else 1440.0
            if high > low:
                blocks.append([day - begin, round(low, 1), round(high, 1), words[i] or "unknown"])
    return blocks


def _words(found: Measured, row: int, what: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for name in ("start", "duration", "poi"):
        if f"{what}_{name}" in found.columns:
            value = found.columns[f"{what}_{name}"][row]
            told[name] = round(float(value), 1) if name != "poi" else value
    return told


def _labelled(shop: Workshop, events: pa.Table, row: int) -> str:
    """What the labels say of it: the event, its agent, or neither."""
    labels = shop.data.labels
    if labels is not None and pc.is_in(events["stay_id"][row], labels["stay_id"].combine_chunks()).as_py():
        return "event"
    return "agent" if events["agent_id"][row].as_py() in set(shop.labelled) else "no"
