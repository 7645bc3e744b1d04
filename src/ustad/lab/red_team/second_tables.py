"""The second red team on any data set of stays, by editing the stays alone.

Only the stays of the agents that misbehave are changed; every other row is as it was, to the bit. Where the data set
has trips, those between changed stays are replaced by straight ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ustad.config import ConfigError, SplitConfig
from ustad.dataset import Dataset
from ustad.lab.red_team.agent_labels import are_anomalous, with_agent_labels
from ustad.lab.red_team.second_team import assign_kinds, check_kind, make_incidents
from ustad.lab.red_team.second_town import SILENCE_S, StayTown, look_around, open_town
from ustad.mobility.trips import path_column
from ustad.simulate.anomalies import Incident
from ustad.simulate.chance import keys
from ustad.tables import TIMESTAMP, event_keys

_CHOICE_STREAM = 60
_AS_LONG_AS = ("n_fixes", "observed_s")  # columns that grow with the length of a stay


def second_red_team(
    data: Dataset,
    share: float,
    seed: int,
    *,
    kind: str = "all",
    size: float = 1.0,
    first_day: int | None = None,
    last_day: int | None = None,
) -> Dataset:
    """Let a share of the agents misbehave in the test period, or on first_day … last_day (days since 1970-01-01).

    `size` multiplies the standard size of each kind. Agents that are labelled already are left alone; an agent
    whose life leaves no room stays normal and is not labelled.
    """
    kinds = check_kind(kind, size)
    if not 0 <= share <= 1:
        raise ConfigError(f"share: a share of the agents lies between 0 and 1, got {share}")
    split = data.split(SplitConfig())
    days = (split.test_first if first_day is None else first_day, split.test_last if last_day is None else last_day)
    town = open_town(data, days)
    around = look_around(town, _choose(data, town, share, seed))
    incidents = [
        incident
        for unit in assign_kinds(around, kinds, seed)
        for incident in make_incidents(around, unit, kinds, size, seed=seed)
    ]
    meta = {"kind": kind, "share": share, "seed": seed, "size": size, "red_team": "second"}
    return _close(data, town, sorted(incidents, key=lambda i: i.agent), meta)


def _choose(data: Dataset, town: StayTown, share: float, seed: int) -> np.ndarray:
    """Agents who misbehave: with stays in the period, not labelled yet, by a hash of their number."""
    present = np.array([n for n in range(len(town.agents)) if town.life(n).free.any()], np.int64)
    present = present[~are_anomalous(data, town.agents[present])]
    count = min(len(present), max(1, round(share * len(present)))) if share > 0 else 0
    return np.sort(present[np.argsort(keys(seed, _CHOICE_STREAM, present), kind="stable")[:count]])


@dataclass(frozen=True)
class _Rows:
    """Stays of the new table: where each column comes from."""

    source: np.ndarray  # int64: the row of the old table that lends everything but times and place
    pool: np.ndarray  # int64: the row of the town's pool that lends the place
    start: np.ndarray  # int64, microseconds
    end: np.ndarray
    id_row: np.ndarray  # int64: the row of the old table that had this agent and start, or -1
    role: np.ndarray  # str: "" where nothing changed
    kind: np.ndarray  # str
    recurring: np.ndarray  # bool


def _close(data: Dataset, town: StayTown, incidents: list[Incident], meta: dict[str, object]) -> Dataset:
    """The data set with the changed stays, labels, and trips that fit them."""
    pieces, at = [], 0
    for incident in incidents:
        pieces += [_old_rows(town, at, int(town.first_row[incident.agent])), _new_rows(town, incident)]
        at = int(town.first_row[incident.agent + 1])
    pieces.append(_old_rows(town, at, len(town.code)))
    rows = _Rows(**{name: np.concatenate([getattr(p, name) for p in pieces]) for name in _Rows.__annotations__})
    events = _table(town, rows)
    labels = _labels(events, rows)
    has_no_label = pc.invert(pc.is_in(events["stay_id"], labels["stay_id"].combine_chunks()))
    if data.labels is not None:
        old_labels = data.labels.filter(
            pc.is_in(data.labels["stay_id"], events["stay_id"].filter(has_no_label).combine_chunks())
        )
        labels = pa.concat_tables([old_labels, labels], promote_options="default")
    return replace(
        data,
        events=events,
        trips=_trips(data.trips, events, rows) if data.trips is not None else None,
        labels=labels,
        agent_labels=with_agent_labels(data, _agent_labels(town, incidents)),
        meta={**data.meta, "name": f"{data.name} + second red team", "injected": meta},
        path=None,
    )


def _old_rows(town: StayTown, first: int, last: int) -> _Rows:
    rows, nothing = np.arange(first, last), np.full(last - first, "", object)
    no = np.zeros(last - first, bool)
    return _Rows(rows, rows, town.start[first:last], town.end[first:last], rows, nothing, nothing, no)


def _new_rows(town: StayTown, incident: Incident) -> _Rows:
    """The rows of one agent. Times that are as they were keep their microseconds."""
    first = int(town.first_row[incident.agent])
    normal, shift = town.life(incident.agent), int(town.offset[incident.agent])
    starts = {int(second): first + k for k, second in enumerate(normal.arrival)}
    ends = {int(second): first + k for k, second in enumerate(normal.departure)}
    id_row = np.array([starts.get(int(second), -1) for second in incident.arrival])
    end_row = np.array([ends.get(int(second), -1) for second in incident.departure])
    overlap = np.minimum(incident.departure[:, None], normal.departure) - np.maximum(
        incident.arrival[:, None], normal.arrival
    )
    at_place = np.where(incident.place[:, None] == normal.place, np.maximum(overlap, 0), -1)
    own, nearest = at_place.argmax(1), overlap.argmax(1)
    has_place = at_place.max(1) >= 0
    recurring = np.full(len(id_row), incident.recurring) & incident.is_changed
    return _Rows(
        source=first + np.where(has_place & (at_place.max(1) > 0), own, nearest),
        pool=np.where(has_place, first + own, town.row_of_place[incident.place]),
        start=np.where(id_row >= 0, town.start[id_row], (incident.arrival - shift) * 1_000_000),
        end=np.where(end_row >= 0, town.end[end_row], (incident.departure - shift) * 1_000_000),
        id_row=id_row,
        role=incident.role.astype(object),
        kind=np.where(incident.is_changed, incident.kind, "").astype(object),
        recurring=recurring,
    )


def _table(town: StayTown, rows: _Rows) -> pa.Table:
    events, source = town.events, pa.array(rows.source)
    agents, starts = events["agent_id"].take(source), pa.array(rows.start).cast(TIMESTAMP)
    columns = {"agent_id": agents, "started_at": starts, "finished_at": pa.array(rows.end).cast(TIMESTAMP)}
    columns["stay_id"] = pa.array(event_keys(agents, starts))
    if "stay_id" in events.column_names:
        old = events["stay_id"].take(pa.array(rows.id_row, mask=rows.id_row < 0))
        columns["stay_id"] = pc.coalesce(old, columns["stay_id"].cast(old.type))
    for name in town.pool.column_names:
        columns[name] = town.pool[name].take(pa.array(rows.pool))
    longer = (rows.end - rows.start) / np.maximum((town.end - town.start)[rows.source], 1)
    for name in _AS_LONG_AS:
        if name in events.column_names:
            product = pc.multiply(events[name].take(source).cast(pa.float64()), pa.array(longer))
            whole = pa.types.is_integer(events[name].type)
            longer_values = (pc.round(product) if whole else product).cast(events[name].type)
            columns[name] = pc.if_else(pa.array(rows.role == ""), events[name].take(source), longer_values)
    names = events.column_names if "stay_id" in events.column_names else ["stay_id", *events.column_names]
    return pa.table({name: columns[name] if name in columns else events[name].take(source) for name in names})


def _labels(events: pa.Table, rows: _Rows) -> pa.Table:
    rows_changed = np.flatnonzero(rows.role != "")
    labels = events.select(["stay_id", "agent_id", "started_at", "finished_at"]).take(pa.array(rows_changed))
    labels = labels.append_column("anomaly", pa.array(np.ones(len(rows_changed), bool)))
    labels = labels.append_column("kind", pa.array(rows.kind[rows_changed], pa.string()))
    labels = labels.append_column("recurring", pa.array(rows.recurring[rows_changed].astype(bool)))
    return labels.append_column("role", pa.array(rows.role[rows_changed], pa.string()))


def _agent_labels(town: StayTown, incidents: list[Incident]) -> pa.Table:
    agents = pa.array(town.agents, town.events["agent_id"].type)
    return pa.table(
        {
            "agent_id": agents.take(pa.array([i.agent for i in incidents], pa.int64())),
            "anomaly": pa.array([True] * len(incidents), pa.bool_()),
            "kind": pa.array([i.kind for i in incidents], pa.string()),
            "recurring": pa.array([i.recurring for i in incidents], pa.bool_()),
        }
    )


def _trips(trips: pa.Table, events: pa.Table, rows: _Rows) -> pa.Table:
    """Trips between stays that are as they were, and straight ones where a stay was changed, put in or left out."""
    ids, agents = events["stay_id"].combine_chunks(), events["agent_id"].combine_chunks()
    same_agent = pc.equal(agents[:-1], agents[1:]).to_numpy(zero_copy_only=False)
    is_edge = (rows.role[:-1] != "") | (rows.role[1:] != "")
    gap = (rows.start[1:] - rows.end[:-1]) / 1e6
    new = np.flatnonzero(same_agent & is_edge & (gap > 0) & (gap < 3 * 3600 + SILENCE_S))
    same_ids = ids.filter(pa.array(rows.role == ""))
    ends = [
        pc.is_in(trips[name], same_ids.cast(trips[name].type)) for name in ("origin_stay_id", "destination_stay_id")
    ]
    same_trips = trips.filter(pc.and_(*ends))
    if not len(new):
        return same_trips
    straight = _straight_trips(events, new, trips.schema)
    return pa.concat_tables([same_trips, straight], promote_options="default").sort_by(
        [("agent_id", "ascending"), ("started_at", "ascending")]
    )


def _straight_trips(events: pa.Table, before: np.ndarray, schema: pa.Schema) -> pa.Table:
    """Trips from rows `before` to the rows after them, with their two ends as path."""
    here, there = events.take(pa.array(before)), events.take(pa.array(before + 1))
    agents, starts, ends = here["agent_id"], here["finished_at"], there["started_at"]
    at = {name: np.stack([here[name].to_numpy(), there[name].to_numpy()], 1).ravel() for name in ("lat", "lon")}
    times = np.stack([c.cast(pa.int64()).to_numpy() for c in (starts, ends)], 1).ravel()
    path = path_column(2 * np.arange(len(before) + 1), times, at["lat"], at["lon"])
    columns = {
        "trip_id": pa.array(event_keys(agents, starts)),
        "agent_id": agents,
        "started_at": starts,
        "finished_at": ends,
        "origin_stay_id": here["stay_id"],
        "destination_stay_id": there["stay_id"],
        "path": path,
    }
    return pa.table(
        {f.name: columns[f.name].cast(f.type) if f.name in columns else pa.nulls(len(before), f.type) for f in schema}
    )
