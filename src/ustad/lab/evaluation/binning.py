"""Many events as few numbers: quantiles, histograms and hexagons, so that result files hold aggregates only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_GRID = 26  # hexagons across


def five_numbers(values: np.ndarray) -> list[float]:
    """5th, 25th, 50th, 75th and 95th percentile, missing values left out."""
    values = values[np.isfinite(values)]
    return [float(v) for v in np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95])] if len(values) else []


def histogram(values: np.ndarray, edges: np.ndarray) -> list[int]:
    """Counts between the edges; what lies beyond the last is counted in the last bin."""
    return np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0].tolist()


def hexagons(x: np.ndarray, y: np.ndarray, logarithms: bool = True) -> dict[str, Any]:
    """Counts in hexagons: centres (`x`, `y`), `count`, and the width and height of a hexagon (`size`).

    With logarithms the axes are log₁₀; values of zero and below, and missing ones, are left out and counted.
    """
    is_finite = np.isfinite(x) & np.isfinite(y)
    if logarithms:
        is_finite &= (x > 0) & (y > 0)
    a, b = (v[is_finite].astype(np.float64) for v in (x, y))
    if logarithms:
        a, b = np.log10(a), np.log10(b)
    left_out = int(len(x) - is_finite.sum())
    if not len(a):
        return {"x": [], "y": [], "count": [], "size": [1.0, 1.0], "left_out": left_out}
    width, height = ((max(float(np.ptp(v)), 1e-9)) / _GRID for v in (a, b))
    centres = _nearest_centres((a - a.min()) / width, (b - b.min()) / height)
    spots, count = np.unique(centres, axis=0, return_counts=True)
    return {
        "x": np.round(spots[:, 0] * width + a.min(), 4).tolist(),
        "y": np.round(spots[:, 1] * height + b.min(), 4).tolist(),
        "count": count.tolist(),
        "size": [float(width), float(height)],
        "left_out": left_out,
    }


def pool_hexagons(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Hexagons of several data sets in one lattice: `x`, `y`, `count` and `size` as of `hexagons`.

    Each part has a lattice of its own, so that the count of a hexagon is spread over seven points inside it.
    """
    if len(parts) == 1:
        return parts[0]
    angles = np.arange(6) * np.pi / 3
    inside = np.vstack([[0.0, 0.0], 0.36 * np.stack([np.cos(angles), np.sin(angles)], axis=1)])
    points, weights = [np.empty((0, 2))], [np.empty(0)]
    for part in parts:
        centres = np.stack([part["x"], part["y"]], axis=1).reshape(-1, 1, 2)
        points.append((centres + inside * part["size"]).reshape(-1, 2))
        weights.append(np.repeat(np.asarray(part["count"], float) / len(inside), len(inside)))
    xy, weight = np.concatenate(points), np.concatenate(weights)
    left_out = sum(part.get("left_out", 0) for part in parts)
    if not len(xy):
        return {"x": [], "y": [], "count": [], "size": [1.0, 1.0], "left_out": left_out}
    corner, size = xy.min(axis=0), np.maximum(np.ptp(xy, axis=0), 1e-9) / _GRID
    centres = _nearest_centres(*((xy - corner) / size).T)
    spots, number = np.unique(centres, axis=0, return_inverse=True)
    x, y = (spots * size + corner).T
    count = np.bincount(number.ravel(), weight)
    return {"x": x.tolist(), "y": y.tolist(), "count": count.tolist(), "size": size.tolist(), "left_out": left_out}


def pool_histograms(edges: Sequence[Sequence[float]], counts: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Edges that hold those of all data sets, and their counts between them: events lie evenly within a bin."""
    ends = min(own[0] for own in edges), max(own[-1] for own in edges)
    common = np.linspace(*ends, max(map(len, edges)))
    up_to = sum(
        np.interp(common, own, np.r_[0.0, np.cumsum(numbers)]) for own, numbers in zip(edges, counts, strict=True)
    )
    return common, np.diff(up_to)


def _nearest_centres(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Centres of the hexagonal lattice (two shifted rectangular ones) nearest to each point: [n, 2]."""
    rows = np.sqrt(3.0)
    one = np.stack([np.round(a), np.round(b / rows) * rows], axis=1)
    other = np.stack([np.floor(a) + 0.5, (np.floor(b / rows) + 0.5) * rows], axis=1)
    points = np.stack([a, b], axis=1)
    nearer = ((points - one) ** 2).sum(1) <= ((points - other) ** 2).sum(1)
    return np.round(np.where(nearer[:, None], one, other), 6)
