"""Streets, waters and names of places from an OpenStreetMap extract, for drawing a map.

In: an .osm.pbf file. Out: lines of (lon, lat) by size, outlines of waters, and names with their rank.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ustad.tables import DataError, first_line

#: Size of a street by its class: 2 is the largest.
STREET_SIZES = {
    "motorway": 2, "trunk": 2, "primary": 2, "secondary": 1, "tertiary": 1, "unclassified": 0, "residential": 0,
    "living_street": 0, "pedestrian": 0,
}  # fmt: skip
#: Rank of the name of a street by its size; small ones have none.
STREET_RANKS = {2: 13, 1: 14}
#: Rank of a place by its kind, as on the map of the world: 0 is the largest.
PLACE_RANKS = {"city": 5, "town": 8, "suburb": 10, "village": 10, "quarter": 11, "neighbourhood": 12}


@dataclass(frozen=True)
class OsmMap:
    """`streets` and `rivers` are lines, `waters` closed rings; `sizes` has one number for each street."""

    streets: list[np.ndarray] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    rivers: list[np.ndarray] = field(default_factory=list)
    waters: list[np.ndarray] = field(default_factory=list)
    names: list[dict[str, Any]] = field(default_factory=list)
    longest: dict[str, tuple[float, np.ndarray, int]] = field(default_factory=dict)  # way of each named main street


def read_osm_map(path: Path) -> OsmMap:
    """Everything that a map draws of an extract; the largest places first."""
    try:
        import osmium
    except ImportError as error:
        raise DataError("reading OpenStreetMap needs osmium; install it with pip install 'ustad[geo]'") from error
    if not path.exists():
        raise DataError(f"{path}: no such file")
    keys = osmium.filter.KeyFilter("highway", "waterway", "natural", "place")
    osm = OsmMap()
    try:
        for item in osmium.FileProcessor(str(path)).with_locations().with_areas(keys).with_filter(keys):
            if isinstance(item, osmium.osm.Way):
                _add_way(osm, item)
            elif isinstance(item, osmium.osm.Area):
                _add_water(osm, item)
            elif isinstance(item, osmium.osm.Node):
                _add_name(osm, item)
    except Exception as error:  # osmium has errors of its own kinds for numbers and places that are none
        raise DataError(f"{path}: not an OpenStreetMap file ({first_line(error)})") from error
    if not osm.streets:
        raise DataError(f"{path}: no street was found; give an extract with roads")
    osm.names.extend(_name_streets(osm))
    osm.names.sort(key=lambda place: (place["rank"], place["name"]))
    return osm


def _points(nodes: Any) -> np.ndarray:
    return np.array([(node.lon, node.lat) for node in nodes if node.location.valid()]).reshape(-1, 2)


def _add_way(osm: OsmMap, way: Any) -> None:
    kind = way.tags.get("highway", "").removesuffix("_link")
    is_river = way.tags.get("waterway") in ("river", "canal")
    points = _points(way.nodes) if kind in STREET_SIZES or is_river else np.zeros((0, 2))
    if len(points) < 2:
        return
    if is_river:
        osm.rivers.append(points)
    else:
        osm.streets.append(points)
        osm.sizes.append(STREET_SIZES[kind])
        _keep_longest(osm, way.tags.get("name") or way.tags.get("ref"), points, STREET_SIZES[kind])


def _keep_longest(osm: OsmMap, name: str | None, points: np.ndarray, size: int) -> None:
    """A main street is made of many ways; its name stands on the longest of them."""
    length = float(np.hypot(*np.diff(points, axis=0).T).sum())
    if name and size in STREET_RANKS and length > osm.longest.get(name, (0.0,))[0]:
        osm.longest[name] = (length, points[len(points) // 2], size)


def _name_streets(osm: OsmMap) -> list[dict[str, Any]]:
    return [
        {"name": name, "lon": float(middle[0]), "lat": float(middle[1]), "rank": STREET_RANKS[size]}
        for name, (_, middle, size) in osm.longest.items()
    ]


def _add_water(osm: OsmMap, area: Any) -> None:
    if area.tags.get("natural") == "water" or area.tags.get("waterway") == "riverbank":
        osm.waters.extend(ring for nodes in area.outer_rings() if len(ring := _points(nodes)) > 3)


def _add_name(osm: OsmMap, node: Any) -> None:
    kind, name = node.tags.get("place"), node.tags.get("name")
    if kind in PLACE_RANKS and name and node.location.valid():
        at = node.location
        osm.names.append({"name": name, "lon": at.lon, "lat": at.lat, "rank": PLACE_RANKS[kind]})
