"""One part of a simulation: the lives of some agents, the red team's incidents, and their tables.

A part depends on nothing but the simulation and its range of agents, so parts may be made in any order, by any
number of workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from ustad.simulate.anomalies import Incident, RedTeam, make_incident
from ustad.simulate.days import DAY, Lives
from ustad.simulate.rows import (
    Recorder,
    agent_label_table,
    counterfactual,
    gap_table,
    label_table,
    record_fixes,
    stay_table,
    trip_table,
)
from ustad.simulate.setting import Simulation


@dataclass(frozen=True)
class Part:
    """Tables of some agents."""

    stays: pa.Table
    trips: pa.Table
    gaps: pa.Table
    labels: pa.Table
    agent_labels: pa.Table
    counterfactual: pa.Table
    dirty_labels: pa.Table


def make_part(
    simulation: Simulation,
    first: int,
    last: int,
    paths: bool = False,
    *,
    recorder: Recorder | None = None,
) -> Part:
    """Tables of agents first … last - 1. `recorder`: where fixes go, if any are wanted."""
    lives = simulation.normal_lives(first, last)
    test = int(simulation.preset.test_day * DAY)
    end = int(simulation.days * DAY)
    if simulation.red_team is not None:
        incidents = simulation.red_team.make_incidents(simulation, lives, (test, end))
        lives = _with_incidents(lives, incidents)
    else:
        lives, incidents = _apply(simulation, lives, simulation.anomalous, (test, end), dirty=False)
    lives, dirt = _apply(simulation, lives, simulation.dirty, (0, test), dirty=True)
    stays = stay_table(simulation, lives)
    routes, trip_after, trips = trip_table(simulation, lives, stays, paths or recorder is not None)
    silent = record_fixes(simulation, lives, trip_after, routes, recorder=recorder)
    return Part(
        stays=stays,
        trips=trips,
        gaps=gap_table(simulation, lives, silent),
        labels=label_table(simulation, incidents),
        agent_labels=agent_label_table(incidents),
        counterfactual=counterfactual(simulation, incidents),
        dirty_labels=label_table(simulation, dirt),
    )


def _apply(
    simulation: Simulation, lives: Lives, is_anomalous: np.ndarray, window: tuple[int, int], *, dirty: bool
) -> tuple[Lives, list[Incident]]:
    agents = is_anomalous[(is_anomalous >= lives.first) & (is_anomalous < lives.first + len(lives.offsets) - 1)]
    team = RedTeam(
        simulation.preset,
        simulation.city.world,
        simulation.off,
        simulation.people.home,
        lambda agent: simulation.normal_lives(agent, agent + 1),
        simulation.seed,
    )
    tries = [make_incident(team, int(agent), lives, window, dirty=dirty) for agent in agents]
    incidents = [incident for incident in tries if incident is not None]
    return _with_incidents(lives, incidents), incidents


def _with_incidents(lives: Lives, incidents: list[Incident]) -> Lives:
    """The lives with the changed diaries in place of the normal ones."""
    if not incidents:
        return lives
    columns: dict[str, list[np.ndarray]] = {"place": [], "arrival": [], "departure": []}
    counts, at = np.diff(lives.offsets), 0
    for incident in incidents:
        row = incident.agent - lives.first
        for name, parts in columns.items():
            parts += [getattr(lives, name)[at : lives.offsets[row]], getattr(incident, name)]
        at = int(lives.offsets[row + 1])
        counts[row] = len(incident.place)
    columns_of_all = {
        name: np.concatenate([*parts, getattr(lives, name)[at:]]).astype(getattr(lives, name).dtype)
        for name, parts in columns.items()
    }
    return replace(
        lives,
        offsets=np.r_[0, np.cumsum(counts)],
        place=columns_of_all["place"],
        arrival=columns_of_all["arrival"],
        departure=columns_of_all["departure"],
    )
