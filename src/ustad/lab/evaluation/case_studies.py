"""Case studies chosen by rule: the highest predictable and the highest novel anomalies, with the weeks around them.

A case holds kinds of place and times of day by day number – no coordinates, no identifiers – and what was expected
and observed. The picture (`figures.draw_case`) is made from that alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.clock import local_time
from ustad.dataset import zone_of
from ustad.lab.baselines.deep import percentiles
from ustad.lab.evaluation.ablated_scores import combine
from ustad.lab.evaluation.fitted_models import USTAD, WHOLE_PRESETS, FittedModels, Measurement

CASES_OF_A_KIND = 2
#: People whose first event is counted as true or false.
PEOPLE_COUNTED = 20
RULES = {
    "predictable": "highest loss score among the half of the events with the lowest EU (the lower EU among equals)",
    "novel": "largest distance to the training events",
    "preset best": "highest score of the preset `best`",
}


def cases(models: FittedModels, method: str = USTAD, **_: Any) -> dict[str, Any]:
    """The cases of both kinds (or of the preset `best`), one per agent, first among all events, then by the same rule
    among labelled ones. No label is read in choosing the first; each case says what its label is."""
    if method == USTAD:
        measurement = models.measure(USTAD)
        events, orders = measurement.events, _by_parts(measurement)
        describe: Callable[[int], dict[str, Any]] = partial(_case, models, measurement, _eu_percentiles(measurement))
    else:
        events, orders = _by_preset(models, WHOLE_PRESETS[method])
        describe = partial(_scored_case, models, events)
    agents, is_labelled = np.asarray(events["agent_id"].to_pylist()), _labelled_rows(models, events)
    agents_shown: set[Any] = set()
    rows = []
    for among in ("all events", "labelled events"):
        for kind, order in orders.items():
            order = order if among == "all events" else order[is_labelled[order]]
            for row in _first_of_agents(order, agents, agents_shown):
                rows.append({"kind": kind, "rule": RULES[kind], "among": among, **describe(row)})
    return {
        "cases": rows,
        "shares": {kind: _false_shares(order, agents, is_labelled) for kind, order in orders.items()},
    }


def _by_parts(measurement: Measurement) -> dict[str, np.ndarray]:
    """All rows by each rule, the first first."""
    eu, loss = _eu_percentiles(measurement), combine(measurement.parts, "loss")
    return {
        "predictable": np.lexsort((eu, -np.where(eu <= 0.5, loss, -1.0))),
        "novel": np.argsort(-np.nan_to_num(measurement.parts.knn, nan=-1.0), kind="stable"),
    }


def _by_preset(models: FittedModels, preset: str) -> tuple[pa.Table, dict[str, np.ndarray]]:
    events = models.preset_scores(preset).events
    if events is None:
        raise ValueError("a preset of the detector scores events")
    return events, {"preset best": np.argsort(-events["score"].to_numpy(), kind="stable")}


def _eu_percentiles(measurement: Measurement) -> np.ndarray:
    return percentiles(np.nansum(measurement.parts.eu.astype(np.float64), axis=1))


def _false_shares(order: np.ndarray, agents: np.ndarray, is_labelled: np.ndarray) -> dict[str, int]:
    """Of the first events of so many agents: how many no label speaks of."""
    rows = _first_of_agents(order, agents, set(), PEOPLE_COUNTED)
    return {"shown": len(rows), "false": int((~is_labelled[rows]).sum())}


def _first_of_agents(
    order: np.ndarray, agents: np.ndarray, agents_shown: set[Any], count: int = CASES_OF_A_KIND
) -> list[int]:
    """The first rows of the order, each of another agent."""
    rows: list[int] = []
    for row in order[:10_000]:
        if agents[row] not in agents_shown:
            agents_shown.add(agents[row])
            rows.append(int(row))
        if len(rows) == count:
            break
    return rows


def _case(models: FittedModels, measurement: Measurement, eu: np.ndarray, row: int) -> dict[str, Any]:
    agent = measurement.events["agent_id"][row]
    parts, names = measurement.parts, measurement.parts.names
    losses = {n: float(percentiles(parts.loss[:, i])[row]) for i, n in enumerate(names)}
    return {
        **_weeks(models, agent, models.test, measurement.events["stay_id"][row]),
        "expected": _words(measurement, row, "expected"),
        "observed": _words(measurement, row, "observed"),
        "loudest": max(losses, key=lambda name: losses[name]),
        "loss_percentiles": {k: round(v, 4) for k, v in losses.items()},
        "eu_percentile": round(float(eu[row]), 4),
        "knn_percentile": round(float(percentiles(parts.knn)[row]), 4),
        "labelled": _find_label(models, measurement.events, row),
    }


def _scored_case(models: FittedModels, events: pa.Table, row: int) -> dict[str, Any]:
    """A case of the detector itself: its weeks, its sentence and its label."""
    return {
        **_weeks(models, events["agent_id"][row], models.test, events["stay_id"][row]),
        "expected": {},
        "observed": {},
        "reason": events["reason"][row].as_py(),
        "labelled": _find_label(models, events, row),
    }


def _weeks(models: FittedModels, agent: pa.Scalar, period: pa.Table, stay: pa.Scalar) -> dict[str, Any]:
    """The agent's stays before the test weeks and in them, and the stay that the case is about."""
    train, test = (_own(table, agent) for table in (models.before, period))
    begin = _begin(models, train, test)
    event = test.filter(pc.equal(test["stay_id"], stay))
    return {part: _blocks(models, table, begin) for part, table in (("train", train), ("test", test), ("event", event))}


def _labelled_rows(models: FittedModels, events: pa.Table) -> np.ndarray:
    """Which events a label says are anomalous: bool [n]."""
    labels = models.data.labels
    if labels is None:
        return np.zeros(events.num_rows, bool)
    return pc.is_in(events["stay_id"], labels["stay_id"].cast(events["stay_id"].type).combine_chunks()).to_numpy()


def _own(table: pa.Table, agent: pa.Scalar) -> pa.Table:
    return table.filter(pc.equal(table["agent_id"], agent))


def _begin(models: FittedModels, train: pa.Table, test: pa.Table) -> int:
    """Local date that counts as day 0: the agent's first."""
    table = train if train.num_rows else test
    return int(local_time(table["started_at"], zone_of(table, models.data.schema)).day.min())


def _blocks(models: FittedModels, stays: pa.Table, begin: int) -> list[list[Any]]:
    """Stays as [day, from minute, to minute, kind of place], cut at local midnight."""
    if not stays.num_rows:
        return []
    zone = zone_of(stays, models.data.schema)
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


def _words(measurement: Measurement, row: int, what: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in ("start", "duration", "poi"):
        if f"{what}_{name}" in measurement.columns:
            value = measurement.columns[f"{what}_{name}"][row]
            values[name] = round(float(value), 1) if name != "poi" else value
    return values


def _find_label(models: FittedModels, events: pa.Table, row: int) -> str:
    """What the labels say of it: the event, its agent, or neither."""
    labels = models.data.labels
    if labels is not None and pc.is_in(events["stay_id"][row], labels["stay_id"].combine_chunks()).as_py():
        return "event"
    return "agent" if events["agent_id"][row].as_py() in set(models.labelled_agents) else "no"
