"""A city: districts, streets, places by category, and the homes of its households.

Out comes `City`: everything about places that tables need, and the `World` that compiled kernels use.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from ustad.geo import Projection
from ustad.simulate.catalogue import APARTMENT, BY_NAME, CATEGORIES, HOUSE, N_ACTIVITIES
from ustad.simulate.chance import generator, uniforms
from ustad.simulate.presets import Preset
from ustad.simulate.routes import World, shortest_trees
from ustad.simulate.streets import LOCAL_KMH, Streets, grid_streets

INDEX_CELLS = 64
CITY_STREAM, HOME_STREAM = 1, 2


@dataclass(frozen=True)
class Ground:
    """Streets, the places that are not homes, and where people live. Fixed for a city, whoever lives there."""

    projection: Projection
    streets: Streets
    living: np.ndarray  # float64 [N]: cumulative share of homes by junction
    spread_km: np.ndarray  # float64 [N]: half the size of the block around a junction
    urbanity: np.ndarray  # float64 [N]: 0 in the suburbs … 1 in the centres
    x: np.ndarray  # float64 [C], km
    y: np.ndarray
    category: np.ndarray  # int16 [C]


@dataclass(frozen=True)
class City:
    """A ground with homes. Places [P] are the ground's, then one home per household."""

    ground: Ground
    world: World
    category: np.ndarray  # int16 [P]
    place: np.ndarray  # float64 [P, 2]: lat, lon
    node: np.ndarray  # float64 [N, 2]: lat, lon of the junctions
    first_home: int


def build_ground(preset: Preset, seed: int) -> Ground:
    """Districts, streets and places of a procedural city."""
    rng = generator(seed, CITY_STREAM)
    streets = grid_streets(preset, rng)
    living, working = _densities(preset, streets, rng)
    spread = _block_size(streets)
    area = spread**2
    urbanity = np.minimum(1.0, working / np.quantile(working, 0.97))
    x, y, category = _scatter_places(preset, streets, living * area, working * area, spread=spread, rng=rng)
    cumulative = np.cumsum(living * area)
    projection = Projection(preset.lat, preset.lon)
    return Ground(projection, streets, cumulative / cumulative[-1], spread, urbanity, x, y, category)


