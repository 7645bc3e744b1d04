"""A real city from an OpenStreetMap extract: roads become streets, tagged objects become places.

In: a preset and an .osm.pbf file. Out: the preset moved there and the `Ground` of the city. Roads are taken as
two-way; where a network has too many junctions for a tree each, the smallest roads are left to the local streets.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from importlib.resources import as_file, files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from ustad.geo import Projection, haversine_km
from ustad.mobility.osm import read_osm
from ustad.mobility.reading import Reading
from ustad.mobility.timezones import zones_of
from ustad.progress import say
from ustad.simulate.catalogue import APARTMENT, BY_NAME, CATEGORIES, HOUSE
from ustad.simulate.chance import generator
from ustad.simulate.city import CITY_STREAM, Ground
from ustad.simulate.presets import Preset
from ustad.simulate.streets import Streets, largest_component
from ustad.tables import DataError

MAX_JUNCTIONS = 8_000
LEAST_PLACES = 3  # of every category of the preset; missing ones are placed where other places are
LEAST_OFFICES = 120
#: Speed limits in km/h where a road has none of its own, largest roads first.
ROAD_KMH = {
    "motorway": 105.0, "trunk": 90.0, "primary": 65.0, "secondary": 55.0, "tertiary": 50.0, "unclassified": 45.0,
    "residential": 30.0, "living_street": 20.0,
}  # fmt: skip
_RANK = {name: rank for rank, name in enumerate(ROAD_KMH)}


def read_ground(preset: Preset, path: Path, timezone: str | None, seed: int) -> tuple[Preset, Ground]:
    """The city of an extract, with the preset's people, calendar and red team."""
    roads = _read_roads(path)
    lat, lon = _locations(roads)
    projection = Projection.fit(lat, lon)
    streets = _network(roads, projection)
    with as_file(files("ustad.simulate").joinpath("city_categories.yaml")) as table:
        pois = read_osm(path, table)
    x, y = projection.forward(pois["lat"].to_numpy(), pois["lon"].to_numpy())
    category = np.array([BY_NAME[name] for name in pois["category"].to_pylist()], np.int16)
    ground = _ground(preset, streets, projection, x, y=y, category=category, rng=generator(seed, CITY_STREAM))
    say(f"{path.name}: {len(streets.x):,} junctions, {len(streets.km):,} roads, {len(ground.x):,} places")
    return _move_preset(preset, projection, streets, timezone), ground


def _move_preset(preset: Preset, projection: Projection, streets: Streets, timezone: str | None) -> Preset:
    width, height = (float(np.abs(values).max()) for values in (streets.x, streets.y))
    reach = min(width, height)
    return replace(
        preset,
        lat=projection.lat,
        lon=projection.lon,
        half_width_km=width,
        half_height_km=height,
        timezone=timezone or _zone(projection),
        commute_km=min(preset.commute_km, 0.4 * reach),
        errand_km=min(preset.errand_km, 0.2 * reach),
    )


def _zone(projection: Projection) -> str:
    reading = Reading(None, "utc", "fail")
    zone = zones_of(np.array([projection.lat]), np.array([projection.lon]), reading)[0].as_py()
    for note in reading.notes:
        say(note)
    return str(zone)


# -------------------------------------------------------------------------------------------------- roads
Road = tuple[str, float, list[tuple[int, float, float]]]  # class, km/h, points (node, lat, lon)


def _read_roads(path: Path) -> list[Road]:
    try:
        import osmium
    except ImportError as error:
        raise DataError("reading OpenStreetMap needs osmium; install it with pip install 'ustad[geo]'") from error
    if not path.exists():
        raise DataError(f"{path}: no such file")
    roads: list[Road] = []
    try:
        ways = osmium.FileProcessor(str(path)).with_locations().with_filter(osmium.filter.KeyFilter("highway"))
        for item in ways:
            if isinstance(item, osmium.osm.Way):
                _append_road(roads, item)
    except RuntimeError as error:
        raise DataError(f"{path}: not an OpenStreetMap file ({str(error).splitlines()[0]})") from error
    if not roads:
        raise DataError(f"{path}: no road for cars was found")
    return roads


def _append_road(roads: list[Road], way: Any) -> None:
    kind = way.tags.get("highway", "").removesuffix("_link")
    points = [(node.ref, node.lat, node.lon) for node in way.nodes if node.location.valid()]
    if kind in ROAD_KMH and len(points) > 1:
        roads.append((kind, _speed(way.tags.get("maxspeed"), ROAD_KMH[kind]), points))


def _speed(text: str | None, default: float) -> float:
    """km/h of a `maxspeed` tag such as `50` or `30 mph`."""
    match = re.fullmatch(r"\s*(\d+)\s*(mph|km/h)?\s*", text or "")
    return float(match[1]) * (1.609344 if match[2] == "mph" else 1.0) if match and int(match[1]) > 0 else default


