"""Where a stay was: the nearest point of interest, or, without such data, the agent's own places.

In: stays (and POIs). Out: the same stays with `poi_id` and `poi_category`. Distances are great-circle distances.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.spatial import cKDTree

from ustad.clock import MICROSECONDS_PER_DAY, local_time, localise
from ustad.config import SplitConfig
from ustad.dataset import Dataset
from ustad.files import as_table
from ustad.geo import EARTH_RADIUS_KM, unit_vectors
from ustad.mobility.columns import POI_NAMES, Reading, rename
from ustad.mobility.staypoints import sphere_points
from ustad.tables import POIS, TIMESTAMP, DataError, agent_codes, validate

UNKNOWN = "unknown"
HOME, WORK, OTHER = "home", "work", "other"
NIGHT = (22.0, 6.0)  # local hours that speak for home
OFFICE = (9.0, 17.0)  # local hours of a weekday that speak for work
LEAST_NIGHT_HOURS = 8.0  # a home needs this much time there by night in all
LEAST_WORK_HOURS = 12.0  # a place of work needs this much time there in office hours in all


# --------------------------------------------------------------------------------------------------- POIs
def read_pois(source: Any, reading: Reading | None = None) -> pa.Table:
    """POIs by the contract; where `category` is a list, one is chosen by `one_category`."""
    reading = reading or Reading()
    where = str(source) if isinstance(source, (str, Path)) else "pois"
    table = rename(as_table(source, where), POI_NAMES, reading)
    if "category" in table.column_names and pa.types.is_nested(table["category"].type):
        chosen = one_category(table["category"])
        table = table.set_column(table.column_names.index("category"), "category", chosen)
        reading.say("POIs with several categories got the one that the fewest POIs have")
    table, complaints = validate(table, POIS, where, reading.on_error)
    reading.count(complaints)
    return table


def one_category(lists: pa.ChunkedArray) -> pa.Array:
    """One category per list: the one that the fewest POIs carry, the most telling; ties by the alphabet.

    A dwelling where one may also visit is `Home`, a shop where some also work is a shop. Empty lists are unknown.
    """
    flat = pc.list_flatten(lists)
    codes, names = agent_codes(flat.cast(pa.string()))
    counts = np.bincount(codes, minlength=len(names))
    rank = np.empty(len(names), np.int64)
    rank[np.lexsort((names, counts))] = np.arange(len(names))
    parents = pc.list_parent_indices(lists).to_numpy()
    best = np.full(len(lists), len(names), np.int64)
    np.minimum.at(best, parents, rank[codes])
    ordered = [*names[np.argsort(rank)].tolist(), UNKNOWN]
    return pa.array(ordered, pa.string()).take(pa.array(best))


class PoiIndex:
    """POIs in a tree on the unit sphere; `nearest` finds the nearest within a radius. Build once, ask often."""

    def __init__(self, pois: pa.Table) -> None:
        self.pois = pois
        self._tree = cKDTree(unit_vectors(pois["lat"].to_numpy(), pois["lon"].to_numpy()))

    def nearest(self, lat: np.ndarray, lon: np.ndarray, radius_m: float) -> np.ndarray:
        """Row of the nearest POI for each point, −1 where none lies within `radius_m`: int64 [n]."""
        chord = 2.0 * np.sin(min(radius_m / 1000.0 / EARTH_RADIUS_KM, np.pi) / 2.0)
        _, rows = self._tree.query(unit_vectors(lat, lon), distance_upper_bound=np.nextafter(chord, 3.0))
        return np.where(rows < self.pois.num_rows, rows, -1).astype(np.int64)


def join_pois(stays: pa.Table, pois: pa.Table | PoiIndex, radius_m: float) -> pa.Table:
    """Stays with the nearest POI's id and category; null and `unknown` where none lies within `radius_m`."""
    if radius_m <= 0:
        raise DataError(f"the POI radius must be above 0 m, got {radius_m}")
    index = pois if isinstance(pois, PoiIndex) else PoiIndex(pois)
    rows = index.nearest(stays["lat"].to_numpy(), stays["lon"].to_numpy(), radius_m)
    picked = pa.array(np.maximum(rows, 0), mask=rows < 0)
    category = pc.fill_null(index.pois["category"].combine_chunks().take(picked), UNKNOWN)
    return set_columns(stays, poi_id=index.pois["poi_id"].combine_chunks().take(picked), poi_category=category)


def set_columns(table: pa.Table, **columns: pa.Array) -> pa.Table:
    """Replace columns where they are, append them where they are not."""
    for name, values in columns.items():
        if name in table.column_names:
            table = table.set_column(table.column_names.index(name), name, values)
        else:
            table = table.append_column(name, values)
    return table


# --------------------------------------------------------------------------------------------- own places
def first_of_test(span: tuple[int, int], timezone: str | None, split: dict[str, Any] | None) -> datetime | None:
    """When the test part of data between two moments (µs) begins: as `split` says, else by the default proportions,
    at midnight of `timezone` (UTC without one). None where the data is too short to be split."""
    zone = timezone or "UTC"
    ends = pa.table({"started_at": pa.array(span, TIMESTAMP), "timezone": [zone, zone]})
    try:
        day = Dataset(ends, meta={"split": split} if split else {}).split(SplitConfig()).test_first
    except DataError:
        return None
    midnight = pa.chunked_array([pa.array([day * MICROSECONDS_PER_DAY], pa.timestamp("us"))])
    return localise(midnight, zone)[0].as_py()