def settle_homes(ground: Ground, households: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x, y (km) and category of one home per household; each follows from the household's number alone."""
    number = np.arange(households)
    draws = [uniforms(seed, HOME_STREAM + 100 * k, number) for k in range(4)]
    node = np.minimum(np.searchsorted(ground.living, draws[0], side="right"), len(ground.living) - 1)
    spread = ground.spread_km[node]
    x = ground.streets.x[node] + (2 * draws[1] - 1) * spread
    y = ground.streets.y[node] + (2 * draws[2] - 1) * spread
    x, y = _inside(ground.streets, x, y)
    flats = draws[3] < 0.15 + 0.7 * ground.urbanity[node]
    return x, y, np.where(flats, APARTMENT, HOUSE).astype(np.int16)


def build_city(ground: Ground, households: int, seed: int) -> City:
    """The ground with its homes, routes and index."""
    home_x, home_y, home_category = settle_homes(ground, households, seed)
    x, y = np.r_[ground.x, home_x], np.r_[ground.y, home_y]
    category = np.r_[ground.category, home_category]
    streets = ground.streets
    _, junction = cKDTree(np.c_[streets.x, streets.y]).query(np.c_[x, y])
    access_km = np.abs(x - streets.x[junction]) + np.abs(y - streets.y[junction])
    seconds, before = shortest_trees(streets)
    cell, corner, first, members = _index(x, y, category)
    access_s = access_km / LOCAL_KMH * 3600.0
    world = World(seconds, before, x, y, junction.astype(np.int32), access_s, cell, corner, first, members)
    place = np.stack(ground.projection.backward(x, y), axis=1)
    node = np.stack(ground.projection.backward(streets.x, streets.y), axis=1)
    return City(ground, world, category, place, node, len(ground.x))


def _densities(preset: Preset, streets: Streets, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Residents and jobs per unit of area at every junction: a main centre, districts, a thin background."""
    size = float(np.hypot(preset.half_width_km, preset.half_height_km))
    where = rng.uniform(-0.75, 0.75, (preset.centres, 2)) * [preset.half_width_km, preset.half_height_km]
    where[0] = 0.0
    weight = 1.0 / np.arange(1, preset.centres + 1) ** 0.7
    distance = np.hypot(streets.x[:, None] - where[:, 0], streets.y[:, None] - where[:, 1])
    living = (weight * np.exp(-distance / (0.18 * size))).sum(1) + 0.03
    working = (weight * np.exp(-distance / (0.055 * size))).sum(1) + 0.015
    patchy = np.exp(rng.normal(0.0, 0.5, len(streets.x)))
    return living * patchy, working * patchy


def _block_size(streets: Streets) -> np.ndarray:
    """Half the distance to the fourth-nearest junction, roughly half a block: [N] km."""
    points = np.c_[streets.x, streets.y]
    distance, _ = cKDTree(points).query(points, k=min(5, len(points)))
    return distance[:, -1] / 2


def _scatter_places(
    preset: Preset,
    streets: Streets,
    living: np.ndarray,
    working: np.ndarray,
    *,
    spread: np.ndarray,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places by category: as many as its share says, where residents or jobs are, by its urbanity."""
    codes = [BY_NAME[name] for name in preset.classes if CATEGORIES[BY_NAME[name]].share > 0]
    total = sum(CATEGORIES[code].share for code in codes)
    living, working = living / living.sum(), working / working.sum()
    x, y, category = [], [], []
    for code in sorted(codes):
        kind = CATEGORIES[code]
        count = max(2, round(preset.places * kind.share / total))
        weight = kind.urbanity * working + (1 - kind.urbanity) * living
        node = rng.choice(len(weight), count, p=weight / weight.sum())
        shift = rng.uniform(-0.8, 0.8, (2, count)) * spread[node]
        x.append(streets.x[node] + shift[0])
        y.append(streets.y[node] + shift[1])
        category.append(np.full(count, code, np.int16))
    return *_inside(streets, np.concatenate(x), np.concatenate(y)), np.concatenate(category)


def _inside(streets: Streets, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points moved to the edge of the street network where they lie outside."""
    return np.clip(x, streets.x.min(), streets.x.max()), np.clip(y, streets.y.min(), streets.y.max())


def _index(x: np.ndarray, y: np.ndarray, category: np.ndarray) -> tuple[np.ndarray, ...]:
    """Places by activity and grid cell: cell size, corner, first [activities, cells + 1], places."""
    corner = np.array([x.min(), y.min()])
    cell = np.array([np.ptp(x), np.ptp(y)]) / INDEX_CELLS + 1e-9
    column = np.minimum((x - corner[0]) / cell[0], INDEX_CELLS - 1).astype(np.int64)
    row = np.minimum((y - corner[1]) / cell[1], INDEX_CELLS - 1).astype(np.int64)
    at = row * INDEX_CELLS + column
    first, places, begin = [], [], 0
    serves = np.zeros((len(CATEGORIES), N_ACTIVITIES), bool)
    for code, kind in enumerate(CATEGORIES):
        serves[code, list(kind.activities)] = True
    for activity in range(N_ACTIVITIES):
        members = np.flatnonzero(serves[category, activity])
        members = members[np.argsort(at[members], kind="stable")]
        bounds = np.searchsorted(at[members], np.arange(INDEX_CELLS**2 + 1))
        first.append(begin + bounds)
        places.append(members)
        begin += len(members)
    return cell, corner, np.stack(first).astype(np.int64), np.concatenate(places).astype(np.int32)
