"""A procedural street network: junctions and roads with classes and speed limits, in kilometres from a centre.

Out comes `Streets`; the same class holds a network read from OpenStreetMap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree

from ustad.simulate.presets import Preset

ROAD_KMH = np.array([45.0, 65.0, 105.0])  # collector, arterial, freeway
LOCAL_KMH = 30.0  # the streets between a place and its junction
COLLECTOR, ARTERIAL, FREEWAY = range(3)


@dataclass(frozen=True)
class Streets:
    """Junctions [N] and two-way roads [E] between them."""

    x: np.ndarray  # km east of the centre
    y: np.ndarray  # km north of the centre
    start: np.ndarray  # int32: junction
    stop: np.ndarray
    km: np.ndarray
    kmh: np.ndarray

    def seconds(self) -> coo_array:
        """Free-flow travel time of every road as a sparse matrix [N, N], both ways."""
        time = self.km / self.kmh * 3600.0
        ends = np.r_[self.start, self.stop], np.r_[self.stop, self.start]
        return coo_array((np.r_[time, time], ends), shape=(len(self.x), len(self.x)))


def grid_streets(preset: Preset, rng: np.random.Generator) -> Streets:
    """A warped grid, denser towards the centre, with arterials, freeways, a diagonal, and missing blocks."""
    columns, rows = preset.columns, preset.rows
    x, y = _junctions(preset, rng)
    number = np.arange(columns * rows).reshape(rows, columns)
    row_class, column_class = _line_classes(rows, rng), _line_classes(columns, rng)
    parts = [
        (number[:, :-1].ravel(), number[:, 1:].ravel(), np.repeat(row_class, columns - 1)),
        (number[:-1].ravel(), number[1:].ravel(), np.tile(column_class, rows - 1)),
        _diagonal(number, rng),
    ]
    start, stop, road = (np.concatenate(part) for part in zip(*parts, strict=True))
    km = np.hypot(x[start] - x[stop], y[start] - y[stop])
    keep = _keep_connected(start, stop, km, (road > COLLECTOR) | (rng.random(len(road)) > 0.18), nodes=len(x))
    return Streets(x, y, start[keep].astype(np.int32), stop[keep].astype(np.int32), km[keep], ROAD_KMH[road[keep]])


def _junctions(preset: Preset, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    east, north = (
        _warp(n, half) for n, half in ((preset.columns, preset.half_width_km), (preset.rows, preset.half_height_km))
    )
    spacing_x, spacing_y = np.gradient(east), np.gradient(north)
    shape = (preset.rows, preset.columns)
    shift_x, shift_y = rng.uniform(-0.22, 0.22, shape), rng.uniform(-0.22, 0.22, shape)
    x = np.clip(east + shift_x * spacing_x, -preset.half_width_km, preset.half_width_km)
    y = np.clip(north[:, None] + shift_y * spacing_y[:, None], -preset.half_height_km, preset.half_height_km)
    return x.ravel(), y.ravel()


def _warp(count: int, half: float) -> np.ndarray:
    line = np.linspace(-1.0, 1.0, count)
    return half * np.sign(line) * (0.6 * np.abs(line) + 0.4 * np.abs(line) ** 2)


def _line_classes(count: int, rng: np.random.Generator) -> np.ndarray:
    """Every fourth line is an arterial, every twelfth a freeway."""
    line = np.arange(count) + rng.integers(12)
    return np.where(line % 12 == 0, FREEWAY, np.where(line % 4 == 0, ARTERIAL, COLLECTOR))


def _diagonal(number: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, columns = number.shape
    steps = np.arange(min(rows, columns) - 1)
    shift = int(rng.integers(0, max(1, abs(columns - rows)) + 1)) if columns >= rows else 0
    shift = min(shift, columns - 1 - len(steps)) if columns - 1 - len(steps) > 0 else 0
    return number[steps, steps + shift], number[steps + 1, steps + 1 + shift], np.full(len(steps), FREEWAY)


def _keep_connected(start: np.ndarray, stop: np.ndarray, km: np.ndarray, keep: np.ndarray, *, nodes: int) -> np.ndarray:
    """`keep`, and the roads of a shortest spanning tree, so that every junction can be reached."""
    ends = start.astype(np.int32), stop.astype(np.int32)  # SciPy before 1.15 takes no others here
    tree = minimum_spanning_tree(coo_array((km, ends), shape=(nodes, nodes))).tocoo()
    in_tree = set(zip(tree.row.tolist(), tree.col.tolist(), strict=True))
    in_use = np.fromiter(((a, b) in in_tree for a, b in zip(start.tolist(), stop.tolist(), strict=True)), bool, len(km))
    return keep | in_use


def largest_component(streets: Streets) -> Streets:
    """The part of the network in which every junction can be reached from every other."""
    _, component = connected_components(streets.seconds(), directed=False)
    inside = component == np.bincount(component).argmax()
    number = np.cumsum(inside) - 1
    roads = inside[streets.start] & inside[streets.stop]
    return Streets(
        streets.x[inside],
        streets.y[inside],
        number[streets.start[roads]].astype(np.int32),
        number[streets.stop[roads]].astype(np.int32),
        streets.km[roads],
        streets.kmh[roads],
    )
