"""Travel on the street network: shortest-path trees per junction, travel times, and the paths of trips.

A tree is grown once per junction with a graph library; afterwards a travel time is one look-up and a path is a
walk along the tree. A place hangs on its nearest junction by local streets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from ustad.progress import track
from ustad.simulate.streets import LOCAL_KMH, Streets

START_SECONDS = 60.0  # from the door to the road and from the road to the door
DIRECT_KM = 1.5  # places closer than this may be joined by local streets alone
_ROOTS_AT_ONCE = 256


class World(NamedTuple):
    """What compiled kernels know of the city: trees [N, N], places [P], an index of places by activity."""

    seconds: np.ndarray  # float32 [N, N]: free-flow time from root to junction
    before: np.ndarray  # int16 or int32 [N, N]: the junction before, on the way from the root
    x: np.ndarray  # float64 [P], km
    y: np.ndarray
    junction: np.ndarray  # int32 [P]
    access_s: np.ndarray  # float64 [P]: seconds on local streets to the junction
    cell_km: np.ndarray  # float64 [2]: size of an index cell
    corner: np.ndarray  # float64 [2]: south-west corner of the index
    first: np.ndarray  # int64 [activities, cells² + 1]: where a cell's places begin
    places: np.ndarray  # int32: places, by activity and cell


@dataclass(frozen=True)
class Paths:
    """Polylines of n trips: points of trip i are offsets[i] … offsets[i + 1]."""

    offsets: np.ndarray  # int64 [n + 1]
    points: np.ndarray  # float64 [points, 3]: seconds since the trip's departure, lat, lon


def shortest_trees(streets: Streets) -> tuple[np.ndarray, np.ndarray]:
    """Free-flow seconds (float32) and the junction before (int16/int32), both [N, N], one row per root."""
    nodes = len(streets.x)
    graph = csr_array(streets.seconds())
    small = np.int16 if nodes < 32_000 else np.int32
    seconds, before = np.empty((nodes, nodes), np.float32), np.empty((nodes, nodes), small)
    with track("growing shortest-path trees", nodes) as advance:
        for root in range(0, nodes, _ROOTS_AT_ONCE):
            rows = slice(root, min(nodes, root + _ROOTS_AT_ONCE))
            seconds[rows], previous = dijkstra(graph, indices=np.arange(nodes)[rows], return_predecessors=True)
            before[rows] = np.maximum(previous, -1)
            advance(len(previous))
    return seconds, before


@njit(nogil=True, cache=True)
def congestion(second: float, weekend: bool) -> float:
    """How much slower than free flow it is at a second of the local day: 1 … 1.6."""
    hour = second / 3600.0 % 24.0
    if weekend:
        return 1.0 + 0.2 * np.exp(-(((hour - 14.0) / 3.0) ** 2))
    return 1.0 + 0.5 * np.exp(-(((hour - 8.0) / 1.2) ** 2)) + 0.55 * np.exp(-(((hour - 17.3) / 1.6) ** 2))


@njit(nogil=True, cache=True)
def free_flow(world: World, origin: int, destination: int) -> tuple[float, bool]:
    """Seconds between two places without traffic, and whether local streets alone are the faster way."""
    u, v = world.junction[origin], world.junction[destination]
    network = world.access_s[origin] + world.seconds[u, v] + world.access_s[destination]
    dx, dy = abs(world.x[origin] - world.x[destination]), abs(world.y[origin] - world.y[destination])
    local = (dx + dy) / LOCAL_KMH * 3600.0
    if (u == v or dx + dy < DIRECT_KM) and local <= network:
        return local, True
    return network, False


@njit(nogil=True, cache=True)
def travel_seconds(world: World, days_off: np.ndarray, origin: int, destination: int, departure: float) -> int:
    """Whole seconds of a trip that departs at a second of the simulation (day 0 begins at 0).

    `days_off` bool [days]: days without rush hours.
    """
    if origin == destination:
        return 0
    day = min(max(int(departure // 86400.0), 0), len(days_off) - 1)
    seconds, _ = free_flow(world, origin, destination)
    return int(np.ceil(START_SECONDS + seconds * congestion(departure, days_off[day])))


@njit(nogil=True, cache=True)
def _count_points(world: World, origins: np.ndarray, destinations: np.ndarray, offsets: np.ndarray) -> None:
    for i in range(len(origins)):
        points = 3
        if not free_flow(world, origins[i], destinations[i])[1]:
            root, node, points = world.junction[origins[i]], world.junction[destinations[i]], 5
            while node != root:
                node = world.before[root, node]
                points += 1
        offsets[i + 1] = offsets[i] + points


@njit(nogil=True, cache=True)
def _fill_points(
    world: World,
    origins: np.ndarray,
    destinations: np.ndarray,
    duration: np.ndarray,
    place: np.ndarray,
    node: np.ndarray,
    offsets: np.ndarray,
    points: np.ndarray,
) -> None:
    """points [n, 3]: second, lat, lon. `place` and `node`: lat, lon of places [P, 2] and junctions [N, 2]."""
    for i in range(len(origins)):
        o, d, at, last = origins[i], destinations[i], offsets[i], offsets[i + 1] - 1
        total, local = free_flow(world, o, d)
        stretch = duration[i] / max(total, 1e-9)
        points[at, 0], points[at, 1], points[at, 2] = 0.0, place[o, 0], place[o, 1]
        points[last, 0], points[last, 1], points[last, 2] = duration[i], place[d, 0], place[d, 1]
        if local:
            across, along = abs(world.x[o] - world.x[d]), abs(world.y[o] - world.y[d])
            points[at + 1, 0] = duration[i] * across / max(across + along, 1e-9)
            points[at + 1, 1], points[at + 1, 2] = place[o, 0], place[d, 1]
            continue
        root, v = world.junction[o], world.junction[d]
        u_share, v_share = _across_share(world, o, node, place), _across_share(world, d, node, place)
        points[at + 1, 0] = world.access_s[o] * u_share * stretch
        points[at + 1, 1], points[at + 1, 2] = place[o, 0], node[root, 1]
        points[last - 1, 0] = duration[i] - world.access_s[d] * v_share * stretch
        points[last - 1, 1], points[last - 1, 2] = place[d, 0], node[v, 1]
        for position in range(last - 2, at + 1, -1):
            points[position, 0] = (world.access_s[o] + world.seconds[root, v]) * stretch
            points[position, 1], points[position, 2] = node[v, 0], node[v, 1]
            v = world.before[root, v]


@njit(nogil=True, cache=True)
def _across_share(world: World, p: int, node: np.ndarray, place: np.ndarray) -> float:
    """Share of a place's access way that runs east–west (the part next to the place)."""
    j = world.junction[p]
    across = abs(place[p, 1] - node[j, 1]) * np.cos(np.radians(place[p, 0]))
    along = abs(place[p, 0] - node[j, 0])
    return across / max(across + along, 1e-12)


def trip_paths(
    world: World,
    origins: np.ndarray,
    destinations: np.ndarray,
    duration: np.ndarray,
    *,
    place: np.ndarray,
    node: np.ndarray,
) -> Paths:
    """The ways of n trips (places [n], seconds [n]) as polylines along the roads, scaled to their durations."""
    offsets = np.zeros(len(origins) + 1, np.int64)
    _count_points(world, origins, destinations, offsets)
    points = np.empty((offsets[-1], 3))
    _fill_points(world, origins, destinations, duration, place, node, offsets, points)
    return Paths(offsets, points)


def straight_paths(origins: np.ndarray, destinations: np.ndarray, duration: np.ndarray, place: np.ndarray) -> Paths:
    """Only the two ends of each trip, where the way between is not wanted."""
    ends = np.stack([place[origins], place[destinations]], axis=1).reshape(-1, 2)
    second = np.stack([np.zeros(len(duration)), duration], axis=1).ravel()
    return Paths(np.arange(len(origins) + 1) * 2, np.column_stack([second, ends]))
