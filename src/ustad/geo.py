"""Distances on the sphere and one flat projection in kilometres that is fitted once and stored."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

EARTH_RADIUS_KM = 6371.0088


def haversine_km(lat1: np.ndarray, lon1: np.ndarray, lat2: np.ndarray, lon2: np.ndarray) -> np.ndarray:
    """Great-circle distance in kilometres between points in degrees; arguments broadcast."""
    lat1, lon1, lat2, lon2 = (np.radians(np.asarray(v, np.float64)) for v in (lat1, lon1, lat2, lon2))
    half = np.sin((lat2 - lat1) / 2) ** 2 + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    return 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(half, 0.0, 1.0)))


def unit_vectors(lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
    """Points on the unit sphere [..., 3]; their chord grows with the great-circle distance."""
    lat, lon = np.radians(np.asarray(lat, np.float64)), np.radians(np.asarray(lon, np.float64))
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=-1)


@dataclass(frozen=True)
class Projection:
    """Azimuthal equidistant around a centre: x east and y north in km, right also over ±180° and at the poles.

    >>> p = Projection(34.05, -118.25)
    >>> [round(float(v), 6) for v in p.backward(*p.forward(34.2, -118.5))]
    [34.2, -118.5]
    """

    lat: float
    lon: float

    @classmethod
    def fit(cls, lat: np.ndarray, lon: np.ndarray) -> Projection:
        """Centred on the mean direction of the points (the mean of degrees breaks at ±180°)."""
        x, y, z = unit_vectors(lat, lon).mean(axis=0)
        if x * x + y * y + z * z < 1e-12:  # points spread evenly over the globe: any centre is as good
            return cls(0.0, 0.0)
        return cls(float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x))))

    def forward(self, lat: np.ndarray, lon: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Degrees to (x, y) km."""
        phi, lam = np.radians(np.asarray(lat, np.float64)), np.radians(np.asarray(lon, np.float64) - self.lon)
        phi0 = np.radians(self.lat)
        east = np.cos(phi) * np.sin(lam)
        north = np.cos(phi0) * np.sin(phi) - np.sin(phi0) * np.cos(phi) * np.cos(lam)
        up = np.sin(phi0) * np.sin(phi) + np.cos(phi0) * np.cos(phi) * np.cos(lam)
        sine = np.hypot(east, north)
        angle = np.arctan2(sine, up)
        stretch = np.where(sine > 1e-15, angle / np.maximum(sine, 1e-15), 1.0) * EARTH_RADIUS_KM
        return stretch * east, stretch * north

    def forward_one(self, lat: float, lon: float) -> tuple[float, float]:
        """`forward` of one point, without making arrays; NaN where it is not known."""
        if not (math.isfinite(lat) and math.isfinite(lon)):
            return math.nan, math.nan
        phi, lam, phi0 = math.radians(lat), math.radians(lon - self.lon), math.radians(self.lat)
        level, rise = math.cos(phi), math.sin(phi)
        east, ahead = level * math.sin(lam), level * math.cos(lam)
        north = math.cos(phi0) * rise - math.sin(phi0) * ahead
        up = math.sin(phi0) * rise + math.cos(phi0) * ahead
        sine = math.hypot(east, north)
        stretch = (math.atan2(sine, up) / sine if sine > 1e-15 else 1.0) * EARTH_RADIUS_KM
        return stretch * east, stretch * north

    def backward(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(x, y) km to degrees."""
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        rho = np.hypot(x, y)
        angle, phi0 = rho / EARTH_RADIUS_KM, np.radians(self.lat)
        ratio = np.where(rho > 1e-12, y / np.maximum(rho, 1e-12), 0.0)
        phi = np.arcsin(np.clip(np.cos(angle) * np.sin(phi0) + np.sin(angle) * np.cos(phi0) * ratio, -1, 1))
        lam = np.arctan2(x * np.sin(angle), rho * np.cos(phi0) * np.cos(angle) - y * np.sin(phi0) * np.sin(angle))
        lam = np.where(rho <= 1e-12, 0.0, lam)  # of a point that is not known NaN
        return np.degrees(phi), (np.degrees(lam) + self.lon + 180.0) % 360.0 - 180.0

    def backward_one(self, x: float, y: float) -> tuple[float, float]:
        """`backward` of one point, without making arrays; NaN where it is not known."""
        if not (math.isfinite(x) and math.isfinite(y)):
            return math.nan, math.nan
        rho, phi0 = math.hypot(x, y), math.radians(self.lat)
        angle, ratio = rho / EARTH_RADIUS_KM, y / rho if rho > 1e-12 else 0.0
        rise = math.cos(angle) * math.sin(phi0) + math.sin(angle) * math.cos(phi0) * ratio
        east, ahead = x * math.sin(angle), rho * math.cos(phi0) * math.cos(angle) - y * math.sin(phi0) * math.sin(angle)
        lam = math.atan2(east, ahead) if rho > 1e-12 else 0.0
        lat = math.degrees(math.asin(min(max(rise, -1.0), 1.0)))
        return lat, (math.degrees(lam) + self.lon + 180.0) % 360.0 - 180.0


#: Metres of one degree of latitude.
METRES_PER_DEGREE = np.radians(1.0) * EARTH_RADIUS_KM * 1000.0


def snap_to_grid(lat: np.ndarray, lon: np.ndarray, metres: float) -> tuple[np.ndarray, np.ndarray]:
    """The middle of the cell, about `metres` wide and high, that each point in degrees lies in. The grid is fixed: all
    points of a cell have one answer, so that many answers together say no more than one.

    >>> [round(float(v), 4) for v in snap_to_grid(60.1699, 24.9384, 1000)]
    [60.1685, 24.9334]
    """
    step = metres / METRES_PER_DEGREE
    middle = np.clip((np.floor(np.asarray(lat, np.float64) / step) + 0.5) * step, -90.0, 90.0)
    wide = np.minimum(step / np.maximum(np.cos(np.radians(middle)), 1e-9), 360.0)
    across = (np.floor((np.asarray(lon, np.float64) + 180.0) / wide) + 0.5) * wide - 180.0
    return np.round(middle, 6), np.round(np.minimum(across, 180.0), 6)
