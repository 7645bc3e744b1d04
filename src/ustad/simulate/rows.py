"""From lives, incidents and fixes to the tables of a data set."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ustad.mobility.trips import path_column
from ustad.simulate.anomalies import Incident
from ustad.simulate.catalogue import CATEGORIES
from ustad.simulate.days import Lives
from ustad.simulate.fixes import Fixes
from ustad.simulate.phones import Recording, record_as
from ustad.simulate.routes import Paths, straight_paths, trip_paths
from ustad.simulate.setting import Simulation
from ustad.simulate.uploads import disturb, send
from ustad.tables import TIMESTAMP, event_keys

LABEL_COLUMNS = ("stay_id", "agent_id", "started_at", "finished_at", "anomaly", "kind", "recurring", "role")
GAP_CAUSES = ("away", "phone off", "battery empty")


def poi_table(simulation: Simulation) -> pa.Table:
    """Every place: those of the city, then the homes."""
    place = simulation.city.place
    return pa.table(
        {
            "poi_id": np.arange(len(place), dtype=np.int64),
            "lat": place[:, 0],
            "lon": place[:, 1],
            "category": _category_names(simulation, np.arange(len(place))),
        }
    )


def _times(simulation: Simulation, seconds: np.ndarray) -> pa.Array:
    return pa.array(simulation.first_us + np.asarray(seconds, np.int64) * 1_000_000).cast(TIMESTAMP)


def _category_names(simulation: Simulation, place: np.ndarray) -> pa.Array:
    names = [simulation.preset.classes.get(category.name, category.name) for category in CATEGORIES]
    codes = pa.array(simulation.city.category[place].astype(np.int32))
    return pa.DictionaryArray.from_arrays(codes, pa.array(names)).cast(pa.string())


def _events(
    simulation: Simulation, agent: np.ndarray, place: np.ndarray, arrival: np.ndarray, *, departure: np.ndarray
) -> pa.Table:
    agents, starts = pa.array(agent.astype(np.int64)), _times(simulation, arrival)
    zone = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(len(agent), np.int32)), pa.array([simulation.preset.timezone])
    )
    return pa.table(
        {
            "stay_id": event_keys(agents, starts),
            "agent_id": agents,
            "started_at": starts,
            "finished_at": _times(simulation, departure),
            "lat": simulation.city.place[place, 0],
            "lon": simulation.city.place[place, 1],
            "poi_id": place.astype(np.int64),
            "poi_category": _category_names(simulation, place),
            "timezone": zone.cast(pa.string()),
        }
    )


def stay_table(simulation: Simulation, lives: Lives) -> pa.Table:
    agent = lives.first + np.repeat(np.arange(len(lives.offsets) - 1), np.diff(lives.offsets))
    return _events(simulation, agent, lives.place, lives.arrival, departure=lives.departure)


def trip_table(
    simulation: Simulation, lives: Lives, stays: pa.Table, with_routes: bool
) -> tuple[Paths, np.ndarray, pa.Table]:
    """Paths, the trip after each stay (or -1), and the table of trips."""
    agent, stay_id = stays["agent_id"].to_numpy(), stays["stay_id"].to_numpy()
    before = _without_absences(lives, agent)
    after, place = before + 1, lives.place
    trip_after = np.full(len(agent), -1, np.int64)
    trip_after[before] = np.arange(len(before))
    duration = (lives.arrival[after] - lives.departure[before]).astype(np.float64)
    city = simulation.city
    if with_routes:
        routes = trip_paths(city.world, place[before], place[after], duration, place=city.place, node=city.node)
    else:
        routes = straight_paths(place[before], place[after], duration, city.place)
    agents, starts = pa.array(agent[before]), _times(simulation, lives.departure[before])
    table = pa.table(
        {
            "trip_id": event_keys(agents, starts),
            "agent_id": agents,
            "started_at": starts,
            "finished_at": _times(simulation, lives.arrival[after]),
            "origin_stay_id": stay_id[before],
            "destination_stay_id": stay_id[after],
            "path": _path_column(simulation, routes, lives.departure[before]),
        }
    )
    return routes, trip_after, table


def _without_absences(lives: Lives, agent: np.ndarray) -> np.ndarray:
    """Rows of stays that are followed by a trip: the same agent's next stay, with no absence between."""
    is_linked = agent[1:] == agent[:-1]
    absent_agent = lives.first + np.repeat(np.arange(len(lives.absent_offsets) - 1), np.diff(lives.absent_offsets))
    ends = {(int(a), int(begin)) for a, begin in zip(absent_agent, lives.absent[:, 0], strict=True)}
    suspects = np.flatnonzero(is_linked & np.isin(lives.departure[:-1], lives.absent[:, 0]))
    for row in suspects:
        is_linked[row] = (int(agent[row]), int(lives.departure[row])) not in ends
    return np.flatnonzero(is_linked)


def _path_column(simulation: Simulation, routes: Paths, departure: np.ndarray) -> pa.Array:
    start = np.repeat(departure * 1_000_000 + simulation.first_us, np.diff(routes.offsets))
    time = start + np.round(routes.points[:, 0] * 1e6).astype(np.int64)
    return path_column(routes.offsets, time, routes.points[:, 1], routes.points[:, 2])


@dataclass(frozen=True)
class Recorder:
    """Raw GPS on request: how it is recorded, and what to do with the fixes of some agents once they are made."""

    recording: Recording
    write: Callable[[int, pa.Table], None]  # first agent, fixes
    at_once: int = 100  # agents