def _locations(roads: list[Road]) -> tuple[np.ndarray, np.ndarray]:
    points = np.array([point[1:] for _, _, points in roads for point in points])
    return points[:, 0], points[:, 1]


def _network(roads: list[Road], projection: Projection) -> Streets:
    """Junctions and the roads between them; the smallest roads are dropped until the network fits."""
    for rank in range(len(ROAD_KMH), 0, -1):
        main_roads = [road for road in roads if _RANK[road[0]] < rank]
        streets = largest_component(_join(main_roads, projection)) if main_roads else None
        if streets is not None and (len(streets.x) <= MAX_JUNCTIONS or rank == 1):
            if len(streets.x) > MAX_JUNCTIONS:
                break
            return streets
    raise DataError(f"the road network has more than {MAX_JUNCTIONS:,} junctions of large roads; cut a smaller extract")


def _join(roads: list[Road], projection: Projection) -> Streets:
    uses = Counter(node for _, _, points in roads for node, _, _ in points)
    uses.update(end[0] for _, _, points in roads for end in (points[0], points[-1]))
    number: dict[int, int] = {}
    where: list[tuple[float, float]] = []
    rows: list[tuple[int, int, float, float]] = []
    for _, speed, points in roads:
        lat, lon = np.array([p[1] for p in points]), np.array([p[2] for p in points])
        along = np.r_[0.0, np.cumsum(haversine_km(lat[:-1], lon[:-1], lat[1:], lon[1:]))]
        stops = [k for k, point in enumerate(points) if uses[point[0]] > 1]
        for k in stops:
            if points[k][0] not in number:
                number[points[k][0]] = len(where)
                where.append(points[k][1:])
        for a, b in pairwise(stops):
            if points[a][0] != points[b][0] and along[b] > along[a]:
                rows.append((number[points[a][0]], number[points[b][0]], along[b] - along[a], speed))
    best: dict[tuple[int, int], tuple[float, float]] = {}
    for a, b, km, speed in rows:  # the fastest of parallel roads
        key = (min(a, b), max(a, b))
        if key not in best or km / speed < best[key][0] / best[key][1]:
            best[key] = (km, speed)
    ends = np.array(list(best), np.int32).reshape(-1, 2)
    lengths = np.array(list(best.values())).reshape(-1, 2)
    x, y = projection.forward(*np.array(where).T)
    return Streets(x, y, ends[:, 0], ends[:, 1], lengths[:, 0], lengths[:, 1])


# ------------------------------------------------------------------------------------------------- places
def _ground(
    preset: Preset,
    streets: Streets,
    projection: Projection,
    x: np.ndarray,
    *,
    y: np.ndarray,
    category: np.ndarray,
    rng: np.random.Generator,
) -> Ground:
    points = np.c_[streets.x, streets.y]
    tree = cKDTree(points)
    distance, junction = tree.query(np.c_[x, y])
    near = distance < 3.0
    homes = np.isin(category, (HOUSE, APARTMENT))
    living = np.bincount(junction[homes & near], minlength=len(points)) + 0.3
    busy = np.bincount(junction[~homes & near], minlength=len(points)) + 0.05
    spread = np.clip(tree.query(points, k=min(5, len(points)))[0][:, -1] / 2, 0.03, 0.5)
    kinds = [BY_NAME[name] for name in preset.classes]
    keep = near & ~homes & np.isin(category, kinds)
    x, y, category = _fill_up(
        streets, spread, x[keep], y[keep], category=category[keep], kinds=kinds, busy=busy / busy.sum(), rng=rng
    )
    cumulative = np.cumsum(living)
    urbanity = np.minimum(1.0, busy / max(float(np.quantile(busy, 0.97)), 1e-9))
    return Ground(projection, streets, cumulative / cumulative[-1], spread, urbanity, x, y, category)


def _fill_up(
    streets: Streets,
    spread: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    *,
    category: np.ndarray,
    kinds: list[int],
    busy: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places that maps often lack: a few of every category, and offices for everybody."""
    parts = [(x, y, category)]
    for code in sorted(code for code in kinds if CATEGORIES[code].share > 0):
        least = LEAST_OFFICES if CATEGORIES[code].name == "office" else LEAST_PLACES
        missing = max(0, least - int(np.count_nonzero(category == code)))
        node = rng.choice(len(busy), missing, p=busy)
        shift = rng.uniform(-0.8, 0.8, (2, missing)) * spread[node]
        parts.append((streets.x[node] + shift[0], streets.y[node] + shift[1], np.full(missing, code, np.int16)))
    columns_of_all = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    return columns_of_all[0], columns_of_all[1], columns_of_all[2].astype(np.int16)
