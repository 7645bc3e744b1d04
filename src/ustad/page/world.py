"""The bundled map of the world, cut to a box: land, lakes, rivers, borders and names of places.

`world.json.gz` is made from Natural Earth (public domain) by `benchmarks/world_map.py`. A wide box gets fewer points,
so that an answer is small whatever is looked at.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

#: west, south, east, north in degrees.
Box = tuple[float, float, float, float]
STEPS = 1200  # a box is this many of the smallest visible steps wide
LEAST_STEPS = 4  # a ring that is smaller is left out
FINEST = 0.001  # degrees between points of the bundled map
MOST_NAMES = 60
LEAST_POINTS = {"land": 4, "lakes": 4, "rivers": 2, "borders": 2}  # of a ring and of a line
Lines = list[list[list[float]]]


@dataclass(frozen=True)
class Layer:
    """Lines as arrays of (lon, lat), and the box of each: (n, 4)."""

    lines: list[np.ndarray]
    boxes: np.ndarray

    @classmethod
    def of_lines(cls, lines: list[np.ndarray]) -> Layer:
        if not lines:
            return cls([], np.zeros((0, 4)))
        points, starts = np.vstack(lines), _starts(lines)
        return cls(lines, np.c_[np.minimum.reduceat(points, starts), np.maximum.reduceat(points, starts)])

    @classmethod
    def of_steps(cls, lines: list[list[int]], scale: int) -> Layer:
        """From whole steps between points, each line's first one from zero."""
        ends = np.cumsum([len(line) // 2 for line in lines])
        steps = np.fromiter(itertools.chain.from_iterable(lines), np.int64).reshape(-1, 2)
        way = np.cumsum(steps, axis=0)
        begin = np.vstack([np.zeros((1, 2), np.int64), way[ends[:-1] - 1]])
        points = (way - np.repeat(begin, np.diff(ends, prepend=0), axis=0)) / scale
        return cls.of_lines(np.split(points, ends[:-1]))

    def touching(self, box: Box) -> np.ndarray:
        """Numbers of the lines that touch a box."""
        west, south, east, north = self.boxes.T
        return np.flatnonzero((west <= box[2]) & (east >= box[0]) & (south <= box[3]) & (north >= box[1]))

    def near(self, box: Box) -> list[np.ndarray]:
        return [self.lines[i] for i in self.touching(box)]

    def thin(self, step: float, least_points: int) -> Layer:
        """Without points within one step of the one before; lines that are then too short for a shape are left out."""
        if not self.lines:
            return self
        points, starts = np.vstack(self.lines), _starts(self.lines)
        keep = np.r_[True, (np.diff(np.floor(points / step), axis=0) != 0).any(axis=1)]
        keep[starts] = keep[np.r_[starts[1:], len(points)] - 1] = True
        pieces = np.split(points[keep], np.cumsum(np.add.reduceat(keep, starts))[:-1])
        size = (self.boxes[:, 2:] - self.boxes[:, :2]).max(axis=1)
        least = LEAST_STEPS * step if least_points > 2 else step
        return Layer.of_lines([pieces[i] for i in np.flatnonzero(size >= least) if len(pieces[i]) >= least_points])


def _starts(lines: list[np.ndarray]) -> np.ndarray:
    return np.cumsum([0, *(len(line) for line in lines[:-1])])


@cache
def _world() -> tuple[dict[str, Layer], list[list[Any]], str]:
    content = json.loads(gzip.decompress(files("ustad.page").joinpath("world.json.gz").read_bytes()))
    layers = {name: Layer.of_steps(content[name], content["scale"]) for name in LEAST_POINTS}
    return layers, content["names"], content["note"]


@cache
def _layers(level: int) -> dict[str, Layer]:
    """The world with steps of 2 ** level times the finest."""
    layers = _world()[0]
    if level == 0:
        return layers
    return {name: layer.thin(FINEST * 2**level, LEAST_POINTS[name]) for name, layer in layers.items()}


def world_near(box: Box) -> dict[str, Any]:
    """What the map shows of a box. `land` lies on the sea, `lakes` lie on the land; names come largest first."""
    _, names, note = _world()
    west, south, east, north = box
    step = max(east - west, north - south) / STEPS
    layers = _layers(max(0, math.floor(math.log2(step / FINEST))))
    rings = [ring for line in layers["land"].near(box) if len(ring := clip_ring(line, box))]
    lakes = [ring for line in layers["lakes"].near(box) if len(ring := clip_ring(line, box))]
    lakes += [ring for ring in rings if signed_area(ring) > 0]  # seas within the land: land runs clockwise
    inside = [n for n in names if west <= n[1] <= east and south <= n[2] <= north]
    return {
        "land": as_lists([ring for ring in rings if signed_area(ring) < 0]),
        "lakes": as_lists(lakes),
        "rivers": as_lists(cut_lines(layers["rivers"].near(box), box)),
        "borders": as_lists(cut_lines(layers["borders"].near(box), box)),
        "names": [{"name": n[0], "lon": n[1], "lat": n[2], "rank": n[3]} for n in inside[:MOST_NAMES]],
        "note": note,
    }


def signed_area(ring: np.ndarray) -> float:
    """Twice the area in square degrees; negative where the ring runs clockwise."""
    x, y = (ring - ring[0]).T
    return float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y))


def clip_ring(ring: np.ndarray, box: Box) -> np.ndarray:
    """The part of a closed ring within a box, by Sutherland and Hodgman: one side of the box after the other."""
    for axis, limit, sign in ((0, box[0], 1), (1, box[1], 1), (0, box[2], -1), (1, box[3], -1)):
        if len(ring) and (sign * (ring[:, axis] - limit)).min() < 0:
            ring = _clip_side(ring, axis, limit, sign)
    return ring if not len(ring) or (ring[0] == ring[-1]).all() else np.vstack([ring, ring[:1]])


def _clip_side(ring: np.ndarray, axis: int, limit: float, sign: int) -> np.ndarray:
    """Points on one side of a line, with a point wherever the ring crosses it."""
    depth = sign * (ring[:, axis] - limit)
    inside, before = depth >= 0, np.roll(ring, 1, axis=0)
    depth_before = np.roll(depth, 1)
    crosses = inside != (depth_before >= 0)
    share = np.where(crosses, depth_before / np.where(crosses, depth_before - depth, 1.0), 0.0)
    points = np.stack([before + share[:, None] * (ring - before), ring], axis=1).reshape(-1, 2)
    return points[np.stack([crosses, inside], axis=1).ravel()]


def cut_lines(lines: list[np.ndarray], box: Box) -> list[np.ndarray]:
    """Runs of points within a box, with the point before and after each, so that lines reach its edge."""
    west, south, east, north = box
    runs = []
    for line in lines:
        lon, lat = line.T
        inside = (lon >= west) & (lon <= east) & (lat >= south) & (lat <= north)
        wide = inside | np.r_[inside[1:], False] | np.r_[False, inside[:-1]]
        edges = np.flatnonzero(np.diff(np.r_[False, wide, False]))
        runs += [line[a:b] for a, b in itertools.pairwise(edges)][::2]
    return runs


def as_lists(lines: list[np.ndarray]) -> Lines:
    return [np.round(line, 4).tolist() for line in lines]
