"""The street network, its shortest-path trees, and the ways of trips."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
import pytest

from ustad.geo import haversine_km
from ustad.simulate.chance import generator
from ustad.simulate.city import City, build_city, build_ground
from ustad.simulate.habits import nearest_place
from ustad.simulate.presets import get_preset
from ustad.simulate.routes import START_SECONDS, congestion, free_flow, shortest_trees, travel_seconds, trip_paths
from ustad.simulate.streets import LOCAL_KMH, ROAD_KMH, Streets, grid_streets, largest_component


@pytest.fixture(scope="module")
def city() -> City:
    preset = replace(get_preset("town"), columns=14, rows=11, places=200)
    return build_city(build_ground(preset, 3), 80, 3)


def naive_dijkstra(streets: Streets, root: int) -> np.ndarray:
    """A slow, obvious version with a heap."""
    roads: dict[int, list[tuple[int, float]]] = {}
    for a, b, km, kmh in zip(streets.start, streets.stop, streets.km, streets.kmh, strict=True):
        roads.setdefault(int(a), []).append((int(b), km / kmh * 3600))
        roads.setdefault(int(b), []).append((int(a), km / kmh * 3600))
    best, heap = np.full(len(streets.x), np.inf), [(0.0, root)]
    while heap:
        time, node = heapq.heappop(heap)
        if time < best[node]:
            best[node] = time
            for other, seconds in roads.get(node, []):
                heapq.heappush(heap, (time + seconds, other))
    return best


def test_every_junction_can_be_reached() -> None:
    streets = grid_streets(get_preset("town"), generator(1, 1))
    assert len(largest_component(streets).x) == len(streets.x)


def test_trees_agree_with_a_naive_search(city: City) -> None:
    seconds, _ = shortest_trees(city.ground.streets)
    for root in (0, 17, 91):
        np.testing.assert_allclose(seconds[root], naive_dijkstra(city.ground.streets, root), rtol=1e-5)


def test_trees_walk_along_roads_only(city: City) -> None:
    streets = city.ground.streets
    roads = {frozenset((int(a), int(b))) for a, b in zip(streets.start, streets.stop, strict=True)}
    before = city.world.before
    for root in (0, 50):
        for node in range(len(streets.x)):
            if node != root:
                assert frozenset((int(before[root, node]), node)) in roads


def test_rush_hour_is_slower_and_nothing_is_faster_than_free_flow() -> None:
    hours = np.arange(0, 24, 0.25)
    workday = np.array([congestion(h * 3600.0, False) for h in hours])
    weekend = np.array([congestion(h * 3600.0, True) for h in hours])
    assert workday.min() >= 1
    assert weekend.min() >= 1
    assert workday[hours == 8] > 1.4 > workday[hours == 3]
    assert workday.max() > weekend.max()


def test_travel_takes_the_network_time_and_the_door_time(city: City) -> None:
    off = np.ones(3, bool)
    for origin, destination in ((0, 150), (12, 99), (180, 230)):
        seconds, _ = free_flow(city.world, origin, destination)
        night = travel_seconds(city.world, off, origin, destination, 3 * 3600.0)
        assert night == pytest.approx(START_SECONDS + seconds, abs=2)
    assert travel_seconds(city.world, off, 5, 5, 0.0) == 0


def test_paths_join_the_places_at_the_speed_of_the_roads(city: City) -> None:
    rng = np.random.default_rng(0)
    origins, destinations = rng.integers(0, len(city.place), (2, 300)).astype(np.int32)
    keep = origins != destinations
    origins, destinations = origins[keep], destinations[keep]
    off = np.zeros(1, bool)
    duration = np.array(
        [travel_seconds(city.world, off, o, d, 9e4) for o, d in zip(origins, destinations, strict=True)]
    )
    paths = trip_paths(city.world, origins, destinations, duration.astype(float), place=city.place, node=city.node)
    for i in range(len(origins)):
        second, lat, lon = paths.points[paths.offsets[i] : paths.offsets[i + 1]].T
        assert (lat[0], lon[0]) == tuple(city.place[origins[i]])
        assert (lat[-1], lon[-1]) == tuple(city.place[destinations[i]])
        assert second[0] == 0
        assert second[-1] == duration[i]
        assert (np.diff(second) >= -1e-6).all()
        km = haversine_km(lat[:-1], lon[:-1], lat[1:], lon[1:])
        assert (km <= ROAD_KMH.max() / 3600 * np.diff(second) * 1.02 + 1e-3).all()
        assert km.sum() / max(second[-1], 1) * 3600 <= ROAD_KMH.max()


def test_local_streets_are_as_fast_as_they_may_be(city: City) -> None:
    streets, world = city.ground.streets, city.world
    km = np.abs(world.x - streets.x[world.junction]) + np.abs(world.y - streets.y[world.junction])
    np.testing.assert_allclose(world.access_s, km / LOCAL_KMH * 3600)


def test_the_index_finds_the_nearest_place(city: City) -> None:
    rng = np.random.default_rng(1)
    world = city.world
    for activity in (0, 1, 5, 7, 14):
        places = world.places[world.first[activity, 0] : world.first[activity, -1]]
        for x, y in rng.uniform(-7, 7, (40, 2)):
            distance = np.hypot(world.x[places] - x, world.y[places] - y)
            found = nearest_place(world, activity, x, y)
            assert np.hypot(world.x[found] - x, world.y[found] - y) == pytest.approx(distance.min())
