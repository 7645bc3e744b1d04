"""What maps are answered."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

Path = list[list[float]]


class MapFacts(BaseModel):
    """The archive of tiles at `/v1/map.pmtiles`: its kind, its layers, whose data it is, and its box (west, south,
    east, north)."""

    tiles: Literal["vector", "raster"]
    layers: list[str]
    note: str
    box: list[float]


class PlaceName(BaseModel):
    """`rank` is 0 for the largest cities of the world; larger numbers are smaller places."""

    name: str
    lon: float
    lat: float
    rank: int


class Street(BaseModel):
    """`size` is 0 for a small street, 2 for a main road; `path` is longitude and latitude of its points."""

    size: int
    path: Path


class Ground(BaseModel):
    """What is within `box` (west, south, east, north): rings and lines of longitude and latitude. `land` lies on the
    sea, `lakes` lie on the land. `streets_from` says whether streets are of a given map or learned from trips; `note`
    whose data are shown."""

    box: list[float]
    land: list[Path]
    lakes: list[Path]
    rivers: list[Path]
    borders: list[Path]
    names: list[PlaceName]
    streets: list[Street]
    streets_from: Literal["map", "trips"] | None
    note: str
