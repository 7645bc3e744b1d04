"""Any table of stays as a town for the second red team: whose diaries they are, which places there are, how long trips
take.

Travel times are estimated from distances and fitted to the trips of the table. Stays beside a long silence are not
free. In: a data set. Out: diaries on each agent's local clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from ustad.clock import local_time
from ustad.dataset import Dataset, zone_of
from ustad.geo import Projection, haversine_km
from ustad.lab.red_team.second_edits import DAY
from ustad.lab.red_team.second_people import Surroundings
from ustad.lab.red_team.stay_ledger import pool_places
from ustad.simulate.edits import Diary
from ustad.tables import TIMESTAMP, DataError, agent_codes, sort_events

_GRID = 1_000  # stays without a POI are at one place where they agree to a thousandth of a degree
SILENCE_S = 1800  # beyond three times the travel time, a gap this much longer is no trip


@dataclass(frozen=True)
class StayTown:
    """Stays in order of agent and time, with the places and clocks of their diaries."""

    events: pa.Table
    pool: pa.Table  # spatial columns of every stay, then of every POI
    code: np.ndarray  # int64 [n]: whose stay it is
    agents: np.ndarray
    first_row: np.ndarray  # int64 [agents + 1]
    place: np.ndarray  # int64 [n]
    row_of_place: np.ndarray  # int64 [P]: a row of the pool
    lat: np.ndarray  # float64 [P]
    lon: np.ndarray
    start: np.ndarray  # int64 [n], microseconds
    end: np.ndarray
    offset: np.ndarray  # int64 [agents]: local clock minus UTC, seconds
    factor: float  # travel times of the table over the estimate
    window: tuple[int, int]  # seconds on the local clock

    def travel(self, origin: int, destination: int, departure: int) -> int:
        km = haversine_km(self.lat[origin], self.lon[origin], self.lat[destination], self.lon[destination])
        return int(np.ceil(60 + self.factor * _drive_seconds(km))) if origin != destination else 0

    def life(self, agent: int) -> Diary:
        """Whole seconds on the agent's clock: starts are rounded up, ends down, so that nothing overlaps."""
        rows = slice(self.first_row[agent], self.first_row[agent + 1])
        place, shift = self.place[rows], self.offset[agent]
        arrival = -(-self.start[rows] // 1_000_000) + shift
        departure = self.end[rows] // 1_000_000 + shift
        free = (arrival >= self.window[0]) & (departure < self.window[1])
        here, there = place[:-1], place[1:]
        km = haversine_km(self.lat[here], self.lon[here], self.lat[there], self.lon[there])
        silent = arrival[1:] - departure[:-1] > 3 * (60 + self.factor * _drive_seconds(km)) + SILENCE_S
        free[:-1] &= ~silent
        free[1:] &= ~silent
        return Diary(place, arrival, departure, free, self.travel)


def _drive_seconds(km: np.ndarray) -> np.ndarray:
    """Without traffic: 20 km/h next door, 60 km/h far away, by roads 1.3 times as long as the straight line."""
    return 1.3 * km / (20 + 40 * km / (km + 10)) * 3600


def open_town(data: Dataset, days: tuple[int, int]) -> StayTown:
    if data.schema.entity != "agent_id":
        raise DataError(f"red team: stays are needed, got events of the schema '{data.schema.name}'")
    events = sort_events(data.events, "agent_id", "started_at").combine_chunks()
    code, agents = agent_codes(events["agent_id"])
    start, end = (events[name].cast(TIMESTAMP).cast(pa.int64()).to_numpy() for name in ("started_at", "finished_at"))
    local = local_time(events["started_at"], zone_of(events, data.schema))
    wall = local.day.astype(np.int64) * DAY + np.round(local.minute * 60).astype(np.int64)
    first_row = np.searchsorted(code, np.arange(len(agents) + 1))
    in_period = np.array([_first_in_period(local.day[a:b], days[0]) for a, b in pairwise(first_row)])
    at = first_row[:-1] + in_period
    # Clocks differ from UTC by whole minutes; the seconds of the start must not be lost in the rounding.
    offset = np.round((wall[at] - start[at] / 1e6) / 60).astype(np.int64) * 60
    pool = pool_places(events, data.pois)
    place, row_of_place = _places(pool)
    lat, lon = (pool[name].to_numpy()[row_of_place] for name in ("lat", "lon"))
    town = StayTown(
        events, pool, code, agents, first_row, place[: len(code)], row_of_place, lat, lon, start, end, offset,
        1.0, (days[0] * DAY, (days[1] + 1) * DAY),
    )  # fmt: skip
    return replace(town, factor=_fit_travel(town))


def _first_in_period(days: np.ndarray, first: int) -> int:
    """The first stay of the period, or the last one before it."""
    inside = np.flatnonzero(days >= first)
    return int(inside[0]) if len(inside) else len(days) - 1


def _places(pool: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    """The place of each row of the pool, and one row of each place. A place is a POI, else a spot on a grid."""
    spot = [np.round(pool[name].to_numpy() * _GRID).astype(np.int64) for name in ("lat", "lon")]
    poi = np.full(pool.num_rows, -1, np.int64)
    if "poi_id" in pool.column_names:
        has_id = pool["poi_id"].is_valid().to_numpy(zero_copy_only=False)
        poi[has_id] = agent_codes(pool["poi_id"].filter(pa.array(has_id)))[0]
        spot = [np.where(has_id, 0, values) for values in spot]
    _, first, number = np.unique(np.stack([poi, *spot], axis=1), axis=0, return_index=True, return_inverse=True)
    return number.ravel(), first


def _fit_travel(town: StayTown) -> float:
    """The median of travelled over estimated seconds between stays up to three hours apart."""
    gap = (town.start[1:] - town.end[:-1]) / 1e6
    here, there = town.place[:-1], town.place[1:]
    km = haversine_km(town.lat[here], town.lon[here], town.lat[there], town.lon[there])
    trips = (town.code[1:] == town.code[:-1]) & (gap > 60) & (gap < 3 * 3600) & (km > 0.3)
    if not trips.any():
        return 1.0
    return float(np.clip(np.median((gap[trips] - 60) / _drive_seconds(km[trips])), 0.5, 3.0))


def look_around(town: StayTown, agents: np.ndarray) -> Surroundings:
    x, y = Projection(float(np.median(town.lat)), float(np.median(town.lon))).forward(town.lat, town.lon)
    category = np.zeros(town.pool.num_rows, np.int64)
    if "poi_category" in town.pool.column_names:
        category = agent_codes(town.pool["poi_category"].fill_null(""))[0]
    home = np.array([_home(town, n) for n in range(len(town.agents))], np.int64)
    return Surroundings(x, y, category[town.row_of_place], home, agents, town.life)


def _home(town: StayTown, agent: int) -> int:
    """The place with the most time."""
    rows = slice(town.first_row[agent], town.first_row[agent + 1])
    places, number = np.unique(town.place[rows], return_inverse=True)
    return int(places[np.argmax(np.bincount(number, (town.end - town.start)[rows]))])
