"""Many events as few numbers: quantiles, histograms and hexagons, so that result files hold aggregates only."""

from __future__ import annotations

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


def _nearest_centres(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Centres of the hexagonal lattice (two shifted rectangular ones) nearest to each point: [n, 2]."""
    rows = np.sqrt(3.0)
    one = np.stack([np.round(a), np.round(b / rows) * rows], axis=1)
    other = np.stack([np.floor(a) + 0.5, (np.floor(b / rows) + 0.5) * rows], axis=1)
    points = np.stack([a, b], axis=1)
    nearer = ((points - one) ** 2).sum(1) <= ((points - other) ** 2).sum(1)
    return np.round(np.where(nearer[:, None], one, other), 6)