def own_places(stays: pa.Table, radius_m: float = 150.0, until: Any = None) -> pa.Table:
    """Stays with each agent's own places as `poi_id` (`AGENT:1`, `AGENT:2`, … by first visit) and what they are to
    the agent as `poi_category`: home, work or other.

    In order of time a stay joins the nearest of the agent's places within `radius_m`, else founds one. Home is
    where the agent spends the most hours of the night, work the most office hours of weekdays elsewhere, each
    above a least amount. With `until` (a time) only stays that begin before it say what a place is.
    Needs `timezone`; stays have to be in order of agent and time.
    """
    codes, agents = agent_codes(stays["agent_id"])
    starts = np.searchsorted(codes, np.arange(len(agents) + 1))
    points = sphere_points(np.array(stays["lat"]), np.array(stays["lon"]))
    chord = 2.0 * np.sin(radius_m / 1000.0 / EARTH_RADIUS_KM / 2.0)
    place = _cluster(starts, points, chord * chord)  # numbered within each agent
    kinds = _kinds(stays, codes, place, until)
    names = pc.binary_join_element_wise(
        stays["agent_id"].cast(pa.string()).combine_chunks(), pa.array(place + 1).cast(pa.string()), ":"
    )
    return set_columns(stays, poi_id=names, poi_category=pa.array([OTHER, HOME, WORK]).take(pa.array(kinds)))


@numba.njit(cache=True, nogil=True)
def _cluster(starts: Any, points: Any, limit: Any) -> Any:
    """Number of the place of each stay, within its agent; a place's point is the mean of its stays so far."""
    place = np.zeros(len(points), np.int64)
    for agent in range(len(starts) - 1):
        n = starts[agent + 1] - starts[agent]
        sums, counts, places = np.zeros((n, 3)), np.zeros(n), 0
        for k in range(starts[agent], starts[agent + 1]):
            best, nearest = places, limit
            for p in range(places):
                distance = 0.0
                for axis in range(3):
                    distance += (sums[p, axis] / counts[p] - points[k, axis]) ** 2
                if distance <= nearest:
                    best, nearest = p, distance
            places = max(places, best + 1)
            for axis in range(3):
                sums[best, axis] += points[k, axis]
            counts[best] += 1
            place[k] = best
    return place


def _kinds(stays: pa.Table, codes: np.ndarray, place: np.ndarray, until: Any) -> np.ndarray:
    """0 other, 1 home, 2 work for each stay."""
    starts, ends = (stays[name].cast(pa.int64()).to_numpy() for name in ("started_at", "finished_at"))
    clock = local_time(stays["started_at"], stays["timezone"])
    night, office = _hours(clock.minute / 60.0, clock.weekday, (ends - starts) / 3.6e9)
    if until is not None:
        limit = pa.scalar(until).cast(stays["started_at"].type).cast(pa.int64()).as_py()
        night, office = np.where(starts < limit, night, 0.0), np.where(starts < limit, office, 0.0)
    key, which = np.unique(codes * (place.max(initial=0) + 1) + place, return_inverse=True)
    agent = key // (place.max(initial=0) + 1)
    home = _best_place(agent, np.bincount(which, night, len(key)), LEAST_NIGHT_HOURS)
    office_hours = np.where(home, 0.0, np.bincount(which, office, len(key)))
    work = _best_place(agent, office_hours, LEAST_WORK_HOURS)
    return (home * 1 + work * 2)[which]


def _best_place(agent: np.ndarray, hours: np.ndarray, least: float) -> np.ndarray:
    """Per agent the place with the most hours, where they are enough: bool [places]."""
    order = np.lexsort((np.arange(len(agent)), -hours, agent))
    first = np.r_[True, np.diff(agent[order]) > 0] if len(order) else np.zeros(0, bool)
    chosen = np.zeros(len(agent), bool)
    chosen[order[first]] = hours[order[first]] >= least
    return chosen


@numba.njit(cache=True, nogil=True)
def _hours(start: Any, weekday: Any, duration: Any) -> Any:
    """Hours of each stay by night and in the office hours of weekdays; stays of more than 14 days count 14."""
    night, office = np.zeros(len(start)), np.zeros(len(start))
    for k in range(len(start)):
        end = start[k] + min(duration[k], 336.0)
        day = 0
        while day * 24.0 < end:
            a, b = max(start[k] - day * 24.0, 0.0), min(end - day * 24.0, 24.0)
            night[k] += max(0.0, min(b, NIGHT[1]) - a) + max(0.0, b - max(a, NIGHT[0]))
            if (weekday[k] + day) % 7 < 5:
                office[k] += max(0.0, min(b, OFFICE[1]) - max(a, OFFICE[0]))
            day += 1
    return night, office
