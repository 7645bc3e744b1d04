"""Degrees to points on the unit sphere and back: distances are chords, without trigonometry in hot loops."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np


@numba.njit(cache=True, nogil=True)
def sphere_points(lat: Any, lon: Any) -> Any:
    """Points on the unit sphere [n, 3] of degrees; a fix that repeats the one before costs nothing."""
    points = np.empty((len(lat), 3))
    x, y, z = 0.0, 0.0, 0.0
    for k in range(len(lat)):
        if k == 0 or lat[k] != lat[k - 1] or lon[k] != lon[k - 1]:
            phi, lam = math.radians(lat[k]), math.radians(lon[k])
            x, y, z = math.cos(phi) * math.cos(lam), math.cos(phi) * math.sin(lam), math.sin(phi)
        points[k, 0], points[k, 1], points[k, 2] = x, y, z
    return points


def degrees(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Latitude and longitude of points on the unit sphere."""
    return np.degrees(np.arctan2(z, np.hypot(x, y))), np.degrees(np.arctan2(y, x))