def record_fixes(
    simulation: Simulation, lives: Lives, trip_after: np.ndarray, routes: Paths, *, recorder: Recorder | None
) -> np.ndarray:
    """Hand the fixes to the recorder, some agents at a time.

    Returns when phones recorded nothing [n, 4]: agent, from, to, and the row of GAP_CAUSES.
    """
    gaps, agents = [np.empty((0, 4), np.int64)], len(lives.offsets) - 1
    if recorder is None:
        return gaps[0]
    for first in range(0, agents, recorder.at_once):
        last = min(agents, first + recorder.at_once)
        after = trip_after[lives.offsets[first] : lives.offsets[last]]
        fixes = record_as(
            recorder.recording, _slice(lives, first, last), simulation.city.place, after, paths=routes,
            days=simulation.days, seed=simulation.seed, centre=(simulation.preset.lat, simulation.preset.lon),
        )  # fmt: skip
        recorder.write(lives.first + first, _arrived_table(simulation, fixes, recorder.recording.phone))
        gaps += [np.insert(rows, 3, cause, axis=1) for cause, rows in ((1, fixes.off), (2, fixes.dead))]
    return np.concatenate(gaps)


def _arrived_table(simulation: Simulation, fixes: Fixes, phone: str | None) -> pa.Table:
    """Fixes as they arrive: of a phone in batches, with `received_at`; else at once and in order."""
    if phone is None:
        return _fix_table(simulation, fixes)
    fixes, arrivals = send(disturb(fixes, phone, simulation.seed), phone, simulation.seed)
    return _fix_table(simulation, fixes).append_column("received_at", _times(simulation, arrivals))


def _slice(lives: Lives, first: int, last: int) -> Lives:
    rows = slice(lives.offsets[first], lives.offsets[last])
    return replace(
        lives,
        first=lives.first + first,
        offsets=lives.offsets[first : last + 1] - lives.offsets[first],
        place=lives.place[rows],
        arrival=lives.arrival[rows],
        departure=lives.departure[rows],
    )


def _fix_table(simulation: Simulation, fixes: Fixes) -> pa.Table:
    return pa.table(
        {
            "agent_id": fixes.agent.astype(np.int64),
            "time": _times(simulation, fixes.second),
            "lat": fixes.lat,
            "lon": fixes.lon,
            "accuracy_m": fixes.accuracy_m,
        }
    )


def gap_table(simulation: Simulation, lives: Lives, silent: np.ndarray) -> pa.Table:
    """Absences from the region, and times phones recorded nothing (`record_fixes`)."""
    absent_agent = lives.first + np.repeat(np.arange(len(lives.absent_offsets) - 1), np.diff(lives.absent_offsets))
    agent, start = np.r_[absent_agent, silent[:, 0]], np.r_[lives.absent[:, 0], silent[:, 1]]
    end = np.r_[lives.absent[:, 1], silent[:, 2]]
    cause = np.array(GAP_CAUSES)[np.r_[np.zeros(len(absent_agent), np.int64), silent[:, 3]]]
    order = np.lexsort((start, agent))
    return pa.table(
        {
            "agent_id": agent[order].astype(np.int64),
            "started_at": _times(simulation, start[order]),
            "finished_at": _times(simulation, end[order]),
            "cause": pa.array(cause[order].tolist(), pa.string()),
        }
    )


def label_table(simulation: Simulation, incidents: list[Incident]) -> pa.Table:
    def join(values: list[np.ndarray], kind: type) -> np.ndarray:
        return np.concatenate([np.empty(0, kind), *values]).astype(kind)

    counts = [int(incident.is_changed.sum()) for incident in incidents]
    agent = np.repeat(np.array([incident.agent for incident in incidents], np.int64), counts)
    arrival = join([incident.arrival[incident.is_changed] for incident in incidents], np.int64)
    departure = join([incident.departure[incident.is_changed] for incident in incidents], np.int64)
    agents, starts = pa.array(agent), _times(simulation, arrival)
    roles = [role for incident in incidents for role in incident.role[incident.is_changed].tolist()]
    columns = (
        event_keys(agents, starts) if len(agent) else np.empty(0, np.int64),
        agents,
        starts,
        _times(simulation, departure),
        np.ones(len(agent), bool),
        pa.array([i.kind for i, count in zip(incidents, counts, strict=True) for _ in range(count)], pa.string()),
        np.repeat(np.array([incident.recurring for incident in incidents], bool), counts),
        pa.array(roles, pa.string()),
    )
    return pa.table(dict(zip(LABEL_COLUMNS, columns, strict=True)))


def agent_label_table(incidents: list[Incident]) -> pa.Table:
    return pa.table(
        {
            "agent_id": pa.array([incident.agent for incident in incidents], pa.int64()),
            "anomaly": pa.array([True] * len(incidents), pa.bool_()),
            "kind": pa.array([incident.kind for incident in incidents], pa.string()),
            "recurring": pa.array([incident.recurring for incident in incidents], pa.bool_()),
        }
    )


def counterfactual(simulation: Simulation, incidents: list[Incident]) -> pa.Table:
    """The stays of the anomalous days as they would have been."""
    rows = np.concatenate([np.empty((0, 3), np.int64), *(incident.before for incident in incidents)])
    agent = np.repeat(
        np.array([incident.agent for incident in incidents], np.int64), [len(incident.before) for incident in incidents]
    )
    return _events(simulation, agent, rows[:, 0], rows[:, 1], departure=rows[:, 2])
